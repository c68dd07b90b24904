"""Turns a Tensor into one of another dtype, or on another device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from tinytensor.dtype import DType, dtypes
from tinytensor.ops.uop import cast
from tinytensor.realize import canonical_device
from tinytensor.tensor.base import TensorBase
from tinytensor.tensor.creation import copy_to


def target_of(
    target: Sequence[DType | str | TensorBase], dtype: DType | None, device: str | None
) -> tuple[DType | None, str | None]:
    """Return the dtype and the device that the arguments of `to` name; None where none does."""
    for each in target:
        if isinstance(each, TensorBase):
            dtype, device = each.dtype, each.device
        elif isinstance(each, DType):
            dtype = each
        else:
            device = each
    return dtype, None if device is None else canonical_device(device)


class Casting(TensorBase):
    """Conversions of dtype and device."""

    __slots__ = ()

    def to(
        self,
        *target: DType | str | TensorBase,
        dtype: DType | None = None,
        device: str | None = None,
    ) -> Self:
        """Return this tensor as a dtype, on a device, both, or as another tensor has them."""
        wanted, place = target_of(target, dtype, device)
        place = place or self.device
        if place == self.device and wanted in (None, self.dtype):
            return self
        converted = cast(self.uop, wanted or self.dtype)
        if place == self.device:
            return self._wrap(converted)
        return self._made(copy_to(converted, self.device, place), place)

    def cast(self, dtype: DType) -> Self:
        """Return this tensor in another dtype; float to integer truncates and saturates."""
        return self.to(dtype)

    def float(self) -> Self:
        """Return this tensor in float32."""
        return self.to(dtypes.float32)

    def half(self) -> Self:
        """Return this tensor in float16."""
        return self.to(dtypes.float16)

    def bfloat16(self) -> Self:
        """Return this tensor in bfloat16."""
        return self.to(dtypes.bfloat16)

    def double(self) -> Self:
        """Return this tensor in float64."""
        return self.to(dtypes.float64)

    def int(self) -> Self:
        """Return this tensor in int32."""
        return self.to(dtypes.int32)

    def long(self) -> Self:
        """Return this tensor in int64."""
        return self.to(dtypes.int64)

    def bool(self) -> Self:
        """Tell which elements are not 0; NaN is not."""
        return self.to(dtypes.bool)
