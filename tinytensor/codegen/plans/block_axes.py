"""Turns an access at a sum of ranges, guarded or not, into axes of memory and places on them.

A guard that claims `0 <= h + i - 1 < 56` says that h and i walk one axis of 56 places, and beyond
it nothing is read. Without a guard, ranges that overlap in memory walk one axis.
"""

from __future__ import annotations

from collections.abc import Mapping

from tinytensor.codegen.vectorize import guard_of
from tinytensor.dtype import dtypes
from tinytensor.ops.guards import conjuncts
from tinytensor.ops.op import Op
from tinytensor.ops.simplify_index import simplify_index
from tinytensor.ops.sums import Sum, build, collect
from tinytensor.ops.uop import UOp, substitute
from tinytensor.records import dataclass


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis of memory: place `first` + the sum of each range times its step is accessed.

    Places outside 0 .. extent - 1 are guarded. Units: elements from place to place.
    """

    stride: int
    extent: int
    steps: Mapping[UOp, int]
    first: int

    def place(self, values: Mapping[UOp, UOp]) -> UOp:
        """Return the place, an index expression, at some values of the ranges."""
        total = build(Sum(dict(self.steps), self.first))
        return simplify_index(substitute(total, dict(values)))

    def holds_alone(self, range_: UOp) -> bool:
        """Whether the places are just the values of a range."""
        return dict(self.steps) == {range_: 1} and (self.first, self.extent) == (0, range_.extent)


@dataclass(frozen=True, slots=True)
class Seen:
    """An access: its buffer, its axes, and the element at place 0 of all."""

    buffer: UOp
    axes: tuple[Axis, ...]
    offset: int


def see_axes(access: UOp) -> Seen | None:
    """Return the axes that a LOAD or STORE walks; None where it is no walk along axes."""
    if access.op not in (Op.LOAD, Op.STORE):
        return None
    total = collect(access.operands[1])
    guard = guard_of(access)
    spans = {} if guard is None else _spans(guard)
    if spans is None or any(node.op is not Op.RANGE for node in total.coefficients):
        return None
    axes = []
    for steps, span in spans.items():
        strides = {total.coefficients.get(node, 0) / step for node, step in steps}
        stride = strides.pop()
        if strides or stride <= 0 or stride % 1:
            return None
        for node, _ in steps:
            del total.coefficients[node]
        axes.append(Axis(int(stride), span.high - span.low + 1, dict(steps), -span.low))
        total.constant += int(stride) * span.low
    if any(stride <= 0 for stride in total.coefficients.values()):
        return None
    return Seen(access.operands[0], (*axes, *_overlapping(total)), total.constant)


def _overlapping(total: Sum) -> list[Axis]:
    """Join ranges without a guard into axes: each with those that step within its reach."""
    axes: list[Axis] = []
    for node in sorted(total.coefficients, key=lambda each: total.coefficients[each]):
        stride = total.coefficients[node]
        last = axes[-1] if axes else None
        if last is None or stride % last.stride or stride >= last.stride * last.extent:
            axes.append(Axis(stride, node.extent, {node: 1}, 0))
            continue
        step = stride // last.stride
        extent = last.extent + step * (node.extent - 1)
        axes[-1] = Axis(last.stride, extent, {**last.steps, node: step}, 0)
    return axes


@dataclass(slots=True)
class _Span:
    """The least and the greatest value of a sum of ranges, as far as it is known."""

    low: int
    high: int


def _spans(guard: UOp) -> dict[tuple[tuple[UOp, int], ...], _Span] | None:
    """Return what a guard allows each sum of ranges; None if it claims something else."""
    spans: dict[tuple[tuple[UOp, int], ...], _Span] = {}
    walked: set[UOp] = set()
    for claim in conjuncts(guard):
        if claim.op not in (Op.LT, Op.LE) or claim.operands[0].dtype is not dtypes.index:
            return None
        x, y = claim.operands
        margin = collect(y)
        margin.include(collect(x), -1)
        if any(node.op is not Op.RANGE for node in margin.coefficients):
            return None
        margin.constant -= claim.op is Op.LT  # the margin is at least 0
        is_low = next(iter(margin.coefficients.values())) > 0
        sign = 1 if is_low else -1
        steps = {node: sign * step for node, step in margin.coefficients.items()}
        terms = tuple(sorted(steps.items(), key=lambda each: int(each[0].attrs.number)))
        if terms not in spans:
            if min(steps.values()) < 0 or not walked.isdisjoint(steps):
                return None
            walked.update(steps)
            reach = sum([step * (node.extent - 1) for node, step in terms])
            spans[terms] = _Span(0, reach)
        span = spans[terms]
        if is_low:
            span.low = max(span.low, -margin.constant)
        else:
            span.high = min(span.high, margin.constant)
    return spans
