"""Turns factors into feeds: a ring of tiles each, its barriers, and where a role stands on it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tinytensor.codegen.block_builder import BlockBuilder
from tinytensor.codegen.plans.cuda_hopper_factor import Factor
from tinytensor.codegen.plans.cuda_hopper_ring import RingPlace
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp, binary, compare
from tinytensor.records import dataclass


@dataclass(frozen=True, slots=True)
class Feed:
    """Factors whose tiles come together, and stay for so many `steps` of k.

    `full` counts the bytes of a stage, `empty` the warps that have read it.
    """

    factors: tuple[Factor, ...]
    steps: int
    full: UOp
    empty: UOp


def feeds_of(b: BlockBuilder, x: Factor, y: Factor, readers: int) -> list[Feed]:
    """Let factors come together, or each in a ring of its own if one stays longer: that first."""
    longest_first = sorted((x, y), key=lambda each: -each.steps)
    groups = [(x, y)] if x.steps == y.steps else [(each,) for each in longest_first]
    return [
        Feed(
            each,
            each[0].steps,
            b.mbarriers(each[0].stages, 1),
            b.mbarriers(each[0].stages, readers),
        )
        for each in groups
    ]


class FeedPlace:
    """Where a role stands on a feed: the stage that it fills or reads, at a step of k."""

    def __init__(self, b: BlockBuilder, feed: Feed, ahead: UOp | None = None) -> None:
        self._b, self._feed = b, feed
        self.factors = feed.factors
        stages = feed.factors[0].stages
        self._ring = RingPlace(b, stages, None if ahead is None else self._rounds(ahead))

    @property
    def stage(self) -> UOp:
        """The stage."""
        return self._ring.stage

    def fill(self, step: UOp, ranges: Mapping[UOp, UOp]) -> None:
        """Wait until a stage is given back, let the engine fill it, and go to the next."""
        b, feed, ring = self._b, self._feed, self._ring
        with self._at(step, 0):
            stage = ring.stage
            b.mbarrier_wait(feed.empty, stage, binary(Op.XOR, ring.parity, 1))
            b.mbarrier_expect(feed.full, stage, sum([each.nbytes for each in self.factors]))
            for each in self.factors:
                each.load(stage, ranges, feed.full)
            ring.advance()

    def begin(self) -> None:
        """Come to a tile."""
        self._previous = self._b.register(self._b.index_dtype, 0)

    def wait(self) -> None:
        """Wait until the stage is full."""
        self._b.mbarrier_wait(self._feed.full, self.stage, self._ring.parity)

    def leave(self, step: UOp, is_first_lane: UOp) -> None:
        """Give the previous stage back; after the last step of this one go to the next."""
        b = self._b
        with self._at(step, 0):
            self.release((b.index(0) < step) & is_first_lane)
            b.write(self._previous, self.stage)
        with self._at(step, -1):
            self._ring.advance()

    def release(self, cond: UOp) -> None:
        """Give the previous stage back, which all products that read it have left."""
        with self._b.branch(cond):
            self._b.mbarrier_arrive(self._feed.empty, self._b.read(self._previous))

    def skip(self, steps: UOp) -> None:
        """Leave so many steps to another role."""
        self._ring.skip(self._rounds(steps))

    def _rounds(self, steps: UOp) -> UOp:
        if self._feed.steps == 1:
            return steps
        return self._b.value(binary(Op.TRUNCDIV, steps, self._feed.steps))

    @contextmanager
    def _at(self, step: UOp, number: int) -> Iterator[None]:
        """Open what runs at one step of each stage, -1 being the last."""
        count = self._feed.steps
        if count == 1:
            yield
            return
        within = binary(Op.TRUNCMOD, step, count)
        with self._b.branch(compare(Op.EQ, within, self._b.index(number % count))):
            yield
