"""Turns a change of shape or of the order of elements into view nodes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Self

from tinytensor.dtype import DType
from tinytensor.errors import DTypeError, ShapeError
from tinytensor.ops.size import is_same
from tinytensor.tensor import nodes
from tinytensor.tensor.axes import Dims, Shape, check_axes, check_axis, flat_sizes, infer_shape
from tinytensor.tensor.base import TensorBase

Sizes = int | Sequence[int]


class Movement(TensorBase):
    """Views, which see the same memory: what is written to one is read by all."""

    __slots__ = ()

    def reshape(self, *shape: Sizes) -> Self:
        """Return the elements in row-major order under another shape; one size may be -1.

        It is a view where strides can say so, else a copy.
        """
        return self._reshaped(infer_shape("reshape", self.shape, flat_sizes(shape)))

    def _reshaped(self, sizes: Shape) -> Self:
        view = self._layout().reshaped(sizes)
        return self._seen(view) if view else self._wrap(nodes.reshape(self.uop, sizes))

    def view(self, *shape: Sizes | DType) -> Self:
        """Return the same as reshape, but never a copy.

        Raises: ShapeError where no strides give the elements in this order.
        """
        if any(isinstance(each, DType) for each in shape):
            sentence = f"view: bits are not read as another dtype: {shape[0]}"
            raise DTypeError(f"{sentence}; sizes must be given. Use to(dtype) for its values.")
        listed = flat_sizes(shape)  # type: ignore[arg-type]  # only sizes are left
        sizes = infer_shape("view", self.shape, listed)
        layout = self._layout()
        view = layout.reshaped(sizes)
        if view is None:
            sentence = f"view: no strides give {sizes}: shape {self.shape}, {layout.strides}"
            raise ShapeError(f"{sentence}; they must give the elements in order. Use reshape.")
        return self._seen(view)

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> Self:
        """Return the axes from start_dim to end_dim as one; a 0-d tensor gets one axis."""
        start = check_axis("flatten", start_dim, self.ndim)
        end = check_axis("flatten", end_dim, self.ndim)
        if start > end:
            sentence = f"flatten: the dims are in the wrong order: {start_dim} and {end_dim}"
            raise ShapeError(f"{sentence}; start_dim must not come after end_dim.")
        shape = self.shape
        if shape and start == end:
            return self
        flat = math.prod(shape[start : end + 1])
        return self._reshaped((*shape[:start], flat, *shape[end + 1 :]))

    def squeeze(self, dim: Dims = None) -> Self:
        """Return this tensor without its axes of extent 1, or without those among dim."""
        is_none = isinstance(dim, Sequence) and not dim
        chosen = () if is_none else check_axes("squeeze", dim, self.ndim)
        layout = self._layout()
        axes = [axis for axis, n in enumerate(layout.shape) if axis not in chosen or n != 1]
        shape = tuple([layout.shape[axis] for axis in axes])
        strides = tuple([layout.strides[axis] for axis in axes])
        return self._seen(layout.with_axes(shape, strides))

    def unsqueeze(self, dim: int) -> Self:
        """Return this tensor with an axis of extent 1 before axis dim."""
        axis = check_axis("unsqueeze", dim, self.ndim + 1)
        layout = self._layout()
        shape, strides = layout.shape, layout.strides
        stride = shape[axis] * strides[axis] if axis < len(shape) else 1
        lengthened = (*strides[:axis], stride, *strides[axis:])
        return self._seen(layout.with_axes((*shape[:axis], 1, *shape[axis:]), lengthened))

    def permute(self, *dims: Sizes) -> Self:
        """Return the axes in another order."""
        listed = flat_sizes(dims)
        fits = len(listed) == self.ndim
        order = [check_axis("permute", each, self.ndim) for each in listed if fits]
        if sorted(order) != list(range(self.ndim)) or not fits:
            sentence = f"permute: not an order of all axes: {listed} for shape {self.shape}"
            raise ShapeError(f"{sentence}; each of the {self.ndim} axes must occur once.")
        return self._seen(self._layout().permuted(tuple(order)))

    def transpose(self, dim0: int, dim1: int) -> Self:
        """Return two axes exchanged."""
        first = check_axis("transpose", dim0, self.ndim)
        second = check_axis("transpose", dim1, self.ndim)
        order = list(range(self.ndim))
        if order:
            order[first], order[second] = second, first
        return self._seen(self._layout().permuted(tuple(order)))

    @property
    def T(self) -> Self:  # noqa: N802 - PyTorch's name
        """This tensor with its axes in reverse order."""
        return self._seen(self._layout().permuted(tuple(range(self.ndim))[::-1]))

    def t(self) -> Self:
        """Return a matrix transposed; a vector or a 0-d tensor as it is."""
        if self.ndim > 2:
            sentence = f"t: no matrix: shape {self.shape}"
            raise ShapeError(f"{sentence}; ndim must be 2 or less. Use transpose.")
        return self.T

    @property
    def mT(self) -> Self:  # noqa: N802 - PyTorch's name
        """This tensor with its last two axes exchanged."""
        if self.ndim < 2:
            sentence = f"mT: no matrix: shape {self.shape}"
            raise ShapeError(f"{sentence}; ndim must be 2 or more.")
        return self.transpose(-2, -1)

    def expand(self, *sizes: Sizes) -> Self:
        """Return axes of extent 1 repeated, and axes added in front; -1 keeps an extent."""
        listed = flat_sizes(sizes)
        added = len(listed) - self.ndim
        given = (-2,) * added + self.shape
        shape = tuple([n if size == -1 else size for n, size in zip(given, listed, strict=False)])
        fits = [is_same(n, m) or n in (1, -2, m) for n, m in zip(given, shape, strict=False)]
        if added < 0 or any(each < 0 for each in shape) or not all(fits):
            sentence = f"expand: sizes do not fit: {listed} for shape {self.shape}"
            raise ShapeError(f"{sentence}; aligned at the end, only axes of extent 1 may change.")
        return self._seen(self._layout().expanded(shape))

    def flip(self, *dims: Sizes) -> Self:
        """Return axes with their elements in reverse order."""
        listed = flat_sizes(dims)
        axes = check_axes("flip", listed, self.ndim) if listed else ()
        slices = [
            nodes.stretch(n - 1, n, -1) if axis in axes else nodes.stretch(0, n)
            for axis, n in enumerate(self.shape)
        ]
        return self._wrap(nodes.take_slices(self.uop, slices))
