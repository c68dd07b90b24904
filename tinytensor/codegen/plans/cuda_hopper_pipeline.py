"""Turns a contraction over boxes into Hopper's pipeline: one warp loads, warpgroups multiply.

The loading warp lets the bulk copy engine fill a ring of stages; the warpgroups multiply from it
and give stages back. Barriers count both ways: `full` the bytes of a stage, `empty` the warps that
have read it. Blocks stay, and go from tile to tile.
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
from tinytensor.codegen.plans.cuda_hopper_ring import RingPlace
from tinytensor.codegen.plans.cuda_hopper_store import Storing, Trays
from tinytensor.codegen.plans.cuda_hopper_tiling import GROUP_ROWS, GROUP_THREADS, Candidate
from tinytensor.codegen.plans.flatten import FlatContraction
from tinytensor.ops.attrs_blocks import TileMmaAttrs, WgmmaAttrs
from tinytensor.ops.fragments import GROUP_WARPS, WARP_THREADS, mma_name, mma_shape
from tinytensor.ops.kernel import Kernel
from tinytensor.ops.linear import Linear
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp, binary, compare, exact_extent
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
        for each in (block.full, block.empty, block.handover):
            if each is not None:
                b.mbarrier_init(each)
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
        self.stages = stages = pipeline.candidate.stages
        rows, columns = pipeline.boxes
        k = flat.k
        self.x = Factor(b, rows, (flat.m, k, flat.half), tiling.block_m, stages)
        self.y = Factor(b, columns, (flat.n, k, flat.half), tiling.block_n, stages)
        self.terms = ((0, 0),) if flat.half is None else ((0, 0), (1, 0), (0, 1))
        self.part = pipeline.part
        steps = split_count(exact_extent(k), self.x.block_k)
        steps = split_count(steps, pipeline.candidate.parts)
        self.steps = amount(b, steps)
        self.promoted_after = pipeline.promoted_after // self.x.block_k
        self.trays = Trays(b, flat, tiling)
        self.instruction = mma_name(
            GROUP_ROWS,
            tiling.block_n,
            rows.buffer.dtype,
            columns.buffer.dtype,
        )
        self.step = mma_shape(self.instruction).k
        readers = 1 if tiling.alternates else tiling.consumers
        self.full = b.mbarriers(stages, 1)
        self.empty = b.mbarriers(stages, GROUP_WARPS * readers)
        alternating = tiling.consumers if tiling.alternates else 0
        self.handover = b.mbarriers(alternating, GROUP_WARPS) if alternating else None

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
    """Keep the ring full."""
    b, tiling = block.b, block.tiling
    ring = RingPlace(b, block.stages)
    with block.each_tile(b.block(0), block.blocks) as place:
        first_m = b.value(place.tile_m * tiling.block_m)
        first_n = b.value(place.tile_n * tiling.block_n)
        first = b.index(0)
        if block.part is not None:
            first = b.value(place.outer[block.part] * block.steps)
        with b.loop(0, block.steps) as step:
            stage = ring.stage
            b.mbarrier_wait(block.empty, stage, binary(Op.XOR, ring.parity, 1))
            b.mbarrier_expect(block.full, stage, block.x.nbytes + block.y.nbytes)
            first_k = b.value((first + step) * block.x.block_k)
            block.x.load(stage, place.outer, first_m, first_k, block.full)
            block.y.load(stage, place.outer, first_n, first_k, block.full)
            ring.advance()


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
        self._attrs = WgmmaAttrs(0, block.instruction, block.x.is_k_major, block.y.is_k_major)
        self._accumulators = tiling.rows // GROUP_ROWS
        is_alone = tiling.alternates
        self._first = b.index(0) if is_alone else b.value(self._group * self._accumulators)
        ahead = self._group * block.steps if is_alone else None
        self._ring = RingPlace(b, block.stages, ahead)

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
                self._ring.skip(block.steps)
        self._storing.close()

    def _compute(self, place: BlockPlace) -> None:
        b, tiling = self._b, self._tiling
        first_m = b.value(place.tile_m * tiling.block_m)
        first_n = b.value(place.tile_n * tiling.block_n)
        first_row = b.value(self._first * GROUP_ROWS)
        self._storing.begin(place.outer, (first_m, first_n), first_row)
        self._await_handover()
        self._storing.finish(self._sum())

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

    def _sum(self) -> list[UOp]:
        """Multiply through k with one group of products in flight; give the sums."""
        b, block = self._b, self._block
        previous = b.register(b.index_dtype, 0)
        if block.promoted_after:
            sums = self._registers(0.0)
            totals = self._registers(0.0)
            with b.loop(0, block.steps, block.promoted_after) as first:
                last = binary(Op.MIN, first + block.promoted_after, block.steps)
                self._sum_steps(totals, previous, first, b.value(last))
                b.wgmma_wait(*totals)
                for each, total in zip(sums, totals, strict=True):
                    b.write(each, b.read(each) + b.read(total))
        else:
            sums = totals = self._registers()
            self._sum_steps(totals, previous, b.index(0), block.steps)
        self._hand_over()
        b.wgmma_wait(*totals)
        self._release(previous, self._is_first_lane)
        return [b.read(each) for each in sums]

    def _registers(self, initial: float | None = None) -> list[UOp]:
        """Declare what holds a thread's sums."""
        lanes = GROUP_ROWS * self._tiling.block_n // GROUP_THREADS
        dtype = self._block.flat.total.dtype.vector(lanes)
        count = self._accumulators
        return [self._b.register(dtype, initial) for _ in range(count)]

    def _sum_steps(self, totals: list[UOp], previous: UOp, first: UOp, last: UOp) -> None:
        """Begin sums with a step's products and go on to the last; keep what is given back next."""
        b, block = self._b, self._block
        with b.loop(first, last) as step:
            stage = self._ring.stage
            b.mbarrier_wait(block.full, stage, self._ring.parity)
            self._multiply(totals, stage, b.value(first < step))
            b.wgmma_wait(*totals, pending=1)
            follows = b.index(0) < step
            self._release(previous, follows & self._is_first_lane)
            b.write(previous, stage)
            self._ring.advance()

    def _multiply(self, totals: list[UOp], stage: UOp, adds: UOp | None) -> None:
        """Start the products of a stage; the first ones begin the sums unless `adds`."""
        b, x, y = self._b, self._block.x, self._block.y
        rows, columns = b.value(x.index(stage, self._first)), b.value(y.index(stage))
        b.wgmma_fence(*totals)
        starts = range(0, x.block_k, self._block.step)
        for term, k in itertools.product(self._block.terms, starts):
            half_x, half_y = term
            across = y.ahead(0, k, half_y)
            for number, total in enumerate(totals):
                further = x.ahead(number, k, half_x)
                attrs = replace(self._attrs, a_ahead=further, b_ahead=across)
                b.wgmma(total, x.tile, rows, y.tile, columns, attrs, adds)
            adds = None
        b.wgmma_commit()

    def _release(self, stage: UOp, cond: UOp) -> None:
        """Give a stage back, which all products that read it have left."""
        with self._b.branch(cond):
            self._b.mbarrier_arrive(self._block.empty, self._b.read(stage))
