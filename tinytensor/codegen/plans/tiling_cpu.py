"""Turns a contraction's extents and a CPU into register and cache tiles, and walks axes by them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from contextlib import contextmanager

from tinytensor.codegen.builder import Builder
from tinytensor.codegen.vectorize import extent_value
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp, binary, where
from tinytensor.records import dataclass
from tinytensor.target import Target

# One block of k up to this depth: float32, 1024 x 1024 x 1024 on Zen 4, k in one block of 1024 is
# 2 % faster than in three, and needs no code for partial sums (120 ms to compile instead of 170).
BLOCK_K_BYTES = 4096
# Rows and vectors of the register tile, by the registers there are.
TILES_OF_32 = [(8, 2), (12, 2), (8, 3)]
TILES_OF_16 = [(6, 2), (4, 3)]
# Mirroring saves nearly half the products, and costs a transposition of each tile; one of a single
# vector has little below the diagonal. float32 x @ x.T on Zen 4: n = 32 119 GFLOP/s, 64 170, 256
# 212; with 8 x 2 vectors and squares of 32 on the diagonal 91, 132, 195 (2026-11-30).
MIRRORED_TILE = (8, 1)
LEAST_LANES = 4  # of a vector: two are no faster


@dataclass(frozen=True, slots=True)
class Tiling:
    """How a contraction is cut for one core.

    The register tile is `rows` x `vectors` accumulators of `lanes` elements. A panel of b,
    `block_k` x `block_n`, is packed at a time and stays in L2.

    Units: elements, but `vectors` in vectors.
    """

    lanes: int
    rows: int
    vectors: int
    block_k: int
    block_n: int

    @property
    def name(self) -> str:
        """What the tuning cache calls it."""
        return f"{self.rows} x {self.columns} of {self.block_k} x {self.block_n}"

    @property
    def columns(self) -> int:
        """Elements of one row of the register tile."""
        return self.lanes * self.vectors

    def gains_by_mirroring(self, n: int) -> bool:
        """Whether half of a symmetric n x n result is worth computing and mirroring."""
        is_cut_in_squares = self.block_n % math.lcm(self.rows, self.lanes) == 0
        return self.vectors == 1 and is_cut_in_squares and n > self.lanes


def list_tilings(
    n: int, k: int, widest_itemsize: int, target: Target, is_symmetric: bool = False
) -> list[Tiling]:
    """Fit register tiles to the register file and panels of b to parts of L2; the usual one first.

    With 32 registers 8 x 2 vectors: 8 x 3 and 12 x 2 are as fast (102 to 108 GFLOP/s on Zen 4, n =
    1024), but leave a ragged rest more often, and 12 rows of a can meet in one set of an 8-way L1.
    With 16 registers 6 x 2: 4 rows reread the panel too often (110 and 80 GFLOP/s, n = 256).
    """
    lanes = target.lanes(widest_itemsize)
    while lanes > 1 and lanes // 2 >= n:
        lanes //= 2
    tiles = [(4, 2)]
    if "fma" in target.features:
        tiles = TILES_OF_32 if target.registers >= 32 else TILES_OF_16
    if is_symmetric:
        tiles = [MIRRORED_TILE, *tiles]
    panels = [(BLOCK_K_BYTES, 3), (BLOCK_K_BYTES // 4, 3), (BLOCK_K_BYTES, 1)]
    found: dict[Tiling, None] = {}
    for (depth_bytes, quarters), (rows, vectors) in itertools.product(panels, tiles):
        pieces = -(-k * widest_itemsize // depth_bytes) or 1
        block_k = round_up(-(-k // pieces) or 1, lanes)
        panel_bytes = target.l2_bytes * quarters // 4
        columns = lanes * min(vectors, -(-n // lanes) or 1)
        square = math.lcm(rows, columns)
        fitting = panel_bytes // (block_k * widest_itemsize) // square
        block_n = min(max(fitting, 1) * square, round_up(n, square))
        found[Tiling(lanes, rows, columns // lanes, block_k, block_n)] = None
    return list(found)


def round_up(number: int, step: int) -> int:
    """Return the least multiple of a step that is no less than a number."""
    return -(-number // step) * step


@dataclass(frozen=True, slots=True)
class Block:
    """Adjacent positions along an axis: `size` of them, or `last_size` where `is_last` holds.

    With `is_last` None the number is `last_size`, known now. Where `open_size` is given, the number
    is that, known at launch.
    """

    begin: UOp
    size: int
    last_size: int
    is_last: UOp | None
    open_size: UOp | None = None

    def count(self, b: Builder, step: int = 1) -> UOp:
        """Return how many positions the whole steps of a block cover."""
        if self.open_size is not None:
            rest = binary(Op.TRUNCMOD, self.open_size, step)
            return self.open_size if step == 1 else self.open_size - rest
        last = b.index(self.last_size - self.last_size % step)
        return last if self.is_last is None else where(self.is_last, last, b.index(self.size))


def fixed_block(begin: UOp, size: int) -> Block:
    """Return a block whose number of positions is known now."""
    return Block(begin, size, size, None)


def whole_block(b: Builder, range_: UOp) -> Block:
    """Return all positions of a range as one block."""
    most = range_.extent
    open_size = b.value(extent_value(b, range_)) if range_.is_open else None
    return Block(b.index(0), most, most, None, open_size)


def blocks(b: Builder, range_: UOp, size: int) -> Iterator[Block]:
    """Emit the loop over the blocks of a range; give the block its body works on."""
    whole = whole_block(b, range_)
    if range_.extent <= size:
        yield whole
        return
    last_size = (range_.extent - 1) % size + 1
    end = whole.count(b)
    with b.loop(0, end, step=size) as begin:
        last = end - size if range_.is_open else b.index(range_.extent - size)
        is_last = b.value(last <= begin)
        open_size = b.value(binary(Op.MIN, end - begin, size)) if range_.is_open else None
        yield Block(begin, size, last_size, is_last, open_size)


def steps(
    b: Builder, block: Block, step: int, begin: UOp | None = None
) -> Iterator[tuple[UOp, int]]:
    """Emit the loop over a block's whole steps, then its ragged rest: the body is emitted for both.

    Gives the first position and the number of positions of each. A block's size is a multiple of
    the step, but for the last one's. `begin` starts the loop elsewhere than the block does. The
    rest of an open block is taken one by one.
    """
    rest = block.last_size % step
    end = block.begin + block.count(b, step)
    if block.last_size >= step or block.is_last is not None:
        with b.loop(block.begin if begin is None else begin, end, step=step) as position:
            yield position, step
    if block.open_size is not None:
        if step > 1:
            with b.loop(end, block.begin + block.open_size) as position:
                yield position, 1
        return
    if rest == 0:
        return
    position = block.begin + (block.last_size - rest)
    if block.is_last is None:
        yield position, rest
        return
    with b.branch(block.is_last):
        yield position, rest


@dataclass(frozen=True, slots=True)
class Rest:
    """What whole vectors leave of an open block: `count` positions from `begin` on."""

    begin: UOp
    count: UOp


@contextmanager
def open_rest(b: Builder, block: Block, lanes: int) -> Iterator[Rest]:
    """Open what runs where whole vectors leave some of an open block."""
    assert block.open_size is not None, "only an open block has such a rest"
    whole = block.count(b, lanes)
    count = b.value(block.open_size - whole)
    with b.branch(b.index(0) < count):
        yield Rest(b.value(block.begin + whole), count)


def vector_steps(b: Builder, block: Block, step: int, lanes: int) -> Iterator[tuple[UOp, int]]:
    """Emit the loops over an open block's whole steps and then its whole vectors."""
    begin = block.begin
    for each in dict.fromkeys((step, lanes)):
        end = b.value(block.begin + block.count(b, each))
        with b.loop(begin, end, step=each) as position:
            yield position, each
        begin = end


@dataclass(frozen=True, slots=True)
class Columns:
    """Adjacent columns of a register tile: `count` of them in vectors of `lanes`.

    Where `rest` is given, only so many exist, which is known at launch. `has_image` where what is
    stored is stored at its mirrored place too.
    """

    begin: UOp
    count: int
    lanes: int
    rest: UOp | None = None
    has_image: bool = False


def cut(begin: UOp, count: int, lanes: int) -> Iterator[Columns]:
    """Cut columns into whole vectors and a narrower one.

    float32 n = 24 on Zen 4: 0.38 us instead of 0.46, n = 65: 5.8 instead of 6.3 (2026-11-30).
    """
    rest = count % lanes
    if count > rest:
        yield Columns(begin, count - rest, lanes)
    if rest:
        narrow = 1 << (rest - 1).bit_length()
        yield Columns(begin + (count - rest), rest, max(narrow, min(lanes, LEAST_LANES)))


def all_columns(b: Builder, block: Block, tiling: Tiling) -> Iterator[Columns]:
    """Walk the columns of a block's register tiles."""
    lanes = tiling.lanes
    if block.open_size is None:
        for column, count in steps(b, block, tiling.columns):
            yield from cut(column, count, lanes)
        return
    for column, count in vector_steps(b, block, tiling.columns, lanes):
        yield Columns(column, count, lanes)
    with open_rest(b, block, lanes) as rest:
        yield Columns(rest.begin, lanes, lanes, rest.count)
