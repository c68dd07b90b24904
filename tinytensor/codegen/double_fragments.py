"""Turns a tile of float64 in shared memory into the fragments that one warp multiplies."""

from __future__ import annotations

from collections.abc import Callable

from tinytensor.codegen.builder import lane, stack
from tinytensor.ops import tile as tiles
from tinytensor.ops.fragments import MmaShape, place_along
from tinytensor.ops.uop import UOp, cast

PAIR = 2
PIECE = 8  # rows (or columns) that an instruction spreads over the lanes
PIECE_STEP = 4  # values of k that it spreads over them: its own k


class DoubleSide:
    """One factor of a tile product, as far as one warp reads it.

    `extent` of its m (or n) belong to the warp; `depth` is the whole of k. Each lane reads two
    adjacent elements at once, by `load_pair`: two values of k of a row, or two rows at a value of
    k. Two of these are what it holds of 16 rows and 8 values of k: two rows at two values. As both
    factors give a lane the same values of k, which ones they are does not matter.
    """

    def __init__(
        self,
        shape: MmaShape,
        load_pair: Callable[[UOp, UOp], UOp],
        number: UOp,
        tile: UOp,
        stage: UOp,
        k_major: bool,
        warps: int,
        warp: UOp,
    ) -> None:
        rows, columns = tile.attrs.rows, tile.attrs.columns
        whole, self.depth = (rows, columns) if k_major else (columns, rows)
        self.extent = whole // warps
        self._shape = shape
        self._load_pair = load_pair
        self._tile = tile
        self._k_major = k_major
        self._stage_start = stage * (rows * columns)
        self._row = warp * self.extent + place_along(shape, k_major, 0, number // PIECE_STEP)
        self._k = number % PIECE_STEP * PAIR
        self._held: dict[int, list[list[list[UOp]]]] = {}

    def fragments_of_rows(self, step: int) -> list[UOp]:
        """Load the m x k fragments of one k step."""
        return self._fragments(step, self._shape.m // PIECE)

    def fragments_of_columns(self, step: int) -> list[UOp]:
        """Load the k x n fragments of one k step."""
        return self._fragments(step, 1)

    def _fragments(self, step: int, pieces: int) -> list[UOp]:
        """Give each fragment its pieces, at one value of k.

        What the next values take is read before it is asked for, so that products hide the wait.
        """
        least, _, depth = self._shape.least
        first = step - step % depth
        self._hold(first)
        if step > first and first + depth < self.depth:
            self._hold(first + depth)
        value = step % depth // PIECE_STEP
        fragments = []
        for held in self._held[first]:
            for piece in range(0, PAIR, pieces):
                own = [each[value] for each in held[piece : piece + pieces]]
                fragments.append(stack(own) if pieces > 1 else own[0])
        return fragments

    def _hold(self, step: int) -> None:
        """Read 8 values of k, once: of each 16 rows by piece, then by value of k."""
        if step not in self._held:
            begins = range(0, self.extent, self._shape.least[0])
            self._held[step] = [self._read(begin, step) for begin in begins]

    def _read(self, begin: int, step: int) -> list[list[UOp]]:
        columns: int = self._tile.attrs.columns
        both = range(PAIR)
        if self._k_major:
            k = self._k + step if step else self._k
            pairs = [self._load(self._row + piece, k, begin * columns) for piece in both]
            return [[lane(each, value) for value in both] for each in pairs]
        further = begin + step * columns
        pairs = [self._load(self._k + value, self._row, further) for value in both]
        return [[lane(each, piece) for each in pairs] for piece in both]

    def _load(self, row: UOp, column: UOp, further: int) -> UOp:
        """Load a pair; what is further by whole rows of chunks leaves the swizzle alone."""
        place = tiles.place_in_stage(self._tile, row, column)
        index = self._stage_start + cast(place, self._stage_start.dtype)
        return self._load_pair(self._tile, index + further if further else index)
