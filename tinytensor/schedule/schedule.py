"""Turns the values somebody asked for into an ordered list of kernels."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from tinytensor.ops.kernel import Decision
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp, walk
from tinytensor.ops.verify import verify_indexed, verify_tensor
from tinytensor.schedule.check import check_contraction
from tinytensor.schedule.contraction import Product, classify
from tinytensor.schedule.kernels import KernelCall, Numbering, build_kernel
from tinytensor.schedule.lower_views import Lowering
from tinytensor.schedule.materialize import materialize
from tinytensor.schedule.order import Step, order_kernels, with_lifetimes
from tinytensor.target import Target


@dataclass(frozen=True, slots=True)
class Options:
    """The settings a schedule depends on, read by the caller at its door."""

    fuse: int
    verify: bool
    stress: bool


def schedule(roots: Sequence[UOp], target: Target, options: Options) -> list[Step]:
    """Return the kernels that compute the roots, in order.

    Takes:  TENSOR form; roots are distinct nodes that are no BUFFER, without COPY below them.
    Gives:  steps whose kernels store every root; leaves are BUFFER nodes.
    Cost:   linear in the graph, plus, per reduction, the elementwise work between it and the
            nearest reductions or leaves below.
    """
    order = walk(roots)
    if options.verify:
        verify_tensor(roots)
    sums = classify_sums(order)
    products = {node: each for node, each in sums.items() if isinstance(each, Product)}
    plan = materialize(order, roots, products, options.fuse, target)
    outputs = [node for nodes in plan.outputs.values() for node in nodes]
    stored = frozenset((*outputs, *(node for node in order if node.op is Op.BUFFER)))
    calls = [
        build_kernel(region, plan.outputs[region], stored, sums)
        for region in plan.regions
        if any(math.prod(node.shape) for node in plan.outputs[region])
    ]
    if options.verify:
        _verify(calls)
    shuffle = random.Random(0) if options.stress else None
    return with_lifetimes(order_kernels(calls, shuffle), frozenset(roots))


def classify_sums(order: Sequence[UOp]) -> dict[UOp, Product | Decision]:
    """Say of every sum of products in a graph whether it is a contraction, or why it is not."""
    ends = [node for node in order if node.op in (Op.REDUCE, Op.BUFFER)]
    found: dict[UOp, Product | Decision] = {}
    for node in order:
        if node.op is not Op.REDUCE:
            continue
        lowering = Lowering(Numbering(ends), next_range=len(node.shape))
        kind = classify(node, lowering)
        if kind is not None:
            found[node] = kind
    return found


def _verify(calls: Sequence[KernelCall]) -> None:
    for call in calls:
        verify_indexed(call.kernel)
        check_contraction(call.kernel)
