"""Turns an op and NumPy arrays into its result: the meaning of arithmetic, in one table.

Arrays hold values: of `dtype.value_numpy`, bfloat16 as float32 rounded to bfloat16. Narrow floats
widen to float32, compute, and round once. A bool computes as an uint8, and the result asks `!= 0`.
Functions of the C library are taken in float64 and rounded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tinytensor.dtype import DType, dtypes, float8_bits, float8_values, round_to_bfloat16
from tinytensor.errors import InternalError
from tinytensor.lazy import lazy_import
from tinytensor.ops.op import Op
from tinytensor.ops.philox import random_bits
from tinytensor.ops.uop import Number, UOp

LEAST_NORMAL = 2.0**-126  # of float32
Array = np.ndarray[Any, Any]  # any shape, and the value type of some dtype
Meaning = Callable[..., Array]  # (dtype of the result, *operands) -> result


def evaluate(op: Op, dtype: DType, *operands: Array) -> Array:
    """Return what an elementwise op gives in `dtype`; operands broadcast as NumPy's do."""
    with np.errstate(all="ignore"):
        return np.asarray(EVALUATE[op](dtype.scalar, *operands))


def constant(node: UOp) -> Array:
    """Return the value of a CONST, with every bit of a NaN, as an array without axes."""
    if node.dtype.kind in ("bool", "index"):
        return np.array(node.value, node.dtype.value_numpy)
    bits = np.array(node.attrs.bits, f"uint{node.dtype.bits}")
    return from_storage(bits.view(node.dtype.storage_numpy), node.dtype)


def scalar_of(node: UOp, scalars: Sequence[Number]) -> Array:
    """Return the value of a VARIABLE among a launch's scalars, as an array without axes."""
    return round_to(np.asarray(scalars[node.attrs.number]), node.dtype)


def to_storage(values: Array, dtype: DType) -> Array:
    """Return values as memory holds them (bfloat16: the upper halves of float32, as uint16)."""
    if dtype.is_float and dtype.bits == 8:
        return float8_bits(values, dtype)
    if dtype.scalar is not dtypes.bfloat16:
        return values
    return (bits_of(values) >> np.uint32(16)).astype(np.uint16)


def from_storage(stored: Array, dtype: DType) -> Array:
    """Return the values that memory holds."""
    if dtype.is_float and dtype.bits == 8:
        return float8_values(stored, dtype)
    if dtype.scalar is not dtypes.bfloat16:
        return stored
    return np.asarray(stored.astype(np.uint32) << np.uint32(16)).view(np.float32)


def bits_of(values: Array) -> Array:
    """Return the bits of floats as unsigned integers of their width."""
    return np.asarray(values).view(f"uint{8 * values.dtype.itemsize}")


def round_to(values: Array, dtype: DType) -> Array:
    """Round floats to a float dtype: once, to nearest even, whatever the two formats are."""
    if dtype.bits == 8:
        return float8_values(float8_bits(values, dtype), dtype)
    if dtype is not dtypes.bfloat16:
        return values.astype(dtype.value_numpy)
    if values.dtype == np.float64:
        values = _round_to_odd(values)
    return round_to_bfloat16(values).reshape(values.shape)


def _round_to_odd(values: Array) -> Array:
    """Round float64 to float32 such that rounding again to a shorter format is right.

    An inexact result takes the neighbor whose last bit is 1, so it never looks like a tie.
    """
    nearest = values.astype(np.float32)
    return _make_odd(nearest, values - nearest.astype(np.float64))


def _make_odd(nearest: Array, error: Array) -> Array:
    """Step from an even result toward the exact value, which is nearest + error."""
    inexact = (error != 0) & ~np.isnan(error)
    even = bits_of(nearest) & 1 == 0
    toward = np.copysign(np.inf, error).astype(nearest.dtype)
    return np.where(inexact & even, np.nextafter(nearest, toward), nearest)


def _widen(values: Array, dtype: DType) -> Array:
    if dtype.is_narrow:
        return values.astype(np.float32)
    return values.astype(np.uint8) if dtype is dtypes.bool else values


def _narrow(values: Array, dtype: DType) -> Array:
    if dtype.is_float:
        return round_to(values, dtype)
    return values != 0 if dtype is dtypes.bool else values.astype(dtype.value_numpy, copy=False)


def _arithmetic(function: Callable[..., Array]) -> Meaning:
    """Lift a function of arrays of one NumPy type: halves widen and round once, integers wrap."""

    def meaning(dtype: DType, *operands: Array) -> Array:
        widened = [_widen(each, dtype) for each in operands]
        return _narrow(np.asarray(function(*widened)), dtype)

    return meaning


def _in_float64(function: Callable[[Array], Array]) -> Meaning:
    """Lift a float64 function: narrower dtypes round its result once."""

    def meaning(dtype: DType, x: Array) -> Array:
        return round_to(np.asarray(function(x.astype(np.float64))), dtype)

    return meaning


def _flushing(function: Callable[[Array], Array]) -> Meaning:
    """Lift a float64 function for float32: operands and results lose their denormals."""
    rounded = _in_float64(function)
    return lambda dtype, x: _flush(rounded(dtype, _flush(x)))


def _flush(x: Array) -> Array:
    return np.where(np.abs(x) < LEAST_NORMAL, x * np.float32(0), x)


def _plain(function: Callable[..., Array]) -> Meaning:
    """Lift a function that needs no widening: comparisons, bits of integers, selection."""
    return lambda dtype, *operands: function(*operands)


# Integer division.
def _floor_divide(x: Array, y: Array) -> Array:
    is_zero = y == 0
    divisor = np.where(is_zero, 1, y)
    quotient = np.floor_divide(x, divisor)
    # The least integer by -1 wraps to itself, as its negation does.
    quotient = np.where(divisor == -1, np.negative(x), quotient)
    return np.where(is_zero, 0, quotient)


def _modulo(x: Array, y: Array) -> Array:
    if x.dtype.kind != "f":
        is_zero = y == 0
        rest = np.remainder(x, np.where(is_zero, 1, y))
        return np.where(is_zero, 0, rest)
    rest = np.fmod(x, y)
    signs_differ = (rest < 0) != (y < 0)
    carries = signs_differ & (rest != 0)
    return np.where(carries, rest + y, rest)


def _truncated_divide(x: Array, y: Array) -> Array:
    divided = x - _truncated_modulo(x, y)
    return np.asarray(np.floor_divide(divided, y))


def _truncated_modulo(x: Array, y: Array) -> Array:
    traps = y == 0
    if x.dtype.kind == "i":
        least = np.iinfo(x.dtype).min
        traps = traps | (x == least) & (y == -1)
    if np.any(traps):
        raise InternalError(f"truncdiv: the machine traps: {x} by {y}; y is not 0, no overflow.")
    return np.fmod(x, y)


# Floats at their edges.
def _maximum(x: Array, y: Array) -> Array:
    greatest = np.maximum(x, y)
    if x.dtype.kind != "f":
        return np.asarray(greatest)
    positive = np.where(np.signbit(x), y, x)
    return np.where(x == y, positive, greatest)


def _minimum(x: Array, y: Array) -> Array:
    least = np.minimum(x, y)
    if x.dtype.kind != "f":
        return np.asarray(least)
    negative = np.where(np.signbit(x), x, y)
    return np.where(x == y, negative, least)


def _erf(x: Array) -> Array:
    return np.asarray(_ERF(x)).astype(np.float64)


_ERF = np.frompyfunc(math.erf, 1, 1)


def _multiply_add(dtype: DType, x: Array, y: Array, z: Array) -> Array:
    """Round x * y + z once.

    Below float64 the product is exact in float64 and the sum is rounded to odd there, which leaves
    the last rounding right; float64 itself goes through fractions, element by element (slow).
    """
    if dtype is dtypes.float64:
        return np.asarray(_MULTIPLY_ADD(x, y, z)).astype(np.float64)
    x, y, z = (each.astype(np.float64) for each in (x, y, z))
    product = x * y
    total = product + z
    back = total - product
    error = (product - (total - back)) + (z - back)
    return round_to(_make_odd(total, error), dtype)


def _multiply_add_exactly(x: float, y: float, z: float) -> float:
    if not (math.isfinite(x) and math.isfinite(y) and math.isfinite(z)):
        # An infinite z wins over a product that only overflows.
        return z if math.isinf(z) and math.isfinite(x) and math.isfinite(y) else x * y + z
    fraction = lazy_import("fractions", None, "interpret").Fraction
    exact = fraction(x) * fraction(y) + fraction(z)
    if exact == 0:
        return x * y + z
    try:
        magnitude = abs(float(exact))
    except OverflowError:
        magnitude = math.inf
    return -magnitude if exact < 0 else magnitude  # a fraction may be too large for copysign


_MULTIPLY_ADD = np.frompyfunc(_multiply_add_exactly, 3, 1)


def _scale(x: Array, n: Array) -> Array:
    return np.ldexp(x, np.nan_to_num(n).astype(np.int32))


# Bits.
def _shift(function: Callable[..., Array]) -> Meaning:
    """Lift a shift: outside 0 .. bits - 1 a right shift leaves the sign, a left shift nothing."""

    def meaning(dtype: DType, x: Array, y: Array) -> Array:
        inside = (y >= 0) & (y < dtype.bits)
        distance = _widen(np.where(inside, y, 0).astype(y.dtype), dtype)
        shifted = function(_widen(x, dtype), distance)
        is_negative = (x < 0) & (function is np.right_shift)
        outside = np.where(is_negative, -1, 0).astype(shifted.dtype)
        return _narrow(np.where(inside, shifted, outside), dtype)

    return meaning


def _bitcast(dtype: DType, x: Array) -> Array:
    source = HELD_WIDER.get((x.dtype.name, dtype.bits))
    stored = x if source is None else to_storage(x, source)
    return from_storage(stored.view(dtype.storage_numpy), dtype)


# The narrow float that an array holds, by the array's type and the bits of an element.
HELD_WIDER = {
    ("float32", 16): dtypes.bfloat16,
    ("float32", 8): dtypes.float8_e4m3fn,
    ("float16", 8): dtypes.float8_e5m2,
}


# Casts.
def _cast(dtype: DType, x: Array) -> Array:
    if dtype is dtypes.bool:
        return np.asarray(x != 0)
    if x.dtype.kind == "f":
        return round_to(x, dtype) if dtype.is_float else _saturate(dtype, x)
    if dtype.is_narrow:
        # As every op on halves, through float32; float16 overflows before that matters.
        return round_to(x.astype(np.float32), dtype)
    return x.astype(dtype.value_numpy)


def _saturate(dtype: DType, x: Array) -> Array:
    """Truncate floats to integers: NaN gives 0, and what is outside gives the nearest end."""
    whole = np.trunc(x.astype(np.float64))
    low, end = float(dtype.min), float(dtype.max + 1)  # both are powers of two or 0: exact
    inside = (whole >= low) & (whole < end)
    number = dtype.value_numpy.type
    result = np.where(inside, whole, 0).astype(number)
    result = np.where(whole >= end, number(dtype.max), result)
    return np.where(whole < low, number(dtype.min), result)


EVALUATE: dict[Op, Meaning] = {
    Op.ADD: _arithmetic(np.add),
    Op.SUB: _arithmetic(np.subtract),
    Op.MUL: _arithmetic(np.multiply),
    Op.DIV: _arithmetic(np.divide),
    Op.FLOORDIV: _arithmetic(_floor_divide),
    Op.MOD: _arithmetic(_modulo),
    Op.NEG: _arithmetic(np.negative),
    Op.MAX: _arithmetic(_maximum),
    Op.MIN: _arithmetic(_minimum),
    Op.SQRT: _arithmetic(np.sqrt),
    Op.FLOOR: _arithmetic(np.floor),
    Op.TRUNC: _arithmetic(np.trunc),
    Op.EXP: _in_float64(np.exp),
    Op.LOG: _in_float64(np.log),
    Op.SIN: _in_float64(np.sin),
    Op.COS: _in_float64(np.cos),
    Op.TANH: _in_float64(np.tanh),
    Op.ERF: _in_float64(_erf),
    Op.LT: _plain(np.less),
    Op.LE: _plain(np.less_equal),
    Op.EQ: _plain(np.equal),
    Op.NE: _plain(np.not_equal),
    Op.AND: _plain(np.bitwise_and),
    Op.OR: _plain(np.bitwise_or),
    Op.XOR: _plain(np.bitwise_xor),
    Op.SHL: _shift(np.left_shift),
    Op.SHR: _shift(np.right_shift),
    Op.PHILOX: _plain(random_bits),
    Op.WHERE: _plain(np.where),
    Op.CAST: _cast,
    Op.BITCAST: _bitcast,
    Op.FMA: _multiply_add,
    Op.TRUNCDIV: _arithmetic(_truncated_divide),
    Op.TRUNCMOD: _arithmetic(_truncated_modulo),
    Op.ABS: _arithmetic(np.abs),
    Op.SCALE: _arithmetic(_scale),
    Op.EXP2_APPROX: _flushing(np.exp2),
    Op.RECIPROCAL_APPROX: _flushing(np.reciprocal),
}
