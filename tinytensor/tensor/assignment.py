"""Turns `x[...] = v` into a new value of what the index selects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Self

import numpy as np

from tinytensor.dtype import dtypes
from tinytensor.errors import ShapeError
from tinytensor.ops.uop import Number, UOp, cast
from tinytensor.tensor.axes import Shape, broadcast_shapes
from tinytensor.tensor.base import TensorBase
from tinytensor.tensor.filling import number_node
from tinytensor.tensor.indexing import Entry, Indexing, as_index, entries_of
from tinytensor.tensor.nodes import broadcast, reshape, select
from tinytensor.tensor.operands import check_devices
from tinytensor.tensor.routes import read_along, write_along
from tinytensor.tensor.scattering import check_source

ARRAYS: Final = (TensorBase, list, np.ndarray)


class Assignment(Indexing):
    """Writes to the parts of a tensor that an index selects."""

    __slots__ = ()

    def __setitem__(self, index: Entry | tuple[Entry, ...], value: TensorBase | Number) -> None:
        entries = entries_of(index)
        if self._fill_masked(entries, value):
            return
        part, routes = self._part_at(entries)
        if not routes:
            part._assign("setitem", value)
            return
        shape = read_along(routes, part.uop).shape
        values = spread_over("setitem", self._written_value(value, len(shape)), shape)
        part._write("setitem", write_along(routes, part.uop, values, False))

    def index_put(
        self, indices: Sequence[TensorBase], values: TensorBase, accumulate: bool = False
    ) -> Self:
        """Return this tensor with values where index tensors say, or added there.

        Shapes: the values broadcast to those of `self[indices]`.

        >>> from tinytensor.tensor.tensor import Tensor
        >>> Tensor([0, 0, 0]).index_put((Tensor([2, 2]),), Tensor([3, 4]), True).tolist()
        [0, 0, 7]
        """
        check_source("index_put", self, values)
        part, routes = self._part_at(indices)
        shape = read_along(routes, part.uop).shape
        spread = spread_over("index_put", values.uop, shape)
        return self._wrap(write_along(routes, part.uop, spread, accumulate))

    def _written_value(self, value: TensorBase | Number, ndim: int) -> UOp:
        """Return what is written, with at most ndim axes: axes of extent 1 in front do not count.

        A tensor must have this tensor's dtype.
        """
        if not isinstance(value, TensorBase):
            return number_node("setitem", value, self.dtype)
        check_source("setitem", self, value)
        front = max(value.ndim - ndim, 0)
        is_single = set(value.shape[:front]) <= {1}
        return reshape(value.uop, value.shape[front:]) if is_single else value.uop

    def _fill_masked(self, entries: tuple[Entry, ...], value: TensorBase | Number) -> bool:
        """Write where a mask holds, if it is the only tensor and all its places get one value.

        Tells whether that was so. Then the mask is not realized.
        """
        arrays = [as_index(each, self.device) for each in entries if isinstance(each, ARRAYS)]
        mask = arrays[0] if len(arrays) == 1 else None
        if mask is None or mask.dtype is not dtypes.bool or mask.ndim == 0:
            return False
        place = [isinstance(each, ARRAYS) for each in entries].index(True)
        before, after = entries[:place], entries[place + 1 :]
        part, _ = self._part_at((*before, *[slice(None)] * mask.ndim, *after))
        axis = _count_axes(before)
        if Ellipsis in before:
            axis = part.ndim - mask.ndim - _count_axes(after)
        behind = part.ndim - mask.ndim - axis
        node = self._value_under(value, axis, mask.ndim, behind)
        if node is None or part.shape[axis : axis + mask.ndim] != mask.shape:
            return False
        holds = broadcast(reshape(mask.uop, (*mask.shape, *[1] * behind)), part.shape)
        part._write("setitem", select(holds, spread_over("setitem", node, part.shape), part.uop))
        return True

    def _value_under(
        self, value: TensorBase | Number, axis: int, masked: int, behind: int
    ) -> UOp | None:
        """Return a value that is one along the masked axes; None if it is not."""
        if isinstance(value, TensorBase) and value.numel() == 1:
            check_devices("setitem", [self, value])
            return reshape(cast(value.uop, self.dtype), ())
        node = self._written_value(value, axis + 1 + behind)
        if len(node.shape) <= behind:
            return node
        place = len(node.shape) - behind - 1
        if node.shape[place] != 1:
            return None
        return reshape(node, (*node.shape[:place], *[1] * masked, *node.shape[place + 1 :]))


def _count_axes(entries: Sequence[Entry]) -> int:
    """Return how many axes of a result numbers, slices and None give."""
    return sum(each is None or isinstance(each, slice) for each in entries)


def spread_over(who: str, values: UOp, shape: Shape) -> UOp:
    """Return values broadcast to the shape of what they replace.

    Raises: ShapeError when that is not the shape they broadcast to.
    """
    if broadcast_shapes(who, [values.shape, shape]) != shape:
        sentence = f"{who}: the values do not fit: {values.shape} for {shape}"
        raise ShapeError(f"{sentence}; they must broadcast to it.")
    return broadcast(values, shape)
