"""The addresses of a tile in shared memory: the one place that knows the swizzle."""

from __future__ import annotations

from typing import Any

from tinytensor.ops.attrs_blocks import TileAttrs
from tinytensor.ops.uop import UOp

Index = Any  # an integer node or an array of ints: operators alone are used
CHUNK_BYTES = 16
BANK_ROW_BYTES = 128


def row_bytes(tile: UOp) -> int:
    """Return the bytes of one row of a tile."""
    columns: int = tile.attrs.columns
    return columns * tile.dtype.itemsize


def stage_bytes(tile: UOp) -> int:
    """Return the bytes of one stage of a tile's ring."""
    rows: int = tile.attrs.rows
    return rows * row_bytes(tile)


def tile_bytes(tile: UOp) -> int:
    """Return the bytes of all stages."""
    stages: int = tile.attrs.stages
    return stages * stage_bytes(tile)


def element_index(tile: UOp, stage: Index, row: Index, column: Index) -> Index:
    """Return the index, in elements from the tile's start, of one element (or of an array)."""
    return stage * (tile.attrs.rows * tile.attrs.columns) + place_in_stage(tile, row, column)


def place_in_stage(tile: UOp, row: Index, column: Index) -> Index:
    """Return the index, in elements from its stage's start, of one element.

    Swizzled, the 16-byte chunks of rows of 128 bytes trade places by row % 8, of 64 bytes by
    (row / 2) % 4, of 32 bytes by (row / 4) % 2: as the bulk copy engine has them.
    Source: PTX ISA, swizzling modes of cp.async.bulk.tensor.
    """
    attrs: TileAttrs = tile.attrs
    start = row * attrs.columns
    if not attrs.swizzle:
        return start + column
    bytes_of_row = row_bytes(tile)
    per_chunk = CHUNK_BYTES // tile.dtype.itemsize
    chunks = min(bytes_of_row, BANK_ROW_BYTES) // CHUNK_BYTES
    rows_per_bank_row = max(1, BANK_ROW_BYTES // bytes_of_row)
    turn = (row // rows_per_bank_row) % chunks
    moved = ((column // per_chunk) ^ turn) * per_chunk
    return start + moved + column % per_chunk
