"""Turns a kernel without folds into loops over vectors along its most contiguous range."""

from __future__ import annotations

from dataclasses import dataclass

from tinytensor.codegen.builder import Builder
from tinytensor.codegen.plans.lanes import accesses_of, best_lane_range, lanes_along, values_of
from tinytensor.codegen.plans.merging import merge_ranges
from tinytensor.codegen.plans.nest import Nest, Point, emit
from tinytensor.codegen.plans.segments import Segment, cut_segments
from tinytensor.ops.kernel import Kernel
from tinytensor.ops.linear import Linear
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp, walk
from tinytensor.target import Target


@dataclass(frozen=True, slots=True)
class PointwiseFacts:
    """How a kernel without folds runs: loops over `outer`, inside them each segment along lanes."""

    kernel: Kernel
    outer: tuple[UOp, ...]
    segments: tuple[Segment, ...]


def facts(kernel: Kernel, target: Target) -> PointwiseFacts | str:
    """Choose the lane range and its segments, or say why the kernel is not for this plan."""
    if any(node.op in (Op.REDUCE, Op.CONTRACT) for node in walk((kernel.sink,))):
        return "it holds a reduction; only elementwise kernels run as vectors of results."
    merged = merge_ranges(kernel)
    candidates = [each for each in merged.ranges if each.extent > 1]
    if not candidates:
        return "it has at most one element; vectors need several."
    lane_range = best_lane_range(accesses_of((merged.sink,)), candidates)
    outer = tuple([each for each in merged.ranges if each is not lane_range])
    return PointwiseFacts(merged, outer, cut_segments(merged.sink, lane_range))


def lower(facts: PointwiseFacts, target: Target) -> Linear:
    """Nest the outer loops, and inside them run each segment along lanes."""
    kernel = facts.kernel
    b = Builder(kernel.name, kernel.params, kernel.index_dtype)
    roots = [store for segment in facts.segments for store in segment.stores]
    nest = Nest(b, roots)

    def run(segment: Segment, points: list[Point]) -> None:
        lanes = lanes_along(segment.range_, values_of(segment.stores), kernel, target)
        span = nest.span(segment.range_, lanes)
        nest.loops([span], segment.stores, points, lambda group: emit(segment.stores, group))

    def run_segments(points: list[Point]) -> None:
        for segment in facts.segments:
            run(segment, points)

    outer = [nest.span(each) for each in facts.outer]
    nest.loops(outer, roots, [Point(b, {}, {})], run_segments)
    return b.finish()
