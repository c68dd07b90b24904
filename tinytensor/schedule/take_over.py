"""Lets a kernel compute in an operand's memory: two of its params become one.

A kernel may, when it reads each element of the operand before it writes the same element of the
output, and never again. Then no two params overlap, and what reads or writes the one param knows
that it changes.
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
from tinytensor.schedule.narrowing import narrow_writes

REASON = "it is computed in the memory of operand {}, which nobody reads after it."


def may_take(kernel: Kernel, output: int, operand: int) -> bool:
    """Say whether an output may lie where an operand lies; both are numbers of params.

    Without a fold, each point of the ranges writes an element of its own, for all plans. So it is
    enough that every index at which the operand is read is the store's, and that no store that
    follows needs the operand.
    """
    written, read = kernel.params[output], kernel.params[operand]
    points = math.prod([each.extent for each in kernel.ranges])
    if written.dtype is not read.dtype or {written.elements, read.elements} != {points}:
        return False
    stores = kernel.sink.operands
    numbers = [store.operands[0].attrs.number for store in stores]
    place = numbers.index(output)
    index = stores[place].operands[1]
    loads = [node for node in walk(stores) if _reads(node, operand)]
    if kernel.variables and any(len(load.operands) > 2 for load in loads):
        return False  # what is guarded may end before the output does, whatever both are at most
    return (
        all(load.operands[1] is index for load in loads)
        and not any(_reads(node, operand) for node in walk(stores[place + 1 :]))
        and not any(folded_ranges(node) for node in walk(stores))
    )


def _reads(node: UOp, number: int) -> bool:
    return node.op is Op.LOAD and node.operands[0].attrs.number == number


def merge_params(kernel: Kernel, taken: Mapping[int, int]) -> Kernel:
    """Return the kernel with the params of some outputs in place of those of operands.

    It then writes only what changes.
    """
    kept = [number for number in range(len(kernel.params)) if number not in taken.values()]
    outputs = {operand: output for output, operand in taken.items()}
    renamed = {
        node: _renumbered(node, kept.index(outputs.get(node.attrs.number, node.attrs.number)))
        for node in walk((kernel.sink,))
        if node.op is Op.PARAM
    }
    reasons = [Decision("reuse", f"output {each}", REASON.format(taken[each])) for each in taken]
    merged = replace(
        kernel,
        sink=substitute(kernel.sink, renamed),
        params=tuple([kernel.params[number] for number in kept]),
        decisions=(*kernel.decisions, *reasons),
    )
    return narrow_writes(merged)


def _renumbered(param: UOp, number: int) -> UOp:
    return UOp(Op.PARAM, param.dtype, (), ParamAttrs(number, param.attrs.elements))
