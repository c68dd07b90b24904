"""Turns 64 random bits an element into numbers of a distribution, with exact ops alone.

So the numbers have the same bits on every device.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import partial, reduce

from tinytensor.dtype import MANTISSA_BITS, DType, dtypes, encode
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp, bitcast, cast
from tinytensor.tensor.formulas import (
    add,
    both,
    div,
    is_less,
    is_unequal,
    mul,
    neg,
    sqrt,
    sub,
)
from tinytensor.tensor.nodes import apply, full, full_like, select

WORD = 2**32
BITS = {
    dtypes.float32: dtypes.int32,
    dtypes.float64: dtypes.int64,
}
# Terms of power series of which the next one is less than an eighth of an ulp of the sum.
LOG_TERMS = {dtypes.float32: 5, dtypes.float64: 11}
CIRCLE_TERMS = {dtypes.float32: 6, dtypes.float64: 9}

shift_left = partial(apply, Op.SHL)
shift_right = partial(apply, Op.SHR)


def uniform(bits: UOp, dtype: DType) -> UOp:
    """Return multiples of half the dtype's epsilon in [0, 1), all of one probability."""
    digits = MANTISSA_BITS[dtype.name] + 1
    whole = shift_right(bits, 64 - digits)
    return mul(cast(whole, dtype), 2.0**-digits)


def chance(bits: UOp, p: float) -> UOp:
    """Return bools that are true with probability p, to 64 digits."""
    threshold = int(p * 2**64)
    if threshold == 2**64:
        return full(dtypes.bool, True, bits.shape)
    return is_less(bits, threshold)


def uniform_integer(bits: UOp, count: int) -> UOp:
    """Return uint64 numbers 0 .. count - 1, whose probabilities differ by at most 2 ** -64.

    Up to 2 ** 32 values it is the high half of bits * count, beyond it a remainder.
    """
    if count > WORD:
        return apply(Op.MOD, bits, count)
    carried = shift_right(mul(_low(bits), count), 32)
    high = mul(shift_right(bits, 32), count)
    return shift_right(add(high, carried), 32)


def exponential(bits: UOp, dtype: DType) -> UOp:
    """Return numbers of the exponential distribution with mean 1, at most 22.2."""
    return neg(_log_of_share(add(_low(bits), 1), dtype))


def normal(bits: UOp, dtype: DType) -> UOp:
    """Return numbers of the normal distribution with mean 0 and variance 1.

    A point of the plane: the low word gives its distance from the center, sqrt(-2 log u) with u in
    (0, 1], and the high word its angle, as one of four quarters and an angle from its middle. The
    result is one coordinate, at most sqrt(64 log 2) = 6.7. Halves compute in float32.

    Source: Box and Muller, A note on the generation of random normal deviates, 1958.
    """
    wide = dtypes.float64 if dtype is dtypes.float64 else dtypes.float32
    share = add(_low(bits), 1)
    distance = sqrt(mul(_log_of_share(share, wide), -2.0))
    step = both(shift_right(bits, 32), 2**30 - 1)
    from_middle = sub(cast(step, dtypes.int32), 2**29)
    angle = mul(cast(from_middle, wide), math.pi / 2**31)
    coordinate = _coordinate(angle, shift_right(bits, 62))
    return cast(mul(distance, coordinate), dtype)


def _low(bits: UOp) -> UOp:
    return both(bits, WORD - 1)


def _log_of_share(share: UOp, dtype: DType) -> UOp:
    """Return log(share / 2 ** 32) of integers 1 .. 2 ** 32.

    It is exponent * log 2 + log m with m in [sqrt(1/2), sqrt(2)), and log m is the series of
    2 artanh(s) with s = (m - 1) / (m + 1), of which s ** 2 < 0.0295. Near 1, where the share rounds
    to fewer digits than its distance from 1 has, m - 1 comes from the integers.
    """
    digits = MANTISSA_BITS[dtype.name]
    stored = bitcast(cast(share, dtype), BITS[dtype])
    above = sub(stored, encode(dtype, math.sqrt(0.5)))
    exponent = shift_right(above, digits)
    m = bitcast(sub(stored, shift_left(exponent, digits)), dtype)
    missing = cast(sub(full_like(share, WORD), share), dtype)
    below_one = select(is_less(exponent, 32), sub(m, 1), mul(missing, -1 / WORD))
    s = div(below_one, add(m, 1))
    odd = range(1, 2 * LOG_TERMS[dtype], 2)
    series = _polynomial(mul(s, s), [2 / each for each in odd])
    whole = mul(cast(sub(exponent, 32), dtype), math.log(2))
    return add(whole, mul(s, series))


def _coordinate(angle: UOp, quarter: UOp) -> UOp:
    """Return cos, sin, -cos or -sin of an angle up to 45 degrees, by its quarter 0 .. 3."""
    even = range(0, 2 * CIRCLE_TERMS[angle.dtype], 2)
    squared = mul(angle, angle)
    cosine = _polynomial(squared, [_term(each) for each in even])
    ratio = _polynomial(squared, [_term(each + 1) for each in even])
    chosen = select(_has_bit(quarter, 1), mul(angle, ratio), cosine)
    return select(_has_bit(quarter, 2), neg(chosen), chosen)


def _term(power: int) -> float:
    """Return the coefficient of a power in the series of sine and cosine."""
    sign = -1 if power & 2 else 1
    return sign / math.factorial(power)


def _has_bit(x: UOp, bit: int) -> UOp:
    return is_unequal(both(x, bit), 0)


def _polynomial(x: UOp, coefficients: Iterable[float]) -> UOp:
    """Return the sum of coefficients[k] * x ** k, each product and sum rounded."""
    *lower, last = coefficients
    return reduce(lambda total, each: add(mul(total, x), each), lower[::-1], full_like(x, last))
