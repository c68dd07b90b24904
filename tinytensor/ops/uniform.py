"""Tells, of each statement of a thread block, among which threads its value and reach differ."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from tinytensor.ops.fragments import WARP_THREADS
from tinytensor.ops.linear import Linear
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp

OPENERS = (Op.LOOP, Op.IF)
CLOSERS = (Op.ENDLOOP, Op.ENDIF)
WARP_BITS = 5
FRAGMENTS = (Op.LDMATRIX, Op.MMA)


class Varies(IntEnum):
    """Among whom something differs: nobody of a block, its warps, or the lanes of a warp."""

    NOWHERE = 0
    BY_WARP = 1
    BY_LANE = 2


PLACES = {"thread": Varies.BY_LANE, "warp": Varies.BY_WARP}


@dataclass(slots=True)
class Reach:
    """Which threads come to a statement: how the branches around it vary, and its role."""

    varies: Varies
    role: UOp | None


def reaches(linear: Linear) -> list[Reach]:
    """Return, for each statement, which threads of a block come to it.

    Cautious: what is loaded or exchanged counts as different wherever its operands may differ.
    Cost: a few passes, until what registers hold is settled.
    """
    varies: dict[UOp, Varies] = {}
    while True:
        before = dict(varies)
        found = _walk(linear, varies)
        if varies == before:
            return found


def _walk(linear: Linear, varies: dict[UOp, Varies]) -> list[Reach]:
    found: list[Reach] = []
    around: list[Varies] = [Varies.NOWHERE]
    role: UOp | None = None
    for node in linear.statements:
        if node.op in CLOSERS:
            around.pop()
        elif node.op is Op.ENDROLE:
            role = None
        found.append(Reach(around[-1], role))
        varies[node] = _value(node, varies)
        if node.op in OPENERS:
            around.append(max(around[-1], varies[node]))
        elif node.op is Op.ROLE:
            role = node
        elif node.op is Op.WRITE:
            register, value = node.operands
            varies[register] = max(varies[register], varies[value], around[-1])
    return found


def _value(node: UOp, varies: dict[UOp, Varies]) -> Varies:
    if node.op is Op.PLACE:
        return PLACES.get(node.attrs.kind, Varies.NOWHERE)
    if node.op in FRAGMENTS:
        return Varies.BY_LANE
    found = max([varies[each] for each in node.operands], default=Varies.NOWHERE)
    if node.op is Op.REGISTER:
        return varies.get(node, Varies.NOWHERE)
    if _is_warp_number(node):
        return Varies.BY_WARP
    return found


def _is_warp_number(node: UOp) -> bool:
    """Whether a node is a thread's number divided by a multiple of a warp's threads."""
    if node.op in (Op.FLOORDIV, Op.TRUNCDIV):
        return _is_thread(node.operands[0]) and _is_whole_warps(node.operands[1])
    if node.op is Op.SHR:
        number, distance = node.operands
        return _is_thread(number) and distance.op is Op.CONST and int(distance.value) >= WARP_BITS
    return False


def _is_thread(number: UOp) -> bool:
    """Whether a node is the thread's number, counted from the start of some warp."""
    if number.op is Op.CAST:
        return _is_thread(number.operands[0])
    if number.op in (Op.ADD, Op.SUB):
        return _is_thread(number.operands[0]) and _is_whole_warps(number.operands[1])
    return number.op is Op.PLACE and number.attrs.kind == "thread"


def _is_whole_warps(number: UOp) -> bool:
    return number.op is Op.CONST and int(number.value) % WARP_THREADS == 0
