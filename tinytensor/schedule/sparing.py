"""Stores one value in place of several that are cheap to compute from it.

Takes:  regions with their outputs, and the nodes of the graph, operands before users.
Gives:  the same regions; some have fewer outputs, and their readers compute what they lack.
Placed: after `materialize`, before lowering, where a reader goes on to what is stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

from tinytensor.ops.op import VIEWS
from tinytensor.ops.uop import UOp, nbytes_of
from tinytensor.records import dataclass
from tinytensor.schedule.cost import holding_seconds
from tinytensor.schedule.describe import Draft, short_size, short_time
from tinytensor.schedule.materialize import Chooser, count_kernels
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
    ranks = {region.anchor: region.rank for region in outputs}
    for region, nodes in outputs.items():
        base = _common_source(region, users)
        free = [node for node in nodes if node is not base and node not in chooser.roots]
        again = [_again(region, node, base, chooser, written) for node in free]
        fit = sorted((each for each in again if each), key=lambda each: each.longer)
        lives = {node: _life(region, node, ranks, chooser) for node in (*nodes, base)}
        choices = [
            _Sparing(region, nodes, base, fit[:count], lives, chooser)
            for count in range(len(fit) + 1)
        ]
        best = max(choices, key=lambda each: each.gain)
        if best.gain > 0:
            spared[region] = best.stored
            best.record()
    return spared


@dataclass(frozen=True, slots=True)
class _Again:
    """A value computed again by its readers, and what they take longer for it."""

    node: UOp
    kernels: int
    longer: float


@dataclass(frozen=True, slots=True)
class _Sparing:
    """Some outputs of a region spared."""

    region: Region
    nodes: tuple[UOp, ...]
    base: UOp
    again: list[_Again]
    lives: Mapping[UOp, int]
    chooser: Chooser

    @property
    def stored(self) -> tuple[UOp, ...]:
        kept = {*self.nodes, self.base} if self.again else {*self.nodes}
        kept -= {each.node for each in self.again}
        return tuple([node for node in self.region.position if node in kept])

    @property
    def nbytes_spared(self) -> int:
        """The bytes less to hold, on average over the longest life: what is spared prolongs one."""
        lives = dict(self.lives)
        held = sum(nbytes_of(node) * lives[node] for node in self.nodes)
        lives[self.base] = max(lives[self.base], *(lives[each.node] for each in self.again), 0)
        left = sum(nbytes_of(node) * lives[node] for node in self.stored)
        return (held - left) // max(lives.values())

    @property
    def worth(self) -> float:
        return holding_seconds(self.nbytes_spared, self.chooser.target)

    @property
    def gain(self) -> float:
        return self.worth - sum(each.longer for each in self.again)

    def record(self) -> None:
        """Say it of each value, and of the one they come from."""
        gain = f"{short_size(self.nbytes_spared)} less to hold are worth {short_time(self.worth)}"
        for each in [each for each in self.again if each.kernels]:
            time = f"{short_time(max(each.longer, 0.0))} in {count_kernels(each.kernels)}"
            again = ("computed again from ", self.base, f" for {time}; in all, {gain}.")
            self.region.drafts.append(Draft("spare", each.node, again))
        if self.base not in self.nodes:
            reason = "the values not stored here are computed from it."
            self.chooser.stored[self.base] = Draft("store", self.base, (reason,))


def _life(region: Region, node: UOp, ranks: Mapping[UOp, int], chooser: Chooser) -> int:
    """Return for how many ranks of kernels a value is held; what is asked for, to the end."""
    readers = chooser.readings_outside(region, node)
    last = max((ranks[each] for each in readers), default=0)
    return max(1, (max(ranks.values()) if node in chooser.roots else last) - region.rank)


def _again(
    region: Region, node: UOp, base: UOp, chooser: Chooser, written: AbstractSet[UOp]
) -> _Again | None:
    """Say what it takes to compute a value again; None where that has no room."""
    ops = _computed_again(region, node, base, written)
    found = chooser.price(ops)
    readings = chooser.readings_outside(region, node)
    has_room = [chooser.has_room(each, found.ops * use.places) for each, use in readings.items()]
    if not ops or not all(has_room):
        return None
    longer = [
        chooser.seconds_longer(kernel, use, found, spared=node) for kernel, use in readings.items()
    ]
    return _Again(node, len(readings), sum(longer))


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
