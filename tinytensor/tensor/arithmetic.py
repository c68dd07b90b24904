"""Turns operators and comparisons between Tensors and numbers into nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

from tinytensor.dtype import DType, dtypes
from tinytensor.errors import DTypeError, ValueOutOfRange
from tinytensor.grad import wide, with_rules
from tinytensor.ops.op import Op
from tinytensor.ops.uop import Number, UOp, cast
from tinytensor.tensor import precise
from tinytensor.tensor.base import TensorBase
from tinytensor.tensor.formulas import (
    add,
    both,
    div,
    either,
    floor,
    is_at_most,
    is_equal,
    is_less,
    is_unequal,
    log,
    magnitude,
    mod,
    mul,
    neg,
    sqrt,
    sub,
    trunc,
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


LONGEST_PRODUCT = {False: 4, True: 64}
REQUIRED: dict[Callable[[DType], bool], str] = {
    is_integer_or_bool: "an integer dtype or bool",
    is_no_bool: "an integer or float dtype",
    is_integer: "an integer dtype",
}


def check_dtype(who: str, dtype: DType, takes: Callable[[DType], bool]) -> None:
    """Raise DTypeError unless an op takes a dtype."""
    if not takes(dtype):
        raise DTypeError(f"{who}: does not take {dtype.name}; it must be {REQUIRED[takes]}.")


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


def truncated_quotient(x: UOp, y: UOp) -> UOp:
    """Return x / y of integers rounded toward 0."""
    quotient = apply(Op.FLOORDIV, x, y)
    is_below = is_less(quotient, 0)
    is_inexact = is_unequal(mod(x, y), 0)
    return select(both(is_below, is_inexact), add(quotient, 1), quotient)


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


def integer_power(x: UOp, y: UOp) -> UOp:
    """Return x ** y of integers, wrapped; below y = 0 it is 0 but for the powers of 1 and -1."""
    power, square = full_like(x, 1), x
    for bit in range(x.dtype.bits - (x.dtype.kind == "int")):
        is_set = is_unequal(both(y, 1 << bit), 0)
        power = select(is_set, mul(power, square), power)
        square = mul(square, square)
    if x.dtype.kind == "uint":
        return power
    is_unit = either(is_equal(x, 1), is_equal(x, -1))
    unit_power = select(is_equal(both(y, 1), 1), x, full_like(x, 1))
    inverse = select(is_unit, unit_power, full_like(x, 0))
    return select(is_less(y, 0), inverse, power)


def has_short_power(exponent: float, dtype: DType) -> bool:
    """Tell which powers are products: short ones and, as float64 has nothing better, longer ones.

    The reciprocal of a longer product could overflow where the power does not.
    """
    longest = LONGEST_PRODUCT[dtype is dtypes.float64]
    is_whole = exponent.is_integer() and -2 <= exponent <= longest
    return is_whole or abs(exponent) == 0.5


def root_power(x: UOp, exponent: float) -> UOp:
    """Return x ** exponent for a float x and a multiple of 0.5 that is checked before."""
    size = abs(exponent)
    power = sqrt(x) if size == 0.5 else whole_power(x, int(size))
    return power if exponent >= 0 else div(full_like(x, 1), power)


def number_power(x: UOp, exponent: float) -> UOp:
    """Return x ** exponent for a float x and a number."""

    def slope(g: UOp, out: UOp, x: UOp) -> UOp:
        if exponent == 0:
            return full_like(x, 0)
        return mul(g, mul(number_power(x, exponent - 1), exponent))

    if has_short_power(exponent, x.dtype):
        value = cast(root_power(widen(x), exponent), x.dtype)
    else:
        value = precise_power(x, full_like(x, exponent))
    return with_rules(value, [x], wide(slope))


def real_power(x: UOp, y: UOp) -> UOp:
    """Return x ** y for floats."""

    def of_base(g: UOp, out: UOp, x: UOp, y: UOp) -> UOp:
        slope = mul(y, real_power(x, sub(y, 1)))
        return select(is_equal(y, 0), full_like(g, 0), mul(g, slope))

    def of_exponent(g: UOp, out: UOp, x: UOp, y: UOp) -> UOp:
        is_flat = both(is_equal(x, 0), is_at_most(full_like(y, 0), y))
        return select(is_flat, full_like(g, 0), mul(g, mul(out, log(x))))

    return with_rules(precise_power(x, y), [x, y], wide(of_base), wide(of_exponent))


def precise_power(x: UOp, y: UOp) -> UOp:
    """Return x ** y, computed in float64 and rounded once."""
    power = precise.power(cast(x, dtypes.float64), cast(y, dtypes.float64))
    return cast(power, x.dtype)


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
        if self.uop.dtype.is_float:
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

    def __pow__(self, exponent: Operand) -> Self:
        if isinstance(exponent, TensorBase):
            return self._power(*align_pair("pow", self, exponent))
        return self._number_power(exponent)

    def __rpow__(self, base: Operand) -> Self:
        return self._power(*reversed(align_pair("pow", self, base)))

    def _power(self, x: UOp, y: UOp) -> Self:
        check_dtype("pow", x.dtype, is_no_bool)
        if x.dtype.is_int:
            return self._wrap(integer_power(x, y))
        return self._wrap(real_power(x, y))

    def _number_power(self, exponent: Number) -> Self:
        (x,) = align("pow", self, dtype=result_dtype("pow", self, exponent))
        if x.dtype.is_float:
            return self._wrap(number_power(x, float(exponent)))
        if exponent < 0:
            sentence = f"pow: an integer has no negative power: {x.dtype.name} ** {exponent}"
            raise DTypeError(f"{sentence}; the exponent must be 0 or more.")
        return self._wrap(whole_power(x, int(exponent)))

    def __pos__(self) -> Self:
        return self

    def __neg__(self) -> Self:
        check_dtype("neg", self.dtype, is_no_bool)
        return self._wrap(neg(self.uop))

    def __abs__(self) -> Self:
        check_dtype("abs", self.dtype, is_no_bool)
        return self._wrap(magnitude(self.uop))

    def __invert__(self) -> Self:
        check_dtype("bitwise_not", self.dtype, is_integer_or_bool)
        return self._wrap(apply(Op.XOR, self.uop, -1))

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
        if not isinstance(other, int):
            return align_pair(who, self, other)
        dtype = self.dtype
        if not dtype.is_int or dtype.min <= other <= dtype.max:
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
            return self.eq(other)
        return NotImplemented

    def __ne__(self, other: Operand) -> Self:  # type: ignore[override]  # gives a Tensor, not bool
        if isinstance(other, TensorBase) or is_number(other):
            return self.ne(other)
        return NotImplemented

    __hash__ = object.__hash__
    # PyTorch's names for the operators.
    mul = multiply = __mul__
    true_divide = __truediv__
    floor_divide = __floordiv__
    remainder = __mod__
    pow = __pow__
    neg = __neg__
    abs = __abs__
    bitwise_not = __invert__
    bitwise_and = __and__
    bitwise_or = __or__
    bitwise_xor = __xor__
    bitwise_left_shift = __lshift__
    bitwise_right_shift = __rshift__
    lt = __lt__
    le = __le__
    gt = __gt__
    ge = __ge__

    def eq(self, other: Operand) -> Self:
        """Tell where both are equal."""
        return self._compare("eq", Op.EQ, other)

    def ne(self, other: Operand) -> Self:
        """Tell where both differ."""
        return self._compare("ne", Op.NE, other)

    def add(self, other: Operand, *, alpha: Number = 1) -> Self:
        """Return x + alpha * other."""
        return self + other if alpha == 1 else self._scaled("add", Op.ADD, other, alpha)

    def sub(self, other: Operand, *, alpha: Number = 1) -> Self:
        """Return x - alpha * other."""
        if alpha == 1:
            return self - other
        for each in (self, other):
            if isinstance(each, TensorBase):
                check_dtype("sub", each.dtype, is_no_bool)
        return self._scaled("sub", Op.SUB, other, alpha)

    def _scaled(self, who: str, op: Op, other: Operand, alpha: Number) -> Self:
        x, y = align_pair(who, self, other)
        return self._wrap(apply(op, x, mul(y, check_number(who, alpha, x.dtype))))

    def div(self, other: Operand, *, rounding_mode: str | None = None) -> Self:
        """Return x / other, rounded toward 0 by 'trunc', down by 'floor'."""
        if rounding_mode is None:
            return self / other
        if rounding_mode == "floor":
            return self // other
        if rounding_mode != "trunc":
            sentence = f"div: no such rounding mode: {rounding_mode!r}"
            raise ValueOutOfRange(f"{sentence}; it must be None, 'trunc' or 'floor'.")
        x, y = align_pair("div", self, other)
        check_dtype("div", x.dtype, is_no_bool)
        if x.dtype.is_int:
            return self._wrap(truncated_quotient(x, y))
        return self._wrap(cast(trunc(div(widen(x), widen(y))), x.dtype))
