"""Turns values into the places where they belong in an ascending sequence."""

from __future__ import annotations

import math
from typing import TypeVar

import numpy as np

from tinytensor.dtype import dtypes
from tinytensor.errors import DTypeError, ShapeError, ValueOutOfRange
from tinytensor.ops.attrs import Combine
from tinytensor.ops.uop import Number, UOp, cast
from tinytensor.tensor.base import TensorBase
from tinytensor.tensor.formulas import add, is_at_most, is_equal, is_less, sub
from tinytensor.tensor.gathering import checked
from tinytensor.tensor.nodes import (
    broadcast,
    full,
    full_like,
    gather_at,
    iota,
    reshape,
    select,
    take_part,
)
from tinytensor.tensor.operands import check_devices, result_dtype
from tinytensor.tensor.running import running

T = TypeVar("T", bound=TensorBase)


def count_before(sequence: UOp, values: UOp, right: bool) -> UOp:
    """Return how many elements of each ascending row come before each value of that row, as int64.

    Those below the value, or (right) those up to it. Before NaN come all.
    """
    count = full(dtypes.int64, 0, values.shape)
    left = sequence.shape[1]
    while left:
        more = add(count, (left + 1) // 2)
        left //= 2
        last = gather_at(sequence, (1,), [sub(more, 1)])
        is_beyond = is_less(values, last) if right else is_at_most(values, last)
        count = select(is_beyond, count, more)
    return count


def repeated_indices(
    who: str, repeats: TensorBase, axis: int, extent: int, total: int | None
) -> UOp:
    """Return the indices of an axis, each as often as an element says, or all as often as one.

    Their number is read now unless it is given: then the next host read raises if it is wrong.
    """
    if repeats.dtype not in (dtypes.int32, dtypes.int64):
        sentence = f"{who}: repeats are no counts: dtype is {repeats.dtype.name}"
        raise DTypeError(f"{sentence}; it must be int32 or int64.")
    if repeats.ndim > 1 or repeats.numel() not in (1, extent):
        sentence = f"{who}: repeats do not fit: shape {repeats.shape} for {extent} indices"
        raise ShapeError(f"{sentence}; there must be one for each, or one.")
    if total is None:
        read = np.broadcast_to(repeats._values(), extent)
        if read.min(initial=0) < 0:
            sentence = f"{who}: a number of repeats is negative: {read.min()}"
            raise ValueOutOfRange(f"{sentence}; all must be 0 or more.")
        total = int(read.sum())
    if extent == 0 or total == 0:
        return checked(who, full(dtypes.int64, 0, (total,)), axis, extent)
    counts = broadcast(cast(repeats.uop, dtypes.int64), (extent,))
    sizes = select(is_less(counts, 0), full_like(counts, total + 1), counts)
    ends = reshape(running(Combine.ADD, sizes, 0), (1, extent))
    places = count_before(ends, reshape(iota(total), (1, total)), right=True)
    is_sum = is_equal(take_part(ends, 1, range(extent - 1, extent)), total)
    found = select(broadcast(is_sum, places.shape), places, full_like(places, extent))
    return checked(who, reshape(found, (total,)), axis, extent)


def searchsorted(
    sorted_sequence: T,
    input: TensorBase | Number,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: TensorBase | None = None,
) -> T:
    """Return the place in an ascending sequence before which each value keeps it ascending.

    The first such place, or (right, or side "right") the last one.
    Shapes: the sequence is 1-d, or has the leading axes of the values.

    >>> from tinytensor import Tensor
    >>> searchsorted(Tensor([1, 3, 3, 5]), Tensor([3, 9])).tolist()
    [1, 4]
    """
    who, sequence = "searchsorted", sorted_sequence
    is_right = _is_right(right, side)
    ordered = sequence.uop if sorter is None else _reordered(sequence, sorter)
    dtype = result_dtype(who, sequence, input)
    if isinstance(input, TensorBase):
        check_devices(who, [sequence, input])
        values = cast(input.uop, dtype)
    else:
        values = full(dtype, input, ())
    _check_shapes(sequence.shape, values.shape)
    extent = sequence.shape[-1]
    rows = math.prod(sequence.shape[:-1])
    columns = math.prod(values.shape) // max(rows, 1)
    table = reshape(cast(ordered, dtype), (rows, extent))
    places = count_before(table, reshape(values, (rows, columns)), is_right)
    result = cast(places, dtypes.int32) if out_int32 else places
    return sequence._wrap(reshape(result, values.shape))


def bucketize(
    input: T | Number, boundaries: T, *, out_int32: bool = False, right: bool = False
) -> T:
    """Return the number of the bucket that each value falls into, between ascending boundaries.

    A value on a boundary belongs to the bucket below it, or (right) to the one above.
    """
    if boundaries.ndim != 1:
        sentence = f"bucketize: the boundaries are not 1-d: shape {boundaries.shape}"
        raise ShapeError(f"{sentence}; they must have one axis.")
    return searchsorted(boundaries, input, out_int32=out_int32, right=right)


def _is_right(right: bool, side: str | None) -> bool:
    if side not in (None, "left", "right"):
        sentence = f"searchsorted: no such side: {side!r}"
        raise ValueOutOfRange(f"{sentence}; it must be 'left' or 'right'.")
    if right and side == "left":
        sentence = "searchsorted: right and side disagree: right is True, side is 'left'"
        raise ValueOutOfRange(f"{sentence}; give one of them.")
    return right or side == "right"


def _reordered(sequence: TensorBase, sorter: TensorBase) -> UOp:
    if sorter.dtype is not dtypes.int64:
        sentence = f"searchsorted: the sorter is not int64: dtype is {sorter.dtype.name}"
        raise DTypeError(f"{sentence}; it must be int64.")
    if sorter.shape != sequence.shape:
        sentence = f"searchsorted: shapes differ: sequence {sequence.shape}, sorter {sorter.shape}"
        raise ShapeError(f"{sentence}; they must be equal.")
    check_devices("searchsorted", [sequence, sorter])
    axis = sequence.ndim - 1
    places = checked("searchsorted", sorter.uop, axis, sequence.shape[axis])
    return gather_at(sequence.uop, (axis,), [places])


def _check_shapes(sequence: tuple[int, ...], values: tuple[int, ...]) -> None:
    is_shared = len(sequence) == 1
    if not is_shared and (not sequence or not values or sequence[:-1] != values[:-1]):
        sentence = f"searchsorted: shapes do not fit: sequence {sequence}, values {values}"
        raise ShapeError(f"{sentence}; the sequence must be 1-d, or all axes but the last equal.")
