"""Turns an INDEXED graph into facts about ranges: what each node folds over and varies over."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from tinytensor.ops.op import Op
from tinytensor.ops.simplify_index import simplify_index
from tinytensor.ops.uop import UOp, index_const, substitute


def folded_ranges(node: UOp) -> tuple[UOp, ...]:
    """Return the ranges a REDUCE or CONTRACT folds over; none for other ops."""
    if node.op is Op.REDUCE:
        return node.operands[1:]
    return node.operands[2:] if node.op is Op.CONTRACT else ()


def dependencies(nodes: Sequence[UOp]) -> dict[UOp, frozenset[UOp]]:
    """Return the ranges that each node varies over; operands come before users in `nodes`."""
    depends: dict[UOp, frozenset[UOp]] = {}
    for node in nodes:
        own = frozenset([node] if node.op is Op.RANGE else [])
        found = own.union(*[depends[each] for each in node.operands])
        depends[node] = found.difference(folded_ranges(node))
    return depends


@functools.lru_cache(maxsize=64)  # a sort runs few kernels many times
def open_ranges(sink: UOp, ranges: tuple[UOp, ...]) -> UOp:
    """Return a sink without folds that has a copy of each store for every value of some ranges."""
    for each in ranges:
        values = [index_const(value) for value in range(each.extent)]
        copies = [substitute(sink, {each: value}) for value in values]
        stores = tuple([store for copy in copies for store in copy.operands])
        sink = simplify_index(sink.replace(stores))
    return sink
