"""Turns a kernel's ranges into LINEAR loops, with each fold where its ranges are open."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import partial

from tinytensor.codegen.builder import Builder
from tinytensor.codegen.plans.accumulate import (
    Accumulator,
    Fold,
    Part,
    as_minimum,
    fold_of,
    join_all,
    join_lanes,
    result_of,
)
from tinytensor.codegen.plans.lanes import SCALAR, Lanes
from tinytensor.codegen.plans.merging import FOLDS
from tinytensor.codegen.plans.resident import Resident
from tinytensor.codegen.vectorize import Evaluator, extent_value
from tinytensor.dtype import DType, dtypes
from tinytensor.ops.attrs import Combine
from tinytensor.ops.op import Op
from tinytensor.ops.ranges import dependencies, folded_ranges
from tinytensor.ops.uop import UOp, binary, cast, walk
from tinytensor.records import dataclass

# A float sum is cut into blocks, each summed from zero, so that its error stays near one rounding:
# 8e-9 of sum |x| at 1e8 elements against 6.5e-7 in one piece (Zen 5).
BLOCK_ELEMENTS = 4096
LONGEST_CHAIN = 512  # additions one after another before a sum is cut


@dataclass(frozen=True, slots=True)
class Span:
    """A range to walk: `count` values from `begin` on, or at most so many where `end` ends them."""

    range_: UOp
    begin: UOp
    count: int
    lanes: Lanes = SCALAR
    end: UOp | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Point:
    """Where ranges are open: each one's value, the lanes of one of them, the folds known there."""

    b: Builder
    ranges: Mapping[UOp, UOp] = field(default_factory=dict)
    known: dict[UOp, UOp] = field(default_factory=dict)
    lane_range: UOp | None = None
    lanes: int = 1
    valid: int = 1

    def evaluator(self) -> Evaluator:
        """Return what evaluates expressions here."""
        lanes = (self.lane_range, self.lanes, self.valid)
        return Evaluator(self.b, self.ranges, *lanes, known=self.known)

    def opened(self, range_: UOp, value: UOp) -> Point:
        """Return the point with one range more."""
        return replace(self, ranges={**self.ranges, range_: value}, known=dict(self.known))

    def widened(self, range_: UOp, value: UOp, lanes: int, valid: int) -> Point:
        """Return the point with one range more, along its lanes (a lone lane is no vector)."""
        point = self.opened(range_, value)
        if lanes == 1:
            return point
        return replace(point, lane_range=range_, lanes=lanes, valid=valid)


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
        self._residents = {each: each.workspace(b) for each in residents}
        self._kept: set[Resident] = set()

    def span(self, range_: UOp, lanes: Lanes = SCALAR) -> Span:
        """Return the whole of a range."""
        end = None
        if range_.is_open:
            end = self._b.value(extent_value(self._b, range_))
        return Span(range_, self._b.index(0), range_.extent, lanes, end)

    def store(self, stores: Sequence[UOp], spans: Sequence[Span]) -> None:
        """Emit the loops over spans, outermost first, with the stores inside.

        A store that the innermost ranges do not concern stands outside their loops.
        """
        depths = {store: self._depth(store, spans) for store in stores}
        outer = min(depths.values(), default=0)
        early = [store for store in stores if depths[store] == outer]
        late = [store for store in stores if depths[store] > outer]

        def emit_early(points: list[Point]) -> None:
            self._emit(early, points)
            if late:
                self.loops(spans[outer:], late, points, partial(self._emit, late))

        self.loops(spans[:outer], stores, [Point(self._b)], emit_early)

    def _depth(self, store: UOp, spans: Sequence[Span]) -> int:
        """How many spans must be open at a store."""
        return max(
            [at + 1 for at, span in enumerate(spans) if span.range_ in self._free[store]], default=0
        )

    def _emit(self, stores: Sequence[UOp], points: list[Point]) -> None:
        for point in points:
            for each in self._residents:
                if each.stored in point.ranges:
                    point.known[each.twin] = self._read(each, each.stored, point)
        emit(stores, points)

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
        for begin, count in self.blocks(span, span.lanes.width):
            self.loops(inner, roots, self._group(span, points, begin, count), body)

    def blocks(self, span: Span, count: int) -> Iterator[tuple[UOp, int]]:
        """Cut a span into blocks: gives (begin, count) once for each piece of code it takes."""
        if span.end is not None:
            yield from self._open_blocks(span, span.end, count)
            return
        full = span.count // count * count
        if full == count:
            yield span.begin, count
        elif full:
            with self._b.loop(span.begin, self._offset(span.begin, full), count) as begin:
                yield begin, count
        if full < span.count:
            yield self._offset(span.begin, full), span.count - full

    def _open_blocks(self, span: Span, end: UOp, count: int) -> Iterator[tuple[UOp, int]]:
        """Cut what ends at `end` into whole blocks, whole vectors, and single values."""
        begin = span.begin
        for step in dict.fromkeys((count, min(count, span.lanes.count), 1)):
            whole = end if step == 1 else begin + self._whole(end - begin, step)
            whole = self._b.value(whole)
            with self._b.loop(begin, whole, step) as at:
                yield at, step
            begin = whole

    def _whole(self, count: UOp, step: int) -> UOp:
        """The values that whole steps take."""
        return count - binary(Op.TRUNCMOD, count, step)

    def _cut(self, span: Span, count: int) -> Iterator[Span]:
        """Cut a span into shorter ones: gives each once for each piece of code it takes."""
        if span.end is None:
            for begin, values in self.blocks(span, count):
                yield Span(span.range_, begin, values, span.lanes)
            return
        with self._b.loop(span.begin, span.end, count) as begin:
            end = self._b.value(binary(Op.MIN, begin + count, span.end))
            yield Span(span.range_, begin, count, span.lanes, end)

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

    # Folds.
    def _compute_folds(self, roots: Sequence[UOp], points: list[Point]) -> None:
        """Compute what waits for no other range; folds over the same ranges share their loops."""
        known = points[0].known
        open_ranges = points[0].ranges.keys()
        nodes = walk(roots, stop=frozenset(known))
        waiting = [node for node in nodes if node.op in FOLDS and node not in known]
        waiting = [node for node in waiting if self._free[node] <= open_ranges]
        while waiting:
            inner = {
                node: {*walk(node.operands, stop=known)}.intersection(waiting) for node in waiting
            }
            first = self._loops_of(waiting[0])
            ready = [each for each in waiting if not inner[each] and self._loops_of(each) == first]
            self._compute_together([self._fold_of(node) for node in ready], points)
            waiting = [node for node in waiting if node not in ready]

    def _fold_of(self, node: UOp) -> Fold:
        return fold_of(node) if self._b.has_maximum else as_minimum(fold_of(node))

    def _loops_of(self, fold: UOp) -> tuple[object, ...]:
        """What folds have in common that may share their loops."""
        return *folded_ranges(fold), self._fold_lanes.get(fold)

    def _compute_together(self, folds: list[Fold], points: list[Point]) -> None:
        lane_range, lanes = self._fold_lanes.get(folds[0].node, (None, SCALAR))
        if points[0].lanes > 1:
            lane_range = None
        spans = [self.span(each) for each in folds[0].ranges if each is not lane_range]
        if lane_range is not None:
            spans.append(self.span(lane_range, lanes))
        values = self._fold_blocks(folds, points, spans)
        for fold, parts in zip(folds, values, strict=True):
            for point, part in zip(points, parts, strict=True):
                point.known[fold.node] = self._b.value(result_of(fold, part))
        self._kept.update(self._residents_of(folds, points[0].known))

    def _residents_of(self, folds: Sequence[Fold], known: Mapping[UOp, UOp]) -> list[Resident]:
        """Return what is kept of elements; below a known fold are those of another."""
        values = {each.value for each in self._residents}
        nodes = set(walk([fold.element for fold in folds], stop=values | known.keys()))
        return [each for each in self._residents if each.value in nodes]

    def _fold_blocks(
        self, folds: list[Fold], points: list[Point], spans: list[Span]
    ) -> list[list[Part]]:
        """Fold over spans; long float sums, and what shares their loops, in blocks."""
        cut = next((each for each in [cut_of(fold, spans) for fold in folds] if each), None)
        if cut is None:
            return self._fold_spans(folds, points, spans)
        wide = [widened_sum(fold, spans) for fold in folds]
        totals = [[Accumulator(self._b, fold, point.lanes) for point in points] for fold in wide]

        def add_block(span: Span, group: list[Point]) -> None:
            block = [span, *spans[cut.depth + 1 :]]
            values = self._fold_spans(folds, group, block)
            for fold, whole, parts in zip(wide, totals, values, strict=True):
                for total, part in zip(whole, parts, strict=True):
                    total.join(_with_dtype(part, fold.dtype))

        def add_blocks(group: list[Point]) -> None:
            for span in self._cut(spans[cut.depth], cut.count):
                add_block(span, group)

        elements = [fold.element for fold in folds]
        self.loops(spans[: cut.depth], elements, points, add_blocks)
        return [
            [_with_dtype(each.part(), fold.dtype) for each in whole]
            for fold, whole in zip(folds, totals, strict=True)
        ]

    def _fold_spans(
        self, folds: list[Fold], points: list[Point], spans: Sequence[Span]
    ) -> list[list[Part]]:
        """Fold over spans in one go: for each fold, one part for each point."""
        along = next((span for span in spans if span.lanes.count > 1), None)
        lanes, vectors = [point.lanes for point in points], 1
        if along is not None:
            vectors = min(along.lanes.vectors, -(-along.count // along.lanes.count))
            lanes = [along.lanes.count] * (vectors * len(points))
        accumulators = [[Accumulator(self._b, fold, each) for each in lanes] for fold in folds]
        residents = self._residents_of(folds, points[0].known)

        def include(group: list[Point]) -> None:
            for number, point in enumerate(group):
                evaluator = self._with_residents(residents, point)
                for fold, each in zip(folds, accumulators, strict=True):
                    position = point.ranges[fold.ranges[0]]
                    each[number].include(evaluator, position, along is not None, point.valid)

        self.loops(spans, [fold.element for fold in folds], points, include)
        found = [[each.part() for each in one] for one in accumulators]
        if along is None:
            return found
        count = len(points)
        return [
            [join_lanes(fold, join_all(fold, parts[at::count])) for at in range(count)]
            for fold, parts in zip(folds, found, strict=True)
        ]

    def _with_residents(self, residents: Sequence[Resident], point: Point) -> Evaluator:
        """Return what evaluates at a point; read what an earlier fold kept, and keep the rest."""
        for each in residents:
            if each in self._kept:
                point.known[each.value] = self._read(each, each.folded, point)
        evaluator = point.evaluator()
        for each in residents:
            if each not in self._kept:
                valid = point.valid if point.lanes > 1 else 1
                value = evaluator.value(each.value)
                self._b.store(self._residents[each], point.ranges[each.folded], value, valid)
        return evaluator

    def _read(self, resident: Resident, range_: UOp, point: Point) -> UOp:
        lanes = point.lanes if point.lane_range is range_ else 1
        valid = point.valid if lanes > 1 else 1
        return self._b.load(self._residents[resident], point.ranges[range_], lanes, valid)


def emit(stores: Sequence[UOp], points: list[Point]) -> None:
    """Emit the stores at each point, once all that they store is computed."""
    for point in points:
        evaluator = point.evaluator()
        for store in stores:
            evaluator.place(store.operands[2])
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


def _with_dtype(part: Part, dtype: DType) -> Part:
    return replace(part, value=cast(part.value, dtype))


def is_float_sum(fold: Fold) -> bool:
    """Whether the order of a fold's elements changes its rounding."""
    return fold.combine is Combine.ADD and fold.dtype.is_float


def cut_of(fold: Fold, spans: Sequence[Span]) -> Cut | None:
    """Choose where to cut a float sum into blocks; None when it is short or exact."""
    if not is_float_sum(fold):
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
            return Cut(depth, min(count, span.count))
        inner *= span.count
    return None


def widened_sum(fold: Fold, spans: Sequence[Span]) -> Fold:
    """Return the fold of the blocks' results: a sum in float64 where it is one scalar."""
    if not is_float_sum(fold):
        return fold
    scalar = any(span.lanes.count > 1 for span in spans)
    dtype = dtypes.float64 if scalar else fold.dtype
    return Fold(fold.node, fold.combine, fold.ranges, fold.element, None, dtype, None)
