"""Turns sums in a block's registers into the kernel's stores, through whatever stands between."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tinytensor.codegen.block_builder import BlockBuilder
from tinytensor.codegen.builder import lane, shuffle
from tinytensor.codegen.plans.alignment import common_access
from tinytensor.codegen.plans.amounts import amount, is_whole
from tinytensor.codegen.plans.flatten import FlatContraction
from tinytensor.codegen.plans.inside import INSIDE, guard_accesses
from tinytensor.codegen.plans.lanes import accesses_of
from tinytensor.codegen.vectorize import Evaluator
from tinytensor.dtype import dtypes
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp, const, exact_extent, walk

MOST_PRELOADED = 32  # values that a thread keeps while it sums


@dataclass(frozen=True, slots=True)
class Piece:
    """Sums that are stored together: from which one on, and what evaluates the epilogue there."""

    begin: int
    evaluator: Evaluator


class BlockEpilogue:
    """Stores the sums of one block, `lanes` adjacent ones of a row at a time.

    Rows and columns are counted from the block's `first_m` and `first_n`. Loads that do not depend
    on m, such as a bias, are read once for each column, before the sum where `preload` is called.
    """

    def __init__(
        self,
        b: BlockBuilder,
        flat: FlatContraction,
        outer: Mapping[UOp, UOp],
        first: tuple[UOp, UOp],
        block: tuple[int, int],
        most_lanes: int,
    ) -> None:
        self._b = b
        self._flat = flat
        self._outer = outer
        self._first_m, self._first_n = first
        self._checks_m = not is_whole(flat.m, block[0])
        self._checks_n = not is_whole(flat.n, block[1])
        self.lanes = common_access(flat.stores, flat.n, {flat.n: most_lanes}, most_lanes)
        is_ragged = self._checks_m or self._checks_n
        self.stores = guard_accesses(flat.stores) if is_ragged else flat.stores
        self._column_loads = self._find_column_loads()
        self._columns: dict[UOp, dict[UOp, UOp]] = {}

    def _find_column_loads(self) -> list[UOp]:
        """Find the loads whose value is the same in every row."""
        loads = [each for each in accesses_of(self.stores) if each.op is Op.LOAD]
        unread = {self._flat.m, self._flat.total}
        return [
            each
            for each in loads
            if unread.isdisjoint(walk((each,))) and not self._is_written(each.operands[0])
        ]

    def _is_written(self, buffer: UOp) -> bool:
        number: int = buffer.attrs.number
        return self._b.params[number].written

    def preload(self, columns: Sequence[UOp]) -> None:
        """Read what the sums at these columns will need, unless it takes too many registers."""
        if len(columns) * self.lanes * len(self._column_loads) <= MOST_PRELOADED:
            for column in columns:
                self._load_column(column)

    def _load_column(self, column: UOp) -> None:
        evaluator = self._evaluator({self._flat.n: self._first_n + column}, self._inside_n(column))
        values = {each: self._b.value(evaluator.value(each)) for each in self._column_loads}
        self._columns[column] = values

    def store(self, row: UOp, column: UOp, sums: UOp) -> None:
        """Run the epilogue on adjacent sums of a row, and every store."""
        for piece in self.pieces(row, column, sums):
            for store in self.stores:
                piece.evaluator.store(store)

    def pieces(self, row: UOp, column: UOp, sums: UOp) -> Iterator[Piece]:
        """Take adjacent sums of a row apart, `lanes` at a time."""
        count = sums.dtype.lanes
        for begin in range(0, count, self.lanes):
            piece = sums
            if self.lanes < count:
                piece = _lanes(sums, begin, self.lanes)
            here = column + begin if begin else column
            yield Piece(begin, self._evaluator_of(row, here, piece))

    def _evaluator_of(self, row: UOp, column: UOp, sums: UOp) -> Evaluator:
        flat = self._flat
        if column not in self._columns:
            self._load_column(column)
        places = {flat.m: self._first_m + row, flat.n: self._first_n + column}
        known = {**self._columns[column], flat.total: sums}
        return self._evaluator(places, self._inside(row, column), known)

    def _evaluator(
        self, places: Mapping[UOp, UOp], inside: UOp | None, known: Mapping[UOp, UOp] | None = None
    ) -> Evaluator:
        known = dict(known or {})
        if inside is not None:
            known[INSIDE] = inside
        ranges = {**self._outer, **places}
        return Evaluator(self._b, ranges, self._flat.n, self.lanes, known=known)

    def _inside_n(self, column: UOp) -> UOp | None:
        if self._checks_n:
            return self._first_n + column < self._extent(self._flat.n)
        return const(dtypes.bool, True) if self._checks_m else None

    def _extent(self, range_: UOp) -> UOp:
        return amount(self._b, exact_extent(range_))

    def _inside(self, row: UOp, column: UOp) -> UOp | None:
        """Return whether sums at a row and column are part of the result; None if they must be."""
        inside_n = self._inside_n(column)
        if not self._checks_m:
            return inside_n
        inside_m = self._first_m + row < self._extent(self._flat.m)
        return inside_m & inside_n if self._checks_n and inside_n is not None else inside_m


def _lanes(x: UOp, begin: int, count: int) -> UOp:
    if count == 1:
        return lane(x, begin)
    return shuffle(x, x, range(begin, begin + count))
