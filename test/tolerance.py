"""Turns a TENSOR graph and its leaves' arrays into a reference and how far a result may be from it.

A running error analysis, node by node. Exact ops on exact operands are evaluated in their own dtype
and must agree bit for bit (bound 0). From the first inexact op on (a float sum, a function of the
C library) the reference runs in float64 and a bound of the absolute error runs beside it. A bound
of inf marks an element that nobody can compare: an error of its operands straddles a decision, such
as a comparison, a truncation or an overflow.
"""

from dataclasses import dataclass

import numpy as np

from tinytensor.dtype import MANTISSA_BITS, dtypes
from tinytensor.ops.attrs import Combine
from tinytensor.ops.fold import fold
from tinytensor.ops.interpret import evaluate
from tinytensor.ops.interpret_tensor import TENSOR
from tinytensor.ops.op import COMPARE, ELEMENTWISE, VIEWS, Mark, Op
from tinytensor.ops.uop import walk

FUNCTION_ULP = 2.0  # what the op table promises of every function
MONOTONE = {Op.NEG, Op.SQRT, Op.FLOOR, Op.TRUNC, Op.EXP, Op.LOG, Op.TANH, Op.ERF}
LEAST_EXPONENT = {"float16": -14, "bfloat16": -126, "float32": -126, "float64": -1022}


@dataclass(frozen=True)
class Bounded:
    """Reference values, and how far from them a right result may be, element by element.

    Floats are held in float64; integers and bools in their own type, with a bound of 0 or inf.
    """

    values: np.ndarray
    bounds: np.ndarray

    @property
    def exact(self):
        return self.bounds == 0


def assert_close(result, root, arrays, incomparable=0.01):
    """Check a result (bfloat16: as float32) of a graph; `arrays` gives the values of its leaves.

    At most a fraction `incomparable` of the elements may escape comparison.
    """
    values, bounds = error_bound(root, arrays)
    result = np.asarray(result)
    assert result.shape == root.shape, f"shape {result.shape}, not {root.shape}"
    escaped = np.isinf(bounds)
    assert np.mean(escaped) <= incomparable or not escaped.size, (
        f"{np.sum(escaped)} of {escaped.size} elements cannot be compared"
    )
    wrong = ~(escaped | _agrees(result, values, bounds))
    if wrong.any():
        place = tuple(int(each) for each in np.argwhere(wrong)[0])
        raise AssertionError(
            f"{np.sum(wrong)} of {wrong.size} elements are wrong, first at {place}: "
            f"{result[place]!r}, not {values[place]!r} within {bounds[place]:.3g}"
        )


def error_bound(root, arrays):
    """Return the reference values of a graph and the bound of the absolute error of each."""
    known = {leaf: _exact(leaf.dtype, array) for leaf, array in arrays.items()}
    with np.errstate(all="ignore"):
        for node in walk((root,), stop=set(arrays)):
            if node not in known:
                known[node] = _bounded(node, known)
    found = known[root]
    shape = root.shape
    return np.broadcast_to(found.values, shape), np.broadcast_to(found.bounds, shape)


def _agrees(result, values, bounds):
    if values.dtype.kind != "f":
        return result == values
    wide = result.astype(np.float64)
    same = (wide == values) & (np.signbit(wide) == np.signbit(values))
    same |= np.isnan(wide) & np.isnan(values)
    with np.errstate(invalid="ignore"):
        near = np.abs(wide - values) <= bounds
    return same | (near & (bounds > 0))


def _bounded(node, known):
    operands = [known[each] for each in node.operands]
    if node.op in VIEWS or node.op is Op.COPY:
        return _view(node, operands)
    if node.op is Op.GATHER:
        return _gathered(node, *operands)
    if node.op is Op.REDUCE:
        return _reduce(node, operands[0], known)
    if node.op not in ELEMENTWISE:
        return _exact(node.dtype, TENSOR[node.op](node))
    return _elementwise(node, operands)


def _exact(dtype, array):
    """What is known to the last bit."""
    array = np.asarray(array)
    return Bounded(array.astype(np.float64) if dtype.is_float else array, np.zeros(array.shape))


def _view(node, operands):
    fills = [each.bounds for each in operands]
    values = [each.values for each in operands]
    return Bounded(TENSOR[node.op](node, *values), TENSOR[node.op](node, *fills))


def _gathered(node, x, *indices):
    places = [each.values for each in indices]  # integers: exact
    gather = TENSOR[node.op]
    return Bounded(gather(node, x.values, *places), gather(node, x.bounds, *places))


# Elementwise ops.
def _elementwise(node, operands):
    native = _evaluate_natively(node, operands)
    exact = np.logical_and.reduce([each.exact for each in operands])
    exact &= node.op.mark is Mark.EXACT
    if exact.all():
        return native
    if node.op is Op.WHERE:
        return _where(operands)
    wide = [each.values for each in operands]
    if node.dtype.is_float and node.op is not Op.BITCAST:
        inexact = _inexact_float(node, operands, _evaluate_wide(node, wide))
    else:
        inexact = Bounded(native.values, _decision_bound(node, operands))
    bounds = np.where(exact, 0, inexact.bounds)
    return Bounded(np.where(exact, native.values, inexact.values), bounds)


def _evaluate_natively(node, operands):
    sources = [each.dtype.value_numpy for each in node.operands]
    arrays = [each.values.astype(dtype) for each, dtype in zip(operands, sources, strict=True)]
    return _exact(node.dtype, evaluate(node.op, node.dtype, *arrays))


def _evaluate_wide(node, values):
    if node.op is Op.CAST:
        return values[0].astype(np.float64)
    return evaluate(node.op, dtypes.float64, *values)


def _inexact_float(node, operands, values):
    """The bound of a float op: what its operands' errors become, and its own rounding."""
    dtype = node.dtype
    bounds = _propagate(node.op, operands, values)
    if node.op.mark is Mark.TRANSCENDENTAL:
        bounds = bounds + FUNCTION_ULP * 2 * _rounding(_computing(dtype), values)
    if node.op is not Op.NEG:
        bounds = bounds + _rounding(dtype, values)
    return _overflow(dtype, values, bounds)


def _propagate(op, operands, values):
    """How far the exact result moves when every operand moves within its bound."""
    x = operands[0]
    if op is Op.CAST:
        return x.bounds
    if op in MONOTONE:
        return _endpoints_bound(op, x, values)
    if op in (Op.SIN, Op.COS):
        return np.minimum(x.bounds, 2)
    y = operands[1]
    if op in (Op.ADD, Op.SUB):
        return x.bounds + y.bounds
    if op in (Op.MAX, Op.MIN):
        return np.maximum(x.bounds, y.bounds)
    if op is Op.MUL:
        return _times(x, y) + _times(y, x) + x.bounds * y.bounds
    assert op in (Op.DIV, Op.MOD), f"{op} has no error analysis"
    quotient = x.values / y.values
    room = np.abs(y.values) - y.bounds
    moved = (x.bounds + np.abs(quotient) * y.bounds) / np.where(room > 0, room, np.nan)
    if op is Op.DIV:
        return moved
    # A remainder is continuous only where its floor cannot change.
    steps = np.floor(quotient - moved) == np.floor(quotient + moved)
    return np.where(steps, x.bounds + np.abs(np.floor(quotient)) * y.bounds, np.inf)


def _times(x, y):
    """|x| times y's bound; nothing, whatever x is, where y is exact."""
    return np.where(y.exact, 0, np.abs(x.values) * y.bounds)


def _endpoints_bound(op, x, values):
    """A monotone function moves most at an end of the interval; NaN must stay NaN all over it."""
    ends = [evaluate(op, dtypes.float64, x.values + way * x.bounds) for way in (-1, 1)]
    bound = np.maximum(*[np.where(values == end, 0, np.abs(end - values)) for end in ends])
    stays = np.isnan(values) & np.isnan(ends[0]) & np.isnan(ends[1])
    return np.where(stays, 0, bound)


def _rounding(dtype, values):
    """Half an ulp of the dtype, and as much again of float64 for the reference itself."""
    size = np.where(np.isfinite(values), np.abs(values), 0)
    least = 2.0 ** (LEAST_EXPONENT[dtype.name] - MANTISSA_BITS[dtype.name])
    return size * (dtype.epsilon / 2 + dtypes.float64.epsilon / 2) + least / 2


def _computing(dtype):
    return dtypes.float32 if dtype.is_narrow else dtype


def _largest(dtype):
    return (2 - dtype.epsilon) * 2.0 ** (1 - LEAST_EXPONENT[dtype.name])


def _overflow(dtype, values, bounds):
    """Settle what leaves the dtype: surely infinite, or not comparable where it may be either."""
    finite = np.isfinite(values)
    bounds = np.where(np.isnan(bounds), np.inf, bounds)
    bounds = np.where(finite | np.isinf(bounds), bounds, 0)
    above = finite & (np.abs(values) - bounds > _largest(dtype) * (1 + dtype.epsilon))
    may = finite & ~above & (np.abs(values) + bounds > _largest(dtype))
    values = np.where(above, np.copysign(np.inf, values), values)
    return Bounded(values, np.where(above, 0, np.where(may, np.inf, bounds)))


def _where(operands):
    """Where the condition is undecided, either side may be the result."""
    cond, x, y = operands
    chosen, other = cond.values, ~cond.values
    values = np.where(chosen, x.values, y.values)
    bounds = np.where(chosen, x.bounds, y.bounds)
    if values.dtype.kind != "f":
        return Bounded(values, np.where(cond.exact, bounds, np.inf))
    distance = np.where(x.values == y.values, 0, np.abs(x.values - y.values))
    distance = distance + np.where(other, x.bounds, y.bounds)
    either = np.maximum(bounds, np.where(np.isnan(distance), np.inf, distance))
    return Bounded(values, np.where(cond.exact, bounds, either))


def _decision_bound(node, operands):
    """0 where every legal value of the operands gives the same integer or bool, else inf."""
    x = operands[0]
    if node.op in COMPARE and node.operands[0].dtype.is_float:
        y = operands[1]
        decided = ~(np.abs(x.values - y.values) <= x.bounds + y.bounds)
        decided &= np.isfinite(x.bounds) & np.isfinite(y.bounds)
    elif node.op is Op.CAST and node.operands[0].dtype.is_float:
        ends = [evaluate(Op.CAST, node.dtype, x.values + way * x.bounds) for way in (-1, 1)]
        decided = (ends[0] == ends[1]) & np.isfinite(x.bounds)
        if node.dtype is dtypes.bool:
            decided = ~(np.abs(x.values) <= x.bounds)
    else:
        decided = False
    exact = np.logical_and.reduce([each.exact for each in operands])
    return np.where(decided | exact, 0, np.inf)


# Reductions.
def _reduce(node, x, known):
    combine, axes = node.attrs.combine, node.attrs.axes
    worst = x.bounds.max(axes, keepdims=True, initial=0)
    if combine in (Combine.ARGMAX, Combine.ARGMIN):
        return _position(node, x)
    if not node.dtype.is_float:
        return Bounded(fold(combine, x.values, axes, node.dtype), np.where(worst > 0, np.inf, 0))
    values = fold(combine, x.values, axes, dtypes.float64)
    if combine in (Combine.MAX, Combine.MIN):
        return Bounded(values, worst)
    if combine is Combine.ADD and _adds_exactly(node, known):
        return _exact(node.dtype, fold(combine, _native(node, x), axes, node.dtype))
    bounds = _sum_bound(node, x) if combine is Combine.ADD else _product_bound(node, x, values)
    return _overflow(node.dtype, values, bounds)


def _native(node, x):
    return x.values.astype(node.dtype.value_numpy)


def _folded(node):
    """The number of elements that one result folds."""
    return int(np.prod([node.operands[0].shape[axis] for axis in node.attrs.axes], initial=1))


def _adds_exactly(node, known):
    """Whether every order gives the same bits: small integers (of integers, if products)."""
    x = node.operands[0]
    terms = [known[x]]
    if _folded(node) > 1:
        while x.op in VIEWS:
            x = x.operands[0]
        factors = x.operands if x.op is Op.MUL else ()
        terms += [known[each] for each in factors]
        total = np.abs(terms[0].values).sum(node.attrs.axes)
        bits = MANTISSA_BITS[_computing(node.dtype).name] + 1
        if not all(np.all(np.rint(each.values) == each.values) for each in terms):
            return False
        if not np.all(total < 2.0**bits):
            return False
    return all(each.exact.all() for each in terms)


def _sum_bound(node, x):
    """Any order, a truncating adder and fused products included: n * epsilon * sum(|x|)."""
    axes, computing = node.attrs.axes, _computing(node.dtype)
    finite = np.isfinite(x.values)
    total = (np.where(finite, np.abs(x.values), 0) + x.bounds).sum(axes, keepdims=True)
    growth = _folded(node) * (computing.epsilon + dtypes.float64.epsilon)
    flushed = _folded(node) * 2.0 ** LEAST_EXPONENT[computing.name]
    bounds = x.bounds.sum(axes, keepdims=True) + growth / (1 - growth) * total + flushed
    bounds = np.where(total > _largest(computing), np.inf, bounds)
    return bounds + _half_rounding(node.dtype, total)


def _product_bound(node, x, values):
    """Any order, as long as no partial product leaves the normal floats in any order."""
    axes, computing = node.attrs.axes, _computing(node.dtype)
    size = np.abs(x.values)
    growth = _folded(node) * (computing.epsilon + dtypes.float64.epsilon)
    widest = np.prod(size + x.bounds, axes, keepdims=True)
    bounds = widest * (1 + growth / (1 - growth)) - np.abs(values)
    high = np.prod(np.maximum(size, 1), axes, keepdims=True)
    low = np.prod(np.minimum(size, 1), axes, keepdims=True)
    normal = (high < _largest(computing)) & (low > 2.0 ** LEAST_EXPONENT[computing.name])
    return np.where(normal, bounds, np.inf) + _half_rounding(node.dtype, values)


def _half_rounding(dtype, values):
    return _rounding(dtype, values) if dtype.is_narrow else 0


def _position(node, x):
    """The first extreme's position, unless another element may reach it."""
    (axis,) = node.attrs.axes
    positions = fold(node.attrs.combine, x.values, node.attrs.axes, node.dtype)
    if x.values.size == 0 or x.exact.all():
        return _exact(node.dtype, positions)
    sign = 1 if node.attrs.combine is Combine.ARGMAX else -1
    best = np.take_along_axis(sign * x.values, positions, axis)
    slack = np.take_along_axis(x.bounds, positions, axis)
    reaches = (sign * x.values + x.bounds >= best - slack) & (x.bounds + slack > 0)
    np.put_along_axis(reaches, positions, False, axis)
    undecided = reaches.any(axis, keepdims=True)
    return Bounded(positions, np.where(undecided, np.inf, 0))
