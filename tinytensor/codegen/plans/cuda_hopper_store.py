"""Turns a warpgroup's sums into the kernel's stores: trays of shared memory, written in bulk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tinytensor.codegen.block_builder import BlockBuilder
from tinytensor.codegen.builder import shuffle, splat
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
from tinytensor.ops.fragments import accumulator_position
from tinytensor.ops.uop import UOp

PAIR = 2  # a thread holds sums in adjacent pairs of a row
WIDEST_ITEM = 4  # bytes of an element that goes in bulk
TRAY_BARRIER = 1  # the first of the named barriers, one for each warpgroup


def boxes_of_store(flat: FlatContraction, store: UOp) -> Boxes | None:
    """Return where a store goes in bulk; None if each thread stores its own elements."""
    dtype = store.operands[0].dtype
    if dtype is dtypes.bool or dtype.itemsize > WIDEST_ITEM:
        return None
    boxes = see_in_boxes(store, flat.n, flat.m, flat.outer)
    return None if isinstance(boxes, str) else boxes


def tray_bytes(flat: FlatContraction) -> int:
    """Return the bytes of one tray of every store that goes in bulk."""
    return GROUP_ROWS * tray_columns(flat) * sum(_item_bytes(flat))


def tray_columns(flat: FlatContraction) -> int:
    """Return the columns of a tray: the widest elements fill swizzled rows."""
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
    """Two adjacent sums of a row: their accumulator, the first one's register, and its place."""

    accumulator: int
    register: int
    row: UOp
    column: UOp


class Trays:
    """The shared memory through which a tile's results go; made once, before any role."""

    def __init__(self, b: BlockBuilder, flat: FlatContraction, tiling: HopperTiling) -> None:
        self.columns = tray_columns(flat)
        self.depth = trays_of(tiling, self.columns)
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


class Storing:
    """Stores one tile of sums, by the threads of one warpgroup.

    `thread` is the running thread among its group's, `group` the group's number. The rows it holds
    begin at `first_row` of the block's tile.
    """

    def __init__(
        self,
        b: BlockBuilder,
        flat: FlatContraction,
        tiling: HopperTiling,
        layout: TileMmaAttrs,
        trays: Trays,
        who: tuple[UOp, UOp],
    ) -> None:
        self._b = b
        self._flat = flat
        self._tiling = tiling
        self._layout = layout
        self._trays = trays
        self._thread, self._group = who

    def begin(self, outer: Mapping[UOp, UOp], first: tuple[UOp, UOp], first_row: UOp) -> None:
        """Come to a tile: read what its columns need."""
        b, tiling = self._b, self._tiling
        self._outer = outer
        self._first = first
        self._first_row = first_row
        extents = (tiling.block_m, tiling.block_n)
        self._epilogue = BlockEpilogue(b, self._flat, outer, first, extents, PAIR)
        self._pairs = self._list_pairs()
        self._epilogue.preload(list(dict.fromkeys([each.column for each in self._pairs])))

    def _list_pairs(self) -> list[Pair]:
        """List a thread's pairs of sums, in the order of trays."""
        b, block = self._b, (GROUP_ROWS, self._tiling.block_n)
        row, column = accumulator_position(self._layout, *block, self._thread, 0)
        first_row, first_column = b.value(self._first_row + row), b.value(column)
        pairs = []
        for accumulator in range(self._tiling.rows // GROUP_ROWS):
            for register in range(0, GROUP_ROWS * self._tiling.block_n // GROUP_THREADS, PAIR):
                row, column = accumulator_position(self._layout, *block, 0, register)
                further = row + accumulator * GROUP_ROWS
                place = (first_row + further, first_column + column)
                pairs.append(Pair(accumulator, register, *place))
        return pairs

    def finish(self, sums: Sequence[UOp]) -> None:
        """Run the epilogue on the sums of each accumulator, and store."""
        if not self._trays.by_store:
            for each in self._pairs:
                self._store(each, sums, 0)
            return
        per_tray = GROUP_ROWS * self._trays.columns // GROUP_THREADS // PAIR
        for begin in range(0, len(self._pairs), per_tray):
            self._fill_tray(begin // per_tray, self._pairs[begin : begin + per_tray], sums)

    def _fill_tray(self, number: int, pairs: Sequence[Pair], sums: Sequence[UOp]) -> None:
        """Fill one tray of each store, and let the engine write it."""
        b, depth = self._b, self._trays.depth
        stage = b.value(self._group * depth + number % depth)
        is_first = self._thread < 1
        with b.branch(is_first):
            b.bulk_wait(depth - 1)
        b.barrier(TRAY_BARRIER, GROUP_THREADS, self._group)
        for each in pairs:
            self._store(each, sums, stage)
        b.proxy_fence()
        b.barrier(TRAY_BARRIER, GROUP_THREADS, self._group)
        with b.branch(is_first):
            self._write_tray(number, stage)

    def _write_tray(self, number: int, stage: UOp) -> None:
        b = self._b
        columns = self._trays.columns
        per_row = self._tiling.block_n // columns
        down, across = number // per_row * GROUP_ROWS, number % per_row * columns
        first_m, first_n = self._first
        row, column = first_m + self._first_row + down, first_n + across
        for tray in self._trays.by_store.values():
            around = [self._outer[each] for each in tray.boxes.axes[2:]]
            b.bulk_store(tray.tensor_map, (column, row, *around), tray.tile, stage)
        b.bulk_commit()

    def _store(self, pair: Pair, sums: Sequence[UOp], stage: UOp | int) -> None:
        """Store a pair by every store: to its tray, or to memory."""
        b = self._b
        held = sums[pair.accumulator]
        values = shuffle(held, held, (pair.register, pair.register + 1))
        for piece in self._epilogue.pieces(pair.row, pair.column, values):
            for number, store in enumerate(self._epilogue.stores):
                tray = self._trays.by_store.get(number)
                if tray is None:
                    piece.evaluator.store(store)
                    continue
                value = piece.evaluator.value(store.operands[2])
                lanes = self._epilogue.lanes
                value = splat(value, lanes) if value.dtype.lanes < lanes else value
                row, column = self._in_tray(pair, piece.begin)
                place: UOp = tiles.element_index(tray.tile, stage, row, column)
                b.store(tray.tile, place, value)

    def _in_tray(self, pair: Pair, begin: int) -> tuple[UOp, UOp]:
        """Return a pair's row and column in its tray."""
        block = (GROUP_ROWS, self._tiling.block_n)
        row, column = accumulator_position(self._layout, *block, self._thread, 0)
        down, across = accumulator_position(self._layout, *block, 0, pair.register)
        return row + down, column + (across % self._trays.columns + begin)

    def close(self) -> None:
        """Wait until the engine has read the last trays."""
        if self._trays.by_store:
            with self._b.branch(self._thread < 1):
                self._b.bulk_wait()
