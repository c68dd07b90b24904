"""Turns a kernel with folds into vector loops, along folded ranges or along a kept one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field, replace

from tinytensor.codegen.builder import Builder
from tinytensor.codegen.plans.accumulate import Fold, fold_levels
from tinytensor.codegen.plans.fold_space import FoldSpace
from tinytensor.codegen.plans.lanes import (
    SCALAR,
    Lanes,
    accesses_of,
    best_lane_range,
    lanes_along,
    values_of,
    vector_cost,
)
from tinytensor.codegen.plans.merging import FOLDS, merge_ranges
from tinytensor.codegen.plans.nest import Nest
from tinytensor.codegen.plans.resident import Resident, find_residents
from tinytensor.ops.kernel import Kernel
from tinytensor.ops.linear import Linear
from tinytensor.ops.op import ELEMENTWISE, Mark
from tinytensor.ops.ranges import dependencies
from tinytensor.ops.uop import UOp, walk
from tinytensor.records import dataclass
from tinytensor.target import Target

FUNCTION_WORK = 12  # instructions of an exp or log, in those of an addition
JOIN_COST = 0.5  # joining two halves of a vector, in memory accesses
# A row of so few vectors stays in registers; several rows side by side hide one another's joins.
SHORT_ROW = 4
VECTORS_TOGETHER = 16
# Vectors accumulated side by side hide the latency of an addition; heavy elements hide it alone.
VECTORS_BY_WORK = ((6, 8), (24, 4), (math.inf, 2))


@dataclass(frozen=True, slots=True)
class ReductionFacts:
    """How a kernel with folds runs.

    `order` gives the kept ranges outermost first, one of them perhaps along lanes. `along` gives
    folds a range of their own to run along lanes; they stand outside the kept lanes.
    """

    kernel: Kernel
    order: tuple[UOp, ...]
    lanes: dict[UOp, Lanes]
    along: dict[UOp, tuple[UOp, Lanes]] = field(default_factory=dict)
    residents: tuple[Resident, ...] = ()


def facts(kernel: Kernel, target: Target) -> ReductionFacts | str | None:
    """Choose between rows and columns, or say why not; None for a kernel without a fold."""
    if not any(node.op in FOLDS for node in walk((kernel.sink,))):
        return None
    space = _Space(merge_ranges(kernel), target)
    row_cost, column_cost = space.row_cost(), space.column_cost()
    if min(row_cost, column_cost) == math.inf:
        return "its folds and its results have one element each; vectors need several."
    return space.rows() if row_cost <= column_cost else space.columns()


def describe(facts: ReductionFacts, target: Target) -> str:
    """Say how the kernel runs."""
    if not facts.along:
        best = next(iter(facts.lanes.values()))
        return f"columns: each of {best.count} lanes folds its own result, {best.vectors} at once."
    widths = {f"{each.vectors} vectors of {each.count} lanes" for _, each in facts.along.values()}
    kept = "; what is costly to compute is kept in cache from fold to fold" * bool(facts.residents)
    return f"rows: {' or '.join(sorted(widths))} fold parts of one row, joined at its end{kept}."


def lower(facts: ReductionFacts, target: Target) -> Linear:
    """Nest the kept ranges; the nest computes each fold where its ranges are open."""
    kernel = facts.kernel
    b = Builder(kernel.name, kernel.params, kernel.index_dtype)
    stores = kernel.sink.operands
    nest = Nest(b, stores, facts.along, facts.residents)
    nest.store(stores, [nest.span(each, facts.lanes.get(each, SCALAR)) for each in facts.order])
    return b.finish()


class _Space(FoldSpace):
    """What each way to run a kernel costs."""

    # Along folded ranges.
    def row_cost(self) -> float:
        """The accesses per element, worst fold first, when folds run along their own ranges."""
        return max(self._fold_cost(fold) for fold in self._folds)

    def _fold_cost(self, fold: Fold) -> float:
        candidates = self._own_ranges(fold)
        if not candidates:
            return math.inf if len(self._folds) == 1 else 0.0
        accesses = self._accesses(fold)
        best = best_lane_range(accesses, candidates)
        joins = JOIN_COST * math.log2(min(best.extent, 16)) / best.extent
        return vector_cost(accesses, best) + joins

    def _own_ranges(self, fold: Fold) -> list[UOp]:
        """The ranges a fold may run along: no fold inside depends on them."""
        inner = [node for node in walk((fold.element,)) if node.op in FOLDS]
        taken = frozenset[UOp]().union(*[self._depends[node] for node in inner])
        return [each for each in fold.ranges if each.extent > 1 and each not in taken]

    def rows(self) -> ReductionFacts:
        """Fold along lanes for each row, then store along the lanes of a range no fold knows."""
        along = self._along()
        lanes: dict[UOp, Lanes] = {}
        order = [*self._shared, *self._apart]
        if any(each.extent > 1 for each in self._apart):
            accesses = accesses_of(self._stores, stop=[fold.node for fold in self._folds])
            best = best_lane_range(accesses, self._apart)
            lanes[best] = lanes_along(best, values_of(self._stores), self._kernel, self._target)
            order = [*[each for each in order if each is not best], best]
        found = ReductionFacts(self._kernel, tuple(order), lanes, along)
        rows_at_once = self._rows_at_once(along)
        if rows_at_once:
            return _in_registers(found, self._shared[-1], rows_at_once)
        in_rows = [fold for fold in self._folds if fold.node in along]
        residents = find_residents(in_rows, self._stores, self._apart, self._target)
        return replace(found, residents=residents)

    def _rows_at_once(self, along: dict[UOp, tuple[UOp, Lanes]]) -> int:
        """How many short rows to take in one step; 0 for rows that do not stay in registers."""
        vectors = [-(-each.extent // lanes.count) for each, lanes in along.values()]
        if not vectors or not self._shared:
            return 0
        if min(vectors) > SHORT_ROW or max(vectors) > 2 * SHORT_ROW:
            return 0
        most = max(1, VECTORS_TOGETHER // min(vectors))
        rows = max(1, self._shared[-1].extent)
        return min(most, rows)

    def _along(self) -> dict[UOp, tuple[UOp, Lanes]]:
        """Give each fold lanes along a range of its own; folds that share a loop share them."""
        levels = fold_levels(self._folds)
        together: dict[tuple[UOp, int, int], list[Fold]] = {}
        for fold in self._folds:
            candidates = self._own_ranges(fold)
            if candidates:
                best = best_lane_range(self._accesses(fold), candidates)
                alone = self._lanes(best, (fold,), [fold.element])
                key = (best, alone.count, levels[fold.node])
                together.setdefault(key, []).append(fold)
        along: dict[UOp, tuple[UOp, Lanes]] = {}
        for (best, *_), folds in together.items():
            elements = [fold.element for fold in folds]
            lanes = self._lanes(best, folds, elements)
            along.update({fold.node: (best, lanes) for fold in folds})
        return along

    # Along a kept range.
    def column_cost(self) -> float:
        """The accesses per element when all folds run along one kept range."""
        candidates = [each for each in self._shared if each.extent > 1]
        accesses = accesses_of((self._kernel.sink,))
        costs = [vector_cost(accesses, each) for each in candidates]
        return min(costs, default=math.inf)

    def columns(self) -> ReductionFacts:
        """Take vectors along the best kept range, and fold each lane by itself."""
        candidates = [each for each in self._shared if each.extent > 1]
        best = best_lane_range(accesses_of((self._kernel.sink,)), candidates)
        elements = [fold.element for fold in self._folds]
        lanes = self._lanes(best, self._folds, [*elements, *values_of(self._stores)])
        outer = [each for each in self._shared if each is not best]
        order = (*outer, best, *self._apart)
        return ReductionFacts(self._kernel, order, {best: lanes})

    def _lanes(self, range_: UOp, folds: Sequence[Fold], values: list[UOp]) -> Lanes:
        """The lanes that the values and the folds' registers leave, several vectors in a step."""
        registers = [fold.dtype for fold in folds]
        registers += [fold.position for fold in folds if fold.position is not None]
        elements = [fold.element for fold in folds]
        varies = dependencies(walk(elements))
        own = walk(elements, stop={fold.node for fold in self._folds})
        vectors = vectors_for([each for each in own if range_ in varies[each]])
        lanes = lanes_along(range_, values, self._kernel, self._target, vectors)
        most = min(self._target.lanes(dtype.itemsize) for dtype in registers)
        return Lanes(min(lanes.count, most), lanes.vectors)


def _in_registers(facts: ReductionFacts, row: UOp, rows: int) -> ReductionFacts:
    """Take several rows side by side, each whole: what a row computes is never computed twice."""
    lanes = {each: _unrolled(each, width) for each, width in facts.lanes.items()}
    lanes[row] = Lanes(1, rows)
    along: dict[UOp, tuple[UOp, Lanes]] = {}
    for node, (range_, width) in facts.along.items():
        along[node] = (range_, _unrolled(range_, width))
    return replace(facts, lanes=lanes, along=along)


def _unrolled(range_: UOp, lanes: Lanes) -> Lanes:
    """Return the lanes that take a short range in one step."""
    vectors = -(-range_.extent // lanes.count)
    return Lanes(lanes.count, vectors) if vectors <= 2 * SHORT_ROW else lanes


def vectors_for(nodes: Sequence[UOp]) -> int:
    """Choose how many vectors to fold side by side by the work of one element."""
    work = 0
    for node in nodes:
        if node.op in ELEMENTWISE:
            work += FUNCTION_WORK if node.op.mark is Mark.TRANSCENDENTAL else 1
    return next(vectors for most, vectors in VECTORS_BY_WORK if work <= most)
