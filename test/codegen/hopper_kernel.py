"""A small Hopper product, c = x @ w.T: a producer warp, one warpgroup, bulk copies and WGMMA.

Each field of `Protocol` is one promise of the pipeline; tests break them one at a time.
"""

from dataclasses import dataclass

from tinytensor.codegen.block_builder import BlockBuilder
from tinytensor.codegen.builder import lane, stack
from tinytensor.dtype import dtypes
from tinytensor.ops.attrs_blocks import TileMmaAttrs, WgmmaAttrs
from tinytensor.ops.fragments import accumulator_position
from tinytensor.ops.kernel import Param
from tinytensor.ops.op import Op
from tinytensor.ops.tile import element_index, stage_bytes
from tinytensor.ops.uop import cast, compare, index_const

BLOCK = 64  # rows, columns and k of a block's tile
STAGES = 2
THREADS = 160  # a warpgroup that multiplies, then a warp that loads
INSTRUCTION = "m64n64k16.f16"
LAYOUT = TileMmaAttrs(0, INSTRUCTION, 4, 1, True, True)
PANEL_BARRIER = 1


@dataclass(frozen=True)
class Protocol:
    """What keeps the pipeline in order."""

    waits_full: bool = True
    waits_empty: bool = True
    waits_product: bool = True
    fences: bool = True
    waits_store: bool = True
    releases_late: bool = True
    missing_bytes: int = 0
    empty_arrivals: int = 4


def shape_of(*extents):
    return [index_const(each) for each in extents]


def hopper_product(m, n, k, protocol=Protocol()):
    """The Linear for x (m, k) and w (n, k), float16, rounded once from a float32 sum."""
    params = [Param(dtypes.float16, m * n, True)]
    params += [Param(dtypes.float16, m * k, False), Param(dtypes.float16, n * k, False)]
    blocks = (-(-n // BLOCK), -(-m // BLOCK), 1)
    b = BlockBuilder("hopper", params, dtypes.int32, blocks, THREADS)
    x, w = (b.tile(dtypes.float16, BLOCK, BLOCK, STAGES) for _ in range(2))
    panel = b.tile(dtypes.float16, BLOCK, BLOCK)
    full = b.mbarriers(STAGES, 1)
    empty = b.mbarriers(STAGES, protocol.empty_arrivals)
    with b.branch(compare(Op.EQ, b.thread, 0)):
        b.mbarrier_init(full)
        b.mbarrier_init(empty)
    b.barrier()
    row, column = b.block(1) * BLOCK, b.block(0) * BLOCK
    steps = -(-k // BLOCK)
    with b.role("multiply", warps=4) as thread:
        _multiply(b, protocol, thread, (x, w, panel), (full, empty), steps)
        with b.branch(compare(Op.EQ, thread, 0)):
            b.bulk_store(
                b.tensor_map(b.param(0), shape_of(n, m), (n,), panel), (column, row), panel, 0
            )
            b.bulk_commit()
            if protocol.waits_store:
                b.bulk_wait()
    maps = [
        b.tensor_map(b.param(i), shape_of(k, rows), (k,), tile)
        for i, rows, tile in ((1, m, x), (2, n, w))
    ]
    with b.role("load", warps=1) as thread, b.branch(compare(Op.EQ, thread, 0)):
        _load(b, protocol, (x, w), maps, (row, column), (full, empty), steps)
    return b.finish()


def _load(b, protocol, tiles, maps, places, barriers, steps):
    full, empty = barriers
    nbytes = sum(stage_bytes(tile) for tile in tiles) - protocol.missing_bytes
    with b.loop(0, steps) as step:
        stage, turn = step % STAGES, step // STAGES
        if protocol.waits_empty:
            b.mbarrier_wait(empty, stage, (turn + 1) % 2)
        b.mbarrier_expect(full, stage, nbytes)
        for tile, tensor_map, place in zip(tiles, maps, places, strict=True):
            b.bulk_load(tile, stage, tensor_map, (step * BLOCK, place), full, stage)


def _multiply(b, protocol, thread, tiles, barriers, steps):
    x, w, panel = tiles
    full, empty = barriers
    total = b.register(dtypes.float32.vector(32), 0.0)
    first_lane = compare(Op.EQ, thread % 32, 0)
    with b.loop(0, steps) as step:
        stage = step % STAGES
        if protocol.waits_full:
            b.mbarrier_wait(full, stage, step // STAGES % 2)
        b.wgmma_fence(total)
        for begin in range(0, BLOCK, 16):
            index = stage * (BLOCK * BLOCK) + begin
            b.wgmma(total, x, index, w, index, WgmmaAttrs(0, INSTRUCTION, True, True))
        b.wgmma_commit()
        if protocol.releases_late:
            b.wgmma_wait(total)
        with b.branch(first_lane):
            b.mbarrier_arrive(empty, stage)
        if protocol.waits_product and not protocol.releases_late:
            b.wgmma_wait(total)
    _write_panel(b, thread, total, panel)
    if protocol.fences:
        b.proxy_fence()
    b.barrier(PANEL_BARRIER, 128)


def _write_panel(b, thread, total, panel):
    values = b.read(total)
    for register in range(0, values.dtype.lanes, 2):
        pair = [cast(lane(values, register + i), dtypes.float16) for i in range(2)]
        row, column = accumulator_position(LAYOUT, BLOCK, BLOCK, thread, register)
        b.store(panel, element_index(panel, b.index(0), row, column), stack(pair))
