"""Turns updates, and indices that say where each goes, into what every destination gets of them.

Nothing is written at a computed address. Each destination reads its updates: it compares itself
with all of them where that is little work, else it finds them side by side among the sorted ones.
Both have a fixed order, so a program gives the same bits whenever it runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from tinytensor.dtype import DType, dtypes
from tinytensor.ops.attrs import Combine
from tinytensor.ops.op import Op
from tinytensor.ops.uop import Number, UOp, cast
from tinytensor.records import dataclass
from tinytensor.tensor.formulas import (
    add,
    greater,
    is_at_most,
    is_equal,
    is_less,
    is_unequal,
    mul,
    sub,
)
from tinytensor.tensor.nodes import (
    Shape,
    broadcast,
    fold,
    full,
    full_like,
    gather_at,
    iota,
    pad_axis,
    permute,
    replace_axis,
    reshape,
    select,
    swap_with_last,
    take_part,
)
from tinytensor.tensor.ordering import ascending_order
from tinytensor.tensor.windows import slide

NOWHERE: Final = -1  # the position of an update without a destination, and of no update
# On 2 cores of an EPYC, 2026-11: 2**26 comparisons take 2.4 ms. What is sorted takes 5 ms for 2048
# updates of 64 floats, 2 ms more into 50,000 destinations, and 18 ms for 65,536 updates of 1 float.
# Up to 32 updates, or destinations, comparing is quicker however many there are of the others.
COMPARED_PAIRS: Final = 2**26
COMPARED_COUNT: Final = 32
GROWTH: Final = 8
BLOCK: Final = 64


@dataclass(frozen=True, slots=True)
class Updates:
    """Where the updates along an axis go: to which of `extent` destinations along that axis.

    `positions` has extent 1 along the other axes where all rows go alike.
    """

    positions: UOp
    axis: int
    extent: int

    @property
    def count(self) -> int:
        """The number of updates of a row."""
        return self.positions.shape[self.axis]


def fold_at(
    combine: Combine, values: UOp, axes: Shape, indices: Sequence[UOp], shape: Shape
) -> UOp:
    """Return, for each place of a shape, the fold of the values that indices along axes send there.

    Where they send nothing is the identity: 0, 1, or the least or greatest value.
    """
    updates = _updates_at(axes, indices, shape)
    folded = fold_updates(combine, _merge(values, axes), updates)
    return _separate(folded, axes, shape)


def last_at(values: UOp, axes: Shape, indices: Sequence[UOp], shape: Shape) -> UOp:
    """Return, for each place of a shape, the last value that indices along axes send there.

    Where they send nothing is any value: see is_hit_at.
    """
    updates = _updates_at(axes, indices, shape)
    last = read_updates(_merge(values, axes), last_update(updates), updates.axis)
    return _separate(last, axes, shape)


def is_hit_at(axes: Shape, indices: Sequence[UOp], shape: Shape) -> UOp:
    """Tell to which places of a shape indices along axes send a value."""
    updates = _updates_at(axes, indices, shape)
    last = last_update(updates)
    is_hit = is_unequal(last, NOWHERE)
    whole = _merge(full(dtypes.bool, True, shape), axes).shape
    return _separate(broadcast(is_hit, whole), axes, shape)


def _updates_at(axes: Shape, indices: Sequence[UOp], shape: Shape) -> Updates:
    """Return where indices, one for each of some axes of a shape, lead along these axes merged."""
    distinct = [each.operands[0] if each.op is Op.EXPAND else each for each in indices]
    varying = [max(extents) for extents in zip(*[each.shape for each in distinct], strict=True)]
    for axis in axes:
        varying[axis] = indices[0].shape[axis]
    positions = full(dtypes.int64, 0, tuple(varying))
    for axis, each in zip(axes, distinct, strict=True):
        index = broadcast(cast(each, dtypes.int64), tuple(varying))
        positions = add(mul(positions, shape[axis]), index)
    extent = math.prod(shape[axis] for axis in axes)
    narrow = cast(positions, dtypes.int32) if extent < 2**31 else positions
    return Updates(_merge(narrow, axes), axes[0] if len(axes) == 1 else 0, extent)


def _merge(x: UOp, axes: Shape) -> UOp:
    """Return x with several axes as one, the first; a single one stays where it is."""
    if len(axes) == 1:
        return x
    moved = permute(x, _in_front(axes, len(x.shape)))
    return reshape(moved, (math.prod(moved.shape[: len(axes)]), *moved.shape[len(axes) :]))


def _separate(x: UOp, axes: Shape, shape: Shape) -> UOp:
    """Return a merged array in the shape that it was merged from."""
    if len(axes) == 1:
        return x
    order = _in_front(axes, len(shape))
    apart = reshape(x, tuple([shape[axis] for axis in order]))
    return permute(apart, tuple([order.index(axis) for axis in range(len(shape))]))


def _in_front(axes: Shape, ndim: int) -> Shape:
    return axes + tuple([axis for axis in range(ndim) if axis not in axes])


def fold_updates(combine: Combine, values: UOp, updates: Updates) -> UOp:
    """Return the fold of each destination's updates; the identity where there is none.

    Cost: see _is_compared; sorted, as many kernels as the logarithm of the number of updates.
    """
    if _is_compared(values, updates):
        return _fold_compared(combine, values, updates)
    return _fold_sorted(combine, values, updates)


def last_update(updates: Updates) -> UOp:
    """Return the number along the axis of each destination's last update; NOWHERE of none."""
    axis = updates.axis
    numbers = _along(axis, updates.positions.shape)
    if _is_compared(numbers, updates):
        return greater(_fold_compared(Combine.MAX, numbers, updates), NOWHERE)
    order, positions = _sorted(updates)
    last = sub(_count(is_at_most, positions, updates), 1)
    found = cast(read_updates(order, last, axis), dtypes.int32)
    return select(_leads_to(last, positions, axis), found, full_like(found, NOWHERE))


def read_updates(values: UOp, numbers: UOp, axis: int) -> UOp:
    """Return the values with given numbers along an axis; numbers repeat along other axes."""
    shape = replace_axis(values.shape, axis, numbers.shape[axis])
    return gather_at(values, (axis,), [broadcast(numbers, shape)])


def _is_compared(values: UOp, updates: Updates) -> bool:
    pairs = math.prod(values.shape) * updates.extent
    return pairs <= COMPARED_PAIRS or min(updates.count, updates.extent) <= COMPARED_COUNT


def _along(axis: int, shape: Shape, dtype: DType = dtypes.int32) -> UOp:
    """Return the number of each element along an axis."""
    aligned = replace_axis((1,) * len(shape), axis, shape[axis])
    return broadcast(reshape(cast(iota(shape[axis]), dtype), aligned), shape)


def _fold_compared(combine: Combine, values: UOp, updates: Updates) -> UOp:
    """Fold by comparing each destination with every update of its row."""
    axis, ndim = updates.axis, len(values.shape)
    shape = replace_axis(values.shape, axis, updates.extent)
    whole = (*shape, updates.count)

    def spread(x: UOp) -> UOp:
        return broadcast(swap_with_last(reshape(x, (*x.shape, 1)), axis), whole)

    positions = spread(updates.positions)
    destinations = reshape(_along(axis, shape, positions.dtype), (*shape, 1))
    is_hit = is_equal(positions, broadcast(destinations, whole))
    identity = full(values.dtype, combine.identity(values.dtype), whole)
    kept = select(is_hit, spread(values), identity)
    folded = fold(combine, kept, (ndim,))
    return reshape(folded, shape)


def _fold_sorted(combine: Combine, values: UOp, updates: Updates) -> UOp:
    """Fold sorted updates with those behind them that have the same destination; read the first.

    The distance that a fold reaches grows by a factor each time, until it spans all updates.
    """
    axis, shape = updates.axis, replace_axis(values.shape, updates.axis, updates.extent)
    order, positions = _sorted(updates)
    identity = combine.identity(values.dtype)
    folded = read_updates(values, order, axis)
    single = replace_axis(positions.shape, axis, 1, updates.count)
    reach = 1
    while reach < updates.count:
        behind = _windows(folded, axis, reach, identity)
        leads = _windows(positions, axis, reach, NOWHERE)
        is_same = is_equal(leads, broadcast(reshape(positions, single), leads.shape))
        is_same = broadcast(is_same, behind.shape)
        kept = select(is_same, behind, full_like(behind, identity))
        folded = reshape(fold(combine, kept, (axis,)), values.shape)
        reach *= GROWTH
    first = _count(is_less, positions, updates)
    is_hit = broadcast(_leads_to(first, positions, axis), shape)
    found = read_updates(folded, first, axis)
    return select(is_hit, found, full_like(found, identity))


def _sorted(updates: Updates) -> tuple[UOp, UOp]:
    """Return the numbers of the updates in the order of their positions, and these positions."""
    order = ascending_order(updates.positions, updates.axis)
    return order, read_updates(updates.positions, order, updates.axis)


def _windows(x: UOp, axis: int, distance: int, fill: Number) -> UOp:
    """Return, on an axis before, each element and those that follow at multiples of a distance."""
    padded = pad_axis(x, axis, 0, distance * (GROWTH - 1), fill)
    return slide(padded, axis, GROWTH, dilation=distance)


def _count(is_before: Callable[[UOp, UOp], UOp], positions: UOp, updates: Updates) -> UOp:
    """Return how many sorted positions are before each destination."""
    axis = updates.axis
    shape = replace_axis(positions.shape, axis, updates.extent)
    return _count_before(is_before, positions, _along(axis, shape, positions.dtype), axis)


def _count_before(
    is_before: Callable[[UOp, UOp], UOp], ascending: UOp, values: UOp, axis: int
) -> UOp:
    """Return how many elements of an ascending axis are before each value, as int32.

    First how many blocks end before it; then how many elements of the next block are before it.
    A kernel a level, where a binary search would take two for each halving.
    """
    ndim, count = len(ascending.shape), ascending.shape[axis]
    single, whole = (*values.shape, 1), (*values.shape, BLOCK)
    start = full(dtypes.int32, 0, values.shape)
    column = reshape(ascending, (*ascending.shape, 1))
    block = swap_with_last(column, axis)
    if count > BLOCK:
        missing = -count % BLOCK
        padded = pad_axis(column, axis, 0, missing, ascending.dtype.max)
        ends = take_part(padded, axis, range(BLOCK - 1, count + missing, BLOCK))
        ends = reshape(ends, ends.shape[:-1])
        start = mul(_count_before(is_before, ends, values, axis), BLOCK)
        numbers = add(broadcast(reshape(start, single), whole), _along(ndim, whole))
        block = read_updates(broadcast(padded, (*padded.shape[:-1], BLOCK)), numbers, axis)
    shape = (*values.shape, block.shape[-1])
    found = is_before(broadcast(block, shape), broadcast(reshape(values, single), shape))
    inside = fold(Combine.ADD, cast(found, dtypes.int32), (ndim,))
    return add(start, reshape(inside, values.shape))


def _leads_to(numbers: UOp, positions: UOp, axis: int) -> UOp:
    """Tell whether the position with each number is the destination that asks for it."""
    found = read_updates(positions, numbers, axis)
    return is_equal(found, _along(axis, numbers.shape, found.dtype))
