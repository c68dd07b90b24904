"""Turns operators and comparisons between Tensors and numbers into nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

from tinytensor.dtype import DType, dtypes
from tinytensor.errors import DTypeError
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp, cast
from tinytensor.tensor.base import TensorBase
from tinytensor.tensor.formulas import (
    both,
    div,
    floor,
    greater,
    is_at_most,
    is_equal,
    is_unequal,
    mod,
    mul,
    neg,
    sqrt,
    sub,
)
from tinytensor.tensor.host import check_number
from tinytensor.tensor.nodes import apply, full_like, select, widen
from tinytensor.tensor.operands import Operand, align, align_pair, is_number, result_dtype


def is_integer_or_bool(dtype: DType) -> bool:
    """Tell whether a dtype has bits to work on."""
    return not dtype.is_float


def is_no_bool(dtype: DType) -> bool:
    """Tell whether a dtype holds numbers."""
    return dtype is not dtypes.bool


def is_integer(dtype: DType) -> bool:
    """Tell whether a dtype holds integers."""
    return dtype.is_int


REQUIRED: dict[Callable[[DType], bool], str] = {
    is_integer_or_bool: "an integer dtype or bool",
    is_no_bool: "an integer or float dtype",
    is_integer: "an integer dtype",
}


def check_dtype(who: str, dtype: DType, takes: Callable[[DType], bool]) -> None:
    """Raise DTypeError unless an op takes a dtype."""
    if not takes(dtype):
        raise DTypeError(f"{who}: does not take {dtype.name}; it must be {REQUIRED[takes]}.")


def magnitude(x: UOp) -> UOp:
    """Return the absolute value: +0.0 for -0.0; the least integer stays, as it wraps."""
    if x.dtype.kind in ("uint", "bool"):
        return x
    return greater(x, neg(x))


def floor_quotient(x: UOp, y: UOp) -> UOp:
    """Return floor(x / y) of floats, of the exact quotient and not of the rounded one.

    A quotient that was rounded up to an integer shows by a remainder of half of y or more. A
    remainder of NaN is the answer, unless y is 0: then the quotient, an infinity, is.
    """
    quotient = div(x, y)
    below = floor(quotient)
    remainder = mod(x, y)
    large = is_at_most(mul(magnitude(y), 0.5), magnitude(remainder))
    left = both(large, is_unequal(remainder, 0))
    rounded_up = both(left, is_equal(below, quotient))
    exact = select(rounded_up, sub(below, 1), below)
    undefined = both(is_unequal(remainder, remainder), is_unequal(y, 0))
    return select(undefined, remainder, exact)


def whole_power(x: UOp, exponent: int) -> UOp:
    """Return x ** exponent for an exponent of 0 or more, by repeated squaring."""
    power = None
    while exponent:
        if exponent & 1:
            power = x if power is None else mul(power, x)
        exponent >>= 1
        if exponent:
            x = mul(x, x)
    return full_like(x, 1) if power is None else power


def root_power(x: UOp, exponent: float) -> UOp:
    """Return x ** exponent for a float x and a multiple of 0.5 that is checked before."""
    size = abs(exponent)
    power = sqrt(x) if size == 0.5 else whole_power(x, int(size))
    return power if exponent >= 0 else div(full_like(x, 1), power)


class Arithmetic(TensorBase):
    """Operators between Tensors and numbers."""

    __slots__ = ()

    def _binary(
        self,
        who: str,
        op: Op,
        other: Operand,
        takes: Callable[[DType], bool] | None = None,
        swapped: bool = False,
    ) -> Self:
        x, y = align_pair(who, self, other)
        if takes is not None:
            check_dtype(who, x.dtype, takes)
        operands = (y, x) if swapped else (x, y)
        return self._wrap(UOp(op, x.dtype, operands))

    def __add__(self, other: Operand) -> Self:
        return self._binary("add", Op.ADD, other)

    def __mul__(self, other: Operand) -> Self:
        return self._binary("mul", Op.MUL, other)

    def __sub__(self, other: Operand) -> Self:
        return self._difference(other, swapped=False)

    def __rsub__(self, other: Operand) -> Self:
        return self._difference(other, swapped=True)

    def _difference(self, other: Operand, swapped: bool) -> Self:
        check_dtype("sub", self.dtype, is_no_bool)
        if isinstance(other, TensorBase):
            check_dtype("sub", other.dtype, is_no_bool)
        return self._binary("sub", Op.SUB, other, swapped=swapped)

    def __truediv__(self, other: Operand) -> Self:
        x, y = self._divided(other)
        return self._wrap(UOp(Op.DIV, x.dtype, (x, y)))

    def __rtruediv__(self, other: Operand) -> Self:
        x, y = self._divided(other)
        return self._wrap(UOp(Op.DIV, x.dtype, (y, x)))

    def _divided(self, other: Operand) -> tuple[UOp, UOp]:
        """Align for a division: integers and bool divide in float32."""
        if self.cell.uop.dtype.is_float:
            return align_pair("div", self, other)
        promoted = result_dtype("div", self, other)
        quotient = promoted if promoted.is_float else dtypes.float32
        x, y = align("div", self, other, dtype=quotient)
        return x, y

    def __floordiv__(self, other: Operand) -> Self:
        return self._floor_divide(*align_pair("floor_divide", self, other))

    def __rfloordiv__(self, other: Operand) -> Self:
        return self._floor_divide(*reversed(align_pair("floor_divide", self, other)))

    def _floor_divide(self, x: UOp, y: UOp) -> Self:
        check_dtype("floor_divide", x.dtype, is_no_bool)
        if x.dtype.is_int:
            return self._wrap(apply(Op.FLOORDIV, x, y))
        return self._wrap(cast(floor_quotient(widen(x), widen(y)), x.dtype))

    def __mod__(self, other: Operand) -> Self:
        return self._binary("remainder", Op.MOD, other, is_no_bool)

    def __rmod__(self, other: Operand) -> Self:
        return self._binary("remainder", Op.MOD, other, is_no_bool, swapped=True)

    def __pow__(self, exponent: int | float) -> Self:
        half = isinstance(exponent, float) and abs(exponent) == 0.5
        whole = is_number(exponent) and float(exponent).is_integer()
        if not (half or whole):
            shown = exponent if is_number(exponent) else type(exponent).__name__
            sentence = f"pow: the exponent is not one of those that pow takes: {shown}"
            raise DTypeError(f"{sentence}; it must be a whole number, 0.5 or -0.5.")
        (x,) = align("pow", self, dtype=self._power_dtype(exponent))
        if x.dtype.is_float:
            return self._wrap(cast(root_power(widen(x), exponent), x.dtype))
        if exponent < 0:
            sentence = f"pow: an integer has no negative power: {x.dtype.name} ** {exponent}"
            raise DTypeError(f"{sentence}; the exponent must be 0 or more.")
        return self._wrap(whole_power(x, int(exponent)))

    def _power_dtype(self, exponent: int | float) -> DType:
        if self.dtype.is_float:
            return self.dtype
        if isinstance(exponent, float):
            return dtypes.float32
        return dtypes.int64 if self.dtype is dtypes.bool else self.dtype

    def __neg__(self) -> Self:
        check_dtype("neg", self.dtype, is_no_bool)
        return self._wrap(neg(self.cell.uop))

    def __abs__(self) -> Self:
        check_dtype("abs", self.dtype, is_no_bool)
        return self._wrap(magnitude(self.cell.uop))

    def __invert__(self) -> Self:
        check_dtype("bitwise_not", self.dtype, is_integer_or_bool)
        return self._wrap(apply(Op.XOR, self.cell.uop, -1))

    def __and__(self, other: Operand) -> Self:
        return self._binary("bitwise_and", Op.AND, other, is_integer_or_bool)

    def __or__(self, other: Operand) -> Self:
        return self._binary("bitwise_or", Op.OR, other, is_integer_or_bool)

    def __xor__(self, other: Operand) -> Self:
        return self._binary("bitwise_xor", Op.XOR, other, is_integer_or_bool)

    def __lshift__(self, other: Operand) -> Self:
        return self._binary("lshift", Op.SHL, other, is_integer)

    def __rshift__(self, other: Operand) -> Self:
        return self._binary("rshift", Op.SHR, other, is_integer)

    def __rlshift__(self, other: Operand) -> Self:
        return self._binary("lshift", Op.SHL, other, is_integer, swapped=True)

    def __rrshift__(self, other: Operand) -> Self:
        return self._binary("rshift", Op.SHR, other, is_integer, swapped=True)

    __radd__ = __add__
    __rmul__ = __mul__
    __rand__ = __and__
    __ror__ = __or__
    __rxor__ = __xor__

    def _compare(self, who: str, op: Op, other: Operand, swapped: bool = False) -> Self:
        x, y = self._compared(who, other)
        operands = (y, x) if swapped else (x, y)
        return self._wrap(UOp(op, dtypes.bool, operands))

    def _compared(self, who: str, other: Operand) -> tuple[UOp, UOp]:
        """Align for a comparison: a number that does not fit this dtype widens it to int64."""
        dtype = self.dtype
        if not isinstance(other, int) or not dtype.is_int or dtype.min <= other <= dtype.max:
            return align_pair(who, self, other)
        check_number(who, other, dtype if dtype is dtypes.uint64 else dtypes.int64)
        x, y = align(who, self, other, dtype=dtypes.int64)
        return x, y

    def __lt__(self, other: Operand) -> Self:
        return self._compare("lt", Op.LT, other)

    def __le__(self, other: Operand) -> Self:
        return self._compare("le", Op.LE, other)

    def __gt__(self, other: Operand) -> Self:
        return self._compare("gt", Op.LT, other, swapped=True)

    def __ge__(self, other: Operand) -> Self:
        return self._compare("ge", Op.LE, other, swapped=True)

    def __eq__(self, other: Operand) -> Self:  # type: ignore[override]  # gives a Tensor, not bool
        if isinstance(other, TensorBase) or is_number(other):
            return self._compare("eq", Op.EQ, other)
        return NotImplemented

    def __ne__(self, other: Operand) -> Self:  # type: ignore[override]  # gives a Tensor, not bool
        if isinstance(other, TensorBase) or is_number(other):
            return self._compare("ne", Op.NE, other)
        return NotImplemented

    __hash__ = object.__hash__
    # PyTorch's names for the operators.
    add = __add__
    sub = __sub__
    mul = __mul__
    div = __truediv__
    floor_divide = __floordiv__
    remainder = __mod__
    pow = __pow__
    neg = __neg__
    abs = __abs__
    bitwise_not = __invert__
    bitwise_and = __and__
    bitwise_or = __or__
    bitwise_xor = __xor__
    eq = __eq__
    ne = __ne__
    lt = __lt__
    le = __le__
    gt = __gt__
    ge = __ge__
