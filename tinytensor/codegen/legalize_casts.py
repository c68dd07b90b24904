"""Turns casts that C does not define, or that a target lacks, into arithmetic of equal value."""

from __future__ import annotations

from tinytensor.dtype import USER_DTYPES, DType, dtypes
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
    src, dst = x.dtype.scalar, node.dtype.scalar
    if dst is dtypes.bool:
        return compare(Op.NE, x, 0)
    if src is dtypes.bool:
        return where(x, operand(node, 1), 0)
    if dtypes.bfloat16 in (src, dst) or dtypes.float16 in (src, dst):
        return _cast_half(node, target)
    if src.is_float and dst.is_int:
        return _saturate(node)
    return node


def _cast_half(node: UOp, target: Target) -> UOp:
    x = node.operands[0]
    src, dst = x.dtype.scalar, node.dtype.scalar
    if x.op is Op.CAST and x.operands[0].dtype is node.dtype:
        return x.operands[0]  # widened, which is exact, and back
    if src is dtypes.float64:
        return cast(_round_to_odd(x), dst)
    if dtypes.float32 not in (src, dst):
        return cast(cast(x, dtypes.float32), dst)
    if dst is dtypes.bfloat16:
        return _round_to_bfloat16(x)
    if src is dtypes.bfloat16:
        return bitcast(_shift(cast(bitcast(x, dtypes.uint16), dtypes.uint32), 16), dtypes.float32)
    if "f16c" in target.features:
        return node
    return _round_to_float16(x) if dst is dtypes.float16 else _widen_float16(x)


def _shift(x: UOp, left: int) -> UOp:
    """Shift by a constant: to the left, or to the right when it is negative."""
    return binary(Op.SHL, x, left) if left > 0 else binary(Op.SHR, x, -left)


def _round_to_odd(x: UOp) -> UOp:
    """Round float64 to float32 so that rounding again to a half is right.

    Always legal: the truncated value whose last bit is set when inexact is never taken for a tie.
    """
    nearest = cast(x, dtypes.float32)
    back = cast(nearest, dtypes.float64)
    bits = bitcast(nearest, dtypes.int32)
    too_far = where(x < operand(x, 0.0), compare(Op.LT, back, x), compare(Op.LT, x, back))
    toward_zero = where(too_far, bits - 1, bits)
    odd = where(compare(Op.NE, back, x), toward_zero | 1, toward_zero)
    return bitcast(odd, dtypes.float32)


def _round_to_bfloat16(x: UOp) -> UOp:
    """Round float32 to its upper half, ties to even; a NaN stays one and becomes quiet."""
    bits = bitcast(x, dtypes.uint32)
    rounded = bits + operand(bits, 0x7FFF) + (_shift(bits, -16) & 1)
    kept = where(compare(Op.NE, x, x), bits | 0x400000, rounded)
    return bitcast(cast(_shift(kept, -16), dtypes.uint16), dtypes.bfloat16)


def _round_to_float16(x: UOp) -> UOp:
    """Round float32 to float16 with integers.

    A small result is rounded by the addition that aligns it with the last bit of a denormal; else
    the exponent is rebiased and half a last place is added, ties to even.
    """
    bits = bitcast(x, dtypes.uint32)
    magnitude = bits & 0x7FFFFFFF
    aligned = bitcast(magnitude, dtypes.float32) + 0.5
    small = bitcast(aligned, dtypes.uint32) - 0x3F000000
    rebiased = magnitude - ((127 - 15) << 23) + 0xFFF + (_shift(magnitude, -13) & 1)
    rounded = where(magnitude < operand(bits, 0x38800000), small, _shift(rebiased, -13))
    finite = where(magnitude < operand(bits, 0x47800000), rounded, 0x7C00)
    result = where(operand(bits, 0x7F800000) < magnitude, operand(bits, 0x7E00), finite)
    sign = _shift(bits, -16) & 0x8000
    return bitcast(cast(result | sign, dtypes.uint16), dtypes.float16)


def _widen_float16(x: UOp) -> UOp:
    """Widen float16 with integers: a multiplication rebiases the exponent, denormals included."""
    bits = cast(bitcast(x, dtypes.uint16), dtypes.uint32)
    magnitude = _shift(bits & 0x7FFF, 13)
    rebiased = bitcast(bitcast(magnitude, dtypes.float32) * 2.0**112, dtypes.uint32)
    is_finite = (bits & 0x7FFF) < operand(bits, 0x7C00)
    result = where(is_finite, rebiased, magnitude | 0x7F800000)
    return bitcast(result | _shift(bits & 0x8000, 16), dtypes.float32)


def _saturate(node: UOp) -> UOp:
    """CAST(x)  ->  WHERE(x >= end, max, WHERE(x < min, min, CAST(x where inside, else 0)))

    Always legal: the inner cast meets no value that C leaves undefined; NaN gives 0.
    """
    x, dst = node.operands[0], node.dtype.scalar
    if _is_inside(x, dst):
        return node
    # Narrow integers go through int32, which vectors of floats convert to in one instruction.
    step = dtypes.int32 if dst.bits < 32 else dst
    inside = cast(cast(_keep_inside(x, dst), step), dst)
    above = where(x < operand(x, float(dst.min)), operand(node, dst.min), inside)
    return where(operand(x, float(dst.max + 1)) <= x, operand(node, dst.max), above)


def _keep_inside(x: UOp, dtype: DType) -> UOp:
    """Return x where an integer type holds its whole part, else 0; both ends are exact floats."""
    low, end = operand(x, float(dtype.min)), operand(x, float(dtype.max + 1))
    return where((low <= x) & (x < end), x, 0.0)


_INTEGERS = tuple(dtype for dtype in USER_DTYPES if dtype.is_int)


def _is_inside(x: UOp, dtype: DType) -> bool:
    """Whether x was made by `_keep_inside` for that type or one it covers."""
    if x.op is not Op.WHERE:
        return False
    covered = [each for each in _INTEGERS if dtype.min <= each.min and each.max <= dtype.max]
    return any(x is _keep_inside(x.operands[1], each) for each in covered)
