"""Turns collective ops on tiles into what each thread does: copies, ldmatrix and mma."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

from tinytensor.codegen.builder import lane, stack
from tinytensor.codegen.double_fragments import DoubleSide
from tinytensor.codegen.placement import Placement, drop_unused, fresh_orders
from tinytensor.dtype import dtypes
from tinytensor.errors import InternalError
from tinytensor.ops import tile as tiles
from tinytensor.ops.attrs import AccessAttrs, EffectAttrs
from tinytensor.ops.attrs_blocks import CopyAttrs, FragmentAttrs, MmaAttrs, PlaceAttrs
from tinytensor.ops.bounds import bounds_of
from tinytensor.ops.fragments import WARP_THREADS, MmaShape, mma_shape
from tinytensor.ops.guards import both
from tinytensor.ops.linear import UNORDERED, Linear
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp, cast, const, where
from tinytensor.records import dataclass
from tinytensor.target import Target

COPY_BYTES = 16  # the most one thread moves at once
LEAST_COPY_BYTES = 4  # a smaller access goes through a register
SWIZZLE_ROWS = 8  # rows further apart by a multiple of it are swizzled alike
HALF_FRAGMENT = 8  # rows of the matrices that ldmatrix loads, of 16 bytes each


def legalize_tiles(linear: Linear, target: Target) -> Linear:
    """Share out tile copies and tile products among the threads that run them.

    Takes:  LINEAR form of a thread block.
    Gives:  LINEAR form without TILE_COPY, TILE_MMA and MMA_WAIT.
    Placed: after the plan; before `split_lanes`, which takes the accumulators apart.
    """
    lowering = _Lowering(linear)
    for node in linear.statements:
        lowering.lower(node)
    return replace(linear, statements=drop_unused(lowering.placement.statements))


@dataclass(frozen=True, slots=True)
class _Access:
    """One thread's access number of a tile copy: where in the tile, and where in the source."""

    row: UOp
    column: UOp
    place: UOp


class _Lowering:
    """Walks the statements; knows which threads run what stands here."""

    def __init__(self, linear: Linear) -> None:
        self.placement = Placement()
        self._linear = linear
        self._first_thread = 0
        self._orders = fresh_orders(linear)

    def lower(self, node: UOp) -> None:
        """Keep a statement, or replace it."""
        if node.op is Op.ROLE:
            self._first_thread = node.attrs.first_warp * WARP_THREADS
        elif node.op is Op.ENDROLE:
            self._first_thread = 0
        LOWER.get(node.op, _Lowering.keep)(self, node)

    def keep(self, node: UOp) -> None:
        """Keep a statement."""
        self.placement.add(node)

    def leave_out(self, node: UOp) -> None:
        """Drop a wait: products of a warp are done when they are read."""

    @property
    def _thread(self) -> UOp:
        """The number of this thread among those that run the statement."""
        assert self._linear.grid is not None, "only a thread block has tiles"
        attrs = PlaceAttrs("thread", self._linear.grid.threads)
        thread = UOp(Op.PLACE, dtypes.int32, (), attrs)
        return thread - self._first_thread if self._first_thread else thread

    # Copies.
    def copy(self, node: UOp) -> None:
        """Give each thread accesses whose numbers are `threads` apart."""
        tile, stage, source, start, rows, columns = node.operands
        attrs = node.attrs
        elements = _copied_at_once(attrs.access_elements, tile)
        count = tile.attrs.rows * tile.attrs.columns // elements
        stage_start = stage * (tile.attrs.rows * tile.attrs.columns)
        for number in range(0, count, attrs.threads):
            access = self._access(tile, elements, number, attrs.threads)
            begin = start + cast(access.row, start.dtype) * attrs.row_stride
            begin = begin + cast(access.column, start.dtype)
            is_inside = both(_below(access.row, rows), _below(access.column, columns))
            index = stage_start + cast(access.place, stage.dtype)
            with_rest = number + attrs.threads > count
            if with_rest:
                cond = self._thread < count - number
                opened = self.placement.add(UOp(Op.IF, dtypes.void, (cond,), self._order()))
            self._copy_access(tile, index, source, begin, is_inside, elements)
            if with_rest:
                self.placement.add(UOp(Op.ENDIF, dtypes.void, (opened,), self._order()))

    def _access(self, tile: UOp, elements: int, number: int, threads: int) -> _Access:
        """Find the access `number` + the thread's own; the first one's address serves the others.

        That is when threads fill whole rows, and as many that the swizzle repeats.
        """
        per_row = tile.attrs.columns // elements
        thread = self._thread
        rows_apart = number // per_row
        if threads % per_row == 0 and (not tile.attrs.swizzle or rows_apart % SWIZZLE_ROWS == 0):
            row, column = thread // per_row, thread % per_row * elements
            place = tiles.place_in_stage(tile, row, column)
            if number == 0:
                return _Access(row, column, place)
            return _Access(row + rows_apart, column, place + rows_apart * tile.attrs.columns)
        item = thread + number if number else thread
        row, column = item // per_row, item % per_row * elements
        return _Access(row, column, tiles.place_in_stage(tile, row, column))

    def _copy_access(
        self,
        tile: UOp,
        index: UOp,
        source: UOp,
        begin: UOp,
        is_inside: UOp | None,
        elements: int,
    ) -> None:
        if elements * tile.dtype.itemsize >= LEAST_COPY_BYTES:
            valid = const(dtypes.int32, elements)
            if is_inside is not None:
                valid = where(is_inside, valid, 0)
            copied = CopyAttrs(next(self._orders), elements)
            operands = (tile, index, source, begin, valid)
            self.placement.add(UOp(Op.COPY_ASYNC, dtypes.void, operands, copied))
            return
        dtype = tile.dtype.vector(elements)
        guard = () if is_inside is None else (is_inside,)
        order = UNORDERED if self._is_constant(source) else next(self._orders)
        loaded = UOp(Op.LOAD, dtype, (source, begin, *guard), AccessAttrs(order, elements))
        self.placement.add(loaded)
        attrs = AccessAttrs(next(self._orders), elements)
        self.placement.add(UOp(Op.STORE, dtypes.void, (tile, index, loaded), attrs))

    def _is_constant(self, source: UOp) -> bool:
        return source.op is Op.PARAM and not self._linear.params[source.attrs.number].written

    def _order(self) -> EffectAttrs:
        return EffectAttrs(next(self._orders))

    # Products.
    def multiply(self, node: UOp) -> None:
        """Multiply k step by k step: load the fragments of a warp, then all their products."""
        accumulator, x, x_stage, y, y_stage = node.operands
        attrs = node.attrs
        shape = mma_shape(attrs.instruction)
        if shape.m > MMA_M:
            raise InternalError(
                f"legalize tiles: no lowering for {attrs.instruction}; it must be one of a warp."
            )
        warp = self._thread // WARP_THREADS
        of_a = (x, x_stage, attrs.a_k_major, attrs.warps_m, warp // attrs.warps_n)
        of_b = (y, y_stage, attrs.b_k_major, attrs.warps_n, warp % attrs.warps_n)
        rows, columns = [self._side(shape, *each) for each in (of_a, of_b)]
        read = self.placement.add(UOp(Op.READ, accumulator.dtype, (accumulator,), self._order()))
        held = shape.m * shape.n // WARP_THREADS
        sums = [stack(_lanes(read, i, held)) for i in range(0, accumulator.dtype.lanes, held)]
        made = MmaAttrs(attrs.instruction)
        for step in range(0, rows.depth, shape.k):
            left = rows.fragments_of_rows(step)
            right = columns.fragments_of_columns(step)
            for number, (a, b) in enumerate(itertools.product(left, right)):
                operands = (a, b, sums[number])
                sums[number] = UOp(Op.MMA, operands[2].dtype, operands, made)
                self.placement.add(sums[number])
        total = stack([each for one in sums for each in _lanes(one, 0, held)])
        self.placement.add(UOp(Op.WRITE, dtypes.void, (accumulator, total), self._order()))

    def _side(
        self, shape: MmaShape, tile: UOp, stage: UOp, k_major: bool, warps: int, warp: UOp
    ) -> _Side | DoubleSide:
        if shape.a is dtypes.float64:
            given = (shape, self.load_pair, self.lane, tile, stage, k_major, warps, warp)
            return DoubleSide(*given)
        return _Side(self, tile, stage, k_major, warps, warp)

    def load_pair(self, tile: UOp, index: UOp) -> UOp:
        """Load two adjacent elements."""
        attrs = AccessAttrs(next(self._orders), 2)
        return self.placement.add(UOp(Op.LOAD, tile.dtype.vector(2), (tile, index), attrs))

    def load_matrices(self, tile: UOp, index: UOp, transposed: bool) -> UOp:
        """Load four 8x8 matrices; `index` is where this lane's row of eight begins."""
        attrs = FragmentAttrs(next(self._orders), transposed)
        return self.placement.add(UOp(Op.LDMATRIX, dtypes.uint32.vector(4), (tile, index), attrs))

    @property
    def lane(self) -> UOp:
        """The thread's number in its warp."""
        return self._thread % WARP_THREADS


MMA_M = 16


class _Side:
    """One factor of a tile product, as far as one warp reads it.

    `extent` of its m (or n) belong to the warp, from `begin` on; `depth` is the whole of k.
    """

    def __init__(
        self, lowering: _Lowering, tile: UOp, stage: UOp, k_major: bool, warps: int, warp: UOp
    ) -> None:
        rows, columns = tile.attrs.rows, tile.attrs.columns
        whole, self.depth = (rows, columns) if k_major else (columns, rows)
        self.extent = whole // warps
        self._lowering = lowering
        self._tile = tile
        self._half_of_k = COPY_BYTES // tile.dtype.itemsize
        self._k_major = k_major
        self._begin = warp * self.extent
        self._stage_start = stage * (rows * columns)

    def fragments_of_rows(self, step: int) -> list[UOp]:
        """Load the m x k fragments of one k step: matrices go down m, then along k."""
        lane = self._lowering.lane
        along_m = lane % MMA_M if self._k_major else lane // HALF_FRAGMENT % 2 * HALF_FRAGMENT
        along_k = lane // MMA_M * self._half_of_k
        if not self._k_major:
            along_k = along_k + lane % HALF_FRAGMENT
        return [self._load(along_m, at, along_k, step) for at in range(0, self.extent, MMA_M)]

    def fragments_of_columns(self, step: int) -> list[UOp]:
        """Load the k x n fragments of one k step, two by two: along k, then to the next n."""
        fragments: list[UOp] = []
        for at in range(0, self.extent, MMA_M):
            is_pair = at + MMA_M <= self.extent
            loaded = self._load(self._along_n(is_pair), at, self._along_k_of_columns(), step)
            fragments.append(stack(_lanes(loaded, 0, 2)))
            if is_pair:
                fragments.append(stack(_lanes(loaded, 2, 2)))
        return fragments

    def _along_n(self, is_pair: bool) -> UOp:
        """Where along n a lane's row begins; the last odd fragment is loaded twice."""
        lane = self._lowering.lane
        next_one = lane // MMA_M * HALF_FRAGMENT if is_pair else const(lane.dtype, 0)
        return next_one + lane % HALF_FRAGMENT if self._k_major else next_one

    def _along_k_of_columns(self) -> UOp:
        lane = self._lowering.lane
        return lane // HALF_FRAGMENT % 2 * self._half_of_k if self._k_major else lane % MMA_M

    def _load(self, along: UOp, at: int, along_k: UOp, step: int) -> UOp:
        """Load the fragment that is `at` further along m (or n) and `step` along k.

        What is a step of whole rows leaves the swizzle alone, so one address serves all of them.
        """
        outer = self._begin + along
        if self._k_major:
            column = along_k + step if step else along_k
            place = tiles.place_in_stage(self._tile, outer, column)
            rows_further = at
        else:
            column = outer + at if at else outer
            place = tiles.place_in_stage(self._tile, along_k, column)
            rows_further = step
        index = self._stage_start + cast(place, self._stage_start.dtype)
        if rows_further:
            index = index + rows_further * self._tile.attrs.columns
        return self._lowering.load_matrices(self._tile, index, not self._k_major)


def _lanes(x: UOp, first: int, count: int) -> list[UOp]:
    return [lane(x, number) for number in range(first, first + count)]


def _copied_at_once(access_elements: int, tile: UOp) -> int:
    """The largest power of two of elements that are readable at once, up to 16 bytes."""
    elements = COPY_BYTES // tile.dtype.itemsize
    while access_elements % elements or tile.attrs.columns % elements:
        elements //= 2
    return elements


def _below(place: UOp, count: UOp) -> UOp | None:
    """Whether a place lies before a count; None when it always does."""
    if bounds_of(place)[1] < bounds_of(count)[0]:
        return None
    return cast(place, count.dtype) < count


LOWER: dict[Op, Callable[[_Lowering, UOp], None]] = {
    Op.TILE_COPY: _Lowering.copy,
    Op.TILE_MMA: _Lowering.multiply,
    Op.MMA_WAIT: _Lowering.leave_out,
}
