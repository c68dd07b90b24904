"""Turns an instanced kernel into blocks that each take as many elements of one instance."""

from __future__ import annotations

from tinytensor.codegen.block_builder import BlockBuilder
from tinytensor.codegen.plans.instances import pin_fixed
from tinytensor.codegen.plans.nest import Point, emit
from tinytensor.codegen.plans.spread import most_lanes, scaled
from tinytensor.ops.instances import MOST_ELEMENTS, extent_of
from tinytensor.ops.kernel import Kernel
from tinytensor.ops.linear import Linear
from tinytensor.records import dataclass
from tinytensor.target import Target

THREADS = 256


@dataclass(frozen=True, slots=True)
class CudaInstancesFacts:
    """An instanced kernel, and the adjacent elements that a thread takes."""

    kernel: Kernel
    lanes: int


def facts(kernel: Kernel, target: Target) -> CudaInstancesFacts | None:
    """Choose the lanes of an instanced kernel; None for any other one."""
    if not kernel.instanced:
        return None
    (range_,) = kernel.ranges
    return CudaInstancesFacts(kernel, most_lanes((kernel.sink,), range_, target))


def describe(facts: CudaInstancesFacts, target: Target) -> str:
    """Say how the kernel runs."""
    return f"one vector of {facts.lanes} elements a thread, of the instance of its block."


def lower(facts: CudaInstancesFacts, target: Target) -> tuple[Linear, ...]:
    """Compute one vector, or the elements that are left of it at the end of an instance.

    The grid is that of the largest instance; a launch has the blocks of all its instances.
    """
    kernel, lanes = facts.kernel, facts.lanes
    (range_,), stores = kernel.ranges, kernel.sink.operands
    blocks = MOST_ELEMENTS // (THREADS * lanes)
    b = BlockBuilder(kernel.name, kernel.params, kernel.index_dtype, (blocks, 1, 1), THREADS)
    first = b.value(scaled(b.block(0) * THREADS + b.thread, lanes))
    extent = extent_of(b.index_dtype)
    pin_fixed(b, stores, range_)
    nowhere = Point(b)
    with b.branch(first + (lanes - 1) < extent) as opened:
        emit(stores, [nowhere.widened(range_, first, lanes, lanes)])
        b.otherwise(opened)
        with b.loop(first, extent) as place:
            emit(stores, [nowhere.opened(range_, place)])
    return (b.finish(),)
