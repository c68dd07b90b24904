"""Turns a factor that cannot be copied to tiles as it lies into rows that can: a launch before."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

from tinytensor.codegen.builder import Builder, lane, stack
from tinytensor.codegen.plans.alignment import ACCESS_BYTES, common_access
from tinytensor.codegen.plans.amounts import amount, open_builder, split_count
from tinytensor.codegen.plans.block_operand import Operand
from tinytensor.codegen.plans.block_raster import divided
from tinytensor.codegen.plans.inside import INSIDE, zero_outside
from tinytensor.codegen.vectorize import Evaluator, stride_of
from tinytensor.ops.kernel import Kernel
from tinytensor.ops.linear import Linear
from tinytensor.ops.op import Op
from tinytensor.ops.simplify_index import simplify_index
from tinytensor.ops.uop import UOp, exact_extent, index_const, walk
from tinytensor.records import dataclass

THREADS = 256
LINE_BYTES = 128
MOST_ROWS = 4  # of a strip: its accesses are in flight together


@dataclass(frozen=True, slots=True)
class Rows:
    """A factor as it will lie in scratch memory: rows along its inner range, for each `outer`.

    A row begins at a multiple of a line of L2 and is padded with zeros up to a whole access. There
    is room for the greatest extents. Units: elements.
    """

    operand: Operand
    outer: tuple[UOp, ...]
    pitch: int

    @property
    def access(self) -> int:
        """How many elements are read or written at once."""
        return ACCESS_BYTES // self.operand.value.dtype.itemsize

    @property
    def elements(self) -> int:
        """How many elements there may be, with the padding."""
        return math.prod([each.extent for each in self.outer]) * self.pitch

    @property
    def pieces(self) -> UOp:
        """How many accesses a row takes, as an index expression."""
        return split_count(exact_extent(self.operand.inner), self.access)

    def start_of(self, places: Mapping[UOp, UOp], zero: UOp) -> UOp:
        """Return where a row begins."""
        number = zero
        for each in self.outer:
            number = number * each.extent + places[each]
        return number * self.pitch


def rows_of(operand: Operand, batch: Sequence[UOp]) -> Rows:
    """Lay a factor out in rows; `batch` are the ranges beside its own two that it may depend on."""
    nodes = set(walk((operand.value,)))
    outer = [each for each in batch if each in nodes]
    line = LINE_BYTES // operand.value.dtype.itemsize
    pitch = math.ceil(operand.inner.extent / line) * line
    return Rows(operand, (*outer, operand.outer), pitch)


def turned(operand: Operand) -> Operand:
    """Return a factor whose elements are taken along k, one by one unless they lie so."""
    if operand.inner is operand.k:
        return operand
    return dataclasses.replace(
        operand, inner=operand.k, inner_extent=exact_extent(operand.k), access=1, is_direct=False
    )


def read_rows(rows: Rows, scratch: UOp) -> Operand:
    """Return the factor as it is read from scratch memory."""
    operand = rows.operand
    index = rows.start_of({each: each for each in rows.outer}, index_const(0)) + operand.inner
    value = UOp(Op.LOAD, scratch.dtype, (scratch, index))
    whole = simplify_index(rows.pieces * rows.access)
    return dataclasses.replace(
        operand, value=value, inner_extent=whole, access=rows.access, is_direct=True
    )


def write_rows(rows: Rows, scratch: UOp, kernel: Kernel) -> Linear:
    """Emit the launch that computes a factor's elements, 16 bytes of one row or of a few a thread.

    Of a factor that is adjacent along an outer range, each thread reads some of its values at once
    and writes them to a row each: so every sector is read and written in whole.
    """
    width, pieces, strip = rows.access, rows.pieces, _strip_of(rows)
    taken = {each: strip.rows if each is strip.across else 1 for each in rows.outer}
    for each in rows.outer:
        pieces = pieces * split_count(exact_extent(each), taken[each])
    blocks = split_count(pieces, THREADS)
    b = open_builder(kernel, blocks, THREADS)
    piece = b.value(b.block(0) * THREADS + b.thread)
    with b.branch(piece < amount(b, simplify_index(pieces))):
        number, within = divided(b, piece, amount(b, rows.pieces))
        places: dict[UOp, UOp] = {}
        for each in reversed(rows.outer):
            count = split_count(exact_extent(each), taken[each])
            number, place = divided(b, number, amount(b, count))
            places[each] = b.value(place * taken[each]) if taken[each] > 1 else place
        first = within * width
        values = _values(b, rows.operand, places, first, width, strip)
        for row in range(strip.rows):
            here = {each: at + row if each is strip.across else at for each, at in places.items()}
            held = [lane(each, row) if each.dtype.lanes > 1 else each for each in values]
            b.store(scratch, rows.start_of(here, b.index(0)) + first, stack(held))
    return b.finish()


@dataclass(frozen=True, slots=True)
class _Strip:
    """What a thread takes: pieces of so many rows, neighbors along the range `across`."""

    across: UOp | None
    rows: int


def _strip_of(rows: Rows) -> _Strip:
    value = rows.operand.value
    loads = [each for each in walk((value,)) if each.op is Op.LOAD]
    for each in rows.outer if rows.operand.access == 1 else ():
        if loads and all(stride_of(load.operands[1], each) == 1 for load in loads):
            return _Strip(each, common_access((value,), each, {each: MOST_ROWS}, MOST_ROWS))
    return _Strip(None, 1)


def _values(
    b: Builder, operand: Operand, places: dict[UOp, UOp], first: UOp, width: int, strip: _Strip
) -> list[UOp]:
    """Return `width` elements of a row from `first` on, 0 beyond its end; of a strip, vectors."""
    value = zero_outside(operand.value)
    values: list[UOp] = []
    is_strip = strip.rows > 1
    lanes = (strip.across, strip.rows) if is_strip else (operand.inner, operand.access)
    for begin in range(0, width, operand.access):
        here = first + begin if begin else first
        inside = here < amount(b, exact_extent(operand.inner))
        ranges = {**places, operand.inner: here}
        evaluator = Evaluator(b, ranges, *lanes, known={INSIDE: inside})
        piece = evaluator.value(value)
        if is_strip or piece.dtype.lanes == 1:
            values += [piece] * operand.access
        else:
            values += [lane(piece, i) for i in range(operand.access)]
    return values
