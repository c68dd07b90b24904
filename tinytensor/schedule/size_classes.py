"""Narrows products on a GPU to the class of sizes that they have now, which their tiles suit.

Takes:  a kernel's call with variables, whose values are known while the graph is built.
Gives:  the same for a class of values, which becomes a claim; an extent of 1 is no range any more.
Placed: after `kernels`.
"""

from __future__ import annotations

import math
from dataclasses import replace

from tinytensor.ops.bounds import bounds_of
from tinytensor.ops.kernel import Decision
from tinytensor.ops.op import Op
from tinytensor.ops.simplify_index import simplify_index
from tinytensor.ops.size import claim_within, value_of
from tinytensor.ops.uop import (
    UOp,
    exact_extent,
    index_const,
    make_param,
    substitute,
    substitute_all,
    walk,
)
from tinytensor.schedule.contraction import facts_of, sum_at
from tinytensor.schedule.kernels import KernelCall, make_call, told_of
from tinytensor.schedule.lower_views import only_ranges, range_of
from tinytensor.target import Target

# The greatest size of each class: one tile suits sizes within a factor of 4.
CLASS_ENDS = (0, 1, 128, 512, 2048, 8192)
REASON = "tiles are chosen for {}; one program serves all of them."


def narrow_products(call: KernelCall, target: Target) -> KernelCall:
    """Return a call for the class of sizes of this moment."""
    kernel = call.kernel
    if kernel.contraction is None or not call.variables or target.kind != "cuda":
        return call
    nodes = walk([kernel.sink, *kernel.ranges])
    counted = set(walk(map(exact_extent, kernel.ranges)))  # any number of products is summed alike
    narrowed: dict[UOp, UOp] = {}  # the graph's variables
    places: dict[UOp, UOp] = {}
    for each, numbered in zip(call.variables, kernel.variables, strict=True):
        narrow = _narrowed(each) if numbered in counted else each
        narrowed[each] = places[numbered] = narrow
    for node in nodes:
        number = node.attrs.number if node.op in (Op.RANGE, Op.PARAM) else 0
        if node.op is Op.RANGE and node.is_open:
            extent = _replaced(exact_extent(node), places)
            places[node] = range_of(extent, number)
        elif node.op is Op.PARAM:
            places[node] = _param(number, call.nodes[number], narrowed)
    places[kernel.contraction.node] = sum_at(kernel.contraction, places)
    sink, *ranges = substitute_all((kernel.sink, *kernel.ranges), places)
    decisions = [each for each in kernel.decisions if each.kind != "contract"]
    decisions[:0] = told_of(facts_of(walk((sink,))))
    decisions.append(_told(narrowed))
    made = make_call(sink, only_ranges(ranges), call.nodes, tuple(decisions))
    own = {narrow: each for each, narrow in narrowed.items()}
    variables = tuple([own[each] for each in made.variables])
    return replace(made, variables=variables, apart=call.apart)


def _narrowed(variable: UOp) -> UOp:
    """Claim the class of a variable's value; return the variable between the ends of the class."""
    value = value_of(variable)
    below = max([each for each in CLASS_ENDS if each < value], default=-1)
    above = [each for each in CLASS_ENDS if each >= value]
    attrs = variable.attrs
    least = max(attrs.least, below + 1)
    most = min([attrs.most, *above])
    claim_within(variable, least, most)
    if least == most:
        return index_const(value)
    attrs = replace(attrs, least=least, most=most)
    return UOp(Op.VARIABLE, variable.dtype, (), attrs)


def _replaced(count: UOp, places: dict[UOp, UOp]) -> UOp:
    return simplify_index(substitute(count, places))


def _param(number: int, node: UOp, narrowed: dict[UOp, UOp]) -> UOp:
    """Return the PARAM of a node, which has as many elements as it may have in the class."""
    extents = map(index_const, node.shape)
    count = math.prod(extents, start=index_const(1))
    most = bounds_of(_replaced(count, narrowed))[1]
    return make_param(node.dtype, number, int(most))


def _told(narrowed: dict[UOp, UOp]) -> Decision:
    parts = []
    for each in narrowed.values():
        least, most = bounds_of(each)
        parts.append(f"{least} to {most}")
    reason = REASON.format(", ".join(parts))
    return Decision("class", "open sizes", reason)
