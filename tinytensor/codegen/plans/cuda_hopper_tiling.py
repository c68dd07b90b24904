"""Turns a contraction's extents into the tile, the ring and the roles of a block on Hopper.

Each form of the kernel was the fastest for some product. A tiling is chosen by its estimated
clocks, for the busiest of the multiprocessors, L2 and memory.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace

from tinytensor.codegen.plans.block_patches import PATCH
from tinytensor.codegen.plans.block_reach import Reach
from tinytensor.codegen.plans.tiling_cuda import Work
from tinytensor.records import dataclass
from tinytensor.target import Target

ROW_BYTES = 128  # of a tile in shared memory: the widest swizzle, and the values of k in a stage
GROUP_THREADS = 128
WARP_THREADS = 32
GROUP_ROWS = 64  # of one instruction's accumulator
MBARRIER_BYTES = 512
MOST_TRAY_COLUMNS, LEAST_TRAY_COLUMNS = 64, 32
PART_BYTES = 4  # of a partial sum, float32 or int32
GROUPS = (4, 8, 16)  # of rows of tiles
PARTS = (1, 2, 3, 4, 6, 8, 11, 16, 32, 64)
LEAST_STEPS = 8  # of a part
BOXES = 2  # stages of a side with a reach: a third leaves too little L1 to the launches around
# Per multiprocessor and clock, on H200.
# Multiply-adds, by itemsize: of bytes 4096 and of halves 2048, but for heat.
PRODUCT_RATES = {1: 3600, 2: 1925, 4: 1024}
NARROW = 1.5  # so much longer with windows where n is no wider than a patch: measured 1.4 to 1.6
PRODUCTS = {1: 1, 2: 3}  # of a stage, by the halves of a factor
BULK_RATE = 70  # bytes that arrive in shared memory when all multiprocessors read
STREAM_RATE = 57  # the same, of more than L2 holds
LATENCY_CLOCKS = 1000  # from asking for a box to its arrival
EPILOGUE_CLOCKS = 4  # of a warpgroup to store each sum that one of its threads holds
TRAY_CLOCKS = 512  # and more for it, by the columns of a tray
# More for each block of k with scales; half where other sums are multiplied meanwhile, of two
# accumulators and two warpgroups. 4096^3 takes 123 us in tiles of 128 x 128, 185 in 128 x 64 and
# 192 in 64 x 128; of 512 x 4096 x 4096, 64 x 64 take 37 us (H200, 2026-11-30).
SCALED_CLOCKS = 250
LONE_CLOCKS = 90  # where the thread stores by itself
OP_CLOCKS = 2  # and to apply one op to it
REGISTERS = 65536  # of a multiprocessor
SPARE_REGISTERS = 24  # of a thread, beside those of promoted sums and scales
MOST_OPS = 4096  # of a thread's epilogue, which is unrolled: more take seconds to compile
MANY_SUMS = 80  # of a thread, beside which 168 registers leave few for an epilogue
START_CLOCKS = 3000  # of a block: its first boxes, and the launch around it
FOLD_RATE = 25  # bytes of partial sums written and read
CLOCK = 1.7e9  # a second
CLEARLY = 0.95  # of the clocks of another way


@dataclass(frozen=True, slots=True)
class HopperTiling:
    """A block's tile, the most stages of its ring, and the warpgroups that multiply.

    With `alternates` each warpgroup computes a whole tile while the other stores its own; else
    they share the rows of one, or `beside` each other its columns. With `swaps` the rows of tiles
    are n. What it is estimated to cost is multiplied by a `doubt`. Units: elements.
    """

    name: str
    block_m: int
    block_n: int
    stages: int
    consumers: int
    alternates: bool = False
    swaps: bool = False
    group: int = 8
    beside: bool = False
    doubt: float = 1.0

    @property
    def threads(self) -> int:
        """Threads of a block: those that multiply, and those of the role that loads."""
        return self.consumers * GROUP_THREADS + self.loading_warps * WARP_THREADS

    @property
    def loading_warps(self) -> int:
        """Warps of the role that loads; one does, but only warpgroups give registers away."""
        return 4 if self.consumers == 2 and (self.held >= MANY_SUMS or self.beside) else 1

    @property
    def registers(self) -> tuple[int, int]:
        """Registers of a thread that multiplies, and of one that loads; 0 for those of the launch.

        Together those of 384 threads of 168.
        """
        return (232, 40) if self.loading_warps > 1 else (0, 0)

    @property
    def most_scales(self) -> int:
        """Scales of a block of k, and of the next, that a thread can hold beside promoted sums."""
        warps = math.ceil(self.threads / GROUP_THREADS)  # of each quarter of a multiprocessor
        registers = self.registers[0] or REGISTERS // (warps * GROUP_THREADS)
        return (registers - 2 * self.held - SPARE_REGISTERS) // 2

    @property
    def held(self) -> int:
        """Sums that a thread holds."""
        return self.rows * self.columns // GROUP_THREADS

    @property
    def rows(self) -> int:
        """Rows of a tile that one warpgroup computes."""
        return self.block_m // (1 if self.alternates or self.beside else self.consumers)

    @property
    def columns(self) -> int:
        """Columns of a tile that one warpgroup computes."""
        return self.block_n // self.consumers if self.beside else self.block_n

    def width(self, is_apart: bool) -> int:
        """Columns of an accumulator: all, or a half where each is added up apart from the others.

        Half of 64 columns would read the rows of the other factor too often.
        """
        return self.columns // (2 if is_apart and self.columns % (2 * GROUP_ROWS) == 0 else 1)

    def accumulators(self, width: int) -> list[tuple[int, int]]:
        """List where those of a warpgroup begin, so many columns wide: (row, column)."""
        places = itertools.product(range(0, self.rows, GROUP_ROWS), range(0, self.columns, width))
        return list(places)


# In us on H200, NVRTC 13.0, 2026-11-30, each after a pause. Of bfloat16: 4096^3 168 wide, 169 tall
# and alternating (which wins by 3 to 7 % on a card that is hot from use); with k 1024 44
# alternating, 47 wide; 512 x 4096 x 4096 23.0 alternating, 23.4 square, 29 flat; 128 x 4096 x 4096
# 13.7 small, 14.0 half; 16 x 4096 x 4096 10.6 few 16, 10.9 few 32, 16.8 small; 1536^3 13.1 broad
# 160, 14.9 broad, 15.0 three. Of float16: 2048^3 22.6 alternating, 22.8 square, 23.6 wide;
# 1024 x 1024 x 768 4.8 half and flat, 5.7 small; 1000^3, whose rows are no whole lines of L2, 8.9
# square, 10.5 broad 160, 10.7 half and flat, 11.0 broad and three.
# A convolution of 64 x 64 x 56 x 56 halves by 3 x 3 x 64: long 42, flat 44, once its channels lie
# innermost (2026-11-30), where 330 MB come from L2; where one box serves all taps, 110 MB, long 26,
# flat 33. 64 x 128 x 28 x 28, whose threads store by themselves: alternating 30, square 38.
TILINGS = (
    HopperTiling("alternating", 128, 128, 6, 2, alternates=True),
    HopperTiling("wide", 128, 256, 4, 2, group=16),
    HopperTiling("tall", 256, 128, 4, 2),
    HopperTiling("square", 128, 128, 6, 2),
    HopperTiling("broad", 128, 192, 5, 2),
    HopperTiling("three", 192, 128, 5, 3),
    HopperTiling("half", 128, 64, 8, 2),
    HopperTiling("flat", 64, 128, 8, 1),
    HopperTiling("small", 64, 64, 10, 1),
    HopperTiling("long", 64, 256, 5, 2, alternates=True),
    HopperTiling("broad 160", 128, 160, 5, 2),
    HopperTiling("few 16", 64, 16, 20, 1, swaps=True),
    HopperTiling("few 32", 64, 32, 16, 1, swaps=True),
)
# Where each column has scales of its own: a thread holds 20 in place of 34. 4096^3 takes 158 us in
# place of 174 (H200, 2026-11-30).
BESIDE = HopperTiling("beside", 128, 128, 6, 2, beside=True)
# Of windows alone. In us on H200 (8fee6fc, 2026-11-30), channels last: 64 x 128 x 28 x 28 in four
# groups 36 half, 34 slim; the gradient of its weight 60 broad, 36 ribbon. 64 x 64 x 56 x 56: 38
# half, 34 slim; of the weight 39 flat, 34 ribbon. 64 x 256 x 14 x 14: 35 slim, 27 alternating.
IN_PATCHES = (
    HopperTiling("slim", 128, 64, 8, 2, alternates=True),
    HopperTiling("ribbon", 64, 192, 5, 2, alternates=True, doubt=1.1),
)


@dataclass(frozen=True, slots=True)
class Side:
    """One factor: whether its rows run along k, and whether they begin at whole lines of L2.

    With `is_in_patches` its tiles are whole patches, of PATCH rows or columns, or within `reach`.
    """

    is_along_k: bool
    is_in_lines: bool
    is_in_patches: bool = False
    reach: Reach | None = None

    def stage_bytes(self, extent: int, width: int) -> int:
        """Return the bytes of one stage of `width` values of k; along m or n, in whole tiles."""
        columns = 1 if self.is_along_k else width
        rows = math.ceil(extent / columns) * columns
        return rows * ROW_BYTES

    def step_bytes(self, extent: int, width: int) -> int:
        """Return the bytes that come for one step of k: of a reach, its part of a box."""
        if self.reach is None:
            return self.stage_bytes(extent, width)
        return self.reach.box_rows * ROW_BYTES // self.reach.steps

    def fits(self, extent: int) -> bool:
        """Whether a tile of so many rows or columns holds whole patches; of a reach, one."""
        if self.reach is not None:
            return extent == self.reach.patch
        return not self.is_in_patches or extent % PATCH == 0

    def is_fast(self, extent: int, width: int) -> bool:
        """Whether products run at full speed; at two thirds where a tile of n is used in part."""
        return self.is_along_k or extent <= width or extent % width == 0

    @property
    def lines(self) -> int:
        """How many lines of L2 one row of a tile touches; patches come as slowly as two."""
        return 1 if self.is_in_lines and not self.is_in_patches else 2


@dataclass(frozen=True, slots=True)
class Need:
    """What a tiling must fit, and `epilogue_ops`, the ops between a sum and its stores.

    A tray has at most `tray_columns`, and `tray_bytes` for each sum, over all stores. Of the axes
    m, n and k, no part of the `open_axes` is sure to have anything in it. The `own_share` of the
    factors' elements are no repetitions. Sums are `promoted_after` so many values of k, unless 0,
    by an addition and `promoted_ops` before it, with `column_scales` for each column of a block.
    With two `halves` of each factor a stage has both, for three products.
    """

    work: Work
    k: int
    open_axes: frozenset[str]
    epilogue_ops: int
    tray_columns: int
    tray_bytes: int
    a: Side
    b: Side
    own_share: float = 1.0
    promoted_after: int = 0
    promoted_ops: int = 0
    column_scales: int = 0
    halves: int = 1

    @property
    def block_k(self) -> int:
        """Values of k in one stage."""
        return ROW_BYTES // self.work.itemsize

    @property
    def is_in_patches(self) -> bool:
        """Whether tiles are whole patches."""
        return self.a.is_in_patches or self.b.is_in_patches

    @property
    def steps(self) -> int:
        """Stages that a tile takes."""
        return math.ceil(self.k / self.block_k)

    @property
    def blocks(self) -> int:
        """Blocks of k with scales of their own, which parts do not cut; 0 if there are none."""
        return self.k // self.promoted_after if self.promoted_ops else 0

    def multiplying_clocks(self, tiling: HopperTiling) -> float:
        """Return what the products of a stage take, and what it takes to promote their sums."""
        work = tiling.block_m * tiling.block_n * self.block_k * PRODUCTS[self.halves]
        products = work / PRODUCT_RATES[self.work.itemsize]
        if self.is_in_patches and tiling.block_n <= PATCH:
            products *= NARROW
        if not self.promoted_after:
            return products
        promoted = tiling.held * tiling.consumers
        if self.promoted_ops:
            is_hidden = tiling.consumers > 1 and len(tiling.accumulators(tiling.width(True))) > 1
            promoted += SCALED_CLOCKS // 2 if is_hidden else SCALED_CLOCKS
        return products + promoted * self.block_k / self.promoted_after

    def fits_registers(self, tiling: HopperTiling) -> bool:
        """Whether a thread has registers for the sums of instructions beside its own, and scales.

        Those are of its rows, and of its columns where they have some of their own.
        """
        scales = tiling.rows // 32 + self.column_scales * (tiling.columns // 4)
        return not self.promoted_after or scales <= tiling.most_scales

    @property
    def nbytes(self) -> int:
        """The bytes of both factors and one result, each once."""
        work = self.work
        read = (work.m + work.n) * self.k * self.halves * self.own_share
        return int(work.batch * work.itemsize * (read + work.m * work.n))


@dataclass(frozen=True, slots=True)
class Candidate:
    """A tiling with the stages that fit, and what it is estimated to cost. Units: clocks.

    With `mirrors` it computes tiles on and below the diagonal, and stores the others from them; in
    several `parts` of k it computes each tile so often, and sums them up by another launch. With a
    `rest` it computes a product's first rows or columns, and another candidate the others.
    """

    tiling: HopperTiling
    stages: int
    tiles: int
    clocks: float
    mirrors: bool = False
    parts: int = 1
    rest: Rest | None = None

    @property
    def name(self) -> str:
        """What a decision calls it."""
        parts = f" in {self.parts} parts" if self.parts > 1 else ""
        rest = self.rest
        then = f" to {rest.axis} {rest.begin}, then {rest.candidate.name}" if rest else ""
        return self.tiling.name + parts + then


@dataclass(frozen=True, slots=True)
class Rest:
    """What is left of a product from a place of its axis `m` or `n` on, and what computes it."""

    axis: str
    begin: int
    candidate: Candidate


def trays_of(tiling: HopperTiling, most: int) -> tuple[int, int]:
    """Return how many trays each warpgroup has, and their columns, at most so many.

    Two, if it fills an even number of them.
    """
    columns = LEAST_TRAY_COLUMNS if tiling.columns % most else most
    if tiling.swaps or tiling.columns % columns:
        return 0, columns
    count = tiling.rows // GROUP_ROWS * (tiling.columns // columns)
    return 2 if count % 2 == 0 else 1, columns


def estimate(tiling: HopperTiling, need: Need, target: Target, parts: int = 1) -> Candidate | None:
    """Return what a tiling costs.

    None if it has no room for two stages, too long an epilogue, or no use for parts.
    """
    work, multiprocessors = need.work, target.multiprocessors
    if parts > 1:
        need = replace(need, epilogue_ops=0, tray_columns=LEAST_TRAY_COLUMNS, tray_bytes=PART_BYTES)
    trays, columns = trays_of(tiling, need.tray_columns)
    tray_bytes = tiling.consumers * trays * GROUP_ROWS * columns * need.tray_bytes
    ring = _fit_ring(tiling, need, target.shared_bytes - tray_bytes - MBARRIER_BYTES)
    ops = need.epilogue_ops + need.promoted_ops
    fits = need.fits_registers(tiling) and tiling.held * ops <= MOST_OPS
    is_whole = need.a.reach is not None or need.b.reach is not None or not trays
    if ring is None or not fits or (parts > 1 and is_whole):
        return None
    extents = (tiling.block_m, tiling.block_n)
    mirrors = parts == 1 and work.mirrors(*extents)
    whole = work if mirrors else replace(work, is_symmetric=False)
    tiles = whole.tiles(*(extents[::-1] if tiling.swaps else extents)) * parts
    load, steps = math.ceil(tiles / multiprocessors), math.ceil(need.steps / parts)
    products = need.multiplying_clocks(tiling)
    arriving = ring.lines if need.is_in_patches else ring.nbytes
    shared_rate = BULK_RATE if need.nbytes <= target.l2_bytes else STREAM_RATE
    rate = min(BULK_RATE, ring.stages * ring.nbytes / LATENCY_CLOCKS)
    summed = steps * max(products, arriving / rate)
    sums = max(
        load * summed,
        tiles * steps * ring.lines / (shared_rate * multiprocessors),
        need.nbytes / target.rates.copy * CLOCK,
    )
    faces = 3 if mirrors else 1  # each sum of a mirror image is stored on its own
    is_lone = tray_bytes == 0 and not tiling.swaps
    store = LONE_CLOCKS if is_lone else EPILOGUE_CLOCKS + TRAY_CLOCKS / columns
    epilogue = (store + OP_CLOCKS * need.epilogue_ops) * tiling.held * faces
    stored = load * epilogue
    if tiling.alternates and (not is_lone or need.is_in_patches):  # the last one alone is seen
        stored = epilogue + (load * max(0, epilogue - summed) if is_lone else 0)
    clocks = sums + stored + START_CLOCKS + _fold_clocks(need, parts, multiprocessors)
    return Candidate(tiling, ring.stages, tiles, clocks * tiling.doubt, mirrors, parts)


@dataclass(frozen=True, slots=True)
class _Ring:
    """The stages that a block has room for.

    Units: `nbytes` that arrive in one step of k, and bytes of the `lines` that it touches.
    """

    stages: int
    nbytes: int
    lines: int


def _fit_ring(tiling: HopperTiling, need: Need, room: int) -> _Ring | None:
    """Fill so many bytes of shared memory; None if there are not two stages of whole patches."""
    sides = (need.b, need.a) if tiling.swaps else (need.a, need.b)
    pairs = list(zip(sides, (tiling.block_m, tiling.block_n), strict=True))
    if not all([side.fits(extent) for side, extent in pairs]):
        return None
    reaches = [side.reach for side in sides if side.reach is not None]
    boxes = sum([BOXES * reach.rows * ROW_BYTES for reach in reaches])
    own = [side.stage_bytes(x, need.block_k) for side, x in pairs if side.reach is None]
    stage = sum(own) * need.halves
    stages = min(tiling.stages, (room - boxes) // stage)
    steps = [side.step_bytes(extent, need.block_k) * need.halves for side, extent in pairs]
    lines = sum([side.lines * size for side, size in zip(sides, steps, strict=True)])
    return _Ring(stages, sum(steps), lines) if stages >= 2 else None


def _fold_clocks(need: Need, parts: int, multiprocessors: int) -> float:
    """Estimate the launch that folds parts: they are written, read, and the result is written."""
    if parts == 1:
        return 0
    work = need.work
    moved = work.batch * work.m * work.n * (8 * parts + work.itemsize)
    return START_CLOCKS + moved / (FOLD_RATE * multiprocessors)


def rank_tilings(need: Need, target: Target) -> list[Candidate]:
    """Return the tilings that fit, also in two where that is cheaper; the cheapest first."""
    wholes = rank_wholes(need, target)
    pairs = [two for each in wholes for two in _in_two(each, need, target, wholes[0].clocks)]
    return sorted([*pairs, *wholes], key=lambda each: each.clocks)


def _in_two(whole: Candidate, need: Need, target: Target, fewest: float) -> Iterator[Candidate]:
    """Leave the tiles of a last round, which would occupy few multiprocessors, to another tiling.

    Only what takes clearly less than the `fewest` clocks of a whole is worth its launches.
    """
    work, tiling = need.work, whole.tiling
    rounds = whole.tiles // target.multiprocessors
    if whole.parts > 1 or tiling.swaps or work.batch > 1 or work.is_symmetric or not rounds:
        return
    if need.is_in_patches:
        return
    for axis, block in (("m", tiling.block_m), ("n", tiling.block_n)):
        if axis in need.open_axes:
            continue
        extent = getattr(work, axis)
        across = whole.tiles // math.ceil(extent / block)
        begin = rounds * target.multiprocessors // across * block
        if not 0 < begin < extent:
            continue
        first, last = [
            replace(need, work=replace(work, **{axis: size})) for size in (begin, extent - begin)
        ]
        head = estimate(tiling, first, target)
        if head is None or head.clocks * extent / begin + START_CLOCKS > CLEARLY * fewest:
            continue  # even if the rest occupied all multiprocessors
        rest = rank_wholes(last, target)[0]
        clocks = head.clocks + rest.clocks
        if clocks < CLEARLY * fewest:
            yield replace(head, clocks=clocks, rest=Rest(axis, begin, rest))


def rank_wholes(need: Need, target: Target) -> list[Candidate]:
    """Return the tilings that fit a whole product, cheapest first; of equals as listed."""
    most = need.steps // LEAST_STEPS if "k" not in need.open_axes else 1
    parts = [each for each in PARTS if each <= max(1, most) and not need.blocks % each]
    more = (BESIDE,) if need.column_scales else ()
    listed = (*more, *TILINGS, *(IN_PATCHES if need.is_in_patches else ()))
    tilings = [each for each in listed if need.b.is_fast(each.block_n, need.block_k)]
    found = [estimate(tiling, need, target, each) for each in parts for tiling in tilings]
    fitting = [each for each in found if each is not None]
    return sorted(fitting, key=lambda each: each.clocks)


def variants(candidate: Candidate, need: Need, target: Target) -> list[Candidate]:
    """Return a candidate with other rows of tiles walked together, or with fewer stages."""
    if candidate.rest is not None:
        return []
    tiling = candidate.tiling
    groups = [each for each in GROUPS if each != tiling.group]
    others = [replace(tiling, name=f"{tiling.name} by {each}", group=each) for each in groups]
    for stages in {candidate.stages - 1, candidate.stages // 2} - {0, 1}:
        others.append(replace(tiling, name=f"{tiling.name} of {stages}", stages=stages))
    found = [estimate(each, need, target, candidate.parts) for each in others]
    return [each for each in found if each is not None]
