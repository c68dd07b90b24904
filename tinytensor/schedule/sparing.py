"""Stores one value in place of several that are cheap to compute from it.

Takes:  regions with their outputs, and the nodes of the graph, operands before users.
Gives:  the same regions; some have fewer outputs, and their readers compute what they lack.
Placed: after `materialize`, before lowering, where a reader goes on to what is stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

from tinytensor.ops.kernel import Decision
from tinytensor.ops.op import ELEMENTWISE, VIEWS, Op
from tinytensor.ops.uop import UOp
from tinytensor.schedule.describe import describe
from tinytensor.schedule.order import nbytes_of
from tinytensor.schedule.region import LEAVES, Region, source_of
from tinytensor.timing import timed

MOST_COMPUTED = 32  # ops that one reader computes a second time

Outputs = dict[Region, tuple[UOp, ...]]


@timed("schedule: spare")
def spare_outputs(outputs: Outputs, order: Sequence[UOp], roots: AbstractSet[UOp]) -> Outputs:
    """Return fewer outputs where an epilogue stores more bytes than what they all come from.

    A gelu and its gradient share four values of each element of a product; two are enough. Others
    are computed again where a reader needs each element once, and reads nothing else for it.
    """
    users: dict[UOp, list[UOp]] = {}
    for node in order:
        for each in node.operands:
            users.setdefault(each, []).append(node)
    members = {node for region in outputs for node in region.position}
    written = {node for nodes in outputs.values() for node in nodes}
    spared = dict(outputs)
    for region, nodes in outputs.items():
        base = _common_source(region, users)
        free = [node for node in nodes if node is not base and node not in roots]
        fit = [
            node
            for node in free
            if _is_read_once(region, node, users, members)
            and _is_cheap(region, node, base, written)
        ]
        kept = [node for node in nodes if node not in fit]
        stored = [node for node in region.position if node in {*kept, base}]
        if sum(map(nbytes_of, stored)) < sum(map(nbytes_of, nodes)):
            spared[region] = tuple(stored)
            region.decisions += [_decision(node, base) for node in fit]
    return spared


def _decision(node: UOp, base: UOp) -> Decision:
    reason = f"its readers compute it again from {describe(base)}, which is smaller than all."
    return Decision("spare", describe(node), reason)


def _common_source(region: Region, users: Mapping[UOp, list[UOp]]) -> UOp:
    """Return the smallest member that all later ones come from: above the anchor, ways part."""
    chain = [region.anchor]
    while True:
        found = set(users.get(chain[-1], ()))
        if len(found) != 1 or not found <= region.position.keys():
            return source_of(region, min(reversed(chain), key=nbytes_of))
        chain += found


def _is_read_once(
    region: Region, node: UOp, users: Mapping[UOp, list[UOp]], members: AbstractSet[UOp]
) -> bool:
    """Whether all who read a value outside of its region need each element once."""
    shown = [each for each in region.position if source_of(region, each) is node]
    readers = [each for view in shown for each in users.get(view, ())]
    outside = [each for each in readers if each not in region.position]
    once = ELEMENTWISE | {Op.REDUCE}
    return all(each in members and each.op in once for each in outside)


def _is_cheap(region: Region, node: UOp, base: UOp, written: AbstractSet[UOp]) -> bool:
    """Whether it takes few ops and nothing but the base and what is stored to compute a value."""
    seen = {node}
    stack = [node]
    while stack:
        for each in stack.pop().operands:
            is_given = source_of(region, each) is base or each.op in LEAVES
            if is_given or each in seen:
                continue
            if each not in region.position and not _shows_stored(each, written):
                return False
            seen.add(each)
            stack += [each] * (each in region.position)
    return len(seen) <= MOST_COMPUTED


def _shows_stored(node: UOp, written: AbstractSet[UOp]) -> bool:
    while node.op in VIEWS and node not in written:
        node = node.operands[0]
    return node in written or node.op in LEAVES
