"""Chooses which values that tensors hold are stored, because graphs compute them once more.

A value that is not asked for is computed by each graph that reads it, and is *lost* once it was.
One graph may well compute it inside its kernels. But the state of a loop is made of the state
before, which nobody holds any more: a graph that reads it reads all steps, and is another one each
time. So what tensors hold is weighed when it is, or is made of, something lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from tinytensor.ops.op import VIEWS, Op
from tinytensor.ops.size import elements_now
from tinytensor.ops.uop import UOp, nbytes_of, walk
from tinytensor.records import dataclass
from tinytensor.schedule.cost import (
    Load,
    evaluation_seconds,
    holding_seconds,
    reading_seconds,
    writing_seconds,
)
from tinytensor.schedule.describe import short_time
from tinytensor.target import Target

# What a graph of another structure costs the host: a schedule, and a kernel to compile.
COMPILE_SECONDS = 0.05
# A value that is still held may be made of so many lost ops: its graph is the same each time.
MOST_LOST = 16


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a held value is stored, why, and the nodes that it is made of."""

    node: UOp
    is_stored: bool
    reason: str
    inside: Sequence[UOp]


def weigh_held(
    roots: Sequence[UOp],
    ends: AbstractSet[UOp],
    lost: AbstractSet[UOp],
    held: AbstractSet[UOp],
    target: Target,
) -> list[Verdict]:
    """Say of held values that are lost, or made of something lost, whether they are stored now.

    What is below the ends is not looked at; `lost` were computed before, and nobody keeps them. Of
    values made of one another the lowest is weighed: what lies above it can be made of it.
    Cost: linear in the graph, and in what each value that is weighed is made of.
    """
    nodes = walk(roots, stop=ends)
    fresh = _read_by_fresh(nodes, roots, lost) if held & lost else set()
    counted = {*ends}
    verdicts = []
    for node in nodes:
        if node not in held or node in roots or (node in lost and node not in fresh):
            continue
        inside = [each for each in walk([node], stop=counted) if each not in counted]
        is_clean = lost.isdisjoint(inside)
        counted.update(inside if is_clean else [node])
        if not is_clean:
            verdicts.append(_weigh(node, inside, lost, target))
    return verdicts


def _read_by_fresh(nodes: Sequence[UOp], roots: Sequence[UOp], lost: AbstractSet[UOp]) -> set[UOp]:
    """Return what is asked for as a view, or is read by what was never computed."""
    found = {node for node in roots if node.op in VIEWS}
    for node in reversed(nodes):
        is_fresh = node in found if node.op in VIEWS else node not in lost
        if is_fresh:
            found.update(node.operands)
    return found


def _weigh(node: UOp, inside: Sequence[UOp], lost: AbstractSet[UOp], target: Target) -> Verdict:
    """Compare storing a value that is made of what is inside with computing it again."""
    again = [each for each in inside if each in lost]
    read = [each for each in inside if each.op is Op.BUFFER]
    recomputing = Load(
        sum(_evaluations(each) * evaluation_seconds(each, target) for each in again),
        sum(reading_seconds(nbytes_of(each), target) for each in read),
    ).seconds
    nbytes = nbytes_of(node)
    moving = writing_seconds(nbytes, target) + reading_seconds(nbytes, target)
    storing = moving + holding_seconds(nbytes, target)
    grows = node not in lost or len(again) > MOST_LOST
    ops = f"{len(again)} op{'s' * (len(again) != 1)}"
    compiling = f", and {short_time(COMPILE_SECONDS)} to compile a graph that grew" * grows
    reason = (
        f"a tensor holds it, made of {ops} that an earlier graph computed and nobody kept; storing "
        f"takes {short_time(storing)}, computing again {short_time(recomputing)}{compiling}."
    )
    return Verdict(node, storing < recomputing + grows * COMPILE_SECONDS, reason, inside)


def _evaluations(node: UOp) -> int:
    """Return how often a node's operation is done for all of its elements."""
    return elements_now(node.operands[0].shape if node.op is Op.REDUCE else node.shape)
