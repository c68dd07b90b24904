"""Turns a block's number into the tile it computes, so that neighbors share what they read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tinytensor.codegen.block_builder import BlockBuilder
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp, binary, where


@dataclass(frozen=True, slots=True)
class Raster:
    """Tiles of a product: tiles_m x tiles_n for each value of the `outer` ranges.

    `group` rows of tiles are walked together, column by column, so that the blocks that run at one
    time read few rows of a and few columns of b. Of a symmetric product, which has as many of both,
    only the tiles on and below the diagonal are walked: the rows of the lower half, each followed
    by the one of the upper half that fills it up to `columns`.
    """

    outer: tuple[UOp, ...]
    tiles_m: int
    tiles_n: int
    group: int
    is_symmetric: bool = False

    @property
    def rows(self) -> int:
        """Rows of tiles as they are walked."""
        return (self.tiles_m + 1) // 2 if self.is_symmetric else self.tiles_m

    @property
    def columns(self) -> int:
        """Tiles of a row as it is walked."""
        return self.tiles_n + 1 - self.tiles_m % 2 if self.is_symmetric else self.tiles_n

    @property
    def blocks(self) -> int:
        """How many blocks compute the whole."""
        count = self.rows * self.columns
        for each in self.outer:
            count *= each.extent
        return count


@dataclass(frozen=True, slots=True)
class BlockPlace:
    """The values of the outer ranges in this block, and the row and column of its tile in tiles."""

    outer: dict[UOp, UOp]
    tile_m: UOp
    tile_n: UOp


def place_block(b: BlockBuilder, raster: Raster) -> BlockPlace:
    """Find this block's tile from its number."""
    return place_tile(b, raster, b.block(0))


def place_tile(b: BlockBuilder, raster: Raster, number: UOp) -> BlockPlace:
    """Find a tile from its number."""
    number, tile = divided(b, number, raster.rows * raster.columns)
    outer = _outer_places(b, number, raster.outer)
    group = min(raster.group, raster.rows)
    number, within = divided(b, tile, group * raster.columns)
    first = b.value(number * group)
    rows = b.index(group)
    if raster.rows % group:
        rows = b.value(binary(Op.MIN, b.index(raster.rows) - first, group))
    tile_m = b.value(first + binary(Op.TRUNCMOD, within, rows))
    tile_n = b.value(binary(Op.TRUNCDIV, within, rows))
    return BlockPlace(outer, *(_unfold(b, raster, tile_m, tile_n)))


def _unfold(b: BlockBuilder, raster: Raster, row: UOp, column: UOp) -> tuple[UOp, UOp]:
    """Return the tile at a place of the walk: below the diagonal row `last - row` comes first."""
    if not raster.is_symmetric:
        return row, column
    last = raster.tiles_m - 1
    lower = b.value(b.index(last) - row)
    is_lower = b.value(column < lower + 1)
    upper = row + (raster.columns - raster.tiles_m - 1)
    tile_m = b.value(where(is_lower, lower, upper))
    return tile_m, b.value(where(is_lower, column, column - lower - 1))


def _outer_places(b: BlockBuilder, number: UOp, outer: Sequence[UOp]) -> dict[UOp, UOp]:
    places: dict[UOp, UOp] = {}
    for each in reversed(outer):
        number, places[each] = divided(b, number, each.extent)
    return places


def divided(b: BlockBuilder, number: UOp, divisor: int) -> tuple[UOp, UOp]:
    """Return quotient and remainder of a number that is not negative."""
    quotient = b.value(binary(Op.TRUNCDIV, number, divisor))
    return quotient, b.value(binary(Op.TRUNCMOD, number, divisor))
