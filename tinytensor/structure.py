"""Turns a graph with sizes known only at launch into what all graphs of its structure share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from tinytensor.ops.attrs import (
    Attrs,
    BufferAttrs,
    CheckAttrs,
    ExtentAttrs,
    PadAttrs,
    ShapeAttrs,
    SliceAttrs,
)
from tinytensor.ops.extents import index_at
from tinytensor.ops.op import Op
from tinytensor.ops.size import Size, has_variables, numbered_variables, value_of
from tinytensor.ops.uop import UOp, substitute_all, walk

Structure = tuple[Any, ...]  # ops, dtypes, contents of attrs and numbers: only compared

# What is computed before what it lies below, or tells of mistakes there.
SPECIAL = frozenset((Op.COPY, Op.RUN, Op.CHECK))

# Where a graph's nodes hold sizes.
SIZED = {
    **dict.fromkeys((BufferAttrs, ShapeAttrs), ("shape",)),
    SliceAttrs: ("begin", "extent"),
    PadAttrs: ("before", "after"),
    ExtentAttrs: ("extent",),
    CheckAttrs: ("least", "end"),
}


def variables_of(order: Sequence[UOp]) -> tuple[UOp, ...]:
    """Return the variables that a graph's sizes and values are made of, by first visit."""
    if not has_variables():
        return ()
    expressions: list[UOp] = []
    for node in order:
        if node.op is Op.VARIABLE:
            expressions.append(node)
        for each in _sizes_in(node.attrs) if type(node.attrs) in SIZED else ():
            expressions.append(each.expression)
    return tuple([node for node in walk(expressions) if node.op is Op.VARIABLE])


class Graph:
    """Some roots and all nodes below them, each once: its place in `order` is its number.

    Roots come first, and each node after the first that reads it. `facts` are what a schedule
    depends on: the roots' numbers, and of each node its op, dtype and content, and its operands'
    numbers. It is not plain where a node is SPECIAL, or its value was computed before.
    """

    ends_at_known = is_new = False  # new: a plan was made for it, or looked up on the disk
    known: Mapping[UOp, UOp] = {}
    why: Mapping[UOp, str] = {}  # roots that nobody asked for are stored

    def __init__(self, roots: Sequence[UOp]) -> None:
        self.roots: list[UOp] = []
        self.order: list[UOp] = []
        self.numbers: dict[UOp, int] = {}
        self.facts: list[object] = []
        self.is_plain = True
        self.add(roots)

    def add(self, roots: Sequence[UOp]) -> None:
        """Take in more roots. Every graph passes here at each of its calls."""
        order, facts, number_of, special = self.order, self.facts, self.numbers.setdefault, SPECIAL
        self.roots += roots
        facts.append("roots")
        count = first = len(order)
        for root in roots:
            number = number_of(root, count)
            if number == count:
                order.append(root)
                count += 1
            facts.append(number)
        for node in islice(order, first, None):  # which grows
            op = node.op
            if node.computed is not None or op in special:
                self.is_plain = False
                if self.ends_at_known and self._ends_at(node):
                    continue
            facts += (op, node.dtype, node.content)
            for each in node.operands:
                number = number_of(each, count)
                if number == count:
                    order.append(each)
                    count += 1
                facts.append(number)

    def _ends_at(self, node: UOp) -> bool:
        leaf = node.computed() if node.computed is not None else None
        if leaf is not None:
            self.known = {**self.known, node: leaf}
        return leaf is not None


class UnknownGraph(Graph):
    """A graph down to the nodes whose value somebody keeps: `known`, each with its leaf.

    Only if it is plain do its facts tell all that a schedule depends on.
    """

    ends_at_known = True


def structure_of(
    graph: Graph, replaceable: dict[UOp, UOp], variables: Sequence[UOp] = ()
) -> Structure:
    """Describe a graph up to which buffers its leaves are, and which values its variables have.

    Equal buffers stay equal. Nor does it matter to a schedule where gradients end.
    """
    facts = graph.facts
    if not (variables or replaceable):
        return tuple(facts)
    numbers = graph.numbers
    if variables:
        known = numbered_variables(variables)
        facts = [numbers[root] for root in graph.roots]
        for node in graph.order:
            content = known[node] if node.op is Op.VARIABLE else _closed(node.content, known)
            facts += (node.op, node.dtype, content, *[numbers[each] for each in node.operands])
    replaced = [(numbers[root], numbers.get(leaf)) for root, leaf in replaceable.items()]
    return (*facts, *replaced)


def rebound(roots: Sequence[UOp], places: dict[UOp, UOp]) -> list[UOp]:
    """Return graphs with other variables in the place of some, wherever sizes are made of them."""
    made: dict[UOp, UOp] = dict(places)
    for node in walk(roots, stop=set(places)):
        if node not in made:
            operands = tuple([made[each] for each in node.operands])
            attrs = _rebound_attrs(node.attrs, places)
            made[node] = UOp(node.op, node.dtype, operands, attrs)
    return [made[root] for root in roots]


def rooted_on(roots: Sequence[UOp], places: dict[UOp, UOp]) -> list[UOp]:
    """Return graphs with other nodes in the place of some, in which gradients end nowhere."""
    made = dict(places)
    for node in walk(roots, stop=set(places)):
        if node not in made:
            operands = tuple([made[each] for each in node.operands])
            made[node] = operands[0] if node.op is Op.DETACH else node.replace(operands)
    return [made[root] for root in roots]


def _rebound_attrs(attrs: Attrs | None, places: dict[UOp, UOp]) -> Attrs | None:
    if attrs is None or not _sizes_in(attrs):
        return attrs
    names = SIZED[type(attrs)]
    return replace(attrs, **{each: _rebound_value(getattr(attrs, each), places) for each in names})


def _rebound_value(value: object, places: dict[UOp, UOp]) -> object:
    if isinstance(value, tuple):
        return tuple([_rebound_value(each, places) for each in value])
    if not isinstance(value, Size):
        return value
    (expression,) = substitute_all((value.expression,), places)
    known = {node: value_of(node) for node in walk([expression]) if node.op is Op.VARIABLE}
    return Size(expression, index_at(expression, known))


def _sizes_in(attrs: Attrs | None) -> list[Size]:
    found: list[Size] = []
    for name in SIZED.get(type(attrs), ()):
        value = getattr(attrs, name)
        for each in value if type(value) is tuple else (value,):
            if type(each) is Size:
                found.append(each)
    return found


def _closed(value: object, known: dict[UOp, UOp]) -> object:
    """Return what attrs contain, whatever the values of variables are."""
    if isinstance(value, tuple):
        return tuple([_closed(each, known) for each in value])
    if isinstance(value, Size):
        return substitute_all((value.expression,), known)[0]
    return value
