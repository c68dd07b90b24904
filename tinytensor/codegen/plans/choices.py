"""Runs a range of few values once for each of them, where it decides which value is stored."""

from __future__ import annotations

from dataclasses import replace

from tinytensor.codegen.plans.lanes import accesses_of
from tinytensor.codegen.vectorize import stride_of
from tinytensor.ops.kernel import Kernel
from tinytensor.ops.op import Op
from tinytensor.ops.ranges import dependencies, open_ranges
from tinytensor.ops.uop import UOp, walk

MOST_STORES = 16  # of each element, so that all their values find a register
# Of adjacent values so many that read one another are worth more than a vector along them.
LEAST_ADJACENT = 4


def unroll_choices(kernel: Kernel) -> Kernel:
    """Return a kernel without folds in which no WHERE is decided by a range of few values alone.

    Two rows exchange their lesser and greater elements: every place of both computes both elements
    and takes one. With a store for each of the rows, they read and compute an element once.
    """
    sink, ranges = kernel.sink, list(kernel.ranges)
    few = [each for each in ranges if not each.is_open and each.extent <= MOST_STORES]
    # What spares most comes first: beside its stores there may be no room for those of others.
    for each in sorted(few, key=lambda each: -_count_spared(sink, each)):
        if _is_worth_it(sink, each):
            sink = open_ranges(sink, (each,))
            ranges.remove(each)
    return replace(kernel, sink=sink, ranges=tuple(ranges))


def _is_worth_it(sink: UOp, range_: UOp) -> bool:
    """Whether few stores come of it, a choice is decided, and vectors run along another range."""
    if not 1 < range_.extent * len(sink.operands) <= MOST_STORES:
        return False
    accesses = accesses_of((sink,))
    if any(stride_of(each.operands[1], range_) in (1, -1) for each in accesses):
        read = [each.operands[0] for each in accesses if each.op is Op.LOAD]
        if range_.extent < LEAST_ADJACENT or len(read) == len(set(read)):
            return False
    return bool(_decided(sink, range_))


def _decided(sink: UOp, range_: UOp) -> list[UOp]:
    """Return the choices that a range alone decides."""
    nodes = walk((sink,))
    depends = dependencies(nodes)
    choices = [each for each in nodes if each.op is Op.WHERE]
    return [each for each in choices if depends[each.operands[0]] == {range_}]


def _count_spared(sink: UOp, range_: UOp) -> int:
    """Return how many choices between two computed values a range alone decides."""
    ways = [{each.op for each in choice.operands} for choice in _decided(sink, range_)]
    return sum(Op.CONST not in ops for ops in ways)
