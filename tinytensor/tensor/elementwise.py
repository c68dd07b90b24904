"""Turns functions of single elements, and choices between them, into nodes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Self

from tinytensor.dtype import MANTISSA_BITS, dtypes
from tinytensor.errors import DTypeError
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp, cast
from tinytensor.tensor.arithmetic import check_dtype, is_no_bool, magnitude
from tinytensor.tensor.axes import broadcast_shapes
from tinytensor.tensor.base import TensorBase
from tinytensor.tensor.formulas import (
    add,
    both,
    div,
    erf,
    exp,
    floor,
    greater,
    is_equal,
    is_less,
    is_unequal,
    lesser,
    mul,
    neg,
    sqrt,
    sub,
    tanh,
    trunc,
)
from tinytensor.tensor.nodes import apply, broadcast, floating, full, full_like, select, widen
from tinytensor.tensor.operands import Operand, align, check_devices


def inverse(x: UOp) -> UOp:
    """Return 1 / x."""
    return div(full_like(x, 1), x)


def logistic(x: UOp) -> UOp:
    """Return 1 / (1 + exp(-x))."""
    return inverse(add(exp(neg(x)), 1))


def logistic_unit(x: UOp) -> UOp:
    """Return x / (1 + exp(-x))."""
    return div(x, add(exp(neg(x)), 1))


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
    return select(changes, signed, x)


class Elementwise(TensorBase):
    """Functions of single elements."""

    __slots__ = ()

    def _function(self, op: Op) -> Self:
        return self._wrap(apply(op, floating(self.cell.uop)))

    def _composite(self, formula: Callable[[UOp], UOp]) -> Self:
        """Apply several ops: halves are widened before and rounded once after."""
        x = floating(self.cell.uop)
        return self._wrap(cast(formula(widen(x)), x.dtype))

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
        return self._wrap(inverse(floating(self.cell.uop)))

    def sigmoid(self) -> Self:
        """Return 1 / (1 + exp(-x))."""
        return self._composite(logistic)

    def silu(self) -> Self:
        """Return x * sigmoid(x)."""
        return self._composite(logistic_unit)

    def gelu(self, approximate: str = "none") -> Self:
        """Return x times the normal distribution's share below x; 'tanh' approximates it."""
        formulas = {"none": gaussian_unit, "tanh": gaussian_unit_by_tanh}
        if approximate not in formulas:
            sentence = f"gelu: no such approximation: {approximate!r}"
            raise ValueError(f"{sentence}; it must be 'none' or 'tanh'.")
        return self._composite(formulas[approximate])

    def relu(self) -> Self:
        """Return 0 where x < 0, else x; NaN and -0.0 stay."""
        check_dtype("relu", self.dtype, is_no_bool)
        x = self.cell.uop
        return self._wrap(select(is_less(x, 0), full_like(x, 0), x))

    def square(self) -> Self:
        """Return x * x; of bool as int64."""
        x = self.cell.uop
        number = cast(x, dtypes.int64) if x.dtype is dtypes.bool else x
        return self._wrap(mul(number, number))

    def floor(self) -> Self:
        """Return the greatest whole number <= x."""
        return self._rounded(floor)

    def ceil(self) -> Self:
        """Return the least whole number >= x."""
        return self._rounded(lambda x: neg(floor(neg(x))))

    def trunc(self) -> Self:
        """Return x without its fraction."""
        return self._rounded(trunc)

    def round(self) -> Self:
        """Return the nearest whole number, the even one of two."""
        return self._rounded(round_half_even)

    def _rounded(self, formula: Callable[[UOp], UOp]) -> Self:
        return self._composite(formula) if self.dtype.is_float else self._wrap(self.cell.uop)

    def sign(self) -> Self:
        """Return 1 where x > 0, -1 where x < 0, else 0 (also for NaN)."""
        x = self.cell.uop
        if x.dtype is dtypes.bool:
            return self._wrap(x)
        zero = full_like(x, 0)
        above, below = is_less(zero, x), is_less(x, zero)
        return self._wrap(sub(cast(above, x.dtype), cast(below, x.dtype)))

    def isnan(self) -> Self:
        """Tell where x is NaN."""
        return self._wrap(is_unequal(self.cell.uop, self.cell.uop))

    def isinf(self) -> Self:
        """Tell where x is an infinity."""
        x = self.cell.uop
        if not x.dtype.is_float:
            return self._wrap(full(dtypes.bool, False, x.shape))
        return self._wrap(is_equal(magnitude(x), math.inf))

    def logical_not(self) -> Self:
        """Tell where x is 0 or False."""
        return self._wrap(is_equal(self.cell.uop, 0))

    def maximum(self, other: Operand) -> Self:
        """Return the greater of two; NaN if either is, and +0.0 over -0.0."""
        return self._wrap(greater(*align("maximum", self, other)))

    def minimum(self, other: Operand) -> Self:
        """Return the lesser of two; NaN if either is, and -0.0 over +0.0."""
        return self._wrap(lesser(*align("minimum", self, other)))

    def clamp(self, min: Operand | None = None, max: Operand | None = None) -> Self:
        """Return x held between two bounds; max where min > max."""
        bounds = [each for each in (min, max) if each is not None]
        if not bounds:
            raise ValueError("clamp: both bounds are None; min, max or both must be given.")
        x, *limits = align("clamp", self, *bounds)
        if min is not None:
            x = greater(x, limits.pop(0))
        return self._wrap(lesser(x, limits[0]) if limits else x)

    def where(self, condition: TensorBase, other: Operand) -> Self:
        """Return this tensor's elements where the condition holds, else the other's."""
        if condition.dtype is not dtypes.bool:
            sentence = f"where: the condition is not bool: {condition.dtype.name}"
            raise DTypeError(f"{sentence}; it must be bool.")
        check_devices("where", [condition, self])
        x, y = align("where", self, other)
        shape = broadcast_shapes("where", [condition.shape, x.shape])
        choices = [broadcast(each, shape) for each in (condition.uop, x, y)]
        return self._wrap(select(*choices))
