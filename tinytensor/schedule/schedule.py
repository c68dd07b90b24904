"""Turns the values somebody asked for into an ordered list of kernels."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from tinytensor.ops.kernel import Contraction, Decision
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp, walk
from tinytensor.ops.verify import verify_indexed, verify_tensor
from tinytensor.records import dataclass
from tinytensor.schedule.apart import tell_apart
from tinytensor.schedule.blocks import join_blocks
from tinytensor.schedule.check import check_contraction
from tinytensor.schedule.contraction import recognize
from tinytensor.schedule.instances import join_instances
from tinytensor.schedule.kernels import KernelCall, build_kernel
from tinytensor.schedule.landmarks import Ends, Search, find_landmarks, nodes_down_to_product
from tinytensor.schedule.lower_views import Point, ranges_over
from tinytensor.schedule.materialize import materialize
from tinytensor.schedule.order import order_kernels
from tinytensor.schedule.reasons import add_reasons
from tinytensor.schedule.rows import SHARED_KERNELS, join_rows
from tinytensor.schedule.short_folds import fold_where_read
from tinytensor.schedule.size_classes import narrow_products
from tinytensor.schedule.sparing import spare_outputs
from tinytensor.target import Target
from tinytensor.timing import timed


@dataclass(frozen=True, slots=True)
class Options:
    """The settings a schedule depends on, read by the caller at its door."""

    fuse: int
    verify: bool
    stress: bool


@timed("schedule")
def schedule(
    roots: Sequence[UOp], target: Target, options: Options, why: Mapping[UOp, str] = {}
) -> list[KernelCall]:
    """Return the kernels that compute the roots, in order.

    Takes:  TENSOR form; roots are distinct nodes that are no BUFFER, without COPY below them.
    Gives:  kernels that store every root; leaves are BUFFER nodes. `why` says it of roots that
            nobody has asked for.
    Cost:   linear in the graph, plus, per reduction, the work between it and the nearest landmarks
            below.
    """
    order = walk(roots)
    if options.verify:
        verify_tensor(roots)
    sums = classify_sums(order, options.verify)
    if options.fuse >= SHARED_KERNELS and target.scaled_bytes:
        sums = join_blocks(order, roots, sums, target, options.verify)
    contractions = {node: each for node, each in sums.items() if isinstance(each, Contraction)}
    regions, chooser = materialize(order, roots, contractions, options.fuse, target)
    regions = spare_outputs(regions, order, chooser)
    if options.fuse >= SHARED_KERNELS:
        if target.kind == "cuda":
            regions = fold_where_read(regions, chooser)
        regions = join_rows(regions, order, contractions, frozenset(roots), target)
    add_reasons(regions, order, chooser, why)
    written = [node for outputs in regions.values() for node in outputs]
    stored = frozenset((*written, *(node for node in order if node.op is Op.BUFFER)))
    writers = {node: region for region, outputs in regions.items() for node in outputs}
    calls = [
        tell_apart(build_kernel(region, outputs, stored, sums), region, writers, chooser)
        for region, outputs in regions.items()
        if any(0 not in node.shape for node in outputs)
    ]
    calls = [narrow_products(call, target) for call in calls]
    calls = order_kernels(calls, set(roots), random.Random(0) if options.stress else None)
    if options.fuse >= SHARED_KERNELS:
        calls = join_instances(calls, set(roots))
    if options.verify:
        for call in calls:
            verify_indexed(call.kernel)
    return calls


@timed("schedule: contractions")
def classify_sums(order: Sequence[UOp], verify: bool) -> dict[UOp, Contraction | Decision]:
    """Say of every sum of products in a graph whether it is a contraction, or why it is not."""
    landmarks = find_landmarks(order)
    found: dict[UOp, Contraction | Decision] = {}
    for node in order:
        if node.op is not Op.REDUCE:
            continue
        nodes = nodes_down_to_product(node)
        if not any(each.op is Op.MUL for each in nodes):
            continue
        lowering = Search(Ends(landmarks, nodes), next_range=len(node.shape))
        fact = recognize(node, lowering)
        if fact is not None:
            found[node] = fact
        if verify and isinstance(fact, Contraction):
            index = ranges_over(node.shape, 0)
            check_contraction(fact, lowering.compute(Point(node, index, None)))
    return found
