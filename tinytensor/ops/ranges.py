"""Turns an INDEXED graph into facts about ranges: what each node folds over and varies over."""

from __future__ import annotations

from collections.abc import Sequence

from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp


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
