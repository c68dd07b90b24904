"""Decides which factors are gathered from the windows that they read, rather than written out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from tinytensor.codegen.plans.alignment import ACCESS_BYTES, common_access
from tinytensor.codegen.plans.block_operand import BLOCK_MULTIPLE, Operand, split_k
from tinytensor.codegen.plans.lanes import accesses_of
from tinytensor.codegen.plans.pack_rows import rows_of
from tinytensor.codegen.plans.spread_windows import part_left
from tinytensor.codegen.vectorize import stride_of
from tinytensor.ops.kernel import Contraction, Kernel
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp, exact_extent, substitute

GATHERED_K = 32  # values of k of every tiling whose elements pass through registers
# Places of a row, below which tiles would be gathered half empty. On H200, 919bcfef, 2026-11-30, in
# us, written in rows and gathered: 64 x 64 x 56 x 56 halves by 3 x 3 to 64, 410 and 131, channels
# last 223 and 91; 64 x 128 x 28 x 28 269 and 273; 64 x 256 x 14 x 14 274 and 400.
LEAST_PLACES = 32
REPEATED = 1.5  # how often an element is read, on the average, where it is gathered each time


def put_taps_first(kernel: Kernel) -> Kernel:
    """Let k begin with the taps of windows, if a step of k then has one tap alone.

    The index of a tap, and its guard, are then the same for all elements of a step.
    """
    contraction = kernel.contraction
    assert contraction is not None, "only a contraction has taps"
    taps = [each for each in contraction.k if _is_tap(each, contraction)]
    rest = [each for each in contraction.k if each not in taps]
    extent = math.prod([each.extent for each in rest])
    if not taps or not rest or extent % GATHERED_K or any(each.is_open for each in contraction.k):
        return kernel
    node, k = contraction.node, (*taps, *rest)
    attrs = replace(node.attrs, k=tuple([each.attrs.number for each in k]))
    total = UOp(Op.CONTRACT, node.dtype, (*node.operands[:2], *k), attrs)
    sink = substitute(kernel.sink, {node: total})
    return replace(kernel, sink=sink, contraction=replace(contraction, node=total, k=k))


def _is_tap(range_: UOp, contraction: Contraction) -> bool:
    places = (*contraction.m, *contraction.n, *contraction.batch)
    loads = accesses_of(contraction.node.operands[:2])
    return any(
        1 / range_.extent < part_left(load, range_, range_.extent, (place,)) < 1
        for load in loads
        for place in places
        if 0 < range_.extent <= place.extent
    )


def gathered(operand: Operand, outer: Sequence[UOp]) -> Operand:
    """Return a factor as it is gathered, if it reads windows; else as it is.

    Elements are taken along k where several are adjacent, else along its other range.
    """
    if not is_gathered(operand, rows_of(operand, outer).elements):
        return operand
    value, _, within = split_k(operand, GATHERED_K)
    steps = {within: BLOCK_MULTIPLE, operand.free: BLOCK_MULTIPLE}
    widest = ACCESS_BYTES // operand.value.dtype.itemsize
    access = common_access((value,), within, steps, widest)
    inner = operand.k if access > 1 else operand.free
    return replace(operand, inner=inner, inner_extent=exact_extent(inner), access=access)


def is_gathered(operand: Operand, elements: int) -> bool:
    """Whether so many elements are read from much fewer, by an index that a step of k adds to."""
    if operand.is_direct or operand.k.is_open or operand.free.extent < LEAST_PLACES:
        return False
    value, _, within = split_k(operand, GATHERED_K)
    loads = accesses_of((value,))
    sources = {load.operands[0] for load in loads}
    held = sum([each.attrs.elements for each in sources])
    is_hoisted = all(_is_hoisted(load, within) for load in loads)
    return is_hoisted and elements >= REPEATED * held


def _is_hoisted(load: UOp, within: UOp) -> bool:
    """Whether a step's values of k add to a load's index, and nothing to its guard."""
    _, index, *guards = load.operands
    is_added = stride_of(index, within) is not None
    return is_added and all(stride_of(guard, within) == 0 for guard in guards)
