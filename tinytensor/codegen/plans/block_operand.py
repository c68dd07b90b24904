"""Turns one factor of a contraction into what a block of threads brings to shared memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from tinytensor.codegen.block_builder import BlockBuilder
from tinytensor.codegen.builder import splat
from tinytensor.codegen.plans.alignment import ACCESS_BYTES, common_access
from tinytensor.codegen.plans.amounts import amount, divisor_of, is_whole, pitch_of, times
from tinytensor.codegen.plans.inside import INSIDE, zero_outside
from tinytensor.codegen.plans.lanes import accesses_of, best_lane_range
from tinytensor.codegen.vectorize import Evaluator, stride_of
from tinytensor.dtype import DType
from tinytensor.ops.bounds import bounds_of
from tinytensor.ops.guards import both
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp, binary, cast, exact_extent, where
from tinytensor.records import dataclass

BLOCK_MULTIPLE = 16  # every tiling's extents are multiples of it
COPY_BYTES = (4, 8, 16)  # what one asynchronous copy moves


@dataclass(frozen=True, slots=True)
class Operand:
    """One factor: its ranges, and how its elements are taken.

    `free` is its range beside k, m or n. Elements are taken `access` at a time along `inner`, one
    of the two, of which memory holds `inner_extent`. With `is_direct` they are copied as they lie
    in memory, else computed on the way.
    """

    value: UOp
    free: UOp
    k: UOp
    inner: UOp
    inner_extent: UOp
    access: int
    is_direct: bool

    @property
    def outer(self) -> UOp:
        """The other range."""
        return self.free if self.inner is self.k else self.k

    @property
    def source(self) -> UOp:
        """The buffer of a direct operand."""
        return self.value.operands[0]

    @property
    def index(self) -> UOp:
        """The index of a direct operand's element."""
        return self.value.operands[1]

    @property
    def pitch(self) -> UOp:
        """The elements from one row of a direct operand to the next, an index expression."""
        pitch = pitch_of(self.index, self.outer)
        assert pitch is not None, "a direct operand lies in rows"
        return pitch


def describe(value: UOp, free: UOp, k: UOp, stored: DType, is_open: bool) -> Operand:
    """Choose how the elements of a factor, to be kept as `stored`, are taken.

    With `is_open` they are copied as they lie even if their pitch is known only at launch.
    """
    inner = best_lane_range(accesses_of((value,)), (free, k))
    outer = free if inner is k else k
    steps = {free: BLOCK_MULTIPLE, k: BLOCK_MULTIPLE}
    access = common_access((value,), inner, steps, ACCESS_BYTES // stored.itemsize)
    is_direct = value.dtype is stored and _lies_in_rows(value, inner, outer, is_open)
    is_copied = access * stored.itemsize in COPY_BYTES
    return Operand(value, free, k, inner, exact_extent(inner), access, is_direct and is_copied)


def _lies_in_rows(value: UOp, inner: UOp, outer: UOp, is_open: bool) -> bool:
    """Whether a value is an unguarded load of rows along `inner`, at one pitch along `outer`."""
    if value.op is not Op.LOAD or len(value.operands) != 2:
        return False
    index = value.operands[1]
    pitch = pitch_of(index, outer)
    if stride_of(index, inner) != 1 or pitch is None or bounds_of(pitch)[0] <= 0:
        return False
    return is_open or pitch.op is Op.CONST


@dataclass(frozen=True, slots=True)
class Window:
    """Where a block works: values of the outer ranges, its first value of `free`, and extents.

    Units: elements; `extent_free` and `extent_k` are those of the block's tile.
    """

    places: Mapping[UOp, UOp]
    free: UOp
    extent_free: int
    extent_k: int


@dataclass(frozen=True, slots=True)
class Share:
    """One of so many parts of a block's copies, none of which reads unless the block exists."""

    part: int
    parts: int
    exists: UOp


class Source:
    """Brings blocks of k of an operand to the stages of a ring of tiles.

    What is copied asynchronously begins in `copy`; what passes through registers is read by
    `gather` and written by `put`, between which other work hides the wait. A source has either.
    """

    def copy(self, stage: UOp, block: UOp, share: Share | None = None) -> None:
        """Begin copies of a block of k to a stage, or a share of them."""

    def gather(self, block: UOp) -> list[UOp]:
        """Return a block's elements of this thread; 0 beyond the operand."""
        return []

    def put(self, stage: UOp, values: Sequence[UOp]) -> None:
        """Write what was gathered to a stage."""


class _Positions:
    """The elements of a tile that one thread takes, `width` at a time along the inner range."""

    def __init__(
        self, b: BlockBuilder, operand: Operand, window: Window, width: int, most_columns: int
    ) -> None:
        self._b = b
        self._operand = operand
        self._window = window
        sizes = {operand.free: window.extent_free, operand.k: window.extent_k}
        self._inner, self._outer = sizes[operand.inner], sizes[operand.outer]
        self.width = min(width, self._inner * self._outer // b.threads)
        most_columns = max(most_columns, b.threads // self._outer)
        self._columns = min(self._inner // self.width, b.threads, most_columns)
        self._rows = b.threads // self._columns
        self._column = b.value(binary(Op.TRUNCMOD, b.thread, self._columns) * self.width)
        self._row = b.value(binary(Op.TRUNCDIV, b.thread, self._columns))

    def offsets(self) -> Iterator[tuple[int, int]]:
        """Walk (row, column) of the thread's accesses, relative to its first."""
        for row in range(0, self._outer, self._rows):
            for column in range(0, self._inner, self._columns * self.width):
                yield row, column

    def in_tile(self, row: int, column: int) -> tuple[UOp, UOp]:
        """Return (free, k) of an access within the tile."""
        there = _shifted(self._row, row), _shifted(self._column, column)
        return there if self._operand.inner is self._operand.k else there[::-1]

    def ranges(self, block: UOp, row: int, column: int) -> dict[UOp, UOp]:
        """Return the value of every range at an access in a block of k."""
        window, operand = self._window, self._operand
        free, k = self.in_tile(row, column)
        first_k = block * window.extent_k
        return {**window.places, operand.free: window.free + free, operand.k: first_k + k}

    def inside(self, ranges: Mapping[UOp, UOp], checks_k: bool) -> UOp | None:
        """Return whether an access lies in the operand; None when it surely does."""
        operand, window = self._operand, self._window
        inside_free, inside_k = None, None
        if not is_whole(operand.free, window.extent_free):
            inside_free = ranges[operand.free] < amount(self._b, exact_extent(operand.free))
        if checks_k or not is_whole(operand.k, window.extent_k):
            inside_k = ranges[operand.k] < amount(self._b, exact_extent(operand.k))
        return both(inside_free, inside_k)


def _shifted(value: UOp, by: UOp | int) -> UOp:
    return value if by == 0 else value + by


# Gives the index of an element in shared memory from its stage, and free and k within the tile.
Address = Callable[[UOp, UOp, UOp], UOp]


# A warp that turns rows of k over takes 8 values of k of 4 rows: whole sectors of 32 bytes, and
# with a pitch of 4 beyond a multiple of 32 elements all 32 banks.
TRANSPOSED_COLUMNS = 8


class _ThreadSource(Source):
    """Brings elements, each thread its own."""

    def __init__(
        self,
        b: BlockBuilder,
        operand: Operand,
        window: Window,
        target: UOp,
        address: Address,
        transposes: bool,
    ) -> None:
        self._b = b
        self._operand = operand
        self._target = target
        self._address = address
        width, most_columns = (1, TRANSPOSED_COLUMNS) if transposes else (operand.access, b.threads)
        self._positions = _Positions(b, operand, window, width, most_columns)


class GatheredSource(_ThreadSource):
    """Evaluates elements, any expression at all, and stores them."""

    def gather(self, block: UOp) -> list[UOp]:
        """Return the elements of this thread, `width` in a vector."""
        value = cast(zero_outside(self._operand.value), self._target.dtype)
        return [self._evaluate(value, block, *offset) for offset in self._positions.offsets()]

    def _evaluate(self, element: UOp, block: UOp, row: int, column: int) -> UOp:
        b, width = self._b, self._positions.width
        ranges = self._positions.ranges(block, row, column)
        # The ring asks for blocks beyond the last one.
        inside = self._positions.inside(ranges, checks_k=True)
        assert inside is not None, "k is checked"
        evaluator = Evaluator(b, ranges, self._operand.inner, width, known={INSIDE: inside})
        value = evaluator.value(element)
        return b.value(value if value.dtype.lanes == width else splat(value, width))

    def put(self, stage: UOp, values: Sequence[UOp]) -> None:
        """Store what was gathered."""
        for offset, value in zip(self._positions.offsets(), values, strict=True):
            free, k = self._positions.in_tile(*offset)
            self._b.store(self._target, self._address(stage, free, k), value)


class CopiedSource(_ThreadSource):
    """Copies elements of a direct operand asynchronously."""

    def copy(self, stage: UOp, block: UOp, share: Share | None = None) -> None:
        """Begin this thread's copies; without branches, so that other work runs between them."""
        b, operand, positions = self._b, self._operand, self._positions
        first = Evaluator(b, positions.ranges(block, 0, 0)).value(operand.index)
        offsets = list(positions.offsets())
        for row, column in offsets[share.part :: share.parts] if share else offsets:
            index = self._address(stage, *positions.in_tile(row, column))
            ahead = times(b, operand.pitch, row) + column
            valid = self._valid(positions.ranges(block, row, column))
            if share is not None:
                valid = where(share.exists, valid, 0)
            start = _shifted(first, ahead)
            b.copy_async(self._target, index, operand.source, start, positions.width, valid)

    def _valid(self, ranges: Mapping[UOp, UOp]) -> UOp:
        width = self._b.index(self._positions.width)
        inside = self._positions.inside(ranges, checks_k=False)
        return width if inside is None else where(inside, width, 0)


class TileSource(Source):
    """Copies rectangles of a direct operand, all threads together."""

    def __init__(self, b: BlockBuilder, operand: Operand, window: Window, tile: UOp) -> None:
        self._b = b
        self._operand = operand
        self._window = window
        self._tile = tile

    def copy(self, stage: UOp, block: UOp, share: Share | None = None) -> None:
        """Begin the copy of a block of k."""
        b, operand, window = self._b, self._operand, self._window
        first_k = b.value(block * window.extent_k)
        ranges = {**window.places, operand.free: window.free, operand.k: first_k}
        start = Evaluator(b, ranges).value(operand.index)
        tile = {operand.free: window.extent_free, operand.k: window.extent_k}
        inner, outer = operand.inner, operand.outer
        b.tile_copy(
            self._tile,
            stage,
            operand.source,
            start,
            self._valid(exact_extent(outer), ranges[outer], tile[outer]),
            self._valid(operand.inner_extent, ranges[inner], tile[inner]),
            row_stride=int(operand.pitch.value),
            access_elements=operand.access,
        )

    def _valid(self, extent: UOp, first: UOp, tile_extent: int) -> UOp:
        """How many values of a range are left from `first` on, at most the tile's extent."""
        if divisor_of(extent) % tile_extent == 0:
            return self._b.index(tile_extent)
        return binary(Op.MIN, amount(self._b, extent) - first, tile_extent)
