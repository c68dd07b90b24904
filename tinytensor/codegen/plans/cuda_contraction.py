"""Turns a contraction into matrix instructions of warps over tiles in shared memory."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

from tinytensor.codegen.builder import Builder, lane, shuffle
from tinytensor.codegen.instructions_cuda import MMA_ROWS, instructions_on
from tinytensor.codegen.plans.block_operand import (
    CopiedSource,
    GatheredSource,
    Operand,
    Source,
    TileSource,
    Window,
)
from tinytensor.codegen.plans.block_product import (
    Block,
    ProductFacts,
    computed_in,
    open_block,
    read_facts,
    why_no_product,
)
from tinytensor.codegen.plans.block_ring import Copy, Turn, run_ring
from tinytensor.codegen.plans.pack_rows import Rows, read_rows, rows_of, turned, write_rows
from tinytensor.codegen.plans.tiling_cuda import (
    MOST_RESIDENT,
    MmaTiling,
    describe_tiling,
    rank_mma_tilings,
    resident_blocks,
)
from tinytensor.dtype import DType, dtypes
from tinytensor.ops import tile as tiles
from tinytensor.ops.attrs_blocks import TileMmaAttrs
from tinytensor.ops.fragments import accumulator_position, mma_shape
from tinytensor.ops.kernel import Contraction, Kernel
from tinytensor.ops.linear import Linear
from tinytensor.ops.uop import UOp
from tinytensor.records import dataclass
from tinytensor.target import Target

FLOAT8 = (dtypes.float8_e4m3fn, dtypes.float8_e5m2)
SUM_BITS = 32
TRUNCATES = "Sums may be truncated where others round."
PAIR = 2  # a thread holds sums in adjacent pairs of a row
# From so many multiply-adds on, a launch that rewrites a factor costs less than computing it again
# in each block: 1001 x 999 x 1003 halves take an eighth of the time (hand-written prototypes, H200,
# 2026-11-29).
PACKED_PRODUCTS = 1 << 26
MOST_PACKED_ELEMENTS = 1 << 30


def facts(kernel: Kernel, target: Target) -> ProductFacts | str | None:
    """Return what the plan needs, or why it does not take it; None for a kernel of another kind."""
    contraction = kernel.contraction
    if contraction is None:
        return None
    node = contraction.node
    a, b = (each.dtype for each in node.operands[:2])
    half = _half_of_floats(a, b)
    if half is not None:
        a = b = half
    names = instructions_on(a, b)
    if not names:
        return f"no matrix instruction takes factors of {a.name} and {b.name}."
    summed = mma_shape(names[0]).accumulate
    if node.dtype is not summed and not _keeps_low_bits(contraction):
        told = f"matrix instructions on {a.name} sum {summed.name}"
        return f"the sum is kept in {node.dtype.name}; {told}."
    if half is not None or node.dtype is not summed:
        kernel = computed_in(kernel, contraction, half, summed)
    if "mma" not in target.features:
        return f"{target.name} has no matrix instructions."
    return why_no_product(kernel, contraction) or read_facts(kernel)


def _half_of_floats(a: DType, b: DType) -> DType | None:
    """Return the half in which factors are multiplied of which one or both are of 8 bits."""
    if a in FLOAT8 and b in FLOAT8:
        return dtypes.float16
    half = b if a in FLOAT8 else a
    return half if half.is_half and (a in FLOAT8 or b in FLOAT8) else None


def _keeps_low_bits(contraction: Contraction) -> bool:
    """Whether the low 32 bits of a sum of integers tell all of it."""
    a, b = (each.dtype for each in contraction.node.operands[:2])
    most = math.prod([each.extent for each in contraction.k]) << (a.bits + b.bits)
    dtype = contraction.node.dtype
    return dtype.is_int and (dtype.bits <= SUM_BITS or most < 1 << (SUM_BITS - 1))


def note(facts: ProductFacts) -> str:
    """Say how sums may differ from others."""
    if facts.flat.total.dtype is not dtypes.float32:
        return ""
    if facts.stored in FLOAT8:
        return f" Sums of {facts.promoted_after} values of k keep some 14 bits."
    return f" {TRUNCATES}"


def candidates(facts: ProductFacts, target: Target) -> list[MmaTiling]:
    """Return the tilings, cheapest first."""
    factors = (facts.a, facts.b)
    computes = any(not each.is_direct and _rows(facts, each) is None for each in factors)
    return rank_mma_tilings(facts.work, computes, target)


def describe(facts: ProductFacts, target: Target, tiling: MmaTiling | None = None) -> str:
    """Say how the kernel is cut into tiles."""
    tiling = tiling or candidates(facts, target)[0]
    rewritten = sum([_rows(facts, each) is not None for each in (facts.a, facts.b)])
    before = f"; {rewritten} of 2 factors rewritten in rows before" if rewritten else ""
    return (
        f"{_instruction(facts, target)}, {describe_tiling(tiling)}, warps "
        f"{tiling.warps_m} x {tiling.warps_n}{before}.{note(facts)}"
    )


def lower(
    facts: ProductFacts, target: Target, tiling: MmaTiling | None = None
) -> tuple[Linear, ...]:
    """Emit one launch: each block brings tiles along k to shared memory and multiplies them.

    Takes:  a kernel with one contraction; operands and stores are any expressions.
    Gives:  LINEAR form of a thread block with collective ops on tiles. In a large product a factor
            that cannot be copied as it lies is first written to scratch memory, by its own launch.
    """
    kernel = facts.kernel
    scratch = Builder(kernel.name, kernel.params, kernel.index_dtype)
    factors, launches = [], []
    for operand in (facts.a, facts.b):
        rows = _rows(facts, operand)
        if rows is None:
            factors.append(_taken(operand))
            continue
        region = scratch.workspace(operand.value.dtype, rows.elements)
        launches.append(write_rows(rows, region, kernel))
        factors.append(read_rows(rows, region))
    ready = replace(facts, a=factors[0], b=factors[1])
    tiling = tiling or candidates(facts, target)[0]
    lowering = _Lowering(ready, tiling, _instruction(facts, target), target)
    launches.append(lowering.emit(_resident(facts, tiling, target)))
    scratch_bytes = scratch.finish().workspace_bytes
    return tuple([replace(each, workspace_bytes=scratch_bytes) for each in launches])


def _resident(facts: ProductFacts, tiling: MmaTiling, target: Target) -> int:
    """Return how many blocks must fit; without a number ptxas spills sums of float64."""
    if facts.stored is not dtypes.float64:
        return 0
    fitting = resident_blocks(tiling, facts.work, target)
    return 1 if facts.through_registers else min(fitting, MOST_RESIDENT)


def _rows(facts: ProductFacts, operand: Operand) -> Rows | None:
    """Return the rows that a factor is first rewritten as; None if it is taken as it lies.

    That is when it can be copied 16 bytes at a time (8 of float64, whose copies are few beside its
    products), the product is small, or the rows are large.
    """
    if not is_large(facts):
        return None
    operand = _taken(operand)
    rows = rows_of(operand, facts.flat.outer)
    is_double = facts.stored is dtypes.float64
    is_ready = operand.is_direct and (is_double or operand.access == rows.access)
    return None if is_ready or rows.elements > MOST_PACKED_ELEMENTS else rows


def _taken(operand: Operand) -> Operand:
    """Return a factor as it is brought to tiles: of bytes, rows run along k."""
    return turned(operand) if operand.value.dtype.bits == 8 else operand


def _instruction(facts: ProductFacts, target: Target) -> str:
    """Return the fastest instruction for the factors that the target has."""
    names = instructions_on(facts.a.value.dtype, facts.b.value.dtype)
    return next(each for each in names if MMA_ROWS[each].features <= target.features)


def is_large(facts: ProductFacts) -> bool:
    """Whether a product is worth a launch that rewrites a factor."""
    work = facts.work
    return work.batch * work.m * work.n * facts.flat.k.extent >= PACKED_PRODUCTS


@dataclass(frozen=True, slots=True)
class _Factor:
    """A factor's ring of tiles, and what fills it."""

    tile: UOp
    source: Source


class _Lowering:
    """Emits the program of one block."""

    def __init__(
        self, facts: ProductFacts, tiling: MmaTiling, instruction: str, target: Target
    ) -> None:
        self._tiling = tiling
        self._block: Block = open_block(facts, tiling, PAIR, 1, target)
        a_k_major, b_k_major = [each.inner is facts.flat.k for each in (facts.a, facts.b)]
        # A lane's registers of the first factor are two rows at one value of k. Pairs of float64
        # along k would be moved apart for that; so they are the second factor of the turned
        # product, and if b lies along k too, it is turned over on its way.
        self._is_turned = facts.stored is dtypes.float64 and a_k_major
        turns_b = self._is_turned and b_k_major
        self._a = self._factor(facts.a, self._block.window_a, a_k_major)
        self._b = self._factor(facts.b, self._block.window_b, b_k_major and not turns_b)
        extents, warps = (tiling.block_m, tiling.block_n), (tiling.warps_m, tiling.warps_n)
        if self._is_turned:
            self._a, self._b = self._b, self._a
            extents, warps, a_k_major, b_k_major = extents[::-1], warps[::-1], False, True
        self._extents = extents
        self._attrs = TileMmaAttrs(0, instruction, *warps, a_k_major, b_k_major)

    def emit(self, resident: int) -> Linear:
        """Emit it for a multiprocessor with registers for so many blocks, or any (0)."""
        self._block.b.resident = resident
        b, block, tiling = self._block.b, self._block, self._tiling
        instruction, warps = self._attrs.instruction, (self._attrs.warps_m, self._attrs.warps_n)
        row, column = self._position(b.thread, 0)
        pairs = self._pairs(b.value(row), b.value(column))
        block.epilogue.preload(list(dict.fromkeys([each.column for each in pairs])))
        accumulator = b.accumulator(instruction, *self._extents, *warps)

        def multiply(stage: UOp, copy: Copy, turn: Turn) -> None:
            copy(0, 1)
            b.tile_mma(accumulator, self._a.tile, stage, self._b.tile, stage, self._attrs)
            b.mma_wait(accumulator)
            turn()

        sources = (self._a.source, self._b.source)
        run_ring(b, block.blocks_k, tiling.stages, sources, lambda stage: None, multiply)
        sums = b.read(accumulator)
        for each in pairs:
            pair = shuffle(sums, sums, each.registers)
            block.epilogue.store(each.row, each.column, pair)
        with block.mirrored() as mirror:
            if mirror is not None:
                for each, number in itertools.product(pairs, range(PAIR)):
                    one = lane(sums, each.registers[number])
                    mirror.store(each.column + number, each.row, one)
        return b.finish()

    def _factor(self, operand: Operand, window: Window, k_major: bool) -> _Factor:
        """Give an operand a ring of tiles whose rows run along k or not."""
        b = self._block.b
        rows, columns = window.extent_free, window.extent_k
        if not k_major:
            rows, columns = columns, rows
        tile = b.tile(operand.value.dtype, rows, columns, self._tiling.stages)
        transposes = k_major is not (operand.inner is operand.k)
        if operand.is_direct and not transposes:
            return _Factor(tile, TileSource(b, operand, window, tile))

        def address(stage: UOp, free: UOp, k: UOp) -> UOp:
            index: UOp = tiles.element_index(tile, stage, *((free, k) if k_major else (k, free)))
            return index

        kind = CopiedSource if operand.is_direct else GatheredSource
        return _Factor(tile, kind(b, operand, window, tile, address, transposes))

    def _position(self, thread: UOp | int, register: int) -> tuple[Any, Any]:
        """Return (row, column) of a register, a node if the thread is one."""
        place = accumulator_position(self._attrs, *self._extents, thread, register)
        return place[::-1] if self._is_turned else place

    def _pairs(self, first_row: UOp, first_column: UOp) -> list[_Pair]:
        """List the pairs of sums of a thread: the place of the first one, and constants from it."""
        tiling = self._tiling
        registers = range(tiling.block_m * tiling.block_n // tiling.threads)
        places = [self._position(0, each) for each in registers]
        held = dict(zip(places, registers, strict=True))
        return [
            _Pair((register, held[row, column + 1]), first_row + row, first_column + column)
            for (row, column), register in held.items()
            if column % PAIR == 0
        ]


@dataclass(frozen=True, slots=True)
class _Pair:
    """Two adjacent sums of a row: their registers, and the first one's place in the block."""

    registers: tuple[int, int]
    row: UOp
    column: UOp
