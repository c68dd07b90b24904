"""Turns integer division, shifts and bool arithmetic into ops that C defines for every operand."""

from __future__ import annotations

from collections.abc import Callable

from tinytensor.codegen.legalize_casts import constant_of
from tinytensor.ops.bounds import bounds_of
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp, binary, compare, operand, where
from tinytensor.target import Target


def negate(cond: UOp) -> UOp:
    """Return whether a bool does not hold."""
    return binary(Op.XOR, cond, True)


# A bool computes as an unsigned integer of one bit: over 0 and 1 the tables of both are equal.
BOOL_RULES: dict[Op, Callable[..., UOp]] = {
    **dict.fromkeys((Op.ADD, Op.MAX), UOp.__or__),
    **dict.fromkeys((Op.MUL, Op.MIN, Op.FLOORDIV), UOp.__and__),
    **dict.fromkeys((Op.SUB, Op.NE), UOp.__xor__),
    **dict.fromkeys((Op.SHL, Op.SHR), lambda x, y: x & negate(y)),
    Op.MOD: lambda x, y: operand(x, False),
    Op.NEG: lambda x: x,
    Op.LT: lambda x, y: negate(x) & y,
    Op.LE: lambda x, y: negate(x) | y,
    Op.EQ: lambda x, y: negate(x ^ y),
}


def legalize_bool(node: UOp, target: Target) -> UOp:
    """Write arithmetic and comparisons of bool with AND, OR and XOR."""
    return BOOL_RULES[node.op](*node.operands)


def larger(node: UOp) -> UOp:
    """MAX(x, y)  ->  WHERE(y < x, x, y)  (MIN: the other way round).  Always legal for integers."""
    x, y = node.operands
    return where(y < x if node.op is Op.MAX else x < y, x, y)


def divide_toward_floor(node: UOp, target: Target) -> UOp:
    """x // y  ->  TRUNCDIV(x, y) minus 1 where the signs differ and a rest remains.

    Always legal: y = 0 gives 0 and y = -1 negates, both beside a division by 1. A power of two
    shifts, which rounds toward the floor already.
    """
    x, y = node.operands
    exponent = _exponent(y)
    if exponent is not None:
        return binary(Op.SHR, x, exponent)
    safe = _safe_divisor(y)
    quotient = binary(Op.TRUNCDIV, x, safe)
    rest = binary(Op.TRUNCMOD, x, safe)
    floor = where(_is_past_floor(rest, safe), quotient - 1, quotient)
    if _may_be(y, -1):
        floor = where(compare(Op.EQ, y, -1), UOp(Op.NEG, node.dtype, (x,)), floor)
    return _zero_by_zero(floor, y)


def modulo_toward_floor(node: UOp) -> UOp:
    """x % y  ->  TRUNCMOD(x, y) plus y where the signs differ and a rest remains.

    Always legal: y = 0 and y = -1 give 0. A power of two masks.
    """
    x, y = node.operands
    exponent = _exponent(y)
    if exponent is not None:
        return x & ((1 << exponent) - 1)
    safe = _safe_divisor(y)
    rest = binary(Op.TRUNCMOD, x, safe)
    # y = -1 divides by 1, whose rest is 0 like its own.
    return _zero_by_zero(where(_is_past_floor(rest, safe), rest + safe, rest), y)


def _exponent(y: UOp) -> int | None:
    """Return k when y is the constant 2**k."""
    constant = constant_of(y)
    if constant is None:
        return None
    value = int(constant.value)
    return value.bit_length() - 1 if value > 0 and value & (value - 1) == 0 else None


def _range_of(node: UOp) -> tuple[int, int]:
    constant = constant_of(node)
    low, high = bounds_of(node if constant is None else constant)
    return int(low), int(high)


def _may_be(node: UOp, value: int) -> bool:
    low, high = _range_of(node)
    return low <= value <= high


def _safe_divisor(y: UOp) -> UOp:
    """Return y, or 1 where a division by y is undefined in C: 0, and -1 because it may overflow."""
    risky = [compare(Op.EQ, y, value) for value in (0, -1) if _may_be(y, value)]
    if not risky:
        return y
    either = risky[0] if len(risky) == 1 else risky[0] | risky[1]
    return where(either, operand(y, 1), y)


def _zero_by_zero(result: UOp, y: UOp) -> UOp:
    if not _may_be(y, 0):
        return result
    return where(compare(Op.EQ, y, 0), operand(result, 0), result)


def _is_past_floor(rest: UOp, divisor: UOp) -> UOp:
    """Whether truncation went up: there is a rest, with the sign the divisor has not."""
    low, high = _range_of(divisor)
    zero = operand(rest, 0)
    if rest.dtype.kind == "uint" or (low >= 0 and _range_of(rest)[0] >= 0):
        return compare(Op.NE, zero, zero)
    if low >= 0:
        return rest < zero
    if high <= 0:
        return zero < rest
    return compare(Op.NE, rest, zero) & ((rest < zero) ^ (divisor < zero))


def legalize_shift(node: UOp, target: Target) -> UOp:
    """x << y  ->  WHERE(y inside, x << (y & bits - 1), 0); x >> y: else the sign.  Always legal."""
    x, y = node.operands
    if _is_inside_width(y):
        return node
    outside = operand(x, 0)
    if node.op is Op.SHR and node.dtype.kind == "int":
        outside = binary(Op.SHR, x, node.dtype.bits - 1)
    return where(_is_inside(y), binary(node.op, x, _masked(y)), outside)


def _masked(y: UOp) -> UOp:
    return y & (y.dtype.bits - 1)


def _is_inside_width(y: UOp) -> bool:
    """Whether a shift's distance is proven to be inside the width, or masked to be so."""
    low, high = _range_of(y)
    if low >= 0 and high < y.dtype.bits:
        return True
    return y.op is Op.AND and y is _masked(y.operands[0])


def _is_inside(y: UOp) -> UOp:
    inside = y < operand(y, y.dtype.bits)
    return inside if y.dtype.kind == "uint" else inside & (operand(y, 0) <= y)
