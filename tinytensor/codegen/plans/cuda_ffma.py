"""Turns a contraction of any numbers into multiply-adds of threads over tiles in shared memory."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from tinytensor.codegen.builder import fma, lane, stack
from tinytensor.codegen.plans.block_epilogue import BlockEpilogue
from tinytensor.codegen.plans.block_operand import (
    COPY_BYTES,
    CopiedSource,
    GatheredSource,
    Operand,
    Source,
    Window,
)
from tinytensor.codegen.plans.block_product import (
    ProductFacts,
    open_block,
    read_facts,
    why_no_product,
)
from tinytensor.codegen.plans.block_raster import divided
from tinytensor.codegen.plans.block_ring import Copy, Turn, run_ring
from tinytensor.codegen.plans.tiling_cuda import (
    MOST_RESIDENT,
    WARP_COLUMNS,
    WARP_ROWS,
    WARP_THREADS,
    FmaTiling,
    describe_tiling,
    more_fma_tilings,
    rank_fma_tilings,
    resident_blocks,
)
from tinytensor.dtype import dtypes
from tinytensor.ops.kernel import Kernel
from tinytensor.ops.linear import Linear
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp
from tinytensor.records import dataclass
from tinytensor.target import Target

MOST_LANES = 4  # adjacent elements of a row or column that one thread sums


def facts(kernel: Kernel, target: Target) -> ProductFacts | str | None:
    """Return what the plan needs, or why it does not take it; None for a kernel of another kind."""
    contraction = kernel.contraction
    if contraction is None:
        return None
    dtype = contraction.node.dtype
    if dtype.is_narrow or dtype is dtypes.bool:
        return f"the sum is kept in {dtype.name}; threads sum float32, float64 and integers."
    return why_no_product(kernel, contraction) or read_facts(kernel, dtype, is_open=True)


def candidates(facts: ProductFacts, target: Target) -> list[FmaTiling]:
    """Return the tilings that were measured, cheapest first, and then all others."""
    listed = rank(facts, target)
    known = [replace(each, name="") for each in listed]
    others = more_fma_tilings(facts.work, facts.through_registers, target)
    return [*listed, *[each for each in others if replace(each, name="") not in known]]


def rank(facts: ProductFacts, target: Target) -> list[FmaTiling]:
    """Return the tilings to choose from without a measurement, cheapest first."""
    return rank_fma_tilings(facts.work, facts.through_registers, target)


def describe(facts: ProductFacts, target: Target, tiling: FmaTiling | None = None) -> str:
    """Say how the kernel is cut into tiles."""
    tiling = tiling or rank(facts, target)[0]
    return f"{describe_tiling(tiling)}, {tiling.rows} x {tiling.columns} sums a thread."


def lower(
    facts: ProductFacts, target: Target, tiling: FmaTiling | None = None
) -> tuple[Linear, ...]:
    """Emit one launch: each block brings tiles along k to shared memory, each thread sums its own.

    Takes:  a kernel with one contraction; operands and stores are any elementwise expressions.
    Gives:  LINEAR form of a thread block; in shared memory factors lie as [stage][k][m or n].
    """
    tiling = tiling or rank(facts, target)[0]
    # More are not asked for, nor for threads that compute factors: they would spill registers.
    fitting = resident_blocks(tiling, facts.work, target)
    resident = 1 if facts.through_registers else min(fitting, MOST_RESIDENT)
    return (_Lowering(facts, tiling, resident, target).emit(),)


@dataclass(frozen=True, slots=True)
class _Side:
    """A factor: its ring in shared memory as [stage][k][free], and what a thread takes of it.

    Units: elements; `pitch` from one k to the next, `stage_elements` from one stage to the next. A
    thread takes vectors of adjacent rows (or columns), `step` apart from `first` on. Registers hold
    the `place` of the first one in the present stage, and the vectors of two values of k.
    """

    region: UOp
    pitch: int
    stage_elements: int
    source: Source
    first: UOp
    step: int
    place: UOp
    held: tuple[list[UOp], list[UOp]]

    def at(self, vector: int) -> UOp:
        """Return where a vector begins in the block's tile."""
        return self.first + vector * self.step if vector else self.first


class _Lowering:
    """Emits the program of one block."""

    def __init__(
        self, facts: ProductFacts, tiling: FmaTiling, resident: int, target: Target
    ) -> None:
        self._tiling = tiling
        self._dtype = facts.stored
        self._lanes = min(MOST_LANES, 16 // self._dtype.itemsize)
        self._block = open_block(facts, tiling, self._lanes, self._lanes, target)
        self._block.b.resident = resident
        self._values = tiling.block_k // tiling.slices  # of k, that a thread sums in a stage
        b = self._block.b
        self._warp, self._within = divided(b, b.thread, WARP_THREADS)
        self._slice = b.index(0)
        if tiling.slices > 1:
            warps = tiling.threads // (WARP_THREADS * tiling.slices)
            self._slice, self._warp = divided(b, self._warp, warps)
        first_row, first_column = self._first()
        self._rows = self._side(facts.a, self._block.window_a, first_row, tiling.rows)
        self._columns = self._side(facts.b, self._block.window_b, first_column, tiling.columns)
        self._sides = (self._rows, self._columns)

    def emit(self) -> Linear:
        b, block, tiling = self._block.b, self._block, self._tiling
        columns = [self._columns.at(vector) for vector in range(tiling.columns // self._lanes)]
        block.epilogue.preload(columns)
        sums = [
            [b.register(self._dtype, 0) for _ in range(tiling.columns)] for _ in range(tiling.rows)
        ]

        def multiply(stage: UOp, copy: Copy, turn: Turn) -> None:
            self._multiply(copy, turn, sums)

        sources = [each.source for each in self._sides]
        run_ring(b, block.blocks_k, tiling.stages, sources, self._enter, multiply)
        self._part_from_stores(sums)
        with self._folded(sums):
            self._store(columns, sums)
            with block.mirrored() as mirror:
                if mirror is not None:
                    self._store_mirrored(mirror, sums)
        return b.finish()

    @contextmanager
    def _folded(self, sums: list[list[UOp]]) -> Iterator[None]:
        """Add the sums of all slices, in their order, to the first one's, which alone goes on."""
        b, tiling, lanes = self._block.b, self._tiling, self._lanes
        if tiling.slices == 1:
            yield
            return
        parts = list(itertools.product(sums, range(0, tiling.columns, lanes)))
        vectors = [row_sums[first : first + lanes] for row_sums, first in parts]
        threads, thread = tiling.threads // tiling.slices, self._warp * WARP_THREADS + self._within
        region = b.shared(self._dtype, (tiling.slices - 1) * len(vectors) * threads * lanes)

        def place(number: UOp, vector: int) -> UOp:
            return ((number * len(vectors) + vector) * threads + thread) * lanes

        with b.branch(b.index(0) < self._slice):
            for vector, held in enumerate(vectors):
                values = stack([b.read(each) for each in held])
                b.store(region, place(self._slice - 1, vector), values)
        b.barrier()
        others = range(tiling.slices - 1)
        with b.branch(self._slice < 1):
            for number, (vector, held) in itertools.product(others, enumerate(vectors)):
                values = b.load(region, place(b.index(number), vector), lanes)
                for i, each in enumerate(held):
                    b.write(each, b.read(each) + lane(values, i))
            yield

    def _store(self, columns: list[UOp], sums: list[list[UOp]]) -> None:
        """Store what the columns of a thread hold of each of its rows."""
        b, lanes = self._block.b, self._lanes
        for number, row_sums in enumerate(sums):
            row = self._rows.at(number // lanes) + number % lanes
            for vector, column in enumerate(columns):
                held = row_sums[vector * lanes : (vector + 1) * lanes]
                self._block.epilogue.store(row, column, stack([b.read(each) for each in held]))

    def _part_from_stores(self, sums: list[list[UOp]]) -> None:
        """Let the registers of sums be others than those that are stored.

        A store of four takes four adjacent registers. ptxas keeps sums in such from the start, and
        there they lie in the bank of registers that their factors are in: 243 of 1024 multiply-adds
        wait for it, else 150 (8 x 16 sums, NVRTC 13.0). An exchange of nothing is all that it does
        not see through.
        """
        b = self._block.b
        if self._block.epilogue.lanes > 1:
            for each in itertools.chain(*sums):
                b.write(each, b.exchange(b.read(each), 0))

    def _store_mirrored(self, mirror: BlockEpilogue, sums: list[list[UOp]]) -> None:
        """Store what the rows of a thread hold of each of its columns."""
        b, lanes = self._block.b, self._lanes
        for number in range(self._tiling.columns):
            row = self._columns.at(number // lanes) + number % lanes
            for vector in range(self._tiling.rows // lanes):
                held = sums[vector * lanes : (vector + 1) * lanes]
                values = stack([b.read(each[number]) for each in held])
                mirror.store(row, self._rows.at(vector), values)

    def _side(self, operand: Operand, window: Window, first: UOp, count: int) -> _Side:
        """Give a factor its ring, and a thread so many of its rows, spread over the whole tile."""
        b, itemsize, lanes = self._block.b, self._dtype.itemsize, self._lanes
        pitch = window.extent_free + 16 // itemsize
        stage_elements = window.extent_k * pitch
        region = b.shared(self._dtype, self._tiling.stages * stage_elements)

        def address(stage: UOp, free: UOp, k: UOp) -> UOp:
            (k, k_ahead), (free, free_ahead) = _apart(k), _apart(free)
            start = b.value(stage * stage_elements + k * pitch + free)
            return start + (k_ahead * pitch + free_ahead)

        transposes = operand.inner is operand.k
        is_copied = operand.is_direct and itemsize in COPY_BYTES
        kind = CopiedSource if is_copied else GatheredSource
        source = kind(b, operand, window, region, address, transposes)
        dtype, vectors = self._dtype.vector(lanes), range(count // lanes)
        even, odd = [[b.register(dtype, 0) for _ in vectors] for _ in range(2)]
        step, place = window.extent_free // count * lanes, b.register(b.index_dtype, 0)
        return _Side(region, pitch, stage_elements, source, first, step, place, (even, odd))

    def _first(self) -> tuple[UOp, UOp]:
        """Return the first row and the first column of a thread."""
        b, tiling, lanes = self._block.b, self._tiling, self._lanes
        warps_n = tiling.block_n // (tiling.columns * WARP_COLUMNS)
        warp_row, warp_column = divided(b, self._warp, warps_n)
        row, column = divided(b, self._within, WARP_COLUMNS)
        first_row = b.value((warp_row * WARP_ROWS + row) * lanes)
        return first_row, b.value((warp_column * WARP_COLUMNS + column) * lanes)

    def _multiply(self, copy: Copy, turn: Turn, sums: list[list[UOp]]) -> None:
        """Add the products of one stage to the registers.

        What one value of k takes is read while the one before is multiplied: the first of the next
        stage too, so that no thread waits for shared memory after a barrier. Copies are begun a few
        at a time: reads would wait behind all of them.
        """
        last = self._values - 1
        parts = min(self._tiling.copy_parts, last)
        for k in range(last):
            self._read(k + 1)
            if k < parts:
                copy(k, parts)
            self._add(k, sums)
        self._enter(turn())
        self._add(last, sums)

    def _enter(self, stage: UOp) -> None:
        """Note where a thread's rows and columns begin in a stage, and read its first k."""
        for side in self._sides:
            first = side.first
            if self._tiling.slices > 1:
                first = first + self._slice * (self._values * side.pitch)
            self._block.b.write(side.place, stage * side.stage_elements + first)
        self._read(0)

    def _read(self, k: int) -> None:
        """Read the elements of a value of k."""
        b = self._block.b
        for side in self._sides:
            start = b.read(side.place)
            for vector, register in enumerate(side.held[k % 2]):
                ahead = k * side.pitch + vector * side.step
                b.write(register, b.load(side.region, start + ahead, self._lanes))

    def _add(self, k: int, sums: list[list[UOp]]) -> None:
        """Add the products of a value of k."""
        b = self._block.b
        elements, factors = [
            [lane(b.read(each), i) for each in side.held[k % 2] for i in range(self._lanes)]
            for side in self._sides
        ]
        for row, column in _walk(len(elements), len(factors)):
            register = sums[row][column]
            total = self._multiply_add(elements[row], factors[column], b.read(register))
            b.write(register, total)

    def _multiply_add(self, x: UOp, y: UOp, z: UOp) -> UOp:
        return fma(x, y, z) if self._dtype.is_float else x * y + z


def _walk(rows: int, columns: int) -> Iterator[tuple[int, int]]:
    """Walk (row, column) of a thread's sums so that each shares a factor with the one before.

    A multiply-add then finds that factor where the last one left it. What it reads beside its sum
    is another row's factor, whose bank of registers alternates: ptxas gives the sums the other one.
    """
    down = range(rows)
    for column in range(columns):
        for row in down:
            yield row, column
        down = down[::-1]


def _apart(place: UOp) -> tuple[UOp, int]:
    """Take a constant from a place, so that one register serves all of a thread's copies."""
    if place.op is Op.ADD and place.operands[1].op is Op.CONST:
        return place.operands[0], int(place.operands[1].value)
    return place, 0
