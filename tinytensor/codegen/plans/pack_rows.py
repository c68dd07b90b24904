"""Turns a factor that cannot be copied to tiles as it lies into rows that can: a launch before."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

from tinytensor.codegen.block_builder import BlockBuilder
from tinytensor.codegen.builder import Builder, lane, stack
from tinytensor.codegen.plans.alignment import ACCESS_BYTES
from tinytensor.codegen.plans.block_operand import Operand
from tinytensor.codegen.plans.block_raster import divided
from tinytensor.codegen.plans.inside import INSIDE, zero_outside
from tinytensor.codegen.vectorize import Evaluator
from tinytensor.ops.kernel import Kernel
from tinytensor.ops.linear import Linear
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp, index_const, walk

THREADS = 256
LINE_BYTES = 128


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
    """Emit the launch that computes a factor's elements, 16 bytes a thread."""
    width = rows.access
    pieces = rows.elements // width
    grid = (math.ceil(pieces / THREADS), 1, 1)
    b = BlockBuilder(kernel.name, kernel.params, kernel.index_dtype, grid, THREADS)
    piece = b.value(b.block(0) * THREADS + b.thread)
    with b.branch(piece < pieces):
        number, within = divided(b, piece, rows.pitch // width)
        places: dict[UOp, UOp] = {}
        for each in reversed(rows.outer):
            number, places[each] = divided(b, number, each.extent)
        values = _values(b, rows.operand, places, within * width, width)
        b.store(scratch, piece * width, stack(values))
    return b.finish()


def _values(
    b: Builder, operand: Operand, places: dict[UOp, UOp], first: UOp, width: int
) -> list[UOp]:
    """Return `width` elements of a row from `first` on, 0 beyond its end."""
    value = zero_outside(operand.value)
    values: list[UOp] = []
    for begin in range(0, width, operand.access):
        here = first + begin if begin else first
        inside = here < operand.inner.extent
        ranges = {**places, operand.inner: here}
        evaluator = Evaluator(b, ranges, operand.inner, operand.access, known={INSIDE: inside})
        piece = evaluator.value(value)
        lanes = range(operand.access)
        values += [lane(piece, i) if piece.dtype.lanes > 1 else piece for i in lanes]
    return values
