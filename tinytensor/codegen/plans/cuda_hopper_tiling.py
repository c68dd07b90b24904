"""Turns a contraction's extents into the tile, the ring and the roles of a block on Hopper.

Each form of the kernel was the fastest for some product. A tiling is chosen by its estimated
clocks, for the busiest of the multiprocessors, L2 and memory.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from tinytensor.codegen.plans.block_patches import PATCH
from tinytensor.codegen.plans.tiling_cuda import Work
from tinytensor.target import Target

ROW_BYTES = 128  # of a tile in shared memory: the widest swizzle, and the values of k in a stage
GROUP_THREADS = 128
WARP_THREADS = 32
GROUP_ROWS = 64  # of one instruction's accumulator
MBARRIER_BYTES = 512
MOST_TRAY_COLUMNS = 64
PART_COLUMNS, PART_BYTES = 32, 8192  # of a tray of partial sums, float32
GROUPS = (4, 8, 16)  # of rows of tiles
PARTS = (1, 2, 3, 4, 6, 8, 16, 32, 64)
LEAST_STEPS = 8  # of a part
# Per multiprocessor and clock, on H200.
PRODUCT_RATE = 2048  # multiply-adds of halves
BULK_RATE = 70  # bytes that arrive in shared memory when all multiprocessors read
STREAM_RATE = 59  # the same, of more than L2 holds
LATENCY_CLOCKS = 1000  # from asking for a box to its arrival
EPILOGUE_CLOCKS = 12  # of a warpgroup to store each sum that one of its threads holds
LONE_CLOCKS = 24  # where the thread stores by itself: a guess
OP_CLOCKS = 2  # and to apply one op to it
MOST_OPS = 4096  # of a thread's epilogue, which is unrolled: more take seconds to compile
MANY_SUMS = 128  # of a thread, beside which 168 registers leave few for an epilogue
START_CLOCKS = 3000  # of a block: its first boxes, and the launch around it
FOLD_RATE = 25  # bytes of partial sums written and read
CLOCK = 1.7e9  # a second
CLOSE = 1.03  # estimates that differ by less are equal


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
        """Threads of a block: those that multiply, and those of the role that loads."""
        return self.consumers * GROUP_THREADS + self.loading_warps * WARP_THREADS

    @property
    def loading_warps(self) -> int:
        """Warps of the role that loads; one does, but only warpgroups give registers away."""
        return 4 if self.consumers == 2 and self.held >= MANY_SUMS else 1

    @property
    def registers(self) -> tuple[int, int]:
        """Registers of a thread that multiplies, and of one that loads; 0 for those of the launch.

        Together those of 384 threads of 168.
        """
        return (232, 40) if self.loading_warps > 1 else (0, 0)

    @property
    def held(self) -> int:
        """Sums that a thread holds."""
        return self.rows * self.block_n // GROUP_THREADS

    @property
    def rows(self) -> int:
        """Rows of a tile that one warpgroup computes."""
        return self.block_m if self.alternates else self.block_m // self.consumers


# In us on H200, NVRTC 13.0, 2026-11-29, each after a pause. Of bfloat16: 4096^3 177 wide, 179 tall,
# 183 alternating (which wins by 3 to 7 % on a card that is hot from use); with k 1024 47
# alternating, 52 wide; 512 x 4096 x 4096 25.1 alternating, 25.2 square, 30 flat; 128 x 4096 x 4096
# 14.0 small, 14.2 flat; 16 x 4096 x 4096 10.5 few 16, 11.1 few 32, 16.8 small. Of float16: 2048^3
# 25.2 wide, 25.3 alternating, 25.6 square; 1024 x 1024 x 768 4.7 half and flat, 5.6 small; 1000^3,
# whose rows are no whole lines of L2, 8.8 square, 10.8 half and flat, 10.9 broad and three.
# A convolution of 64 x 64 x 56 x 56 halves by 3 x 3 x 64: long 42, flat 44, once its channels lie
# innermost (2026-11-30), where 330 MB come from L2.
# Those with a number in their name, but for the few, are not measured yet: by estimate they fill
# a GPU where others leave a quarter idle (3072 x 768 x 8192: 120 tiles of 128 x 160 take 51 us in
# place of 60 for 96 of 128 x 192, which did take 59).
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
    HopperTiling("wide 208", 128, 208, 4, 2),
    HopperTiling("broad 160", 128, 160, 5, 2),
    HopperTiling("square 112", 128, 112, 7, 2),
    HopperTiling("square 96", 128, 96, 7, 2),
    HopperTiling("few 16", 64, 16, 20, 1, swaps=True),
    HopperTiling("few 32", 64, 32, 16, 1, swaps=True),
)


def columns_of(extent: int, most: int) -> int:
    """Return the columns of the tiles that hold an extent of m or n: they fill it, or one does."""
    return most if extent <= most else math.gcd(extent, most)


@dataclass(frozen=True, slots=True)
class Side:
    """One factor: whether its rows run along k, and whether they begin at whole lines of L2.

    With `is_in_patches` its tiles are whole patches, of PATCH rows or columns.
    """

    is_along_k: bool
    is_in_lines: bool
    is_in_patches: bool = False

    def stage_bytes(self, extent: int, width: int) -> int:
        """Return the bytes of one stage of `width` values of k; along m or n, in whole tiles."""
        columns = 1 if self.is_along_k else columns_of(extent, width)
        rows = math.ceil(extent / columns) * columns
        return rows * ROW_BYTES

    @property
    def lines(self) -> int:
        """How many lines of L2 one row of a tile touches; patches come as slowly as two."""
        return 1 if self.is_in_lines and not self.is_in_patches else 2


@dataclass(frozen=True, slots=True)
class Need:
    """What a tiling must fit, and `epilogue_ops`, the ops between a sum and its stores.

    `tray_bytes` are those of one tray of GROUP_ROWS x tray_columns sums, over all stores.
    """

    work: Work
    k: int
    epilogue_ops: int
    tray_columns: int
    tray_bytes: int
    a: Side
    b: Side
    read_bytes: int

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
        return self.read_bytes + work.batch * work.itemsize * work.m * work.n


@dataclass(frozen=True, slots=True)
class Candidate:
    """A tiling with the stages that fit, and what it is estimated to cost. Units: clocks.

    With `mirrors` it computes tiles on and below the diagonal, and stores the others from them; in
    several `parts` of k it computes each tile so often, and sums them up by another launch.
    """

    tiling: HopperTiling
    stages: int
    tiles: int
    clocks: float
    mirrors: bool = False
    parts: int = 1

    @property
    def name(self) -> str:
        """What a decision calls it."""
        return f"{self.tiling.name} in {self.parts} parts" if self.parts > 1 else self.tiling.name


def trays_of(tiling: HopperTiling, columns: int) -> int:
    """Return how many trays each warpgroup has: two, if it fills an even number of them."""
    if tiling.swaps or tiling.block_n % columns:
        return 0
    count = tiling.rows // GROUP_ROWS * (tiling.block_n // columns)
    return 2 if count % 2 == 0 else 1


def estimate(tiling: HopperTiling, need: Need, target: Target, parts: int = 1) -> Candidate | None:
    """Return what a tiling costs.

    None if it has no room for two stages, too long an epilogue, or no use for parts.
    """
    work, multiprocessors = need.work, target.multiprocessors
    if parts > 1:
        need = replace(need, epilogue_ops=0, tray_columns=PART_COLUMNS, tray_bytes=PART_BYTES)
    trays = trays_of(tiling, need.tray_columns)
    tray_bytes = tiling.consumers * trays * need.tray_bytes
    sides = (need.b, need.a) if tiling.swaps else (need.a, need.b)
    extents = (tiling.block_m, tiling.block_n)
    sizes = [side.stage_bytes(x, need.block_k) for side, x in zip(sides, extents, strict=True)]
    nbytes = sum(sizes)
    stages = min(tiling.stages, (target.shared_bytes - tray_bytes - MBARRIER_BYTES) // nbytes)
    is_long = tiling.held * need.epilogue_ops > MOST_OPS
    cuts = [side.is_in_patches and x % PATCH > 0 for side, x in zip(sides, extents, strict=True)]
    if stages < 2 or is_long or (parts > 1 and not trays) or any(cuts):
        return None
    mirrors = parts == 1 and work.mirrors(*extents)
    whole = work if mirrors else replace(work, is_symmetric=False)
    tiles = whole.tiles(*(extents[::-1] if tiling.swaps else extents)) * parts
    load, steps = math.ceil(tiles / multiprocessors), math.ceil(need.steps / parts)
    lines = sum([side.lines * size for side, size in zip(sides, sizes, strict=True)])
    # Products of a byte of each factor: those of float32, as TF32, take twice as long.
    products = tiling.block_m * tiling.block_n * ROW_BYTES / 2 / PRODUCT_RATE
    arriving = lines if any(side.is_in_patches for side in sides) else nbytes
    shared_rate = BULK_RATE if need.nbytes <= target.l2_bytes else STREAM_RATE
    rate = min(BULK_RATE, stages * nbytes / LATENCY_CLOCKS)
    sums = max(
        load * steps * max(products, arriving / rate),
        tiles * steps * lines / (shared_rate * multiprocessors),
        need.nbytes / target.rates.copy * CLOCK,
    )
    faces = 3 if mirrors else 1  # each sum of a mirror image is stored on its own
    store = EPILOGUE_CLOCKS if trays or tiling.swaps else LONE_CLOCKS
    epilogue = (store + OP_CLOCKS * need.epilogue_ops) * tiling.held * faces
    stored = (1 if tiling.alternates else load) * epilogue
    clocks = sums + stored + START_CLOCKS + _fold_clocks(need, parts, multiprocessors)
    return Candidate(tiling, stages, tiles, clocks, mirrors, parts)


def _fold_clocks(need: Need, parts: int, multiprocessors: int) -> float:
    """Estimate the launch that folds parts: they are written, read, and the result is written."""
    if parts == 1:
        return 0
    work = need.work
    moved = work.batch * work.m * work.n * (8 * parts + work.itemsize)
    return START_CLOCKS + moved / (FOLD_RATE * multiprocessors)


def rank_tilings(need: Need, target: Target) -> list[Candidate]:
    """Return the tilings that fit, cheapest first; those as cheap as the best, as listed."""
    parts = [each for each in PARTS if each == 1 or need.steps >= LEAST_STEPS * each]
    found = [estimate(tiling, need, target, each) for each in parts for tiling in TILINGS]
    fitting = [each for each in found if each is not None]
    if not fitting:
        return []
    limit = CLOSE * min([each.clocks for each in fitting])
    return sorted(fitting, key=lambda each: max(each.clocks, limit))


def variants(candidate: Candidate, need: Need, target: Target) -> list[Candidate]:
    """Return a candidate with other rows of tiles walked together, or with fewer stages."""
    tiling = candidate.tiling
    groups = [each for each in GROUPS if each != tiling.group]
    others = [replace(tiling, name=f"{tiling.name} by {each}", group=each) for each in groups]
    for stages in {candidate.stages - 1, candidate.stages // 2} - {0, 1}:
        others.append(replace(tiling, name=f"{tiling.name} of {stages}", stages=stages))
    found = [estimate(each, need, target, candidate.parts) for each in others]
    return [each for each in found if each is not None]
