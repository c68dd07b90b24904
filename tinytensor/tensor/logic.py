"""Turns questions about elements, and about whole tensors, into nodes of bool or Python's bool."""

from __future__ import annotations

import math
from typing import Self

from tinytensor.dtype import dtypes
from tinytensor.errors import DTypeError, ValueOutOfRange
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp, cast
from tinytensor.tensor.arithmetic import Arithmetic
from tinytensor.tensor.base import TensorBase
from tinytensor.tensor.formulas import (
    add,
    both,
    either,
    is_at_most,
    is_equal,
    is_less,
    is_unequal,
    magnitude,
    mul,
    sub,
)
from tinytensor.tensor.nodes import apply, full
from tinytensor.tensor.operands import align, align_pair, check_devices
from tinytensor.tensor.precise import sign_bit


def is_near(x: UOp, y: UOp, rtol: float, atol: float) -> UOp:
    """Tell where the distance is finite and at most atol + rtol * abs(y)."""
    distance = magnitude(sub(x, y))
    allowed = add(mul(magnitude(y), rtol), atol)
    return both(is_at_most(distance, allowed), is_less(distance, math.inf))


class Logic(Arithmetic):
    """Questions with the answers true and false."""

    __slots__ = ()

    def isfinite(self) -> Self:
        """Tell where x is neither an infinity nor NaN."""
        x = self.uop
        if not x.dtype.is_float:
            return self._wrap(full(dtypes.bool, True, x.shape))
        return self._wrap(is_less(magnitude(x), math.inf))

    def signbit(self) -> Self:
        """Tell where x is below 0 or is -0.0."""
        return self._wrap(sign_bit(self.uop))

    def logical_and(self, other: TensorBase) -> Self:
        """Tell where both are not 0."""
        return self._logical("logical_and", Op.AND, other)

    def logical_or(self, other: TensorBase) -> Self:
        """Tell where one is not 0."""
        return self._logical("logical_or", Op.OR, other)

    def logical_xor(self, other: TensorBase) -> Self:
        """Tell where exactly one is not 0."""
        return self._logical("logical_xor", Op.XOR, other)

    def _logical(self, who: str, op: Op, other: TensorBase) -> Self:
        truths = [self._wrap(cast(each.uop, dtypes.bool)) for each in (self, other)]
        check_devices(who, [self, other])
        return self._wrap(apply(op, *align(who, *truths)))

    def isclose(
        self, other: TensorBase, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
    ) -> Self:
        """Tell where abs(x - other) <= atol + rtol * abs(other), or both are equal."""
        if self.dtype is not other.dtype:
            sentence = f"isclose: dtypes differ: {self.dtype.name} and {other.dtype.name}"
            raise DTypeError(f"{sentence}; they must be equal.")
        if not (rtol >= 0 and atol >= 0):
            sentence = f"isclose: a tolerance is no distance: rtol {rtol}, atol {atol}"
            raise ValueOutOfRange(f"{sentence}; both must be 0 or more.")
        x, y = align_pair("isclose", self, other)
        result = is_equal(x, y)
        if equal_nan and x.dtype.is_float:
            result = either(result, both(is_unequal(x, x), is_unequal(y, y)))
        if rtol == 0 and atol == 0:
            return self._wrap(result)
        if not x.dtype.is_float:
            x, y = cast(x, dtypes.float64), cast(y, dtypes.float64)
        return self._wrap(either(result, is_near(x, y, rtol, atol)))

    def allclose(
        self, other: TensorBase, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
    ) -> bool:
        """Compute whether isclose holds everywhere."""
        close = self.isclose(other, rtol, atol, equal_nan)
        return bool(close.numpy().all())

    def equal(self, other: TensorBase) -> bool:
        """Compute whether both have one shape and equal elements."""
        check_devices("equal", [self, other])
        return self.shape == other.shape and bool((self == other).numpy().all())
