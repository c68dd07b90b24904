"""Turns the fold of the elements up to each one along an axis in rounds over parts of it."""

from __future__ import annotations

from tinytensor.dtype import dtypes
from tinytensor.grad import with_rules
from tinytensor.ops.attrs import Combine
from tinytensor.ops.uop import UOp
from tinytensor.tensor.axes import Shape
from tinytensor.tensor.formulas import FOLD_TWO, is_at_most, is_equal, is_less
from tinytensor.tensor.nodes import (
    broadcast,
    fold,
    full_like,
    iota_along,
    pad_axis,
    replace_axis,
    reshape,
    select,
    take_part,
)

BASE = 16  # the first round reads so many elements for each of its own; 32 take 4 times as long
RADIX = 4  # parts that a later round makes one; 8 take as long, and to compile thrice as long
ROUNDS = 3  # a row of up to 16 * 4 ** 3 elements is one part then
WHOLE = 64  # elements that the first round alone folds, where no such rounds make up a row


def running(combine: Combine, x: UOp, axis: int, from_end: bool = False) -> UOp:
    """Return the fold of x's elements up to (or from) each one along an axis, at least one of them.

    The gradient of sums is this the other way.
    """
    ran = _in_rounds(combine, x, axis, from_end)
    if combine is not Combine.ADD:
        return ran
    return with_rules(ran, [x], lambda g, *_: running(combine, g, axis, not from_end))


def _in_rounds(combine: Combine, x: UOp, axis: int, from_end: bool) -> UOp:
    """Return the fold of x's elements up to (or from) each one.

    The first round folds within parts, and each of the next makes up to 4 parts one. The total of a
    part is its last element, read where it is; a round needs no memory but that of the one before.
    Of more than 1024 elements, the totals of rows run themselves, and enter each row's first part.
    Cost: 16 reads an element and 3 rounds; or 64, and a copy of what was filled up.
    """
    extent = x.shape[axis]
    rows, *radices, base = _split(extent)
    parts = rows
    for radix in radices:
        parts *= radix
    whole = parts * base
    filled = pad_axis(x, axis, 0, whole - extent, combine.identity(x.dtype))
    split = reshape(filled, replace_axis(x.shape, axis, rows, parts // rows, base))
    found = _up_to_each(combine, split, axis + 2, from_end)
    if rows > 1:
        found = _enter_first(combine, found, split, axis, from_end)
    for radix in radices:
        parts //= radix
        joined = replace_axis(x.shape, axis, parts, radix, whole // (parts * radix))
        found = _enter_others(combine, reshape(found, joined), axis + 1, from_end)
    return take_part(reshape(found, filled.shape), axis, range(extent))


def _split(extent: int) -> Shape:
    """Return how many rows there are, how many parts each round makes one, and a part's elements.

    What is filled up could not lie where the result will, so such rows are made in one round.
    """
    rows, parts = -(-extent // BASE), 1
    radices: list[int] = []
    while rows > 1 and len(radices) < ROUNDS:
        radices.append(min(RADIX, rows))
        parts *= radices[-1]
        rows = -(-rows // radices[-1])
    base = -(-extent // (rows * parts))
    if rows * parts * base == extent:
        return rows, *radices, base
    rows = -(-extent // WHOLE)
    return rows, -(-extent // rows)


def _up_to_each(combine: Combine, x: UOp, axis: int, from_end: bool) -> UOp:
    """Return the fold of the elements up to (or from) each one, by reading them all."""
    extent = x.shape[axis]
    shape = replace_axis(x.shape, axis, extent, extent)
    single = reshape(x, replace_axis(x.shape, axis, 1, extent))
    bounds = [iota_along(at, shape, dtypes.int32) for at in (axis + 1, axis)]
    is_kept = is_at_most(*(reversed(bounds) if from_end else bounds))
    rows = broadcast(single, shape)
    nothing = full_like(rows, combine.identity(x.dtype))
    kept = select(is_kept, rows, nothing)
    return reshape(fold(combine, kept, (axis + 1,)), x.shape)


def _enter_first(combine: Combine, found: UOp, x: UOp, axis: int, from_end: bool) -> UOp:
    """Let the fold of all rows before it enter the first part of each row along an axis.

    The next axis holds a row's parts, the one after it the elements of a part. From the end, the
    rows after it enter the last part.
    """
    rows, parts = x.shape[axis : axis + 2]
    identity = combine.identity(x.dtype)
    read = range(1, rows) if from_end else range(rows - 1)
    totals = fold(combine, take_part(x, axis, read), (axis + 1, axis + 2))
    ran = running(combine, totals, axis, from_end)
    entering = pad_axis(ran, axis, int(not from_end), int(from_end), identity)
    spread = broadcast(entering, replace_axis(x.shape, axis + 1, 1))
    others = parts - 1
    before, after = (others, 0) if from_end else (0, others)
    return FOLD_TWO[combine](found, pad_axis(spread, axis + 1, before, after, identity))


def _enter_others(combine: Combine, x: UOp, axis: int, from_end: bool) -> UOp:
    """Let the total of each part along an axis enter the parts after it (or before), all at once.

    The next axis holds the elements of a part. A total is folded with nothing else, because what
    folds the rows of an operand may write its result over them.
    """
    count, extent = x.shape[axis : axis + 2]
    place, element = (iota_along(at, x.shape, dtypes.int32) for at in (axis, axis + 1))
    end = 0 if from_end else extent - 1
    is_total = is_equal(element, end)
    nothing = full_like(x, combine.identity(x.dtype))
    found = x
    for part in range(1, count) if from_end else range(count - 1):
        alone = take_part(x, axis, range(part, part + 1))
        total = take_part(alone, axis + 1, range(end, end + 1))
        padded = pad_axis(alone, axis, part, count - 1 - part, combine.identity(x.dtype))
        folded = fold(combine, select(is_total, padded, nothing), (axis, axis + 1))
        folded = with_rules(folded, [total], lambda g, *_: g)
        own = full_like(place, part)
        is_other = is_less(place, own) if from_end else is_less(own, place)
        found = FOLD_TWO[combine](found, select(is_other, broadcast(folded, x.shape), nothing))
    return found
