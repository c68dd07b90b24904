"""Turns a block's number into the tile it computes, so that neighbors share what they read."""

from __future__ import annotations

from collections.abc import Sequence

from tinytensor.codegen.block_builder import BlockBuilder
from tinytensor.codegen.plans.amounts import amount
from tinytensor.ops.op import Op
from tinytensor.ops.simplify_index import simplify_index
from tinytensor.ops.uop import UOp, binary, exact_extent, index_const, where
from tinytensor.records import dataclass


@dataclass(frozen=True, slots=True)
class Raster:
    """Tiles of a product: tiles_m x tiles_n for each value of the `outer` ranges.

    Counts of tiles are index expressions: they may be known only at launch.

    `group` rows of tiles are walked together, column by column, so that the blocks that run at one
    time read few rows of a and few columns of b. Of a symmetric product, which has as many of both,
    only the tiles on and below the diagonal are walked: the rows of the lower half, each followed
    by the one of the upper half that fills it up to `columns`.
    """

    outer: tuple[UOp, ...]
    tiles_m: UOp
    tiles_n: UOp
    group: int
    is_symmetric: bool = False

    @property
    def rows(self) -> UOp:
        """Rows of tiles as they are walked."""
        return simplify_index((self.tiles_m + 1) // 2) if self.is_symmetric else self.tiles_m

    @property
    def columns(self) -> UOp:
        """Tiles of a row as it is walked."""
        return simplify_index(self.tiles_n + self.further) if self.is_symmetric else self.tiles_n

    @property
    def further(self) -> UOp:
        """By how many tiles a row of a symmetric product is longer than a row of its tiles."""
        return simplify_index(index_const(1) - self.tiles_m % 2)

    @property
    def blocks(self) -> UOp:
        """How many blocks compute the whole."""
        count = self.rows * self.columns
        for each in self.outer:
            count = count * exact_extent(each)
        return simplify_index(count)


@dataclass(frozen=True, slots=True)
class BlockPlace:
    """The values of the outer ranges in this block, and the row and column of its tile in tiles."""

    outer: dict[UOp, UOp]
    tile_m: UOp
    tile_n: UOp


def place_tile(b: BlockBuilder, raster: Raster, number: UOp) -> BlockPlace:
    """Find a tile from its number."""
    all_rows, columns = raster.rows, raster.columns
    walked = simplify_index(binary(Op.MIN, all_rows, raster.group))
    number, tile = divided(b, number, amount(b, simplify_index(all_rows * columns)))
    outer = _outer_places(b, number, raster.outer)
    group = amount(b, walked)
    number, within = divided(b, tile, amount(b, simplify_index(walked * columns)))
    first = b.value(number * group)
    rows = group
    if simplify_index(all_rows % walked) is not index_const(0):
        rows = b.value(binary(Op.MIN, amount(b, all_rows) - first, group))
    tile_m = b.value(first + binary(Op.TRUNCMOD, within, rows))
    tile_n = b.value(binary(Op.TRUNCDIV, within, rows))
    return BlockPlace(outer, *(_unfold(b, raster, tile_m, tile_n)))


def _unfold(b: BlockBuilder, raster: Raster, row: UOp, column: UOp) -> tuple[UOp, UOp]:
    """Return the tile at a place of the walk: below the diagonal row `last - row` comes first."""
    if not raster.is_symmetric:
        return row, column
    last = amount(b, simplify_index(raster.tiles_m - 1))
    lower = b.value(last - row)
    is_lower = b.value(column < lower + 1)
    upper = row + amount(b, simplify_index(raster.further - 1))
    tile_m = b.value(where(is_lower, lower, upper))
    return tile_m, b.value(where(is_lower, column, column - lower - 1))


def _outer_places(b: BlockBuilder, number: UOp, outer: Sequence[UOp]) -> dict[UOp, UOp]:
    places: dict[UOp, UOp] = {}
    for each in reversed(outer):
        number, places[each] = divided(b, number, amount(b, exact_extent(each)))
    return places


def divided(b: BlockBuilder, number: UOp, divisor: UOp | int) -> tuple[UOp, UOp]:
    """Return quotient and remainder of a number that is not negative.

    By powers of two the remainder is some of its bits: NVRTC 13.0 takes constants from addresses
    that are made of it, and leaves them in others (two instructions for each access).
    """
    quotient = b.value(binary(Op.TRUNCDIV, number, divisor))
    if isinstance(divisor, int) and divisor.bit_count() == 1:
        return quotient, b.value(binary(Op.AND, number, divisor - 1))
    return quotient, b.value(binary(Op.TRUNCMOD, number, divisor))
