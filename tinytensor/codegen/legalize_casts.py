"""Turns casts that C does not define, or that a target lacks, into arithmetic of equal value."""

from __future__ import annotations

from tinytensor.dtype import NARROW_FORMATS, USER_DTYPES, DType, decode, dtypes, encode
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp, binary, bitcast, cast, compare, operand, where
from tinytensor.target import Target


def constant_of(node: UOp) -> UOp | None:
    """Return the scalar CONST that a node is, or has in every lane; None if it is no constant."""
    if node.op is Op.SPLAT:
        node = node.operands[0]
    return node if node.op is Op.CONST else None


def widen(x: UOp) -> UOp:
    """Return a half as float32, exactly; a constant stays one."""
    constant = constant_of(x)
    if constant is not None:
        return operand(cast(x, dtypes.float32), constant.value)
    return cast(x, dtypes.float32)


def legalize_cast(node: UOp, target: Target) -> UOp:
    """Make the casts of bool and between floats and halves or integers as C's or the target's.

    Always legal: each step is exact but the last, which rounds or truncates as CAST says.
    """
    x = node.operands[0]
    src = x.dtype.scalar
    dst = node.dtype.scalar
    if dst is dtypes.bool:
        return compare(Op.NE, x, 0)
    if src is dtypes.bool:
        return where(x, operand(node, 1), 0)
    if src.is_narrow or dst.is_narrow:
        return _cast_narrow(node, target)
    if src.is_float and dst.is_int:
        return _saturate(node)
    return node


def _cast_narrow(node: UOp, target: Target) -> UOp:
    x = node.operands[0]
    src = x.dtype.scalar
    dst = node.dtype.scalar
    widened = dst.is_narrow and src.is_float and not src.is_narrow
    if widened and x.op is Op.CAST and x.operands[0].dtype is node.dtype:
        return x.operands[0]  # there and back again, which is exact in this order alone
    if src is dtypes.float64:
        return cast(_round_to_odd(x), dst)
    if dtypes.float32 not in (src, dst):
        return cast(cast(x, dtypes.float32), dst)
    if dst is dtypes.bfloat16:
        return _round_to_bfloat16(x)
    if src is dtypes.bfloat16:
        return _widen_bfloat16(x)
    if "f16c" in target.features and dtypes.float16 in (src, dst):
        return node
    return _round_to_narrow(x, dst) if dst.is_narrow else _widen_narrow(x)


def _shift(x: UOp, left: int) -> UOp:
    """Shift by a constant: to the left, or to the right when it is negative."""
    if left > 0:
        return binary(Op.SHL, x, left)
    return binary(Op.SHR, x, -left)


def _round_to_odd(x: UOp) -> UOp:
    """Round float64 to float32 so that rounding again to a half is right.

    Always legal: the truncated value whose last bit is set when inexact is never taken for a tie.
    """
    nearest = cast(x, dtypes.float32)
    back = cast(nearest, dtypes.float64)
    bits = bitcast(nearest, dtypes.int32)
    is_negative = x < operand(x, 0.0)
    is_farther_from_zero = where(is_negative, back < x, x < back)
    truncated = where(is_farther_from_zero, bits - 1, bits)
    is_inexact = compare(Op.NE, back, x)
    odd = where(is_inexact, truncated | 1, truncated)
    return bitcast(odd, dtypes.float32)


# bfloat16 is the upper half of float32.
HALF_PLACE = 0x7FFF  # just below half of bfloat16's last place; the last bit makes up the rest
QUIET_BIT = 0x400000
UNSIGNED = {8: dtypes.uint8, 16: dtypes.uint16, 32: dtypes.uint32, 64: dtypes.uint64}


def _widen_bfloat16(x: UOp) -> UOp:
    bits = cast(bitcast(x, dtypes.uint16), dtypes.uint32)
    return bitcast(_shift(bits, 16), dtypes.float32)


def _round_to_bfloat16(x: UOp) -> UOp:
    """Round float32 to its upper half, ties to even; a NaN stays one and becomes quiet."""
    bits = bitcast(x, dtypes.uint32)
    last_bit = _shift(bits, -16) & 1
    rounded = bits + HALF_PLACE + last_bit
    is_nan = compare(Op.NE, x, x)
    kept = where(is_nan, bits | QUIET_BIT, rounded)
    upper = cast(_shift(kept, -16), dtypes.uint16)
    return bitcast(upper, dtypes.bfloat16)


# Others lie within float32 too, with fewer bits of mantissa and another bias of the exponent.
MAGNITUDE = 0x7FFFFFFF
INFINITY = 0x7F800000
MANTISSA, BIAS = 23, 127


def _power(exponent: int) -> int:
    """Return the bits of a power of two in float32."""
    return (BIAS + exponent) << MANTISSA


def _round_to_narrow(x: UOp, dtype: DType) -> UOp:
    """Round float32 to a narrow float with integers.

    A small result is rounded by the addition that aligns it with the last bit of a denormal; else
    the exponent is rebiased and half a last place is added, ties to even.
    """
    shape = NARROW_FORMATS[dtype.name]
    dropped = MANTISSA - shape.mantissa
    least_exponent = 1 - shape.bias
    aligner = _power(least_exponent + dropped)  # its last place is the least denormal
    bits = bitcast(x, dtypes.uint32)
    magnitude = bits & MAGNITUDE
    aligned = bitcast(magnitude, dtypes.float32) + decode(dtypes.float32, aligner)
    small = bitcast(aligned, dtypes.uint32) - aligner
    last_bit = _shift(magnitude, -dropped) & 1
    below_half = (1 << (dropped - 1)) - 1
    raised = magnitude - _power(-shape.bias) + below_half + last_bit
    normal = _shift(raised, -dropped)
    finite = where(magnitude < _power(least_exponent), small, normal)
    result = where(magnitude < encode(dtypes.float32, shape.limit), finite, shape.overflow)
    is_nan = operand(bits, INFINITY) < magnitude
    result = where(is_nan, operand(bits, shape.nan), result)
    sign = _shift(bits, dtype.bits - 32) & 1 << (dtype.bits - 1)
    return bitcast(cast(result | sign, UNSIGNED[dtype.bits]), dtype)


def _widen_narrow(x: UOp) -> UOp:
    """Widen with integers: a multiplication rebiases the exponent, denormals included."""
    dtype = x.dtype.scalar
    if dtype is dtypes.float8_e5m2:  # the upper half of a float16
        upper = _shift(cast(bitcast(x, dtypes.uint8), dtypes.uint16), 8)
        return cast(bitcast(upper, dtypes.float16), dtypes.float32)
    shape = NARROW_FORMATS[dtype.name]
    sign_bit = 1 << (dtype.bits - 1)
    bits = cast(bitcast(x, UNSIGNED[dtype.bits]), dtypes.uint32)
    narrow = bits & sign_bit - 1
    magnitude = _shift(narrow, MANTISSA - shape.mantissa)
    rebiased = bitcast(magnitude, dtypes.float32) * 2.0 ** (BIAS - shape.bias)
    is_finite = narrow < shape.special
    result = where(is_finite, bitcast(rebiased, dtypes.uint32), magnitude | INFINITY)
    sign = _shift(bits & sign_bit, 32 - dtype.bits)
    return bitcast(result | sign, dtypes.float32)


def _saturate(node: UOp) -> UOp:
    """CAST(x)  ->  WHERE(x >= end, max, WHERE(x < min, min, CAST(x where inside, else 0)))

    Always legal: the inner cast meets no value that C leaves undefined; NaN gives 0.
    """
    x = node.operands[0]
    dst = node.dtype.scalar
    if _is_inside(x, dst):
        return node
    # Narrow integers go through int32, which vectors of floats convert to in one instruction.
    step = dtypes.int32 if dst.bits < 32 else dst
    inside = cast(cast(_keep_inside(x, dst), step), dst)
    is_below = x < float(dst.min)
    is_above = operand(x, float(dst.max + 1)) <= x
    above_least = where(is_below, operand(node, dst.min), inside)
    return where(is_above, operand(node, dst.max), above_least)


def _keep_inside(x: UOp, dtype: DType) -> UOp:
    """Return x where an integer type holds its whole part, else 0; both ends are exact floats."""
    low = operand(x, float(dtype.min))
    is_inside = (low <= x) & (x < float(dtype.max + 1))
    return where(is_inside, x, 0.0)


_INTEGERS = tuple(dtype for dtype in USER_DTYPES if dtype.is_int)


def _is_inside(x: UOp, dtype: DType) -> bool:
    """Whether x was made by `_keep_inside` for that type or one it covers."""
    if x.op is not Op.WHERE:
        return False
    kept = x.operands[1]
    return any(x is _keep_inside(kept, each) for each in _INTEGERS if _covers(dtype, each))


def _covers(dtype: DType, other: DType) -> bool:
    return dtype.min <= other.min and other.max <= dtype.max
