"""Makes one contraction of a sum over blocks of k whose sums are scaled, for a target that can.

`((x @ w) * scales).sum(0)`, with a batch of blocks of k, reads each sum of products once. Where a
plan scales them before it adds them up, the sum over the blocks is the contraction, and the one
below is a part of it.

Takes:  the sums of products of a graph.
Gives:  the same, with an outer sum in the place of the one below it.
Placed: before `materialize`, which then stores no block's sums.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tinytensor.dtype import dtypes
from tinytensor.ops.attrs import Combine
from tinytensor.ops.kernel import Contraction, Decision
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp, walk
from tinytensor.schedule.check import check_contraction
from tinytensor.schedule.contraction import path_to_sum, recognize_blocks
from tinytensor.schedule.kernels import computed_within
from tinytensor.schedule.landmarks import Ends, Search, find_landmarks
from tinytensor.schedule.lower_views import Point, ranges_over
from tinytensor.target import Target

Sums = Mapping[UOp, Contraction | Decision]
FLOAT8 = (dtypes.float8_e4m3fn, dtypes.float8_e5m2)
BYTES = (dtypes.int8, dtypes.uint8)
HALVES = (dtypes.float16, dtypes.bfloat16)


def join_blocks(
    order: Sequence[UOp], roots: Sequence[UOp], sums: Sums, target: Target, verify: bool
) -> dict[UOp, Contraction | Decision]:
    """Return the sums of a graph, those over blocks of k as one contraction each."""
    joined = dict(sums)
    outer = [node for node in order if node.op is Op.REDUCE and _adds_floats(node)]
    paths = {node: path_to_sum(node) for node in outer}
    paths = {node: path for node, path in paths.items() if path and path[-1] in sums}
    if not paths:
        return joined
    readers: dict[UOp, set[UOp | None]] = {each: {None} for each in roots}
    for node in order:
        for each in node.operands:
            readers.setdefault(each, set()).add(node)
    ends = find_landmarks(order)
    for node, path in paths.items():
        inner = path[-1]
        above = [node, *path]
        is_own = all(readers[each] == {user} for user, each in zip(above, path, strict=False))
        if not is_own or not isinstance(joined.get(inner), Contraction):
            continue
        lowering = Search(Ends(ends, computed_within(node)), next_range=len(node.shape))
        fact = recognize_blocks(node, lowering)
        if fact is None or not _fits(fact, target):
            continue
        joined[node] = fact
        del joined[inner]
        if verify:
            check_contraction(fact, lowering.compute(Point(node, ranges_over(node.shape, 0))))
    return joined


def _adds_floats(node: UOp) -> bool:
    return node.attrs.combine is Combine.ADD and node.dtype is dtypes.float32


def _fits(fact: Contraction, target: Target) -> bool:
    """Whether a plan scales the sums of such products on chip: whole stages of what it multiplies.

    Sums of floats of 8 bits lose bits in the instructions, so their blocks are one stage long.
    """
    (node,) = [each for each in walk((fact.node,)) if each.op is Op.CONTRACT]
    a, b = (each.dtype for each in node.operands[:2])
    summed = dtypes.int32 if a in BYTES else dtypes.float32
    is_known = any(a in kind and b in kind for kind in (FLOAT8, BYTES)) or (a in HALVES and a is b)
    if not is_known or node.dtype is not summed or any(each.is_open for each in fact.k):
        return False
    nbytes = math.prod([each.extent for each in node.operands[2:]]) * a.itemsize
    return nbytes % target.scaled_bytes == 0 and (a not in FLOAT8 or nbytes == target.scaled_bytes)
