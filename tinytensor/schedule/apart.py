"""Says why two kernels, one of which reads what the other stores, are not one.

Takes:  a kernel's call, its region, and the regions that store what it reads.
Gives:  the call with a reason for each value that another kernel stores.
Placed: after `kernels`, when nothing is joined any more but equal kernels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp, walk
from tinytensor.records import dataclass
from tinytensor.schedule.contraction import path_to_product
from tinytensor.schedule.describe import describe, short_time
from tinytensor.schedule.kernels import KernelCall
from tinytensor.schedule.materialize import Chooser
from tinytensor.schedule.order import written_by
from tinytensor.schedule.region import Region
from tinytensor.schedule.rows import SHARED_KERNELS, Space, space_of

ONE_SUM = "a kernel that sums products has no other fold"
PLACES = "what is read here for an element or a row was computed there for another one."


@dataclass(frozen=True, slots=True)
class _StoredElsewhere:
    """Holds the nodes that other regions store."""

    region: Region
    writers: Mapping[UOp, Region]

    def __contains__(self, node: object) -> bool:
        return isinstance(node, UOp) and self.writers.get(node, self.region) is not self.region


def tell_apart(
    call: KernelCall, region: Region, writers: Mapping[UOp, Region], chooser: Chooser
) -> KernelCall:
    """Give the reasons for what a call reads of other regions."""
    reasons = [
        _why_apart(node, region, call, writers, chooser)
        if writers.get(node, region) is not region
        else ""
        for node in call.nodes
    ]
    return replace(call, apart=tuple(reasons))


def _why_apart(
    node: UOp, second: Region, call: KernelCall, writers: Mapping[UOp, Region], chooser: Chooser
) -> str:
    first = writers[node]
    if chooser.builder.fuse == 0:
        return "TT_FUSE=0: one kernel per op."
    if node in second.apart:
        return second.apart[node]
    inside = walk(node.operands, stop=_StoredElsewhere(first, writers))
    if node.op is not Op.REDUCE and not any(each.op is Op.REDUCE for each in inside):
        return _why_read(node, chooser)
    if second.anchor in chooser.contractions:
        return _why_no_factor(node, second.anchor, call, chooser)
    space = space_of(second.anchor)
    if first.anchor in chooser.contractions and space is not None:
        return (
            "its products are summed in tiles, and a tile need not hold a whole row that is "
            f"folded here; {ONE_SUM}."
        )
    if space is None:
        written = written_by(call)
        computed = walk(written, stop={*call.nodes}.difference(written))
        told = [each for each in first.drafts if each.kind == "decline"]
        found = [each for each in told if each.subject in computed]
        if found:
            return f"{describe(found[0].subject)}: {found[0].plain_reason}"
    if chooser.builder.fuse < SHARED_KERNELS:
        return f"TT_FUSE={chooser.builder.fuse}: kernels over the same rows stay apart."
    return PLACES if space is None else _why_other_rows(space_of(first.anchor), space)


def _why_read(node: UOp, chooser: Chooser) -> str:
    """Say why a value that comes from no fold is not computed here as well."""
    choice = chooser.choices.get(node)
    if choice is not None:
        stored, again = short_time(choice.storing), short_time(choice.recomputing)
        return f"to store it takes {stored}, to compute it in its readers {again}."
    if node in chooser.roots:
        return "it was asked for, so it is stored; what is stored is read."
    return chooser.stored[node].plain_reason


def _why_no_factor(node: UOp, anchor: UOp, call: KernelCall, chooser: Chooser) -> str:
    """Say why a sum of products does not hold the fold that gives a factor, or what is beside."""
    _, m, n, _ = chooser.contractions[anchor].extents
    for factor, uses in zip(path_to_product(anchor)[-1].operands, (n, m), strict=True):
        if node in walk((factor,), stop=call.nodes):
            end = "; `store` there says why the elementwise ops behind the fold are not here"
            return (
                f"it comes from a fold there and is a factor here, each element for {uses} "
                f"products; a factor is loaded or elementwise, never folded"
                f"{end * (node in chooser.choices)}."
            )
    return f"it comes from a fold there and is read beside the sum here; {ONE_SUM}."


def _why_other_rows(first: Space | None, second: Space) -> str:
    if first is None or second.is_same(first):
        return PLACES
    return (
        f"here {list(second.full)} is folded to {list(second.kept)}, there {list(first.full)} to "
        f"{list(first.kept)}: one kernel folds rows of one kind."
    )
