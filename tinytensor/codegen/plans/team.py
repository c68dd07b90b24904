"""Folds what the threads of a block folded by themselves: first in warps, then across them."""

from __future__ import annotations

from collections.abc import Sequence

from tinytensor.codegen.block_builder import BlockBuilder
from tinytensor.codegen.builder import lane, stack
from tinytensor.codegen.plans.accumulate import Fold, Part, join, join_all
from tinytensor.codegen.plans.spread import quotient, remainder, scaled
from tinytensor.ops.fragments import WARP_THREADS
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp, compare
from tinytensor.records import dataclass


@dataclass(frozen=True, slots=True)
class Team:
    """How a block's threads share work: `across` results side by side, `members` for each.

    A thread's number is result * members + member, or, when the results are `adjacent`,
    member * across + result. Both counts are powers of two.
    """

    across: int
    members: int
    adjacent: bool

    @property
    def threads(self) -> int:
        """The threads of a block."""
        return self.across * self.members

    @property
    def warp_members(self) -> int:
        """How many members of one result are in the same warp."""
        width = self.across if self.adjacent else 1
        return min(self.members, max(1, WARP_THREADS // width))

    def result(self, thread: UOp) -> UOp:
        """Return which of the results a thread works on."""
        if self.adjacent or self.across == 1:
            return remainder(thread, self.across)
        return quotient(thread, self.members)

    def member(self, thread: UOp) -> UOp:
        """Return a thread's number among those of its result."""
        if self.adjacent or self.across == 1:
            return quotient(thread, self.across)
        return remainder(thread, self.members)


class TeamFold:
    """Folds the parts of all members of each result, so that every member knows the whole."""

    def __init__(self, b: BlockBuilder, team: Team, result: UOp, member: UOp) -> None:
        self._b = b
        self._team = team
        self._result = result
        self._member = member

    def fold(self, fold: Fold, part: Part) -> Part:
        """Return the fold of all members' parts; the order is fixed, so results repeat."""
        team = self._team
        step = team.across if team.adjacent else 1
        distance = step
        while distance < step * team.warp_members:
            part = join(fold, part, self._exchanged(part, distance))
            distance *= 2
        if team.warp_members == team.members:
            return part
        return join_all(fold, self._share(part))

    def _exchanged(self, part: Part, distance: int) -> Part:
        position = part.position
        if position is not None:
            position = self._exchange(position, distance)
        return Part(self._exchange(part.value, distance), position)

    def _exchange(self, value: UOp, distance: int) -> UOp:
        lanes = [self._b.exchange(each, distance) for each in split(value)]
        return stack(lanes) if len(lanes) > 1 else lanes[0]

    def _share(self, part: Part) -> list[Part]:
        """Return one part for each warp of the result, through shared memory."""
        values, positions = self._region(part.value), None
        if part.position is not None:
            positions = self._region(part.position)
        b, team = self._b, self._team
        warp = quotient(self._member, team.warp_members)
        first = compare(Op.EQ, remainder(self._member, team.warp_members), b.index(0))
        with b.branch(first):
            self._write(values, warp, part.value)
            if positions is not None and part.position is not None:
                self._write(positions, warp, part.position)
        b.barrier()
        parts: list[Part] = []
        for number in range(team.members // team.warp_members):
            value = self._read(values, number)
            position = None if positions is None else self._read(positions, number)
            parts.append(Part(value, position))
        return parts

    def _region(self, value: UOp) -> list[UOp]:
        """Reserve, for each lane of a value, one element a warp and result."""
        team = self._team
        elements = team.across * team.members // team.warp_members
        return [self._b.shared(value.dtype.scalar, elements) for _ in range(value.dtype.lanes)]

    def _write(self, regions: Sequence[UOp], warp: UOp, value: UOp) -> None:
        place = scaled(warp, self._team.across) + self._result
        for region, each in zip(regions, split(value), strict=True):
            self._b.store(region, place, each)

    def _read(self, regions: Sequence[UOp], warp: int) -> UOp:
        place = self._result + warp * self._team.across if warp else self._result
        lanes = [self._b.load(region, place) for region in regions]
        return stack(lanes) if len(lanes) > 1 else lanes[0]


def split(value: UOp) -> list[UOp]:
    """Return the lanes of a value as scalars."""
    lanes = value.dtype.lanes
    return [value] if lanes == 1 else [lane(value, number) for number in range(lanes)]
