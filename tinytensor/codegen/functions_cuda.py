"""Turns a float32 function node of a GPU into few instructions, by its approximations of 2**x, 1/x.

The bits are those of the GPU alone, within the bounds below. NaN passes through every path.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tinytensor.codegen import functions
from tinytensor.codegen.functions import EXPONENT_BIAS, ROUNDER, SIGN_BIT, fma, horner, power_of_two
from tinytensor.dtype import dtypes
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp, binary, bitcast, operand, where

# log2(e) in float32 parts.
LOG2_E_HIGH: Final = 1.44269502
LOG2_E_LOW: Final = 1.92596303e-08
LEAST_POWER, GREATEST_POWER = -126, 127  # of two, among normal floats

# Polynomials, highest power first; minimax fits of this project, rounded to float32.
# (tanh(x) - x) / x**3 in powers of x**2 for |x| <= 0.6.
TANH_TAIL: Final = (-0.00589796668, 0.0207986254, -0.0537847169, 0.133319363, -0.333332986)
# (erf(x) - x) / x in powers of x**2 for |x| <= 0.94.
ERF_TAIL: Final = (
    *(8.01127608e-05, -0.000805284188, 0.00519263418, -0.0268558022),
    *(0.112836264, -0.376126289, 0.128379166),
)
# log2(1 - erf(a)) for 0.94 <= a <= 3.95.
ERFC_LOG2: Final = (
    *(0.000281008251, -0.00437402679, 0.0320011117, -0.149805248),
    *(-0.919415474, -1.62679923, -0.000304834364),
)
TANH_SMALL: Final = 0.6
ERF_SMALL: Final = 0.94
ERF_ONE: Final = 3.95  # erf rounds to 1 from here up
TWICE_LOG2_E: Final = 2.88539008


def expand(node: UOp) -> UOp:
    """Return the arithmetic of a float32 function node; the CPU's where the GPU has no better."""
    if node.op in EXPANSIONS and node.dtype.scalar is dtypes.float32:
        return EXPANSIONS[node.op](node.operands[0])
    return functions.expand(node)


def expand_exp(x: UOp) -> UOp:
    """Return 2**n * 2**r with x * log2(e) = n + r.

    n is limited rather than x: beyond, r grows, and the product overflows or becomes a denormal,
    rounded once, as e**x does.
    """
    rounder = ROUNDER + EXPONENT_BIAS
    shifted = fma(x, LOG2_E_HIGH, rounder)
    shifted = binary(Op.MAX, shifted, operand(x, rounder + LEAST_POWER))
    shifted = binary(Op.MIN, shifted, operand(x, rounder + GREATEST_POWER))
    minus_n = operand(x, rounder) - shifted
    r = fma(x, LOG2_E_LOW, fma(x, LOG2_E_HIGH, minus_n))
    return _exp2(r) * power_of_two(bitcast(shifted, dtypes.int32))


def expand_tanh(x: UOp) -> UOp:
    """Return a polynomial near 0, then 1 - 2 / (e**2|x| + 1) with the sign of x."""
    size = _magnitude(x)
    square = x * x
    near = x * fma(horner(square, TANH_TAIL), square, 1.0)
    inverse = UOp(Op.RECIPROCAL_APPROX, x.dtype, (_exp2(size * TWICE_LOG2_E) + 1.0,))
    return where(size < TANH_SMALL, near, _copy_sign(fma(inverse, -2.0, 1.0), x))


def expand_erf(x: UOp) -> UOp:
    """Return a polynomial near 0, then 1 - 2**p(|x|) with the sign of x."""
    size = _magnitude(x)
    near = fma(horner(x * x, ERF_TAIL), x, x)
    limited = binary(Op.MIN, size, operand(x, ERF_ONE))
    far = operand(x, 1.0) - _exp2(horner(limited, ERFC_LOG2))
    return where(size < ERF_SMALL, near, _copy_sign(far, x))


EXPANSIONS: Final[dict[Op, Callable[[UOp], UOp]]] = {
    Op.EXP: expand_exp,
    Op.TANH: expand_tanh,
    Op.ERF: expand_erf,
}


def _exp2(x: UOp) -> UOp:
    return UOp(Op.EXP2_APPROX, x.dtype, (x,))


def _magnitude(x: UOp) -> UOp:
    """Return |x|: no instruction, but a mark on the operand of one."""
    return UOp(Op.ABS, x.dtype, (x,))


def _copy_sign(x: UOp, sign: UOp) -> UOp:
    """Give x, which has none, the sign of another float."""
    bits = bitcast(sign, dtypes.int32) & SIGN_BIT
    return bitcast(bitcast(x, dtypes.int32) | bits, dtypes.float32)
