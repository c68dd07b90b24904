"""Chooses how the threads of a GPU share a kernel with folds; cuda_folding.py lowers it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from tinytensor.codegen.plans.accumulate import Fold, fold_levels
from tinytensor.codegen.plans.amounts import is_whole
from tinytensor.codegen.plans.cuda_folding import CudaReductionFacts, SpreadFold
from tinytensor.codegen.plans.cuda_folding import lower as lower  # with the rest of the plan
from tinytensor.codegen.plans.fold_space import FoldSpace
from tinytensor.codegen.plans.lanes import accesses_of, vector_cost
from tinytensor.codegen.plans.merging import FOLDS, merge_ranges
from tinytensor.codegen.plans.positions import find_positions_by_value
from tinytensor.codegen.plans.spread import (
    Spread,
    choose_last,
    innermost,
    is_adjacent,
    most_lanes,
    moves_vectors,
    power_above,
    takes_lanes,
)
from tinytensor.codegen.plans.spread_windows import (
    MANY_FOLDS,
    MOST_TAPS,
    fold_together,
    take_neighbors,
    taps_of,
)
from tinytensor.codegen.plans.team import Team
from tinytensor.codegen.vectorize import stride_of
from tinytensor.ops.bounds import bounds_of
from tinytensor.ops.fragments import WARP_THREADS
from tinytensor.ops.kernel import Kernel
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp, const, exact_extent, substitute_all, walk
from tinytensor.records import dataclass
from tinytensor.target import Target


@dataclass(frozen=True, slots=True)
class RowCase:
    """The threads that share a row of at most `vectors` vectors, and those of a block."""

    vectors: int
    members: int
    threads: int


# One to four vectors a thread, from rows of 128 to 8192 elements; 1024 threads lose (hand-written
# prototypes, H200, 2026-11-29).
ROW_CASES = (
    RowCase(128, 32, 128),
    RowCase(256, 64, 128),
    RowCase(512, 128, 128),
    RowCase(1024, 256, 256),
)
LONG_ROW = RowCase(0, 512, 512)
# Columns: 32 x 8 threads, 63.6 us for 8192^2 fp32 against 68..77 for 1 x 256 (hand-written
# prototypes, H200, 2026-11-29).
COLUMN_THREADS = 256
COLUMN_MEMBERS = 8
# Blocks for each multiprocessor when few results are cut into chunks: sums 237.6 us for 2^28 fp32.
ROW_BLOCKS = 4
COLUMN_BLOCKS = 8
LEAST_STEPS = 16  # of a thread, below which one launch is as fast as two
CHUNK_STEPS = 4  # that a thread keeps when chunks share its work
NEAR = 4  # elements from the window of one result to the next, so that a line serves both
# Sums of a thread that take 128 registers and more: of blocks half as large, three fit. Forward of
# 64 x 128 x 56 x 56 by 3 x 3, channels last, 33.5 us, so 31.8 (H200, d44222b, 2026-11-30).
MANY_SUMS = 64
LONG_FOLD = 32  # elements from which on it does not count how a result is stored
LEAST_FOLDED = 2048  # elements of all results for each multiprocessor, to take some together


def facts(kernel: Kernel, target: Target) -> CudaReductionFacts | str | None:
    """Choose between rows and columns and share out threads, or say why not.

    None for a kernel without a fold.
    """
    if not any(node.op in FOLDS for node in walk((kernel.sink,))):
        return None
    merged = merge_ranges(kernel)
    reason = _Space(merged, target).obstacle()
    if reason:
        return reason
    found = _share_out(merged, target)
    has_position = any(each.fold.position is not None for each in found.folds)
    if has_position and found.rereads_registers and found.folds[0].spread.ranges:
        return _share_out(find_positions_by_value(merged), target)
    return found


def _share_out(kernel: Kernel, target: Target) -> CudaReductionFacts:
    """Choose threads for whole results, rows where folded ranges are contiguous, or columns."""
    in_rows = _Space(kernel, target).prefers_rows()
    space = _Space(fold_together(kernel, LEAST_FOLDED * target.multiprocessors), target)
    return space.alone(in_rows) or (space.rows() if in_rows else space.columns())


def describe(facts: CudaReductionFacts, target: Target) -> str:
    """Say how the kernel runs."""
    team = facts.team
    lanes = max(facts.kept.lanes, *[each.spread.lanes for each in facts.folds])
    shape = f"{team.members} threads fold one result, {team.across} at once"
    if not facts.folds[0].spread.ranges:
        shape = "each thread folds whole results"
    elif team.adjacent:
        shape = f"{team.across} x {team.members} threads fold neighboring results"
    parts = f"; {facts.chunks} blocks share each fold" if facts.chunks > 1 else ""
    return f"{'columns' if team.adjacent else 'rows'}: {shape}, in vectors of {lanes}{parts}."


class _Space(FoldSpace):
    """How threads may share the work of a kernel."""

    def obstacle(self) -> str:
        """Say why the kernel is not for this plan; nothing when it is."""
        if not self._free <= frozenset(self._kernel.ranges):
            return "a reduction runs inside another's ranges; threads share only separate ones."
        if not all(fold.ranges for fold in self._folds):
            return "a reduction has no range; threads share elements."
        opened = [exact_extent(each) for each in self._kernel.ranges if each.is_open]
        if any(bounds_of(each)[0] < 1 for each in opened):
            return "it may have no results at launch; the last thread's would be read."
        return ""

    def prefers_rows(self) -> bool:
        """Whether folded ranges are more contiguous than kept ones."""
        row_costs = [self._row_cost(fold) for fold in self._folds]
        accesses = accesses_of((self._kernel.sink,))
        costs = [vector_cost(accesses, each) for each in self._shared if each.extent > 1]
        return max(row_costs) <= min(costs, default=math.inf)

    def _row_cost(self, fold: Fold) -> float:
        last = self._last(fold)
        return vector_cost(self._accesses(fold), last) if last.extent > 1 else 0.0

    def _column_accesses(self) -> list[UOp]:
        """Return what counts along a kept range: of long folds what they read alone."""
        extents = [math.prod([each.extent for each in fold.ranges]) for fold in self._folds]
        if min(extents) < LONG_FOLD:
            return accesses_of((self._kernel.sink,))
        return accesses_of([each.element for each in self._folds])

    def _last(self, fold: Fold) -> UOp:
        return choose_last(self._accesses(fold), fold.ranges)

    def _spread_folds(self, lanes: int) -> tuple[SpreadFold, ...]:
        levels = fold_levels(self._folds)
        spread: list[SpreadFold] = []
        for fold in self._folds:
            ranges = innermost(fold.ranges, self._last(fold))
            spread.append(SpreadFold(fold, Spread(ranges, lanes), levels[fold.node], (fold,)))
        return tuple(spread)

    # Along folded ranges.
    def rows(self) -> CudaReductionFacts:
        """Let some lanes, warps or a block share each row, in vectors along it."""
        along: list[tuple[tuple[UOp, ...], UOp]]
        along = [((fold.element,), self._last(fold)) for fold in self._folds]
        stored_last = None
        if any(each.extent > 1 for each in self._apart):
            stored_last = choose_last(accesses_of(self._stores), self._apart)
            along.append((self._stores, stored_last))
        lanes = min(most_lanes(roots, last, self._target) for roots, last in along)
        while lanes > 1 and not all(_fits(roots, last, lanes) for roots, last in along):
            lanes //= 2
        folds = take_neighbors(self._spread_folds(lanes))
        stored = self._stored(stored_last, lanes)
        kept = Spread(tuple(self._shared))
        vectors = _most_vectors(folds, stored)
        case = next((each for each in ROW_CASES if vectors <= each.vectors), LONG_ROW)
        if len(folds) >= MANY_FOLDS:
            case = min(case, ROW_CASES[-1], key=lambda each: each.threads)
        members = min(case.members, power_above(vectors))
        across = min(case.threads // members, power_above(kept.count))
        team = self._whole_team(across, members, kept, adjacent=False)
        chunks = self._chunks(team, kept.count, vectors, ROW_BLOCKS)
        return CudaReductionFacts(self._kernel, team, kept, folds, stored, chunks)

    def _stored(self, last: UOp | None, lanes: int) -> Spread | None:
        if not self._apart:
            return None
        return Spread(innermost(self._apart, last or self._apart[-1]), lanes if last else 1)

    # Along a kept range.
    def columns(self) -> CudaReductionFacts:
        """Give each thread a vector of neighboring results, folded over a share of the rows."""
        last = choose_last(self._column_accesses(), self._shared)
        roots = (self._kernel.sink,)
        lanes = most_lanes(roots, last, self._target)
        while lanes > 1 and not _fits(roots, last, lanes):
            lanes //= 2
        kept = Spread(innermost(self._shared, last), lanes)
        folds = take_neighbors(self._spread_folds(1))
        stored = self._stored(None, 1)
        vectors = _most_vectors(folds, stored)
        members = min(COLUMN_MEMBERS, power_above(vectors))
        across = min(COLUMN_THREADS // members, power_above(kept.count))
        members = min(COLUMN_THREADS // across, power_above(vectors))
        team = self._whole_team(across, members, kept, adjacent=True)
        chunks = self._chunks(team, kept.count, vectors, COLUMN_BLOCKS)
        return CudaReductionFacts(self._kernel, team, kept, folds, stored, chunks)

    # Whole results.
    def alone(self, in_rows: bool) -> CudaReductionFacts | None:
        """Let a thread fold whole results, if folds are short and results many; None if not.

        In place of rows, if neighboring results read neighboring elements. Folds of different
        elements would leave threads that share them idle.
        """
        spreads = self._spread_folds(1)
        if self._apart or any(each.level or each.spread.is_open for each in spreads):
            return None
        if not self._shared or _most_vectors(spreads, None) > MOST_TAPS:
            return None
        folds = tuple([replace(e, spread=Spread(()), taps=taps_of(e.fold)) for e in spreads])
        roots = [tap.element for each in folds for tap in each.taps]
        last = self._last_stored()
        steps = [stride_of(each.operands[1], last) or 0 for each in accesses_of(roots)]
        is_near = any(0 < abs(step) <= NEAR for step in steps)
        nothing = {each.node: const(each.node.dtype, 0) for each in self._folds}
        roots += substitute_all(self._stores, nothing)
        lanes = most_lanes(roots, last, self._target)
        while lanes > 1 and not (is_whole(last, lanes) and moves_vectors(roots, last, lanes)):
            lanes //= 2
        kept = Spread(innermost(self._shared, last), lanes)
        is_many = kept.count >= COLUMN_THREADS * self._target.multiprocessors
        are_one = all(each.spread == spreads[0].spread for each in spreads)
        if are_one and (not is_many or (in_rows and not is_near)):
            return None
        has_many = len(self._stores) * lanes >= MANY_SUMS
        threads = COLUMN_THREADS // 2 if has_many else COLUMN_THREADS
        team = self._whole_team(threads, 1, kept, adjacent=True)
        return CudaReductionFacts(self._kernel, team, kept, folds, None, 1)

    def _last_stored(self) -> UOp:
        """Return the kept range along which results are side by side, or the best to read along."""
        for each in reversed(self._shared):
            if any(is_adjacent(store, each) for store in self._stores) and each.extent > 1:
                return each
        return choose_last(self._column_accesses(), self._shared)

    # Threads and blocks.
    def _whole_team(self, across: int, members: int, kept: Spread, adjacent: bool) -> Team:
        """Return the team with whole warps; results in place are never computed twice."""
        if self._is_in_place():
            while kept.count % across or (kept.is_open and across > 1):
                across //= 2
            return Team(across, max(members, WARP_THREADS // across), adjacent)
        return Team(max(across, WARP_THREADS // members), members, adjacent)

    def _is_in_place(self) -> bool:
        """Whether a load reads what the kernel writes."""
        loads = [each for each in walk(self._stores) if each.op is Op.LOAD]
        written = {each.operands[0] for each in self._stores}
        return any(each.operands[0] in written for each in loads)

    def _chunks(self, team: Team, results: int, vectors: int, blocks_each: int) -> int:
        """Return into how many chunks to cut each fold, so that few results fill the GPU."""
        blocks = -(-results // team.across)
        if blocks == 0 or vectors <= LEAST_STEPS * team.members:
            return 1
        # Several folds take the registers of so many blocks.
        blocks_each = max(2, blocks_each // len(self._folds))
        wanted = blocks_each * self._target.multiprocessors // blocks
        if self._apart:
            # Every block of the next launch joins all chunks: no more work than its own chunk.
            wanted = min(wanted, math.isqrt(vectors))
        return max(1, min(wanted, vectors // (CHUNK_STEPS * team.members)))


def _fits(roots: Sequence[UOp], range_: UOp, lanes: int) -> bool:
    is_vector = takes_lanes(roots, range_, lanes) or moves_vectors(roots, range_, lanes)
    return is_whole(range_, lanes) and is_vector


def _most_vectors(folds: Sequence[SpreadFold], stored: Spread | None) -> int:
    counts = [each.spread.count for each in folds]
    return max([*counts, stored.count if stored is not None else 1])
