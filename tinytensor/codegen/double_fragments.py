"""Turns a tile of float64 in shared memory into the fragments that one warp multiplies."""

from __future__ import annotations

from collections.abc import Callable

from tinytensor.codegen.builder import lane, stack
from tinytensor.ops import tile as tiles
from tinytensor.ops.fragments import MmaShape, place_along
from tinytensor.ops.uop import UOp, cast

PAIR = 2
PIECE = 8  # rows (or columns) that an instruction spreads over the lanes
PIECE_STEP = 4  # values of k that it spreads over them


class DoubleSide:
    """One factor of a tile product, as far as one warp reads it.

    `extent` of its m (or n) belong to the warp; `depth` is the whole of k. Each lane reads two
    adjacent elements at once, by `load_pair`. They are two values of k of a row, or two rows at
    a value of k. Two of these make what a lane holds of 16 rows and 8 values of k: two rows at two
    values. As both factors give a lane the same values, their order does not matter.
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
        self._held: dict[tuple[int, int], list[list[UOp]]] = {}

    def fragments_of_rows(self, step: int) -> list[UOp]:
        """Load the m x k fragments of one k step."""
        return self._fragments(step, self._shape.m // PIECE)

    def fragments_of_columns(self, step: int) -> list[UOp]:
        """Load the k x n fragments of one k step."""
        return self._fragments(step, self._shape.n // PIECE)

    def _fragments(self, step: int, pieces: int) -> list[UOp]:
        """Give each fragment its pieces, one after the other for each 4 values of k."""
        least, _, depth = self._shape.least
        first = step % depth // PIECE_STEP
        values = range(first, first + self._shape.k // PIECE_STEP)
        fragments = []
        for begin in range(0, self.extent, least):
            held = self._hold(begin, step - step % depth)
            for piece in range(0, PAIR, pieces):
                own = held[piece : piece + pieces]
                elements = [each[value] for value in values for each in own]
                fragments.append(stack(elements) if len(elements) > 1 else elements[0])
        return fragments

    def _hold(self, begin: int, step: int) -> list[list[UOp]]:
        """Return a lane's elements of 16 rows and 8 values of k: by piece, then by value of k."""
        if (begin, step) not in self._held:
            columns: int = self._tile.attrs.columns
            if self._k_major:
                k = self._k + step if step else self._k
                pairs = [self._load(self._row + i, k, begin * columns) for i in range(PAIR)]
            else:
                further = begin + step * columns
                pairs = [self._load(self._k + i, self._row, further) for i in range(PAIR)]
            held = [[lane(each, number) for number in range(PAIR)] for each in pairs]
            self._held[begin, step] = held if self._k_major else _turned(held)
        return self._held[begin, step]

    def _load(self, row: UOp, column: UOp, further: int) -> UOp:
        """Load a pair; what is further by whole rows of chunks leaves the swizzle alone."""
        place = tiles.place_in_stage(self._tile, row, column)
        index = self._stage_start + cast(place, self._stage_start.dtype)
        return self._load_pair(self._tile, index + further if further else index)


def _turned(held: list[list[UOp]]) -> list[list[UOp]]:
    return [list(each) for each in zip(*held, strict=True)]
