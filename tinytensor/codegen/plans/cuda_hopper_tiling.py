"""Turns a contraction's extents into the tile, the ring and the roles of a block on Hopper.

Each form of the kernel was the fastest for some product. A tiling is chosen by its estimated
clocks, for the busiest of the multiprocessors, L2 and memory.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tinytensor.codegen.plans.tiling_cuda import Work
from tinytensor.target import Target

ROW_BYTES = 128  # of a tile in shared memory: the widest swizzle, and the values of k in a stage
GROUP_THREADS = 128
PRODUCER_THREADS = 32
GROUP_ROWS = 64  # of one instruction's accumulator
MBARRIER_BYTES = 512
MOST_TRAY_COLUMNS = 64
# Per multiprocessor and clock, on H200.
PRODUCT_RATE = 2048  # multiply-adds of halves
BULK_RATE = 70  # bytes that arrive in shared memory when all multiprocessors read
LATENCY_CLOCKS = 1000  # from asking for a box to its arrival
EPILOGUE_CLOCKS = 12  # of a warpgroup for each sum that one of its threads holds
START_CLOCKS = 3000  # of a block: its first boxes, and the launch around it
CLOCK = 1.7e9  # a second
CLOSE = 1.02  # estimates that differ by less are equal


@dataclass(frozen=True, slots=True)
class HopperTiling:
    """A block's tile, the most stages of its ring, and the warpgroups that multiply.

    With `alternates` each warpgroup computes a whole tile while the other stores its own; else
    they share the rows of one. With `swaps` the rows of tiles are n. Units: elements.
    """

    name: str
    block_m: int
    block_n: int
    stages: int
    consumers: int
    alternates: bool = False
    swaps: bool = False
    group: int = 8

    @property
    def threads(self) -> int:
        """Threads of a block: those that multiply, and one warp that loads."""
        return self.consumers * GROUP_THREADS + PRODUCER_THREADS

    @property
    def rows(self) -> int:
        """Rows of a tile that one warpgroup computes."""
        return self.block_m if self.alternates else self.block_m // self.consumers


# In us on H200, NVRTC 13.0, 2026-11-29. Of bfloat16: 4096^3 181 turns, 195 wide; with k 1024 50 and
# 54; 512 x 4096 x 4096 26 square, 32 half, 49 wide; 128 x 4096 x 4096 13.8 flat and small, 14.5
# half; 16 x 4096 x 4096 10.8 few 16, 11.2 few 32, 16.8 small. Of float16: 1024 x 1024 x 768 4.8
# flat, 4.9 half, 6.1 small, 6.6 square and turns; 1000^3, whose rows are no whole lines of L2, 9.0
# square, 10.8 half and flat.
TILINGS = (
    HopperTiling("alternating", 128, 128, 6, 2, alternates=True),
    HopperTiling("wide", 128, 256, 4, 2),
    HopperTiling("tall", 256, 128, 4, 2),
    HopperTiling("square", 128, 128, 6, 2),
    HopperTiling("half", 128, 64, 8, 2),
    HopperTiling("flat", 64, 128, 8, 1),
    HopperTiling("small", 64, 64, 10, 1),
    HopperTiling("few 16", 64, 16, 20, 1, swaps=True),
    HopperTiling("few 32", 64, 32, 16, 1, swaps=True),
)


@dataclass(frozen=True, slots=True)
class Side:
    """One factor: whether its rows run along k, and whether they begin at whole lines of L2."""

    is_along_k: bool
    is_in_lines: bool

    def stage_bytes(self, extent: int, width: int) -> int:
        """Return the bytes of one stage; a factor along m or n takes whole rows of ROW_BYTES."""
        rows = extent if self.is_along_k else math.ceil(extent / width) * width
        return rows * ROW_BYTES

    @property
    def lines(self) -> int:
        """How many lines of L2 one row of a tile touches."""
        return 1 if self.is_in_lines else 2


@dataclass(frozen=True, slots=True)
class Need:
    """What a tiling must fit.

    `tray_bytes` are those of one tray of GROUP_ROWS x tray_columns sums, over all stores.
    """

    work: Work
    k: int
    tray_columns: int
    tray_bytes: int
    a: Side
    b: Side

    @property
    def block_k(self) -> int:
        """Values of k in one stage."""
        return ROW_BYTES // self.work.itemsize

    @property
    def steps(self) -> int:
        """Stages that a tile takes."""
        return math.ceil(self.k / self.block_k)

    @property
    def nbytes(self) -> int:
        """The bytes of both factors and one result, each once."""
        work = self.work
        return work.batch * work.itemsize * ((work.m + work.n) * self.k + work.m * work.n)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A tiling with the stages that fit, and what it is estimated to cost. Units: clocks.

    With `mirrors` it computes tiles on and below the diagonal, and stores the others from them.
    """

    tiling: HopperTiling
    stages: int
    tiles: int
    clocks: float
    mirrors: bool = False


def trays_of(tiling: HopperTiling, columns: int) -> int:
    """Return how many trays each warpgroup has: two, if it fills an even number of them."""
    if tiling.swaps or tiling.block_n % columns:
        return 0
    count = tiling.rows // GROUP_ROWS * (tiling.block_n // columns)
    return 2 if count % 2 == 0 else 1


def estimate(tiling: HopperTiling, need: Need, target: Target) -> Candidate | None:
    """Return what a tiling costs; None if it has no room for two stages."""
    tray_bytes = tiling.consumers * trays_of(tiling, need.tray_columns) * need.tray_bytes
    sides = (need.b, need.a) if tiling.swaps else (need.a, need.b)
    extents = (tiling.block_m, tiling.block_n)
    sizes = [side.stage_bytes(x, need.block_k) for side, x in zip(sides, extents, strict=True)]
    stages = min(tiling.stages, (target.shared_bytes - tray_bytes - MBARRIER_BYTES) // sum(sizes))
    if stages < 2:
        return None
    work = need.work
    tiles = work.tiles(*(extents[::-1] if tiling.swaps else extents))
    mirrors = work.mirrors(*extents)
    load = math.ceil(tiles / target.multiprocessors)
    lines = sum([side.lines * size for side, size in zip(sides, sizes, strict=True)])
    products = tiling.block_m * tiling.block_n * need.block_k / PRODUCT_RATE
    rate = min(BULK_RATE, stages * sum(sizes) / LATENCY_CLOCKS)
    sums = max(
        load * need.steps * max(products, sum(sizes) / rate),
        tiles * need.steps * lines / (BULK_RATE * target.multiprocessors),
        need.nbytes / target.rates.copy * CLOCK,
    )
    held = tiling.rows * tiling.block_n // GROUP_THREADS
    stored = (1 if tiling.alternates else load) * held * EPILOGUE_CLOCKS * (3 if mirrors else 1)
    clocks = sums + stored + START_CLOCKS
    return Candidate(tiling, stages, tiles, clocks, mirrors)


def rank_tilings(need: Need, target: Target) -> list[Candidate]:
    """Return the tilings that fit, cheapest first; those as cheap as the best, as listed."""
    found = [estimate(each, need, target) for each in TILINGS]
    fitting = [each for each in found if each is not None]
    limit = CLOSE * min([each.clocks for each in fitting])
    return sorted(fitting, key=lambda each: max(each.clocks, limit))
