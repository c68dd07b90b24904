"""The steps of a warp that multiply matrices: fragments, tiles, and products in flight.

Products of 16-bit floats are exact in float64; 16 of them are summed there in order of k, the
accumulator is added, and the sum is rounded to its dtype: so every instruction gives the same bits,
whatever its shape. Products of float64 are summed so in NumPy's widest float. Hardware sums in an
order and width of its own. Sums of integers wrap to int32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from tinytensor.dtype import DType
from tinytensor.ops.attrs_blocks import TileMmaAttrs
from tinytensor.ops.block_accesses import require_stage
from tinytensor.ops.block_control import require_written
from tinytensor.ops.block_memory import PRODUCTS, TF32_BITS, Access
from tinytensor.ops.block_sync import FENCED, SEEN
from tinytensor.ops.block_warp import LANES, Warp
from tinytensor.ops.fragments import (
    GROUP_WARPS,
    WARP_THREADS,
    a_position,
    accumulator_position,
    b_position,
    c_position,
    ldmatrix_position,
    mma_shape,
)
from tinytensor.ops.interpret import Array, from_storage
from tinytensor.ops.op import Op
from tinytensor.ops.tile import CHUNK_BYTES, element_index
from tinytensor.ops.uop import UOp

Place = tuple[int, int, int]  # stage, row, column

K_STEP = 16
REGISTER_BYTES = 4
MATRIX_ROWS = 8


def multiply_add(x: Array, y: Array, z: Array) -> Array:
    """Return x (m, k) @ y (k, n) + z (m, n), in z's dtype after every 16 of k."""
    if z.dtype == np.int32:  # far below the 53 bits of float64, which the factors come in
        return (x @ y + z).astype(np.int64).astype(np.int32)
    wide = np.dtype(np.longdouble if z.dtype == np.float64 else np.float64)
    x = x.astype(wide)
    y = y.astype(wide)
    with np.errstate(all="ignore"):
        for begin in range(0, x.shape[1], K_STEP):
            total: Array = np.zeros(z.shape, wide)
            for k in range(begin, min(begin + K_STEP, x.shape[1])):
                total += x[:, k, None] * y[k]
            z = (total + z).astype(z.dtype)
    return z


# Fragments of one warp.
def _ldmatrix(warp: Warp, node: UOp, index: Array) -> Array:
    warp.require_whole(node)
    source = node.operands[0]
    per_row = CHUNK_BYTES // source.dtype.itemsize
    spot = warp.locate(node, source, index, per_row, LANES)
    spot.require_aligned(CHUNK_BYTES)
    found = spot.read(warp.access()).view(np.uint16)
    matrices = found.reshape(4, MATRIX_ROWS, MATRIX_ROWS).astype(np.uint32)
    low, high = (
        matrices[:, *ldmatrix_position(LANES, half, node.attrs.transposed)] for half in (0, 1)
    )
    return np.ascontiguousarray((low | high << np.uint32(16)).T)


def _mma(warp: Warp, node: UOp, x: Array, y: Array, z: Array) -> Array:
    warp.require_whole(node)
    shape = mma_shape(node.attrs.instruction)
    held = max(1, REGISTER_BYTES // shape.a.itemsize)
    a = _gather(_unpacked(x, shape.a), partial(a_position, held=held), (shape.m, shape.k))
    b = _gather(_unpacked(y, shape.b), partial(b_position, held=held), (shape.k, shape.n))
    c = _gather(z, c_position, (shape.m, shape.n))
    product = multiply_add(a, b, c.astype(shape.accumulate.value_numpy))
    registers = range(z.shape[1])
    sums = [product[c_position(LANES, register)] for register in registers]
    return np.stack(sums, axis=1)


def _unpacked(packed: Array, dtype: DType) -> Array:
    """Return the elements that registers hold, the lowest of each first."""
    stored = np.ascontiguousarray(packed.reshape(LANES.size, -1))
    return from_storage(stored.view(dtype.storage_numpy), dtype)


def _gather(
    held: Array, position: Callable[..., tuple[Array, Array]], shape: tuple[int, int]
) -> Array:
    """Return the matrix whose elements lanes hold, element e of each at position(lane, e)."""
    matrix = np.full(shape, np.nan)
    for element in range(held.shape[1]):
        matrix[position(LANES, element)] = held[:, element]
    return matrix


# Tiles.
def _tile_mma(warp: Warp, node: UOp, x_stage: Array, y_stage: Array) -> None:
    _, x, _, y, _ = node.operands
    attrs = node.attrs
    stages = warp.agree(node, x_stage, y_stage)
    for tile, stage in zip((x, y), stages, strict=True):
        require_stage(warp, node, tile, stage)
    m = x.attrs.rows if attrs.a_k_major else x.attrs.columns
    n = y.attrs.rows if attrs.b_k_major else y.attrs.columns
    k = x.attrs.columns if attrs.a_k_major else x.attrs.rows
    thread = (warp.number - warp.role_warps[0]) * WARP_THREADS + LANES
    by = warp.start(PRODUCTS, SEEN)
    operands = _reader(warp, node, [(stage, 0, 0) for stage in stages], k, by)
    _accumulate(warp, node, attrs, (m, n), thread, operands, by)
    warp.groups[PRODUCTS].commit()


def _wgmma(warp: Warp, node: UOp, x_index: Array, y_index: Array, adds: Array) -> None:
    warp.require_whole(node)
    accumulator, x, _, y = node.operands[:4]
    attrs = node.attrs
    shape = mma_shape(attrs.instruction)
    if warp.role_warps[0] % GROUP_WARPS:
        raise warp.refuse(node, "a warpgroup begins at a multiple of 4 warps")
    if not warp.registers[accumulator].fenced:
        raise warp.refuse(node, "the accumulator was used since the last WGMMA_FENCE")
    layout = TileMmaAttrs(0, node.attrs.instruction, GROUP_WARPS, 1, True, True)
    thread = warp.number % GROUP_WARPS * WARP_THREADS + LANES
    by = warp.start(PRODUCTS, FENCED)
    starts = warp.same(node, x_index) + attrs.a_ahead, warp.same(node, y_index) + attrs.b_ahead
    place_x = _block_place(warp, node, x, starts[0], attrs.a_k_major)
    place_y = _block_place(warp, node, y, starts[1], attrs.b_k_major)
    if not warp.same(node, adds):
        register = warp.registers[accumulator]
        register.values = np.zeros_like(register.values)
        register.written = np.ones_like(register.written)
    operands = _reader(warp, node, [place_x, place_y], shape.k, by)
    _accumulate(warp, node, layout, (shape.m, shape.n), thread, operands, by)


def _reader(
    warp: Warp, node: UOp, places: Sequence[Place], depth: int, by: Access
) -> Callable[[Array, Array], tuple[Array, Array]]:
    """Return what reads some rows and columns of the blocks that begin at places of x and y."""
    _, x, _, y, *_ = node.operands
    k = np.arange(depth)

    def operands(rows: Array, columns: Array) -> tuple[Array, Array]:
        a = _read_tile(warp, node, x, places[0], rows, k, node.attrs.a_k_major, by)
        return a, _read_tile(warp, node, y, places[1], columns, k, node.attrs.b_k_major, by).T

    return operands


def _block_place(warp: Warp, node: UOp, tile: UOp, index: int, k_major: bool) -> Place:
    """Return (stage, row, column) of a block's first element, from its index before the swizzle.

    Rows along k begin anywhere: the swizzle looks at addresses, and tiles begin where it repeats.
    """
    row, column = divmod(index, tile.attrs.columns)
    stage, row = divmod(row, tile.attrs.rows)
    require_stage(warp, node, tile, stage)
    if (row % MATRIX_ROWS and not k_major) or column * tile.dtype.itemsize % CHUNK_BYTES:
        raise warp.refuse(node, f"row {row} or column {column} is none a block begins at")
    return stage, row, column


def _read_tile(
    warp: Warp,
    node: UOp,
    tile: UOp,
    place: Place,
    outer: Array,
    k: Array,
    k_major: bool,
    by: Access,
) -> Array:
    """Return the elements (outer, k) of the block that begins at a place of a tile."""
    stage, row, column = place
    first, second = np.meshgrid(outer, k, indexing="ij")
    rows, columns = (first, second) if k_major else (second, first)
    further = rows // tile.attrs.rows if k_major else columns // tile.attrs.columns
    rows, columns = rows % tile.attrs.rows, columns % tile.attrs.columns
    index = element_index(tile, stage + further, rows + row, columns + column)
    lanes = np.zeros(index.size, np.int64)
    outside = (columns + column >= tile.attrs.columns) | (rows + row >= tile.attrs.rows)
    if outside.any():
        raise warp.refuse(node, f"the block at {place} leaves its tile")
    spot = warp.locate(node, tile, index.reshape(-1), 1, lanes)
    found = spot.read(by).view(tile.dtype.storage_numpy)
    if tile.dtype.bits == 32:
        found = (found.view(np.uint32) & TF32_BITS).view(np.float32)
    values = from_storage(found, tile.dtype).reshape(index.shape)
    return values.astype(np.float64)


def _accumulate(
    warp: Warp,
    node: UOp,
    layout: TileMmaAttrs,
    extents: tuple[int, int],
    thread: Array,
    operands: Callable[[Array, Array], tuple[Array, Array]],
    by: Access,
) -> None:
    """Add a product to the part of an accumulator that a warp's threads hold."""
    register = warp.registers[node.operands[0]]
    require_written(warp, node, register)
    count = register.values.shape[1]
    places = [accumulator_position(layout, *extents, thread, each) for each in range(count)]
    rows, row = _number(np.stack([place[0] for place in places], axis=1))
    columns, column = _number(np.stack([place[1] for place in places], axis=1))
    matrix = np.zeros((rows.size, columns.size), register.values.dtype)
    matrix[row, column] = register.values
    a, b = operands(rows, columns)
    register.values = multiply_add(a, b, matrix)[row, column]
    register.product = by.time


def _number(coordinates: Array) -> tuple[Array, Array]:
    """Return the coordinates that occur, ascending, and which of them each is."""
    occurring, number = np.unique(coordinates, return_inverse=True)
    return occurring, number.reshape(coordinates.shape)


def _wgmma_fence(warp: Warp, node: UOp) -> None:
    warp.require_whole(node)
    for each in node.operands:
        warp.registers[each].fenced = True


PRODUCT_STEPS: dict[Op, Callable[..., Array | None]] = {
    Op.LDMATRIX: _ldmatrix,
    Op.MMA: _mma,
    Op.TILE_MMA: _tile_mma,
    Op.WGMMA: _wgmma,
    Op.WGMMA_FENCE: _wgmma_fence,
}
