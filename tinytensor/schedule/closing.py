"""Turns kernels whose plans fix extents in their code into kernels for the values of this moment.

Takes:  a kernel's call with variables, whose values are known while the graph is built.
Gives:  the same without variables; that they have these values becomes a claim.
Placed: after `kernels`; only for what no plan of the target takes open.
"""

from __future__ import annotations

from dataclasses import replace

from tinytensor.ops.attrs import ParamAttrs
from tinytensor.ops.extents import index_at
from tinytensor.ops.kernel import Decision, Param
from tinytensor.ops.op import Op
from tinytensor.ops.simplify import simplify
from tinytensor.ops.size import claim_value, elements_now
from tinytensor.ops.uop import UOp, exact_extent, index_const, make_range, substitute_all, walk
from tinytensor.schedule.contraction import facts_of
from tinytensor.schedule.kernels import KernelCall, name_of
from tinytensor.target import Target

REASON = "a matrix instruction's tiles fix their extents: one program for each of {}."


def close_products(call: KernelCall, target: Target) -> KernelCall:
    """Return a call that the target's plans take."""
    kernel = call.kernel
    if kernel.contraction is None or not call.variables or target.kind != "cuda":
        return call
    values = [claim_value(each) for each in call.variables]
    known = dict(zip(kernel.variables, values, strict=True))
    places: dict[UOp, UOp] = {each: index_const(value) for each, value in known.items()}
    for node in walk([kernel.sink, *kernel.ranges]):
        if node.op is Op.RANGE and node.is_open:
            extent = index_at(exact_extent(node), known)
            places[node] = make_range(node.attrs.number, extent)
        elif node.op is Op.PARAM:
            elements = elements_now(call.nodes[node.attrs.number].shape)
            attrs = ParamAttrs(node.attrs.number, elements)
            places[node] = UOp(Op.PARAM, node.dtype, (), attrs)
    sink, *ranges = substitute_all((kernel.sink, *kernel.ranges), places)
    (sink,) = simplify((sink,))
    nodes = walk((sink,))
    params = [
        Param(each.dtype, elements_now(node.shape), each.written)
        for each, node in zip(kernel.params, call.nodes, strict=True)
    ]
    told = Decision("decline", "open sizes", REASON.format(", ".join(map(str, values))))
    closed = replace(
        kernel,
        name=name_of(nodes, ranges),
        sink=sink,
        ranges=tuple(ranges),
        params=tuple(params),
        contraction=facts_of(nodes),
        decisions=(*kernel.decisions, told),
    )
    return KernelCall(closed, call.nodes)
