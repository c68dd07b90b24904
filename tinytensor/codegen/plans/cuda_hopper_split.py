"""Splits the sums of a contraction among blocks: partial sums in scratch memory, folded at the end.

A product with few tiles and a long k would leave most multiprocessors idle. Each range of k is then
summed by blocks of its own, and one more launch adds them up in order and runs the epilogue.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from tinytensor.codegen.builder import Builder
from tinytensor.codegen.plans.alignment import common_access
from tinytensor.codegen.plans.amounts import amount, open_builder, split_count
from tinytensor.codegen.plans.block_raster import divided
from tinytensor.codegen.plans.flatten import FlatContraction
from tinytensor.codegen.vectorize import Evaluator
from tinytensor.dtype import dtypes
from tinytensor.ops.kernel import Kernel
from tinytensor.ops.linear import Linear
from tinytensor.ops.op import Op
from tinytensor.ops.simplify_index import simplify_index
from tinytensor.ops.uop import UOp, exact_extent, fresh_number, make_range, walk
from tinytensor.records import dataclass

THREADS = 256
LANES = 4  # sums that a thread folds at once: 16 bytes


@dataclass(frozen=True, slots=True)
class Split:
    """A contraction in parts: `part` is the range over them, `flat` stores each one's sums.

    They lie in `scratch` as [part][batch][m][n], a row every `pitch` elements, with room for the
    greatest extents.
    """

    whole: FlatContraction
    flat: FlatContraction
    part: UOp
    scratch: UOp
    pitch: int


def split_sums(flat: FlatContraction, parts: int, scratch: Builder) -> Split:
    """Let each part of k be summed on its own."""
    part = make_range(fresh_number(walk(flat.roots)), parts)
    pitch = math.ceil(flat.n.extent / LANES) * LANES
    rows = math.prod([each.extent for each in (part, *flat.outer, flat.m)])
    region = scratch.workspace(flat.total.dtype, rows * pitch)
    index = _row(flat, part, lambda each: each) * pitch + flat.n
    store = UOp(Op.STORE, dtypes.void, (region, index, flat.total))
    outer = (*flat.outer, part)
    return Split(flat, replace(flat, stores=(store,), outer=outer), part, region, pitch)


def _row(flat: FlatContraction, part: UOp, place: Callable[[UOp], UOp]) -> UOp:
    """Return the number of a row of sums, from the places of its ranges."""
    row = part
    for each in (*flat.outer, flat.m):
        row = row * each.extent + place(each)
    return row


def fold_sums(split: Split, kernel: Kernel) -> Linear:
    """Emit the launch that adds the parts of each sum and runs the epilogue."""
    flat, parts = split.whole, split.part.extent
    lanes = common_access(flat.stores, flat.n, {flat.n: LANES}, LANES)
    rows = math.prod([each.extent for each in (*flat.outer, flat.m)])
    across = split_count(exact_extent(flat.n), lanes)
    pieces = across
    for each in (*flat.outer, flat.m):
        pieces = pieces * exact_extent(each)
    b = open_builder(kernel, split_count(pieces, THREADS), THREADS)
    piece = b.value(b.block(0) * THREADS + b.thread)
    with b.branch(piece < amount(b, simplify_index(pieces))):
        number, within = divided(b, piece, amount(b, across))
        places = {flat.n: b.value(within * lanes)}
        for each in (flat.m, *reversed(flat.outer)):
            extent = amount(b, exact_extent(each))
            number, places[each] = divided(b, number, extent)
        row = _row(flat, b.index(0), places.__getitem__)
        first = b.value(row * split.pitch + places[flat.n])
        starts = [first + part * (rows * split.pitch) for part in range(parts)]
        loaded = [b.load(split.scratch, start, lanes) for start in starts]
        total = loaded[0]
        for each in loaded[1:]:
            total = total + each
        evaluator = Evaluator(b, places, flat.n, lanes, known={flat.total: total})
        for store in flat.stores:
            evaluator.store(store)
    return b.finish()
