"""Turns a warpgroup's sums into the kernel's stores: trays of shared memory, written in bulk."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

from tinytensor.codegen.block_builder import BlockBuilder
from tinytensor.codegen.builder import lane, shuffle, splat
from tinytensor.codegen.plans.block_epilogue import BlockEpilogue
from tinytensor.codegen.plans.cuda_hopper_boxes import Boxes, see_in_boxes
from tinytensor.codegen.plans.cuda_hopper_tiling import (
    GROUP_ROWS,
    GROUP_THREADS,
    MOST_TRAY_COLUMNS,
    ROW_BYTES,
    HopperTiling,
    trays_of,
)
from tinytensor.codegen.plans.flatten import FlatContraction
from tinytensor.dtype import dtypes
from tinytensor.ops import tile as tiles
from tinytensor.ops.attrs_blocks import TileMmaAttrs
from tinytensor.ops.fragments import accumulator_position, mma_shape
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp, compare
from tinytensor.records import dataclass

PAIR = 2  # a thread holds sums in adjacent pairs of a row
WIDEST_ITEM = 4  # bytes of an element that goes in bulk
TRAY_BARRIER = 1  # the first of the named barriers, one for each warpgroup


def boxes_of_store(flat: FlatContraction, store: UOp) -> Boxes | None:
    """Return where a store goes in bulk; None if each thread stores its own elements."""
    dtype = store.operands[0].dtype
    if dtype is dtypes.bool or dtype.itemsize > WIDEST_ITEM:
        return None
    boxes = flat.windows.get(store) or see_in_boxes(store, flat.n, flat.m, flat.outer)
    return None if isinstance(boxes, str) else boxes


def tray_bytes(flat: FlatContraction) -> int:
    """Return the bytes that a sum takes in the trays of all stores that go in bulk."""
    return sum(_item_bytes(flat))


def tray_columns(flat: FlatContraction) -> int:
    """Return the most columns of a tray: the widest elements fill swizzled rows."""
    widest = max(_item_bytes(flat), default=WIDEST_ITEM)
    return min(MOST_TRAY_COLUMNS, ROW_BYTES // widest)


def _item_bytes(flat: FlatContraction) -> list[int]:
    """List the bytes of an element of each store that goes in bulk."""
    bulk = [each for each in flat.stores if boxes_of_store(flat, each) is not None]
    return [each.operands[0].dtype.itemsize for each in bulk]


@dataclass(frozen=True, slots=True)
class Tray:
    """The trays of one store, those of each warpgroup after another's, and their map."""

    tile: UOp
    boxes: Boxes
    tensor_map: UOp


@dataclass(frozen=True, slots=True)
class Pair:
    """Two adjacent sums of a row: their accumulator, and the first one's register and places.

    `place` is where it lies in the block's tile, `in_tray` in its tray: (row, column).
    """

    accumulator: int
    register: int
    place: tuple[UOp, UOp]
    in_tray: tuple[UOp, UOp]


class Trays:
    """The shared memory through which a tile's results go; made once, before any role."""

    def __init__(self, b: BlockBuilder, flat: FlatContraction, tiling: HopperTiling) -> None:
        self.depth, self.columns = trays_of(tiling, tray_columns(flat))
        self.by_store: dict[int, Tray] = {}
        if self.depth == 0:
            return
        for number, store in enumerate(flat.stores):
            boxes = boxes_of_store(flat, store)
            if boxes is None:
                continue
            stages = tiling.consumers * self.depth
            tile = b.tile(store.operands[0].dtype, GROUP_ROWS, self.columns, stages)
            self.by_store[number] = Tray(tile, boxes, boxes.tensor_map(b, tile))


@dataclass(frozen=True, slots=True)
class Held:
    """Sums of a thread that are stored together, and their places as a face sees them."""

    sums: UOp
    place: tuple[UOp, UOp]
    in_tray: tuple[UOp, UOp]


@dataclass(frozen=True, slots=True)
class Face:
    """A tile's results as they lie, or their mirror image, and the epilogue of either."""

    epilogue: BlockEpilogue
    is_mirrored: bool

    def turned(self, row: UOp, column: UOp) -> tuple[UOp, UOp]:
        """Return a place of the tile as this face sees it."""
        return (column, row) if self.is_mirrored else (row, column)

    def held(self, pair: Pair, sums: Sequence[UOp]) -> Iterator[Held]:
        """Take a pair as this face sees it: side by side, or one below the other."""
        accumulator, first = sums[pair.accumulator], pair.register
        if not self.is_mirrored:
            pair_of_sums = shuffle(accumulator, accumulator, (first, first + 1))
            yield Held(pair_of_sums, pair.place, pair.in_tray)
            return
        for number in range(PAIR):
            places = [
                self.turned(row, column + number) for row, column in (pair.place, pair.in_tray)
            ]
            yield Held(lane(accumulator, first + number), *places)


class Storing:
    """Stores one tile of sums, by the threads of one warpgroup.

    `who` is the running thread among its group's, and the group's number. The rows it holds begin
    at `first_row` of the block's tile. With `mirrors` a tile is stored at its other place too.
    """

    def __init__(
        self,
        b: BlockBuilder,
        flat: FlatContraction,
        tiling: HopperTiling,
        layout: TileMmaAttrs,
        trays: Trays,
        who: tuple[UOp, UOp],
        mirrors: bool,
    ) -> None:
        self._b = b
        self._flat = flat
        self._tiling = tiling
        self._layout, self._width = layout, mma_shape(layout.instruction).n
        self._trays = trays
        self._thread, self._group = who
        self._mirrors = mirrors

    def begin(self, outer: Mapping[UOp, UOp], first: tuple[UOp, UOp], first_row: UOp) -> None:
        """Come to a tile: read what its columns need."""
        self._outer, self._first, self._first_row = outer, first, first_row
        self._pairs = list(self._list_pairs())
        self._face = self._make_face(first, is_mirrored=False)
        columns = dict.fromkeys([each.place[1] for each in self._pairs])
        self._face.epilogue.preload(list(columns))

    def _make_face(self, first: tuple[UOp, UOp], is_mirrored: bool) -> Face:
        extents = (self._tiling.block_m, self._tiling.block_n)
        lanes = 1 if is_mirrored else PAIR
        epilogue = BlockEpilogue(self._b, self._flat, self._outer, first, extents, lanes)
        return Face(epilogue, is_mirrored)

    def _list_pairs(self) -> Iterator[Pair]:
        """List a thread's pairs of sums, in the order of trays."""
        block = (GROUP_ROWS, self._width)
        row, column = accumulator_position(self._layout, *block, self._thread, 0)
        first_row, first_column = self._b.value(self._first_row + row), self._b.value(column)
        for number, (below, beside) in enumerate(self._tiling.accumulators(self._width)):
            for register in range(0, GROUP_ROWS * self._width // GROUP_THREADS, PAIR):
                down, across = accumulator_position(self._layout, *block, 0, register)
                across = across + beside
                place = (first_row + (down + below), first_column + across)
                in_tray = (row + down, column + across % self._trays.columns)
                yield Pair(number, register, place, in_tray)

    def finish(self, sums: Sequence[UOp]) -> None:
        """Run the epilogue on the sums of each accumulator, and store."""
        self._show(self._face, sums)
        if self._mirrors:
            first_m, first_n = self._first
            with self._b.branch(compare(Op.NE, first_m, first_n)):
                self._show(self._make_face((first_n, first_m), is_mirrored=True), sums)

    def _show(self, face: Face, sums: Sequence[UOp]) -> None:
        """Store all pairs, as many at a time as fill a tray of each store."""
        trays, per_tray = self._trays.by_store, len(self._pairs)
        if face.is_mirrored and self._trays.columns != GROUP_ROWS:
            trays = {}  # a mirrored tray holds all rows of an accumulator side by side
        if trays:
            per_tray = GROUP_ROWS * self._trays.columns // GROUP_THREADS // PAIR
        for begin in range(0, len(self._pairs), per_tray):
            pairs = self._pairs[begin : begin + per_tray]
            held = [each for pair in pairs for each in face.held(pair, sums)]
            if trays:
                self._fill_trays(face, begin // per_tray, held)
            else:
                self._store(face, held, trays, 0)

    def _fill_trays(self, face: Face, number: int, held: Sequence[Held]) -> None:
        """Fill one tray of each store, and let the engine write it."""
        b, depth = self._b, self._trays.depth
        stage = b.value(self._group * depth + number % depth)
        is_first = self._thread < 1
        with b.branch(is_first):
            b.bulk_wait(depth - 1)
        b.barrier(TRAY_BARRIER, GROUP_THREADS, self._group)
        self._store(face, held, self._trays.by_store, stage)
        b.proxy_fence()
        b.barrier(TRAY_BARRIER, GROUP_THREADS, self._group)
        with b.branch(is_first):
            self._write_trays(face, number, stage)

    def _write_trays(self, face: Face, number: int, stage: UOp) -> None:
        b, columns = self._b, self._trays.columns
        per_row = self._tiling.columns // columns
        down, across = number // per_row * GROUP_ROWS, number % per_row * columns
        first_m, first_n = self._first
        row, column = face.turned(first_m + self._first_row + down, first_n + across)
        for tray in self._trays.by_store.values():
            ranges = {**self._outer, self._flat.m: row, self._flat.n: column}
            b.bulk_store(tray.tensor_map, tray.boxes.begin(b, ranges), tray.tile, stage)
        b.bulk_commit()

    def _store(
        self, face: Face, held: Sequence[Held], trays: Mapping[int, Tray], stage: UOp | int
    ) -> None:
        """Run every store on sums of this thread: to its tray, or to memory."""
        stores = list(enumerate(face.epilogue.stores))
        for each in held:
            pieces = face.epilogue.pieces(*each.place, each.sums)
            for piece, (number, store) in itertools.product(pieces, stores):
                if number not in trays:
                    piece.evaluator.store(store)
                    continue
                row, column = each.in_tray
                tile = trays[number].tile
                place: UOp = tiles.element_index(tile, stage, row, column + piece.begin)
                value = piece.evaluator.value(store.operands[2])
                is_whole = value.dtype.lanes == face.epilogue.lanes
                self._b.store(tile, place, value if is_whole else splat(value, PAIR))

    def close(self) -> None:
        """Wait until the engine has read the last trays."""
        if self._trays.by_store:
            with self._b.branch(self._thread < 1):
                self._b.bulk_wait()
