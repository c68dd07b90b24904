"""Lets a kernel compute in an operand's memory: two of its params become one.

A kernel may, when it reads each element of the operand where it writes the same element of the
output, because all values of a point are computed before the first of them is stored. Then no two
params overlap, and what reads or writes the one param knows that it changes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from tinytensor.ops.kernel import Decision, Kernel
from tinytensor.ops.op import Op
from tinytensor.ops.ranges import dependencies, folded_ranges, open_ranges
from tinytensor.ops.simplify_index import simplify_index
from tinytensor.ops.uop import UOp, by_number, make_param, substitute, walk
from tinytensor.schedule.describe import describe
from tinytensor.schedule.narrowing import narrow_writes

MOST_STORES = 16  # of each point, so that all their values find a register
MOST_NODES = 1000  # of all its points: 16 that exchange elements four times have 140
FOLDS = (Op.REDUCE, Op.CONTRACT)
REASON = "it is computed in the memory of the operand {}, which nobody reads after it."


def may_take(kernel: Kernel, output: int, operand: int) -> bool:
    """Say whether an output may lie where an operand lies; both are numbers of params.

    Each point of the ranges writes an element of its own, for all plans. So it is enough that every
    index at which the operand is read is the store's, and that folds read elements of their own row
    alone. All plans finish what folds a row before they store the first element of it; but beside
    folds no store that follows may need the operand. Without folds, a point may also read what a
    few others write, and runs these as well: all their values are computed before the first store.
    """
    if not _are_alike(kernel, output, operand):
        return False
    stores = kernel.sink.operands
    written = [store.operands[0] for store in stores]
    numbers = [param.attrs.number for param in written]
    place = numbers.index(output)
    index = stores[place].operands[1]
    folds = _folds_in(stores)
    is_guarded = any(len(load.operands) > 2 for load in _loads(stores, frozenset(), operand))
    if kernel.variables and (folds or is_guarded):
        return False  # what is guarded may end before the output does, whatever both are at most
    later = stores[place + 1 :]
    if folds and _indices(later, folds, operand):
        return False
    found = _indices(stores, folds, operand)
    if any(each is not index for each in found):
        return bool(ranges_in_one(kernel, operand))
    return all(_folds_own_row(kernel, fold, folds, operand, index) for fold in folds)


def ranges_in_one(kernel: Kernel, operand: int) -> tuple[UOp, ...]:
    """Return few ranges that a point may run in one, to write each element that it reads.

    None where each point alone does, or no such ranges do it; nor where a param is not needed once
    it is known which point reads it, since a kernel needs all of its params; nor where all points
    have little in common, so that the kernel would grow with them.
    """
    stores = kernel.sink.operands
    if _folds_in(stores) or len(stores) > 1:
        return ()
    index = stores[0].operands[1]
    found = _indices(stores, frozenset(), operand)
    steps = [simplify_index(index - each) for each in found if each is not index]
    varied = set(walk(steps))
    apart = tuple([each for each in kernel.ranges if each in varied])
    if not apart or any(each.is_open for each in apart):
        return ()
    points = math.prod([each.extent for each in apart])
    if points > MOST_STORES:
        return ()
    opened = open_ranges(kernel.sink, apart).operands
    nodes = walk(opened)
    if len(nodes) > MOST_NODES or len(by_number(nodes, Op.PARAM)) < len(kernel.params):
        return ()
    written = {store.operands[1] for store in opened}
    read = _indices(opened, frozenset(), operand)
    return apart if written.issuperset(read) else ()


def _folds_in(stores: Sequence[UOp]) -> frozenset[UOp]:
    return frozenset([node for node in walk(stores) if node.op in FOLDS])


def _are_alike(kernel: Kernel, output: int, operand: int) -> bool:
    """Whether both have one element for each point, of one dtype."""
    written, read = kernel.params[output], kernel.params[operand]
    points = math.prod([each.extent for each in kernel.ranges])
    if written.dtype is not read.dtype:
        return False
    return written.elements == points == read.elements


def _indices(roots: Sequence[UOp], folds: AbstractSet[UOp], operand: int) -> list[UOp]:
    """Return where an operand is read outside of folds."""
    return [load.operands[1] for load in _loads(roots, folds, operand)]


def _loads(roots: Sequence[UOp], folds: AbstractSet[UOp], operand: int) -> list[UOp]:
    loads = [node for node in walk(roots, stop=folds) if node.op is Op.LOAD]
    return [load for load in loads if load.operands[0].attrs.number == operand]


def _folds_own_row(
    kernel: Kernel, fold: UOp, folds: AbstractSet[UOp], operand: int, index: UOp
) -> bool:
    """Whether a fold reads of an operand what the points of its own row, and no others, write.

    Rows are the ranges over which the folds vary: the same ones for all, or a plan may fold anew
    inside a row. A contraction may keep parts of its sums where its result will lie.
    """
    folded = folded_ranges(fold)
    if fold.op is Op.CONTRACT or not folded:
        return False
    found = _indices(fold.operands[:1], folds, operand)
    if not found:
        return True
    varies = dependencies(walk((kernel.sink,)))
    rows = varies[fold]
    if any(varies[each] != rows for each in folds):
        return False
    apart = [each for each in kernel.ranges if each not in rows]
    if not rows <= frozenset(kernel.ranges):
        return False
    own = dict(zip(by_number(folded, Op.RANGE), by_number(apart, Op.RANGE), strict=False))
    if any(mine.extent != each.extent for mine, each in own.items()):
        return False
    wanted = simplify_index(index)
    places = [simplify_index(substitute(each, own)) for each in found]
    return all(each is wanted for each in places)


def tell_reuse(nodes: Sequence[UOp], taken: Mapping[int, int]) -> list[Decision]:
    """Say it of each output that takes over an operand, by their numbers among the nodes."""
    told = []
    for output, operand in taken.items():
        reason = REASON.format(describe(nodes[operand]))
        told.append(Decision("reuse", describe(nodes[output]), reason))
    return told


def merge_params(kernel: Kernel, taken: Mapping[int, int]) -> Kernel:
    """Return the kernel with the params of some outputs in place of those of operands.

    It then writes only what changes.
    """
    kept = [number for number in range(len(kernel.params)) if number not in taken.values()]
    outputs = {operand: output for output, operand in taken.items()}
    places = [kept.index(outputs.get(each, each)) for each in range(len(kernel.params))]
    renamed = {
        node: make_param(node.dtype, places[node.attrs.number], node.attrs.elements)
        for node in by_number(walk((kernel.sink,)), Op.PARAM)
    }
    in_one = tuple([each for operand in taken.values() for each in ranges_in_one(kernel, operand)])
    merged = replace(
        kernel,
        sink=substitute(open_ranges(kernel.sink, in_one), renamed),  # opened when it was asked
        ranges=tuple([each for each in kernel.ranges if each not in in_one]),
        params=tuple([kernel.params[number] for number in kept]),
    )
    return narrow_writes(merged)
