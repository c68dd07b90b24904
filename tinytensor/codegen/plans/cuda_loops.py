"""Turns any kernel into one thread for each element; folds are loops of that thread."""

from __future__ import annotations

import functools

from tinytensor.codegen.block_builder import BlockBuilder
from tinytensor.codegen.plans.nest import Nest, Point, emit
from tinytensor.codegen.plans.spread import Spread, empty_launch, index_dtype_for
from tinytensor.ops.kernel import Kernel
from tinytensor.ops.linear import Linear
from tinytensor.ops.op import Op
from tinytensor.ops.ranges import dependencies
from tinytensor.ops.uop import UOp, compare, walk
from tinytensor.records import dataclass
from tinytensor.target import Target

THREADS = 128


@dataclass(frozen=True, slots=True)
class LoopFacts:
    """A kernel, whatever it is, and the threads of a block."""

    kernel: Kernel
    threads: int


def facts(kernel: Kernel, target: Target) -> LoopFacts:
    """Return what `lower` needs; this plan takes every kernel."""
    return LoopFacts(kernel, THREADS)


def describe(facts: LoopFacts, target: Target) -> str:
    """Say how the kernel runs."""
    return "one element a thread, its folds in loops; it runs every kernel."


def lower(facts: LoopFacts, target: Target) -> tuple[Linear, ...]:
    """Give each thread the element of its number, if there is one."""
    kernel, threads = facts.kernel, facts.threads
    spread = Spread(kernel.ranges)
    if spread.count == 0:
        return (empty_launch(kernel).finish(),)
    blocks = -(-spread.count // threads)
    index_dtype = index_dtype_for(kernel, blocks * threads)
    b = BlockBuilder(kernel.name, kernel.params, index_dtype, (blocks, 1, 1), threads)
    b.across = spread.blocks_of(threads)
    stores = kernel.sink.operands
    nest = Nest(b, stores)
    number = b.value(b.block(0) * threads + b.thread)
    with b.branch(number < spread.numbers(b)):
        point = Point(b, spread.places(b, number))
        nest.loops([], stores, [point], lambda points: _emit_once(b, kernel, points))
    return (b.finish(),)


def _emit_once(b: BlockBuilder, kernel: Kernel, points: list[Point]) -> None:
    """Emit each store; one that some ranges do not concern, in the thread where they are 0."""
    varies = dependencies(walk(kernel.sink.operands))
    for store in kernel.sink.operands:
        first = [
            compare(Op.EQ, point.ranges[each], b.index(0))
            for point in points
            for each in kernel.ranges
            if each not in varies[store]
        ]
        if not first:
            emit([store], points)
            continue
        with b.branch(functools.reduce(UOp.__and__, first)):
            emit([store], points)
