"""Turns a contraction over boxes into Hopper's pipeline: one warp loads, warpgroups multiply.

The loading warp lets the bulk copy engine fill a ring of stages; the warpgroups multiply from it
and give stages back. Blocks stay, and go from tile to tile.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from tinytensor.codegen.block_builder import BlockBuilder
from tinytensor.codegen.plans.amounts import amount, most_of, split_count
from tinytensor.codegen.plans.block_product import raster_of
from tinytensor.codegen.plans.block_raster import BlockPlace, place_tile
from tinytensor.codegen.plans.cuda_hopper_boxes import Boxes
from tinytensor.codegen.plans.cuda_hopper_factor import Factor
from tinytensor.codegen.plans.cuda_hopper_feed import FeedPlace, feeds_of
from tinytensor.codegen.plans.cuda_hopper_promotion import Promoting
from tinytensor.codegen.plans.cuda_hopper_store import Storing, Trays
from tinytensor.codegen.plans.cuda_hopper_tiling import GROUP_ROWS, GROUP_THREADS, Candidate
from tinytensor.codegen.plans.flatten import FlatContraction
from tinytensor.dtype import DType, dtypes
from tinytensor.ops.attrs_blocks import TileMmaAttrs, WgmmaAttrs
from tinytensor.ops.fragments import GROUP_WARPS, WARP_THREADS, mma_name, mma_shape
from tinytensor.ops.kernel import Kernel
from tinytensor.ops.linear import Linear
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp, binary, compare, const, exact_extent
from tinytensor.records import dataclass


@dataclass(frozen=True, slots=True)
class Pipeline:
    """What is to be computed, and by which tiling.

    Sums are `promoted_after` so many values of k, unless 0. With a `part`, one of the outer ranges,
    each of its values sums its own part of k.
    """

    kernel: Kernel
    flat: FlatContraction
    boxes: tuple[Boxes, Boxes]
    candidate: Candidate
    multiprocessors: int
    promoted_after: int = 0
    part: UOp | None = None


def run_pipeline(pipeline: Pipeline) -> Linear:
    """Emit the program of a block: barriers, then one role for each half of the pipeline."""
    block = _Block(pipeline)
    b = block.b
    with b.branch(b.thread < 1):
        for each in block.barriers:
            b.mbarrier_init(each)
    for factor in (block.x, block.y):
        factor.clear()
    b.barrier()
    b.grid_wait()
    tiling = block.tiling
    multiplying, loading = tiling.registers
    with b.role("multiply", GROUP_WARPS * tiling.consumers, multiplying) as thread:
        _Multiplying(block, thread).run()
    with b.role("load", tiling.loading_warps, loading) as thread, b.branch(thread < 1):
        _load(block)
    return b.finish()


class _Block:
    """What the roles share: the rings of both factors, the trays, the barriers."""

    def __init__(self, pipeline: Pipeline) -> None:
        kernel, flat, tiling = pipeline.kernel, pipeline.flat, pipeline.candidate.tiling
        self.mirrors = pipeline.candidate.mirrors
        block = (tiling.block_m, tiling.block_n)
        self.raster = raster_of(flat, block, tiling.group, self.mirrors)
        self.blocks = min(most_of(self.raster.blocks), pipeline.multiprocessors)
        grid = (self.blocks, 1, 1)
        b = BlockBuilder(kernel.name, kernel.params, kernel.index_dtype, grid, tiling.threads)
        self.b, self.flat, self.tiling = b, flat, tiling
        rows, columns = pipeline.boxes
        k = flat.k
        stages = pipeline.candidate.stages
        self.x = Factor(b, rows, (flat.m, k, flat.half), tiling.block_m, stages)
        self.y = Factor(b, columns, (flat.n, k, flat.half), tiling.block_n, stages)
        self.terms = ((0, 0),) if flat.half is None else ((0, 0), (1, 0), (0, 1))
        self.part = pipeline.part
        steps = split_count(exact_extent(k), self.x.block_k)
        steps = split_count(steps, pipeline.candidate.parts)
        self.steps = amount(b, steps)
        self.promoted_after = pipeline.promoted_after // self.x.block_k
        self.trays = Trays(b, flat, tiling)
        factors = (rows.buffer.dtype, columns.buffer.dtype)
        # An accumulator is added up while the next one's products are summed.
        self.is_apart = self.promoted_after == 1
        width = tiling.width(self.is_apart)
        self.accumulators = tiling.accumulators(width)
        self.instruction = mma_name(GROUP_ROWS, width, *factors)
        self.step = mma_shape(self.instruction).k
        block_k = self.x.block_k
        held = rows.held_k(block_k, k)
        self.held_k = min(held, columns.held_k(block_k, k))
        readers = GROUP_WARPS * (1 if tiling.alternates else tiling.consumers)
        self.feeds = feeds_of(b, self.x, self.y, readers)
        self.barriers = [each for feed in self.feeds for each in (feed.full, feed.empty)]
        self.handover = None
        if tiling.alternates:
            self.handover = b.mbarriers(tiling.consumers, GROUP_WARPS)
            self.barriers.append(self.handover)

    @contextmanager
    def each_tile(self, first: UOp, step: int) -> Iterator[BlockPlace]:
        """Open the loop over every step-th tile; no loop if there is one."""
        b, tiles = self.b, self.raster.blocks
        if tiles.op is Op.CONST and tiles.value <= self.blocks == step:
            yield place_tile(b, self.raster, first)
            return
        with b.loop(first, amount(b, tiles), step) as number:
            yield place_tile(b, self.raster, number)


def _load(block: _Block) -> None:
    """Keep the rings full."""
    b, tiling, flat = block.b, block.tiling, block.flat
    places = [FeedPlace(b, each) for each in block.feeds]
    with block.each_tile(b.block(0), block.blocks) as place:
        first_m = b.value(place.tile_m * tiling.block_m)
        first_n = b.value(place.tile_n * tiling.block_n)
        first = b.index(0)
        if block.part is not None:
            first = b.value(place.outer[block.part] * block.steps)
        with b.loop(0, block.steps) as step:
            first_k = b.value((first + step) * block.x.block_k)
            ranges = {**place.outer, flat.m: first_m, flat.n: first_n, flat.k: first_k}
            for each in places:
                each.fill(step, ranges)


class _Multiplying:
    """Emits what the warpgroups do that multiply and store."""

    def __init__(self, block: _Block, thread: UOp) -> None:
        b, tiling = block.b, block.tiling
        self._block, self._b, self._tiling = block, b, tiling
        self._group = b.value(binary(Op.TRUNCDIV, b.warp, GROUP_WARPS))
        self._is_first_lane = b.value(compare(Op.EQ, thread % WARP_THREADS, b.index(0)))
        layout = TileMmaAttrs(0, block.instruction, GROUP_WARPS, 1, True, True)
        who = (b.value(thread % GROUP_THREADS), self._group)
        self._storing = Storing(b, block.flat, tiling, layout, block.trays, who, block.mirrors)
        self._promoting = Promoting(b, block.flat, tiling, layout, who[0])
        self._attrs = WgmmaAttrs(0, block.instruction, block.x.is_k_major, block.y.is_k_major)
        self._first = self._first_y = b.index(0)
        if tiling.beside:
            self._first_y = b.value(self._group * (tiling.columns // GROUP_ROWS))
        elif not tiling.alternates:
            self._first = b.value(self._group * (tiling.rows // GROUP_ROWS))
        ahead = self._group * block.steps if tiling.alternates else None
        self._feeds = [FeedPlace(b, each, ahead) for each in block.feeds]

    def run(self) -> None:
        """Go through the tiles: all of them, or alternate with the other warpgroup."""
        block, b = self._block, self._b
        first, step = b.block(0), block.blocks
        if block.handover is not None:
            self._awaited = b.register(b.index_dtype, binary(Op.XOR, self._group, 1))
            first = b.value(first + self._group * step)
            step *= self._tiling.consumers
        with block.each_tile(first, step) as place:
            self._compute(place)
            if block.handover is not None:
                for each in self._feeds:
                    each.skip(block.steps)
        self._storing.close()

    def _compute(self, place: BlockPlace) -> None:
        b, tiling = self._b, self._tiling
        first_m = b.value(place.tile_m * tiling.block_m)
        if tiling.beside:
            place = replace(place, tile_n=b.value(place.tile_n * tiling.consumers + self._group))
        first_n = b.value(place.tile_n * tiling.columns)
        first_row = b.value(self._first * GROUP_ROWS)
        self._storing.begin(place.outer, (first_m, first_n), first_row)
        self._promoting.begin(place, b.value(first_m + first_row), self._number(b.index(0), place))
        self._await_handover()
        self._storing.finish(self._sum(place))

    def _await_handover(self) -> None:
        """Wait until the other warpgroup has left the ring."""
        b, handover = self._b, self._block.handover
        if handover is not None:
            parity = b.read(self._awaited)
            b.mbarrier_wait(handover, self._group, parity)
            b.write(self._awaited, binary(Op.XOR, parity, 1))

    def _hand_over(self) -> None:
        b, handover = self._b, self._block.handover
        if handover is not None:
            with b.branch(self._is_first_lane):
                b.mbarrier_arrive(handover, binary(Op.XOR, self._group, 1))

    def _sum(self, place: BlockPlace) -> list[UOp]:
        """Multiply through k with one group of products in flight; give the sums."""
        b, block = self._b, self._block
        for each in self._feeds:
            each.begin()
        if block.promoted_after:
            totals = self._registers(self._promoting.dtype, 0)
            sums = self._registers(block.flat.total.dtype, 0)
            unroll = 1 if block.flat.promotion is None else 2  # or scales are copied once read
            with b.loop(0, block.steps, block.promoted_after, unroll) as first:
                self._promote(sums, totals, first, place)
        else:
            sums = totals = self._registers(block.flat.total.dtype)
            self._sum_steps(totals, b.index(0), block.steps)
        self._hand_over()
        b.wgmma_wait(*totals)
        for feed in self._feeds:
            feed.release(self._is_first_lane)
        return [b.read(each) for each in sums]

    def _promote(self, sums: list[UOp], totals: list[UOp], first: UOp, place: BlockPlace) -> None:
        """Add what is summed from a step on, in the instructions, to the sums so far.

        Where that is one step, an accumulator is added while the next one's products are summed.
        """
        b, block = self._b, self._block
        following = first + block.promoted_after
        last = b.value(binary(Op.MIN, following, block.steps))
        self._sum_steps(totals, first, last)
        ahead = binary(Op.MIN, following, block.steps - 1)
        scales = self._promoting.turn(self._number(ahead, place))
        number = self._number(first, place)
        for each, (kept, total) in enumerate(zip(sums, totals, strict=True)):
            pending = len(totals) - 1 - each if block.is_apart else 0
            b.wgmma_wait(total, *scales, pending=pending)
            before = b.read(kept)
            partial = b.read(total)
            b.write(kept, self._promoting.added(before, partial, number, each))
            scales = []

    def _number(self, step: UOp, place: BlockPlace) -> UOp:
        """Return the number of the block of k that a step begins."""
        block = self._block
        if block.part is not None:
            step = step + place.outer[block.part] * block.steps
        if block.promoted_after == 1:
            return step
        return binary(Op.TRUNCDIV, step, block.promoted_after)

    def _registers(self, dtype: DType, initial: int | None = None) -> list[UOp]:
        """Declare what holds a thread's sums, those of each accumulator."""
        count = len(self._block.accumulators)
        vector = dtype.vector(self._tiling.held // count)
        return [self._b.register(vector, initial) for _ in range(count)]

    def _sum_steps(self, totals: list[UOp], first: UOp, last: UOp) -> None:
        """Begin sums with a step's products and go on to the last."""
        b = self._b
        if self._block.is_apart:
            self._sum_step(totals, first, const(dtypes.bool, False))
            return
        with b.loop(first, last) as step:
            self._sum_step(totals, step, b.value(first < step))

    def _sum_step(self, totals: list[UOp], step: UOp, adds: UOp) -> None:
        """Begin the products of a step, and give back the stage before its own."""
        block = self._block
        for feed in self._feeds:
            feed.wait()
        if block.is_apart:
            for each, total in enumerate(totals):
                self._multiply([total], each, step, adds)
        else:
            self._multiply(totals, 0, step, adds)
            self._b.wgmma_wait(*totals, pending=1)
        for feed in self._feeds:
            feed.leave(step, self._is_first_lane)

    def _multiply(self, totals: list[UOp], first: int, step: UOp, adds: UOp | None) -> None:
        """Begin a step's products of accumulators from one on, which begin sums unless `adds`."""
        b = self._b
        x = self._block.x
        y = self._block.y
        stages = {factor: each.stage for each in self._feeds for factor in each.factors}
        first_k = b.value(step * x.block_k)
        rows = b.value(x.index(stages[x], first_k, self._first))
        columns = b.value(y.index(stages[y], first_k, self._first_y))
        b.wgmma_fence(*totals)
        starts = range(0, self._block.held_k, self._block.step)
        for term, k in itertools.product(self._block.terms, starts):
            half_x, half_y = term
            for each, total in enumerate(totals, first):
                below, beside = self._block.accumulators[each]
                further = x.ahead(below // GROUP_ROWS, k, half_x)
                across = y.ahead(beside // GROUP_ROWS, k, half_y)
                attrs = replace(self._attrs, a_ahead=further, b_ahead=across)
                b.wgmma(total, x.tile, rows, y.tile, columns, attrs, adds)
            adds = None
        b.wgmma_commit()
