"""Turns a kernel whose folds read windows into one that folds neighboring windows together."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

from tinytensor.codegen.plans.accumulate import Fold, factors_of
from tinytensor.codegen.plans.cuda_folding import SpreadFold
from tinytensor.codegen.plans.lanes import accesses_of
from tinytensor.codegen.plans.merging import FOLDS, replace_ranges
from tinytensor.codegen.vectorize import stride_of
from tinytensor.ops.kernel import Kernel
from tinytensor.ops.op import Op
from tinytensor.ops.ranges import folded_ranges
from tinytensor.ops.simplify_index import simplify_index
from tinytensor.ops.uop import UOp, index_const, make_range, substitute, walk
from tinytensor.records import dataclass

MOST_TOGETHER = 9  # results of a thread, each of perhaps eight lanes: their sums are registers
WHOLE = 8  # a range of so many values is taken in whole
MANY_FOLDS = 4  # that share the registers of a thread
NEIGHBORS = 4  # elements that a step of many folds takes
WORTH = 0.75  # the part of the loads that may be left


@dataclass(frozen=True, slots=True)
class _Taken:
    """So many neighboring values of a range, of which a thread folds each."""

    range_: UOp
    count: int
    rank: tuple[float, int]  # what is left of the loads, and how far apart their elements are

    def places(self, fresh: int) -> list[UOp]:
        """Return the values, perhaps over a range of that number which takes the old one's place.

        The last one's place is what `rest` returns.
        """
        numbers = [index_const(each) for each in range(self.count)]
        rest = self.rest(fresh)
        return numbers if rest is None else [rest * self.count + each for each in numbers]

    def rest(self, fresh: int) -> UOp | None:
        """Return the range that is left, if one is."""
        extent = self.range_.extent // self.count
        return make_range(fresh, extent) if extent > 1 else None


def fold_together(kernel: Kernel, least: int) -> Kernel:
    """Give a thread several results where their windows share `least` elements or more.

    Neighboring results of a convolution of each channel by itself read two of three rows in common;
    all places of its filter's gradient read the same results. With a store and a fold for each of
    them, a thread loads an element once. Ranges along which vectors may be stored are left.
    """
    nodes = walk((kernel.sink,))
    folds = [node for node in nodes if node.op in FOLDS]
    if any(node.op is Op.CONTRACT or len(node.operands) < 2 for node in folds):
        return kernel
    chosen = _choose(kernel, folds)
    together = math.prod([each.count for each in chosen])
    elements = math.prod([each.extent for each in nodes if each.op is Op.RANGE])
    if elements < least * together:
        return kernel
    sink, ranges = kernel.sink, list(kernel.ranges)
    fresh = 1 + max([node.attrs.number for node in nodes if node.op is Op.RANGE], default=0)
    for number, each in enumerate(chosen, fresh):
        copies = [replace_ranges(sink, {each.range_: at}).operands for at in each.places(number)]
        sink = simplify_index(sink.replace(tuple(itertools.chain(*copies))))
        rest = each.rest(number)
        at = ranges.index(each.range_)
        ranges[at : at + 1] = [] if rest is None else [rest]
    return replace(kernel, sink=sink, ranges=tuple(ranges))


def _choose(kernel: Kernel, folds: Sequence[UOp]) -> list[_Taken]:
    """Choose ranges that leave the fewest loads, as long as the sums fit in registers."""
    found = [_taken(kernel, each, folds) for each in kernel.ranges]
    worth = sorted([each for each in found if each is not None], key=lambda each: each.rank)
    chosen: list[_Taken] = []
    for each in worth:
        results = each.count * math.prod([one.count for one in chosen]) * len(kernel.sink.operands)
        if results <= MOST_TOGETHER:
            chosen.append(each)
    return chosen


def _taken(kernel: Kernel, range_: UOp, folds: Sequence[UOp]) -> _Taken | None:
    """Return how many values of a range to take; None where little is shared."""
    count = _count(kernel, range_)
    if count == 1:
        return None
    loads = [
        (load, folded_ranges(fold)) for fold in folds for load in accesses_of(fold.operands[:1])
    ]
    left = [part_left(load, range_, count, folded) for load, folded in loads]
    steps = [abs(stride_of(load.operands[1], range_) or 0) for load, _ in loads]
    apart = [step for step, each in zip(steps, left, strict=True) if 1 / count < each < 1]
    mean = sum(left) / max(1, len(left))
    return _Taken(range_, count, (mean, min(apart))) if apart and mean <= WORTH else None


def _count(kernel: Kernel, range_: UOp) -> int:
    if range_.is_open or range_.extent < 2:
        return 1
    if range_.extent <= WHOLE:
        return range_.extent
    is_stored_along = any(stride_of(e.operands[1], range_) == 1 for e in kernel.sink.operands)
    return 1 if is_stored_along else math.gcd(range_.extent, 4)


def part_left(load: UOp, range_: UOp, count: int, folded: Sequence[UOp]) -> float:
    """Return the part of a load's elements that is left of those of `count` results."""
    index = load.operands[1]
    stride = stride_of(index, range_)
    if stride == 0:
        return 1 / count
    left = 1.0
    for each in folded:
        step = stride_of(index, each)
        if step and stride is not None:
            apart = abs(step) * (each.extent - 1) + abs(stride) * (count - 1)
            reached = apart // math.gcd(step, stride) + 1
            left = min(left, reached / (count * each.extent))
    return left


# Elements that one thread takes in turn.
def taps_of(fold: Fold) -> tuple[Fold, ...]:
    """Return the fold of each element of a short one, in ascending order."""
    places = itertools.product(*[range(each.extent) for each in fold.ranges])
    numbers = [[index_const(number) for number in each] for each in places]
    return tuple([_tap(fold, dict(zip(fold.ranges, each, strict=True))) for each in numbers])


def _tap(fold: Fold, places: dict[UOp, UOp]) -> Fold:
    element = simplify_index(substitute(fold.element, places))
    factors = None if fold.factors is None else factors_of(element)
    return replace(fold, element=element, factors=factors)


def take_neighbors(folds: tuple[SpreadFold, ...]) -> tuple[SpreadFold, ...]:
    """Let a step of many folds take neighboring elements, if these read the same."""
    first = folds[0]
    if len(folds) < MANY_FOLDS or any(each.spread != first.spread for each in folds):
        return folds
    alone = len(_loads(folds)) * NEIGHBORS
    ranges = [each for each in first.spread.ranges if each is not first.spread.lane_range]
    taken = [_with_neighbors(folds, each) for each in ranges if each.extent % NEIGHBORS == 0]
    best = min(taken, key=lambda each: len(_loads(each)), default=folds)
    return best if len(_loads(best)) <= WORTH * alone else folds


def _with_neighbors(folds: tuple[SpreadFold, ...], range_: UOp) -> tuple[SpreadFold, ...]:
    numbers = [
        node.attrs.number
        for each in folds
        for node in walk(each.fold.node.operands)
        if node.op is Op.RANGE
    ]
    groups = make_range(1 + max(numbers), range_.extent // NEIGHBORS)
    spread = folds[0].spread
    ranges = tuple([groups if each is range_ else each for each in spread.ranges])
    places = [{range_: groups * NEIGHBORS + number} for number in range(NEIGHBORS)]
    return tuple(
        [
            replace(
                each,
                spread=replace(spread, ranges=ranges),
                taps=tuple([_tap(each.fold, at) for at in places]),
            )
            for each in folds
        ]
    )


def _loads(folds: Sequence[SpreadFold]) -> list[UOp]:
    return accesses_of([tap.element for each in folds for tap in each.taps])
