"""Turns a graph with sizes known only at launch into what all graphs of its structure share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from itertools import chain
from operator import attrgetter
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

# What a schedule depends on of each node, besides its operands.
FACTS = attrgetter("op", "dtype", "content")
OPERANDS = attrgetter("operands")

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
        attrs = node.attrs
        if node.op is Op.VARIABLE:
            expressions.append(node)
        for name in SIZED.get(type(attrs), ()):
            value = getattr(attrs, name)
            sizes = value if type(value) is tuple else (value,)
            if Size in map(type, sizes):
                expressions += [each.expression for each in sizes if type(each) is Size]
    if not expressions:
        return ()
    return tuple([node for node in walk(expressions) if node.op is Op.VARIABLE])


def structure_of(
    order: Sequence[UOp],
    roots: Sequence[UOp],
    replaceable: dict[UOp, UOp],
    variables: Sequence[UOp] = (),
) -> Structure:
    """Describe a graph up to which buffers its leaves are, and which values its variables have.

    Equal buffers stay equal. Nor does it matter to a schedule where gradients end. Every graph
    passes here at each of its calls, so what all nodes have is read without a line of Python each.
    """
    numbers = dict(zip(order, range(len(order)), strict=True))
    operands = list(map(OPERANDS, order))
    facts = chain.from_iterable(map(FACTS, order))
    if variables:
        known = numbered_variables(variables)
        facts = chain.from_iterable([_closed_facts(node, known) for node in order])
    found: list[object] = [*facts, *map(len, operands)]
    found += map(numbers.__getitem__, chain(chain.from_iterable(operands), roots))
    found += [(numbers[root], numbers.get(leaf)) for root, leaf in replaceable.items()]
    return tuple(found)


def rebound(roots: Sequence[UOp], places: dict[UOp, UOp]) -> list[UOp]:
    """Return graphs with other variables in the place of some, wherever sizes are made of them."""
    made: dict[UOp, UOp] = dict(places)
    for node in walk(roots, stop=set(places)):
        if node not in made:
            operands = tuple([made[each] for each in node.operands])
            attrs = _rebound_attrs(node.attrs, places)
            made[node] = UOp(node.op, node.dtype, operands, attrs)
    return [made[root] for root in roots]


def _rebound_attrs(attrs: Attrs | None, places: dict[UOp, UOp]) -> Attrs | None:
    if attrs is None or not any(_sizes_in(attrs)):
        return attrs
    changed = {
        each.name: _rebound_value(getattr(attrs, each.name), places) for each in fields(attrs)
    }
    return replace(attrs, **changed)


def _rebound_value(value: object, places: dict[UOp, UOp]) -> object:
    if isinstance(value, tuple):
        return tuple([_rebound_value(each, places) for each in value])
    if not isinstance(value, Size):
        return value
    (expression,) = substitute_all((value.expression,), places)
    known = {node: value_of(node) for node in walk([expression]) if node.op is Op.VARIABLE}
    return Size(expression, index_at(expression, known))


def _sizes_in(attrs: Attrs) -> Iterator[Size]:
    for field in fields(attrs):
        value = getattr(attrs, field.name)
        yield from [
            each
            for each in (value if isinstance(value, tuple) else (value,))
            if isinstance(each, Size)
        ]


def _closed_facts(node: UOp, known: dict[UOp, UOp]) -> tuple[object, ...]:
    """Return a node's facts, whatever the values of variables are."""
    content = known[node] if node.op is Op.VARIABLE else _closed(node.content, known)
    return (node.op, node.dtype, content)


def _closed(value: object, known: dict[UOp, UOp]) -> object:
    if isinstance(value, tuple):
        return tuple([_closed(each, known) for each in value])
    if isinstance(value, Size):
        return substitute_all((value.expression,), known)[0]
    return value
