"""Decides which values of a LINEAR form are written at their only use instead of named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tinytensor.ops.bounds import bounds_of
from tinytensor.ops.linear import is_pure
from tinytensor.ops.op import CLOSERS, OPENERS, Op
from tinytensor.ops.uop import UOp


@dataclass(slots=True)
class _Place:
    """Where a value is defined and read: positions of statements, and the number of its block."""

    block: int
    readers: list[int]


def find_inlined(statements: Sequence[UOp]) -> frozenset[int]:
    """Return the positions of values that may be written inside their only reader.

    They are read once, in their own block: a value placed before a loop stays before it. A READ
    also needs that no WRITE of its register comes before the statement it ends up in, a LOAD that
    no STORE to its buffer does.
    """
    places = _find_places(statements)
    writes = _find_writes(statements)
    inlined: set[int] = set()
    landing = list(range(len(statements)))
    for position in reversed(range(len(statements))):
        node, place = statements[position], places[position]
        if len(place.readers) != 1 or not (is_pure(node) or node.op is Op.READ):
            continue
        reader = place.readers[0]
        if places[reader].block != place.block or statements[reader].op is Op.LOOP:
            continue
        if node.op in (Op.READ, Op.LOAD):
            changes = writes.get(node.operands[0], ())
            if any(position < each < landing[reader] for each in changes):
                continue
        inlined.add(position)
        landing[position] = landing[reader]
    return frozenset(inlined)


def _find_writes(statements: Sequence[UOp]) -> dict[UOp, list[int]]:
    writes: dict[UOp, list[int]] = {}
    for position, node in enumerate(statements):
        if node.op in (Op.WRITE, Op.STORE):
            writes.setdefault(node.operands[0], []).append(position)
    return writes


def _find_places(statements: Sequence[UOp]) -> list[_Place]:
    """Resolve each operand to the statement that defines it in the innermost block around."""
    places: list[_Place] = []
    scopes: list[dict[UOp, int]] = [{}]
    blocks = [0]
    for position, node in enumerate(statements):
        if node.op in CLOSERS:
            scopes.pop()
            blocks.pop()
        for each in node.operands:
            definition = next(scope[each] for scope in reversed(scopes) if each in scope)
            places[definition].readers.append(position)
        places.append(_Place(blocks[-1], []))
        scopes[-1][node] = position
        if node.op in OPENERS:
            scopes.append({})
            blocks.append(position + 1)
    return places


def estimate_steps(statements: Sequence[UOp]) -> int:
    """Estimate how many statements a run executes; a loop of unknown length counts as 1000."""
    steps = 0
    trips = [1]
    for node in statements:
        if node.op is Op.LOOP:
            trips.append(trips[-1] * _count_trips(node))
        elif node.op is Op.ENDLOOP:
            trips.pop()
        steps += trips[-1]
    return steps


UNKNOWN_TRIPS = 1000


def _count_trips(loop: UOp) -> int:
    begin, end = loop.operands
    least, most = max(bounds_of(begin)[0], 0), bounds_of(end)[1]
    if most >= end.dtype.max:
        return UNKNOWN_TRIPS
    return max(0, -int((least - most) // loop.attrs.step))
