"""Stores one value in place of several that are cheap to compute from it.

Takes:  regions with their outputs, and the nodes of the graph, operands before users.
Gives:  the same regions; some have fewer outputs, and their readers compute what they lack.
Placed: after `materialize`, before lowering, where a reader goes on to what is stored.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet

from tinytensor.ops.kernel import Decision
from tinytensor.ops.op import VIEWS
from tinytensor.ops.uop import UOp
from tinytensor.schedule.cost import holding_seconds
from tinytensor.schedule.describe import describe, short_size, short_time
from tinytensor.schedule.materialize import Chooser, count_kernels
from tinytensor.schedule.order import nbytes_of
from tinytensor.schedule.region import LEAVES, Region, source_of
from tinytensor.timing import timed

Outputs = dict[Region, tuple[UOp, ...]]


@timed("schedule: spare")
def spare_outputs(outputs: Outputs, order: Sequence[UOp], chooser: Chooser) -> Outputs:
    """Return fewer outputs where an epilogue stores more bytes than what they all come from.

    A gelu and its gradient share four values of each element of a product; two are enough. Others
    are computed again where their readers have room for it, and the time it takes is worth the
    memory: what is held for a gradient is the same choice.
    """
    users: dict[UOp, list[UOp]] = {}
    for node in order:
        for each in node.operands:
            users.setdefault(each, []).append(node)
    written = {node for nodes in outputs.values() for node in nodes}
    spared = dict(outputs)
    for region, nodes in outputs.items():
        base = _common_source(region, users)
        free = [node for node in nodes if node is not base and node not in chooser.roots]
        fit: dict[UOp, Decision] = {}
        for node in free:
            again = _computed_again(region, node, base, written)
            decision = again and _weigh(region, node, base, chooser, again)
            if decision:
                fit[node] = decision
        kept = [node for node in nodes if node not in fit]
        stored = [node for node in region.position if node in {*kept, base}]
        if sum(map(nbytes_of, stored)) < sum(map(nbytes_of, nodes)):
            spared[region] = tuple(stored)
            region.decisions.extend(fit.values())
            if base not in nodes:
                reason = "the values not stored here are computed from it."
                chooser.stored[base] = Decision("store", describe(base), reason)
    return spared


def _weigh(
    region: Region, node: UOp, base: UOp, chooser: Chooser, again: Collection[UOp]
) -> Decision | None:
    """Say what it takes to compute a value again; None where that is too long, or has no room."""
    found = chooser.price(again)
    readings = chooser.readings_outside(region, node)
    if not all(chooser.has_room(each, found.ops * use.places) for each, use in readings.items()):
        return None
    longer = sum(
        chooser.seconds_longer(kernel, use.evaluations, found, node)
        for kernel, use in readings.items()
    )
    most = holding_seconds(nbytes_of(node), chooser.target)
    if longer > most:
        return None
    reason = (
        f"computed again from {describe(base)}, {short_size(nbytes_of(node))} less to hold, for "
        f"{short_time(max(longer, 0.0))} in {count_kernels(len(readings))}; "
        f"stored above {short_time(most)}."
    )
    return Decision("spare", describe(node), reason)


def _common_source(region: Region, users: Mapping[UOp, list[UOp]]) -> UOp:
    """Return the smallest member that all later ones come from: above the anchor, ways part."""
    chain = [region.anchor]
    while True:
        found = set(users.get(chain[-1], ()))
        if len(found) != 1 or not found <= region.position.keys():
            return source_of(region, min(reversed(chain), key=nbytes_of))
        chain += found


def _computed_again(
    region: Region, node: UOp, base: UOp, written: AbstractSet[UOp]
) -> dict[UOp, None]:
    """Return the ops from the base and what is stored to a value; none if others are read."""
    seen: dict[UOp, None] = {node: None}
    stack = [node]
    while stack:
        for each in stack.pop().operands:
            is_given = source_of(region, each) is base or each.op in LEAVES
            if is_given or each in seen:
                continue
            if each in region.position:
                seen[each] = None
                stack.append(each)
            elif not _shows_stored(each, written):
                return {}
    return seen


def _shows_stored(node: UOp, written: AbstractSet[UOp]) -> bool:
    while node.op in VIEWS and node not in written:
        node = node.operands[0]
    return node in written or node.op in LEAVES
