"""Turns a register tile of sums into the kernel's stores, through whatever stands between."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tinytensor.codegen.builder import Builder, lanes_from, splat
from tinytensor.codegen.plans.flatten import FlatContraction
from tinytensor.codegen.plans.packing import Tile, transpose
from tinytensor.codegen.plans.tiling_cpu import Tiling, fixed_block, steps
from tinytensor.codegen.vectorize import Evaluator
from tinytensor.ops.uop import UOp, const, walk
from tinytensor.records import dataclass

# With more operations than this after the sum, over all vectors of a register tile, they are
# emitted once, in a loop over the tile's rows.
UNROLLED_OPS = 512
Known = dict[UOp, UOp]  # nodes of the epilogue, and vectors of their values


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
        self._turned = self._find_turned()
        is_copied = flat.n.is_open or not self._is_unrolled
        self._copy = self._tile_in_memory() if is_copied else None

    def _find_turned(self) -> tuple[UOp, ...]:
        """Return what images take from their tile: what is stored, where no place tells in it.

        It must be as wide as the sum, so that it turns as quickly, and be in registers.
        """
        flat = self._flat
        values = tuple([store.operands[2] for store in flat.stores])
        for value in values:
            nodes = {*walk((value,))}
            is_same = flat.total in nodes and nodes.isdisjoint((flat.m, flat.n))
            if value.dtype is not flat.total.dtype or not is_same or not self._is_unrolled:
                return (flat.total,)
        return values

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
        if self._is_unrolled or self._copy is None:
            rows = self._store_unrolled(tile)
            if tile.has_image:
                self._store_image(tile, rows)
            return
        self._copy_out(tile, self._copy)
        self._store_looped(tile, self._copy)
        if tile.has_image:
            self._store_image_of(tile, self._copy)

    def _store_unrolled(self, tile: RegisterTile) -> list[list[Known]]:
        """Store a tile; return what its image takes, by row and vector."""
        rows: list[list[Known]] = [[] for _ in range(tile.rows)]
        for each in tile.vectors():
            row, column = tile.row + each.row, tile.column + each.column
            known = {self._flat.total: self._b.read(each.register)}
            found = self._store_vector(tile, row, column, known, each.valid)
            rows[each.row].append({node: found.value(node) for node in self._turned})
        return rows

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
                known = {self._flat.total: total}
                self._store_vector(tile, tile.row + i, tile.column + column, known, valid)

    def _store_rest(self, tile: RegisterTile, copy: Tile, rest: UOp) -> None:
        """Store the columns that exist, one by one."""
        b = self._b
        with b.loop(0, tile.rows) as i, b.loop(0, rest) as j:
            total = b.load(copy.buffer, copy.index(i, j))
            self._store_vector(tile, tile.row + i, tile.column + j, {self._flat.total: total}, 1)

    # An image has the columns as rows: sums (i, j) and (j, i) add the same products in order.
    def _store_image(self, tile: RegisterTile, rows: Sequence[Sequence[Known]]) -> None:
        """Store the image of a tile that is in registers."""
        for first, lanes in self._squares(tile):
            for column in range(0, tile.columns, lanes):
                number, begin = divmod(column, tile.lanes)
                taken = [row[number] for row in rows[first : first + lanes]]
                block = {
                    node: [lanes_from(each[node], begin, lanes) for each in taken]
                    for node in self._turned
                }
                count = min(lanes, tile.columns - column)
                self._store_turned(tile, first, self._b.index(column), block, count)

    def _store_image_of(self, tile: RegisterTile, copy: Tile) -> None:
        """Store the image of a tile that is in memory, in a loop."""
        b = self._b
        for first, lanes in self._squares(tile):
            rows = range(first, min(first + lanes, tile.rows))
            for at, columns in steps(b, fixed_block(b.index(0), tile.columns), lanes):
                indices = [copy.index(i, at) for i in rows]
                block = [b.load(copy.buffer, each, lanes, columns) for each in indices]
                self._store_turned(tile, first, at, {self._flat.total: block}, columns)

    @staticmethod
    def _squares(tile: RegisterTile) -> Iterator[tuple[int, int]]:
        """Give the first rows of squares, and how many they have."""
        lanes = min(tile.lanes, 1 << (tile.rows - 1).bit_length())
        for first in range(0, tile.rows, lanes):
            yield first, lanes

    def _store_turned(
        self,
        tile: RegisterTile,
        row: int,
        column: UOp,
        block: Mapping[UOp, list[UOp]],
        columns: int,
    ) -> None:
        """Store the columns of blocks, whose rows are given, as vectors along its rows."""
        turned: dict[UOp, list[UOp]] = {}
        for node, rows in block.items():
            lanes = rows[0].dtype.lanes
            unread = splat(const(self._flat.total.dtype, 0), lanes)
            turned[node] = transpose(rows + [unread] * (lanes - len(rows)))
        valid = len(next(iter(block.values())))
        for number in range(columns):
            m, n = tile.column + column + number, tile.row + row
            known = {node: vectors[number] for node, vectors in turned.items()}
            self._store_vector(tile, m, n, known, valid)

    def _store_vector(
        self, tile: RegisterTile, m: UOp, n: UOp, known: Known, valid: int
    ) -> Evaluator:
        """Run the epilogue on one vector of sums along n, and every store."""
        flat = self._flat
        here = {**tile.places, flat.m: m, flat.n: n}
        lanes = next(iter(known.values())).dtype.lanes
        evaluator = Evaluator(self._b, here, flat.n, lanes, valid, known)
        for store in flat.stores:
            evaluator.store(store)
        return evaluator
