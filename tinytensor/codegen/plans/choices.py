"""Runs a range of few values once for each of them, where it decides which value is stored."""

from __future__ import annotations

from dataclasses import replace

from tinytensor.codegen.plans.lanes import accesses_of
from tinytensor.codegen.plans.merging import replace_ranges
from tinytensor.codegen.vectorize import stride_of
from tinytensor.ops.kernel import Kernel
from tinytensor.ops.op import Op
from tinytensor.ops.ranges import dependencies
from tinytensor.ops.simplify_index import simplify_index
from tinytensor.ops.uop import UOp, index_const, walk

MOST_STORES = 16  # of each element, so that all their values find a register


def unroll_choices(kernel: Kernel) -> Kernel:
    """Return a kernel without folds in which no WHERE is decided by a range of few values alone.

    Two rows exchange their lesser and greater elements: every place of both computes both elements
    and takes one. With a store for each of the rows, they read and compute an element once.
    """
    sink, ranges = kernel.sink, list(kernel.ranges)
    for each in kernel.ranges:
        stores = [
            replace_ranges(sink, {each: index_const(value)}).operands
            for value in range(each.extent if _is_worth_it(sink, each) else 0)
        ]
        if stores:
            chosen = tuple([store for copy in stores for store in copy])
            sink = simplify_index(sink.replace(chosen))
            ranges.remove(each)
    return replace(kernel, sink=sink, ranges=tuple(ranges))


def _is_worth_it(sink: UOp, range_: UOp) -> bool:
    """Whether few stores come of it, a choice is decided, and vectors run along another range."""
    if range_.is_open or not 1 < range_.extent * len(sink.operands) <= MOST_STORES:
        return False
    if any(stride_of(each.operands[1], range_) in (1, -1) for each in accesses_of((sink,))):
        return False
    nodes = walk((sink,))
    depends = dependencies(nodes)
    return any(each.op is Op.WHERE and depends[each.operands[0]] == {range_} for each in nodes)
