"""Every function graph keeps its bound in ulp, and is right where formulas usually are not."""

import math

import numpy as np
import pytest

from tinytensor.codegen.functions import REDUCIBLE, expand
from tinytensor.dtype import dtypes
from tinytensor.errors import InternalError
from tinytensor.ops.attrs import ParamAttrs
from tinytensor.ops.interpret import bits_of, constant, evaluate
from tinytensor.ops.linear import is_pure
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp, walk

# Largest error over all 2**32 floats, against float64. Units: ulp of the float32 result.
ULP_BOUND = {
    Op.EXP: 1.0,
    Op.LOG: 1.2,
    Op.SIN: 1.6,
    Op.COS: 1.6,
    Op.TANH: 1.4,
    Op.ERF: 1.2,
}
FUNCTIONS = tuple(ULP_BOUND)
REFERENCE = {
    Op.EXP: np.exp,
    Op.LOG: np.log,
    Op.SIN: np.sin,
    Op.COS: np.cos,
    Op.TANH: np.tanh,
    Op.ERF: lambda x: np.frompyfunc(math.erf, 1, 1)(x).astype(np.float64),
}
CALLED = {"sin": np.sin, "cos": np.cos}
INF, NAN, LEAST = math.inf, math.nan, 2.0**-149
BELOW_NORMAL = 2.0**-126 - LEAST
CHUNK = 1 << 16


def argument(lanes=1):
    return UOp(Op.PARAM, dtypes.float32.vector(lanes), (), ParamAttrs(0, 1))


def expansion(op, lanes=1, can_scale=False):
    x = argument(lanes)
    return expand(UOp(op, x.dtype, (x,)), can_scale)


def compute(op, array, lanes=1, can_scale=False):
    """Evaluate the graph of a function node by node."""
    known = {argument(lanes): np.asarray(array, np.float32)}
    root = expansion(op, lanes, can_scale)
    for node in walk((root,)):
        if node not in known:
            known[node] = meaning(node, [known[each] for each in node.operands])
    return known[root]


def meaning(node, operands):
    if node.op is Op.CONST:
        return constant(node)
    if node.op is Op.SPLAT:
        return operands[0]
    if node.op is Op.CALL:
        cond, x = operands
        asked = np.where(cond, x, 0).astype(np.float64)
        with np.errstate(invalid="ignore"):
            called = CALLED[node.attrs.function](asked).astype(np.float32)
        return np.where(cond, called, np.float32(0))
    return evaluate(node.op, node.dtype, *operands)


def floats(step):
    """Every step-th float32 by its bits, in chunks: both signs, every exponent, NaN too."""
    for first in range(0, 2**32, step * CHUNK):
        bits = np.arange(first, min(first + step * CHUNK, 2**32), step, np.uint64)
        yield bits.astype(np.uint32).view(np.float32)


def error_ulp(result, expected):
    """The distance in ulp of float32 at the expected value; infinity counts as 2**128."""
    limited = np.clip(expected, -(2.0**128), 2.0**128)
    found = np.clip(result.astype(np.float64), -(2.0**128), 2.0**128)
    exponent = np.clip(np.frexp(limited)[1], -125, 128)
    error = np.abs(found - limited) / np.ldexp(1.0, exponent - 24)
    both_nan = np.isnan(result) & np.isnan(expected)
    return np.where(both_nan, 0, np.where(np.isnan(error), INF, error))


def worst_ulp(op, step):
    with np.errstate(all="ignore"):
        return max(
            error_ulp(compute(op, x), REFERENCE[op](x.astype(np.float64))).max()
            for x in floats(step)
        )


@pytest.mark.parametrize("op", FUNCTIONS, ids=lambda op: op.name)
def test_a_function_keeps_its_bound(op):
    assert worst_ulp(op, 4093) <= ULP_BOUND[op]


@pytest.mark.slow
@pytest.mark.parametrize("op", FUNCTIONS, ids=lambda op: op.name)
def test_a_function_keeps_its_bound_on_many_floats(op):
    assert worst_ulp(op, 127) <= ULP_BOUND[op]


def test_every_bound_is_what_the_op_table_promises():
    assert set(ULP_BOUND) == {Op.EXP, Op.LOG, Op.SIN, Op.COS, Op.TANH, Op.ERF}
    assert max(ULP_BOUND.values()) <= 2


@pytest.mark.parametrize(
    ("op", "argument", "expected"),
    [
        *((op, NAN, NAN) for op in FUNCTIONS),
        *((op, -0.0, -0.0) for op in (Op.SIN, Op.TANH, Op.ERF)),
        *((op, 0.0, 0.0) for op in (Op.SIN, Op.TANH, Op.ERF)),
        *((op, zero, 1.0) for op in (Op.EXP, Op.COS) for zero in (0.0, -0.0)),
        *((op, sign * INF, NAN) for op in (Op.SIN, Op.COS) for sign in (1, -1)),
        *((op, sign * INF, float(sign)) for op in (Op.TANH, Op.ERF) for sign in (1, -1)),
        *((op, sign * 3e38, float(sign)) for op in (Op.TANH, Op.ERF) for sign in (1, -1)),
        (Op.EXP, INF, INF),
        (Op.EXP, -INF, 0.0),
        (Op.EXP, 3e38, INF),
        (Op.EXP, -3e38, 0.0),
        (Op.LOG, INF, INF),
        (Op.LOG, -INF, NAN),
        (Op.LOG, 0.0, -INF),
        (Op.LOG, -0.0, -INF),
        (Op.LOG, 1.0, 0.0),
        (Op.LOG, -LEAST, NAN),
        (Op.LOG, -1.0, NAN),
    ],
)
def test_a_special_argument_gives_its_special_value(op, argument, expected):
    result = compute(op, [argument])[0]

    wanted = np.float32(expected)
    assert (np.isnan(result) and np.isnan(wanted)) or bits_of(result) == bits_of(wanted)


@pytest.mark.parametrize("op", [Op.SIN, Op.TANH], ids=lambda op: op.name)
@pytest.mark.parametrize("tiny", [LEAST, -LEAST, BELOW_NORMAL, -BELOW_NORMAL, 1e-30])
def test_a_tiny_argument_is_its_own_value(op, tiny):
    assert compute(op, [tiny])[0] == np.float32(tiny)


@pytest.mark.parametrize("op", [Op.EXP, Op.COS], ids=lambda op: op.name)
@pytest.mark.parametrize("tiny", [LEAST, -LEAST, 1e-9, -1e-9])
def test_a_tiny_argument_gives_one(op, tiny):
    assert compute(op, [tiny])[0] == 1


def test_log_takes_denormals():
    # log(2**-149) = -149 * ln(2), and log(2**-127) = -127 * ln(2), both within one ulp.
    expected = np.array([-103.27893, -88.02969], np.float32)

    result = compute(Op.LOG, [LEAST, 2.0**-127])

    assert np.all(np.abs(result - expected) <= np.spacing(np.abs(expected)))


def test_exp_underflows_gradually():
    # In units of 2**-149; so few bits are left that only the last rounding counts.
    x = np.float32([-97.2, -100.0, -103.1, -103.9, -104.1])

    result = compute(Op.EXP, x)

    np.testing.assert_array_equal(result / LEAST, [437, 27, 1, 1, 0])


def test_exp_by_one_scaling_has_the_bits_of_exp_in_two_factors():
    for x in floats(4001):
        with np.errstate(all="ignore"):
            scaled, twice = compute(Op.EXP, x, can_scale=True), compute(Op.EXP, x)

        np.testing.assert_array_equal(scaled, twice)


def test_exp_overflows_at_the_last_float_that_allows_it():
    # e**x < 2**128 exactly while x < 128 * ln(2) = 88.722839...
    below = np.nextafter(np.float32(88.72284), np.float32(0))

    result = compute(Op.EXP, [below, np.float32(88.72284)])

    assert np.isfinite(result[0])
    assert np.isinf(result[1])


@pytest.mark.parametrize("op", [Op.SIN, Op.COS], ids=lambda op: op.name)
def test_only_large_arguments_ask_the_library(op):
    root = expansion(op)
    (call,) = [node for node in walk((root,)) if node.op is Op.CALL]
    asked = call.operands[0]
    (limit,) = [each for each in walk((asked,)) if each.op is Op.CONST and each.dtype.is_float]

    assert root.op is Op.WHERE and root.operands[:2] == (asked, call)
    assert limit.value == REDUCIBLE


@pytest.mark.parametrize("op", [Op.SIN, Op.COS], ids=lambda op: op.name)
def test_a_lane_depends_on_its_own_argument_alone(op):
    alone = compute(op, [1.0])

    among = compute(op, [1e30, 1.0, INF, NAN])

    assert bits_of(among)[1] == bits_of(alone)[0]


@pytest.mark.parametrize("op", FUNCTIONS, ids=lambda op: op.name)
def test_lanes_compute_as_scalars_do(op, seed):
    x = np.random.default_rng(seed).standard_normal((100, 8)) * 50
    root = expansion(op, lanes=8)

    vector = compute(op, x, lanes=8)

    assert root.dtype.lanes == 8
    np.testing.assert_array_equal(bits_of(vector), bits_of(compute(op, x)))


@pytest.mark.parametrize("op", FUNCTIONS, ids=lambda op: op.name)
def test_a_graph_holds_only_arithmetic_that_is_exact_per_op(op):
    nodes = walk((expansion(op),))

    assert all(is_pure(node) for node in nodes)
    assert not {node.op for node in nodes} & set(FUNCTIONS)
    assert {node.op for node in nodes if node.dtype.bits == 64} == set()


@pytest.mark.parametrize(
    ("op", "most"),
    [(Op.EXP, 20), (Op.LOG, 31), (Op.SIN, 28), (Op.COS, 28), (Op.TANH, 31), (Op.ERF, 36)],
)
def test_a_function_stays_cheap(op, most):
    free = (Op.CONST, Op.PARAM, Op.BITCAST)

    counted = [node for node in walk((expansion(op),)) if node.op not in free]

    assert len(counted) <= most


@pytest.mark.parametrize(
    ("op", "dtype", "words"),
    [(Op.EXP, dtypes.float64, "exp of float64"), (Op.SQRT, dtypes.float32, "sqrt of float32")],
)
def test_what_has_no_expansion_is_refused(op, dtype, words):
    x = UOp(Op.PARAM, dtype, (), ParamAttrs(0, 1))

    with pytest.raises(InternalError) as raised:
        expand(UOp(op, dtype, (x,)))

    wanted = f"functions: no expansion: {words}; a float32 function was required."
    assert wanted in str(raised.value)
