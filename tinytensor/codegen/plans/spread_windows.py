"""Turns a kernel whose folds read windows into one that folds neighboring windows together."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

from tinytensor.codegen.plans.accumulate import Fold, factors_of
from tinytensor.codegen.plans.cuda_folding import SpreadFold
from tinytensor.codegen.plans.inside import guard_accesses
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
MOST_TAPS = 64  # elements of a fold that a thread takes alone, one after another in the code
MOST_STEPS = 4  # of a range, after which divisions of it repeat
WHOLE = 8  # a range of so many values is taken in whole
MANY_FOLDS = 4  # that share the registers of a thread
# Elements that a step of many folds takes. On H200, 919bcfef, 2026-11-30, in us, one, two and four:
# the gradient of 128 filters of 3 x 3, 64 x 56 x 56 halves each, 47, 34, 41, channels last 57, 68,
# 49; of floats 72, 64, 55 and 109, 73, 54.
NEIGHBORS = 4
WORTH = 0.75  # the part of the loads that may be left


@dataclass(frozen=True, slots=True)
class _Taken:
    """So many neighboring values of a range, of which a thread folds each."""

    range_: UOp
    count: int
    rank: tuple[float, int]  # what is left of the loads, and how far apart their elements are
    has_common: bool  # whether all results have some loads in common, as those of filters


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
    results = math.prod([each.extent for each in kernel.ranges])
    elements = results * max(map(_count_folded, folds), default=1)
    for each in kernel.ranges:
        steps = _steps_of(kernel, each)
        apart = _take(kernel, each, steps)
        is_spared = _count_folds(apart) < steps * _count_folds(kernel)
        if is_spared and elements >= least * len(apart.sink.operands):
            kernel = apart
    chosen = _choose(kernel)
    together = math.prod([each.count for each in chosen])
    for taken in chosen if elements >= least * together else ():
        kernel = _take(kernel, taken.range_, taken.count)
    return kernel


def _steps_of(kernel: Kernel, range_: UOp) -> int:
    """Return after how many values of a range all divisions of it repeat; 1 where none does."""
    divided = [each for each in walk((kernel.sink,)) if each.op in (Op.FLOORDIV, Op.MOD)]
    steps = 1
    for each in divided:
        dividend, divisor = each.operands
        stride = stride_of(dividend, range_)
        if stride and divisor.op is Op.CONST:
            steps = math.lcm(steps, int(divisor.value) // math.gcd(stride, int(divisor.value)))
    is_whole = range_.extent % steps == 0 or not _is_stored_along(kernel, range_)
    return steps if steps <= MOST_STEPS and not range_.is_open and is_whole else 1


def _is_stored_along(kernel: Kernel, range_: UOp) -> bool:
    """Whether stores are adjacent along a range, or other stores alone lie between."""
    stores = kernel.sink.operands
    near = range(1, len(stores) + 1)
    return any(stride_of(each.operands[1], range_) in near for each in stores)


def _count_folded(fold: UOp) -> int:
    return math.prod([each.extent for each in folded_ranges(fold)])


def _count_folds(kernel: Kernel) -> int:
    return sum(each.op in FOLDS for each in walk((kernel.sink,)))


def _take(kernel: Kernel, range_: UOp, count: int) -> Kernel:
    """Store the results of so many neighboring values of a range together."""
    if count == 1:
        return kernel
    numbers = [node.attrs.number for node in walk((kernel.sink,)) if node.op is Op.RANGE]
    groups = -(-range_.extent // count)
    rest = [make_range(1 + max(numbers), groups)] if groups > 1 else []
    first = rest[0] * count if rest else index_const(0)
    places = [first + value for value in range(count)]
    sink = kernel.sink
    if range_.extent % count:
        (sink,) = guard_accesses((sink,), range_ < range_.extent, range_)
    copies = [replace_ranges(sink, {range_: place}).operands for place in places]
    sink = simplify_index(sink.replace(tuple(itertools.chain(*copies))))
    ranges = list(kernel.ranges)
    at = ranges.index(range_)
    ranges[at : at + 1] = rest
    return replace(kernel, sink=sink, ranges=tuple(ranges))


def _choose(kernel: Kernel) -> list[_Taken]:
    """Choose ranges that leave the fewest loads, as long as the sums fit in registers.

    One range where nothing is common to all results, and of large windows, whose rows, which
    several results share, would not fit.
    """
    folds = [node for node in walk((kernel.sink,)) if node.op in FOLDS]
    taps = max(map(_count_folded, folds), default=0)
    is_large = MOST_TOGETHER < taps <= MOST_TAPS
    chosen: list[_Taken] = []
    most, ranges = MOST_TOGETHER // len(kernel.sink.operands), list(kernel.ranges)
    while True:
        found = [_taken(kernel, each, folds, most) for each in ranges]
        worth = [each for each in found if each is not None]
        if not worth:
            return chosen
        best = min(worth, key=lambda each: each.rank)
        chosen.append(best)
        ranges.remove(best.range_)
        most = most // best.count if best.has_common and not is_large else 1


def _taken(kernel: Kernel, range_: UOp, folds: Sequence[UOp], most: int) -> _Taken | None:
    """Return how many values of a range to take, at most so many; None where little is shared."""
    count = _count(kernel, range_, most)
    if count == 1:
        return None
    left: list[float] = []
    shared: list[tuple[float, int]] = []  # of those loads of which neighbors have some
    for fold in folds:
        for load in accesses_of(fold.operands[:1]):
            part = _part_left(load, range_, count, folded_ranges(fold))
            left.append(part)
            if 1 / count < part < 1:
                shared.append((part, abs(stride_of(load.operands[1], range_) or 0)))
    mean = sum(left) / max(1, len(left))
    if not shared or max(mean, *[part for part, _ in shared]) > WORTH:
        return None
    rank = (mean, min([apart for _, apart in shared]))
    return _Taken(range_, count, rank, has_common=min(left) == 1 / count)


def _count(kernel: Kernel, range_: UOp, most: int) -> int:
    if range_.is_open or range_.extent < 2:
        return 1
    if range_.extent <= min(WHOLE, most):
        return range_.extent
    fitting = [each for each in (4, 2) if each <= most and range_.extent % each == 0]
    return 1 if _is_stored_along(kernel, range_) or not fitting else fitting[0]


def _part_left(load: UOp, range_: UOp, count: int, folded: Sequence[UOp]) -> float:
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
    taps: list[Fold] = []
    for numbers in itertools.product(*[range(each.extent) for each in fold.ranges]):
        places = [index_const(number) for number in numbers]
        taps.append(_tap(fold, dict(zip(fold.ranges, places, strict=True))))
    return tuple(taps)


def _tap(fold: Fold, places: dict[UOp, UOp]) -> Fold:
    inner = {each: each for each in walk((fold.element,)) if each.op is Op.REDUCE}
    element = simplify_index(substitute(fold.element, {**places, **inner}))
    factors = None if fold.factors is None else factors_of(element)
    return replace(fold, element=element, factors=factors)


def take_neighbors(folds: tuple[SpreadFold, ...]) -> tuple[SpreadFold, ...]:
    """Let a step of many folds take neighboring elements, if these read the same."""
    spread = folds[0].spread
    has_position = any(each.fold.position is not None for each in folds)
    is_one = all(each.spread == spread for each in folds)
    if len(folds) < MANY_FOLDS or has_position or not is_one:
        return folds
    along = [each for each in spread.ranges if each is not spread.lane_range]
    ranges = [each for each in along if not each.is_open and each.extent % NEIGHBORS == 0]
    taken = [_with_neighbors(folds, each) for each in ranges]
    best = min(taken, key=_count_loads, default=folds)
    is_worth_it = _count_loads(best) <= WORTH * NEIGHBORS * _count_loads(folds)
    return best if is_worth_it else folds


def _with_neighbors(folds: tuple[SpreadFold, ...], range_: UOp) -> tuple[SpreadFold, ...]:
    nodes = walk([each.fold.node for each in folds])
    numbers = [node.attrs.number for node in nodes if node.op is Op.RANGE]
    fresh = 1 + max(numbers)
    groups = make_range(fresh, range_.extent // NEIGHBORS)
    spread = folds[0].spread
    ranges = [groups if each is range_ else each for each in spread.ranges]
    spread = replace(spread, ranges=tuple(ranges))
    places = [{range_: groups * NEIGHBORS + number} for number in range(NEIGHBORS)]
    taken: list[SpreadFold] = []
    for each in folds:
        taps = [_tap(each.fold, place) for place in places]
        taken.append(replace(each, spread=spread, taps=tuple(taps)))
    return tuple(taken)


def _count_loads(folds: Sequence[SpreadFold]) -> int:
    elements = [tap.element for each in folds for tap in each.taps]
    return len(accesses_of(elements))
