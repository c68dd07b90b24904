"""Turns an order along an axis into sorted, greatest, middle and record elements."""

from __future__ import annotations

import math
from operator import index
from typing import Generic, NamedTuple, Self, TypeVar, overload

from tinytensor.dtype import dtypes
from tinytensor.errors import ValueOutOfRange
from tinytensor.ops.attrs import Combine
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp
from tinytensor.tensor.axes import check_axis
from tinytensor.tensor.formulas import either, is_equal, is_unequal
from tinytensor.tensor.nodes import (
    apply,
    fold,
    full,
    full_like,
    gather_at,
    iota_along,
    pad_axis,
    replace_axis,
    reshape,
    select,
    take_part,
)
from tinytensor.tensor.ordering import ascending_order, comparable
from tinytensor.tensor.reduction import Reduction, at_least_1d
from tinytensor.tensor.running import running

T = TypeVar("T")


class Chosen(NamedTuple, Generic[T]):
    """Elements chosen along an axis, and where they were."""

    values: T
    indices: T


def order_of(x: UOp, axis: int, descending: bool = False, count: int | None = None) -> UOp:
    """Return the positions of the first elements of an order; equal ones keep theirs."""
    keys = comparable(x)
    # The complement turns the order of integers round, but not that of equal ones.
    return ascending_order(apply(Op.XOR, keys, -1) if descending else keys, axis, count)


def middle_of(x: UOp, axis: int) -> UOp:
    """Return where the lower median along an axis is, or a NaN; the axis stays with extent 1."""
    middle = (x.shape[axis] - 1) // 2
    order = order_of(x, axis, count=middle + 1)
    found = take_part(order, axis, range(middle, middle + 1))
    if not x.dtype.is_float:
        return found
    greatest = fold(Combine.MAX, x, (axis,))
    place = fold(Combine.ARGMAX, x, (axis,))
    return select(is_unequal(greatest, greatest), place, found)


def records_of(combine: Combine, x: UOp, axis: int) -> UOp:
    """Return where the greatest (or least) of the elements up to each one is: the last such place.

    An element sets a record if it equals the fold up to it, or is NaN.
    """
    is_record = either(is_equal(x, running(combine, x, axis)), is_unequal(x, x))
    place = iota_along(axis, x.shape, dtypes.int64)
    return running(Combine.MAX, select(is_record, place, full_like(place, 0)), axis)


class Sorting(Reduction):
    """Elements by their order along an axis: NaN is the greatest, and -0.0 equals +0.0."""

    __slots__ = ()

    def _chosen(self, positions: UOp, axis: int, *extents: int) -> Chosen[Self]:
        """Return the elements at positions along an axis, in whose place are some extents."""
        shape = replace_axis(self.shape, axis, *extents) if self.shape else ()
        values = gather_at(at_least_1d(self.uop), (axis,), [positions])
        return Chosen(self._wrap(reshape(values, shape)), self._wrap(reshape(positions, shape)))

    def sort(
        self, dim: int = -1, descending: bool = False, *, stable: bool = False
    ) -> Chosen[Self]:
        """Return the sorted elements and where they were; equal ones keep their order always.

        >>> from tinytensor import Tensor
        >>> Tensor([3.0, float("nan"), 1.0]).sort().values.tolist()
        [1.0, 3.0, nan]
        """
        axis = check_axis("sort", dim, self.ndim)
        x = at_least_1d(self.uop)
        return self._chosen(order_of(x, axis, descending), axis, x.shape[axis])

    def argsort(self, dim: int = -1, descending: bool = False, *, stable: bool = False) -> Self:
        """Return where the sorted elements were; equal ones keep their order always."""
        axis = check_axis("argsort", dim, self.ndim)
        order = order_of(at_least_1d(self.uop), axis, descending)
        return self._wrap(reshape(order, self.shape))

    def msort(self) -> Self:
        """Return the elements sorted along the first axis."""
        return self.sort(0).values

    def topk(
        self, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
    ) -> Chosen[Self]:
        """Return the k greatest (or least) elements in their order, and where they were.

        Of equal elements the first are taken.
        """
        axis = check_axis("topk", dim, self.ndim)
        x = at_least_1d(self.uop)
        wanted = _checked_count("topk", k, 0, x.shape[axis])
        count = wanted if self.shape else 1
        return self._chosen(order_of(x, axis, largest, count), axis, count)

    def kthvalue(self, k: int, dim: int = -1, keepdim: bool = False) -> Chosen[Self]:
        """Return the k-th least element along an axis, counted from 1, and where it was."""
        (axis,) = self._filled_axes("kthvalue", dim)
        x = at_least_1d(self.uop)
        count = _checked_count("kthvalue", k, 1, x.shape[axis])
        order = order_of(x, axis, count=count)
        position = take_part(order, axis, range(count - 1, count))
        return self._chosen(position, axis, *[1] * bool(keepdim))

    @overload
    def median(self) -> Self: ...
    @overload
    def median(self, dim: int, keepdim: bool = False) -> Chosen[Self]: ...
    def median(self, dim: int | None = None, keepdim: bool = False) -> Self | Chosen[Self]:
        """Return the lower of the middle elements, or NaN if there is one; with dim, also where."""
        if dim is not None:
            (axis,) = self._filled_axes("median", dim)
            return self._chosen(middle_of(at_least_1d(self.uop), axis), axis, *[1] * keepdim)
        flat = reshape(self.uop, (self.numel(),))
        if 0 in flat.shape:
            nothing = math.nan if self.dtype.is_float else self.dtype.min
            flat = pad_axis(flat, 0, 0, 1, nothing)
        return self._wrap(reshape(gather_at(flat, (0,), [middle_of(flat, 0)]), ()))

    def cummax(self, dim: int) -> Chosen[Self]:
        """Return the greatest of the elements up to each one, and the last place where it is."""
        return self._records("cummax", Combine.MAX, dim)

    def cummin(self, dim: int) -> Chosen[Self]:
        """Return the least of the elements up to each one, and the last place where it is."""
        return self._records("cummin", Combine.MIN, dim)

    def _records(self, who: str, combine: Combine, dim: int) -> Chosen[Self]:
        axis = check_axis(who, dim, self.ndim)
        x = at_least_1d(self.uop)
        is_empty = 0 in x.shape
        places = full(dtypes.int64, 0, x.shape) if is_empty else records_of(combine, x, axis)
        return self._chosen(places, axis, x.shape[axis])


def _checked_count(who: str, k: int, least: int, extent: int) -> int:
    if not least <= k <= extent:
        sentence = f"{who}: k is out of range: {k} of {extent} elements"
        raise ValueOutOfRange(f"{sentence}; it must be in {least} .. {extent}.")
    return index(k)
