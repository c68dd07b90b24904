"""Turns stores whose lanes lie between one another's into stores of whole vectors."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace

from tinytensor.codegen.builder import lane, stack
from tinytensor.codegen.plans.alignment import ACCESS_BYTES
from tinytensor.codegen.plans.nest import Point
from tinytensor.codegen.vectorize import is_multiple, stride_of
from tinytensor.ops.sums import collect
from tinytensor.ops.uop import UOp


def emit_woven(stores: Sequence[UOp], point: Point) -> None:
    """Emit the stores at a point, once all that they store is computed.

    Two stores of every second element, beginning side by side, are one of twice the lanes.
    """
    b, evaluator = point.b, point.evaluator()
    first = replace(point, lane_range=None, lanes=1, valid=1).evaluator()
    for each in stores:
        evaluator.place(each.operands[2])
    for group in _groups(stores, point):
        if len(group) == 1:
            evaluator.store(group[0])
            continue
        values = [evaluator.value(each.operands[2]) for each in group]
        numbers = range(point.lanes)
        woven = [lane(x, i) if x.dtype.lanes > 1 else x for i in numbers for x in values]
        target, place = group[0].operands[:2]
        buffer, index = b.param(target.attrs.number), first.value(place)
        width = min(len(woven), _most_lanes(group[0]))
        for begin in range(0, len(woven), width):
            b.store(buffer, index + begin if begin else index, stack(woven[begin : begin + width]))


def _groups(stores: Sequence[UOp], point: Point) -> Iterator[list[UOp]]:
    """Yield stores that fill aligned vectors together, in order of their places, or one alone."""
    range_ = point.lane_range
    if range_ is None:
        yield from [[each] for each in stores]
        return
    groups: dict[Hashable, list[UOp]] = {}
    for each in stores:
        target, index, _, *guards = each.operands
        step = stride_of(index, range_)
        key: Hashable = each
        if step and not guards:
            total = collect(index)
            key = target, frozenset(total.coefficients.items()), total.constant // step
        groups.setdefault(key, []).append(each)
    for group in groups.values():
        group.sort(key=lambda each: collect(each.operands[1]).constant)
        index, count = group[0].operands[1], len(group)
        width = min(count * point.lanes, _most_lanes(group[0]))
        is_whole = count > 1 and stride_of(index, range_) == count
        is_aligned = is_whole and is_multiple(index, range_, width, 0)
        yield from [group] if is_aligned else [[each] for each in group]


def _most_lanes(store: UOp) -> int:
    return ACCESS_BYTES // store.operands[0].dtype.itemsize
