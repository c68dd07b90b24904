"""Turns a kernel without folds into loops over vectors along its most contiguous range."""

from __future__ import annotations

from functools import partial

from tinytensor.codegen.builder import Builder
from tinytensor.codegen.plans.choices import unroll_choices
from tinytensor.codegen.plans.lanes import accesses_of, best_lane_range, lanes_along, values_of
from tinytensor.codegen.plans.merging import FOLDS, merge_ranges
from tinytensor.codegen.plans.nest import Nest, Point, emit
from tinytensor.codegen.plans.segments import Segment, cut_segments
from tinytensor.codegen.plans.turning import Turn, find_turn, turned_points
from tinytensor.ops.kernel import Kernel
from tinytensor.ops.linear import Linear
from tinytensor.ops.uop import UOp, walk
from tinytensor.records import dataclass
from tinytensor.target import Target


@dataclass(frozen=True, slots=True)
class PointwiseFacts:
    """How a kernel without folds runs: loops over `outer`, inside them each segment along lanes.

    With a `turn` there is one segment, and its loads are turned over in square tiles.
    """

    kernel: Kernel
    outer: tuple[UOp, ...]
    segments: tuple[Segment, ...]
    turn: Turn | None


def facts(kernel: Kernel, target: Target) -> PointwiseFacts | str | None:
    """Choose the lane range and its segments, or say why not; None for a kernel with a fold."""
    if any(node.op in FOLDS for node in walk((kernel.sink,))):
        return None
    merged = merge_ranges(unroll_choices(kernel))
    candidates = [each for each in merged.ranges if each.extent > 1]
    if not candidates:
        return "it has at most one element; vectors need several."
    lane_range = best_lane_range(accesses_of((merged.sink,)), candidates)
    outer = [each for each in merged.ranges if each is not lane_range]
    segments = cut_segments(merged.sink, lane_range)
    fixed = [each for each in outer if not each.is_open and not lane_range.is_open]
    turn = find_turn(merged.sink.operands, lane_range, fixed) if len(segments) == 1 else None
    if turn is not None:
        outer.remove(turn.range_)
    return PointwiseFacts(merged, tuple(outer), segments, turn)


def describe(facts: PointwiseFacts, target: Target) -> str:
    """Say how the kernel runs."""
    lanes = [
        lanes_along(each.range_, values_of(each.stores), facts.kernel, target).count
        for each in facts.segments
    ]
    parts = f", in {len(lanes)} segments between guards" if len(lanes) > 1 else ""
    turned = ", loads turned over in square tiles" if facts.turn else ""
    extent = sum(each.range_.extent for each in facts.segments)
    return f"{max(lanes)} lanes along {extent} elements{parts}{turned}."


def lower(facts: PointwiseFacts, target: Target) -> Linear:
    """Nest the outer loops, and inside them run each segment along lanes."""
    kernel, turn = facts.kernel, facts.turn
    b = Builder(kernel.name, kernel.params, kernel.index_dtype)
    roots = [store for segment in facts.segments for store in segment.stores]
    nest = Nest(b, roots)

    def run_inner(points: list[Point]) -> None:
        for segment in facts.segments:
            lanes = lanes_along(segment.range_, values_of(segment.stores), kernel, target)
            span = nest.span(segment.range_, lanes)
            if turn is None:
                nest.loops([span], segment.stores, points, partial(emit, segment.stores))
                continue
            for begin, count in nest.blocks(nest.span(turn.range_), lanes.count):
                run_tile = partial(_run_tile, b, segment, turn, begin, count)
                nest.loops([span], segment.stores, points, run_tile)

    nest.loops([nest.span(each) for each in facts.outer], roots, [Point(b)], run_inner)
    return b.finish()


def _run_tile(
    b: Builder, segment: Segment, turn: Turn, begin: UOp, count: int, points: list[Point]
) -> None:
    """Run square tiles of the turn's range and the lane range, row by row."""
    for point in points:
        emit(segment.stores, turned_points(b, turn, point, begin, count))
