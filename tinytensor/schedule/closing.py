"""Turns kernels whose plans fix extents in their code into kernels for the values of this moment.

Takes:  a kernel's call with variables, whose values are known while the graph is built.
Gives:  the same without variables; that they have these values becomes a claim.
Placed: after `kernels`; only for what no plan of the target takes open.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tinytensor.ops.attrs import ParamAttrs
from tinytensor.ops.extents import index_at
from tinytensor.ops.kernel import Decision
from tinytensor.ops.op import Op
from tinytensor.ops.size import claim_value, elements_now
from tinytensor.ops.uop import UOp, exact_extent, index_const, substitute_all, walk
from tinytensor.schedule.contraction import facts_of, sum_at
from tinytensor.schedule.kernels import KernelCall, make_call, told_of
from tinytensor.schedule.lower_views import only_ranges, range_over
from tinytensor.target import Target

REASON = "a matrix instruction's tiles fix their extents: one program for each of {}."


def close_products(call: KernelCall, target: Target) -> KernelCall:
    """Return a call that the target's plans take."""
    kernel = call.kernel
    if kernel.contraction is None or not call.variables or target.kind != "cuda":
        return call
    values = [claim_value(each) for each in call.variables]
    places = _places(call, values)
    places[kernel.contraction.node] = sum_at(kernel.contraction, places)
    sink, *ranges = substitute_all((kernel.sink, *kernel.ranges), places)
    decisions = [each for each in kernel.decisions if each.kind != "contract"]
    decisions[:0] = told_of(facts_of(sink))
    named = ", ".join(map(str, values))
    decisions.append(Decision("decline", "open sizes", REASON.format(named)))
    closed = make_call(sink, only_ranges(ranges), call.nodes, tuple(decisions))
    return replace(closed, apart=call.apart)


def _places(call: KernelCall, values: Sequence[int]) -> dict[UOp, UOp]:
    """Return what takes the place of everything open, where variables have some values."""
    kernel = call.kernel
    known = dict(zip(kernel.variables, values, strict=True))
    places: dict[UOp, UOp] = {}
    for variable, value in known.items():
        places[variable] = index_const(value)
    for node in walk([kernel.sink, *kernel.ranges]):
        if node.op is Op.RANGE and node.is_open:
            extent = index_at(exact_extent(node), known)
            places[node] = range_over(extent, node.attrs.number)
        elif node.op is Op.PARAM:
            number = node.attrs.number
            elements = elements_now(call.nodes[number].shape)
            attrs = ParamAttrs(number, elements)
            places[node] = UOp(Op.PARAM, node.dtype, (), attrs)
    return places
