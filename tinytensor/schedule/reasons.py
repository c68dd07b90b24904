"""Says beside each kernel why it stores what it stores, and what it computes once more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tinytensor.ops.uop import UOp
from tinytensor.schedule.describe import Draft, name_nodes
from tinytensor.schedule.materialize import Chooser, describe_uses
from tinytensor.schedule.region import Region

ONE_FOLD = (
    "it comes from a fold, and no fold is computed twice: a second kernel would fold in another "
    "order and round to other bits (a rule; {})."
)


def add_reasons(
    outputs: Mapping[Region, tuple[UOp, ...]],
    order: Sequence[UOp],
    chooser: Chooser,
    why: Mapping[UOp, str],
) -> None:
    """Give each region its decisions: also why it stores its outputs, and what it recomputes."""
    homes = {node: region for region in outputs for node in region.position}
    at = {node: number for number, node in enumerate(order)}
    for region, nodes in outputs.items():
        again = [each for anchor in region.position for each in chooser.recomputed.get(anchor, ())]
        stored = [
            Draft("store", node, (why[node],))
            if node in why
            else _why_stored(region, node, chooser, homes)
            for node in nodes
        ]
        region.decisions = name_nodes([*region.drafts, *again, *stored], at)


def _why_stored(region: Region, node: UOp, chooser: Chooser, homes: Mapping[UOp, Region]) -> Draft:
    known = chooser.stored.get(node)
    if known is not None:
        return known
    if node in chooser.roots:
        return Draft("store", node, ("its value was asked for.",))
    readings = chooser.readings_outside(region, node)
    total = sum(each.evaluations for each in readings.values())
    kernels = {homes[chooser.moved.get(kernel, kernel)] for kernel in readings}
    uses = describe_uses(total, node, len(kernels))
    return Draft("store", node, (f"{uses}; {ONE_FOLD.format(chooser.folding(node))}",))
