"""Collects what the plans of contractions on a GPU share: their facts, and one block's place."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from tinytensor.codegen.block_builder import BlockBuilder
from tinytensor.codegen.plans.amounts import open_builder, split_count, usual_extent
from tinytensor.codegen.plans.block_epilogue import BlockEpilogue
from tinytensor.codegen.plans.block_operand import Operand, Window, describe
from tinytensor.codegen.plans.block_raster import Raster, place_tile
from tinytensor.codegen.plans.flatten import (
    FlatContraction,
    block_ranges,
    flatten,
    is_symmetric,
)
from tinytensor.codegen.plans.tiling_cuda import (
    BlockTiling,
    Work,
    shared_for_a_share,
    takes_too_many,
)
from tinytensor.dtype import DType
from tinytensor.ops.kernel import Contraction, Kernel
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp, cast, compare, exact_extent, substitute, walk
from tinytensor.records import dataclass
from tinytensor.target import Target


@dataclass(frozen=True, slots=True)
class ProductFacts:
    """A kernel with one contraction, and how its factors are brought to shared memory.

    Matrix instructions sum so many values of k, `promoted_after`, before their sums are added to
    those of float32; all values, if it is 0.
    """

    kernel: Kernel
    flat: FlatContraction
    a: Operand
    b: Operand
    stored: DType
    promoted_after: int = 0

    @property
    def work(self) -> Work:
        """The extents that a choice of tiling looks at."""
        flat = self.flat
        batch = math.prod([usual_extent(each) for each in flat.outer])
        m, n = usual_extent(flat.m), usual_extent(flat.n)
        mirrors = flat.promotion is None and is_symmetric(flat)
        turned = self.a.inner is self.a.k, self.b.inner is self.b.k
        return Work(batch, m, n, self.stored.itemsize, mirrors, turned)

    @property
    def through_registers(self) -> bool:
        """Whether a factor is computed on its way to shared memory."""
        return not (self.a.is_direct and self.b.is_direct)


def why_no_product(kernel: Kernel, contraction: Contraction, in_blocks: bool = False) -> str | None:
    """Say why no block can compute a kernel's contraction, if none can.

    A plan that promotes sums may add them up `in_blocks` of k, each with work of its own on it.
    """
    folds = [node for node in walk((kernel.sink,)) if node.op in (Op.REDUCE, Op.CONTRACT)]
    if len(folds) > 1 + (in_blocks and len(block_ranges(kernel)) > 0):
        return f"the kernel folds {len(folds)} times; a block's tile holds one sum."
    if 0 in [each.extent for each in kernel.ranges]:
        return "the result is empty."
    for name, ranges in (("m", contraction.m), ("n", contraction.n)):
        if all(each.extent == 1 for each in ranges):
            return f"the product has no {name} range: a matrix-vector product, which has no tile."
    return None


def read_facts(kernel: Kernel, stored: DType | None = None, is_open: bool = False) -> ProductFacts:
    """Read a product whose factors are kept in shared memory as `stored`, or as what they are."""
    flat = flatten(kernel)
    a = describe(flat.a, flat.m, flat.k, stored or flat.a.dtype, is_open)
    b = describe(flat.b, flat.n, flat.k, stored or flat.b.dtype, is_open)
    return ProductFacts(kernel, flat, a, b, stored or flat.a.dtype)


def computed_in(
    kernel: Kernel, contraction: Contraction, factors: DType | None, summed: DType
) -> Kernel:
    """Return a kernel whose factors are cast before, and whose sum is, to its dtype, at the end."""
    node = contraction.node
    operands = node.operands
    if factors is not None:
        a, b, *k = operands
        operands = (cast(a, factors), cast(b, factors), *k)
    total = UOp(Op.CONTRACT, summed, operands, replace(node.attrs, accumulate=summed))
    sink = substitute(kernel.sink, {node: cast(total, node.dtype)})
    return replace(kernel, sink=sink, contraction=replace(contraction, node=total))


@dataclass(frozen=True, slots=True)
class Block:
    """One block's program as it begins: where it reads its factors, and what takes its sums.

    `mirror` takes those of a symmetric product a second time, where `is_below` the diagonal.
    """

    b: BlockBuilder
    window_a: Window
    window_b: Window
    blocks_k: UOp
    epilogue: BlockEpilogue
    mirror: BlockEpilogue | None
    is_below: UOp

    @contextmanager
    def mirrored(self) -> Iterator[BlockEpilogue | None]:
        """Open what runs where there is a mirror image to store; None if there never is."""
        if self.mirror is None:
            yield None
            return
        with self.b.branch(self.is_below):
            yield self.mirror


def raster_of(flat: FlatContraction, block: tuple[int, int], group: int, mirrors: bool) -> Raster:
    """Return the tiles of a product; with `mirrors` those on and below the diagonal."""
    tiles_m = split_count(exact_extent(flat.m), block[0])
    tiles_n = split_count(exact_extent(flat.n), block[1])
    return Raster(flat.outer, tiles_m, tiles_n, group, mirrors)


def open_block(
    facts: ProductFacts, tile: BlockTiling, most_lanes: int, mirrored_lanes: int, target: Target
) -> Block:
    """Begin the program of a block, which stores up to so many adjacent sums at a time."""
    kernel, flat = facts.kernel, facts.flat
    mirrors = facts.work.mirrors(tile.block_m, tile.block_n)
    extents = (tile.block_m, tile.block_n)
    raster = raster_of(flat, extents, tile.group, mirrors)
    b = open_builder(kernel, raster.blocks, tile.threads)
    if b.across is None and takes_too_many(tile, facts.work, target):
        b.least_shared = shared_for_a_share(b.blocks[0], target)
    place = place_tile(b, raster, b.block(0))
    first_m = b.value(place.tile_m * tile.block_m)
    first_n = b.value(place.tile_n * tile.block_n)
    window_a = Window(place.outer, first_m, tile.block_m, tile.block_k)
    window_b = Window(place.outer, first_n, tile.block_n, tile.block_k)
    epilogue = BlockEpilogue(b, flat, place.outer, (first_m, first_n), extents, most_lanes)
    turned = (first_n, first_m)
    mirror = BlockEpilogue(b, flat, place.outer, turned, extents, mirrored_lanes)
    is_below = compare(Op.NE, first_m, first_n)
    blocks_k = split_count(exact_extent(flat.k), tile.block_k)
    return Block(b, window_a, window_b, blocks_k, epilogue, mirror if mirrors else None, is_below)
