"""Turns a contraction's extents and a GPU into the tile that one block computes.

Each list names the tilings worth having, and the cheapest by estimate is taken; of equals the
first. The estimate counts, for the streaming multiprocessor with most blocks, what one step of k
costs in its arithmetic units, in its shared memory and in its share of L2.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from tinytensor.codegen.plans.alignment import ACCESS_BYTES
from tinytensor.records import dataclass
from tinytensor.target import Target

WARP_THREADS = 32
WARP_ROWS, WARP_COLUMNS = 4, 8  # threads of a warp: a read of a row's elements serves 8 of them
REGISTERS_PER_MULTIPROCESSOR = 65536
MOST_RESIDENT = 2  # blocks that registers are asked for: more would spill some
REGISTERS_BESIDE_SUMS = 64  # of a thread: addresses, fragments
REGISTERS_BESIDE_DOUBLES = 96
# Per multiprocessor and clock, on H200 at 1.7 GHz.
# Multiply-adds of matrix instructions, by the bytes of a factor: of halves 62 % of the tensor
# cores' peak, all that mma can reach.
MMA_RATES = {1: 2540, 2: 1270, 8: 110}
FMA_RATE = 128
FRAGMENTS_BESIDE = 0.1  # of the time to read them, that no multiply-add fills
# Elements that are copied to shared memory between multiply-adds: in vectors, or one by one where
# rows along k are turned over.
COPY_RATES = {False: 51, True: 8.7}
SHARED_RATE = 128  # bytes
L2_RATE = 35  # bytes, when all multiprocessors read
WARPS_TO_HIDE_LATENCY = 4  # of multiply-adds; matrix instructions want twice as many
RESERVED_BYTES = 1024  # of shared memory, beside what a block asks for
STEP_CLOCKS = 60  # of one warp alone for one step of 16 k: fragments, then products that wait


@dataclass(frozen=True, slots=True)
class MmaTiling:
    """A block's tile for matrix instructions: warps_m x warps_n warps, a ring of `stages` tiles.

    Units: elements. `group` rows of tiles are walked together; `busy_warps` of a multiprocessor
    hide one another's waits.
    """

    name: str
    block_m: int
    block_n: int
    block_k: int
    warps_m: int
    warps_n: int
    stages: int
    group: int = 8
    busy_warps: int = 2 * WARPS_TO_HIDE_LATENCY

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.warps_m * self.warps_n * WARP_THREADS

    @property
    def sums(self) -> int:
        """Sums that a block's threads keep."""
        return self.block_m * self.block_n

    def shared_bytes(self, itemsize: int) -> int:
        """Shared memory of a block."""
        return self.stages * (self.block_m + self.block_n) * self.block_k * itemsize

    def step_clocks(self, work: Work) -> float:
        """Clocks of one block alone on a multiprocessor for 16 values of k."""
        products = self.block_m * self.block_n * 16 / MMA_RATES[work.itemsize]
        fragments = self.warps_n * self.block_m + self.warps_m * self.block_n
        return max(products, fragments * 16 * work.itemsize / SHARED_RATE)


@dataclass(frozen=True, slots=True)
class FmaTiling:
    """A block's tile for multiply-adds: each thread sums rows x columns, a warp is 4 x 8 threads.

    Units: elements. A stage's copies are begun in `copy_parts`, one for each value of k. Of its
    values of k each of so many `slices` of the threads sums a part.
    """

    name: str
    block_m: int
    block_n: int
    block_k: int
    rows: int
    columns: int
    stages: int
    group: int = 8
    busy_warps: int = WARPS_TO_HIDE_LATENCY
    copy_parts: int = 15
    slices: int = 1

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.sums // (self.rows * self.columns)

    @property
    def sums(self) -> int:
        """Sums that a block's threads keep."""
        return self.slices * self.block_m * self.block_n

    def shared_bytes(self, itemsize: int) -> int:
        """Shared memory of a block, with what keeps a row of a tile from the banks of the next."""
        pitches = self.block_m + self.block_n + 2 * (16 // itemsize)
        exchanged = self.sums - self.block_m * self.block_n
        return (self.stages * pitches * self.block_k + exchanged) * itemsize

    def step_clocks(self, work: Work) -> float:
        """Clocks of one block alone on a multiprocessor for 16 values of k."""
        products = self.block_m * self.block_n * 16 / (FMA_RATE * 4 / work.itemsize)
        # A vector that several threads of a warp read costs as much as one for each of them.
        vectors = self.threads // self.slices * (self.rows + self.columns) * 16
        fragments = vectors * work.itemsize / SHARED_RATE
        copied = zip((self.block_m, self.block_n), work.turned, strict=True)
        copies = sum([extent * 16 / COPY_RATES[is_turned] for extent, is_turned in copied])
        return max(products, fragments) + FRAGMENTS_BESIDE * fragments + copies


BlockTiling = MmaTiling | FmaTiling
Tiled = TypeVar("Tiled", MmaTiling, FmaTiling)

# On H200, NVRTC 13.0, 2026-11-29, in us: 4096^3 of bfloat16 386 wide (0.46 of cuBLAS), 477 square;
# 2048^3 52 wide, 58 tall, 62 square; 1024 x 1024 x 768 of float16 8.7 tall (0.65), 9.4 small;
# 128 x 4096 x 4096 26 small (0.53), 30 tall; 16 x 4096 x 4096 18 flat (0.77), 21 small.
MMA_TILINGS = (
    MmaTiling("wide", 128, 256, 64, 2, 4, stages=3),
    MmaTiling("square", 128, 128, 32, 2, 2, stages=5),
    MmaTiling("tall", 128, 64, 64, 2, 2, stages=4),
    MmaTiling("small", 64, 64, 64, 2, 2, stages=4),
    MmaTiling("flat", 32, 64, 64, 1, 4, stages=6),
)
# Operands that are computed on the way to shared memory pass through registers, which large tiles
# of sums do not leave.
MMA_TILINGS_THROUGH_REGISTERS = (
    MmaTiling("square through registers", 128, 128, 32, 2, 4, stages=2),
    MmaTiling("small through registers", 64, 64, 32, 2, 2, stages=2),
    MmaTiling("flat through registers", 32, 64, 32, 1, 4, stages=2),
)
# Of float64; a warp's 64 x 32 sums are 128 registers of each thread. On H200, NVRTC 13.0, 8efd321,
# 2026-11-30, in us: 2048^3, NN, 338 tall (torch 332), 347 small, 359 deep; 1024^3, NN, 43 deep, 75
# small, of which some multiprocessors get three; 512^3 9.0 least, 9.9 flat, 15.8 deep.
DOUBLE_TILINGS = (
    MmaTiling("tall", 128, 64, 16, 2, 2, stages=4),
    MmaTiling("tall in 3 stages", 128, 64, 16, 2, 2, stages=3),
    MmaTiling("deep", 64, 64, 32, 2, 2, stages=3),
    MmaTiling("small", 64, 64, 16, 2, 2, stages=4),
    MmaTiling("flat", 32, 64, 16, 1, 4, stages=4),
    MmaTiling("least", 32, 32, 16, 2, 2, stages=4),
)
DOUBLE_TILINGS_THROUGH_REGISTERS = (
    MmaTiling("small through registers", 64, 64, 16, 2, 4, stages=2),
    MmaTiling("least through registers", 32, 32, 16, 2, 2, stages=2),
)
# Slices give a multiprocessor that has one small tile its four warps. On H200, NVRTC 13.0, b69848d,
# 2026-11-30, in us: 512^3, NN, 9.1 flat in 4 stages, 9.6 in 3, 11.2 slim, 13.0 as 4 x 4 sums of 64
# threads (torch 16.7); 256^3 3.3 tiny; 1024^3, NN, 47.7 of 32 x 128 x 16 in 4 slices, 49.9 broad.
# 128 x 256 of 8 x 16 takes 344 of 2048^3, NT, where large takes 352, but 339 of TN, large 330.
# `copy_parts`: large takes 2803 with 4 and 2862 with 7 (4096^3, NT, 0e178cd).
FMA_TILINGS = (
    FmaTiling("large", 128, 128, 8, 8, 16, 4, busy_warps=8, copy_parts=4),
    FmaTiling("broad", 64, 128, 16, 8, 16, stages=4, slices=2),
    FmaTiling("compact", 64, 64, 16, 8, 8, stages=4, slices=2),
    FmaTiling("flat", 32, 64, 32, 8, 8, stages=4, slices=4),
    FmaTiling("flat in 3 stages", 32, 64, 32, 8, 8, stages=3, slices=4),
    FmaTiling("slim", 32, 32, 32, 8, 4, stages=3, slices=4),
    FmaTiling("tiny", 16, 32, 32, 4, 4, stages=4, slices=4),
)
FMA_TILINGS_THROUGH_REGISTERS = (
    FmaTiling("square through registers", 128, 128, 16, 8, 8, stages=2),
    FmaTiling("medium through registers", 64, 64, 16, 8, 4, stages=2),
    FmaTiling("small through registers", 32, 32, 16, 4, 4, stages=2),
)


def _deeper(listed: Sequence[MmaTiling]) -> tuple[MmaTiling, ...]:
    """Return tilings whose stages have as many bytes, of half as wide elements."""
    return tuple([replace(each, block_k=2 * each.block_k) for each in listed])


MMA_LISTS = {
    1: (_deeper(MMA_TILINGS), _deeper(MMA_TILINGS_THROUGH_REGISTERS)),
    2: (MMA_TILINGS, MMA_TILINGS_THROUGH_REGISTERS),
    8: (DOUBLE_TILINGS, DOUBLE_TILINGS_THROUGH_REGISTERS),
}
# What a measurement may choose beside them.
FMA_EXTENTS = (32, 64, 128, 256)
FMA_SUMS = ((4, 4), (8, 4), (8, 8), (8, 16))
FMA_RINGS = ((8, 4), (16, 3), (16, 2), (16, 4), (32, 2), (32, 3))  # values of k, stages
FMA_SLICES = (1, 2, 4)
LEAST_VALUES = 4  # of k, of a stage's slice
FMA_THREADS = (64, 128, 256)


def describe_tiling(tiling: BlockTiling) -> str:
    """Say what one block computes, and in how many stages."""
    block = f"{tiling.block_m} x {tiling.block_n} x {tiling.block_k}"
    return f"block {block} ({tiling.name}), {tiling.stages} stages"


@dataclass(frozen=True, slots=True)
class Work:
    """The extents of a product and the bytes of what lies in shared memory.

    Rows along k are `turned` over on their way: those of the first factor, of the second one.
    """

    batch: int
    m: int
    n: int
    itemsize: int
    is_symmetric: bool = False
    turned: tuple[bool, bool] = (False, False)

    def mirrors(self, block_m: int, block_n: int) -> bool:
        """Whether half of the tiles are enough: those above the diagonal mirror those below."""
        return self.is_symmetric and block_m == block_n < self.m

    def tiles(self, block_m: int, block_n: int) -> int:
        """Return how many tiles are computed."""
        tiles_m, tiles_n = math.ceil(self.m / block_m), math.ceil(self.n / block_n)
        if self.mirrors(block_m, block_n):
            return self.batch * tiles_m * (tiles_m + 1) // 2
        return self.batch * tiles_m * tiles_n


def rank_mma_tilings(work: Work, through_registers: bool, target: Target) -> list[MmaTiling]:
    """Return the tilings for products of numbers of `work.itemsize` bytes, cheapest first."""
    direct, computed = MMA_LISTS[work.itemsize]
    return _rank(computed if through_registers else direct, work, target)


def rank_fma_tilings(work: Work, through_registers: bool, target: Target) -> list[FmaTiling]:
    """Return the tilings for products of numbers of `work.itemsize` bytes, cheapest first."""
    listed = FMA_TILINGS_THROUGH_REGISTERS if through_registers else FMA_TILINGS
    return _rank(listed, work, target)


def more_fma_tilings(work: Work, through_registers: bool, target: Target) -> list[FmaTiling]:
    """Return all that a thread's sums and a ring make of a block, cheapest first."""
    rings = [ring for ring in FMA_RINGS if ring[1] == 2 or not through_registers]
    blocks = itertools.product(FMA_EXTENTS, FMA_EXTENTS, FMA_SUMS, rings, FMA_SLICES)
    found = []
    for block_m, block_n, (rows, columns), (block_k, stages), slices in blocks:
        name = f"{rows} x {columns} of {block_m} x {block_n} x {block_k} in {stages}"
        name += f", {slices} slices" if slices > 1 else ""
        tiling = FmaTiling(name, block_m, block_n, block_k, rows, columns, stages, slices=slices)
        fits_warps = block_m % (rows * WARP_ROWS) == 0 and block_n % (columns * WARP_COLUMNS) == 0
        if fits_warps and tiling.threads in FMA_THREADS and block_k >= LEAST_VALUES * slices:
            found.append(tiling)
    return _rank(found, work, target)


def _rank(listed: Sequence[Tiled], work: Work, target: Target) -> list[Tiled]:
    itemsize = work.itemsize
    fitting = [
        each
        for each in listed
        if each.shared_bytes(itemsize) <= target.shared_bytes
        and each.block_k * itemsize >= ACCESS_BYTES  # a stage holds whole copies
    ]
    # Of equals one whose blocks all begin at once.
    return sorted(
        fitting,
        key=lambda each: (
            estimated_clocks(each, work, target),
            _load(each, work, target) > resident_blocks(each, work, target),
        ),
    )


def _load(tiling: BlockTiling, work: Work, target: Target) -> int:
    """Return how many blocks the busiest multiprocessor runs."""
    return math.ceil(work.tiles(tiling.block_m, tiling.block_n) / target.multiprocessors)


def estimated_clocks(tiling: BlockTiling, work: Work, target: Target) -> float:
    """Estimate the clocks that 16 values of k take on the busiest multiprocessor."""
    tiles = work.tiles(tiling.block_m, tiling.block_n)
    load = _load(tiling, work, target)
    warps = tiling.threads // WARP_THREADS * min(load, resident_blocks(tiling, work, target))
    hidden = min(1.0, warps / tiling.busy_warps)
    arithmetic = max(tiling.step_clocks(work) * load / hidden, STEP_CLOCKS)
    read = (tiling.block_m + tiling.block_n) * 16 * work.itemsize * tiles
    return max(arithmetic, read / (L2_RATE * target.multiprocessors))


def takes_too_many(tiling: BlockTiling, work: Work, target: Target) -> bool:
    """Tell whether a multiprocessor could take more than its share of a product's blocks."""
    return resident_blocks(tiling, work, target) > _load(tiling, work, target)


def shared_for_a_share(blocks: int, target: Target) -> int:
    """Return the bytes that let a multiprocessor take its share of the blocks, and no more.

    Blocks go where there is room. While a launch before still runs, room is where it has ended, and
    some multiprocessors would get three blocks where two are the share of each.
    """
    share = math.ceil(blocks / target.multiprocessors)
    whole = target.shared_bytes + RESERVED_BYTES
    return max(0, whole // (share + 1) + 1 - RESERVED_BYTES)


def resident_blocks(tiling: BlockTiling, work: Work, target: Target) -> int:
    """Return how many blocks one multiprocessor holds at a time, at least 1."""
    sums = tiling.sums * max(4, work.itemsize) // 4
    beside = REGISTERS_BESIDE_DOUBLES if work.itemsize == 8 else REGISTERS_BESIDE_SUMS
    registers = sums + tiling.threads * beside
    by_shared = target.shared_bytes // tiling.shared_bytes(work.itemsize)
    return max(1, min(REGISTERS_PER_MULTIPROCESSOR // registers, by_shared))
