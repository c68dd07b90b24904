"""Turns a kernel without folds into loops over vectors along its most contiguous range."""

from __future__ import annotations

from dataclasses import dataclass

from tinytensor.codegen.builder import Builder
from tinytensor.codegen.plans.choices import unroll_choices
from tinytensor.codegen.plans.lanes import accesses_of, best_lane_range, lanes_along, values_of
from tinytensor.codegen.plans.merging import FOLDS, merge_ranges
from tinytensor.codegen.plans.nest import Body, Nest, Point, Span, emit
from tinytensor.codegen.plans.segments import Segment, cut_segments
from tinytensor.codegen.plans.turning import Turn, find_turn, turned_points
from tinytensor.ops.kernel import Kernel
from tinytensor.ops.linear import Linear
from tinytensor.ops.uop import UOp, walk
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
    return _Lowering(facts, target).lower()


class _Lowering:
    def __init__(self, facts: PointwiseFacts, target: Target) -> None:
        kernel = facts.kernel
        self._facts = facts
        self._target = target
        self._b = Builder(kernel.name, kernel.params, kernel.index_dtype)
        self._roots = [store for segment in facts.segments for store in segment.stores]
        self._nest = Nest(self._b, self._roots)

    def lower(self) -> Linear:
        nest = self._nest
        outer = [nest.span(each) for each in self._facts.outer]
        nest.loops(outer, self._roots, [Point(self._b, {}, {})], self._run_inner)
        return self._b.finish()

    def _run_inner(self, points: list[Point]) -> None:
        for segment in self._facts.segments:
            if self._facts.turn is None:
                self._run_segment(segment, points)
            else:
                self._run_tiles(segment, self._facts.turn, points)

    def _span(self, segment: Segment) -> Span:
        values = values_of(segment.stores)
        lanes = lanes_along(segment.range_, values, self._facts.kernel, self._target)
        return self._nest.span(segment.range_, lanes)

    def _run_segment(self, segment: Segment, points: list[Point]) -> None:
        stores = segment.stores
        self._nest.loops([self._span(segment)], stores, points, lambda group: emit(stores, group))

    def _run_tiles(self, segment: Segment, turn: Turn, points: list[Point]) -> None:
        """Run square tiles of the turn's range and the lane range, row by row."""
        span = self._span(segment)
        for begin, count in self._nest.blocks(self._nest.span(turn.range_), span.lanes.count):
            run_tile = self._tile(segment, turn, begin, count)
            self._nest.loops([span], segment.stores, points, run_tile)

    def _tile(self, segment: Segment, turn: Turn, begin: UOp, count: int) -> Body:
        def run_tile(group: list[Point]) -> None:
            for point in group:
                emit(segment.stores, turned_points(self._b, turn, point, begin, count))

        return run_tile
