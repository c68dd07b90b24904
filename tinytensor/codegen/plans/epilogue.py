"""Turns a register tile of sums into the kernel's stores, through whatever stands between."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tinytensor.codegen.builder import Builder, lane, shuffle, splat
from tinytensor.codegen.plans.flatten import FlatContraction
from tinytensor.codegen.plans.packing import Tile, transpose
from tinytensor.codegen.plans.tiling_cpu import Tiling, fixed_block, steps
from tinytensor.codegen.vectorize import Evaluator
from tinytensor.ops.uop import UOp, const, walk
from tinytensor.records import dataclass

# With more operations than this after the sum, over all vectors of a register tile, they are
# emitted once, in a loop over the tile's rows.
UNROLLED_OPS = 512


@dataclass(frozen=True, slots=True)
class TileVector:
    """One vector of a register tile: its row and first column in the tile, and its live lanes."""

    row: int
    column: int
    valid: int
    register: UOp


@dataclass(frozen=True, slots=True)
class RegisterTile:
    """Sums in registers, by row and vector, and where in the result they belong.

    `places` are the values of the ranges outside m and n. Where `rest` is given, only so many
    columns exist, which is known at launch. `has_image` where it is stored a second time, turned.
    """

    places: Mapping[UOp, UOp]
    row: UOp
    rows: int
    column: UOp
    columns: int
    lanes: int
    sums: tuple[tuple[UOp, ...], ...]
    rest: UOp | None = None
    has_image: bool = False

    def vectors(self) -> Iterator[TileVector]:
        """Walk the vectors, row by row."""
        for row, row_sums in enumerate(self.sums):
            for number, register in enumerate(row_sums):
                column = number * self.lanes
                valid = min(self.lanes, self.columns - column)
                yield TileVector(row, column, valid, register)


class Epilogue:
    """Emits the stores of register tiles, and those of their mirror images."""

    def __init__(self, b: Builder, flat: FlatContraction, tiling: Tiling) -> None:
        self._b = b
        self._flat = flat
        self._tiling = tiling
        ops = len(walk(flat.stores)) * tiling.rows * tiling.vectors
        self._is_unrolled = ops <= UNROLLED_OPS
        is_copied = flat.n.is_open or not self._is_unrolled
        self._copy = self._tile_in_memory() if is_copied else None

    def _tile_in_memory(self) -> Tile:
        tiling = self._tiling
        elements = tiling.rows * tiling.columns
        copy = self._b.workspace(self._flat.total.dtype, elements)
        return Tile(copy, self._b.index(0), tiling.columns, 1)

    def store(self, tile: RegisterTile) -> None:
        """Emit everything that happens to a tile of finished sums."""
        if tile.rest is not None and self._copy is not None:
            self._copy_out(tile, self._copy)
            self._store_rest(tile, self._copy, tile.rest)
            return
        in_memory = None if self._is_unrolled else self._copy
        if in_memory is None:
            self._store_unrolled(tile)
        else:
            self._copy_out(tile, in_memory)
            self._store_looped(tile, in_memory)
        if tile.has_image:
            self._store_mirrored(tile, in_memory)

    def _store_unrolled(self, tile: RegisterTile) -> None:
        for each in tile.vectors():
            row, column = tile.row + each.row, tile.column + each.column
            total = self._b.read(each.register)
            self._store_vector(tile, row, column, total, each.valid)

    def _copy_out(self, tile: RegisterTile, copy: Tile) -> None:
        for each in tile.vectors():
            index = copy.index(each.row, each.column)
            self._b.store(copy.buffer, index, self._b.read(each.register))

    def _store_looped(self, tile: RegisterTile, copy: Tile) -> None:
        b = self._b
        with b.loop(0, tile.rows) as i:
            for column in range(0, tile.columns, tile.lanes):
                total = b.load(copy.buffer, copy.index(i, column), tile.lanes)
                valid = min(tile.lanes, tile.columns - column)
                self._store_vector(tile, tile.row + i, tile.column + column, total, valid)

    def _store_rest(self, tile: RegisterTile, copy: Tile, rest: UOp) -> None:
        """Store the columns that exist, one by one."""
        b = self._b
        with b.loop(0, tile.rows) as i, b.loop(0, rest) as j:
            total = b.load(copy.buffer, copy.index(i, j))
            self._store_vector(tile, tile.row + i, tile.column + j, total, 1)

    def _store_mirrored(self, tile: RegisterTile, copy: Tile | None) -> None:
        """Store the columns as rows: sums (i, j) and (j, i) add the same products in order.

        They are taken from registers, or from a copy in a loop.
        """
        b = self._b
        lanes = min(tile.lanes, 1 << (tile.rows - 1).bit_length())
        for first in range(0, tile.rows, lanes):
            rows = range(first, min(first + lanes, tile.rows))
            if copy is None:
                for j in range(0, tile.columns, lanes):
                    block = [self._part(tile, i, j, lanes) for i in rows]
                    self._store_turned(tile, first, b.index(j), block, min(lanes, tile.columns - j))
                continue
            for at, columns in steps(b, fixed_block(b.index(0), tile.columns), lanes):
                indices = [copy.index(i, at) for i in rows]
                block = [b.load(copy.buffer, each, lanes, columns) for each in indices]
                self._store_turned(tile, first, at, block, columns)

    def _part(self, tile: RegisterTile, row: int, column: int, lanes: int) -> UOp:
        """Return some lanes of a row of sums."""
        vector, begin = divmod(column, tile.lanes)
        total = self._b.read(tile.sums[row][vector])
        if lanes == 1:
            return lane(total, begin)
        return total if lanes == tile.lanes else shuffle(total, total, range(begin, begin + lanes))

    def _store_turned(
        self, tile: RegisterTile, row: int, column: UOp, block: list[UOp], columns: int
    ) -> None:
        """Store the columns of a block of sums, its rows given, as vectors along its rows."""
        lanes = block[0].dtype.lanes
        unread = splat(const(self._flat.total.dtype, 0), lanes)
        turned = transpose(block + [unread] * (lanes - len(block)))
        for number, total in enumerate(turned[:columns]):
            m, n = tile.column + column + number, tile.row + row
            self._store_vector(tile, m, n, total, len(block))

    def _store_vector(self, tile: RegisterTile, m: UOp, n: UOp, total: UOp, valid: int) -> None:
        """Run the epilogue on one vector of sums along n, and every store."""
        flat = self._flat
        here = {**tile.places, flat.m: m, flat.n: n}
        known = {flat.total: total}
        evaluator = Evaluator(self._b, here, flat.n, total.dtype.lanes, valid, known)
        for store in flat.stores:
            evaluator.store(store)
