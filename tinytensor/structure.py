"""Turns a graph with sizes known only at launch into what all graphs of its structure share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
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
from tinytensor.ops.size import Size, numbered_variables, value_of
from tinytensor.ops.uop import UOp, substitute_all, walk

Structure = tuple[Any, ...]  # nested tuples of ops, dtypes, attrs and numbers: only compared


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
    expressions: list[UOp] = []
    for node in order:  # without calls, because every graph passes here
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

    Equal buffers stay equal. Nor does it matter to a schedule where gradients end.
    """
    numbers = {node: number for number, node in enumerate(order)}
    known = numbered_variables(variables)
    described = [
        (node.dtype, _closed(node.attrs.shape, known))
        if node.op is Op.BUFFER
        else (
            *(node.op, node.dtype, _described(node, known)),
            *[numbers[each] for each in node.operands],
        )
        for node in order
    ]
    pairs = [(numbers[root], numbers.get(leaf)) for root, leaf in replaceable.items()]
    return (*described, *[numbers[root] for root in roots], *pairs)


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


def _described(node: UOp, known: dict[UOp, UOp]) -> object:
    if node.op is Op.DETACH:
        return None
    if node.op is Op.VARIABLE:
        return known[node]
    if not known or node.attrs is None or not any(_sizes_in(node.attrs)):
        return node.attrs
    return tuple([_closed(getattr(node.attrs, each.name), known) for each in fields(node.attrs)])


def _closed(value: object, known: dict[UOp, UOp]) -> object:
    """Return what describes sizes, whatever the values of variables are."""
    if isinstance(value, tuple):
        return tuple([_closed(each, known) for each in value]) if known else value
    if isinstance(value, Size):
        return substitute_all((value.expression,), known)[0]
    return value
