"""Turns sums in a block's registers into the kernel's stores, through whatever stands between."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tinytensor.codegen.block_builder import BlockBuilder
from tinytensor.codegen.builder import lanes_from
from tinytensor.codegen.plans.alignment import common_access
from tinytensor.codegen.plans.amounts import amount, is_whole
from tinytensor.codegen.plans.flatten import FlatContraction
from tinytensor.codegen.plans.inside import INSIDE, guard_accesses
from tinytensor.codegen.plans.lanes import accesses_of
from tinytensor.codegen.vectorize import Evaluator, guard_of, is_uniform
from tinytensor.dtype import dtypes
from tinytensor.ops.op import Op
from tinytensor.ops.simplify_index import simplify_index
from tinytensor.ops.uop import (
    UOp,
    binary,
    const,
    exact_extent,
    fresh_number,
    index_const,
    make_range,
    substitute,
    substitute_all,
    walk,
)
from tinytensor.records import dataclass

MOST_PRELOADED = 32  # values that a thread keeps while it sums


@dataclass(frozen=True, slots=True)
class Piece:
    """Sums that are stored together: from which one on, and what evaluates the epilogue there."""

    begin: int
    evaluator: Evaluator


@dataclass(frozen=True, slots=True)
class Columns:
    """Stores as they run along lanes: n itself, or in `groups` of the lanes of one access.

    Where n is walked in patches its places are quotients and remainders, which are sums again
    along the lanes of a group, as a group lies in one row of a patch.
    """

    stores: tuple[UOp, ...]
    lane_range: UOp
    groups: UOp | None = None

    def places(self, b: BlockBuilder, n: UOp, lanes: int) -> dict[UOp, UOp]:
        """Return the values of the ranges at a value of n, a multiple of so many lanes."""
        if self.groups is None:
            return {self.lane_range: n}
        width = self.lane_range.extent
        number = b.value(binary(Op.TRUNCDIV, n, width))
        within = b.index(0) if lanes == width else b.value(binary(Op.TRUNCMOD, n, width))
        return {self.groups: number, self.lane_range: within}


def see_columns(flat: FlatContraction, most_lanes: int) -> Columns:
    """Choose the ranges along which stores run."""
    if not flat.windows or most_lanes == 1:
        return Columns(flat.stores, flat.n)
    fresh = fresh_number(walk(flat.stores))
    groups = make_range(fresh, flat.n.extent // most_lanes)
    lanes = make_range(fresh + 1, most_lanes)
    grouped = substitute_all(flat.stores, {flat.n: groups * most_lanes + lanes})
    stores = [_share_guards(simplify_index(each), lanes) for each in grouped]
    return Columns(tuple(stores), lanes, groups)


def _share_guards(root: UOp, lanes: UOp) -> UOp:
    """Let accesses whose guard is the same in all lanes claim it for the first one."""
    first = {lanes: index_const(0)}
    replaced: dict[UOp, UOp] = {}
    for node in walk((root,)):
        rebuilt = node.replace(tuple([replaced[each] for each in node.operands]))
        guard = guard_of(rebuilt) if node.op in (Op.LOAD, Op.STORE) else None
        if guard is not None and is_uniform(guard, lanes, lanes.extent):
            shared = simplify_index(substitute(guard, first))
            rebuilt = rebuilt.replace((*rebuilt.operands[:-1], shared))
        replaced[node] = rebuilt
    return replaced[root]


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
        self._columns_in = see_columns(flat, most_lanes)
        stores, lane_range = self._columns_in.stores, self._columns_in.lane_range
        self.lanes = common_access(stores, lane_range, {lane_range: most_lanes}, most_lanes)
        is_ragged = self._checks_m or self._checks_n
        self.stores = guard_accesses(stores) if is_ragged else stores
        self._column_loads = self._find_column_loads()
        self._columns: dict[UOp, dict[UOp, UOp]] = {}

    def _find_column_loads(self) -> list[UOp]:
        """Find the loads whose value is the same in every row."""
        unread = {self._flat.m, self._flat.total}
        return [
            each
            for each in accesses_of(self.stores)
            if each.op is Op.LOAD
            and unread.isdisjoint(walk((each,)))
            and not self._b.params[each.operands[0].attrs.number].written
        ]

    def preload(self, columns: Sequence[UOp]) -> None:
        """Read what the sums at these columns will need, unless it takes too many registers."""
        if len(columns) * self.lanes * len(self._column_loads) <= MOST_PRELOADED:
            for column in columns:
                self._load_column(column)

    def _load_column(self, column: UOp) -> None:
        places = self._columns_in.places(self._b, self._first_n + column, self.lanes)
        evaluator = self._evaluator(places, self._inside_n(column))
        values = {each: self._b.value(evaluator.value(each)) for each in self._column_loads}
        self._columns[column] = values

    def store(self, row: UOp, column: UOp, sums: UOp) -> None:
        """Run the epilogue on adjacent sums of a row, and every store."""
        for piece in self.pieces(row, column, sums):
            for store in self.stores:
                piece.evaluator.store(store)

    def pieces(self, row: UOp, column: UOp, sums: UOp) -> Iterator[Piece]:
        """Take adjacent sums of a row apart, `lanes` at a time."""
        for begin in range(0, sums.dtype.lanes, self.lanes):
            piece = lanes_from(sums, begin, self.lanes)
            here = column + begin if begin else column
            yield Piece(begin, self._evaluator_of(row, here, piece))

    def _evaluator_of(self, row: UOp, column: UOp, sums: UOp) -> Evaluator:
        flat = self._flat
        if column not in self._columns:
            self._load_column(column)
        columns = self._columns_in.places(self._b, self._first_n + column, self.lanes)
        places = {flat.m: self._first_m + row, **columns}
        known = {**self._columns[column], flat.total: sums}
        return self._evaluator(places, self._inside(row, column), known)

    def _evaluator(
        self, places: Mapping[UOp, UOp], inside: UOp | None, known: Mapping[UOp, UOp] | None = None
    ) -> Evaluator:
        known = dict(known or {})
        if inside is not None:
            known[INSIDE] = inside
        ranges = {**self._outer, **places}
        return Evaluator(self._b, ranges, self._columns_in.lane_range, self.lanes, known=known)

    def _inside_n(self, column: UOp) -> UOp | None:
        if self._checks_n:
            return self._first_n + column < amount(self._b, exact_extent(self._flat.n))
        return const(dtypes.bool, True) if self._checks_m else None

    def _inside(self, row: UOp, column: UOp) -> UOp | None:
        """Return whether sums at a row and column are part of the result; None if they must be."""
        inside_n = self._inside_n(column)
        if not self._checks_m:
            return inside_n
        inside_m = self._first_m + row < amount(self._b, exact_extent(self._flat.m))
        return inside_m & inside_n if self._checks_n and inside_n is not None else inside_m
