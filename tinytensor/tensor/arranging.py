"""Turns repetitions, and axes moved, split or added, into views."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Self, overload

from tinytensor.errors import IndexOutOfRange, ShapeError
from tinytensor.tensor import nodes
from tinytensor.tensor.axes import Shape, check_axis, check_shape, flat_sizes, infer_shape
from tinytensor.tensor.base import TensorBase
from tinytensor.tensor.movement import Movement, Sizes


class Arranging(Movement):
    """Views that move or repeat whole axes."""

    __slots__ = ()

    def t(self) -> Self:
        """Return a matrix transposed; a vector or a 0-d tensor as it is."""
        if self.ndim > 2:
            sentence = f"t: no matrix: shape {self.shape}"
            raise ShapeError(f"{sentence}; ndim must be 2 or less. Use transpose.")
        return self.T

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

    def repeat_interleave(self, repeats: int, dim: int | None = None) -> Self:
        """Return each element several times in a row; of the flat tensor unless dim is given."""
        if dim is not None and self.ndim == 0:
            sentence = f"repeat_interleave: a 0-d tensor has no axes: dim is {dim}"
            raise IndexOutOfRange(f"{sentence}; leave it out.")
        x = self.flatten() if dim is None else self
        axis = check_axis("repeat_interleave", dim or 0, x.ndim)
        check_shape("repeat_interleave", (repeats,))
        shape = x.shape or (1,)
        apart = nodes.reshape(x.uop, nodes.replace_axis(shape, axis, shape[axis], 1))
        repeated = nodes.broadcast(apart, nodes.replace_axis(shape, axis, shape[axis], repeats))
        flat = nodes.replace_axis(shape, axis, shape[axis] * repeats)
        return self._wrap(nodes.reshape(repeated, flat))

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
        first, second = (check_axis("rot90", each, max(self.ndim, 2)) for each in dims)
        if first == second or self.ndim < 2:
            sentence = f"rot90: no plane: dims {tuple(dims)} of shape {self.shape}"
            raise ShapeError(f"{sentence}; there must be two different axes.")
        turns = k % 4
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
