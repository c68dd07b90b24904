"""Turns a contraction's operand, whatever computes it, into dense accumulator-dtype tiles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from tinytensor.codegen.builder import Builder, shuffle, splat
from tinytensor.codegen.plans.tiling_cpu import Block, open_rest, steps, vector_steps
from tinytensor.codegen.vectorize import Evaluator, guard_of, stride_of
from tinytensor.dtype import DType
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp, cast, const, walk
from tinytensor.records import dataclass

FOUR = 4


@dataclass(frozen=True, slots=True)
class Tile:
    """A matrix inside a buffer: element (i, j) lies at base + i * row_stride + j * column_stride.

    Units: elements.
    """

    buffer: UOp
    base: UOp
    row_stride: int
    column_stride: int

    def index(self, row: UOp | int, column: UOp | int) -> UOp:
        """Return where an element lies; fixed numbers end as one displacement."""
        index = self.base
        displacement = 0
        for position, stride in ((row, self.row_stride), (column, self.column_stride)):
            if isinstance(position, int):
                displacement += position * stride
            elif stride == 1:
                index = index + position
            else:
                index = index + position * stride
        return index + displacement if displacement else index

    def at(self, row: UOp | int, column: UOp | int) -> Tile:
        """Return the part of the matrix that begins at an element."""
        return replace(self, base=self.index(row, column))


def is_direct(operand: UOp, dtype: DType, ranges: Sequence[UOp]) -> bool:
    """Whether an operand is a plain load of a dtype, with fixed strides along the ranges."""
    if operand.op is not Op.LOAD or operand.dtype is not dtype:
        return False
    if guard_of(operand) is not None:
        return False
    index = operand.operands[1]
    return all(stride_of(index, each) is not None for each in ranges)


def direct_tile(b: Builder, operand: UOp, places: Mapping[UOp, UOp], row: UOp, column: UOp) -> Tile:
    """Return where a direct operand lies, from the places of its ranges; it is not copied."""
    param, index = operand.operands[:2]
    base = b.value(Evaluator(b, places).value(index))
    row_stride = stride_of(index, row)
    column_stride = stride_of(index, column)
    assert row_stride is not None, "a direct operand has strides"
    assert column_stride is not None, "a direct operand has strides"
    return Tile(b.param(param.attrs.number), base, row_stride, column_stride)


@dataclass(frozen=True, slots=True)
class Packing:
    """What to pack: an operand's expression, along the range that lies densely in the tile.

    `outer` places the ranges around the tile. `dense` runs within vectors of the tile, `across`
    from one vector to the next.
    """

    operand: UOp
    outer: Mapping[UOp, UOp]
    dense: UOp
    across: UOp
    dtype: DType
    lanes: int

    def vector(self, b: Builder, dense: UOp, across: UOp, along: UOp, valid: int) -> UOp:
        """Return `lanes` adjacent values along one of the two ranges, in the tile's dtype."""
        places = {**self.outer, self.dense: dense, self.across: across}
        evaluator = Evaluator(b, places, along, self.lanes, valid)
        value = cast(evaluator.value(self.operand), self.dtype)
        return value if value.dtype.lanes == self.lanes else splat(value, self.lanes)


def pack(b: Builder, packing: Packing, dense: Block, across: Block, tile: Tile) -> None:
    """Fill a tile, row by row along `across`; lanes past a ragged end hold any value.

    Reads along whichever range more of the operand's loads find adjacent in memory.
    """
    along_dense = adjacent_loads(packing.operand, packing.dense)
    along_across = adjacent_loads(packing.operand, packing.across)
    if along_across > along_dense:
        _pack_transposed(b, packing, dense, across, tile)
    else:
        _pack_along(b, packing, dense, across, tile)
    if dense.open_size is not None:
        _pack_rest(b, packing, dense, across, tile)


def adjacent_loads(operand: UOp, range_: UOp) -> int:
    """Count the loads that read adjacent elements along a range."""
    loads = [node for node in walk((operand,)) if node.op is Op.LOAD]
    return sum(stride_of(load.operands[1], range_) in (1, -1) for load in loads)


def _pack_along(b: Builder, packing: Packing, dense: Block, across: Block, tile: Tile) -> None:
    with b.loop(across.begin, across.begin + across.count(b)) as row:
        for column, valid in _dense_steps(b, packing, dense):
            value = packing.vector(b, column, row, packing.dense, valid)
            b.store(tile.buffer, tile.index(row - across.begin, column - dense.begin), value)


def _pack_transposed(b: Builder, packing: Packing, dense: Block, across: Block, tile: Tile) -> None:
    """Read square blocks along `across`, turn each in registers, and store it along `dense`."""
    lanes = packing.lanes
    unread = splat(const(packing.dtype, 0), lanes)
    for row, rows in steps(b, across, lanes):
        for column, columns in _dense_steps(b, packing, dense):
            block = [
                packing.vector(b, column + i, row, packing.across, rows) for i in range(columns)
            ]
            turned = transpose(block + [unread] * (lanes - columns))
            part = tile.at(row - across.begin, column - dense.begin)
            for i in range(rows):
                b.store(part.buffer, part.index(i, 0), turned[i])


def _dense_steps(b: Builder, packing: Packing, dense: Block) -> Iterator[tuple[UOp, int]]:
    """Emit the loops over the tile's vectors, but for what whole ones leave of an open block."""
    lanes = packing.lanes
    if dense.open_size is None:
        return steps(b, dense, lanes)
    return vector_steps(b, dense, lanes, lanes)


def _pack_rest(b: Builder, packing: Packing, dense: Block, across: Block, tile: Tile) -> None:
    """Fill the last vectors, which only some values of an open block reach, with them and zeros."""
    zero = const(packing.dtype, 0)
    nothing = splat(zero, packing.lanes)
    rows = b.loop(across.begin, across.begin + across.count(b))
    with open_rest(b, dense, packing.lanes) as rest, rows as row:
        first = row - across.begin
        place = b.value(tile.index(first, rest.begin - dense.begin))
        b.store(tile.buffer, place, nothing)
        with b.loop(0, rest.count) as i:
            places = {**packing.outer, packing.across: row}
            places[packing.dense] = rest.begin + i
            value = Evaluator(b, places).value(packing.operand)
            b.store(tile.buffer, place + i, cast(value, packing.dtype))


def transpose(block: Sequence[UOp]) -> list[UOp]:
    """Return the columns of a square block of vectors: log2(lanes) layers of two-operand shuffles.

    Layer `distance` swaps the off-diagonal quarters of each square of 2 * distance. Those of
    squares of four elements of four bytes are sorted by evens and odds instead, one after the
    other: that is one cheap instruction each (on Zen 4 three take as long as two others).
    """
    lanes = len(block)
    turned = list(block)
    sorts = lanes >= FOUR and block[0].dtype.scalar.itemsize == FOUR
    distance = 1
    while distance < lanes:
        exchange = _sort_fours if sorts and distance < FOUR else _swap_quarters
        for i in range(lanes):
            if not i & distance:
                pair = turned[i], turned[i + distance]
                turned[i], turned[i + distance] = exchange(*pair, distance)
        distance *= 2
    return turned


def _sort_fours(x: UOp, y: UOp, _distance: int) -> tuple[UOp, UOp]:
    """Return the even lanes of each four of x and of y side by side, and the odd ones."""
    lanes = x.dtype.lanes
    even: list[int] = []
    for first in range(0, lanes, FOUR):
        second = lanes + first
        even += [first, first + 2]
        even += [second, second + 2]
    odd = [place + 1 for place in even]
    return shuffle(x, y, even), shuffle(x, y, odd)


def _swap_quarters(upper: UOp, lower: UOp, distance: int) -> tuple[UOp, UOp]:
    lanes = upper.dtype.lanes
    low, high = [], []
    for i in range(lanes):
        is_left = not i & distance
        low.append(i if is_left else lanes + i - distance)
        high.append(i + distance if is_left else lanes + i)
    return shuffle(upper, lower, low), shuffle(upper, lower, high)
