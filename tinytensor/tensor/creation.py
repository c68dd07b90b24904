"""Turns numbers, lists, arrays and shapes into Tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from tinytensor.dtype import DType, dtypes, from_numpy
from tinytensor.errors import DTypeError, ShapeError
from tinytensor.grad import cut
from tinytensor.ops.attrs import DeviceAttrs
from tinytensor.ops.op import Op
from tinytensor.ops.size import Size
from tinytensor.ops.uop import Number, UOp, cast, const
from tinytensor.realize import canonical_device, default_device_name, from_host
from tinytensor.tensor.axes import check_shape
from tinytensor.tensor.base import TensorBase
from tinytensor.tensor.formulas import add, is_equal, mul
from tinytensor.tensor.host import check_number, nested_values, number_dtype
from tinytensor.tensor.nodes import broadcast, full, iota, reshape
from tinytensor.tensor.operands import is_number
from tinytensor.tracing import ACTIVE

Sizes = int | Sequence[int]
Content = Number | Sequence[Any] | npt.NDArray[Any] | np.generic | TensorBase


def device_name(device: str | None) -> str:
    """Return a device's name as the registry spells it; the default device's for None."""
    return default_device_name() if device is None else canonical_device(device)


def copy_to(uop: UOp, source: str, destination: str) -> UOp:
    """Return a node on another device; itself when it is there."""
    if source == destination:
        return uop
    return UOp(Op.COPY, uop.dtype, (uop,), DeviceAttrs(destination))


def _content(data: Content, dtype: DType | None, device: str) -> UOp:
    if isinstance(data, np.ndarray):
        if ACTIVE.trace is not None and data.ndim:
            ACTIVE.trace.refuse("a NumPy array is read, whose values no guard compares")
        found = from_numpy(data.dtype)
        leaf = from_host(data.astype(found.storage_numpy), found, device)
        return cast(leaf, dtype or found)
    if isinstance(data, (list, tuple)):
        for each in data:
            if isinstance(each, TensorBase) and each.ndim:
                sentence = f"tensor: an element of the list has axes: shape {each.shape}"
                raise DTypeError(f"{sentence}; all must be numbers or 0-d. Use stack.")
        values, chosen = nested_values(data, dtype)
        return from_host(values, chosen, device)
    if isinstance(data, np.generic) and is_number(data):
        return _content(np.asarray(data), dtype, device)
    if not isinstance(data, (bool, int, float)):
        sentence = f"tensor: cannot be made from this: {type(data).__name__}"
        raise DTypeError(f"{sentence}; it must be a number, lists, a NumPy array or a Tensor.")
    chosen = dtype or number_dtype(data)
    return const(chosen, check_number("tensor", data, chosen))


class Creation(TensorBase):
    """The constructor, and the class methods that make Tensors."""

    __slots__ = ()

    def __init__(
        self,
        data: Content,
        dtype: DType | None = None,
        device: str | None = None,
        requires_grad: bool = False,
    ) -> None:
        if isinstance(data, TensorBase):
            place = data.device if device is None else canonical_device(device)
            uop = cut(copy_to(cast(data.uop, dtype or data.dtype), data.device, place))
        else:
            place = device_name(device)
            uop = _content(data, dtype, place)
        self._fill(uop, place, requires_grad)

    @classmethod
    def full(
        cls,
        size: Sizes,
        fill_value: Number,
        *,
        dtype: DType | None = None,
        device: str | None = None,
        requires_grad: bool = False,
    ) -> Self:
        """Make a tensor of one value, which takes no memory until it is needed."""
        return cls._filled("full", (size,), fill_value, dtype, device, requires_grad)

    @classmethod
    def zeros(
        cls,
        *size: Sizes,
        dtype: DType | None = None,
        device: str | None = None,
        requires_grad: bool = False,
    ) -> Self:
        """Make a tensor of zeros.

        >>> from tinytensor.tensor.tensor import Tensor
        >>> Tensor.zeros(2, 3).shape
        (2, 3)
        """
        chosen = dtype or dtypes.float32
        return cls._filled("zeros", size, 0, chosen, device, requires_grad)

    @classmethod
    def ones(
        cls,
        *size: Sizes,
        dtype: DType | None = None,
        device: str | None = None,
        requires_grad: bool = False,
    ) -> Self:
        """Make a tensor of ones."""
        return cls._filled("ones", size, 1, dtype or dtypes.float32, device, requires_grad)

    @classmethod
    def empty(
        cls,
        *size: Sizes,
        dtype: DType | None = None,
        device: str | None = None,
        requires_grad: bool = False,
    ) -> Self:
        """Make a tensor whose values do not matter; they are zeros."""
        chosen = dtype or dtypes.float32
        return cls._filled("empty", size, 0, chosen, device, requires_grad)

    @classmethod
    def _filled(
        cls,
        who: str,
        size: Sequence[Sizes],
        value: Number,
        dtype: DType | None,
        device: str | None,
        requires_grad: bool,
    ) -> Self:
        chosen = dtype or number_dtype(value)
        shape = check_shape(who, size)
        uop = full(chosen, check_number(who, value, chosen), shape)
        return cls._made(uop, device_name(device), requires_grad)

    @classmethod
    def arange(
        cls,
        start: int | float,
        end: int | float | None = None,
        step: int | float = 1,
        *,
        dtype: DType | None = None,
        device: str | None = None,
        requires_grad: bool = False,
    ) -> Self:
        """Make start, start + step, .. below end: int64, or float32 if a bound is a float.

        Integers are exact in int64; floats are start + i * step in float64, then rounded.
        """
        first, last = (0, start) if end is None else (start, end)
        count = _arange_count(first, last, step)
        whole = not any(number_dtype(each).is_float for each in (first, last, step))
        exact = dtypes.int64 if whole else dtypes.float64
        for each in (first, step):
            check_number("arange", each, exact)
        scaled = mul(cast(iota(count), exact), step) if step != 1 else iota(count)
        is_moved = isinstance(first, Size) or first != 0
        moved = add(cast(scaled, exact), first) if is_moved else scaled
        chosen = dtype or (dtypes.int64 if whole else dtypes.float32)
        return cls._made(cast(moved, chosen), device_name(device), requires_grad)

    @classmethod
    def eye(
        cls,
        n: int,
        m: int | None = None,
        *,
        dtype: DType | None = None,
        device: str | None = None,
        requires_grad: bool = False,
    ) -> Self:
        """Make an (n, m) tensor with ones on the diagonal; m is n unless given."""
        shape = check_shape("eye", (n, n if m is None else m))
        rows = broadcast(reshape(iota(shape[0]), (shape[0], 1)), shape)
        columns = broadcast(iota(shape[1]), shape)
        diagonal = cast(is_equal(rows, columns), dtype or dtypes.float32)
        return cls._made(diagonal, device_name(device), requires_grad)

    def full_like(
        self,
        fill_value: Number,
        *,
        dtype: DType | None = None,
        device: str | None = None,
        requires_grad: bool = False,
    ) -> Self:
        """Make a tensor of one value with this one's shape and, unless given, dtype and device."""
        chosen, place = dtype or self.dtype, device or self.device
        return self._filled("full_like", (self.shape,), fill_value, chosen, place, requires_grad)

    def zeros_like(
        self, *, dtype: DType | None = None, device: str | None = None, requires_grad: bool = False
    ) -> Self:
        """Make zeros with this tensor's shape and, unless given, dtype and device."""
        return self.full_like(0, dtype=dtype, device=device, requires_grad=requires_grad)

    def ones_like(
        self, *, dtype: DType | None = None, device: str | None = None, requires_grad: bool = False
    ) -> Self:
        """Make ones with this tensor's shape and, unless given, dtype and device."""
        return self.full_like(1, dtype=dtype, device=device, requires_grad=requires_grad)


def _arange_count(start: int | float, end: int | float, step: int | float) -> int:
    numbers = (start, end, step)
    if not all(isinstance(each, Size) or math.isfinite(each) for each in numbers) or step == 0:
        sentence = f"arange: a bound or the step is unusable: {start} .. {end} by {step}"
        raise ShapeError(f"{sentence}; all must be finite and the step not 0.")
    if (end - start) * step < 0:
        sentence = f"arange: the step leads away from the end: {start} .. {end} by {step}"
        raise ShapeError(f"{sentence}; its sign must be that of end - start.")
    count = -(-(end - start) // step)
    if isinstance(count, (int, Size)):
        return count
    return math.ceil((end - start) / step)
