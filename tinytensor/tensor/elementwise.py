"""Turns functions of single elements, and choices between them, into nodes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Self

from tinytensor.dtype import MANTISSA_BITS, dtypes
from tinytensor.errors import DTypeError, ValueOutOfRange
from tinytensor.grad import Rule, with_rules
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp, cast
from tinytensor.tensor.arithmetic import check_dtype, is_no_bool
from tinytensor.tensor.axes import broadcast_shapes
from tinytensor.tensor.base import TensorBase
from tinytensor.tensor.formulas import (
    add,
    both,
    div,
    either,
    erf,
    exp,
    floor,
    greater,
    is_at_most,
    is_equal,
    is_less,
    is_unequal,
    lesser,
    magnitude,
    mul,
    neg,
    sqrt,
    sub,
    tanh,
    trunc,
)
from tinytensor.tensor.nodes import apply, broadcast, floating, full, full_like, select, widen
from tinytensor.tensor.operands import Operand, align, align_pair, align_tensors, check_devices
from tinytensor.tensor.reduction import check_float


def inverse(x: UOp) -> UOp:
    """Return 1 / x."""
    return div(full_like(x, 1), x)


def less_than_one(x: UOp) -> UOp:
    """Return 1 - x."""
    return sub(full_like(x, 1), x)


def logistic(x: UOp) -> UOp:
    """Return 1 / (1 + exp(-x)); the gradient is written so that no exponential overflows in it."""

    def slope(g: UOp, out: UOp, x: UOp) -> UOp:
        return mul(g, mul(out, less_than_one(out)))

    return with_rules(inverse(add(exp(neg(x)), 1)), [x], slope)


def logistic_unit(x: UOp) -> UOp:
    """Return x / (1 + exp(-x))."""

    def slope(g: UOp, out: UOp, x: UOp) -> UOp:
        share = logistic(x)
        return mul(g, mul(share, add(mul(x, less_than_one(share)), 1)))

    return with_rules(div(x, add(exp(neg(x)), 1)), [x], slope)


def positive_part(x: UOp) -> UOp:
    """Return 0 where x < 0, else x; the gradient at 0 is 0."""

    def slope(g: UOp, out: UOp, x: UOp) -> UOp:
        return select(is_at_most(x, 0), full_like(g, 0), g)

    zero = full_like(x, 0)
    return with_rules(select(is_less(x, zero), zero, x), [x], slope)


def hold(x: UOp, least: UOp | None, greatest: UOp | None) -> UOp:
    """Return x held between two bounds; each element's gradient goes whole to what it shows.

    On a bound that is x; with the bounds in the wrong order it is the greatest.
    """
    raised = x if least is None else greater(x, least)
    held = raised if greatest is None else lesser(raised, greatest)

    def shown(g: UOp, out: UOp, x: UOp, *bounds: UOp) -> UOp:
        zero = full_like(g, 0)
        above = g if least is None else select(is_at_most(least, x), g, zero)
        return above if greatest is None else select(is_at_most(x, greatest), above, zero)

    def low(g: UOp, out: UOp, x: UOp, *bounds: UOp) -> UOp:
        is_shown = is_less(x, bounds[0])
        if greatest is not None:
            is_shown = both(is_shown, is_less(bounds[0], greatest))
        return select(is_shown, g, full_like(g, 0))

    def high(g: UOp, out: UOp, x: UOp, *bounds: UOp) -> UOp:
        is_shown = is_less(bounds[-1], x)
        if least is not None:
            is_shown = either(is_shown, is_less(bounds[-1], least))
        return select(is_shown, g, full_like(g, 0))

    ends = [(least, low), (greatest, high)]
    bounds = [end for end, _ in ends if end is not None]
    rules = [rule for end, rule in ends if end is not None]
    return with_rules(held, [x, *bounds], shown, *rules)


def gaussian_unit(x: UOp) -> UOp:
    """Return x times the normal distribution's share below x."""
    bell = erf(mul(x, math.sqrt(0.5)))
    return mul(mul(x, 0.5), add(bell, 1))


def gaussian_unit_by_tanh(x: UOp) -> UOp:
    """Return the approximation of gaussian_unit by a tanh of a cubic polynomial."""
    slope = math.sqrt(2 / math.pi)
    bend = mul(mul(x, x), slope * 0.044715)
    bell = tanh(mul(x, add(bend, slope)))
    return mul(mul(x, 0.5), add(bell, 1))


def round_half_even(x: UOp) -> UOp:
    """Return the nearest whole number, the even one of two.

    Adding the number from which on floats are whole rounds by itself; beyond it nothing changes.
    """
    whole = 2.0 ** MANTISSA_BITS[x.dtype.name]
    size = magnitude(x)
    rounded = sub(add(size, whole), whole)
    signed = select(is_less(x, 0), neg(rounded), rounded)
    changes = both(is_less(size, whole), is_unequal(x, 0))
    return trunc(select(changes, signed, x))  # changes no value, and passes no gradient


class Elementwise(TensorBase):
    """Functions of single elements."""

    __slots__ = ()

    def _function(self, op: Op) -> Self:
        return self._wrap(apply(op, floating(self.uop)))

    def _composite(self, formula: Callable[[UOp], UOp], slope: Rule | None = None) -> Self:
        """Apply several ops: halves are widened before and rounded once after.

        A slope gives the gradient where the ops themselves would give a worse one.
        """
        x = floating(self.uop)
        wide = widen(x)
        value = formula(wide)
        return self._wrap(cast(with_rules(value, [wide], slope) if slope else value, x.dtype))

    def exp(self) -> Self:
        """Return e ** x."""
        return self._function(Op.EXP)

    def log(self) -> Self:
        """Return the natural logarithm."""
        return self._function(Op.LOG)

    def sin(self) -> Self:
        """Return the sine of an angle in radians."""
        return self._function(Op.SIN)

    def cos(self) -> Self:
        """Return the cosine of an angle in radians."""
        return self._function(Op.COS)

    def tanh(self) -> Self:
        """Return the hyperbolic tangent."""
        return self._function(Op.TANH)

    def erf(self) -> Self:
        """Return the error function."""
        return self._function(Op.ERF)

    def sqrt(self) -> Self:
        """Return the square root."""
        return self._function(Op.SQRT)

    def rsqrt(self) -> Self:
        """Return 1 / sqrt(x)."""
        return self._composite(lambda x: inverse(sqrt(x)))

    def reciprocal(self) -> Self:
        """Return 1 / x."""
        return self._wrap(inverse(floating(self.uop)))

    def sigmoid(self) -> Self:
        """Return 1 / (1 + exp(-x))."""
        return self._composite(logistic)

    def silu(self) -> Self:
        """Return x * sigmoid(x)."""
        check_float("silu", self.dtype)
        return self._composite(logistic_unit)

    def gelu(self, approximate: str = "none") -> Self:
        """Return x times the normal distribution's share below x; 'tanh' approximates it."""
        formulas = {"none": gaussian_unit, "tanh": gaussian_unit_by_tanh}
        if approximate not in formulas:
            sentence = f"gelu: no such approximation: {approximate!r}"
            raise ValueOutOfRange(f"{sentence}; it must be 'none' or 'tanh'.")
        check_float("gelu", self.dtype)
        return self._composite(formulas[approximate])

    def relu(self) -> Self:
        """Return 0 where x < 0, else x; NaN and -0.0 stay."""
        check_dtype("relu", self.dtype, is_no_bool)
        x = self.uop
        return self._wrap(positive_part(x))

    def square(self) -> Self:
        """Return x * x; of bool as int64."""
        x = self.uop
        number = cast(x, dtypes.int64) if x.dtype is dtypes.bool else x
        return self._wrap(mul(number, number))

    def floor(self) -> Self:
        """Return the greatest whole number <= x."""
        return self._rounded("floor", floor)

    def ceil(self) -> Self:
        """Return the least whole number >= x."""
        return self._rounded("ceil", lambda x: neg(floor(neg(x))))

    def trunc(self) -> Self:
        """Return x without its fraction."""
        return self._rounded("trunc", trunc)

    def round(self) -> Self:
        """Return the nearest whole number, the even one of two."""
        return self._rounded("round", round_half_even)

    def _rounded(self, who: str, formula: Callable[[UOp], UOp]) -> Self:
        check_dtype(who, self.dtype, is_no_bool)
        return self._composite(formula) if self.dtype.is_float else self._wrap(self.uop)

    def sign(self) -> Self:
        """Return 1 where x > 0, -1 where x < 0, else 0 (also for NaN)."""
        x = self.uop
        if x.dtype is dtypes.bool:
            return self._wrap(x)
        zero = full_like(x, 0)
        above, below = is_less(zero, x), is_less(x, zero)
        value = sub(cast(above, x.dtype), cast(below, x.dtype))
        return self._wrap(with_rules(value, [x], lambda g, out, x: full_like(g, 0)))

    def isnan(self) -> Self:
        """Tell where x is NaN."""
        return self._wrap(is_unequal(self.uop, self.uop))

    def isinf(self) -> Self:
        """Tell where x is an infinity."""
        x = self.uop
        if not x.dtype.is_float:
            return self._wrap(full(dtypes.bool, False, x.shape))
        return self._wrap(is_equal(magnitude(x), math.inf))

    def logical_not(self) -> Self:
        """Tell where x is 0 or False."""
        return self._wrap(is_equal(self.uop, 0))

    def maximum(self, other: TensorBase) -> Self:
        """Return the greater of two; NaN if either is, and +0.0 over -0.0."""
        return self._wrap(greater(*align_tensors("maximum", self, other)))

    def minimum(self, other: TensorBase) -> Self:
        """Return the lesser of two; NaN if either is, and -0.0 over +0.0."""
        return self._wrap(lesser(*align_tensors("minimum", self, other)))

    def clamp(self, min: Operand | None = None, max: Operand | None = None) -> Self:
        """Return x held between two bounds; max where min > max."""
        bounds = [each for each in (min, max) if each is not None]
        if not bounds:
            raise ValueOutOfRange("clamp: both bounds are None; min, max or both must be given.")
        x, *limits = align("clamp", self, *bounds)
        least = None if min is None else limits[0]
        return self._wrap(hold(x, least, None if max is None else limits[-1]))

    def where(self, condition: TensorBase, other: Operand) -> Self:
        """Return this tensor's elements where the condition holds, else the other's.

        Both are computed, whatever the condition says; `cond` computes one of two functions.
        """
        if condition.dtype is not dtypes.bool:
            sentence = f"where: the condition is not bool: {condition.dtype.name}"
            raise DTypeError(f"{sentence}; it must be bool.")
        check_devices("where", [condition, self])
        x, y = align_pair("where", self, other)
        shape = broadcast_shapes("where", [condition.shape, x.shape])
        choices = [broadcast(each, shape) for each in (condition.uop, x, y)]
        return self._wrap(select(*choices))
