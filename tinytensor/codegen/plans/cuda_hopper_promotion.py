"""Turns the sums of a block of k into what is added to those of a tile: scaled by the graph."""

from __future__ import annotations

import itertools

from tinytensor.codegen.block_builder import BlockBuilder
from tinytensor.codegen.builder import fma, lane, shuffle, splat, stack
from tinytensor.codegen.plans.amounts import is_whole
from tinytensor.codegen.plans.block_raster import BlockPlace
from tinytensor.codegen.plans.cuda_hopper_tiling import GROUP_ROWS, GROUP_THREADS, HopperTiling
from tinytensor.codegen.plans.flatten import FlatContraction, Promotion
from tinytensor.codegen.plans.inside import guard_access
from tinytensor.codegen.vectorize import Evaluator
from tinytensor.dtype import dtypes
from tinytensor.ops.attrs_blocks import TileMmaAttrs
from tinytensor.ops.fragments import accumulator_position, mma_shape
from tinytensor.ops.op import Op
from tinytensor.ops.simplify_index import simplify_index
from tinytensor.ops.uop import (
    UOp,
    exact_extent,
    index_const,
    make_range,
    substitute,
    walk,
)

PAIR = 2  # a thread holds sums in adjacent pairs of a row
CORE_COLUMNS = 8  # of which the threads of a row hold a pair each


class Columns:
    """What is added at a warpgroup's columns, in eights: of `tile` the column `within` them.

    So a scale that is one for all columns of a tile is one expression, and is read once.
    """

    def __init__(self, flat: FlatContraction, promotion: Promotion, tiling: HopperTiling) -> None:
        self._flat, self._tiling = flat, tiling
        numbers = [node.attrs.number for node in walk(flat.roots) if node.op is Op.RANGE]
        tiles = -(-flat.n.extent // tiling.columns)
        self.tile = make_range(max(numbers) + 1, tiles)
        self.within = make_range(max(numbers) + 2, CORE_COLUMNS)
        self._of_tile: set[UOp] = set()
        self.values: dict[int, UOp] = {}
        for column in range(0, tiling.columns, CORE_COLUMNS):
            place = self.tile * tiling.columns + column + self.within
            value = substitute(promotion.value, {flat.n: place})
            value = simplify_index(value)
            if column == 0:
                self._of_tile = {each for each in walk((value,)) if not self.varies(each)}
            self.values[column] = self._guarded(value, place)

    def varies(self, node: UOp) -> bool:
        """Whether a node differs among eight columns."""
        return self.within in walk((node,))

    def scales(self, value: UOp) -> list[UOp]:
        """Return the LOADs of which a row, or a column, has one."""
        loads = [node for node in walk((value,)) if node.op is Op.LOAD]
        of_rows = [each for each in loads if self._flat.m in walk((each,))]
        return [each for each in loads if each not in of_rows or not self.varies(each)]

    def _guarded(self, value: UOp, place: UOp) -> UOp:
        """Let each LOAD claim that it lies inside, of which a ragged tile is not sure."""
        flat, tiling = self._flat, self._tiling
        checks_m = not is_whole(flat.m, tiling.block_m)
        checks_n = not is_whole(flat.n, tiling.block_n)
        guarded: dict[UOp, UOp] = {}
        for node in walk((value,)):
            rebuilt = node.replace(tuple([guarded[each] for each in node.operands]))
            if node.op is Op.LOAD:
                if checks_m and flat.m in walk((node,)):
                    rebuilt = guard_access(rebuilt, flat.m < exact_extent(flat.m))
                if checks_n and node not in self._of_tile:
                    first = {} if self.varies(node) else {self.within: index_const(0)}
                    claim = substitute(place, first) < exact_extent(flat.n)
                    rebuilt = guard_access(rebuilt, claim)
            guarded[node] = rebuilt
        return guarded[value]


class Promoting:
    """Adds up a thread's sums of blocks of k, scaled or as they are.

    Registers hold the scales of two blocks: those at hand, and the next ones, which L2 sends late.
    """

    def __init__(
        self,
        b: BlockBuilder,
        flat: FlatContraction,
        tiling: HopperTiling,
        layout: TileMmaAttrs,
        thread: UOp,
    ) -> None:
        self._b = b
        self._flat = flat
        self._promotion = flat.promotion
        self._layout = layout
        width = mma_shape(layout.instruction).n
        self._block = (GROUP_ROWS, width)
        self._accumulators = tiling.accumulators(width)
        self._registers = GROUP_ROWS * width // GROUP_THREADS
        self._most_held = tiling.most_scales
        self._ahead: list[UOp] = []
        self.dtype = flat.total.dtype
        if self._promotion is not None:
            self.dtype = self._promotion.partial.dtype
            self._columns = Columns(flat, self._promotion, tiling)
            row, column = accumulator_position(layout, *self._block, thread, 0)
            self._row, self._column = b.value(row), b.value(column)

    def begin(self, place: BlockPlace, first_row: UOp, number: UOp) -> None:
        """Come to a warpgroup's tile, whose rows begin there, and read its first scales."""
        if self._promotion is None:
            return
        b, columns = self._b, self._columns
        self._first_row = b.value(first_row + self._row)
        self._places = {**place.outer, columns.tile: place.tile_n, columns.within: self._column}
        scales = self._read(number)
        self._ahead = []
        if len(scales) > 1:
            self._ahead = [b.register(dtypes.float32.vector(len(scales)), stack(scales))]

    def turn(self, number: UOp) -> list[UOp]:
        """Take the scales that were read last for the sums added now, and read those of a block.

        Returns what holds them: a wait names it, or the compiler reads them where they are needed.
        """
        for each in self._ahead:
            self._held = self._b.read(each)
            self._b.write(each, stack(self._read(number)))
        return self._ahead

    def _read(self, number: UOp) -> list[UOp]:
        """Read the scales of a block, in order: only so are their addresses one and constants."""
        values = [self._b.value(each) for each in self._scales(self._b.value(number))]
        return [each for value in values for each in _lanes(value)]

    def _scales(self, number: UOp) -> list[UOp]:
        """Return the scales of a block that are held: floats, and not too many."""
        found: dict[UOp, None] = {}
        for accumulator in range(len(self._accumulators)):
            for register in range(0, self._registers, PAIR):
                value, places = self._at(number, accumulator, register)
                evaluator = Evaluator(self._b, places, self._columns.within, PAIR)
                scales = self._columns.scales(value)
                scales = [each for each in scales if each.dtype is dtypes.float32]
                found.update(dict.fromkeys([evaluator.value(each) for each in scales]))
        lanes = itertools.accumulate([each.dtype.lanes for each in found])
        return [each for each, count in zip(found, lanes, strict=True) if count <= self._most_held]

    def _at(self, number: UOp, accumulator: int, register: int) -> tuple[UOp, dict[UOp, UOp]]:
        """Return the expression of a pair of sums, and the values of its ranges."""
        assert self._promotion is not None, "only work on sums differs by place"
        row, column = accumulator_position(self._layout, *self._block, 0, register)
        below, beside = self._accumulators[accumulator]
        places = dict(self._places)
        places[self._flat.m] = self._first_row + (below + row)
        places[self._promotion.block] = number
        return self._columns.values[beside + column], places

    def added(self, kept: UOp, total: UOp, number: UOp, accumulator: int) -> UOp:
        """Return the sums of an accumulator with those of a block, by the scales taken last."""
        if self._promotion is None:
            return kept + total
        held = self._read_held(number)
        added = []
        for register in range(0, self._registers, PAIR):
            value, places = self._at(number, accumulator, register)
            before, sums = [shuffle(x, x, (register, register + 1)) for x in (kept, total)]
            known = {self._promotion.partial: sums}
            evaluator = Evaluator(self._b, places, self._columns.within, PAIR, known=known)
            added.append(substitute(_add(evaluator, value, before), held))
        return stack([each for pair in added for each in _lanes(pair)])

    def _read_held(self, number: UOp) -> dict[UOp, UOp]:
        """Return what the scales of a block are, by what reads them."""
        scales = self._scales(number) if self._ahead else []
        begin, held = 0, {}
        for each in scales:
            held[each] = _part(self._held, begin, each.dtype.lanes)
            begin += each.dtype.lanes
        return held


def _add(evaluator: Evaluator, value: UOp, before: UOp) -> UOp:
    """Return a pair of sums and a value; a product is added without a rounding of its own."""
    if value.op is not Op.MUL:
        return before + _wide(evaluator.value(value))
    x, y = [_wide(evaluator.value(each)) for each in value.operands]
    return fma(x, y, before)


def _lanes(x: UOp) -> list[UOp]:
    return [x] if x.dtype.lanes == 1 else [lane(x, each) for each in range(x.dtype.lanes)]


def _part(x: UOp, begin: int, lanes: int) -> UOp:
    return lane(x, begin) if lanes == 1 else shuffle(x, x, range(begin, begin + lanes))


def _wide(x: UOp) -> UOp:
    return x if x.dtype.lanes == PAIR else splat(x, PAIR)
