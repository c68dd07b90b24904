"""Turns square tiles over in registers, where loads run along another range than stores do."""

from __future__ import annotations

from collections.abc import Sequence

from tinytensor.codegen.builder import Builder, splat
from tinytensor.codegen.plans.lanes import accesses_of
from tinytensor.codegen.plans.nest import Point
from tinytensor.codegen.plans.packing import transpose
from tinytensor.codegen.vectorize import Evaluator, guard_of, stride_of
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp, const
from tinytensor.records import dataclass

LEAST_EXTENT = 4  # a narrower tile is not worth its shuffles


@dataclass(frozen=True, slots=True)
class Turn:
    """The loads that run along `range_` although the lanes run along another range."""

    range_: UOp
    loads: tuple[UOp, ...]


def find_turn(stores: Sequence[UOp], lane_range: UOp, others: Sequence[UOp]) -> Turn | None:
    """Return the range along which most of the loads that the lane range scatters are adjacent."""
    if lane_range.extent < LEAST_EXTENT:
        return None
    loads = [each for each in accesses_of(stores) if each.op is Op.LOAD]
    scattered = [each for each in loads if is_scattered(each, lane_range)]
    turns = [
        Turn(
            range_, tuple([each for each in scattered if stride_of(each.operands[1], range_) == 1])
        )
        for range_ in others
        if range_.extent >= LEAST_EXTENT
    ]
    best = max(turns, key=lambda turn: len(turn.loads), default=None)
    return best if best is not None and best.loads else None


def is_scattered(load: UOp, range_: UOp) -> bool:
    """Whether a load without a guard takes steps of several elements along a range."""
    stride = stride_of(load.operands[1], range_)
    return guard_of(load) is None and stride is not None and abs(stride) > 1


def turned_points(b: Builder, turn: Turn, point: Point, begin: UOp, count: int) -> list[Point]:
    """Return a point for each of `count` values of the turn's range, with its loads known there.

    The tile's rows are read as vectors along that range, one for each lane, and transposed.
    """
    points = [point.opened(turn.range_, begin + i if i else begin) for i in range(count)]
    for load in turn.loads:
        columns = transpose(_rows(b, load, turn.range_, point, begin, count))
        for each, column in zip(points, columns, strict=False):
            each.known[load] = b.value(column)
    return points


def _rows(b: Builder, load: UOp, range_: UOp, point: Point, begin: UOp, count: int) -> list[UOp]:
    """One vector along the range for each lane of the point; those that do not exist are zero."""
    assert point.lane_range is not None, "a tile has lanes"
    first = point.ranges[point.lane_range]
    rows: list[UOp] = []
    for number in range(point.valid):
        here = first + number if number else first
        places = {**point.ranges, point.lane_range: here, range_: begin}
        row = Evaluator(b, places, range_, point.lanes, count).value(load)
        rows.append(b.value(row))
    zero = splat(const(load.dtype, 0), point.lanes)
    return rows + [zero] * (point.lanes - point.valid)
