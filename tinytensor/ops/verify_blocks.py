"""Refuses the LINEAR form of a thread block whose threads, shared memory or waits do not agree."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tinytensor.dtype import dtypes
from tinytensor.ops.fragments import WARP_THREADS
from tinytensor.ops.infer_blocks import BLOCK_INFER, GLOBAL
from tinytensor.ops.linear import Grid, Linear
from tinytensor.ops.op import Op
from tinytensor.ops.tile import tile_bytes
from tinytensor.ops.uniform import Reach, Varies, reaches
from tinytensor.ops.uop import UOp

if TYPE_CHECKING:
    from tinytensor.ops.verify import Verifier

THREADS = range(WARP_THREADS, 1024 + 1, WARP_THREADS)
BLOCKS = (2**31 - 1, 2**16 - 1, 2**16 - 1)  # CUDA programming guide, technical specifications
ACCESS_BYTES = (1, 2, 4, 8, 16)
BLOCK_AXES = ("block_x", "block_y", "block_z")
# All lanes of a warp run these together.
WARP_OPS = (Op.EXCHANGE, Op.LDMATRIX, Op.MMA, Op.MMA_WAIT)
GROUP_OPS = (Op.WGMMA, Op.WGMMA_FENCE, Op.WGMMA_COMMIT, Op.WGMMA_WAIT)
COLLECTIVE = (Op.TILE_COPY, Op.TILE_MMA)
PRODUCTS = (Op.TILE_MMA, Op.WGMMA)
PRODUCT_WAITS = (Op.MMA_WAIT, Op.WGMMA_WAIT)


def verify_blocks(verifier: Verifier, linear: Linear) -> None:
    """Check what the threads of a block must agree on; without a grid, that there are none.

    Raises: InternalError with the statement's line.
    """
    grid = linear.grid
    if grid is None:
        for node in linear.statements:
            alone = node.op not in BLOCK_INFER
            verifier.require(alone, node, "is an op of a thread block; its form has a grid")
        return
    for node in linear.statements:
        _check_grid(verifier, node, grid)
        _check_places(verifier, node, grid)
        _check_width(verifier, node)
        _check_map(verifier, node, linear)
    _check_regions(verifier, linear, grid)
    _check_roles(verifier, linear, grid)
    has_touched = False
    for node, reach in zip(linear.statements, reaches(linear), strict=True):
        _check_reach(verifier, node, reach, grid)
        has_touched |= node.op in GLOBAL
        sentence = "comes after the first buffer; nothing is read or written before it"
        verifier.require(node.op is not Op.GRID_WAIT or not has_touched, node, sentence)
    _check_in_flight(verifier, linear)


def _check_grid(verifier: Verifier, node: UOp, grid: Grid) -> None:
    whole = grid.threads in THREADS
    sentence = f"{grid.threads} threads; a block is whole warps, up to 1024 threads"
    verifier.require(whole, node, sentence)
    fits = all([1 <= n <= limit for n, limit in zip(grid.blocks, BLOCKS, strict=True)])
    verifier.require(fits, node, f"{grid.blocks} blocks; CUDA takes 1 to {BLOCKS}")


def _check_places(verifier: Verifier, node: UOp, grid: Grid) -> None:
    if node.op is Op.PLACE:
        extents = dict(zip(BLOCK_AXES, grid.blocks, strict=True))
        extents["warp"] = grid.threads // WARP_THREADS
        expected = extents.get(node.attrs.kind, grid.threads)
        same = node.attrs.extent == expected
        verifier.require(same, node, f"extent is not the grid's; that has {expected}")


def _check_width(verifier: Verifier, node: UOp) -> None:
    if node.op in (Op.LOAD, Op.STORE):
        dtype = node.dtype if node.op is Op.LOAD else node.operands[2].dtype
        legal = dtype.lanes * dtype.itemsize in ACCESS_BYTES
        verifier.require(legal, node, f"moves too much at once; {ACCESS_BYTES} bytes are legal")


def _check_map(verifier: Verifier, node: UOp, linear: Linear) -> None:
    if node.op is Op.TENSOR_MAP:
        attrs, elements = node.attrs, node.operands[0].attrs.elements
        axes = zip(attrs.shape, (1, *attrs.strides), strict=True)
        reach = attrs.offset + sum([(extent - 1) * stride for extent, stride in axes]) + 1
        inside = attrs.offset >= 0 and reach <= elements
        verifier.require(inside, node, f"reaches {reach} elements; it has {elements}")
    elif node.op is Op.BULK_STORE:
        buffer = node.operands[0].operands[0]
        written = buffer.op is not Op.PARAM or linear.params[buffer.attrs.number].written
        verifier.require(written, node, "param is read only; stores go to written params")


# Shared memory and roles.
def _check_regions(verifier: Verifier, linear: Linear, grid: Grid) -> None:
    regions = {node: region_bytes(node) for node in linear.statements if node.op in REGION_BYTES}
    end = 0
    for node, size in sorted(regions.items(), key=lambda pair: pair[0].attrs.offset_bytes):
        begin = node.attrs.offset_bytes
        verifier.require(begin >= end, node, "region overlaps another; each has its own bytes")
        end = begin + size
        inside = end <= grid.shared_bytes
        sentence = f"region leaves shared memory; a block has {grid.shared_bytes} bytes"
        verifier.require(inside, node, sentence)


def region_bytes(node: UOp) -> int:
    """Return how many bytes of shared memory a SHARED, TILE or MBARRIERS takes."""
    return REGION_BYTES[node.op](node)


REGION_BYTES: dict[Op, Callable[[UOp], int]] = {
    Op.SHARED: lambda node: node.attrs.elements * node.dtype.itemsize,
    Op.TILE: tile_bytes,
    Op.MBARRIERS: lambda node: node.attrs.count * dtypes.uint64.itemsize,
}


def _check_roles(verifier: Verifier, linear: Linear, grid: Grid) -> None:
    taken: set[int] = set()
    for node in linear.statements:
        if node.op is Op.ROLE:
            first = node.attrs.first_warp
            warps = set(range(first, first + node.attrs.warps))
            verifier.require(not warps & taken, node, "warps have another role; each has one")
            inside = max(warps) < grid.threads // WARP_THREADS
            verifier.require(inside, node, f"warps do not exist; there are {grid.threads} threads")
            taken |= warps


# Who comes to a statement.
def _check_reach(verifier: Verifier, node: UOp, reach: Reach, grid: Grid) -> None:
    uniform = reach.varies is Varies.NOWHERE
    whole_warps = reach.varies is not Varies.BY_LANE
    if node.op is Op.ROLE:
        verifier.require(uniform, node, "is inside a branch by thread; roles are the first branch")
        verifier.require(reach.role is None, node, "is inside another role; roles do not nest")
    elif node.op is Op.GRID_WAIT or node.op is Op.BARRIER and node.attrs.number == 0:
        verifier.require(reach.role is None, node, "is inside a role; all threads must come here")
        verifier.require(uniform, node, "is inside a branch by thread; all threads must come here")
    if node.op is Op.BARRIER and node.attrs.number == 0:
        everyone = node.attrs.threads == grid.threads
        sentence = f"awaits another number of threads; a block has {grid.threads}"
        verifier.require(everyone, node, sentence)
    elif node.op is Op.BARRIER or node.op in WARP_OPS or node.op in GROUP_OPS:
        sentence = "is inside a branch by lane; all lanes of a warp come here together"
        verifier.require(whole_warps, node, sentence)
    elif node.op in COLLECTIVE:
        sentence = "is inside a branch by thread; all threads of its role come here together"
        verifier.require(uniform, node, sentence)
        _check_collective(verifier, node, reach, grid)


def _check_collective(verifier: Verifier, node: UOp, reach: Reach, grid: Grid) -> None:
    role = reach.role
    running = grid.threads if role is None else role.attrs.warps * WARP_THREADS
    attrs = node.attrs
    is_copy = node.op is Op.TILE_COPY
    threads = attrs.threads if is_copy else attrs.warps_m * attrs.warps_n * WARP_THREADS
    sentence = f"is for {threads} threads; {running} come here"
    verifier.require(threads == running, node, sentence)


# Accumulators.
def _check_in_flight(verifier: Verifier, linear: Linear) -> None:
    """Check that no accumulator is used between a product and the wait for it.

    What is in flight is known with the groups that were committed since its product, at least. A
    second walk begins each loop with what its first walk left in flight.
    """
    left_by: dict[UOp, dict[UOp, int]] = {}
    for _ in range(2):
        flying: dict[UOp, int] = {}
        halves: list[dict[UOp, int]] = []
        for node in linear.statements:
            if node.op is Op.LOOP:
                flying = _either(flying, left_by.get(node, {}))
            elif node.op is Op.ENDLOOP:
                left_by[node.operands[0]] = dict(flying)
            elif node.op is Op.IF:
                halves.append(dict(flying))
            elif node.op is Op.ELSE:
                halves[-1], flying = flying, halves[-1]
            elif node.op is Op.ENDIF:
                flying = _either(flying, halves.pop())
            else:
                _follow_products(verifier, node, flying)


def _either(x: dict[UOp, int], y: dict[UOp, int]) -> dict[UOp, int]:
    return {each: min(flying[each] for flying in (x, y) if each in flying) for each in (x | y)}


def _follow_products(verifier: Verifier, node: UOp, flying: dict[UOp, int]) -> None:
    if node.op in (Op.READ, Op.WRITE):
        settled = node.operands[0] not in flying
        verifier.require(settled, node, "accumulator is in flight; a wait comes first")
    elif node.op in PRODUCTS:
        flying[node.operands[0]] = 0
    elif node.op is Op.WGMMA_COMMIT:
        flying.update({each: count + 1 for each, count in flying.items()})
    elif node.op in PRODUCT_WAITS:
        pending = node.attrs.pending
        for each in node.operands:
            if pending == 0 or flying.get(each, 0) > pending:
                flying.pop(each, None)
