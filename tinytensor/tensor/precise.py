"""Writes logarithms, powers and arctangents out in float64, in steps that are exact one by one.

A float32 result is rounded once at the end, so it is almost always the nearest float; there is no
table and no call. The series are Taylor's, on arguments reduced until the last term is below half
an ulp of float64.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from tinytensor.dtype import dtypes
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp, bitcast, cast
from tinytensor.tensor.formulas import (
    add,
    both,
    div,
    either,
    floor,
    is_equal,
    is_less,
    is_unequal,
    magnitude,
    mul,
    neg,
    sqrt,
    sub,
    trunc,
)
from tinytensor.tensor.nodes import apply, full_like, select

SIGNED: Final = {
    16: dtypes.int16,
    32: dtypes.int32,
    64: dtypes.int64,
}
FRACTION_BITS: Final = 52
EXPONENT_BIAS: Final = 1023
SQRT_HALF_BITS: Final = 0x3FE6A09E667F3BCD
SMALL: Final = 2.0**-1000  # below, a number is scaled before its exponent is read
SMALL_SHIFT: Final = 54
EXPONENT_LIMIT: Final = 1100.0  # 2**x is 0 or infinite beyond
LOG2_TERMS: Final = [2 / math.log(2) / (2 * k + 1) for k in reversed(range(12))]
EXP2_TERMS: Final = [math.log(2) ** k / math.factorial(k) for k in reversed(range(15))]
ATAN_TERMS: Final = [(-1) ** k / (2 * k + 1) for k in reversed(range(21))]
EIGHTH_TURN: Final = math.tan(math.pi / 8)


class Scaled(NamedTuple):
    """A number as fraction * 2 ** exponent, the fraction from sqrt(1/2) to sqrt(2)."""

    fraction: UOp
    exponent: UOp


def polynomial(x: UOp, terms: Sequence[float]) -> UOp:
    """Return the value of a polynomial whose terms come highest power first."""
    result = full_like(x, terms[0])
    for term in terms[1:]:
        result = add(mul(result, x), term)
    return result


def sign_bit(x: UOp) -> UOp:
    """Tell where a number is below 0 or is -0.0; a NaN too may have the sign."""
    if x.dtype.is_float:
        integer = SIGNED[x.dtype.bits]
        return is_less(bitcast(x, integer), 0)
    return is_less(x, 0)


def without_sign(x: UOp) -> UOp:
    """Return the magnitude of a float; its gradient at 0.0 is that of x, where magnitude's is 0."""
    return select(sign_bit(x), neg(x), x)


def with_sign(size: UOp, sign: UOp) -> UOp:
    """Return a number that has no sign under the sign of another."""
    return select(sign_bit(sign), neg(size), size)


def power_of_two(exponent: UOp) -> UOp:
    """Return 2 ** n for an int64 n from -1022 to 1023."""
    return bitcast(apply(Op.SHL, add(exponent, EXPONENT_BIAS), FRACTION_BITS), dtypes.float64)


def split_exponent(x: UOp) -> Scaled:
    """Split a finite x > 0. The exponent is read from the bits, so no gradient passes it."""
    is_small = is_less(x, SMALL)
    scaled = select(is_small, mul(x, 2.0**SMALL_SHIFT), x)
    bits = sub(bitcast(scaled, dtypes.int64), SQRT_HALF_BITS)
    exponent = apply(Op.SHR, bits, FRACTION_BITS)
    # 2 ** -exponent itself may be no normal number; four times it is one.
    factor = power_of_two(sub(full_like(exponent, 2), exponent))
    fraction = mul(mul(scaled, factor), 0.25)
    shifted = select(is_small, sub(exponent, SMALL_SHIFT), exponent)
    return Scaled(fraction, cast(shifted, dtypes.float64))


def log2(x: UOp) -> UOp:
    """Return the logarithm to base 2: the exponent, and 2 atanh((m - 1) / (m + 1)) / ln 2."""
    m, exponent = split_exponent(x)
    ratio = div(sub(m, 1), add(m, 1))
    tail = polynomial(mul(ratio, ratio), LOG2_TERMS)
    result = add(exponent, mul(ratio, tail))
    result = select(is_less(x, math.inf), result, x)
    result = select(is_less(x, 0), full_like(x, math.nan), result)
    return select(is_equal(x, 0), full_like(x, -math.inf), result)


def log10(x: UOp) -> UOp:
    """Return the logarithm to base 10."""
    return mul(log2(x), math.log10(2))


def exp2(x: UOp) -> UOp:
    """Return 2 ** x, its whole part in two factors, so that overflow and denormals are right."""
    limit = full_like(x, EXPONENT_LIMIT)
    limited = select(is_less(limit, x), limit, x)
    limited = select(is_less(limited, -EXPONENT_LIMIT), neg(limit), limited)
    whole = cast(floor(add(limited, 0.5)), dtypes.int64)
    rest = sub(limited, cast(whole, dtypes.float64))
    half = apply(Op.SHR, whole, 1)
    power = mul(polynomial(rest, EXP2_TERMS), power_of_two(half))
    return mul(power, power_of_two(sub(whole, half)))


def power(x: UOp, y: UOp) -> UOp:
    """Return x ** y with the special values of IEEE 754's pow."""
    size = magnitude(x)
    exponent = log2(size)
    endless = is_equal(magnitude(y), math.inf)
    product = mul(y, exponent)
    result = exp2(select(both(endless, is_equal(size, 1)), full_like(x, 0), product))
    is_whole = is_equal(y, trunc(y))
    is_odd = both(is_whole, is_unequal(mul(trunc(mul(y, 0.5)), 2), y))
    result = select(both(is_odd, sign_bit(x)), neg(result), result)
    is_negative = both(is_less(x, 0), is_less(full_like(x, -math.inf), x))
    is_root = both(is_negative, is_unequal(y, trunc(y)))
    result = select(is_root, full_like(x, math.nan), result)
    is_one = either(is_equal(y, 0), is_equal(x, 1))
    return select(is_one, full_like(x, 1), result)


def atan(x: UOp) -> UOp:
    """Return the arctangent: the argument is turned by a quarter or an eighth where it is large."""
    size = without_sign(x)
    is_near = is_less(size, EIGHTH_TURN)
    is_far = is_less(full_like(size, 1 / EIGHTH_TURN), size)
    upper = select(is_near, size, select(is_far, full_like(size, -1), sub(size, 1)))
    lower = select(is_near, full_like(size, 1), select(is_far, size, add(size, 1)))
    ratio = div(upper, lower)
    turned = select(is_far, full_like(size, math.pi / 2), full_like(size, math.pi / 4))
    start = select(is_near, full_like(size, 0), turned)
    square = mul(ratio, ratio)
    tail = mul(mul(ratio, square), polynomial(square, ATAN_TERMS[:-1]))
    return with_sign(add(start, add(ratio, tail)), x)


def asin(x: UOp) -> UOp:
    """Return the arcsine."""
    other = sqrt(mul(add(x, 1), sub(full_like(x, 1), x)))
    return atan(div(x, other))


def acos(x: UOp) -> UOp:
    """Return the arccosine, by the tangent of half the angle."""
    half = atan(sqrt(div(sub(full_like(x, 1), x), add(x, 1))))
    return mul(half, 2)


def atan2(y: UOp, x: UOp) -> UOp:
    """Return the angle of the point (x, y), of zeros and infinities as IEEE 754 defines it."""
    height, width = without_sign(y), without_sign(x)
    one = full_like(x, 1)
    is_equal_size = is_equal(height, width)  # also two infinities
    is_origin = both(is_equal_size, is_equal(height, 0))
    divisor = select(is_equal_size, one, width)
    ratio = div(select(is_equal_size, one, height), divisor)
    angle = select(is_origin, full_like(x, 0), atan(ratio))
    left = select(sign_bit(x), sub(full_like(x, math.pi), angle), angle)
    return with_sign(left, y)
