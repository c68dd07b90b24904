"""Lets a kernel compute in an operand's memory: two of its params become one.

A kernel may, when it reads each element of the operand before it writes the same element of the
output, and never again. Then no two params overlap, and what reads or writes the one param knows
that it changes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from tinytensor.ops.attrs import ParamAttrs
from tinytensor.ops.kernel import Decision, Kernel
from tinytensor.ops.op import Op
from tinytensor.ops.ranges import dependencies, folded_ranges
from tinytensor.ops.simplify_index import simplify_index
from tinytensor.ops.uop import UOp, substitute, walk

REASON = "it is computed in the memory of operand {}, which nobody reads after it."


def may_take(kernel: Kernel, output: int, operand: int) -> bool:
    """Say whether an output may lie where an operand lies; both are numbers of params.

    Each point of the ranges writes an element of its own, for all plans. So it is enough that every
    index at which the operand is read is the store's, that folds read elements of their own row
    alone, and that no store that follows needs the operand. All plans finish what folds a row
    before they store the first element of it.
    """
    written, read = kernel.params[output], kernel.params[operand]
    points = math.prod([each.extent for each in kernel.ranges])
    if written.dtype is not read.dtype or {written.elements, read.elements} != {points}:
        return False
    stores = kernel.sink.operands
    numbers = [store.operands[0].attrs.number for store in stores]
    place = numbers.index(output)
    folds = {node for node in walk(stores) if folded_ranges(node)}
    index = stores[place].operands[1]
    outside = [node for node in walk(stores, stop=folds) if _reads(node, operand)]
    return (
        all(load.operands[1] is index for load in outside)
        and all(_folds_own_row(kernel, fold, folds, operand, index) for fold in folds)
        and not any(_reads(node, operand) for node in walk(stores[place + 1 :], stop=folds))
    )


def _folds_own_row(
    kernel: Kernel, fold: UOp, folds: AbstractSet[UOp], operand: int, index: UOp
) -> bool:
    """Whether a fold reads of an operand what the points of its own row, and no others, write.

    Rows are the ranges over which the folds vary: the same ones for all, or a plan may fold anew
    inside a row. A contraction may keep parts of its sums where its result will lie.
    """
    if fold.op is Op.CONTRACT:
        return False
    reads = [node for node in walk(fold.operands[:1], stop=folds) if _reads(node, operand)]
    if not reads:
        return True
    varies = dependencies(walk((kernel.sink,)))
    rows = varies[fold]
    apart = [each for each in kernel.ranges if each not in rows]
    folded = _by_number(folded_ranges(fold))
    own = dict(zip(folded, _by_number(apart), strict=False))
    places = {simplify_index(substitute(node.operands[1], own)) for node in reads}
    return (
        all(varies[each] == rows and folded_ranges(each) for each in folds)
        and rows <= frozenset(kernel.ranges)
        and all(mine.extent == each.extent for mine, each in own.items())
        and places == {simplify_index(index)}
    )


def _by_number(ranges: Sequence[UOp]) -> list[UOp]:
    """Sort ranges as the axes they run over."""
    return sorted(ranges, key=lambda each: each.attrs.number)


def _reads(node: UOp, number: int) -> bool:
    return node.op is Op.LOAD and node.operands[0].attrs.number == number


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
