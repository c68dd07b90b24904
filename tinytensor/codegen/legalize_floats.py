"""Turns float arithmetic that C lacks into ops it has: halves, extrema, remainders, functions."""

from __future__ import annotations

from tinytensor.codegen import functions, functions_cuda
from tinytensor.codegen.builder import splat
from tinytensor.codegen.instructions import can_scale
from tinytensor.codegen.legalize_casts import UNSIGNED, constant_of, widen
from tinytensor.codegen.legalize_integers import larger, modulo_toward_floor
from tinytensor.dtype import dtypes
from tinytensor.ops.attrs import CallAttrs
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp, bitcast, cast, compare, const, operand, where
from tinytensor.target import Target


def legalize_half(node: UOp, target: Target) -> UOp:
    """half op  ->  CAST(op on float32).  Always legal: it is what the op means."""
    operands = tuple(widen(each) for each in node.operands)
    dtype = operands[0].dtype if node.dtype.is_narrow else node.dtype
    return cast(UOp(node.op, dtype, operands, node.attrs), node.dtype)


def negate_half(node: UOp, target: Target) -> UOp:
    """Flip the sign bit of a half, without widening.  Always legal: so does -x."""
    width = node.dtype.bits
    bits = bitcast(node.operands[0], UNSIGNED[width])
    return bitcast(bits ^ 1 << (width - 1), node.dtype.scalar)


def legalize_maximum(node: UOp, target: Target) -> UOp:
    """MAX(x, y)  ->  the larger; of two equal zeros the positive one; x where x is NaN, else y.

    Always legal: a comparison with NaN is false, and equal numbers have equal bits unless they are
    zeros, of which AND (MIN: OR) of the bits takes the right sign. For MIN, OR does all: it is
    taken of the smaller, once x and once y where they are equal or one is NaN; a NaN OR any bits is
    a NaN. So MIN is three instructions where MAX is six.
    """
    x, y = node.operands
    if not node.dtype.is_float:
        return larger(node)
    if _is_plain_bound(node.op, y):
        return where(x <= y if node.op is Op.MAX else y <= x, y, x)
    bits = UNSIGNED[node.dtype.bits]
    left, right = bitcast(x, bits), bitcast(y, bits)
    if node.op is Op.MIN:
        smaller = (where(x < y, x, y), where(y < x, y, x))
        merged = UOp.__or__(*[bitcast(each, bits) for each in smaller])
        return bitcast(merged, node.dtype.scalar)
    is_nan = compare(Op.NE, x, x)
    chosen = where((y < x) | is_nan, x, y)
    is_tie = compare(Op.EQ, x, y)
    return where(is_tie, bitcast(left & right, node.dtype.scalar), chosen)


def _is_plain_bound(op: Op, y: UOp) -> bool:
    """Whether y is a constant that one comparison gets right: no NaN, no zero that may lose."""
    constant = constant_of(y)
    if constant is None or constant.value != constant.value:
        return False
    losing_zero = const(y.dtype.scalar, -0.0 if op is Op.MAX else 0.0)
    return constant is not losing_zero


def legalize_modulo(node: UOp, target: Target) -> UOp:
    """x % y  ->  fmod(x, y), plus y where the signs differ and a rest remains.

    Always legal for floats: fmod is exact, so only the addition rounds, as MOD says.
    """
    x, y = node.operands
    if not node.dtype.is_float:
        return modulo_toward_floor(node)
    rest = _call("fmod", x, y)
    zero = operand(x, 0.0)
    has_rest = compare(Op.NE, rest, zero)
    signs_differ = (rest < zero) ^ (y < zero)
    return where(has_rest & signs_differ, rest + y, rest)


def legalize_function(node: UOp, target: Target) -> UOp:
    """Write a function as polynomials in float32, and as a call of the C library in float64."""
    x = node.operands[0]
    if node.dtype.scalar is dtypes.float32:
        if target.kind == "cuda":
            return functions_cuda.expand(node)
        return functions.expand(node, can_scale(x, target))
    return _call(node.op.name.lower(), x)


def _call(function: str, *operands: UOp) -> UOp:
    """Call a function of the C library in every lane."""
    dtype = operands[0].dtype
    always = splat(const(dtypes.bool, True), dtype.lanes)
    return UOp(Op.CALL, dtype, (always, *operands), CallAttrs(function))
