"""Says where every value of an ordered schedule lies: in a buffer of its own, or in an idle one.

Takes:  kernels in the order they run, and which leaf's memory each result may take over.
Gives:  steps with the locations of their params; nothing is left to allocate while kernels run.
Placed: last; what lies in memory at the same time follows from the order.
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tinytensor.ops.instances import split
from tinytensor.ops.kernel import Kernel
from tinytensor.ops.uop import UOp, nbytes_of
from tinytensor.records import dataclass
from tinytensor.schedule.kernels import KernelCall
from tinytensor.schedule.order import written_by
from tinytensor.schedule.take_over import may_take, merge_params, ranges_in_one, tell_reuse
from tinytensor.timing import timed

ALIGNMENT_BYTES = 64  # what every buffer is aligned to, and has a multiple of

Taken = dict[int, int]  # outputs with the operands whose memory they take, as numbers of params


@dataclass(frozen=True, slots=True)
class Location:
    """Where a value lies: in the buffer of a leaf or a root, or without a holder in the arena.

    Units: bytes.
    """

    holder: UOp | None
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Step:
    """One kernel as it runs, and where its params lie: those of all instances, if it has them.

    `number` is that of the call it comes from.
    """

    number: int
    kernel: Kernel
    locations: tuple[Location, ...]
    extents: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Assigned:
    """Steps in order, the bytes of the arena they share, and the leaf that each root replaces."""

    steps: tuple[Step, ...]
    arena_bytes: int
    replaced: dict[UOp, UOp]


@dataclass(slots=True, eq=False)
class Room:
    """Bytes that are taken from one step to a later one, by values that take over one another."""

    size: int
    begin: int
    end: int
    holder: UOp | None = None
    offset: int = 0


@timed("schedule: memory")
def assign_memory(
    calls: Sequence[KernelCall], roots: Sequence[UOp], replaceable: Mapping[UOp, UOp]
) -> Assigned:
    """Say where every value lies; `replaceable` maps roots to leaves that nobody else reads.

    The buffer of a root is idle until the root is written: it holds what fits and dies before.
    Cost: quadratic in the values, 0.1 us a pair.
    """
    lives = _Lives(calls, roots, replaceable)
    taken = [lives.add(number) for number in range(len(calls))]
    rooms = list(dict.fromkeys(lives.rooms.values()))
    arena_bytes = _put_rooms(rooms)
    steps = [
        step
        for number, pairs in enumerate(taken)
        for step in _steps_of(number, calls[number], pairs, lives)
    ]
    return Assigned(tuple(steps), arena_bytes, lives.replaced)


def _steps_of(number: int, call: KernelCall, taken: Sequence[Taken], lives: _Lives) -> list[Step]:
    """Return the steps of a call: instances that take over other operands are another kernel."""
    extents = call.extents or (0,)
    instances = list(zip(split(call.nodes, extents), extents, taken, strict=True))
    steps: list[Step] = []
    for pairs in {tuple(each.items()): each for each in taken}.values():
        alike = [each for each in instances if each[2] == pairs]
        reasons = (*call.kernel.decisions, *tell_reuse(alike[0][0], pairs))
        told = replace(call.kernel, decisions=reasons)
        kernel = merge_params(told, pairs) if pairs else told
        locations = [
            lives.location_of(node)
            for nodes, _, _ in alike
            for place, node in enumerate(nodes)
            if place not in pairs.values()
        ]
        sizes = tuple([extent for _, extent, _ in alike]) if call.extents else ()
        steps.append(Step(number, kernel, tuple(locations), sizes))
    return steps


class _Lives:
    """From when to when each value lies in memory, and which ones share it."""

    def __init__(
        self, calls: Sequence[KernelCall], roots: Sequence[UOp], replaceable: Mapping[UOp, UOp]
    ) -> None:
        self.rooms: dict[UOp, Room] = {}
        self.replaced: dict[UOp, UOp] = {}
        self._leaves_taken: set[UOp] = set()
        self._calls = calls
        self._roots = set(roots)
        self._replaceable = replaceable
        self._end = {node: number for number, call in enumerate(calls) for node in call.nodes}
        self._end.update(dict.fromkeys(roots, len(calls)))

    def location_of(self, node: UOp) -> Location:
        """Return where a value lies, once its room has one."""
        room = self.rooms.get(node)
        if room is None:
            return Location(node, 0, nbytes_of(node))
        return Location(room.holder, room.offset, nbytes_of(node))

    def add(self, number: int) -> list[Taken]:
        """Begin what a kernel writes; return which outputs take an operand's memory, by number."""
        call = self._calls[number]
        uses = Counter(call.nodes)
        return [
            self._add_instance(number, KernelCall(call.kernel, tuple(nodes)), uses)
            for nodes in split(call.nodes, call.extents)
        ]

    def _add_instance(self, number: int, call: KernelCall, uses: Mapping[UOp, int]) -> Taken:
        taken: Taken = {}
        for output, node in enumerate(written_by(call)):
            leaf = self._replaceable.get(node)
            if leaf in self._leaves_taken:  # by another root
                leaf = None
            dying = [each for each in self._dying(number, call, leaf) if each not in taken.values()]
            unshared = [each for each in dying if uses[call.nodes[each]] == 1]  # by instances
            operand = self._operand_to_take(call, output, unshared, leaf)
            room = Room(_aligned(nbytes_of(node)), number, 0)
            if leaf is not None and self._end.get(leaf, -1) < number:
                self.replaced[node] = leaf
            elif operand is not None:
                taken[output] = operand
                room = self.rooms.get(call.nodes[operand], room)
                if call.nodes[operand] is leaf:
                    self.replaced[node] = leaf
            if node in self.replaced:
                self._leaves_taken.add(self.replaced[node])
                room.begin = 0  # the leaf is there from the start
            room.end = self._end[node]
            room.holder = node if node in self._roots else None
            self.rooms[node] = room
        return taken

    def _operand_to_take(
        self, call: KernelCall, output: int, dying: Sequence[int], leaf: UOp | None
    ) -> int | None:
        """Return the operand whose memory an output takes: a leaf, or what is read as it lies."""
        fitting = [each for each in dying if may_take(call.kernel, output, each)]
        if len(fitting) > 1:
            fitting.sort(key=lambda each: len(ranges_in_one(call.kernel, each)))
            fitting.sort(key=lambda each: call.nodes[each] is not leaf)
        return next(iter(fitting), None)

    def _dying(self, number: int, call: KernelCall, leaf: UOp | None) -> list[int]:
        """Return the operands nobody reads after a kernel, by number, a leaf's before others."""
        last = [
            each
            for each, (node, param) in enumerate(zip(call.nodes, call.kernel.params, strict=True))
            if self._end[node] == number and not param.written
        ]
        leaves = [each for each in last if call.nodes[each] is leaf]
        return leaves + [each for each in last if call.nodes[each] in self.rooms]


def _put_rooms(rooms: Sequence[Room]) -> int:
    """Put each room where no other one is at its time; return the size of the arena.

    Large ones first, each in the narrowest gap: within 5 % of the bytes that are alive at once, on
    the programs of extra/bench/memory_works.py.
    """
    fixed = sorted([each for each in rooms if each.holder], key=lambda each: each.size)
    inside: dict[UOp | None, list[Room]] = {each.holder: [each] for each in fixed}
    inside[None] = []
    free = sorted(
        [each for each in rooms if not each.holder], key=lambda each: (-each.size, -each.end)
    )
    for room in free:
        for host in [each for each in fixed if each.size >= room.size and each.begin > room.end]:
            offset = _narrowest_gap(room, inside[host.holder])
            if offset + room.size <= host.size:
                room.holder, room.offset = host.holder, offset
                break
        else:
            room.offset = _narrowest_gap(room, inside[None])
        bisect.insort(inside[room.holder], room, key=lambda each: each.offset)
    return max([each.offset + each.size for each in inside[None]], default=0)


def _narrowest_gap(room: Room, others: Sequence[Room]) -> int:
    """Return the offset of the smallest gap for a room beside others, by offset, of its time."""
    gaps: list[tuple[int, int]] = []
    end = 0
    for each in others:
        if each.begin <= room.end and room.begin <= each.end:
            if each.offset - end >= room.size:
                gaps.append((each.offset - end, end))
            end = max(end, each.offset + each.size)
    return min(gaps)[1] if gaps else end


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
