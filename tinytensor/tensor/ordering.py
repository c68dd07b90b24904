"""Turns keys into the positions that put them in ascending order, by ops that exist already.

A key of 32 bits and its position make one integer of 64. These integers all differ, so any way of
sorting them keeps the order of equal keys, and the sorted integers tell the positions.

Runs are sorted by counting how many elements are less than each. Two sorted runs a and b merge as
in a bitonic network: the lesser ones of a and of b backwards are the first half of the result, the
greater ones the second, each in an order that halves sort further, down to runs. A halving reads
neighboring elements at a fixed distance, so any plan runs it in wide vectors, a few in a kernel.

Source: Batcher, Sorting networks and their applications, 1968.
"""

from __future__ import annotations

import math

from tinytensor.dtype import DType, dtypes
from tinytensor.errors import ShapeError
from tinytensor.ops.attrs import Combine
from tinytensor.ops.bounds import bounds_of
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp, bitcast, cast
from tinytensor.tensor import nodes
from tinytensor.tensor.formulas import (
    add,
    both,
    either,
    greater,
    is_equal,
    is_less,
    is_unequal,
    lesser,
    sub,
)
from tinytensor.tensor.nodes import (
    apply,
    broadcast,
    fold,
    full,
    full_like,
    gather_at,
    iota,
    reshape,
    select,
    take_part,
)

WORD = 2**32
LONGEST_RUN = 32
PIECES = 2  # of a run: merging halves down to those, whose elements are counted faster
HALVINGS = 4  # in one shape, so that one kernel does them: 8 elements find a register each
SIGNED = {32: dtypes.int32, 64: dtypes.int64}


def ascending_order(keys: UOp, axis: int, count: int | None = None) -> UOp:
    """Return int64 positions along an axis of its least keys, in ascending order and stable.

    All of them, or the first `count`. Floats: -0.0 equals +0.0, and NaN is greater than all else.
    Cost: n log(n)**2 comparisons for all; n log(count)**2 for some. Twice as many for keys of 64
    bits, unless their bounds fit into 32.
    """
    extent = keys.shape[axis]
    kept = extent if count is None else count
    if extent >= WORD:
        sentence = f"sort: the axis is too long: extent {extent}"
        raise ShapeError(f"{sentence}; it must be below 2 ** 32.")
    if 0 in keys.shape or kept == 0:
        return full(dtypes.int64, 0, nodes.replace_axis(keys.shape, axis, kept))
    moved = nodes.swap_with_last(comparable(keys), axis)
    *outer, _ = moved.shape
    rows = reshape(moved, (math.prod(outer), extent))
    order = _order_of_rows(rows, kept)
    return nodes.swap_with_last(reshape(order, (*outer, kept)), axis)


def comparable(keys: UOp) -> UOp:
    """Return int32 or int64 numbers in the order of keys of any dtype."""
    dtype = keys.dtype
    wide = SIGNED[max(32, dtype.bits)]
    if dtype.is_float:
        return _comparable_floats(nodes.widen(keys), wide)
    if dtype.kind == "uint" and dtype.bits == wide.bits:
        return apply(Op.XOR, bitcast(keys, wide), wide.min)
    return cast(keys, wide)


def _comparable_floats(x: UOp, wide: DType) -> UOp:
    """Return the bits of floats, those below the sign turned round where it is negative."""
    stored = bitcast(add(x, 0.0), wide)
    turned = apply(Op.XOR, stored, wide.max)
    ordered = select(is_less(stored, 0), turned, stored)
    return select(is_unequal(x, x), full_like(stored, wide.max), ordered)


def _order_of_rows(rows: UOp, kept: int) -> UOp:
    """Return the order along the last axis: of 64 bits by the low word, then by the high one."""
    least, greatest = bounds_of(rows)
    if dtypes.int32.min <= least and greatest <= dtypes.int32.max:
        return _order_of_words(cast(rows, dtypes.int32), kept)
    low = sub(both(rows, WORD - 1), WORD // 2)
    by_low = _order_of_words(cast(low, dtypes.int32), rows.shape[1])
    high = cast(apply(Op.SHR, gather_at(rows, (1,), [by_low]), 32), dtypes.int32)
    return gather_at(by_low, (1,), [_order_of_words(high, kept)])


def _order_of_words(rows: UOp, kept: int) -> UOp:
    count, extent = rows.shape
    splits = max(0, math.ceil(math.log2(extent / LONGEST_RUN)))
    run = -(-extent // 2**splits)
    if splits:
        run = -(-run // PIECES) * PIECES
    padded = nodes.pad_axis(rows, 1, 0, (run << splits) - extent, dtypes.int32.max)
    high = apply(Op.SHL, cast(padded, dtypes.int64), 32)
    low = broadcast(iota(run << splits), padded.shape)
    whole = reshape(either(high, low), (count << splits, run))
    runs = _sort_runs(whole)
    while runs.shape[0] > count:
        runs = _merge(runs, run // PIECES, kept)
    return both(take_part(runs, 1, range(kept)), WORD - 1)


def _sort_runs(x: UOp) -> UOp:
    """Return each row sorted; its elements differ."""
    rows, extent = x.shape
    cube = (rows, extent, extent)
    mine = broadcast(reshape(x, (rows, extent, 1)), cube)
    other = broadcast(reshape(x, (rows, 1, extent)), cube)
    rank = fold(Combine.ADD, cast(is_less(other, mine), dtypes.int32), (2,))
    place = cast(broadcast(iota(extent), cube), dtypes.int32)
    is_there = is_equal(broadcast(rank, cube), place)
    found = fold(Combine.ADD, select(is_there, mine, full_like(mine, 0)), (1,))
    return reshape(found, x.shape)


def _merge(x: UOp, run: int, kept: int) -> UOp:
    """Return every two sorted rows as one, or its first half where that holds all to be kept."""
    count, extent = x.shape
    pairs = reshape(x, (count // 2, 2, extent))
    first, second = _halves(pairs, 1)
    backwards = take_part(second, 2, range(extent - 1, -1, -1))
    is_enough = extent >= kept
    merged = lesser(first, backwards) if is_enough else _exchange(1, first, backwards)
    width, rows = extent, merged.shape[:2]
    left = int(math.log2(width // run))
    # What is left over goes with the first exchange: the others are the same for all merges.
    for halvings in (left % HALVINGS, *[HALVINGS] * (left // HALVINGS)):
        width >>= halvings
        merged = reshape(merged, (*rows, *[2] * halvings, width))
        for axis in range(len(rows), len(rows) + halvings):
            merged = _exchange(axis, *_halves(merged, axis))
        rows = (math.prod(merged.shape) // width,)
    pieces = reshape(merged, (math.prod(merged.shape) // run, run))
    return reshape(_sort_runs(pieces), (count // 2, extent if is_enough else 2 * extent))


def _halves(x: UOp, axis: int) -> list[UOp]:
    """Return both parts of an axis of extent 2."""
    return [take_part(x, axis, range(half, half + 1)) for half in range(2)]


def _exchange(axis: int, first: UOp, second: UOp) -> UOp:
    """Return the lesser of two elements before the greater, side by side along an axis."""
    shape = nodes.replace_axis(first.shape, axis, 2)
    x, y = (broadcast(each, shape) for each in (first, second))
    half = broadcast(reshape(iota(2), (2, *[1] * (len(shape) - axis - 1))), shape)
    return select(is_equal(half, 0), lesser(x, y), greater(x, y))
