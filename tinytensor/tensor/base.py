"""Turns a cell's expression into values: the state every Tensor has, and how it is realized."""

from __future__ import annotations

import math
import weakref
from typing import Any, Self, overload

import numpy as np
import numpy.typing as npt

from tinytensor.dtype import DType
from tinytensor.errors import (
    DTypeError,
    GradientError,
    IndexOutOfRange,
    ShapeError,
    Site,
    caller_site,
)
from tinytensor.grad import cut, make_leaf, requires_gradient, serial_of_leaf
from tinytensor.ops.interpret import from_storage
from tinytensor.ops.op import Op
from tinytensor.ops.uop import Number, UOp
from tinytensor.realize import Root, realize, to_host
from tinytensor.tensor.axes import Shape, check_axis
from tinytensor.tensor.grad_mode import MODE

Nested = Any  # a Python number, or lists as deep as the tensor has axes: no type says that


# Whose gradient a leaf's is: by serial, so that storing a leaf's value changes no owner.
OWNERS: weakref.WeakValueDictionary[int, TensorBase] = weakref.WeakValueDictionary()


class Cell:
    """The storage of a Tensor: its expression and, once realized, the leaf of its buffer."""

    __slots__ = ("leaf", "uop")

    def __init__(self, uop: UOp) -> None:
        self.uop = uop
        self.leaf = uop if uop.op is Op.BUFFER else None

    def keep(self, leaf: UOp) -> None:
        """Take in the computed value; what a gradient may still need stays an expression."""
        self.leaf = leaf
        if serial_of_leaf(self.uop):
            self.uop = self.uop.replace((leaf,))
        elif not requires_gradient(self.uop):
            self.uop = leaf


class TensorBase:
    """A lazy array: an expression in a cell, a device, and the line that made it."""

    __slots__ = ("__weakref__", "_grad", "cell", "device", "site")
    # With None, NumPy's arrays and scalars leave `array + tensor` to the Tensor.
    __array_ufunc__ = None

    cell: Cell
    device: str
    site: Site | None
    _grad: TensorBase | None

    @classmethod
    def _made(cls, uop: UOp, device: str, requires_grad: bool = False) -> Self:
        tensor = cls.__new__(cls)
        tensor._fill(uop, device, requires_grad)
        return tensor

    def _fill(self, uop: UOp, device: str, requires_grad: bool) -> None:
        if requires_grad and not uop.dtype.is_float:
            sentence = f"tensor: only floats can require a gradient: dtype is {uop.dtype.name}"
            raise DTypeError(f"{sentence}; it must be a float dtype.")
        if requires_grad:
            uop = make_leaf(uop)
            OWNERS[serial_of_leaf(uop)] = self
        elif not MODE.is_enabled:
            uop = cut(uop)
        self.cell = Cell(uop)
        self.device = device
        self.site = caller_site()
        self._grad = None

    def _wrap(self, uop: UOp) -> Self:
        return self._made(uop, self.device)

    @property
    def uop(self) -> UOp:
        """The node that gives the values."""
        return self.cell.uop

    @property
    def shape(self) -> Shape:
        """The extent of each axis."""
        return self.cell.uop.shape

    @property
    def dtype(self) -> DType:
        """The type of the elements."""
        return self.cell.uop.dtype

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.cell.uop.shape)

    @overload
    def size(self) -> Shape: ...
    @overload
    def size(self, dim: int) -> int: ...
    def size(self, dim: int | None = None) -> Shape | int:
        """Return the shape, or the extent of one axis."""
        if dim is None:
            return self.shape
        if self.ndim == 0:
            sentence = f"size: a 0-d tensor has no axes: dim is {dim}"
            raise IndexOutOfRange(f"{sentence}; leave it out.")
        return self.shape[check_axis("size", dim, self.ndim)]

    def numel(self) -> int:
        """Return the number of elements."""
        return math.prod(self.shape)

    def realize(self, *others: TensorBase) -> Self:
        """Compute this tensor and others now, as one schedule."""
        tensors: list[TensorBase] = [self, *others]
        pending = [each for each in tensors if each.cell.leaf is None]
        leaves = realize([Root(each.uop, each.device, each.site) for each in pending])
        for tensor, leaf in zip(pending, leaves, strict=True):
            tensor.cell.keep(leaf)
        return self

    def _values(self) -> npt.NDArray[np.generic]:
        """Return a copy of the values; bfloat16, which NumPy lacks, comes as float32."""
        leaf = self.realize().cell.leaf
        assert leaf is not None, "realize fills every cell"
        return from_storage(to_host(leaf), self.dtype)

    def numpy(self) -> npt.NDArray[np.generic]:
        """Return a copy of the values; bfloat16, which NumPy lacks, comes as float32."""
        if requires_gradient(self.uop):
            sentence = "numpy: an array carries no gradient: the tensor requires one"
            raise GradientError(f"{sentence}; it must not. Use detach().")
        return self._values()

    def tolist(self) -> Nested:
        """Return the values as nested lists of Python numbers; a number when 0-d."""
        return self._values().tolist()

    def item(self) -> Number:
        """Return the value of a tensor with one element as a Python number."""
        if self.numel() != 1:
            sentence = f"item: the tensor has not one element: shape {self.shape}"
            raise ShapeError(f"{sentence}; it must hold exactly 1.")
        value: Number = self._values().item()
        return value

    def __bool__(self) -> bool:
        if self.numel() != 1:
            sentence = f"bool: the truth of several values is ambiguous: shape {self.shape}"
            raise ShapeError(f"{sentence}; it must hold exactly 1. Use any() or all().")
        return bool(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __index__(self) -> int:
        if not self.dtype.is_int or self.ndim != 0:
            sentence = f"index: not an integer of 0-d: {self.dtype.name} {self.shape}"
            raise TypeError(f"{sentence}; it must be one integer.")
        return int(self.item())

    def __len__(self) -> int:
        if self.ndim == 0:
            raise TypeError("len: a 0-d tensor has no length: shape (); ndim must be 1 or more.")
        return self.shape[0]
