"""Turns functions of single elements, and choices between them, into nodes."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, pi, sqrt
from typing import Self

from tinytensor.dtype import MANTISSA_BITS, dtypes
from tinytensor.errors import DTypeError
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp, cast
from tinytensor.tensor.arithmetic import check_dtype, is_no_bool, magnitude
from tinytensor.tensor.axes import broadcast_shapes
from tinytensor.tensor.base import TensorBase
from tinytensor.tensor.nodes import apply, broadcast, floating, full, select, widen
from tinytensor.tensor.operands import Operand, align, check_devices


def inverse(x: UOp) -> UOp:
    """Return 1 / x."""
    return apply(Op.DIV, full(x.dtype, 1, x.shape), x)


def logistic(x: UOp) -> UOp:
    """Return 1 / (1 + exp(-x))."""
    return inverse(apply(Op.ADD, apply(Op.EXP, apply(Op.NEG, x)), 1))


def logistic_unit(x: UOp) -> UOp:
    """Return x / (1 + exp(-x))."""
    return apply(Op.DIV, x, apply(Op.ADD, apply(Op.EXP, apply(Op.NEG, x)), 1))


def gaussian_unit(x: UOp) -> UOp:
    """Return x times the normal distribution's share below x."""
    bell = apply(Op.ERF, apply(Op.MUL, x, sqrt(0.5)))
    return apply(Op.MUL, apply(Op.MUL, x, 0.5), apply(Op.ADD, bell, 1))


def gaussian_unit_by_tanh(x: UOp) -> UOp:
    """Return the approximation of gaussian_unit by a tanh of a cubic polynomial."""
    cube = apply(Op.MUL, apply(Op.MUL, x, x), x)
    inner = apply(Op.ADD, x, apply(Op.MUL, cube, 0.044715))
    bell = apply(Op.TANH, apply(Op.MUL, inner, sqrt(2 / pi)))
    return apply(Op.MUL, apply(Op.MUL, x, 0.5), apply(Op.ADD, bell, 1))


def round_half_even(x: UOp) -> UOp:
    """Return the nearest whole number, the even one of two.

    Adding the number from which on floats are whole rounds by itself; beyond it nothing changes.
    """
    whole = 2.0 ** MANTISSA_BITS[x.dtype.name]
    size = magnitude(x)
    rounded = apply(Op.SUB, apply(Op.ADD, size, whole), whole)
    signed = select(apply(Op.LT, x, 0), apply(Op.NEG, rounded), rounded)
    changes = apply(Op.AND, apply(Op.LT, size, whole), apply(Op.NE, x, 0))
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
        return self._composite(lambda x: inverse(apply(Op.SQRT, x)))

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
        return self._wrap(select(apply(Op.LT, x, 0), full(x.dtype, 0, x.shape), x))

    def square(self) -> Self:
        """Return x * x; of bool as int64."""
        x = self.cell.uop
        number = cast(x, dtypes.int64) if x.dtype is dtypes.bool else x
        return self._wrap(apply(Op.MUL, number, number))

    def floor(self) -> Self:
        """Return the greatest whole number <= x."""
        return self._rounded(lambda x: apply(Op.FLOOR, x))

    def ceil(self) -> Self:
        """Return the least whole number >= x."""
        return self._rounded(lambda x: apply(Op.NEG, apply(Op.FLOOR, apply(Op.NEG, x))))

    def trunc(self) -> Self:
        """Return x without its fraction."""
        return self._rounded(lambda x: apply(Op.TRUNC, x))

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
        zero = full(x.dtype, 0, x.shape)
        above, below = apply(Op.LT, zero, x), apply(Op.LT, x, zero)
        return self._wrap(apply(Op.SUB, cast(above, x.dtype), cast(below, x.dtype)))

    def isnan(self) -> Self:
        """Tell where x is NaN."""
        return self._wrap(apply(Op.NE, self.cell.uop, self.cell.uop))

    def isinf(self) -> Self:
        """Tell where x is an infinity."""
        x = self.cell.uop
        if not x.dtype.is_float:
            return self._wrap(full(dtypes.bool, False, x.shape))
        return self._wrap(apply(Op.EQ, magnitude(x), inf))

    def logical_not(self) -> Self:
        """Tell where x is 0 or False."""
        return self._wrap(apply(Op.EQ, self.cell.uop, 0))

    def maximum(self, other: Operand) -> Self:
        """Return the greater of two; NaN if either is, and +0.0 over -0.0."""
        return self._wrap(apply(Op.MAX, *align("maximum", self, other)))

    def minimum(self, other: Operand) -> Self:
        """Return the lesser of two; NaN if either is, and -0.0 over +0.0."""
        return self._wrap(apply(Op.MIN, *align("minimum", self, other)))

    def clamp(self, min: Operand | None = None, max: Operand | None = None) -> Self:
        """Return x held between two bounds; max where min > max."""
        bounds = [each for each in (min, max) if each is not None]
        if not bounds:
            raise ValueError("clamp: both bounds are None; min, max or both must be given.")
        x, *limits = align("clamp", self, *bounds)
        if min is not None:
            x = apply(Op.MAX, x, limits.pop(0))
        return self._wrap(apply(Op.MIN, x, limits[0]) if limits else x)

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
