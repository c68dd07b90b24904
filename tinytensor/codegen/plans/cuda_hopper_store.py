"""Turns a warpgroup's sums into the kernel's stores: panels of shared memory, written in bulk."""

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
    PANEL_COLUMNS,
    HopperTiling,
    panels_of,
)
from tinytensor.codegen.plans.flatten import FlatContraction
from tinytensor.dtype import dtypes
from tinytensor.ops import tile as tiles
from tinytensor.ops.attrs_blocks import TileMmaAttrs
from tinytensor.ops.fragments import accumulator_position
from tinytensor.ops.uop import UOp

PAIR = 2  # a thread holds sums in adjacent pairs of a row
WIDEST_ITEM = 2  # bytes of an element of which a panel's row is one swizzled row of 128
PANEL_BARRIER = 1  # the first of the named barriers, one for each warpgroup


def boxes_of_store(flat: FlatContraction, store: UOp) -> Boxes | None:
    """Return where a store goes in bulk; None if each thread stores its own elements."""
    dtype = store.operands[0].dtype
    if dtype is dtypes.bool or dtype.itemsize > WIDEST_ITEM:
        return None
    boxes = see_in_boxes(store, flat.n, flat.m, flat.outer)
    return None if isinstance(boxes, str) else boxes


def panel_bytes(flat: FlatContraction) -> int:
    """Return the bytes of one panel of every store that goes in bulk."""
    bulk = [each for each in flat.stores if boxes_of_store(flat, each) is not None]
    sizes = [each.operands[0].dtype.itemsize for each in bulk]
    return GROUP_ROWS * PANEL_COLUMNS * sum(sizes)


@dataclass(frozen=True, slots=True)
class Panel:
    """The panels of one store, those of each warpgroup after another's, and their map."""

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


class Panels:
    """The shared memory through which a tile's results go; made once, before any role."""

    def __init__(self, b: BlockBuilder, flat: FlatContraction, tiling: HopperTiling) -> None:
        self.depth = panels_of(tiling)
        self.by_store: dict[int, Panel] = {}
        if tiling.block_n % PANEL_COLUMNS:
            return
        for number, store in enumerate(flat.stores):
            boxes = boxes_of_store(flat, store)
            if boxes is None:
                continue
            stages = tiling.consumers * self.depth
            tile = b.tile(store.operands[0].dtype, GROUP_ROWS, PANEL_COLUMNS, stages)
            self.by_store[number] = Panel(tile, boxes, boxes.tensor_map(b, tile))


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
        panels: Panels,
        who: tuple[UOp, UOp],
    ) -> None:
        self._b = b
        self._flat = flat
        self._tiling = tiling
        self._layout = layout
        self._panels = panels
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
        """List a thread's pairs of sums, in the order of panels."""
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
        if not self._panels.by_store:
            for each in self._pairs:
                self._store(each, sums, 0)
            return
        per_panel = GROUP_ROWS * PANEL_COLUMNS // GROUP_THREADS // PAIR
        for begin in range(0, len(self._pairs), per_panel):
            self._fill_panel(begin // per_panel, self._pairs[begin : begin + per_panel], sums)

    def _fill_panel(self, number: int, pairs: Sequence[Pair], sums: Sequence[UOp]) -> None:
        """Fill one panel of each store, and let the engine write it."""
        b, depth = self._b, self._panels.depth
        stage = b.value(self._group * depth + number % depth)
        is_first = self._thread < 1
        with b.branch(is_first):
            b.bulk_wait(depth - 1)
        b.barrier(PANEL_BARRIER, GROUP_THREADS, self._group)
        for each in pairs:
            self._store(each, sums, stage)
        b.proxy_fence()
        b.barrier(PANEL_BARRIER, GROUP_THREADS, self._group)
        with b.branch(is_first):
            self._write_panel(number, stage)

    def _write_panel(self, number: int, stage: UOp) -> None:
        b = self._b
        per_row = self._tiling.block_n // PANEL_COLUMNS
        down, across = number // per_row * GROUP_ROWS, number % per_row * PANEL_COLUMNS
        first_m, first_n = self._first
        row, column = first_m + self._first_row + down, first_n + across
        for panel in self._panels.by_store.values():
            around = [self._outer[each] for each in panel.boxes.axes[2:]]
            b.bulk_store(panel.tensor_map, (column, row, *around), panel.tile, stage)
        b.bulk_commit()

    def _store(self, pair: Pair, sums: Sequence[UOp], stage: UOp | int) -> None:
        """Store a pair by every store: to its panel, or to memory."""
        b = self._b
        held = sums[pair.accumulator]
        values = shuffle(held, held, (pair.register, pair.register + 1))
        for piece in self._epilogue.pieces(pair.row, pair.column, values):
            for number, store in enumerate(self._epilogue.stores):
                panel = self._panels.by_store.get(number)
                if panel is None:
                    piece.evaluator.store(store)
                    continue
                value = piece.evaluator.value(store.operands[2])
                lanes = self._epilogue.lanes
                value = splat(value, lanes) if value.dtype.lanes < lanes else value
                row, column = self._in_panel(pair, piece.begin)
                place: UOp = tiles.element_index(panel.tile, stage, row, column)
                b.store(panel.tile, place, value)

    def _in_panel(self, pair: Pair, begin: int) -> tuple[UOp, UOp]:
        """Return a pair's row and column in its panel."""
        block = (GROUP_ROWS, self._tiling.block_n)
        row, column = accumulator_position(self._layout, *block, self._thread, 0)
        down, across = accumulator_position(self._layout, *block, 0, pair.register)
        return row + down, column + (across % PANEL_COLUMNS + begin)

    def close(self) -> None:
        """Wait until the engine has read the last panels."""
        if self._panels.by_store:
            with self._b.branch(self._thread < 1):
                self._b.bulk_wait()
