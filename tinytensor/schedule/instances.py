"""Joins kernels that do the same to other buffers into one launch: the steps of an optimizer.

Takes:  kernels in order.
Gives:  fewer calls, in order; what was joined is one call of an instanced kernel, which has the
        nodes of all its instances one after the other, and their extents.
Placed: after `order`, whose kernels tell what must run before; before memory is assigned, which
        must know what runs at the same time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from tinytensor.dtype import dtypes
from tinytensor.ops.instances import MOST_ELEMENTS
from tinytensor.ops.kernel import Decision, Kernel
from tinytensor.ops.op import Op
from tinytensor.ops.ranges import folded_ranges
from tinytensor.ops.uop import UOp, make_param, make_range, substitute_all, walk
from tinytensor.schedule.kernels import KernelCall
from tinytensor.schedule.order import written_by

ANY_EXTENT = make_range(0, MOST_ELEMENTS)


@dataclass(slots=True, eq=False)
class Group:
    """Calls that run at one time, and the kernel that runs them if they are several."""

    calls: list[KernelCall]
    kernel: Kernel | None


def join_instances(calls: Sequence[KernelCall], roots: AbstractSet[UOp]) -> list[KernelCall]:
    """Join each kernel with the first one that does the same, if what it reads is there by then.

    It then runs earlier than it had to. So only kernels are joined whose results were all asked
    for: others would lie in memory for longer.
    """
    groups: list[Group] = []
    made: dict[UOp, int] = {}
    by_sink: dict[UOp, int] = {}
    for call in calls:
        is_asked = roots >= {*written_by(call)} and not call.variables
        kernel = any_extent(call) if is_asked else None
        place = len(groups)
        if kernel is not None:
            place = by_sink.get(kernel.sink, place)
            if any(made.get(node, -1) >= place for node in call.nodes):
                place = len(groups)
            by_sink[kernel.sink] = place
        if place == len(groups):
            groups.append(Group([], kernel))
        groups[place].calls.append(call)
        made.update(dict.fromkeys(written_by(call), place))
    return [_call_of(each) for each in groups]


def _call_of(group: Group) -> KernelCall:
    first, kernel = group.calls[0], group.kernel
    if kernel is None or len(group.calls) == 1:
        return first
    extents = tuple([math.prod([r.extent for r in call.kernel.ranges]) for call in group.calls])
    reason = f"{len(extents)} kernels that do the same to other buffers are one, of any extent."
    told = Decision("join", first.kernel.name, reason)
    nodes = [node for call in group.calls for node in call.nodes]
    joined = replace(kernel, decisions=(told, *kernel.decisions))
    apart = tuple([reason for call in group.calls for reason in call.apart])
    return KernelCall(joined, tuple(nodes), extents, apart=apart)


def any_extent(call: KernelCall) -> Kernel | None:
    """Return a kernel with its extent left open; None where more depends on its ranges.

    Each param must be read at the element that is written, or at a place that is always the same:
    of a lone element's params, those of its shape count as read where it is written.
    """
    kernel = call.kernel
    points = math.prod([each.extent for each in kernel.ranges])
    nodes = walk((kernel.sink,))
    if any(map(folded_ranges, nodes)) or not 0 < points <= MOST_ELEMENTS:
        return None
    index = kernel.sink.operands[0].operands[1]
    grown = {
        node: make_param(node.dtype, node.attrs.number, MOST_ELEMENTS)
        for node in nodes
        if node.op is Op.PARAM and node.attrs.elements == points
        if points > 1 or call.nodes[node.attrs.number].shape == call.nodes[0].shape
    }
    places = {
        node: UOp(node.op, node.dtype, (grown[node.operands[0]], ANY_EXTENT))
        for node in nodes
        if node.op is Op.LOAD and node.operands[1:] == (index,) and node.operands[0] in grown
    }
    if index.op is not Op.CONST:
        places[index] = ANY_EXTENT
    stores = kernel.sink.operands
    if any(each.operands[0] not in grown or each.operands[1] is not index for each in stores):
        return None
    values = substitute_all(tuple([each.operands[2] for each in stores]), places)
    written = [
        each.replace((grown[each.operands[0]], ANY_EXTENT, value, *each.operands[3:]))
        for each, value in zip(stores, values, strict=True)
    ]
    return _with_sink(kernel, UOp(Op.SINK, dtypes.void, tuple(written)))


def _with_sink(kernel: Kernel, sink: UOp) -> Kernel | None:
    nodes = walk((sink,))
    params = {node.attrs.number: node for node in nodes if node.op is Op.PARAM}
    leaves = {ANY_EXTENT, *params.values()}
    if any(node.op in (Op.RANGE, Op.PARAM) and node not in leaves for node in nodes):
        return None
    if not all(_is_open(node) for node in nodes if node.op is Op.LOAD):
        return None
    elements = [params[number].attrs.elements for number in range(len(kernel.params))]
    sized = zip(kernel.params, elements, strict=True)
    return replace(
        kernel,
        name=f"{kernel.name.rpartition('_')[0]}_any",
        sink=sink,
        ranges=(ANY_EXTENT,),
        params=tuple([replace(param, elements=count) for param, count in sized]),
        index_dtype=dtypes.int32,
        instanced=True,
    )


def _is_open(load: UOp) -> bool:
    param, index, *guard = load.operands
    if guard:
        return False
    return index is ANY_EXTENT if param.attrs.elements == MOST_ELEMENTS else index.op is Op.CONST
