"""Lets a kernel compute in an operand's memory: two of its params become one.

A kernel may, when it reads each element of the operand where it writes the same element of the
output, because all values of a point are computed before the first of them is stored. Then no two
params overlap, and what reads or writes the one param knows that it changes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from tinytensor.ops.attrs import ParamAttrs
from tinytensor.ops.kernel import Decision, Kernel
from tinytensor.ops.op import Op
from tinytensor.ops.ranges import folded_ranges
from tinytensor.ops.uop import UOp, substitute, walk

REASON = "it is computed in the memory of operand {}, which nobody reads after it."


def may_take(kernel: Kernel, output: int, operand: int) -> bool:
    """Say whether an output may lie where an operand lies; both are numbers of params.

    Without a fold, each point of the ranges writes an element of its own, for all plans. So it is
    enough that every index at which the operand is read is the store's.
    """
    written, read = kernel.params[output], kernel.params[operand]
    points = math.prod([each.extent for each in kernel.ranges])
    if written.dtype is not read.dtype or {written.elements, read.elements} != {points}:
        return False
    nodes = walk((kernel.sink,))
    if any(map(folded_ranges, nodes)):
        return False
    places = {
        node.operands[1]
        for node in nodes
        if node.op in (Op.LOAD, Op.STORE)
        if node.operands[0].attrs.number in (output, operand)
    }
    return len(places) == 1


def merge_params(kernel: Kernel, taken: Mapping[int, int]) -> Kernel:
    """Return the kernel with the params of some outputs in place of those of operands."""
    kept = [number for number in range(len(kernel.params)) if number not in taken.values()]
    outputs = {operand: output for output, operand in taken.items()}
    renamed = {
        node: _renumbered(node, kept.index(outputs.get(node.attrs.number, node.attrs.number)))
        for node in walk((kernel.sink,))
        if node.op is Op.PARAM
    }
    reasons = [Decision("reuse", f"output {each}", REASON.format(taken[each])) for each in taken]
    return replace(
        kernel,
        sink=substitute(kernel.sink, renamed),
        params=tuple([kernel.params[number] for number in kept]),
        decisions=(*kernel.decisions, *reasons),
    )


def _renumbered(param: UOp, number: int) -> UOp:
    return UOp(Op.PARAM, param.dtype, (), ParamAttrs(number, param.attrs.elements))
