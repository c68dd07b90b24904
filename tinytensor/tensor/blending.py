"""Turns formulas of several tensors, element by element, into nodes."""

from __future__ import annotations

import math
from typing import Self

from tinytensor.dtype import decode, dtypes, encode
from tinytensor.errors import DTypeError
from tinytensor.grad import wide, with_rules
from tinytensor.ops.uop import Number, UOp, cast
from tinytensor.tensor.arithmetic import check_dtype, is_no_bool
from tinytensor.tensor.base import TensorBase
from tinytensor.tensor.elementwise import Elementwise
from tinytensor.tensor.formulas import (
    add,
    div,
    is_equal,
    is_less,
    is_unequal,
    magnitude,
    mod,
    mul,
    neg,
    sub,
    trunc,
)
from tinytensor.tensor.host import check_number
from tinytensor.tensor.nodes import full_like, select, widen
from tinytensor.tensor.operands import Operand, align, align_pair, align_tensors, result_dtype
from tinytensor.tensor.precise import with_sign, without_sign
from tinytensor.tensor.reduction import check_float


def blend(start: UOp, end: UOp, weight: UOp) -> UOp:
    """Return start + weight * (end - start), from the nearer end, so that both ends are exact."""
    span = sub(end, start)
    from_end = sub(end, mul(span, sub(full_like(weight, 1), weight)))
    return select(is_less(magnitude(weight), 0.5), add(start, mul(weight, span)), from_end)


def remainder_toward_0(x: UOp, y: UOp) -> UOp:
    """Return what a division of floats, rounded toward 0, leaves."""
    value = with_sign(mod(without_sign(x), magnitude(y)), x)

    def of_divisor(g: UOp, out: UOp, x: UOp, y: UOp) -> UOp:
        return neg(mul(g, trunc(div(x, y))))

    return with_rules(value, [x, y], lambda g, *_: g, wide(of_divisor))


class Blending(Elementwise):
    """Formulas of several tensors; halves compute in float32 and round once."""

    __slots__ = ()

    def fmod(self, other: Operand) -> Self:
        """Return the remainder of a division rounded toward 0; it has the sign of x."""
        x, y = align_pair("fmod", self, other)
        check_dtype("fmod", x.dtype, is_no_bool)
        if x.dtype.is_float:
            return self._wrap(remainder_toward_0(x, y))
        remainder = mod(magnitude(x), magnitude(y))
        negative = sub(full_like(x, 0), remainder)
        return self._wrap(select(is_less(x, 0), negative, remainder))

    def frac(self) -> Self:
        """Return what trunc leaves."""
        check_float("frac", self.dtype)
        return self._composite(lambda x: sub(x, trunc(x)))

    def copysign(self, other: Operand) -> Self:
        """Return the magnitude of x under the sign of another number."""
        promoted = result_dtype("copysign", self, other)
        result = promoted if promoted.is_float else dtypes.float32
        x, y = align("copysign", self, other, dtype=result)
        return self._wrap(with_sign(magnitude(x), y))

    def clamp_min(self, min: Operand) -> Self:
        """Return x, or the bound where x is below it."""
        return self.clamp(min=min)

    def clamp_max(self, max: Operand) -> Self:
        """Return x, or the bound where x is above it."""
        return self.clamp(max=max)

    clip = Elementwise.clamp

    def lerp(self, end: TensorBase, weight: TensorBase | float) -> Self:
        """Return x + weight * (end - x)."""
        check_float("lerp", self.dtype)
        for each in (end, weight):
            if isinstance(each, TensorBase) and each.dtype is not self.dtype:
                sentence = f"lerp: dtypes differ: {self.dtype.name} and {each.dtype.name}"
                raise DTypeError(f"{sentence}; they must be equal.")
        x, last, share = align("lerp", self, end, weight)
        return self._wrap(cast(blend(widen(x), widen(last), widen(share)), x.dtype))

    def addcmul(self, tensor1: TensorBase, tensor2: TensorBase, *, value: Number = 1) -> Self:
        """Return x + value * tensor1 * tensor2."""
        return self._scaled_term("addcmul", tensor1, tensor2, value)

    def addcdiv(self, tensor1: TensorBase, tensor2: TensorBase, *, value: Number = 1) -> Self:
        """Return x + value * tensor1 / tensor2."""
        if not (tensor1.dtype.is_float or tensor2.dtype.is_float):
            sentence = f"addcdiv: does not divide {tensor1.dtype.name} by {tensor2.dtype.name}"
            raise DTypeError(f"{sentence}; one must be a float. Use div with rounding_mode.")
        return self._scaled_term("addcdiv", tensor1, tensor2, value)

    def _scaled_term(self, who: str, first: TensorBase, second: TensorBase, value: Number) -> Self:
        x, y, z = align_tensors(who, self, first, second)
        dtype = x.dtype
        check_dtype(who, dtype, is_no_bool)
        scale = check_number(who, value, dtype)
        if dtype.is_float:
            x, y, z = widen(x), widen(y), widen(z)
        term = mul(mul(y, scale), z) if who == "addcmul" else div(mul(y, scale), z)
        return self._wrap(cast(add(x, term), dtype))

    def nan_to_num(
        self, nan: float | None = 0.0, posinf: float | None = None, neginf: float | None = None
    ) -> Self:
        """Return x with other values for NaN and infinities: the extremes unless given."""
        x = self.uop
        if not x.dtype.is_float:
            return self._wrap(x)
        extreme = decode(x.dtype, encode(x.dtype, math.inf) - 1)
        above = full_like(x, extreme if posinf is None else posinf)
        below = full_like(x, -extreme if neginf is None else neginf)
        result = select(is_equal(x, math.inf), above, x)
        result = select(is_equal(x, -math.inf), below, result)
        return self._wrap(select(is_unequal(x, x), full_like(x, nan or 0.0), result))
