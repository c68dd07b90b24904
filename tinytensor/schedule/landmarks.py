"""Says how far the search for contractions reads a graph."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from tinytensor.ops.op import ELEMENTWISE, VIEWS, Op
from tinytensor.ops.uop import UOp
from tinytensor.schedule.region import BIJECTIVE

STARTS = (Op.BUFFER, Op.REDUCE)
MOST_BETWEEN = 24  # nodes looked at between a sum and one that it reads


def find_landmarks(order: Sequence[UOp]) -> frozenset[UOp]:
    """Return the nodes that read as much as a stored value would: all axes of their shape.

    Which ranges an expression reads does not change when such a node is taken for a stored value.
    So a search may stop there, and a chain of reductions is classified in linear time.
    """
    found: set[UOp] = set()
    for node in order:
        passes_on = node.op in ELEMENTWISE or (node.op in VIEWS and node.op is not Op.EXPAND)
        if node.op is Op.GATHER:
            is_one = _reads_all_axes(node, found)
        else:
            is_one = passes_on and any(each in found for each in node.operands)
        if is_one or node.op in STARTS:
            found.add(node)
    return frozenset(found)


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
    """Return what is looked at one by one below a REDUCE: down to the product it may sum."""
    seen: set[UOp] = set()
    stack = [reduce.operands[0]]
    while stack:
        node = stack.pop()
        if node in seen or node.op in STARTS:
            continue
        seen.add(node)
        if node.op in VIEWS or node.op in (Op.CAST, Op.WHERE):
            stack.extend(node.operands)
    return frozenset(seen)


def path_to_sum(reduce: UOp) -> list[UOp]:
    """Return the nodes from below a REDUCE down to the only one that it reads as it lies; or none.

    Every element of that one is read once. A contraction's factors are repeated instead, so none
    of them is ever found.
    """
    above: dict[UOp, UOp | None] = {reduce.operands[0]: None}
    stack = [reduce.operands[0]]
    ends: list[UOp] = []
    while stack and len(above) <= MOST_BETWEEN:
        node = stack.pop()
        if node.op is Op.REDUCE:
            ends.append(node)
        elif node.op in ELEMENTWISE or node.op in BIJECTIVE:
            fresh = [each for each in dict.fromkeys(node.operands) if each not in above]
            above.update(dict.fromkeys(fresh, node))
            stack.extend(fresh)
    if len(ends) != 1 or stack:
        return []
    path: list[UOp] = []
    at: UOp | None = ends[0]
    while at is not None:
        path.append(at)
        at = above[at]
    return path[::-1]
