"""Turns a factor that cannot be copied to tiles as it lies into rows that can: a launch before."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

from tinytensor.codegen.block_builder import BlockBuilder
from tinytensor.codegen.builder import Builder, lane, stack
from tinytensor.codegen.plans.alignment import ACCESS_BYTES, common_access
from tinytensor.codegen.plans.block_operand import Operand
from tinytensor.codegen.plans.block_raster import divided
from tinytensor.codegen.plans.inside import INSIDE, zero_outside
from tinytensor.codegen.vectorize import Evaluator, stride_of
from tinytensor.ops.kernel import Kernel
from tinytensor.ops.linear import Linear
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp, index_const, walk

THREADS = 256
LINE_BYTES = 128
MOST_ROWS = 4  # of a strip: its accesses are in flight together


@dataclass(frozen=True, slots=True)
class Rows:
    """A factor as it will lie in scratch memory: rows along its inner range, for each `outer`.

    A row begins at a multiple of a line of L2 and is padded with zeros. Units: elements.
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
        """How many elements there are, with the padding."""
        return math.prod([each.extent for each in self.outer]) * self.pitch


def rows_of(operand: Operand, batch: Sequence[UOp]) -> Rows:
    """Lay a factor out in rows; `batch` are the ranges beside its own two that it may depend on."""
    nodes = set(walk((operand.value,)))
    outer = [each for each in batch if each in nodes]
    line = LINE_BYTES // operand.value.dtype.itemsize
    pitch = math.ceil(operand.inner.extent / line) * line
    return Rows(operand, (*outer, operand.outer), pitch)


def turned(operand: Operand) -> Operand:
    """Return a factor whose elements are taken one by one along k."""
    return dataclasses.replace(
        operand, inner=operand.k, inner_extent=operand.k.extent, access=1, is_direct=False
    )


def read_rows(rows: Rows, scratch: UOp) -> Operand:
    """Return the factor as it is read from scratch memory."""
    operand = rows.operand
    number = index_const(0)
    for each in rows.outer:
        number = number * each.extent + each
    index = number * rows.pitch + operand.inner
    value = UOp(Op.LOAD, scratch.dtype, (scratch, index))
    return dataclasses.replace(
        operand, value=value, inner_extent=rows.pitch, access=rows.access, is_direct=True
    )


def write_rows(rows: Rows, scratch: UOp, kernel: Kernel) -> Linear:
    """Emit the launch that computes a factor's elements, 16 bytes of one row or of a few a thread.

    Of a factor that is adjacent along an outer range, each thread reads some of its values at once
    and writes them to a row each: so every sector is read and written in whole.
    """
    width = rows.access
    strip = _strip_of(rows)
    pieces = rows.elements // (width * strip.rows)
    grid = (math.ceil(pieces / THREADS), 1, 1)
    b = BlockBuilder(kernel.name, kernel.params, kernel.index_dtype, grid, THREADS)
    piece = b.value(b.block(0) * THREADS + b.thread)
    with b.branch(piece < pieces):
        number, within = divided(b, piece, rows.pitch // width)
        places: dict[UOp, UOp] = {}
        start, stride, apart = within * width, rows.pitch, 0
        for each in reversed(rows.outer):
            taken = strip.rows if each is strip.across else 1
            number, place = divided(b, number, each.extent // taken)
            places[each] = b.value(place * taken) if taken > 1 else place
            start = start + places[each] * stride
            apart = stride if each is strip.across else apart
            stride *= each.extent
        values = _values(b, rows.operand, places, within * width, width, strip)
        for row in range(strip.rows):
            held = [lane(each, row) if each.dtype.lanes > 1 else each for each in values]
            b.store(scratch, start + row * apart if row else start, stack(held))
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
        inside = here < operand.inner.extent
        ranges = {**places, operand.inner: here}
        evaluator = Evaluator(b, ranges, *lanes, known={INSIDE: inside})
        piece = evaluator.value(value)
        if is_strip or piece.dtype.lanes == 1:
            values += [piece] * operand.access
        else:
            values += [lane(piece, i) for i in range(operand.access)]
    return values
