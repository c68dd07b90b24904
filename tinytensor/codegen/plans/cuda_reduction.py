"""Chooses how the threads of a GPU share a kernel with folds; cuda_folding.py lowers it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tinytensor.codegen.plans.accumulate import Fold, fold_levels, fold_of
from tinytensor.codegen.plans.amounts import is_whole
from tinytensor.codegen.plans.cuda_folding import CudaReductionFacts, SpreadFold
from tinytensor.codegen.plans.cuda_folding import lower as lower  # with the rest of the plan
from tinytensor.codegen.plans.lanes import accesses_of, vector_cost
from tinytensor.codegen.plans.merging import FOLDS, merge_ranges
from tinytensor.codegen.plans.positions import find_positions_by_value
from tinytensor.codegen.plans.spread import (
    Spread,
    choose_last,
    innermost,
    most_lanes,
    takes_lanes,
)
from tinytensor.codegen.plans.team import Team
from tinytensor.ops.bounds import bounds_of
from tinytensor.ops.fragments import WARP_THREADS
from tinytensor.ops.kernel import Kernel
from tinytensor.ops.op import Op
from tinytensor.ops.ranges import dependencies
from tinytensor.ops.uop import UOp, exact_extent, walk
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


def facts(kernel: Kernel, target: Target) -> CudaReductionFacts | str | None:
    """Choose between rows and columns and share out threads, or say why not.

    None for a kernel without a fold.
    """
    if not any(node.op in FOLDS for node in walk((kernel.sink,))):
        return None
    merged = merge_ranges(kernel)
    space = _Space(merged, target)
    reason = space.obstacle()
    if reason:
        return reason
    found = space.facts()
    if found.rereads_registers and any(each.fold.position is not None for each in found.folds):
        return _Space(find_positions_by_value(merged), target).facts()
    return found


def describe(facts: CudaReductionFacts, target: Target) -> str:
    """Say how the kernel runs."""
    team = facts.team
    lanes = max(facts.kept.lanes, *[each.spread.lanes for each in facts.folds])
    shape = f"{team.members} threads fold one result, {team.across} at once"
    if team.adjacent:
        shape = f"{team.across} x {team.members} threads fold neighboring results"
    parts = f"; {facts.chunks} blocks share each fold" if facts.chunks > 1 else ""
    return f"{'columns' if team.adjacent else 'rows'}: {shape}, in vectors of {lanes}{parts}."


class _Space:
    """The ranges and folds of one kernel."""

    def __init__(self, kernel: Kernel, target: Target) -> None:
        self._kernel = kernel
        self._target = target
        self._stores = kernel.sink.operands
        nodes = walk((kernel.sink,))
        self._depends = dependencies(nodes)
        self._folds = [fold_of(node) for node in nodes if node.op in FOLDS]
        self._free = frozenset[UOp]().union(*[self._depends[fold.node] for fold in self._folds])
        # The kept ranges that some fold depends on, and those that only the stores run over.
        self._shared = [each for each in kernel.ranges if each in self._free]
        self._apart = [each for each in kernel.ranges if each not in self._free]

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

    def facts(self) -> CudaReductionFacts:
        """Choose rows where folded ranges are the most contiguous ones, else columns."""
        row_costs = [self._row_cost(fold) for fold in self._folds]
        columns = [each for each in self._shared if each.extent > 1]
        accesses = accesses_of((self._kernel.sink,))
        column_cost = min([vector_cost(accesses, each) for each in columns], default=math.inf)
        return self._rows() if max(row_costs) <= column_cost else self._columns(columns)

    def _row_cost(self, fold: Fold) -> float:
        last = self._last(fold)
        return vector_cost(self._accesses(fold), last) if last.extent > 1 else 0.0

    def _accesses(self, fold: Fold) -> list[UOp]:
        others = [each.node for each in self._folds if each is not fold]
        return accesses_of((fold.element,), stop=others)

    def _last(self, fold: Fold) -> UOp:
        return choose_last(self._accesses(fold), fold.ranges)

    def _spread_folds(self, lanes: int) -> tuple[SpreadFold, ...]:
        levels = fold_levels(self._folds)
        spread: list[SpreadFold] = []
        for fold in self._folds:
            ranges = innermost(fold.ranges, self._last(fold))
            spread.append(SpreadFold(fold, Spread(ranges, lanes), levels[fold.node]))
        return tuple(spread)

    # Along folded ranges.
    def _rows(self) -> CudaReductionFacts:
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
        folds = self._spread_folds(lanes)
        stored = self._stored(stored_last, lanes)
        kept = Spread(tuple(self._shared))
        vectors = _most_vectors(folds, stored)
        case = next((each for each in ROW_CASES if vectors <= each.vectors), LONG_ROW)
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
    def _columns(self, candidates: Sequence[UOp]) -> CudaReductionFacts:
        """Give each thread a vector of neighboring results, folded over a share of the rows."""
        roots = (self._kernel.sink,)
        last = choose_last(accesses_of(roots), candidates)
        lanes = most_lanes(roots, last, self._target)
        while lanes > 1 and not _fits(roots, last, lanes):
            lanes //= 2
        kept = Spread(innermost(self._shared, last), lanes)
        folds = self._spread_folds(1)
        stored = self._stored(None, 1)
        vectors = _most_vectors(folds, stored)
        members = min(COLUMN_MEMBERS, power_above(vectors))
        across = min(COLUMN_THREADS // members, power_above(kept.count))
        members = min(COLUMN_THREADS // across, power_above(vectors))
        team = self._whole_team(across, members, kept, adjacent=True)
        chunks = self._chunks(team, kept.count, vectors, COLUMN_BLOCKS)
        return CudaReductionFacts(self._kernel, team, kept, folds, stored, chunks)

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
        wanted = blocks_each * self._target.multiprocessors // blocks
        if self._apart:
            # Every block of the next launch joins all chunks: no more work than its own chunk.
            wanted = min(wanted, math.isqrt(vectors))
        return max(1, min(wanted, vectors // (CHUNK_STEPS * team.members)))


def _fits(roots: Sequence[UOp], range_: UOp, lanes: int) -> bool:
    return is_whole(range_, lanes) and takes_lanes(roots, range_, lanes)


def _most_vectors(folds: Sequence[SpreadFold], stored: Spread | None) -> int:
    counts = [each.spread.count for each in folds]
    return max([*counts, stored.count if stored is not None else 1])


def power_above(number: int) -> int:
    """Return the least power of two that is not below a number, at least 1.

    >>> power_above(5), power_above(8), power_above(0)
    (8, 8, 1)
    """
    return 1 << max(0, number - 1).bit_length()
