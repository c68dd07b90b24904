"""Turns keys into the positions that put them in ascending order, by ops that exist already.

A key of 32 bits and its position make one integer of 64. These integers all differ, so any way of
sorting them keeps the order of equal keys, and the sorted integers tell the positions.

Two sorted runs merge as in a bitonic network. The first one is turned round by taking complements,
which come in descending order; then the lesser ones of both, place by place, are the first half of
the result and the greater ones the second, each in an order that halves sort further. So a run that
is the first half of an odd number of longer ones holds complements from the start. An exchange
reads the two places that it writes: any plan runs it in wide vectors, a few in a kernel, in place.

What is missing of the last run counts as greater than all else: it stays behind the others in each
half, and takes no memory.

Source: Batcher, Sorting networks and their applications, 1968; Lang, Bitonic sorting network for n
not a power of 2, 1998.
"""

from __future__ import annotations

import functools
import math

from tinytensor.dtype import DType, dtypes
from tinytensor.errors import ShapeError
from tinytensor.ops.bounds import bounds_of
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp, bitcast, cast
from tinytensor.tensor import nodes
from tinytensor.tensor.axes import Shape
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
    full,
    full_like,
    gather_at,
    iota,
    reshape,
    select,
    take_part,
)

WORD = 2**32
LEVELS = 4  # of exchanges in one shape, so that one kernel does them
PARTS = 2**LEVELS  # whose elements at one place find a register each
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
    """Return the order of 32 bits along the last axis."""
    count, extent = rows.shape
    halvings = max(0, math.ceil(math.log2(extent / PARTS)))
    blocks = -(-extent // 2**halvings)
    runs, width = blocks << halvings, 1
    padded = nodes.pad_axis(rows, 1, 0, runs - extent, dtypes.int32.max)
    keys = apply(Op.SHL, cast(padded, dtypes.int64), 32)
    x = _turn(reshape(either(keys, broadcast(iota(runs), padded.shape)), (count, runs, 1)))
    first = min(halvings, LEVELS)
    x = _merge_all(reshape(x, (count * runs >> first, 1 << first, 1)))
    runs, width = runs >> first, 1 << first
    while runs > blocks and width < kept:
        joined = (width.bit_length() - 1) % LEVELS  # halvings in one kernel with what goes before
        runs, width = runs // 2, width * 2
        x = _merge(reshape(x, (count * runs, 2 << joined, width >> joined + 1)), joined)
    x = reshape(x, (count, runs, width))
    while runs > 1 and width >= kept:
        x = _select(x)
        runs = x.shape[1]
    order = both(_merge_all(x), WORD - 1)
    return take_part(reshape(order, (count, runs * width)), 1, range(kept))


def _turn(x: UOp) -> UOp:
    """Take the complements of the runs that are the first half of an odd number of longer ones.

    The bits of their numbers hold so many zeros. Each run of (count, runs, width) is sorted.
    """
    _, runs, _ = x.shape
    number, length = iota(runs), (runs - 1).bit_length()
    for bits in (16, 8, 4, 2, 1):
        if bits < length:
            number = apply(Op.XOR, number, apply(Op.SHR, number, bits))
    is_turned = both(apply(Op.XOR, number, length), 1)
    return apply(Op.XOR, x, broadcast(reshape(apply(Op.NEG, is_turned), (runs, 1)), x.shape))


def _merge_all(x: UOp) -> UOp:
    """Merge the sorted runs of (rows, runs, width) to one of each row."""
    shape = x.shape
    for level in range((shape[1] - 1).bit_length()):
        x = _merge(reshape(x, shape), level)
    return x


def _merge(x: UOp, level: int) -> UOp:
    """Merge every two runs of 2**level parts of (rows, parts, width); the last may be shorter."""
    x = apply(Op.XOR, x, sub(_bit(x.shape, level), 1))
    for each in reversed(range(level + 1)):
        x = _exchange(x, each)
    return _sort_parts(x)


def _select(x: UOp) -> UOp:
    """Return the lesser half of every two runs of (count, runs, width), sorted."""
    count, runs, width = x.shape
    whole = _pad_parts(_turn(x), runs + runs % 2)
    first, second = (take_part(whole, 1, range(half, runs + runs % 2, 2)) for half in range(2))
    return reshape(_sort_parts(_turn(lesser(first, second))), (count, -(-runs // 2), width))


def _sort_parts(x: UOp) -> UOp:
    """Sort each part of (rows, parts, width), halving it; of what is left over, first."""
    rows, parts, width = x.shape
    left = width.bit_length() - 1
    rows *= parts
    for halvings in (left % LEVELS, *[LEVELS] * (left // LEVELS)):
        if halvings:
            width >>= halvings
            x = reshape(x, (rows, 1 << halvings, width))
            rows <<= halvings
        for each in reversed(range(halvings)):
            x = _exchange(x, each)
    return x


def _exchange(x: UOp, level: int) -> UOp:
    """Put the lesser of two parts of (rows, parts, width), 2**level apart, before the greater."""
    rows, parts, width = x.shape
    split = (rows, -(-parts >> level + 1), 2, 1 << level, width)
    flat = (rows, split[1] << level + 1, width)
    pairs = reshape(_pad_parts(x, flat[1]), split)
    if parts == flat[1]:
        halves = [take_part(pairs, 2, range(half, half + 1)) for half in range(2)]
        first, second = (broadcast(each, split) for each in halves)
        is_first = _is_first(split)
    else:  # the pairs would be stored with what is missing of them
        turned = reshape(take_part(pairs, 2, range(1, -1, -1)), flat)
        first, second = x, take_part(turned, 1, range(parts))
        is_first = is_equal(_bit(x.shape, level), 0)
    chosen = select(is_first, lesser(first, second), greater(first, second))
    return reshape(chosen, x.shape)


@functools.lru_cache(maxsize=256)
def _is_first(pairs: Shape) -> UOp:
    """Tell which elements of (rows, pairs, 2, parts, width) are the first of their pairs."""
    return is_equal(broadcast(reshape(iota(2), (2, 1, 1)), pairs), 0)


@functools.lru_cache(maxsize=256)
def _bit(shape: Shape, level: int) -> UOp:
    """Return one bit of the number of each part of (rows, parts, width)."""
    parts = shape[1]
    split = (-(-parts >> level + 1), 2, 1 << level)
    bits = reshape(broadcast(reshape(iota(2), (2, 1)), split), (math.prod(split), 1))
    return broadcast(take_part(bits, 0, range(parts)), shape)


def _pad_parts(x: UOp, parts: int) -> UOp:
    return nodes.pad_axis(x, 1, 0, parts - x.shape[1], dtypes.int64.max)
