"""The steps of a warp that move memory: loads, stores, asynchronous copies and bulk copies."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from tinytensor.ops.block_memory import BULK_STORES, COPIES, TF32_BITS, Access
from tinytensor.ops.block_sync import FENCED, SEEN
from tinytensor.ops.block_waits import find_mbarrier
from tinytensor.ops.block_warp import Launch, Warp
from tinytensor.ops.fragments import WARP_THREADS
from tinytensor.ops.interpret import Array, from_storage, to_storage
from tinytensor.ops.op import Op
from tinytensor.ops.tile import CHUNK_BYTES, element_index, stage_bytes
from tinytensor.ops.uop import UOp
from tinytensor.records import dataclass


def _load(warp: Warp, node: UOp, index: Array, *guard: Array) -> Array:
    dtype, valid = node.dtype, node.attrs.valid
    stored = np.zeros((WARP_THREADS, dtype.lanes), dtype.storage_numpy)
    lanes = _lanes_here(warp, *guard)
    if lanes.size:
        spot = warp.locate(node, node.operands[0], index[lanes], valid, lanes)
        spot.require_aligned(dtype.lanes * dtype.itemsize)
        found = spot.read(warp.access())
        stored[lanes, :valid] = found.view(dtype.storage_numpy)
    values = from_storage(stored, dtype)
    return values if dtype.lanes > 1 else values[:, 0]


def _store(warp: Warp, node: UOp, index: Array, value: Array, *guard: Array) -> None:
    buffer, _, operand = node.operands[:3]
    dtype, valid = operand.dtype, node.attrs.valid
    lanes = _lanes_here(warp, *guard)
    if lanes.size:
        spot = warp.locate(node, buffer, index[lanes], valid, lanes)
        spot.require_aligned(dtype.lanes * dtype.itemsize)
        stored = to_storage(value, dtype).reshape(WARP_THREADS, -1)
        contents = np.ascontiguousarray(stored[lanes, :valid])
        spot.write(contents.view(np.uint8), warp.access())


def _lanes_here(warp: Warp, *guard: Array) -> Array:
    here = warp.mask
    for each in guard:
        here = here & each
    return np.flatnonzero(here)


@dataclass(frozen=True, slots=True)
class Elements:
    """Elements to move: where each goes, where it comes from (if `inside`), and whose lane does."""

    target: Array
    source: Array
    inside: Array
    lanes: Array


def _move(warp: Warp, node: UOp, target: UOp, source: UOp, moved: Elements, by: Access) -> None:
    """Copy elements between two buffers; what is not inside the source becomes 0."""
    inside = moved.inside
    contents = np.zeros((inside.size, target.dtype.itemsize), np.uint8)
    if inside.any():
        start, lanes = moved.source[inside], moved.lanes[inside]
        spot = warp.locate(node, source, start, 1, lanes)
        found = spot.read(by if source.op is Op.TILE else warp.access())
        rounds = source.op is Op.TENSOR_MAP and source.attrs.rounds
        contents[inside] = _to_tf32(found) if rounds else found
    spot = warp.locate(node, target, moved.target, 1, moved.lanes)
    spot.write(contents, by)


def _to_tf32(found: Array) -> Array:
    """Round float32 to 10 bits of the fraction, to nearest even; NaN and infinities stay."""
    bits = found.view(np.uint32)
    is_odd = bits >> np.uint32(13) & np.uint32(1)
    rounded = bits + np.uint32(0xFFF) + is_odd
    is_finite = np.isfinite(found.view(np.float32))
    return np.where(is_finite, rounded & TF32_BITS, bits).view(np.uint8)


# Copies by threads.
def _copy_async(warp: Warp, node: UOp, index: Array, start: Array, valid: Array) -> None:
    target, _, source = node.operands[:3]
    count = node.attrs.elements
    nbytes = count * target.dtype.itemsize
    lanes = np.flatnonzero(warp.mask)
    warp.locate(node, target, index[lanes], count, lanes).require_aligned(nbytes)
    reading = lanes[valid[lanes] > 0]
    warp.locate(node, source, start[reading], 1, reading).require_aligned(nbytes)
    offset = np.tile(np.arange(count), lanes.size)
    lanes = np.repeat(lanes, count)
    moved = Elements(
        target=index[lanes] + offset,
        source=start[lanes] + offset,
        inside=offset < valid[lanes],
        lanes=lanes,
    )
    _move(warp, node, target, source, moved, warp.start(COPIES, SEEN))


def _tile_copy(warp: Warp, node: UOp, *operands: Array) -> None:
    tile, _, source = node.operands[:3]
    stage, start, rows, columns = warp.agree(node, *operands)
    require_stage(warp, node, tile, stage)
    _require_promise(warp, node, start, columns)
    per_row = tile.attrs.columns
    # Which thread moves a chunk is nobody's business: readers wait for all of them.
    element = np.arange(tile.attrs.rows * per_row)
    chunk = element // (CHUNK_BYTES // tile.dtype.itemsize)
    thread = chunk % node.attrs.threads
    mine = thread // WARP_THREADS == warp.number - warp.role_warps[0]
    element = element[mine]
    row, column = element // per_row, element % per_row
    moved = Elements(
        target=element_index(tile, np.full(element.size, stage), row, column),
        source=start + row * node.attrs.row_stride + column,
        inside=(row < rows) & (column < columns),
        lanes=thread[mine] % WARP_THREADS,
    )
    _move(warp, node, tile, source, moved, warp.start(COPIES, SEEN))


def require_stage(warp: Warp, node: UOp, tile: UOp, stage: int) -> None:
    """Refuse a stage that the tile does not have."""
    if not 0 <= stage < tile.attrs.stages:
        raise warp.refuse(node, f"stage {stage} is not below {tile.attrs.stages}")


def _require_promise(warp: Warp, node: UOp, start: int, columns: int) -> None:
    """Refuse a copy whose elements are not aligned, or valid together, as its attrs promise."""
    width = node.attrs.access_elements
    promised = [start, node.attrs.row_stride, max(columns, 0)]
    if any([number % width for number in promised]):
        sentence = f"{width} does not divide start, row_stride, columns: {promised}"
        raise warp.refuse(node, sentence)


# Bulk copies. The engine reads and writes at once here; who does not wait for it is refused.
@dataclass(frozen=True, slots=True)
class Box:
    """Where a box of a tensor map begins, the stage of the tile that holds it, and who asks."""

    stage: int
    places: tuple[int, ...]
    lane: int

    def elements(self, tile: UOp, tensor_map: UOp, launch: Launch) -> Elements:
        """Return its elements: their places in the tile, and in the map's buffer."""
        attrs = tensor_map.attrs
        shape = launch.shape_of(tensor_map)
        within = [each.reshape(-1) for each in np.indices(attrs.box[::-1])[::-1]]
        size = math.prod(attrs.box)
        r, c = np.divmod(np.arange(size), attrs.box[0])
        target = element_index(tile, np.full(size, self.stage), r, c)
        inside = np.ones(size, np.bool_)
        source = np.full(size, attrs.offset)
        steps = attrs.steps or (1,) * len(attrs.box)
        axes = zip(within, steps, self.places, shape, (1, *attrs.strides), strict=True)
        for number, step, begin, extent, stride in axes:
            at = number * step + begin
            inside &= at >= 0
            inside &= at < extent
            source += at * stride
        return Elements(target, source, inside, np.full(size, self.lane))


def _bulk_load(warp: Warp, node: UOp, stage: Array, number: Array, *places: Array) -> None:
    tile, _, tensor_map, barriers = node.operands[:4]
    box = _asked_box(warp, node, tile, stage, places)
    mbarrier = find_mbarrier(warp, node, barriers, int(number[box.lane]))
    mbarrier.time += 1
    time, block = mbarrier.time, warp.block
    clock = warp.clock.copy()
    by = Access(mbarrier.agent, time, clock[FENCED], clock[SEEN], block.number)
    moved = box.elements(tile, tensor_map, block.launch)
    _move(warp, node, tile, tensor_map, moved, by)
    block.landing.append(partial(mbarrier.complete, stage_bytes(tile), time))


def _bulk_store(warp: Warp, node: UOp, stage: Array, *places: Array) -> None:
    tensor_map, tile = node.operands[:2]
    box = _asked_box(warp, node, tile, stage, places)
    loaded = box.elements(tile, tensor_map, warp.block.launch)
    inside = loaded.inside
    stored = Elements(
        target=loaded.source[inside],
        source=loaded.target[inside],
        inside=inside[inside],
        lanes=loaded.lanes[inside],
    )
    _move(warp, node, tensor_map, tile, stored, warp.start(BULK_STORES, FENCED))


def _asked_box(warp: Warp, node: UOp, tile: UOp, stage: Array, places: Sequence[Array]) -> Box:
    lane = warp.single_lane(node)
    box = Box(int(stage[lane]), tuple([int(each[lane]) for each in places]), lane)
    require_stage(warp, node, tile, box.stage)
    if box.places[0] * tile.dtype.itemsize % CHUNK_BYTES:
        raise warp.refuse(node, f"a box begins amid {CHUNK_BYTES} bytes, at {box.places}")
    return box


ACCESS_STEPS: dict[Op, Callable[..., Array | None]] = {
    Op.LOAD: _load,
    Op.STORE: _store,
    Op.COPY_ASYNC: _copy_async,
    Op.TILE_COPY: _tile_copy,
    Op.BULK_LOAD: _bulk_load,
    Op.BULK_STORE: _bulk_store,
}
