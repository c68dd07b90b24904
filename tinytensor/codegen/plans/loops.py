"""Turns any kernel into plain loops over its ranges, one element at a time."""

from __future__ import annotations

from tinytensor.codegen.builder import Builder
from tinytensor.codegen.plans.nest import Nest
from tinytensor.ops.kernel import Kernel
from tinytensor.ops.linear import Linear
from tinytensor.target import Target


def facts(kernel: Kernel, target: Target) -> Kernel | str:
    """Return what `lower` needs: nothing but the kernel, whatever it is."""
    return kernel


def describe(kernel: Kernel, target: Target) -> str:
    """Say how the kernel runs."""
    return "one element at a time, in the order of the ranges; it runs every kernel."


def lower(kernel: Kernel, target: Target) -> Linear:
    """Nest loops in the order of the kernel's ranges; folds are loops of their own inside."""
    b = Builder(kernel.name, kernel.params, kernel.index_dtype)
    stores = kernel.sink.operands
    nest = Nest(b, stores)
    nest.store(stores, [nest.span(each) for each in kernel.ranges])
    return b.finish()
