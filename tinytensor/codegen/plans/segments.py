"""Cuts stores along one range where their guards change, so that each part has constant guards."""

from __future__ import annotations

from tinytensor.codegen.plans.lanes import accesses_of
from tinytensor.codegen.plans.merging import replace_ranges
from tinytensor.codegen.vectorize import guard_of, stride_of
from tinytensor.dtype import dtypes
from tinytensor.ops.op import Op
from tinytensor.ops.ranges import dependencies
from tinytensor.ops.simplify_index import simplify_index
from tinytensor.ops.uop import UOp, fresh_number, index_const, make_range, substitute, walk
from tinytensor.records import dataclass

MOST_SEGMENTS = 64  # each is a loop to compile
# More segments than these must be this long on the average: short ones waste most of their lanes.
FEW_SEGMENTS = 4
SHORTEST = 8


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a range in which no guard changes: the stores, over a range of its own."""

    stores: tuple[UOp, ...]
    range_: UOp


def cut_segments(sink: UOp, range_: UOp) -> tuple[Segment, ...]:
    """Return a sink's stores in segments along a range; a single one where cutting is no gain."""
    whole = (Segment(sink.operands, range_),)
    guards = [guard_of(access) for access in accesses_of((sink,))]
    changing = [each for each in guards if each is not None and stride_of(each, range_) != 0]
    places = sorted({place for each in changing for place in _flips(each, range_)})
    most = FEW_SEGMENTS if range_.extent < SHORTEST * len(places) else MOST_SEGMENTS
    if not places or len(places) >= most or range_.is_open:
        return whole
    first = fresh_number(walk((sink,)))
    segments: list[Segment] = []
    parts = zip((0, *places), (*places, range_.extent), strict=True)
    for number, (begin, end) in enumerate(parts, first):
        part = make_range(number, end - begin)
        result = simplify_index(replace_ranges(sink, {range_: part + begin}))
        segments.append(Segment(result.operands, part))
    return tuple(segments)


def _flips(guard: UOp, range_: UOp) -> set[int]:
    """The values of a range inside its ends at which a comparison below the guard changes."""
    nodes = walk((guard,))
    depends = dependencies(nodes)
    places: set[int] = set()
    for node in nodes:
        if node.op in (Op.LT, Op.LE) and depends[node] == {range_}:
            places.update(_flip(node, range_))
    return {each for each in places if 0 < each < range_.extent}


def _flip(comparison: UOp, range_: UOp) -> list[int]:
    """Where x < y, or x <= y, changes: none unless both sides are affine index values."""
    x, y = comparison.operands
    if x.dtype is not dtypes.index:
        return []
    far, near = stride_of(x, range_), stride_of(y, range_)
    start = simplify_index(substitute(x - y, {range_: index_const(0)}))
    if far is None or near is None or far == near or start.op is not Op.CONST:
        return []
    # It holds where slope * r + offset < 0, in integers: r below (or from) the ceiling.
    slope, offset = far - near, int(start.value) - (comparison.op is Op.LE)
    if slope > 0:
        return [-(offset // slope)]
    return [offset // -slope + 1]
