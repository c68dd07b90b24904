"""Says how far the search for contractions reads a graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

from tinytensor.ops.op import ELEMENTWISE, VIEWS, Op
from tinytensor.ops.size import is_one, is_repeated
from tinytensor.ops.uop import UOp
from tinytensor.records import dataclass
from tinytensor.schedule.kernels import Numbering
from tinytensor.schedule.lower_views import Lowering, Point
from tinytensor.schedule.region import MOST_READS

STARTS = (Op.BUFFER, Op.REDUCE)
Axes = frozenset[int]


def find_landmarks(order: Sequence[UOp]) -> frozenset[UOp]:
    """Return the nodes that read as much as a stored value would: all axes of their shape.

    Which ranges an expression reads does not change when such a node is taken for a stored value.
    So a search may stop there, and a chain of reductions is classified in linear time.
    """
    found: set[UOp] = set()
    reading: set[UOp] = set()  # what reads memory; of numbers alone, views may leave fewer ranges
    told: dict[UOp, Axes] = {}
    for node in order:
        if node.op in STARTS or any(each in reading for each in node.operands):
            reading.add(node)
        told[node] = _told_axes(node, told, found)
        if node in reading and len(told[node]) == len(node.shape):
            found.add(node)
    return frozenset(found)


def _told_axes(node: UOp, told: Mapping[UOp, Axes], found: AbstractSet[UOp]) -> Axes:
    """Return the axes along which what a node reads tells all its elements apart.

    An exchange reads each pair of its operand along some axes, and a number along the last one.
    """
    every = frozenset(range(len(node.shape)))
    if node.op in STARTS or node.op is Op.IOTA:
        return every
    if node.op is Op.GATHER and _reads_all_axes(node, found):
        return every
    own = frozenset([axis for axis in every if is_one(node.shape[axis])])
    if node.op in ELEMENTWISE:
        return own.union(*[told[each] for each in node.operands])
    if node.op not in VIEWS:
        return own
    inner = node.operands[0]
    if node.op is Op.RESHAPE:
        return every if len(told[inner]) == len(inner.shape) else own
    if node.op is Op.PERMUTE:
        return frozenset([axis for axis in every if node.attrs.order[axis] in told[inner]])
    shapes = enumerate(zip(inner.shape, node.shape, strict=True))
    is_expand = node.op is Op.EXPAND
    repeated = [axis for axis, pair in shapes if is_expand and is_repeated(*pair)]
    return own | told[inner].difference(repeated)


def _reads_all_axes(gather: UOp, found: AbstractSet[UOp]) -> bool:
    """Whether a GATHER's operand is a landmark, and some index varies along each axis chosen."""
    x, *indices = gather.operands
    return x in found and all(
        any(_varies_along(each, axis, found) for each in indices) for axis in gather.attrs.axes
    )


def _varies_along(index: UOp, axis: int, found: AbstractSet[UOp]) -> bool:
    if index.shape[axis] == 1:
        return True
    inner = index.operands[0] if index.op is Op.EXPAND else index
    return inner in found and inner.shape[axis] == index.shape[axis]


def nodes_down_to_product(reduce: UOp) -> frozenset[UOp]:
    """Return what is looked at one by one below a REDUCE: down to the product it may sum.

    Below a choice, that is its ways: of a masked product it is told why it is no contraction.
    """
    seen, inner = _nodes_down_to(reduce.operands[0], through=VIEWS | {Op.CAST})
    for way in inner.operands[1:] if inner.op is Op.WHERE else ():
        seen += _nodes_down_to(way, through=VIEWS)[0]
    return frozenset([node for node in seen if node.op not in STARTS])


def _nodes_down_to(node: UOp, through: AbstractSet[Op]) -> tuple[list[UOp], UOp]:
    """Return a node with what some ops on the way down show, and the last of them."""
    seen = [node]
    while node.op in through:
        node = node.operands[0]
        seen.append(node)
    return seen, node


class Ends(Numbering):
    """Landmarks but for what is looked at, and what is read at more places than a kernel reads.

    Something above that will be stored. Exchanges read two places each, so n of them in a row would
    read 2**n, were they not cut.
    """

    def __init__(self, landmarks: AbstractSet[UOp], looked_at: AbstractSet[UOp]) -> None:
        super().__init__(landmarks, looked_at)
        self.places: Counter[object] = Counter()

    def __contains__(self, node: object) -> bool:
        return self.places[node] > MOST_READS or super().__contains__(node)


@dataclass(slots=True)
class Search(Lowering):
    """Lowers what a REDUCE folds down to where the search ends.

    Cost: linear in the nodes above that.
    """

    params: Ends

    def _needed(self, point: Point) -> list[Point]:
        self.params.places[point.node] += point.node.op in ELEMENTWISE
        return Lowering._needed(self, point)
