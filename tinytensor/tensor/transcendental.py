"""Turns roots, logarithms, angles and their inverses into nodes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, Self

from tinytensor.dtype import dtypes
from tinytensor.grad import Rule, wide, with_rules
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp, cast
from tinytensor.tensor import precise
from tinytensor.tensor.elementwise import Elementwise
from tinytensor.tensor.formulas import (
    add,
    both,
    div,
    exp,
    is_at_most,
    is_equal,
    is_less,
    log,
    magnitude,
    mul,
    neg,
    sqrt,
    sub,
    tanh,
)
from tinytensor.tensor.nodes import apply, floating, full_like, select
from tinytensor.tensor.operands import Operand, align_pair

LN_2: Final = math.log(2)
LN_10: Final = math.log(10)
SINH_TERMS: Final = [1 / math.factorial(2 * k + 1) for k in reversed(range(10))]


def less_one(x: UOp) -> UOp:
    """Return exp(x) - 1 as tanh(x / 2) * (exp(x) + 1), where nothing cancels."""
    return mul(tanh(mul(x, 0.5)), add(exp(x), 1))


def log_above_one(x: UOp) -> UOp:
    """Return log(1 + x): what the sum lost by its rounding is put back, as its share of the sum."""
    total = add(x, 1)
    is_regular = both(is_less(full_like(x, 0), total), is_less(total, math.inf))
    lost = select(is_regular, sub(x, sub(total, 1)), full_like(x, 0))
    share = div(lost, select(is_regular, total, full_like(x, 1)))
    result = add(log(total), share)
    return select(is_equal(total, 1), x, result)


def hyperbolic_sine(x: UOp) -> UOp:
    """Return (e**x - e**-x) / 2, near 0 as Taylor's series; e**x is taken as a square."""

    def slope(g: UOp, out: UOp, x: UOp) -> UOp:
        return mul(g, hyperbolic_cosine(x))

    size = magnitude(x)
    is_near = is_less(size, 1)
    near = select(is_near, x, full_like(x, 0))
    series = mul(near, precise.polynomial(mul(near, near), SINH_TERMS))
    root = exp(mul(size, 0.5))
    far = sub(mul(mul(root, 0.5), root), div(full_like(x, 0.5), mul(root, root)))
    return with_rules(select(is_near, series, precise.with_sign(far, x)), [x], slope)


def hyperbolic_cosine(x: UOp) -> UOp:
    """Return (e**x + e**-x) / 2; e**x, which may overflow where this does not, is a square."""

    def slope(g: UOp, out: UOp, x: UOp) -> UOp:
        return mul(g, hyperbolic_sine(x))

    root = exp(mul(magnitude(x), 0.5))
    value = add(mul(mul(root, 0.5), root), div(full_like(x, 0.5), mul(root, root)))
    return with_rules(value, [x], slope)


def tangent(x: UOp) -> UOp:
    """Return sin(x) / cos(x)."""
    return div(apply(Op.SIN, x), apply(Op.COS, x))


def log_odds(x: UOp) -> UOp:
    """Return log(x / (1 - x)); outside 0 .. 1 the gradient is NaN too."""

    def slope(g: UOp, out: UOp, x: UOp) -> UOp:
        is_inside = both(is_at_most(full_like(x, 0), x), is_at_most(x, full_like(x, 1)))
        spread = mul(x, sub(full_like(x, 1), x))
        return select(is_inside, div(g, spread), full_like(x, math.nan))

    return with_rules(log(div(x, sub(full_like(x, 1), x))), [x], slope)


def leg(x: UOp) -> UOp:
    """Return sqrt(1 - x * x)."""
    return sqrt(sub(full_like(x, 1), mul(x, x)))


def angle_of(y: UOp, x: UOp) -> UOp:
    """Return the angle of the point (x, y), computed in float64 and rounded once."""

    def over_square(g: UOp, part: UOp, x: UOp, y: UOp) -> UOp:
        square = add(mul(x, x), mul(y, y))
        is_origin = is_equal(square, 0)
        slope = div(part, select(is_origin, full_like(square, 1), square))
        return mul(g, slope)

    value = cast(precise.atan2(cast(y, dtypes.float64), cast(x, dtypes.float64)), y.dtype)
    of_y = wide(lambda g, out, y, x: over_square(g, x, x, y))
    of_x = wide(lambda g, out, y, x: neg(over_square(g, y, x, y)))
    return with_rules(value, [y, x], of_y, of_x)


class Transcendental(Elementwise):
    """Functions that are no polynomials."""

    __slots__ = ()

    def _precisely(self, formula: Callable[[UOp], UOp], slope: Rule) -> Self:
        """Compute in float64 and round once; the slope computes in float32 at least."""
        x = floating(self.uop)
        value = cast(formula(cast(x, dtypes.float64)), x.dtype)
        return self._wrap(with_rules(value, [x], wide(slope)))

    def exp2(self) -> Self:
        """Return 2 ** x."""
        return self._precisely(
            precise.exp2,
            lambda g, out, x: mul(g, mul(out, LN_2)),
        )

    def expm1(self) -> Self:
        """Return e ** x - 1, accurate near 0."""
        return self._composite(
            less_one,
            lambda g, out, x: mul(g, add(out, 1)),
        )

    def log2(self) -> Self:
        """Return the logarithm to base 2."""
        return self._precisely(
            precise.log2,
            lambda g, out, x: div(g, mul(x, LN_2)),
        )

    def log10(self) -> Self:
        """Return the logarithm to base 10."""
        return self._precisely(
            precise.log10,
            lambda g, out, x: div(g, mul(x, LN_10)),
        )

    def log1p(self) -> Self:
        """Return the natural logarithm of 1 + x, accurate near 0."""
        return self._composite(
            log_above_one,
            lambda g, out, x: div(g, add(x, 1)),
        )

    def tan(self) -> Self:
        """Return the tangent of an angle in radians."""
        return self._composite(tangent)

    def asin(self) -> Self:
        """Return the angle whose sine is x."""
        return self._precisely(
            precise.asin,
            lambda g, out, x: div(g, leg(x)),
        )

    def acos(self) -> Self:
        """Return the angle whose cosine is x."""
        return self._precisely(
            precise.acos,
            lambda g, out, x: neg(div(g, leg(x))),
        )

    def atan(self) -> Self:
        """Return the angle whose tangent is x."""
        return self._precisely(
            precise.atan,
            lambda g, out, x: div(g, add(mul(x, x), 1)),
        )

    def atan2(self, other: Operand) -> Self:
        """Return the angle of the point (other, self), from -pi to pi."""
        y, x = (floating(each) for each in align_pair("atan2", self, other))
        return self._wrap(angle_of(y, x))

    def sinh(self) -> Self:
        """Return the hyperbolic sine."""
        return self._composite(hyperbolic_sine)

    def cosh(self) -> Self:
        """Return the hyperbolic cosine."""
        return self._composite(hyperbolic_cosine)

    def logit(self, eps: float | None = None) -> Self:
        """Return log(x / (1 - x)), of x held between eps and 1 - eps if that is given."""
        x = self if eps is None else self.clamp(eps, 1 - eps)
        return x._composite(log_odds)

    def deg2rad(self) -> Self:
        """Return an angle in degrees as one in radians."""
        return self._composite(lambda x: mul(x, math.pi / 180))

    def rad2deg(self) -> Self:
        """Return an angle in radians as one in degrees."""
        return self._composite(lambda x: mul(x, 180 / math.pi))
