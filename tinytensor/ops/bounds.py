"""Turns an integer node into the least and the greatest value it can have."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Iterable
from functools import partial

from tinytensor.dtype import DType, dtypes
from tinytensor.ops.attrs import POSITIONS, Combine
from tinytensor.ops.op import Op
from tinytensor.ops.uop import Open, UOp

Bounds = tuple[int | float, int | float]
Integers = tuple[int, int]
FARTHEST = 2**128  # beyond any index; keeps the bounds of long products from growing without end


def bounds_of(node: UOp) -> Bounds:
    """Return (least, greatest) of an integer or bool node; floats give (-inf, inf).

    A user integer's op whose exact result can leave its dtype's range has the whole range.
    An extent of 0 counts as 1: nothing runs, so any bounds are true.

    >>> from tinytensor.ops.uop import make_range
    >>> bounds_of(make_range(0, 8) * 3 + 1)
    (1, 22)
    """
    if node.bounds is not None:
        return node.bounds
    stack = [node]
    while stack:
        top = stack[-1]
        missing = [] if _is_opaque(top) else [each for each in top.operands if each.bounds is None]
        if missing:
            stack.extend(missing)
            continue
        top.bounds = full_range(top.dtype) if _is_opaque(top) else _rule_for(top)(top)
        stack.pop()
    assert node.bounds is not None, "the walk ends at the node it began with"
    return node.bounds


def full_range(dtype: DType) -> Bounds:
    """Return the least and the greatest value of a dtype."""
    return dtype.min, dtype.max


def single_value(node: UOp) -> int | None:
    """Return the only value an integer node can have, or None."""
    low, high = bounds_of(node)
    return int(low) if low == high else None


def _is_opaque(node: UOp) -> bool:
    return node.dtype.is_float or node.op not in _BOUNDS


def _rule_for(node: UOp) -> Callable[[UOp], Bounds]:
    is_bool = node.dtype.scalar is dtypes.bool
    return _ON_BOOLS[node.op] if is_bool and node.op in _ON_BOOLS else _BOUNDS[node.op]


def _integers(node: UOp) -> Integers:
    low, high = bounds_of(node)
    return int(low), int(high)


def _fit(dtype: DType, low: int, high: int) -> Bounds:
    """The interval, or the whole range of a dtype that would wrap."""
    if dtype.kind == "index":
        return max(low, -FARTHEST), min(high, FARTHEST)
    return (low, high) if dtype.min <= low and high <= dtype.max else full_range(dtype)


def _hull(parts: Iterable[Bounds]) -> Bounds:
    lows, highs = zip(*parts, strict=True)
    return min(lows), max(highs)


def _const(node: UOp) -> Bounds:
    value = int(node.value)
    return value, value


def _range(node: UOp) -> Bounds:
    return 0, max(node.extent - 1, 0)


def most_of(extent: int) -> int:
    """Return the greatest value that an extent has at any launch."""
    return int(bounds_of(extent.expression)[1]) if isinstance(extent, Open) else extent


def _iota(node: UOp) -> Bounds:
    return _fit(node.dtype, 0, max(most_of(node.attrs.extent) - 1, 0))


def _add(node: UOp) -> Bounds:
    (a, b), (c, d) = map(_integers, node.operands)
    return _fit(node.dtype, a + c, b + d)


def _sub(node: UOp) -> Bounds:
    (a, b), (c, d) = map(_integers, node.operands)
    return _fit(node.dtype, a - d, b - c)


def _neg(node: UOp) -> Bounds:
    low, high = _integers(node.operands[0])
    return _fit(node.dtype, -high, -low)


def _mul(node: UOp) -> Bounds:
    x, y = map(_integers, node.operands)
    corners = [a * b for a, b in itertools.product(x, y)]
    return _fit(node.dtype, min(corners), max(corners))


def _max(node: UOp) -> Bounds:
    (a, b), (c, d) = map(_integers, node.operands)
    return max(a, c), max(b, d)


def _min(node: UOp) -> Bounds:
    (a, b), (c, d) = map(_integers, node.operands)
    return min(a, c), min(b, d)


def _divide(node: UOp, divide: Callable[[int, int], int]) -> Bounds:
    """The quotient is monotone on each side of divisor 0, where the result is 0."""
    x, (low, high) = map(_integers, node.operands)
    divisors = [each for each in (low, high, -1, 1) if low <= each <= high and each != 0]
    quotients = [divide(a, b) for a, b in itertools.product(x, divisors)]
    if low <= 0 <= high:
        quotients.append(0)
    return _fit(node.dtype, min(quotients), max(quotients))


def _truncate(a: int, b: int) -> int:
    return a // b if (a < 0) == (b < 0) else -(-a // b)


def _mod(node: UOp) -> Bounds:
    """A remainder has the sign of its divisor and is nearer to 0."""
    (a, b), (low, high) = map(_integers, node.operands)
    if low == high != 0 and a // low == b // low:
        return a % low, b % low
    least, greatest = min(low + 1, 0), max(high - 1, 0)
    if low >= 0 and a >= 0:
        greatest = min(greatest, b)
        if b < low:
            return a, b
    return least, greatest


def _truncmod(node: UOp) -> Bounds:
    """A truncated remainder has the sign of the dividend and is no further from 0."""
    (a, b), (low, high) = map(_integers, node.operands)
    reach = max(abs(low), abs(high), 1) - 1
    return max(min(a, 0), -reach), min(max(b, 0), reach)


def _and(node: UOp) -> Bounds:
    """No bit is set that a nonnegative operand lacks."""
    highs = [high for low, high in map(_integers, node.operands) if low >= 0]
    return (0, min(highs)) if highs else full_range(node.dtype)


def _or(node: UOp) -> Bounds:
    (a, b), (c, d) = map(_integers, node.operands)
    if min(a, c) < 0:
        return full_range(node.dtype)
    return max(a, c), 2 ** max(b.bit_length(), d.bit_length()) - 1


def _xor(node: UOp) -> Bounds:
    (a, b), (c, d) = map(_integers, node.operands)
    if a == b and c == d:
        return a ^ c, a ^ c
    if min(a, c) < 0:
        return full_range(node.dtype)
    return 0, 2 ** max(b.bit_length(), d.bit_length()) - 1


def _shl(node: UOp) -> Bounds:
    x, (low, high) = map(_integers, node.operands)
    if low < 0 or high >= node.dtype.bits:
        return full_range(node.dtype)
    corners = [a << b for a, b in itertools.product(x, (low, high))]
    return _fit(node.dtype, min(corners), max(corners))


def _shr(node: UOp) -> Bounds:
    """A shift beyond the width leaves the sign, as a shift by all other bits does."""
    x, (low, high) = map(_integers, node.operands)
    last = node.dtype.bits
    shifts = [last if shift < 0 or shift > last else shift for shift in (low, high)]
    if low < 0 <= high:
        shifts.append(0)
    corners = [a >> b for a, b in itertools.product(x, shifts)]
    return min(corners), max(corners)


def _settle(is_true: bool, is_false: bool) -> Bounds:
    return (1, 1) if is_true else (0, 0) if is_false else (0, 1)


def _lt(node: UOp) -> Bounds:
    (a, b), (c, d) = map(bounds_of, node.operands)
    return _settle(b < c, a >= d)


def _le(node: UOp) -> Bounds:
    (a, b), (c, d) = map(bounds_of, node.operands)
    return _settle(b <= c, a > d)


def _eq(node: UOp) -> Bounds:
    (a, b), (c, d) = map(bounds_of, node.operands)
    return _settle(a == b == c == d, b < c or d < a)


def _ne(node: UOp) -> Bounds:
    low, high = _eq(node)
    return 1 - high, 1 - low


def _where(node: UOp) -> Bounds:
    cond, x, y = map(bounds_of, node.operands)
    if cond[0] == cond[1]:
        return x if cond[0] else y
    return _hull((x, y))


def _cast(node: UOp) -> Bounds:
    src = node.operands[0].dtype
    if src.is_float:
        return full_range(node.dtype)
    low, high = _integers(node.operands[0])
    if node.dtype.scalar is dtypes.bool:
        return _settle(low > 0 or high < 0, low == high == 0)
    return _fit(node.dtype, low, high)


def _loop(node: UOp) -> Bounds:
    begin, end = map(_integers, node.operands)
    return begin[0], max(begin[0], end[1] - 1)


def _reduce(node: UOp) -> Bounds:
    x, *ranges = node.operands
    extents = [each.extent for each in ranges]
    extents += [most_of(x.shape[axis]) for axis in node.attrs.axes]
    count = math.prod(extents)
    if node.attrs.combine in POSITIONS:
        return 0, max(count - 1, 0)
    if count == 0 or node.attrs.combine not in (Combine.ADD, Combine.MAX, Combine.MIN):
        return full_range(node.dtype)
    low, high = _integers(x)
    if node.attrs.combine is Combine.ADD and node.dtype is not dtypes.bool:
        return _fit(node.dtype, low * count, high * count)
    return low, high


def _union(node: UOp) -> Bounds:
    return _hull(map(bounds_of, node.operands))


_BOUNDS: dict[Op, Callable[[UOp], Bounds]] = {
    Op.CONST: _const,
    Op.RANGE: _range,
    Op.IOTA: _iota,
    Op.EXTENT: lambda node: (0, node.attrs.extent),
    Op.VARIABLE: lambda node: (node.attrs.least, node.attrs.most),
    Op.LOOP: _loop,
    Op.PLACE: lambda node: (0, node.attrs.extent - 1),
    Op.ADD: _add,
    Op.SUB: _sub,
    Op.NEG: _neg,
    Op.MUL: _mul,
    Op.MAX: _max,
    Op.MIN: _min,
    Op.FLOORDIV: partial(_divide, divide=operator.floordiv),
    Op.TRUNCDIV: partial(_divide, divide=_truncate),
    Op.MOD: _mod,
    Op.TRUNCMOD: _truncmod,
    Op.AND: _and,
    Op.OR: _or,
    Op.XOR: _xor,
    Op.SHL: _shl,
    Op.SHR: _shr,
    Op.LT: _lt,
    Op.LE: _le,
    Op.EQ: _eq,
    Op.NE: _ne,
    Op.WHERE: _where,
    Op.CAST: _cast,
    Op.REDUCE: _reduce,
    Op.GATHER: lambda node: bounds_of(node.operands[0]),
    **dict.fromkeys((Op.RESHAPE, Op.PERMUTE, Op.EXPAND, Op.SLICE), _union),
    **dict.fromkeys((Op.CHECK, Op.COPY, Op.DETACH), _union),
    **dict.fromkeys((Op.PAD, Op.SPLAT, Op.STACK, Op.LANE, Op.SHUFFLE), _union),
}
# Over 0 and 1 these ops have the tables of others.
_ON_BOOLS = {
    **dict.fromkeys((Op.ADD, Op.OR), _max),
    **dict.fromkeys((Op.MUL, Op.AND), _min),
    Op.SUB: _xor,
}
