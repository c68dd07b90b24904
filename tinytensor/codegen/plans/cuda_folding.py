"""Lowers folds shared by a team of threads: shares folded alone, then joined, then the stores."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from tinytensor.codegen.block_builder import BlockBuilder
from tinytensor.codegen.builder import splat, stack
from tinytensor.codegen.plans.accumulate import (
    Accumulator,
    Fold,
    Part,
    join,
    join_lanes,
    result_of,
    with_element,
)
from tinytensor.codegen.plans.nest import Point, emit
from tinytensor.codegen.plans.spread import (
    Spread,
    empty_launch,
    index_dtype_for,
    power_above,
    remainder,
    scaled,
)
from tinytensor.codegen.plans.spread_stores import emit_woven
from tinytensor.codegen.plans.team import Team, TeamFold, split
from tinytensor.dtype import dtypes
from tinytensor.ops.attrs import Combine
from tinytensor.ops.kernel import Kernel
from tinytensor.ops.linear import Linear
from tinytensor.ops.op import Op
from tinytensor.ops.ranges import dependencies
from tinytensor.ops.uop import UOp, binary, cast, compare, walk, where
from tinytensor.records import dataclass
from tinytensor.target import Target

MOST_UNROLLED = 8  # steps of a thread that stay in registers between the folds of a row
# 1 x 4096 x 4096 of bfloat16, NN: 10.7 us so, 12.4 with a chunk a member (H200, a0563bc and
# c1c91ff, 2026-11-30).
SECTOR_RESULTS = 8  # of chunks: neighbors that L2 gives in one sector
JOINING_BLOCKS = 256  # which take less than a sector, rather than be fewer
LOOP_STEPS = 4  # loads in flight in a loop over more


@dataclass(frozen=True, slots=True)
class SpreadFold:
    """A fold, how its elements are numbered, and how many launches come before its own.

    A thread takes all `taps` of a number in turn: elements of the fold, one or a few neighbors.
    """

    fold: Fold
    spread: Spread
    level: int
    taps: tuple[Fold, ...]


@dataclass(frozen=True, slots=True)
class CudaReductionFacts:
    """How a kernel with folds runs: a team of threads for the results `kept`.

    `stored` are the ranges that only stores run over. With several `chunks`, that many blocks share
    each fold: they write their parts to scratch memory, and the next launch joins them.
    """

    kernel: Kernel
    team: Team
    kept: Spread
    folds: tuple[SpreadFold, ...]
    stored: Spread | None
    chunks: int

    @property
    def levels(self) -> int:
        """How many folds follow one another."""
        return 1 + max(each.level for each in self.folds)

    def at_level(self, level: int) -> list[list[SpreadFold]]:
        """Return the folds of a level; those over the same elements together."""
        groups: dict[Spread, list[SpreadFold]] = {}
        for each in self.folds:
            if each.level == level:
                groups.setdefault(each.spread, []).append(each)
        return list(groups.values())

    @property
    def joining(self) -> CudaReductionFacts:
        """How chunks are joined where nothing but results is stored: one result a member.

        Members take a chunk each, or several chunks of as many results as a sector of L2 holds.
        """
        if self.stored is not None or self.kept.is_open:
            return self
        results = self.kept.count * self.kept.lanes
        threads = self.team.threads
        across = threads // min(threads, power_above(self.chunks))
        while across < SECTOR_RESULTS and results >= 2 * across * JOINING_BLOCKS:
            across *= 2
        while results % across:
            across //= 2
        team = Team(across, threads // across, adjacent=True)
        return replace(self, team=team, kept=Spread(self.kept.ranges))

    @property
    def rereads_registers(self) -> bool:
        """Whether each thread's elements stay in registers from one fold to the next."""
        most = MOST_UNROLLED * self.team.members
        spreads = [each.spread for each in self.folds]
        return self.chunks == 1 and all(each.count <= most and not each.is_open for each in spreads)


# Called with the number of an element, and whether it exists (None: it does).
Step = Callable[[UOp, UOp | None], None]


def lower(facts: CudaReductionFacts, target: Target) -> tuple[Linear, ...]:
    """Fold and store in one launch; with chunks, one launch for each level and one for stores."""
    if facts.kept.count == 0:
        return (empty_launch(facts.kernel).finish(),)
    if facts.chunks == 1:
        return (_Launch(facts, 1).fold_and_store(),)
    partial = [_Launch(facts, facts.chunks).fold_level(level) for level in range(facts.levels)]
    last = _Launch(facts.joining, 1 if facts.stored is None else facts.chunks)
    return (*partial, last.join_and_store())


class _Launch:
    """One launch: which thread this is, its point, and the scratch memory of all launches."""

    def __init__(self, facts: CudaReductionFacts, blocks_each: int) -> None:
        self._facts = facts
        self._stores = facts.kernel.sink.operands
        team, kept = facts.team, facts.kept
        blocks = -(-kept.count // team.across)
        b = self._b = BlockBuilder(
            facts.kernel.name,
            facts.kernel.params,
            index_dtype_for(facts.kernel, self._most_numbers()),
            (blocks, blocks_each, 1),
            team.threads,
        )
        b.across = kept.blocks_of(team.across)
        self._width = blocks_each * team.members
        result = b.value(team.result(b.thread))
        self._member = b.value(team.member(b.thread))
        chunk = b.block(1)
        self._first = self._member
        if blocks_each > 1:
            self._first = b.value(scaled(chunk, team.members) + self._member)
        self._team_fold = TeamFold(b, team, result, self._member)
        number = b.value(scaled(b.block(0), team.across) + result)
        self._inside: UOp | None = None
        if kept.count % team.across or (kept.is_open and team.across > 1):
            results = kept.numbers(b)
            self._inside = b.value(number < results)
            number = b.value(binary(Op.MIN, number, results - 1))
        self._number = number
        lanes = (kept.lane_range, kept.lanes, kept.lanes)
        self._point = Point(b, kept.places(b, number), {}, *lanes)
        self._scratch = {each.fold.node: self._reserve(each.fold) for each in facts.folds}

    def _most_numbers(self) -> int:
        facts = self._facts
        counts = [each.spread.count for each in facts.folds]
        counts.append(facts.kept.count if facts.stored is None else facts.stored.count)
        return max(*counts, facts.kept.count) + LOOP_STEPS * facts.chunks * facts.team.threads

    # The launches.
    def fold_and_store(self) -> Linear:
        """Fold everything, level by level, and store."""
        for level in range(self._facts.levels):
            for fold, part in self._folded(level):
                self._know(fold, part)
        self._store()
        return self._b.finish()

    def fold_level(self, level: int) -> Linear:
        """Fold this block's chunk of the folds of a level into scratch memory."""
        self._join_chunks(level)
        for fold, part in self._folded(level):
            self._write_chunk(fold, part)
        return self._b.finish()

    def _folded(self, level: int) -> Iterator[tuple[Fold, Part]]:
        """Fold what a level has, each of the team its share; give each fold's whole."""
        for together in self._facts.at_level(level):
            for each, share in zip(together, self._fold_shares(together), strict=True):
                yield each.fold, self._team_fold.fold(each.fold, share)

    def join_and_store(self) -> Linear:
        """Join the chunks of all folds and store."""
        self._join_chunks(self._facts.levels)
        self._store()
        return self._b.finish()

    def _know(self, fold: Fold, part: Part) -> None:
        self._point.known[fold.node] = self._b.value(result_of(fold, part))

    # Shares of one thread.
    def _walk(self, count: int, first: UOp, width: int, step: Step, together: int = 1) -> None:
        """Take the numbers first, first + width, .. below count, in steps of so many folds.

        What may lie beyond the end is moved onto the last number, and told to the step.
        """
        steps, at_once = -(-count // width), max(1, LOOP_STEPS // together)
        is_long = steps > (MOST_UNROLLED if together < LOOP_STEPS else 1)
        looped = count // width // at_once * at_once if is_long else 0
        if looped:
            with self._b.loop(0, looped * width, at_once * width) as begin:
                for at in range(at_once):
                    step(first + (begin + at * width if at else begin), None)
        for at in range(looped, steps):
            number = first + at * width if at else first
            if (at + 1) * width <= count:
                step(number, None)
            else:
                step(binary(Op.MIN, number, count - 1), number < count)

    def _walk_spread(self, spread: Spread, step: Step, together: int = 1) -> None:
        """Take this thread's share of the numbers of a spread."""
        count = spread.numbers(self._b)
        if isinstance(count, int):
            self._walk(count, self._first, self._width, step, together)
            return
        b, first, width = self._b, self._first, self._width
        at_once = LOOP_STEPS * width
        whole = b.value(count - remainder(count, at_once))
        with b.loop(0, whole, at_once) as begin:
            for at in range(LOOP_STEPS):
                step(first + (begin + at * width if at else begin), None)
        with b.loop(whole, count, width) as begin:
            number = b.value(first + begin)
            step(binary(Op.MIN, number, count - 1), number < count)

    def _opened(self, spread: Spread, number: UOp) -> Point:
        """Return the point with the ranges of a spread open."""
        point = self._point
        for range_, value in spread.places(self._b, number).items():
            lanes = spread.lanes if range_ is spread.lane_range else 1
            point = point.widened(range_, value, lanes, lanes)
        return point

    def _fold_shares(self, together: Sequence[SpreadFold]) -> list[Part]:
        """Fold this thread's elements of folds that take the same ones."""
        spread = together[0].spread
        along = spread.lanes > 1
        lanes = spread.lanes if along else self._point.lanes
        accumulators = [Accumulator(self._b, each.fold, lanes) for each in together]

        def include(number: UOp, inside: UOp | None) -> None:
            point = self._opened(spread, number)
            evaluator = point.evaluator()
            for each, accumulator in zip(together, accumulators, strict=True):
                before = after = accumulator.part()
                for at, tap in enumerate(each.taps):
                    position = point.ranges.get(each.fold.ranges[0], self._b.index(at))
                    after = with_element(tap, after, evaluator, position, along)
                accumulator.write(after if inside is None else _chosen(inside, after, before))

        self._walk_spread(spread, include, len(together))
        parts = [each.part() for each in accumulators]
        if not along:
            return parts
        return [join_lanes(each.fold, part) for each, part in zip(together, parts, strict=True)]

    # Chunks of a fold, through scratch memory.
    def _reserve(self, fold: Fold) -> list[UOp]:
        """Reserve scratch memory for a fold's chunks: its value and perhaps its position."""
        facts = self._facts
        if facts.chunks == 1:
            return []
        elements = facts.kept.count * facts.kept.lanes * facts.chunks
        kinds = [fold.dtype] if fold.position is None else [fold.dtype, fold.position]
        return [self._b.workspace(dtype, elements) for dtype in kinds]

    def _slot(self, lane: int, chunk: UOp) -> UOp:
        kept = self._facts.kept
        first = scaled(chunk, kept.count * kept.lanes) + scaled(self._number, kept.lanes)
        return first + lane if lane else first

    def _write_chunk(self, fold: Fold, part: Part) -> None:
        values = [part.value] if part.position is None else [part.value, part.position]
        with self._alone(self._is_first(), self._inside):
            for region, value in zip(self._scratch[fold.node], values, strict=True):
                for lane, scalar in enumerate(split(value)):
                    self._b.store(region, self._slot(lane, self._b.block(1)), scalar)

    def _join_chunks(self, levels: int) -> None:
        """Let every block join the chunks of the folds of the first levels."""
        for each in self._facts.folds:
            if each.level < levels:
                self._know(each.fold, self._joined(each.fold))

    def _joined(self, fold: Fold) -> Part:
        wide = _widened(fold)
        lanes = self._point.lanes
        accumulator = Accumulator(self._b, wide, lanes)

        def include(chunk: UOp, inside: UOp | None) -> None:
            before = accumulator.part()
            part = self._read_chunk(fold, chunk)
            after = join(wide, before, replace(part, value=cast(part.value, wide.dtype)))
            accumulator.write(after if inside is None else _chosen(inside, after, before))

        self._walk(self._facts.chunks, self._member, self._facts.team.members, include)
        return self._team_fold.fold(wide, accumulator.part())

    def _read_chunk(self, fold: Fold, chunk: UOp) -> Part:
        parts: list[UOp] = []
        for region in self._scratch[fold.node]:
            numbers = range(self._point.lanes)
            lanes = [self._b.load(region, self._slot(lane, chunk)) for lane in numbers]
            parts.append(stack(lanes) if len(lanes) > 1 else lanes[0])
        return Part(*parts)

    # Stores.
    def _store(self) -> None:
        """Store what each result gives, its own ranges spread over the team."""
        stored = self._facts.stored
        own = frozenset(stored.ranges if stored is not None else ())
        varies = dependencies(walk(self._stores))
        once = [store for store in self._stores if not varies[store] & own]
        if once:
            with self._alone(self._is_first(), self._inside, self._is_first_chunk()):
                emit_woven(once, self._point)
        rest = [store for store in self._stores if store not in once]
        if stored is None or not rest:
            return

        def store_one(number: UOp, inside: UOp | None) -> None:
            with self._alone(inside, self._inside):
                emit(rest, [self._opened(stored, number)])

        self._walk_spread(stored, store_one)

    def _is_first_chunk(self) -> UOp | None:
        if self._width == self._facts.team.members:
            return None
        return compare(Op.EQ, self._b.block(1), self._b.index(0))

    def _is_first(self) -> UOp | None:
        """Claim that this is the first member of its result; nothing where there is only one."""
        if self._facts.team.members == 1:
            return None
        return compare(Op.EQ, self._member, self._b.index(0))

    @contextmanager
    def _alone(self, *claims: UOp | None) -> Iterator[None]:
        """Open a branch for the threads of which all claims hold, if there are claims."""
        stated = [each for each in claims if each is not None]
        if not stated:
            yield
            return
        with self._b.branch(functools.reduce(UOp.__and__, stated)):
            yield


def _chosen(inside: UOp, after: Part, before: Part) -> Part:
    """Return `after` where the element exists."""
    lanes = splat(inside, after.value.dtype.lanes)
    position = after.position
    if position is not None and before.position is not None:
        position = where(lanes, position, before.position)
    return Part(where(lanes, after.value, before.value), position)


def _widened(fold: Fold) -> Fold:
    """Return the fold that joins chunks: sums in float64, which costs nothing here."""
    is_sum = fold.combine is Combine.ADD and fold.dtype is dtypes.float32
    return replace(fold, dtype=dtypes.float64) if is_sum else fold
