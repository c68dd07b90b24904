"""Turns a kernel without folds into one launch in which each thread computes 16 bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tinytensor.codegen.block_builder import BlockBuilder
from tinytensor.codegen.plans.amounts import is_whole
from tinytensor.codegen.plans.choices import unroll_choices
from tinytensor.codegen.plans.lanes import accesses_of
from tinytensor.codegen.plans.merging import FOLDS, merge_ranges, replace_ranges
from tinytensor.codegen.plans.nest import Point, emit
from tinytensor.codegen.plans.spread import (
    Spread,
    choose_last,
    empty_launch,
    index_dtype_for,
    innermost,
    most_lanes,
    takes_lanes,
)
from tinytensor.codegen.vectorize import stride_of
from tinytensor.dtype import dtypes
from tinytensor.ops.kernel import Kernel
from tinytensor.ops.linear import Linear
from tinytensor.ops.op import ELEMENTWISE, Op
from tinytensor.ops.uop import UOp, const, fresh_number, make_range, walk
from tinytensor.records import dataclass
from tinytensor.target import Target

# One 16-byte vector a thread: copy 2^28 fp32 takes 502 us, with 4 vectors 526, with 8 bytes a
# thread 548 (hand-written prototypes, H200, 2026-11-29; the kernel of this plan: 507).
THREADS = 256
# What computes more than it moves wants several vectors a thread, rows if it can: what the columns
# share is then loaded once. gelu(x * a + b) * c of bf16 with 29 instructions an element takes
# 142 us with one vector, 130 us with 4 (hand-written prototypes, H200, 2026-11-29).
VECTORS_OF_HEAVY = 4
HEAVY = 5.0  # instructions a byte; memory is as slow as 6
LEAST_BLOCKS = 2  # of each multiprocessor, so that many warps still take turns

# Instructions of ops that take more than one in float32 (ptxas 13.0, sm_90a).
INSTRUCTIONS = {
    **{Op.EXP: 9, Op.TANH: 15, Op.ERF: 20, Op.LOG: 32, Op.SIN: 30, Op.COS: 30},
    **{Op.DIV: 16, Op.SQRT: 14},
}


@dataclass(frozen=True, slots=True)
class CudaPointwiseFacts:
    """How a kernel without folds runs: `steps` vectors of the spread for each thread.

    Where accesses cannot be vectors, a thread takes single elements, `threads` apart, instead.
    It takes all values of `rows`, if there is such a range.
    """

    kernel: Kernel
    spread: Spread
    steps: int
    threads: int
    rows: UOp | None = None


def facts(kernel: Kernel, target: Target) -> CudaPointwiseFacts | None:
    """Choose the lanes and their range; None for a kernel with a fold."""
    if any(node.op in FOLDS for node in walk((kernel.sink,))):
        return None
    merged = merge_ranges(unroll_choices(kernel))
    if not merged.ranges:
        return CudaPointwiseFacts(merged, Spread(()), 1, THREADS)
    roots = (merged.sink,)
    last = choose_last(accesses_of(roots), merged.ranges)
    whole = lanes = most_lanes(roots, last, target)
    while lanes > 1 and not _fits(merged, last, lanes):
        lanes //= 2
    ranges = innermost(merged.ranges, last)
    plain = CudaPointwiseFacts(merged, Spread(ranges, lanes), whole // lanes, THREADS)
    blocks = plain.spread.count // (THREADS * VECTORS_OF_HEAVY)
    is_large = lanes > 1 and blocks >= LEAST_BLOCKS * target.multiprocessors
    return _with_more_vectors(plain) if is_large and _is_heavy(merged, ranges) else plain


def _is_heavy(kernel: Kernel, ranges: Sequence[UOp]) -> bool:
    """Whether instructions rather than memory will limit a kernel."""
    values = [node for node in walk((kernel.sink,)) if node.dtype is not dtypes.index]
    computed = [node for node in values if node.op in ELEMENTWISE]
    instructions = sum([INSTRUCTIONS.get(node.op, 1) for node in computed])
    moving = [each for each in accesses_of((kernel.sink,)) if _moves(each, ranges)]
    return instructions > HEAVY * sum([each.operands[0].dtype.itemsize for each in moving])


def _moves(access: UOp, ranges: Sequence[UOp]) -> bool:
    return all(stride_of(access.operands[1], each) != 0 for each in ranges)


def _with_more_vectors(facts: CudaPointwiseFacts) -> CudaPointwiseFacts:
    """Let a thread take several rows; where rows are none or do not divide, vectors further on."""
    kernel, ranges = facts.kernel, facts.spread.ranges
    if len(ranges) == 1 or not is_whole(ranges[-2], VECTORS_OF_HEAVY) or ranges[-2].is_open:
        return replace(facts, steps=facts.steps * VECTORS_OF_HEAVY)
    outer = ranges[-2]
    fresh = fresh_number(kernel.ranges)
    groups = make_range(fresh, outer.extent // VECTORS_OF_HEAVY)
    rows = make_range(fresh + 1, VECTORS_OF_HEAVY)
    sink = replace_ranges(kernel.sink, {outer: groups * VECTORS_OF_HEAVY + rows})
    spread = Spread((*ranges[:-2], groups, ranges[-1]), facts.spread.lanes)
    grouped = replace(kernel, sink=sink, ranges=(*spread.ranges, rows))
    return replace(facts, kernel=grouped, spread=spread, rows=rows)


def _fits(kernel: Kernel, last: UOp, lanes: int) -> bool:
    """Whether the last range is whole vectors; a lone range may have a ragged end."""
    is_lone = len(kernel.ranges) == 1 and last.extent > lanes and not last.is_open
    return (is_whole(last, lanes) or is_lone) and takes_lanes((kernel.sink,), last, lanes)


def describe(facts: CudaPointwiseFacts, target: Target) -> str:
    """Say how the kernel runs."""
    lanes = facts.spread.lanes
    if facts.rows is not None:
        return f"one vector of {lanes} elements of each of {facts.rows.extent} rows a thread."
    if facts.steps > 1:
        return f"{facts.steps} x {lanes} elements a thread, {facts.threads * lanes} apart."
    return f"one vector of {lanes} elements a thread."


def lower(facts: CudaPointwiseFacts, target: Target) -> tuple[Linear, ...]:
    """Run whole blocks without a guard, and what is left element by element where it is ragged."""
    if facts.spread.count == 0:
        return (empty_launch(facts.kernel).finish(),)
    return (_Lowering(facts).lower(),)


class _Lowering:
    def __init__(self, facts: CudaPointwiseFacts) -> None:
        kernel = facts.kernel
        self._spread = facts.spread
        self._steps = facts.steps
        self._rows = facts.rows
        self._stores = kernel.sink.operands
        self._per_block = facts.threads * facts.steps
        self._count = facts.spread.count
        blocks = -(-self._count // self._per_block)
        dtype = index_dtype_for(kernel, blocks * self._per_block)
        self._b = BlockBuilder(kernel.name, kernel.params, dtype, (blocks, 1, 1), facts.threads)
        self._b.across = facts.spread.blocks_of(self._per_block)

    def lower(self) -> Linear:
        b = self._b
        whole_blocks = self._whole() // self._per_block
        first = b.block(0) * self._per_block + b.thread
        numbers = [first + at * b.threads if at else first for at in range(self._steps)]
        if whole_blocks == b.blocks[0] and not self._spread.is_open:
            self._run_whole(numbers)
        elif whole_blocks == 0 or self._spread.is_open:
            self._run_ragged(numbers)
        else:
            with b.branch(b.block(0) < whole_blocks) as opened:
                self._run_whole(numbers)
                b.otherwise(opened)
                self._run_ragged(numbers)
        return b.finish()

    def _whole(self) -> int:
        """How many numbers have all their lanes."""
        return self._count - self._has_ragged_end()

    def _has_ragged_end(self) -> bool:
        spread = self._spread
        return spread.lane_range is not None and not is_whole(spread.lane_range, spread.lanes)

    def _points(self, number: UOp) -> list[Point]:
        """Return where a thread with that number computes: once, or in each of its rows."""
        spread, rows = self._spread, self._rows
        places = spread.places(self._b, number)
        lanes = (spread.lane_range, spread.lanes, spread.lanes)
        if rows is None:
            return [Point(self._b, places, {}, *lanes)]
        values = [const(number.dtype, row) for row in range(rows.extent)]
        return [Point(self._b, {**places, rows: value}, {}, *lanes) for value in values]

    def _run_whole(self, numbers: list[UOp]) -> None:
        """Compute all values before the first store, so that all loads are in flight together."""
        points = [point for number in numbers for point in self._points(number)]
        evaluators = [each.evaluator() for each in points]
        for evaluator in evaluators:
            for store in self._stores:
                evaluator.place(store.operands[2])
        for evaluator in evaluators:
            for store in self._stores:
                evaluator.store(store)

    def _run_ragged(self, numbers: list[UOp]) -> None:
        for number in numbers:
            if self._has_ragged_end():
                self._run_elements(number)
            else:
                with self._b.branch(number < self._spread.numbers(self._b)):
                    emit(self._stores, self._points(number))

    def _run_elements(self, number: UOp) -> None:
        """Run the lanes of a lone range as elements of their own."""
        (range_,) = self._spread.ranges
        for lane in range(self._spread.lanes):
            place = number * self._spread.lanes + lane
            with self._b.branch(place < range_.extent):
                emit(self._stores, [Point(self._b, {range_: place})])
