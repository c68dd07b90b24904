"""Turns any kernel into plain loops over its ranges, one element at a time."""

from __future__ import annotations

from tinytensor.codegen.builder import Builder
from tinytensor.codegen.plans.merging import FOLDS
from tinytensor.codegen.plans.nest import Nest
from tinytensor.ops.kernel import Kernel
from tinytensor.ops.linear import Linear
from tinytensor.ops.ranges import dependencies
from tinytensor.ops.uop import UOp, walk
from tinytensor.target import Target


def facts(kernel: Kernel, target: Target) -> Kernel | str:
    """Return what `lower` needs: nothing but the kernel, whatever it is."""
    return kernel


def describe(kernel: Kernel, target: Target) -> str:
    """Say how the kernel runs."""
    return "one element at a time, in the order of the ranges; it runs every kernel."


def lower(kernel: Kernel, target: Target) -> Linear:
    """Nest loops in the order of the kernel's ranges, but those that folds vary over first.

    Folds are loops of their own, outside of the ranges that only stores run over.
    """
    b = Builder(kernel.name, kernel.params, kernel.index_dtype)
    stores = kernel.sink.operands
    varies = dependencies(walk(stores))
    rows = frozenset[UOp]().union(*[varies[node] for node in varies if node.op in FOLDS])
    nest = Nest(b, stores)
    ranges = sorted(kernel.ranges, key=lambda each: each not in rows)
    nest.store(stores, [nest.span(each) for each in ranges])
    return b.finish()
