"""Turns integer tensors into reads at the places they name.

Which places those are is known only when they are computed. An index outside its axis reads no
foreign memory, but some element of the axis; the next host read of any tensor then raises
IndexOutOfRange. For that a kernel of its own looks over the indices, unless the expression of the
indices proves them to be inside.
"""

from __future__ import annotations

import math
from typing import Self

import numpy as np

from tinytensor.dtype import dtypes
from tinytensor.errors import DTypeError, IndexOutOfRange, ShapeError
from tinytensor.grad import with_rules
from tinytensor.ops.attrs import CheckAttrs
from tinytensor.ops.bounds import bounds_of
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp, cast
from tinytensor.realize import from_host
from tinytensor.tensor.axes import Shape, broadcast_shapes, check_axis, check_shape
from tinytensor.tensor.base import TensorBase
from tinytensor.tensor.formulas import add, is_equal, is_less
from tinytensor.tensor.nodes import (
    broadcast,
    full,
    full_like,
    gather_at,
    iota,
    reshape,
    select,
    take_slices,
)
from tinytensor.tensor.operands import check_devices
from tinytensor.tensor.reduction import at_least_1d


def checked(who: str, index: UOp, axis: int, extent: int, least: int = 0) -> UOp:
    """Return int64 indices that raise, if they are not least .. extent - 1, at a host read."""
    if index.op is Op.EXPAND and 0 not in index.shape:
        single = checked(who, index.operands[0], axis, extent, least)
        return broadcast(single, index.shape)
    index = cast(index, dtypes.int64)
    if extent == 0 and 0 not in index.shape:
        sentence = f"{who}: there is no index: axis {axis} has extent 0"
        raise IndexOutOfRange(f"{sentence}; the indices must be empty.")
    low, high = bounds_of(index)
    if 0 in index.shape or (least <= low and high < extent):
        return index
    return UOp(Op.CHECK, index.dtype, (index,), CheckAttrs(who, axis, least, extent))


def from_either_end(who: str, index: UOp, axis: int, extent: int) -> UOp:
    """Return checked indices of which the negative ones count from the end."""
    inside = checked(who, index, axis, extent, -extent)
    if bounds_of(index)[0] >= 0:
        return inside
    return select(is_less(inside, 0), add(inside, extent), inside)


def along(index: UOp, axis: int, shape: Shape) -> UOp:
    """Return 1-d indices of an axis, repeated along the other axes of a shape."""
    count = index.shape[0]
    aligned = _with_extent((1,) * len(shape), axis, count)
    return broadcast(reshape(index, aligned), _with_extent(shape, axis, count))


def _with_extent(shape: Shape, axis: int, extent: int) -> Shape:
    return (*shape[:axis], extent, *shape[axis + 1 :])


def places_of(mask: TensorBase) -> list[UOp]:
    """Realize a mask and return the indices of its true elements, one 1-d array per axis."""
    found = np.nonzero(np.atleast_1d(mask._values()))
    return [from_host(each, dtypes.int64, mask.device) for each in found]


def check_index(who: str, x: TensorBase, index: TensorBase) -> None:
    """Raise unless a tensor of integers on the same device is given."""
    if index.dtype not in (dtypes.int32, dtypes.int64):
        sentence = f"{who}: cannot be an index: dtype is {index.dtype.name}"
        raise DTypeError(f"{sentence}; it must be int32 or int64.")
    check_devices(who, [x, index])


class Gathering(TensorBase):
    """Reads at places that other tensors name."""

    __slots__ = ()

    def gather(self, dim: int, index: TensorBase) -> Self:
        """Return the element at index[i] along an axis, for each place i of the index.

        Shapes: the index has as many axes, none longer than this tensor's but the one of dim.
        """
        check_index("gather", self, index)
        axis = check_axis("gather", dim, self.ndim)
        if index.numel() == 0:
            nothing = full(self.dtype, 0, index.shape)
            return self._wrap(with_rules(nothing, [self.uop], lambda g, out, x: full_like(x, 0)))
        x, places = at_least_1d(self.uop), at_least_1d(index.uop)
        pairs = zip(places.shape, x.shape, strict=False)
        beyond = {place for place, (n, m) in enumerate(pairs) if n > m}
        if len(x.shape) != len(places.shape) or beyond - {axis}:
            sentence = f"gather: the index does not fit: {index.shape} for shape {self.shape}"
            required = f"there must be as many axes, and none but axis {axis} longer"
            raise ShapeError(f"{sentence}; {required}.")
        places = checked("gather", places, axis, x.shape[axis])
        return self._wrap(reshape(_gather_along(x, axis, places), index.shape))

    def index_select(self, dim: int, index: TensorBase) -> Self:
        """Return the slices along an axis that a 1-d tensor names.

        >>> from tinytensor.tensor.tensor import Tensor
        >>> Tensor([[1, 2], [3, 4], [5, 6]]).index_select(0, Tensor([2, 0])).tolist()
        [[5, 6], [1, 2]]
        """
        check_index("index_select", self, index)
        axis = check_axis("index_select", dim, self.ndim)
        if index.ndim > 1:
            sentence = f"index_select: the index has several axes: shape {index.shape}"
            raise IndexOutOfRange(f"{sentence}; it must be 1-d.")
        if self.ndim == 0 and index.numel() != 1:
            sentence = f"index_select: a 0-d tensor has one element: index of {index.numel()}"
            raise ShapeError(f"{sentence}; it must hold exactly 1.")
        x = at_least_1d(self.uop)
        places = checked("index_select", at_least_1d(index.uop), axis, x.shape[axis])
        chosen = gather_at(x, (axis,), [along(places, axis, x.shape)])
        return self._wrap(chosen if self.ndim else reshape(chosen, ()))

    def take(self, index: TensorBase) -> Self:
        """Return the elements at row-major positions; negative ones count from the end."""
        check_index("take", self, index)
        return self._taken(from_either_end("take", index.uop, 0, self.numel()))

    def take_along_dim(self, indices: TensorBase, dim: int | None = None) -> Self:
        """Return the element at indices[i] along an axis; all other axes broadcast.

        Without dim both are taken as 1-d, and no index may be negative.
        """
        who = "take_along_dim"
        check_index(who, self, indices)
        if dim is None:
            flat = reshape(indices.uop, (indices.numel(),))
            return self._taken(checked(who, flat, 0, self.numel()))
        axis = check_axis(who, dim, self.ndim)
        if indices.ndim != self.ndim:
            sentence = f"{who}: ndim differs: {self.shape} and indices {indices.shape}"
            raise ShapeError(f"{sentence}; they must have as many axes.")
        x, places = at_least_1d(self.uop), at_least_1d(indices.uop)
        extent, count = x.shape[axis], places.shape[axis]
        rest = [_with_extent(each.shape, axis, 1) for each in (x, places)]
        shape = broadcast_shapes(who, rest)
        x = broadcast(x, _with_extent(shape, axis, extent))
        places = from_either_end(who, places, axis, extent)
        places = broadcast(places, _with_extent(shape, axis, count))
        return self._wrap(gather_at(x, (axis,), [places]))

    def masked_select(self, mask: TensorBase) -> Self:
        """Return the elements where a mask holds, 1-d. Realizes the mask: their number is needed.

        Shapes: the mask broadcasts with this tensor.
        """
        if mask.dtype is not dtypes.bool:
            sentence = f"masked_select: the mask is no bool: dtype is {mask.dtype.name}"
            raise DTypeError(f"{sentence}; it must be bool.")
        check_devices("masked_select", [self, mask])
        shape = broadcast_shapes("masked_select", [self.shape, mask.shape])
        whole, chosen = (broadcast(each.uop, shape) for each in (self, mask))
        count = math.prod(shape)
        (places,) = places_of(self._wrap(reshape(chosen, (count,))))
        return self._wrap(gather_at(reshape(whole, (count,)), (0,), [places]))

    def nonzero(self) -> Self:
        """Return the indices of the elements that are not 0, one a row. Realizes this tensor."""
        found = np.argwhere(self._values())
        return self._wrap(from_host(found, dtypes.int64, self.device))

    def one_hot(self, num_classes: int = -1) -> Self:
        """Return int64 with a last axis that is 1 at the class and 0 elsewhere.

        Realizes this tensor where the number of classes is not given: it is the greatest plus 1.
        """
        if self.dtype is not dtypes.int64:
            sentence = f"one_hot: the classes are not int64: dtype is {self.dtype.name}"
            raise DTypeError(f"{sentence}; it must be int64.")
        if num_classes == -1:
            if self.numel() == 0:
                sentence = f"one_hot: no class shows their number: shape {self.shape}"
                raise ShapeError(f"{sentence}; num_classes must be given.")
            num_classes = int(self.numpy().max()) + 1
        (count,) = check_shape("one_hot", (num_classes,))
        classes = checked("one_hot", self.uop, self.ndim, count)
        shape = (*self.shape, count)
        column = broadcast(reshape(classes, (*self.shape, 1)), shape)
        matches = is_equal(column, broadcast(iota(count), shape))
        return self._wrap(cast(matches, dtypes.int64))

    def _taken(self, places: UOp) -> Self:
        flat = reshape(self.uop, (self.numel(),))
        count = math.prod(places.shape)
        chosen = gather_at(flat, (0,), [reshape(places, (count,))])
        return self._wrap(reshape(chosen, places.shape))


def _gather_along(x: UOp, axis: int, places: UOp) -> UOp:
    """Gather along one axis, from as much of the others as the indices cover."""
    extents = _with_extent(places.shape, axis, x.shape[axis])
    covered = take_slices(x, list(map(range, extents)))
    return gather_at(covered, (axis,), [places])
