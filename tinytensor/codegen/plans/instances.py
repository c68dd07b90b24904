"""Turns an instanced kernel into a loop over vectors up to an extent that a launch says."""

from __future__ import annotations

from tinytensor.codegen.builder import Builder
from tinytensor.codegen.plans.lanes import accesses_of, lanes_along, values_of
from tinytensor.codegen.plans.nest import Point, emit
from tinytensor.ops.instances import extent_of
from tinytensor.ops.kernel import Kernel
from tinytensor.ops.linear import Linear
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp
from tinytensor.target import Target


def facts(kernel: Kernel, target: Target) -> Kernel | None:
    """Return an instanced kernel; None for any other one."""
    return kernel if kernel.instanced else None


def describe(facts: Kernel, target: Target) -> str:
    """Say how the kernel runs."""
    return f"{_lanes_of(facts, target)} lanes along the elements of each instance."


def lower(facts: Kernel, target: Target) -> Linear:
    """Run whole vectors, then the elements that are left."""
    b = Builder(facts.name, facts.params, facts.index_dtype)
    (range_,) = facts.ranges
    stores = facts.sink.operands
    lanes = _lanes_of(facts, target)
    extent = extent_of(b.index_dtype)
    whole = extent - extent % lanes
    pin_fixed(b, stores, range_)
    nowhere = Point(b)
    with b.loop(0, whole, lanes) as first:
        emit(stores, [nowhere.widened(range_, first, lanes, lanes)])
    with b.loop(whole, extent) as place:
        emit(stores, [nowhere.opened(range_, place)])
    return b.finish()


def pin_fixed(b: Builder, stores: tuple[UOp, ...], range_: UOp) -> None:
    """Place loads that all elements share before the loops."""
    evaluator = Point(b).evaluator()
    for each in accesses_of(stores):
        if each.op is Op.LOAD and each.operands[1] is not range_:
            evaluator.place(each)


def _lanes_of(kernel: Kernel, target: Target) -> int:
    (range_,) = kernel.ranges
    return lanes_along(range_, values_of(kernel.sink.operands), kernel, target).count
