"""Says beside each kernel why it stores what it stores, and what it computes once more."""

from __future__ import annotations

from collections.abc import Mapping

from tinytensor.ops.kernel import Decision
from tinytensor.ops.uop import UOp
from tinytensor.schedule.describe import describe
from tinytensor.schedule.materialize import Chooser, describe_uses
from tinytensor.schedule.region import Region


def add_reasons(outputs: Mapping[Region, tuple[UOp, ...]], chooser: Chooser) -> None:
    """Give each region the reasons for its outputs, and for what its members recompute."""
    homes = {node: region for region in outputs for node in region.position}
    for region, nodes in outputs.items():
        for anchor in region.position:
            region.decisions.extend(chooser.recomputed.get(anchor, ()))
        region.decisions.extend(_why_stored(region, node, chooser, homes) for node in nodes)


def _why_stored(
    region: Region, node: UOp, chooser: Chooser, homes: Mapping[UOp, Region]
) -> Decision:
    known = chooser.stored.get(node)
    if known is not None:
        return known
    if node in chooser.roots:
        return Decision("store", describe(node), "its value was asked for.")
    readings = chooser.readings_outside(region, node)
    total = sum(each.evaluations for each in readings.values())
    kernels = {homes[kernel] for kernel in readings}
    uses = describe_uses(total, node, len(kernels))
    return Decision("store", describe(node), f"{uses}; a fold is never computed twice.")
