"""Turns counts that may be known only at launch, index expressions, into numbers of the code."""

from __future__ import annotations

import math

from tinytensor.codegen.block_builder import BlockBuilder
from tinytensor.codegen.builder import Builder
from tinytensor.codegen.vectorize import Evaluator
from tinytensor.ops.bounds import bounds_of
from tinytensor.ops.kernel import Kernel
from tinytensor.ops.op import Op
from tinytensor.ops.simplify_index import simplify_index
from tinytensor.ops.sums import Sum, build, collect, divide
from tinytensor.ops.uop import UOp, exact_extent, walk


def amount(b: Builder, count: UOp) -> UOp:
    """Return the value that a count has in this launch."""
    value = Evaluator(b, {}).value(count)
    return value if count.op is Op.CONST else b.value(value)


def times(b: Builder, count: UOp, factor: int) -> UOp | int:
    """Return a multiple of a count, as a number where it is known."""
    if count.op is Op.CONST or factor == 0:
        return factor and int(count.value) * factor
    return amount(b, count) * factor


def pitch_of(index: UOp, range_: UOp) -> UOp | None:
    """Return by how much an index grows with a range, whatever the others are; None if it does not.

    It may be known only at launch, as the length of the rows of x[row * n + column].
    """
    pitch = Sum()
    for node, coefficient in collect(index).coefficients.items():
        if range_ in walk((node,)):
            grown = divide(Sum({node: coefficient}), Sum({range_: 1}))
            if grown is None:
                return None
            pitch.include(grown, 1)
    found = build(pitch)
    return None if any(each.op is Op.RANGE for each in walk((found,))) else found


def split_count(count: UOp, by: int) -> UOp:
    """Return how many parts of so many elements hold a count of them."""
    return simplify_index((count + (by - 1)) // by)


def divisor_of(count: UOp) -> int:
    """Return the greatest number that divides a count at every launch; 0 divides only 0."""
    total = collect(count)
    return math.gcd(total.constant, *total.coefficients.values())


def is_whole(range_: UOp, parts: int) -> bool:
    """Whether a range is whole parts of so many values, at every launch."""
    return divisor_of(exact_extent(range_)) % parts == 0


def open_builder(kernel: Kernel, blocks: UOp, threads: int) -> BlockBuilder:
    """Return the builder of a launch of so many blocks."""
    grid = (most_of(blocks), 1, 1)
    b = BlockBuilder(kernel.name, kernel.params, kernel.index_dtype, grid, threads)
    b.across = None if blocks.op is Op.CONST else blocks
    return b


def most_of(count: UOp) -> int:
    """Return the greatest value of a count."""
    return int(bounds_of(count)[1])


def usual_extent(range_: UOp) -> int:
    """Return the extent for which tiles are chosen: between its ends where it is open."""
    if not range_.is_open:
        return range_.extent
    least, most = bounds_of(exact_extent(range_))
    return int(least + most) // 2
