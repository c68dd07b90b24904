"""Turns a float32 EXP, LOG, SIN, COS, TANH or ERF node into arithmetic that is exact per op.

Every CPU runs the same graph, so a function has the same bits on each; only arguments of sin and
cos beyond `REDUCIBLE` ask the C library, lane by lane. NaN passes through every path: each
limit is a WHERE on a comparison that a NaN fails.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from tinytensor.dtype import dtypes
from tinytensor.errors import InternalError
from tinytensor.ops.attrs import CallAttrs
from tinytensor.ops.op import Op
from tinytensor.ops.uop import Number, UOp, binary, bitcast, cast, compare, operand, where
from tinytensor.records import dataclass

# Polynomials, highest power first; minimax fits of this project, rounded to float32.
# e**r for |r| <= ln(2) / 2.
EXP_SERIES: Final = (
    *(0.0013818891, 0.00836869981, 0.0416682884),
    *(0.166665211, 0.49999994, 1.0, 1.0),
)
# (log(1 + f) - f + f**2 / 2) / f**3 for sqrt(0.5) - 1 <= f <= sqrt(2) - 1.
LOG_TAIL: Final = (
    *(-0.0830337033, 0.127985179, -0.129438058, 0.141902864),
    *(-0.166434661, 0.200018778, -0.250002801, 0.333333254),
)
# (sin(r) - r) / r**3 in powers of r**2 for |r| <= pi / 4.
SIN_TAIL: Final = (2.7248343e-06, -0.000198400739, 0.00833333191, -0.166666672)
# (cos(r) - 1 + r**2 / 2) / r**4 in powers of r**2 for |r| <= pi / 4.
COS_TAIL: Final = (-2.72996289e-07, 2.48005908e-05, -0.00138888881, 0.0416666679)
# (tanh(x) - x) / x**3 in powers of x**2 for |x| <= 0.625.
TANH_TAIL: Final = (
    *(0.00227590883, -0.00832960662, 0.0217647552),
    *(-0.0539587848, 0.133333012, -0.333333343),
)
# (erf(x) - x) / x in powers of x**2 for |x| <= 0.927.
ERF_TAIL: Final = (
    *(8.34452512e-05, -0.000813727151, 0.00520061981, -0.0268592648),
    *(0.112836942, -0.376126349, 0.128379166),
)
# log(1 - erf(a)) + a for 0.927 <= a <= 4.
ERFC_LOG: Final = (
    *(-2.12211671e-05, 0.000435906084, -0.00417798385, 0.0251374543),
    *(-0.108307652, -0.63332212, -0.129527032, 0.00017717194),
)

# ln(2) and pi / 2 in float32 parts. The first part of each is so short, or its multiples so close
# to the argument, that the first step of a reduction is exact.
LN2_HIGH: Final = 0.693359375
LN2_LOW: Final = -2.12194440e-4
HALF_PI_PARTS: Final = (1.57079637, -4.37113883e-8, -1.71512489e-15)

ROUNDER: Final = 1.5 * 2**23  # added to |x| < 2**22, it leaves round(x) in the low bits
EXPONENT_SHIFT: Final = 23
EXPONENT_BIAS: Final = 127
SIGN_BIT: Final = -(2**31)
EXP_LOWEST: Final = -104.0  # e**x rounds to 0 from here down
EXP_HIGHEST: Final = 89.0  # e**x rounds to inf from here up
LEAST_NORMAL: Final = 2.0**-126
DENORMAL_SHIFT: Final = 25
SQRT_HALF_BITS: Final = 0x3F3504F3
REDUCIBLE: Final = 30000.0  # beyond, three parts of pi / 2 no longer reduce within 2 ulp
TANH_SMALL: Final = 0.625
TANH_ONE: Final = 10.0  # tanh rounds to 1 from here up
ERF_SMALL: Final = 0.927
ERF_ONE: Final = 4.0  # erf rounds to 1 from here up


def expand(node: UOp, can_scale: bool = False) -> UOp:
    """Return the arithmetic of a float32 function node, lanes kept.

    With `can_scale`, powers of two are applied by SCALE, which gives the same bits.

    Raises: InternalError for another op or dtype.
    """
    if node.op not in EXPANSIONS or node.dtype.scalar is not dtypes.float32:
        raise InternalError(
            f"functions: no expansion: {node.op.name.lower()} of {node.dtype.name}; "
            "a float32 function was required."
        )
    if node.op is Op.EXP and can_scale:
        return expand_exp(node.operands[0], can_scale)
    return EXPANSIONS[node.op](node.operands[0])


def expand_exp(x: UOp, can_scale: bool = False) -> UOp:
    """Return e**x; its power of two is applied in two factors, so overflow and denormals are right.

    Cost: 20 ops a vector, 15 with SCALE.
    """
    x = where(x < EXP_LOWEST, operand(x, EXP_LOWEST), x)
    x = where(compare(Op.LT, operand(x, EXP_HIGHEST), x), operand(x, EXP_HIGHEST), x)
    reduced = _reduce_exp(x, 2 * EXPONENT_BIAS)
    if can_scale:
        return UOp(Op.SCALE, x.dtype, (reduced.power, reduced.n))
    first_half = binary(Op.SHR, reduced.exponent, 1)
    other_half = reduced.exponent - first_half
    return reduced.power * power_of_two(first_half) * power_of_two(other_half)


def expand_log(x: UOp) -> UOp:
    """Return log(m) + n * ln(2), where x = m * 2**n and sqrt(0.5) <= m < sqrt(2)."""
    is_denormal = x < LEAST_NORMAL
    bits = bitcast(where(is_denormal, x * 2.0**DENORMAL_SHIFT, x), dtypes.int32)
    exponent = binary(Op.SHR, bits - SQRT_HALF_BITS, EXPONENT_SHIFT)
    fraction = bits - binary(Op.SHL, exponent, EXPONENT_SHIFT)
    scale = where(is_denormal, exponent - DENORMAL_SHIFT, exponent)
    n = cast(scale, dtypes.float32)
    f = bitcast(fraction, dtypes.float32) - 1.0
    square = f * f
    low = horner(f, LOG_TAIL) * f * square
    low = fma(square, -0.5, fma(n, LN2_LOW, low))
    result = fma(n, LN2_HIGH, f + low)
    result = where(x < math.inf, result, x)
    result = where(x < 0.0, operand(x, math.nan), result)
    return where(compare(Op.EQ, x, 0.0), operand(x, -math.inf), result)


def expand_sin(x: UOp) -> UOp:
    """Return sin(|x|) with the sign of x."""
    turn = _reduce_angle(x)
    is_cos = compare(Op.NE, turn.quarter & 1, 0)
    near = where(is_cos, _cos_near_zero(turn.rest), _sin_near_zero(turn.rest))
    flip = binary(Op.SHL, turn.quarter, 30) ^ bitcast(x, dtypes.int32)
    return _replace_large(x, "sin", flip_sign(near, flip))


def expand_cos(x: UOp) -> UOp:
    """Return cos(|x|)."""
    turn = _reduce_angle(x)
    is_sin = compare(Op.NE, turn.quarter & 1, 0)
    near = where(is_sin, _sin_near_zero(turn.rest), _cos_near_zero(turn.rest))
    flip = binary(Op.SHL, turn.quarter + 1, 30)
    return _replace_large(x, "cos", flip_sign(near, flip))


def expand_tanh(x: UOp) -> UOp:
    """Return tanh(|x|) with the sign of x: a polynomial near 0, then 1 - 2 / (e**2a + 1)."""
    a = absolute(x)
    square = a * a
    near = fma(horner(square, TANH_TAIL) * square, a, a)
    limited = where(compare(Op.LT, operand(a, TANH_ONE), a), operand(a, TANH_ONE), a)
    divisor = _exp_within_exponents(limited + limited) + 1.0
    far = operand(a, 1.0) - binary(Op.DIV, operand(a, 2.0), divisor)
    return flip_sign(where(a < TANH_SMALL, near, far), bitcast(x, dtypes.int32))


def expand_erf(x: UOp) -> UOp:
    """Return erf(|x|) with the sign of x: a polynomial near 0, then 1 - e**p(a)."""
    a = absolute(x)
    near = fma(horner(a * a, ERF_TAIL), a, a)
    limited = where(compare(Op.LT, operand(a, ERF_ONE), a), operand(a, ERF_ONE), a)
    exponent = horner(limited, ERFC_LOG) - limited
    far = operand(a, 1.0) - _exp_within_exponents(exponent)
    return flip_sign(where(a < ERF_SMALL, near, far), bitcast(x, dtypes.int32))


EXPANSIONS: Final[dict[Op, Callable[[UOp], UOp]]] = {
    Op.EXP: expand_exp,
    Op.LOG: expand_log,
    Op.SIN: expand_sin,
    Op.COS: expand_cos,
    Op.TANH: expand_tanh,
    Op.ERF: expand_erf,
}


@dataclass(frozen=True, slots=True)
class _ReducedExp:
    """e**x = power * 2**n; the low 9 bits of `exponent` are n plus the bias asked for."""

    power: UOp
    n: UOp
    exponent: UOp


@dataclass(frozen=True, slots=True)
class _Turn:
    """|x| = rest + n * pi / 2; the low 2 bits of `quarter` are those of n."""

    rest: UOp
    quarter: UOp


def _reduce_exp(x: UOp, bias: int) -> _ReducedExp:
    """Split x within [-104, 89] into n * ln(2) + r (Cody and Waite), and take e**r."""
    rounder = ROUNDER + bias
    shifted = fma(x, math.log2(math.e), rounder)
    n = shifted - rounder
    r = fma(n, -LN2_LOW, fma(n, -LN2_HIGH, x))
    power = horner(r, EXP_SERIES)
    return _ReducedExp(power, n, bitcast(shifted, dtypes.int32))


def _exp_within_exponents(x: UOp) -> UOp:
    """Return e**x where neither it nor its power of two leaves the normal floats."""
    reduced = _reduce_exp(x, EXPONENT_BIAS)
    return reduced.power * power_of_two(reduced.exponent)


def power_of_two(biased: UOp) -> UOp:
    """Return the float whose exponent field is the low bits of an int32; the others shift out."""
    return bitcast(binary(Op.SHL, biased, EXPONENT_SHIFT), dtypes.float32)


def _reduce_angle(x: UOp) -> _Turn:
    """Take multiples of pi / 2 off |x|, in three parts (Cody and Waite); needs the fused form."""
    a = absolute(x)
    shifted = fma(a, 2.0 / math.pi, ROUNDER)
    n = shifted - ROUNDER
    rest = a
    for part in HALF_PI_PARTS:
        rest = fma(n, -part, rest)
    return _Turn(rest, bitcast(shifted, dtypes.int32))


def _sin_near_zero(r: UOp) -> UOp:
    square = r * r
    return fma(horner(square, SIN_TAIL) * square, r, r)


def _cos_near_zero(r: UOp) -> UOp:
    square = r * r
    lead = fma(square, -0.5, 1.0)
    return fma(horner(square, COS_TAIL) * square, square, lead)


def _replace_large(x: UOp, function: str, result: UOp) -> UOp:
    """Let the C library answer for the lanes that the reduction does not reach, and for inf."""
    is_large = compare(Op.LT, operand(x, REDUCIBLE), absolute(x))
    called = UOp(Op.CALL, x.dtype, (is_large, x), CallAttrs(function))
    return where(is_large, called, result)


def horner(x: UOp, coefficients: tuple[float, ...]) -> UOp:
    """Return the polynomial's value, one FMA per coefficient but the first."""
    result = operand(x, coefficients[0])
    for each in coefficients[1:]:
        result = fma(result, x, each)
    return result


def fma(x: UOp, y: UOp | Number, z: UOp | Number) -> UOp:
    """Return x * y + z, rounded once."""
    return UOp(Op.FMA, x.dtype, (x, operand(x, y), operand(x, z)))


def absolute(x: UOp) -> UOp:
    """Return a float without its sign."""
    return bitcast(bitcast(x, dtypes.int32) & ~SIGN_BIT, dtypes.float32)


def flip_sign(x: UOp, flip: UOp) -> UOp:
    """Negate x where the sign bit of an int32 is set."""
    return bitcast(bitcast(x, dtypes.int32) ^ (flip & SIGN_BIT), dtypes.float32)
