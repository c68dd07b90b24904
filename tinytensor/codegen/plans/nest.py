"""Turns a kernel's ranges into LINEAR loops, with each fold where its ranges are open."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tinytensor.codegen.builder import Builder
from tinytensor.codegen.plans.accumulate import (
    Accumulator,
    Fold,
    Part,
    fold_of,
    join_all,
    join_lanes,
    result_of,
)
from tinytensor.codegen.plans.lanes import SCALAR, Lanes
from tinytensor.codegen.plans.merging import FOLDS
from tinytensor.codegen.plans.resident import Resident
from tinytensor.codegen.vectorize import Evaluator
from tinytensor.dtype import dtypes
from tinytensor.ops.attrs import Combine
from tinytensor.ops.op import Op
from tinytensor.ops.ranges import dependencies
from tinytensor.ops.uop import UOp, cast, walk

# A float sum is cut into blocks, each summed from zero, so that its error stays near one rounding:
# 8e-9 of sum |x| at 1e8 elements against 6.5e-7 in one piece (Zen 5).
BLOCK_ELEMENTS = 4096
LONGEST_CHAIN = 512  # additions one after another before a sum is cut


@dataclass(frozen=True, slots=True)
class Span:
    """A range to walk: `count` values from `begin` on."""

    range_: UOp
    begin: UOp
    count: int
    lanes: Lanes = SCALAR


class Point:
    """Where ranges are open: each one's value, the lanes of one of them, the folds known there."""

    def __init__(
        self,
        b: Builder,
        ranges: Mapping[UOp, UOp],
        known: Mapping[UOp, UOp],
        lane_range: UOp | None = None,
        lanes: int = 1,
        valid: int = 1,
    ) -> None:
        self._b = b
        self.ranges = dict(ranges)
        self.known = dict(known)
        self.lane_range = lane_range
        self.lanes = lanes
        self.valid = valid

    def evaluator(self) -> Evaluator:
        """Return what evaluates expressions here."""
        lanes = (self.lane_range, self.lanes, self.valid)
        return Evaluator(self._b, self.ranges, *lanes, known=self.known)

    def opened(self, range_: UOp, value: UOp) -> Point:
        """Return the point with one range more."""
        ranges = {**self.ranges, range_: value}
        lanes = (self.lane_range, self.lanes, self.valid)
        return Point(self._b, ranges, self.known, *lanes)

    def widened(self, range_: UOp, value: UOp, lanes: int, valid: int) -> Point:
        """Return the point with one range more, along its lanes (a lone lane is no vector)."""
        if lanes == 1:
            return self.opened(range_, value)
        return Point(self._b, {**self.ranges, range_: value}, self.known, range_, lanes, valid)


Body = Callable[[list[Point]], None]


class Nest:
    """The loops of one kernel.

    `fold_lanes` gives a fold the lanes of one of its own ranges, and is used where no lanes are
    open; a fold inside open lanes is computed for each of them. `residents` are kept in scratch
    memory while their fold runs, and read back by the stores.
    """

    def __init__(
        self,
        b: Builder,
        roots: Sequence[UOp],
        fold_lanes: Mapping[UOp, tuple[UOp, Lanes]] | None = None,
        residents: Sequence[Resident] = (),
    ) -> None:
        self._b = b
        self._free = dependencies(walk(roots))
        self._fold_lanes = dict(fold_lanes or {})
        self._residents = {each.fold: (each, each.workspace(b)) for each in residents}

    def span(self, range_: UOp, lanes: Lanes = SCALAR) -> Span:
        """Return the whole of a range."""
        return Span(range_, self._b.index(0), range_.extent, lanes)

    def store(self, stores: Sequence[UOp], spans: Sequence[Span]) -> None:
        """Emit the loops over spans, outermost first, with the stores inside."""

        def emit_stores(points: list[Point]) -> None:
            for point in points:
                self._read_residents(point)
            emit(stores, points)

        self.loops(spans, stores, [Point(self._b, {}, {})], emit_stores)

    def loops(
        self, spans: Sequence[Span], roots: Sequence[UOp], points: list[Point], body: Body
    ) -> None:
        """Open spans one inside the other around the body, called for each group of points.

        Folds below the roots are computed at the outermost place where their ranges are open.
        """
        self._compute_folds(roots, points)
        if not spans:
            body(points)
            return
        span, *inner = spans
        if span.count:
            self._pin(roots, points)
        for group in self._walk(span, points):
            self.loops(inner, roots, group, body)

    def _walk(self, span: Span, points: list[Point]) -> Iterator[list[Point]]:
        """Open a span: gives the group of points inside, once for each piece of code it takes."""
        for begin, count in self.blocks(span, span.lanes.width):
            yield self._group(span, points, begin, count)

    def blocks(self, span: Span, count: int) -> Iterator[tuple[UOp, int]]:
        """Cut a span into blocks: gives (begin, count) once for each piece of code it takes."""
        full = span.count // count * count
        if full == count:
            yield span.begin, count
        elif full:
            with self._b.loop(span.begin, self._offset(span.begin, full), count) as begin:
                yield begin, count
        if full < span.count:
            yield self._offset(span.begin, full), span.count - full

    def _group(self, span: Span, points: list[Point], begin: UOp, count: int) -> list[Point]:
        lanes = span.lanes.count
        return [
            point.widened(span.range_, self._offset(begin, at), lanes, min(lanes, count - at))
            for at in range(0, count, lanes)
            for point in points
        ]

    def _offset(self, value: UOp, count: int) -> UOp:
        if value.op is Op.CONST:
            return self._b.index(int(value.value) + count)
        return value + count if count else value

    def _pin(self, roots: Sequence[UOp], points: list[Point]) -> None:
        """Place the values that do not change in the loop to be opened before it."""
        open_ranges = points[0].ranges.keys()
        fixed = [node for node in self._free if self._free[node] <= open_ranges]
        frozen = frozenset(fixed)
        pinned = {
            each
            for node in walk(roots, stop=frozen)
            for each in node.operands
            if each in frozen and is_work(each)
        }
        for point in points:
            evaluator = point.evaluator()
            for node in fixed:
                if node in pinned:
                    self._b.value(evaluator.value(node))

    # Residents.
    def _read_residents(self, point: Point) -> None:
        for each, workspace in self._residents.values():
            lanes = point.lanes if point.lane_range is each.stored else 1
            valid = point.valid if lanes > 1 else 1
            point.known[each.twin] = self._b.load(
                workspace, point.ranges[each.stored], lanes, valid
            )

    def _keep(self, fold: Fold, point: Point, evaluator: Evaluator) -> None:
        """Store a fold's element when it is resident."""
        if fold.node in self._residents:
            each, workspace = self._residents[fold.node]
            value = evaluator.value(fold.element)
            valid = point.valid if point.lanes > 1 else 1
            self._b.store(workspace, point.ranges[each.folded], value, valid)

    # Folds.
    def _compute_folds(self, roots: Sequence[UOp], points: list[Point]) -> None:
        open_ranges = points[0].ranges.keys()
        for node in walk(roots, stop=frozenset(points[0].known)):
            waits = node.op in FOLDS and node not in points[0].known
            if waits and self._free[node] <= open_ranges:
                self._compute_fold(fold_of(node), points)

    def _compute_fold(self, fold: Fold, points: list[Point]) -> None:
        lane_range, lanes = self._fold_lanes.get(fold.node, (None, SCALAR))
        if points[0].lanes > 1:
            lane_range = None
        spans = [self.span(each) for each in fold.ranges if each is not lane_range]
        if lane_range is not None:
            spans.append(self.span(lane_range, lanes))
        parts = self._fold_blocks(fold, points, spans)
        for point, part in zip(points, parts, strict=True):
            point.known[fold.node] = self._b.value(result_of(fold, part))

    def _fold_blocks(self, fold: Fold, points: list[Point], spans: list[Span]) -> list[Part]:
        """Fold over spans; a long float sum in blocks."""
        cut = cut_of(fold, spans)
        if cut is None:
            return self._fold_spans(fold, points, spans)
        wide = widened_sum(fold, spans)
        totals = [Accumulator(self._b, wide, point.lanes) for point in points]

        def add_block(span: Span, group: list[Point]) -> None:
            block = [span, *spans[cut.depth + 1 :]]
            parts = self._fold_spans(fold, group, block)
            for total, part in zip(totals, parts, strict=True):
                total.join(Part(cast(part.value, wide.dtype)))

        def add_blocks(group: list[Point]) -> None:
            whole = spans[cut.depth]
            for begin, count in self.blocks(whole, cut.count):
                add_block(Span(whole.range_, begin, count, whole.lanes), group)

        self.loops(spans[: cut.depth], (fold.element,), points, add_blocks)
        return [Part(cast(total.part().value, fold.dtype)) for total in totals]

    def _fold_spans(self, fold: Fold, points: list[Point], spans: Sequence[Span]) -> list[Part]:
        """Fold over spans in one go: one part for each point."""
        along = next((span for span in spans if span.lanes.count > 1), None)
        if along is None:
            accumulators = [Accumulator(self._b, fold, point.lanes) for point in points]
        else:
            vectors = min(along.lanes.vectors, -(-along.count // along.lanes.count))
            numbers = range(vectors)
            accumulators = [Accumulator(self._b, fold, along.lanes.count) for _ in numbers]

        def include(group: list[Point]) -> None:
            for accumulator, point in zip(accumulators, group, strict=False):
                position, evaluator = point.ranges[fold.ranges[0]], point.evaluator()
                self._keep(fold, point, evaluator)
                accumulator.include(evaluator, position, along is not None, point.valid)

        self.loops(spans, (fold.element,), points, include)
        parts = [each.part() for each in accumulators]
        return parts if along is None else [join_lanes(fold, join_all(fold, parts))]


def emit(stores: Sequence[UOp], points: list[Point]) -> None:
    """Emit the stores at each point."""
    for point in points:
        evaluator = point.evaluator()
        for store in stores:
            evaluator.store(store)


def is_work(node: UOp) -> bool:
    """Whether a value costs something to compute again; index sums fold into addresses."""
    return node.dtype is not dtypes.index and node.op not in (Op.CONST, Op.PARAM, *FOLDS)


@dataclass(frozen=True, slots=True)
class Cut:
    """Where a long sum is cut: the span at `depth`, every `count` values."""

    depth: int
    count: int


def cut_of(fold: Fold, spans: Sequence[Span]) -> Cut | None:
    """Choose where to cut a float sum into blocks; None when it is short or exact."""
    if fold.combine is not Combine.ADD or not fold.dtype.is_float:
        return None
    width = max(span.lanes.width for span in spans)
    elements = math.prod(span.count for span in spans)
    if elements <= (BLOCK_ELEMENTS if width > 1 else LONGEST_CHAIN):
        return None
    limit = BLOCK_ELEMENTS if width > 1 else math.isqrt(elements)
    inner = 1
    for depth in reversed(range(len(spans))):
        span = spans[depth]
        if inner * span.count > limit:
            count = max(1, limit // inner // span.lanes.width) * span.lanes.width
            return Cut(depth, count) if count < span.count else Cut(depth, span.count)
        inner *= span.count
    return None


def widened_sum(fold: Fold, spans: Sequence[Span]) -> Fold:
    """Return the fold of the blocks' sums: in float64 where it is one scalar."""
    scalar = any(span.lanes.count > 1 for span in spans)
    dtype = dtypes.float64 if scalar else fold.dtype
    return Fold(fold.node, fold.combine, fold.ranges, fold.element, None, dtype, None)
