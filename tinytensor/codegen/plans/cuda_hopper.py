"""Turns a contraction of halves into Hopper's pipeline: a warp loads, warpgroups multiply.

One warp lets the bulk copy engine fill a ring of stages; the warpgroups multiply from it and give
stages back. Barriers count both ways: `full` the bytes of a stage, `empty` the warps that have read
it. Blocks stay and go from tile to tile.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from tinytensor.codegen.block_builder import BlockBuilder
from tinytensor.codegen.builder import Builder
from tinytensor.codegen.plans import cuda_contraction
from tinytensor.codegen.plans.block_operand import Operand
from tinytensor.codegen.plans.block_product import ProductFacts
from tinytensor.codegen.plans.block_raster import BlockPlace, Raster, place_tile
from tinytensor.codegen.plans.cuda_hopper_boxes import Boxes, see_in_boxes
from tinytensor.codegen.plans.cuda_hopper_factor import Factor
from tinytensor.codegen.plans.cuda_hopper_store import Panels, Storing, panel_bytes
from tinytensor.codegen.plans.cuda_hopper_tiling import (
    GROUP_ROWS,
    GROUP_THREADS,
    Candidate,
    HopperTiling,
    Need,
    rank_tilings,
)
from tinytensor.codegen.plans.flatten import FlatContraction
from tinytensor.codegen.plans.pack_rows import Rows, read_rows, rows_of, write_rows
from tinytensor.dtype import dtypes
from tinytensor.ops.attrs_blocks import TileMmaAttrs, WgmmaAttrs
from tinytensor.ops.fragments import GROUP_WARPS, WARP_THREADS
from tinytensor.ops.kernel import Kernel
from tinytensor.ops.linear import Linear
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp, binary, cast, compare, where
from tinytensor.target import Target

FEATURES = frozenset({"wgmma", "bulk"})
WORDS = {dtypes.float16: "f16", dtypes.bfloat16: "bf16"}
STEP = 16  # values of k of one instruction


def facts(kernel: Kernel, target: Target) -> ProductFacts | str | None:
    """Return what the plan needs, or why it does not take it.

    None where the portable plan of matrix instructions says why, or the target is another one.
    """
    if not target.features >= FEATURES:
        return None
    product = cuda_contraction.facts(kernel, target)
    if not isinstance(product, ProductFacts):
        return None
    if product.flat.k.extent == 0:
        return "there is nothing to sum."
    for name, operand in (("a", product.a), ("b", product.b)):
        boxes = _boxes(product.flat, operand)
        if isinstance(boxes, str) and _rows(product, operand) is None:
            return f"factor {name} {boxes}, and the product is too small to rewrite it in rows."
    return product


def describe(facts: ProductFacts, target: Target) -> str:
    """Say how the kernel is cut into tiles, and what the next best would have cost."""
    ranked = _rank(facts, target)
    best, tiling = ranked[0], ranked[0].tiling
    form = "in turns" if tiling.takes_turns else f"{tiling.consumers} together"
    block = f"{tiling.block_m} x {tiling.block_n}{' turned' if tiling.swaps else ''}"
    others = ", ".join([f"{each.tiling.name} {each.clocks:.0f}" for each in ranked[1:3]])
    rewritten = sum([_rows(facts, each) is not None for each in (facts.a, facts.b)])
    before = f" {rewritten} of 2 factors rewritten in rows before." if rewritten else ""
    return (
        f"wgmma.{WORDS[facts.stored]}, {best.tiles} tiles {block} ({tiling.name}), {form}, "
        f"{best.stages} stages: about {best.clocks:.0f} clocks; then {others}.{before}"
    )


def _rank(facts: ProductFacts, target: Target) -> list[Candidate]:
    need = Need(facts.work, facts.flat.k.extent, panel_bytes(facts.flat))
    return rank_tilings(need, target)


def lower(
    facts: ProductFacts, target: Target, candidate: Candidate | None = None
) -> tuple[Linear, ...]:
    """Emit the product's launch, after those that rewrite factors the engine cannot read.

    Takes:  a kernel with one contraction of halves; operands and stores are any expressions.
    Gives:  LINEAR form of a thread block with roles, bulk copies and products of warpgroups.
    """
    kernel = facts.kernel
    scratch = Builder(kernel.name, kernel.params, kernel.index_dtype)
    factors, launches = [], []
    for operand in (facts.a, facts.b):
        rows = _rows(facts, operand)
        if rows is not None:
            region = scratch.workspace(facts.stored, rows.elements)
            launches.append(write_rows(rows, region, kernel))
            operand = read_rows(rows, region)
        factors.append(operand)
    chosen = candidate or _rank(facts, target)[0]
    ready = replace(facts, a=factors[0], b=factors[1])
    if chosen.tiling.swaps:
        ready = _swapped(ready)
    launches.append(_Lowering(ready, chosen, target).emit())
    scratch_bytes = scratch.finish().workspace_bytes
    return tuple([replace(each, workspace_bytes=scratch_bytes) for each in launches])


def _swapped(facts: ProductFacts) -> ProductFacts:
    """Let the rows of tiles be n and their columns m."""
    flat = facts.flat
    turned = replace(flat, a=flat.b, b=flat.a, m=flat.n, n=flat.m)
    return replace(facts, flat=turned, a=facts.b, b=facts.a)


def _boxes(flat: FlatContraction, operand: Operand) -> Boxes | str:
    return see_in_boxes(operand.value, operand.inner, operand.outer, flat.outer)


def _rows(facts: ProductFacts, operand: Operand) -> Rows | None:
    """Return the rows that a factor is first rewritten as; None if it is taken as it lies."""
    if not isinstance(_boxes(facts.flat, operand), str) or not cuda_contraction.is_large(facts):
        return None
    rows = rows_of(operand, facts.flat.outer)
    return None if rows.elements > cuda_contraction.MOST_PACKED_ELEMENTS else rows


class RingPlace:
    """Where a role is on its way around the ring: a stage, and the parity of its turn there."""

    def __init__(self, b: BlockBuilder, stages: int, ahead: UOp | int = 0) -> None:
        self._b = b
        self._stages = stages
        self._stage = b.register(b.index_dtype, 0)
        self._parity = b.register(b.index_dtype, 0)
        if not isinstance(ahead, int):
            self.skip(ahead)

    @property
    def stage(self) -> UOp:
        """The stage it stands at."""
        return self._b.read(self._stage)

    @property
    def parity(self) -> UOp:
        """The parity of the phase that a consumer awaits there."""
        return self._b.read(self._parity)

    def advance(self) -> None:
        """Go to the next stage."""
        b, following = self._b, self._b.value(self.stage + 1)
        wraps = b.value(compare(Op.EQ, following, b.index(self._stages)))
        parity = self.parity
        b.write(self._parity, binary(Op.XOR, parity, cast(wraps, b.index_dtype)))
        b.write(self._stage, where(wraps, b.index(0), following))

    def skip(self, count: UOp | int) -> None:
        """Go on by many stages."""
        b, following = self._b, self._b.value(self.stage + count)
        turns = b.value(binary(Op.TRUNCDIV, following, self._stages))
        parity = self.parity
        b.write(self._parity, binary(Op.TRUNCMOD, parity + turns, 2))
        b.write(self._stage, b.value(following - turns * self._stages))


@dataclass(frozen=True, slots=True)
class Barriers:
    """The barriers of a block: `full` and `empty` of each stage, and `turns` of two warpgroups."""

    full: UOp
    empty: UOp
    turns: UOp | None


class _Lowering:
    """Emits the program of one block."""

    def __init__(self, facts: ProductFacts, candidate: Candidate, target: Target) -> None:
        kernel, flat, tiling = facts.kernel, facts.flat, candidate.tiling
        tiles_m = math.ceil(flat.m.extent / tiling.block_m)
        tiles_n = math.ceil(flat.n.extent / tiling.block_n)
        self._raster = Raster(flat.outer, tiles_m, tiles_n, tiling.group)
        self._blocks = min(self._raster.blocks, target.multiprocessors)
        grid = (self._blocks, 1, 1)
        b = BlockBuilder(kernel.name, kernel.params, kernel.index_dtype, grid, tiling.threads)
        self._b, self._flat, self._tiling, self._stages = b, flat, tiling, candidate.stages
        self._x = self._factor(facts.a, tiling.block_m)
        self._y = self._factor(facts.b, tiling.block_n)
        self._steps = math.ceil(flat.k.extent / self._x.tile.attrs.columns)
        self._panels = Panels(b, flat, tiling)
        self._name = f"m64n{tiling.block_n}k{STEP}.{WORDS[facts.stored]}"
        self._barriers = self._make_barriers()

    def _factor(self, operand: Operand, extent: int) -> Factor:
        boxes = _boxes(self._flat, operand)
        assert isinstance(boxes, Boxes), "other factors were rewritten"
        return Factor(self._b, boxes, self._flat.k, extent, self._stages)

    def _make_barriers(self) -> Barriers:
        b, tiling = self._b, self._tiling
        readers = GROUP_WARPS * (1 if tiling.takes_turns else tiling.consumers)
        full, empty = b.mbarriers(self._stages, 1), b.mbarriers(self._stages, readers)
        turns = b.mbarriers(tiling.consumers, GROUP_WARPS) if tiling.takes_turns else None
        return Barriers(full, empty, turns)

    def emit(self) -> Linear:
        b, barriers = self._b, self._barriers
        with b.branch(b.thread < 1):
            for each in (barriers.full, barriers.empty, barriers.turns):
                if each is not None:
                    b.mbarrier_init(each)
        b.barrier()
        with b.role("multiply", GROUP_WARPS * self._tiling.consumers) as thread:
            _Consumer(self, thread).run()
        with b.role("load", 1) as thread, b.branch(thread < 1):
            self._load()
        return b.finish()

    @contextmanager
    def _each_tile(self, first: UOp, step: int) -> Iterator[BlockPlace]:
        """Open the loop over the tiles of this block; no loop if it has one."""
        b = self._b
        if self._raster.blocks <= step:
            yield place_tile(b, self._raster, first)
            return
        with b.loop(first, self._raster.blocks, step) as number:
            yield place_tile(b, self._raster, number)

    def _load(self) -> None:
        """Keep the ring full."""
        b, barriers, tiling = self._b, self._barriers, self._tiling
        ring = RingPlace(b, self._stages)
        with self._each_tile(b.block(0), self._blocks) as place:
            first_m = b.value(place.tile_m * tiling.block_m)
            first_n = b.value(place.tile_n * tiling.block_n)
            with b.loop(0, self._steps) as step:
                stage = ring.stage
                b.mbarrier_wait(barriers.empty, stage, binary(Op.XOR, ring.parity, 1))
                b.mbarrier_expect(barriers.full, stage, self._x.nbytes + self._y.nbytes)
                first_k = b.value(step * self._x.tile.attrs.columns)
                self._x.load(stage, place.outer, first_m, first_k, barriers.full)
                self._y.load(stage, place.outer, first_n, first_k, barriers.full)
                ring.advance()


class _Consumer:
    """Emits what the warpgroups do that multiply and store."""

    def __init__(self, block: _Lowering, thread: UOp) -> None:
        b = block._b
        self._block = block
        self._b = b
        self._tiling: HopperTiling = block._tiling
        self._group = b.value(binary(Op.TRUNCDIV, b.warp, GROUP_WARPS))
        self._is_first_lane = b.value(compare(Op.EQ, thread % WARP_THREADS, b.index(0)))
        layout = TileMmaAttrs(0, block._name, GROUP_WARPS, 1, True, True)
        who = (b.value(thread % GROUP_THREADS), self._group)
        self._storing = Storing(b, block._flat, self._tiling, layout, block._panels, who)
        self._attrs = WgmmaAttrs(0, block._name, block._x.is_k_major, block._y.is_k_major)
        takes_turns = self._tiling.takes_turns
        self._first_group = b.index(0) if takes_turns else self._group * self._accumulators
        ahead = self._group * block._steps if takes_turns else 0
        self._ring = RingPlace(b, block._stages, ahead)

    @property
    def _accumulators(self) -> int:
        return self._tiling.rows // GROUP_ROWS

    def run(self) -> None:
        """Go through the tiles: all of them, or every second one in turns."""
        block, b = self._block, self._b
        first, step = b.block(0), block._blocks
        if self._tiling.takes_turns:
            self._parity = b.register(b.index_dtype, 0)
            b.write(self._parity, binary(Op.XOR, self._group, 1))
            first, step = b.value(first + self._group * step), step * self._tiling.consumers
            with b.loop(first, block._raster.blocks, step) as number:
                self._compute(place_tile(b, block._raster, number))
                self._ring.skip(block._steps)
        else:
            with block._each_tile(first, step) as place:
                self._compute(place)
        self._storing.close()

    def _compute(self, place: BlockPlace) -> None:
        b, tiling, turns = self._b, self._tiling, self._block._barriers.turns
        first_m = b.value(place.tile_m * tiling.block_m)
        first_n = b.value(place.tile_n * tiling.block_n)
        first_row = b.value(self._first_group * GROUP_ROWS)
        self._storing.begin(place.outer, (first_m, first_n), first_row)
        if turns is not None:
            parity = b.read(self._parity)
            b.mbarrier_wait(turns, self._group, parity)
            b.write(self._parity, binary(Op.XOR, parity, 1))
        self._storing.finish(self._sum())

    def _sum(self) -> list[UOp]:
        """Multiply through k with one group of products in flight; give the sums."""
        b, block = self._b, self._block
        lanes = GROUP_ROWS * self._tiling.block_n // GROUP_THREADS
        dtype = dtypes.float32.vector(lanes)
        totals = [b.register(dtype, 0.0) for _ in range(self._accumulators)]
        previous = b.register(b.index_dtype, 0)
        with b.loop(0, block._steps) as step:
            stage = self._ring.stage
            b.mbarrier_wait(block._barriers.full, stage, self._ring.parity)
            self._multiply(totals, stage)
            b.wgmma_wait(*totals, pending=1)
            self._release(previous, (b.index(0) < step) & self._is_first_lane)
            b.write(previous, stage)
            self._ring.advance()
        turns = block._barriers.turns
        if turns is not None:
            with b.branch(self._is_first_lane):
                b.mbarrier_arrive(turns, binary(Op.XOR, self._group, 1))
        b.wgmma_wait(*totals)
        self._release(previous, self._is_first_lane)
        return [b.read(each) for each in totals]

    def _multiply(self, totals: list[UOp], stage: UOp) -> None:
        b, x, y = self._b, self._block._x, self._block._y
        b.wgmma_fence(*totals)
        for k in range(0, x.tile.attrs.columns, STEP):
            for number, total in enumerate(totals):
                rows = x.index(stage, self._first_group + number, k)
                b.wgmma(total, x.tile, rows, y.tile, y.index(stage, 0, k), self._attrs)
        b.wgmma_commit()

    def _release(self, stage: UOp, cond: UOp) -> None:
        """Give a stage back, which all products that read it have left."""
        with self._b.branch(cond):
            self._b.mbarrier_arrive(self._block._barriers.empty, self._b.read(stage))
