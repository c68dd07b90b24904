"""Turns repetitions, and axes moved, split or added, into views."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Self, overload

from tinytensor.errors import IndexOutOfRange, ShapeError, ValueOutOfRange
from tinytensor.ops.uop import cast
from tinytensor.tensor import nodes
from tinytensor.tensor.axes import Shape, check_axis, check_shape, flat_sizes, infer_shape
from tinytensor.tensor.base import TensorBase
from tinytensor.tensor.gathering import along
from tinytensor.tensor.movement import Movement, Sizes
from tinytensor.tensor.operands import check_devices
from tinytensor.tensor.searching import repeated_indices


class Arranging(Movement):
    """Views that move or repeat whole axes."""

    __slots__ = ()

    def swapaxes(self, axis0: int, axis1: int) -> Self:
        """Return two axes exchanged."""
        return self.transpose(axis0, axis1)

    def movedim(self, source: int | Sequence[int], destination: int | Sequence[int]) -> Self:
        """Return axes moved to other places; the others keep their order."""
        places = [flat_sizes((each,)) for each in (source, destination)]
        counts = {len(each) for each in places} | {len(set(each)) for each in places}
        if len(counts) > 1:
            sentence = f"movedim: dims do not pair: {places[0]} and {places[1]}"
            raise ShapeError(f"{sentence}; there must be as many of each, none of them twice.")
        origins = [check_axis("movedim", n, self.ndim) for n in places[0]]
        targets = [check_axis("movedim", n, self.ndim) for n in places[1]]
        moved = dict(zip(targets, origins, strict=True))
        rest = iter([axis for axis in range(self.ndim) if axis not in origins])
        order = []
        for axis in range(self.ndim):
            order.append(moved[axis] if axis in moved else next(rest))
        return self.permute(order)

    def unflatten(self, dim: int, sizes: Sequence[int]) -> Self:
        """Return one axis as several; one of their sizes may be -1."""
        axis = check_axis("unflatten", dim, self.ndim)
        extents = self.shape[axis : axis + 1]
        split = infer_shape("unflatten", extents, tuple(sizes))
        return self.view(nodes.replace_axis(self.shape, axis, *split))

    def repeat(self, *repeats: Sizes) -> Self:
        """Return this tensor several times along each axis; added axes come first."""
        counts = check_shape("repeat", repeats)
        added = len(counts) - self.ndim
        if added < 0:
            sentence = f"repeat: fewer repeats than axes: {counts} for shape {self.shape}"
            raise ShapeError(f"{sentence}; there must be {self.ndim} or more.")
        shape = (1,) * added + self.shape
        pairs = list(zip(counts, shape, strict=True))
        single = [n for _, extent in pairs for n in (1, extent)]
        apart = nodes.reshape(self.uop, tuple(single))
        several = [n for pair in pairs for n in pair]
        repeated = nodes.broadcast(apart, tuple(several))
        flat = [math.prod(pair) for pair in pairs]
        return self._wrap(nodes.reshape(repeated, tuple(flat)))

    def tile(self, *dims: Sizes) -> Self:
        """Return this tensor several times along its last axes."""
        counts = check_shape("tile", dims)
        return self.repeat((1,) * (self.ndim - len(counts)) + counts)

    def repeat_interleave(
        self,
        repeats: int | TensorBase | None = None,
        dim: int | None = None,
        *,
        output_size: int | None = None,
    ) -> Self:
        """Return each element several times in a row; of the flat tensor unless dim is given.

        A tensor has a number for each index along the axis, or one for all. It is read now, because
        the extent is its sum, unless output_size says that. Without repeats this tensor holds them
        itself, and what is repeated are the indices.

        >>> from tinytensor import Tensor
        >>> Tensor([[1, 2], [3, 4]]).repeat_interleave(Tensor([2, 1]), 0).tolist()
        [[1, 2], [1, 2], [3, 4]]
        """
        who = "repeat_interleave"
        if repeats is None:
            indices = self._wrap(cast(nodes.iota(self.numel()), self.dtype))
            return indices.repeat_interleave(self, output_size=output_size)
        if dim is not None and self.ndim == 0:
            sentence = f"{who}: a 0-d tensor has no axes: dim is {dim}"
            raise IndexOutOfRange(f"{sentence}; leave it out.")
        x = self.flatten() if dim is None else self
        shape, axis = x.shape, check_axis(who, dim or 0, x.ndim)
        if isinstance(repeats, TensorBase):
            check_devices(who, [self, repeats])
            places = repeated_indices(who, repeats, axis, shape[axis], output_size)
            return self._wrap(nodes.gather_at(x.uop, (axis,), [along(places, axis, shape)]))
        (count,) = check_shape(who, (repeats,))
        extent = shape[axis] * count
        if output_size not in (None, extent):
            sentence = f"{who}: output_size is not that of the result: {output_size}"
            raise ValueOutOfRange(f"{sentence}; it must be {extent}.")
        apart = nodes.reshape(x.uop, nodes.replace_axis(shape, axis, shape[axis], 1))
        repeated = nodes.broadcast(apart, nodes.replace_axis(shape, axis, shape[axis], count))
        return self._wrap(nodes.reshape(repeated, nodes.replace_axis(shape, axis, extent)))

    def _expanded(self, axis: int, extent: int) -> Self:
        """Return an axis of extent 1 with another extent."""
        return self.expand(nodes.replace_axis(self.shape, axis, extent))

    def broadcast_to(self, size: Sequence[int]) -> Self:
        """Return the same as expand."""
        return self.expand(size)

    def expand_as(self, other: TensorBase) -> Self:
        """Return this tensor expanded to another's shape."""
        return self.expand(other.shape)

    def view_as(self, other: TensorBase) -> Self:
        """Return the elements under another tensor's shape."""
        return self.view(other.shape)

    def reshape_as(self, other: TensorBase) -> Self:
        """Return the elements under another tensor's shape."""
        return self.reshape(other.shape)

    def ravel(self) -> Self:
        """Return the elements along one axis: a view where they lie side by side, else a copy."""
        return self.contiguous().view(-1)

    def contiguous(self) -> Self:
        """Return this tensor if its elements lie side by side in order, else a copy."""
        return self if self._layout().is_contiguous else self._wrap(self.uop)

    def is_contiguous(self) -> bool:
        """Tell whether the elements lie side by side, in row-major order."""
        return self._layout().is_contiguous

    def clone(self) -> Self:
        """Return a copy, through which gradients pass."""
        return self._wrap(self.uop)

    @overload
    def stride(self) -> Shape: ...
    @overload
    def stride(self, dim: int) -> int: ...
    def stride(self, dim: int | None = None) -> Shape | int:
        """Return how many elements apart neighbors are, along each axis or along one."""
        strides = self._layout().strides
        return strides if dim is None else strides[check_axis("stride", dim, self.ndim)]

    def storage_offset(self) -> int:
        """Return where in its memory the first element lies, in elements."""
        return self._layout().offset

    def rot90(self, k: int = 1, dims: Sequence[int] = (0, 1)) -> Self:
        """Return the plane of two axes turned k times, from the first axis towards the second."""
        axes = [check_axis("rot90", each, max(self.ndim, 2)) for each in dims]
        if len(axes) != 2 or len(set(axes)) < 2 or self.ndim < 2:
            sentence = f"rot90: no plane: dims {tuple(dims)} of shape {self.shape}"
            raise ShapeError(f"{sentence}; there must be two different axes.")
        (first, second), turns = axes, k % 4
        if turns == 2:
            return self.flip(first, second)
        if turns == 1:
            return self.flip(second).transpose(first, second)
        return self.flip(first).transpose(first, second) if turns else self.flip()

    def atleast_1d(self) -> Self:
        """Return a 0-d tensor as a vector, others as they are."""
        return self if self.ndim else self.reshape(1)

    def atleast_2d(self) -> Self:
        """Return this tensor with axes of extent 1 in front, so that it is a matrix."""
        return self if self.ndim > 1 else self.reshape(1, -1)

    def atleast_3d(self) -> Self:
        """Return this tensor with 3 axes or more; a matrix gets the last one."""
        return self if self.ndim > 2 else self.atleast_2d().unsqueeze(-1)
