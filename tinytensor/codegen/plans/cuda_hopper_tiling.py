"""Turns a contraction's extents into the tile, the ring and the roles of a block on Hopper.

Each form of the kernel was the fastest for some product (H200, 2026-11-29). A tiling is chosen by
its estimated clocks; of equals the first.
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
PANEL_COLUMNS = 64
# Per multiprocessor and clock, on H200.
PRODUCT_RATE = 2048  # multiply-adds of halves
BULK_RATE = 70  # bytes that arrive in shared memory when all multiprocessors read
LATENCY_CLOCKS = 1000  # from asking for a box to its arrival
EPILOGUE_CLOCKS = 12  # of a warpgroup for each sum that one of its threads holds
START_CLOCKS = 3000  # of a block: its first boxes, and the launch around it


@dataclass(frozen=True, slots=True)
class HopperTiling:
    """A block's tile, the most stages of its ring, and the warpgroups that multiply.

    With `takes_turns` each warpgroup computes a whole tile while the other stores its own; else
    they share the rows of one. With `swaps` the rows of tiles are n. Units: elements.
    """

    name: str
    block_m: int
    block_n: int
    stages: int
    consumers: int
    takes_turns: bool = False
    swaps: bool = False
    group: int = 8

    @property
    def threads(self) -> int:
        """Threads of a block: those that multiply, and one warp that loads."""
        return self.consumers * GROUP_THREADS + PRODUCER_THREADS

    @property
    def rows(self) -> int:
        """Rows of a tile that one warpgroup computes."""
        return self.block_m if self.takes_turns else self.block_m // self.consumers


# H200, 2026-11-29: turns beat the large shared tiles where the epilogue is not negligible (k 8192
# equal, 4096 2.5 %, 1024 10 %); the small tiles fill one wave of 132 blocks (1024 x 1024 x 768).
TILINGS = (
    HopperTiling("turns", 128, 128, 6, 2, takes_turns=True),
    HopperTiling("wide", 128, 256, 4, 2),
    HopperTiling("tall", 256, 128, 4, 2),
    HopperTiling("square", 128, 128, 6, 2),
    HopperTiling("half", 128, 64, 8, 2),
    HopperTiling("flat", 64, 128, 8, 1),
    HopperTiling("small", 64, 64, 10, 1),
    HopperTiling("few 8", 64, 8, 20, 1, swaps=True),
    HopperTiling("few 16", 64, 16, 20, 1, swaps=True),
    HopperTiling("few 32", 64, 32, 16, 1, swaps=True),
)


@dataclass(frozen=True, slots=True)
class Need:
    """What a tiling must fit: the work, the steps of k, and the bytes of panels for each sum row.

    `panel_bytes` are those of one panel of GROUP_ROWS x PANEL_COLUMNS sums, over all stores.
    """

    work: Work
    k: int
    panel_bytes: int

    @property
    def block_k(self) -> int:
        """Values of k in one stage."""
        return ROW_BYTES // self.work.itemsize

    @property
    def steps(self) -> int:
        """Stages that a tile takes."""
        return math.ceil(self.k / self.block_k)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A tiling with the stages that fit, and what it is estimated to cost. Units: clocks."""

    tiling: HopperTiling
    stages: int
    tiles: int
    clocks: float


def stage_bytes(tiling: HopperTiling) -> int:
    """Return the bytes of one stage; a factor along m or n takes whole rows of ROW_BYTES."""
    return (tiling.block_m + tiling.block_n) * ROW_BYTES


def panels_of(tiling: HopperTiling) -> int:
    """Return how many panels each warpgroup has: two, if it fills an even number of them."""
    count = tiling.rows // GROUP_ROWS * (tiling.block_n // PANEL_COLUMNS)
    return 2 if count % 2 == 0 else 1


def estimate(tiling: HopperTiling, need: Need, target: Target) -> Candidate | None:
    """Return what a tiling costs; None if it has no room for two stages."""
    has_panels = not tiling.swaps and tiling.block_n % PANEL_COLUMNS == 0
    panels = tiling.consumers * panels_of(tiling) if has_panels else 0
    room = target.shared_bytes - panels * need.panel_bytes - MBARRIER_BYTES
    stages = min(tiling.stages, room // stage_bytes(tiling))
    if stages < 2:
        return None
    work = need.work
    m, n = (work.n, work.m) if tiling.swaps else (work.m, work.n)
    tiles = work.batch * math.ceil(m / tiling.block_m) * math.ceil(n / tiling.block_n)
    load = math.ceil(tiles / target.multiprocessors)
    products = tiling.block_m * tiling.block_n * need.block_k / PRODUCT_RATE
    rate = min(BULK_RATE, stages * stage_bytes(tiling) / LATENCY_CLOCKS)
    step = max(products, stage_bytes(tiling) / rate)
    held = tiling.rows * tiling.block_n // GROUP_THREADS
    epilogues = 1 if tiling.takes_turns else load
    clocks = load * need.steps * step + epilogues * held * EPILOGUE_CLOCKS + START_CLOCKS
    return Candidate(tiling, stages, tiles, clocks)


def rank_tilings(need: Need, target: Target) -> list[Candidate]:
    """Return the tilings that fit, cheapest first."""
    found = [estimate(each, need, target) for each in TILINGS]
    return sorted([each for each in found if each is not None], key=lambda each: each.clocks)
