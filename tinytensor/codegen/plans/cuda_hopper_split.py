"""Splits the sums of a contraction among blocks: partial sums in scratch memory, folded at the end.

A product with few tiles and a long k would leave most multiprocessors idle. Each range of k is then
summed by blocks of its own, and one more launch adds them up in order and runs the epilogue.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from tinytensor.codegen.block_builder import BlockBuilder
from tinytensor.codegen.builder import Builder
from tinytensor.codegen.plans.alignment import common_access
from tinytensor.codegen.plans.block_raster import divided
from tinytensor.codegen.plans.flatten import FlatContraction
from tinytensor.codegen.vectorize import Evaluator
from tinytensor.dtype import dtypes
from tinytensor.ops.kernel import Kernel
from tinytensor.ops.linear import Linear
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp, index_const, make_range, walk

THREADS = 256
LANES = 4  # sums that a thread folds at once: 16 bytes


@dataclass(frozen=True, slots=True)
class Split:
    """A contraction in parts: `part` is the range over them, `flat` stores each one's sums.

    They lie in `scratch` as [part][batch][m][n], a row every `pitch` elements.
    """

    whole: FlatContraction
    flat: FlatContraction
    part: UOp
    scratch: UOp
    pitch: int


def split_sums(flat: FlatContraction, parts: int, scratch: Builder) -> Split:
    """Let each part of k be summed on its own."""
    nodes = walk((flat.a, flat.b, *flat.stores))
    numbers = [node.attrs.number for node in nodes if node.op is Op.RANGE]
    part = make_range(1 + max(numbers), parts)
    pitch = math.ceil(flat.n.extent / LANES) * LANES
    rows = math.prod([each.extent for each in (part, *flat.outer, flat.m)])
    region = scratch.workspace(dtypes.float32, rows * pitch)
    row = index_const(0) + part
    for each in (*flat.outer, flat.m):
        row = row * each.extent + each
    index = row * pitch + flat.n
    store = UOp(Op.STORE, dtypes.void, (region, index, flat.total))
    outer = (*flat.outer, part)
    return Split(flat, replace(flat, stores=(store,), outer=outer), part, region, pitch)


def fold_sums(split: Split, kernel: Kernel) -> Linear:
    """Emit the launch that adds the parts of each sum and runs the epilogue."""
    flat, parts = split.whole, split.part.extent
    lanes = common_access(flat.stores, flat.n, {flat.n: LANES}, LANES)
    rows = math.prod([each.extent for each in (*flat.outer, flat.m)])
    pieces = rows * (flat.n.extent // lanes)
    grid = (math.ceil(pieces / THREADS), 1, 1)
    b = BlockBuilder(kernel.name, kernel.params, kernel.index_dtype, grid, THREADS)
    piece = b.value(b.block(0) * THREADS + b.thread)
    with b.branch(piece < pieces):
        row, within = divided(b, piece, flat.n.extent // lanes)
        places = {flat.n: b.value(within * lanes)}
        number = row
        for each in (flat.m, *reversed(flat.outer)):
            number, places[each] = divided(b, number, each.extent)
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
