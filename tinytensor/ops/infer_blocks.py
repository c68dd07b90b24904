"""Refuses nodes of a thread block (places, shared memory, copies, products) that are ill formed."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from tinytensor.dtype import DType, dtypes
from tinytensor.ops.fragments import (
    GROUP_WARPS,
    WARP_THREADS,
    MmaShape,
    accumulator_registers,
    mma_shape,
)
from tinytensor.ops.op import Op
from tinytensor.ops.well_formed import check

if TYPE_CHECKING:
    from tinytensor.ops.uop import UOp

Shape = tuple[int, ...]
PLACES = ("thread", "warp", "block_x", "block_y", "block_z")
INDICES = (dtypes.int32, dtypes.int64)
GLOBAL = (Op.PARAM, Op.WORKSPACE)
ON_CHIP = (Op.SHARED, Op.TILE)
TILE_ALIGNMENT_BYTES = 1024  # the period of the swizzle, and what matrix descriptors ask for
COPY_BYTES = (4, 8, 16)
BARRIER_NUMBERS = 16
BOX_LIMIT = 256
STEP_LIMIT = 8
RANKS = range(2, 6)  # of tensor maps
SWIZZLE_BYTES = (0, 32, 64, 128)


def _count(node: UOp, first: int = 0) -> None:
    least = len([name for name in node.op.operands if name[-1] not in "*?"])
    check(len(node.operands) == least, node, "has another number of operands")
    integers = all([each.dtype in INDICES for each in node.operands[first:]])
    check(not first or integers, node, "places and counts are int32 or int64")


def _effect(node: UOp) -> Shape:
    _count(node)
    check(node.dtype is dtypes.void, node, "has no value: dtype void")
    return ()


def _on(kind: Op, sentence: str) -> Callable[[UOp], Shape]:
    """Return the rule of an effect on a node of one op, all other operands being integers."""

    def rule(node: UOp) -> Shape:
        _count(node, first=1)
        check(node.dtype is dtypes.void, node, "has no value: dtype void")
        check(node.operands[0].op is kind, node, sentence)
        return ()

    return rule


def _wait(node: UOp) -> Shape:
    check(node.attrs.pending >= 0, node, "leaves a negative number of groups")
    return _effect(node)


# Who runs, and shared memory.
def _place(node: UOp) -> Shape:
    _count(node)
    check(node.dtype is dtypes.int32, node, "is an int32")
    known = node.attrs.kind in PLACES and node.attrs.extent >= 1
    check(known, node, f"coordinates are {', '.join(PLACES)}, of extent 1 or more")
    return ()


def _region(node: UOp, alignment: int, elements: int) -> None:
    _count(node)
    offset = node.attrs.offset_bytes
    check(node.dtype.lanes == 1 and node.dtype.kind not in ("void", "index"), node, "no element")
    check(elements >= 1, node, "holds no element")
    check(offset >= 0 and offset % alignment == 0, node, f"is aligned to {alignment} bytes")


def _shared(node: UOp) -> Shape:
    _region(node, node.dtype.itemsize, node.attrs.elements)
    return ()


def _tile(node: UOp) -> Shape:
    attrs = node.attrs
    _region(node, TILE_ALIGNMENT_BYTES, min(attrs.rows, attrs.columns, attrs.stages))
    row_bytes = attrs.columns * node.dtype.itemsize
    fits = row_bytes in (32, 64) or row_bytes % 128 == 0
    check(fits or not attrs.swizzle, node, "a swizzled row has 32, 64 or a multiple of 128 bytes")
    whole = attrs.rows * row_bytes % TILE_ALIGNMENT_BYTES == 0
    check(whole or not attrs.swizzle, node, "a swizzled stage is a multiple of 1024 bytes")
    return ()


def _mbarriers(node: UOp) -> Shape:
    check(node.dtype is dtypes.uint64, node, "is an uint64 each")
    _region(node, 8, min(node.attrs.count, node.attrs.arrivals))
    return ()


def _tensor_map(node: UOp) -> Shape:
    attrs, itemsize = node.attrs, node.dtype.itemsize
    _count(node)
    (buffer,) = node.operands
    seen = buffer.op in GLOBAL and buffer.dtype is node.dtype
    check(seen, node, "sees global memory, in its dtype")
    rank = len(attrs.shape)
    agree = rank in RANKS and len(attrs.box) == rank and len(attrs.strides) == rank - 1
    check(agree, node, "describes rows and columns, and up to 3 axes around them")
    check(min(*attrs.shape, *attrs.box) >= 1, node, "is empty")
    check(not attrs.rounds or node.dtype is dtypes.float32, node, "rounds float32 alone")
    steps = attrs.steps or (1,) * rank
    stepping = len(steps) == rank and steps[0] == 1 and 1 <= min(steps) <= max(steps) <= STEP_LIMIT
    check(stepping, node, f"steps are 1 to {STEP_LIMIT}, along the innermost axis 1")
    spans = [extent * step for extent, step in zip(attrs.box, steps, strict=True)]
    check(max(spans) <= BOX_LIMIT, node, f"a box has at most {BOX_LIMIT} elements a side")
    starts = [each * itemsize % 16 for each in (attrs.offset, *attrs.strides)]
    check(not any(starts), node, "16 bytes divide the offset and the stride of each axis")
    box_bytes = attrs.box[0] * itemsize
    check(box_bytes % 16 == 0, node, "16 bytes divide a row of the box")
    known = attrs.swizzle_bytes in SWIZZLE_BYTES
    suits = not attrs.swizzle_bytes or box_bytes == attrs.swizzle_bytes
    check(known and suits, node, "a swizzle is that of the box's row: 32, 64 or 128 bytes")
    return ()


# Threads together.
def _barrier(node: UOp) -> Shape:
    attrs = node.attrs
    check(0 <= attrs.number < BARRIER_NUMBERS, node, f"numbers are below {BARRIER_NUMBERS}")
    check(attrs.threads >= 32 and attrs.threads % 32 == 0, node, "awaits whole warps, one or more")
    check(node.dtype is dtypes.void, node, "has no value: dtype void")
    grouped = len(node.operands) == 0 or len(node.operands) == 1 and attrs.number > 0
    check(grouped and _are_indices(*node.operands), node, "named ones alone have groups, integers")
    return ()


def _exchange(node: UOp) -> Shape:
    _count(node)
    check(node.operands[0].dtype is node.dtype, node, "dtypes differ")
    check(node.dtype.lanes == 1, node, "exchanges one value a thread")
    check(0 <= node.attrs.distance < 32, node, "distances are 0 to 31")
    return ()


def _role(node: UOp) -> Shape:
    attrs = node.attrs
    check(attrs.warps >= 1 and attrs.first_warp >= 0, node, "is run by no warp")
    check(attrs.name.isidentifier(), node, "is named by one word")
    check(attrs.registers % 8 == 0 and attrs.registers >= 0, node, "budgets are multiples of 8")
    return _effect(node)


def _copy_async(node: UOp) -> Shape:
    _effect(node)
    target, index, source, start, valid = node.operands
    check(target.op in ON_CHIP and source.op in GLOBAL, node, "copies from global to shared")
    check(target.dtype is source.dtype, node, "dtypes differ")
    check(_are_indices(index, start, valid), node, "places and counts are int32 or int64")
    moved = node.attrs.elements * target.dtype.itemsize
    check(moved in COPY_BYTES, node, "moves 4, 8 or 16 bytes")
    return ()


def _are_indices(*nodes: UOp) -> bool:
    return all([each.dtype in INDICES for each in nodes])


# Matrix instructions of a warp.
def _ldmatrix(node: UOp) -> Shape:
    _count(node, first=1)
    source = node.operands[0]
    check(source.op in ON_CHIP, node, "reads shared memory")
    check(source.dtype.bits in (8, 16), node, "reads elements of 8 or 16 bits")
    check(node.dtype is dtypes.uint32.vector(4), node, "gives uint32x4")
    return ()


def _mma(node: UOp) -> Shape:
    _count(node)
    shape = mma_shape(node.attrs.instruction)
    check(shape.m <= 16, node, "is an instruction of one warp")
    x, y, z = (each.dtype for each in node.operands)
    left, right = shape.fragment(shape.m * shape.k), shape.fragment(shape.k * shape.n)
    packed = x is left and y is right
    check(packed, node, f"takes fragments {left.name} and {right.name}")
    sums = shape.accumulate.vector(shape.m * shape.n // WARP_THREADS)
    check(z is node.dtype is sums, node, f"adds to {sums.name}")
    return ()


# Tiles.
def _tile_copy(node: UOp) -> Shape:
    _effect(node)
    tile, stage, source, start, rows, columns = node.operands
    attrs = node.attrs
    check(tile.op is Op.TILE and source.op in GLOBAL, node, "copies from global into a tile")
    check(tile.dtype is source.dtype, node, "dtypes differ")
    check(_are_indices(stage, start, rows, columns), node, "places are int32 or int64")
    check(attrs.threads >= 32 and attrs.threads % 32 == 0, node, "is run by whole warps")
    divides = attrs.access_elements >= 1 and tile.attrs.columns % attrs.access_elements == 0
    check(divides, node, "accesses divide a row of the tile")
    return ()


def _tile_mma(node: UOp) -> Shape:
    _effect(node)
    accumulator, x, x_stage, y, y_stage = node.operands
    attrs = node.attrs
    shape = mma_shape(attrs.instruction)
    check(_are_indices(x_stage, y_stage), node, "stages are int32 or int64")
    _check_products(node, shape, x, y)
    m, k = _turn(x, attrs.a_k_major)
    n, k_of_y = _turn(y, attrs.b_k_major)
    least_m, least_n, least_k = shape.least
    same = k == k_of_y and k % least_k == 0
    check(same, node, f"k differs, or is no multiple of {least_k}")
    along_k = attrs.a_k_major and attrs.b_k_major
    check(along_k or shape.takes_any_major, node, "rows of 8-bit factors run along k")
    units_m = attrs.warps_m * 16 // least_m
    check(attrs.warps_m * 16 % least_m == 0, node, "its warps are no whole warpgroups")
    divides = m % (units_m * least_m) == 0 and n % (attrs.warps_n * least_n) == 0
    check(divides, node, "the instruction's shape does not divide what a warp holds")
    _check_accumulator(node, accumulator, shape, accumulator_registers(attrs, m, n))
    return ()


def _turn(tile: UOp, k_major: bool) -> tuple[int, int]:
    """Return a tile's extents of (m or n, k)."""
    rows, columns = tile.attrs.rows, tile.attrs.columns
    return (rows, columns) if k_major else (columns, rows)


def _check_products(node: UOp, shape: MmaShape, x: UOp, y: UOp) -> None:
    check(x.op is Op.TILE and y.op is Op.TILE, node, "multiplies tiles")
    same = x.dtype is shape.a and y.dtype is shape.b
    check(same, node, "a tile's dtype is not the instruction's")


def _check_accumulator(node: UOp, accumulator: UOp, shape: MmaShape, registers: int) -> None:
    check(accumulator.op is Op.REGISTER, node, "accumulates in something that is no register")
    expected: DType = shape.accumulate.vector(registers)
    sentence = f"the accumulator is {accumulator.dtype.name} and must be {expected.name}"
    check(accumulator.dtype is expected, node, sentence)


def _accumulator_effect(node: UOp) -> Shape:
    check(node.dtype is dtypes.void, node, "has no value: dtype void")
    registers = [x.op is Op.REGISTER for x in node.operands]
    check(all(registers) and len(registers) > 0, node, "is about registers")
    check(node.op is not Op.MMA_WAIT or len(registers) == 1, node, "is about one register")
    if node.op is not Op.WGMMA_FENCE:
        check(node.attrs.pending >= 0, node, "leaves a negative number of groups")
    return ()


# Hopper.
def _bulk_load(node: UOp) -> Shape:
    tile, stage, tensor_map, barriers, number, *places = node.operands
    _check_box(node, tile, tensor_map, places, may_leave_rows=True)
    check(barriers.op is Op.MBARRIERS, node, "counts its bytes at something that is no barrier")
    check(_are_indices(stage, number, *places), node, "places are int32 or int64")
    return ()


def _bulk_store(node: UOp) -> Shape:
    tensor_map, tile, stage, *places = node.operands
    _check_box(node, tile, tensor_map, places)
    check(_are_indices(stage, *places), node, "places are int32 or int64")
    return ()


def _check_box(
    node: UOp, tile: UOp, tensor_map: UOp, places: list[UOp], may_leave_rows: bool = False
) -> None:
    check(node.dtype is dtypes.void, node, "has no value: dtype void")
    kinds = tile.op is Op.TILE and tensor_map.op is Op.TENSOR_MAP
    check(kinds, node, "moves something else than a tile and the box of a tensor map")
    check(tile.dtype is tensor_map.dtype, node, "dtypes differ")
    attrs = tensor_map.attrs
    rows = math.prod(attrs.box[1:])
    fills = rows <= tile.attrs.rows if may_leave_rows else rows == tile.attrs.rows
    check(fills and attrs.box[0] == tile.attrs.columns, node, "the box is no whole tile")
    check(len(places) == len(attrs.shape), node, "has a place for each axis of the map")
    swizzle = attrs.box[0] * tile.dtype.itemsize if tile.attrs.swizzle else 0
    check(attrs.swizzle_bytes == swizzle, node, "the swizzles of tile and box differ")


def _wgmma(node: UOp) -> Shape:
    _effect(node)
    accumulator, x, x_index, y, y_index, adds = node.operands
    shape = mma_shape(node.attrs.instruction)
    check(adds.dtype is dtypes.bool, node, "adds or not: a bool")
    along_k = node.attrs.a_k_major and node.attrs.b_k_major
    check(along_k or shape.takes_any_major, node, "rows of factors of 8 or 32 bits run along k")
    check(shape.m == 16 * GROUP_WARPS, node, "is an instruction of a warpgroup")
    check(_are_indices(x_index, y_index), node, "places are int32 or int64")
    _check_products(node, shape, x, y)
    for tile in (x, y):
        row_bytes = tile.attrs.columns * tile.dtype.itemsize
        legal = tile.attrs.swizzle and row_bytes in (32, 64, 128)
        check(legal, node, "reads swizzled tiles with rows of 32, 64 or 128 bytes")
    _check_accumulator(node, accumulator, shape, shape.n // 2)
    return ()


_ON_BARRIERS = _on(Op.MBARRIERS, "is about something that is no mbarrier")
BLOCK_INFER: dict[Op, Callable[[UOp], Shape]] = {
    **dict.fromkeys((Op.COPY_COMMIT, Op.BULK_COMMIT, Op.WGMMA_COMMIT), _effect),
    **dict.fromkeys((Op.PROXY_FENCE, Op.GRID_WAIT), _effect),
    **dict.fromkeys((Op.COPY_WAIT, Op.BULK_WAIT), _wait),
    **dict.fromkeys((Op.MMA_WAIT, Op.WGMMA_FENCE, Op.WGMMA_WAIT), _accumulator_effect),
    **dict.fromkeys((Op.MBARRIER_INIT, Op.MBARRIER_EXPECT), _ON_BARRIERS),
    **dict.fromkeys((Op.MBARRIER_ARRIVE, Op.MBARRIER_WAIT), _ON_BARRIERS),
    Op.PLACE: _place,
    Op.SHARED: _shared,
    Op.TILE: _tile,
    Op.MBARRIERS: _mbarriers,
    Op.TENSOR_MAP: _tensor_map,
    Op.BARRIER: _barrier,
    Op.EXCHANGE: _exchange,
    Op.ROLE: _role,
    Op.ENDROLE: _on(Op.ROLE, "closes something that is no role"),
    Op.COPY_ASYNC: _copy_async,
    Op.LDMATRIX: _ldmatrix,
    Op.MMA: _mma,
    Op.TILE_COPY: _tile_copy,
    Op.TILE_MMA: _tile_mma,
    Op.BULK_LOAD: _bulk_load,
    Op.BULK_STORE: _bulk_store,
    Op.WGMMA: _wgmma,
}
