"""Turns LINEAR form with any thread-level op into LINEAR form with only the ops its target has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tinytensor.codegen.instructions_cuda import is_instruction
from tinytensor.codegen.legalize_casts import legalize_cast
from tinytensor.codegen.legalize_floats import (
    legalize_function,
    legalize_half,
    legalize_maximum,
    legalize_modulo,
    negate_half,
)
from tinytensor.codegen.legalize_integers import (
    BOOL_RULES,
    divide_toward_floor,
    legalize_bool,
    shift_left,
    shift_right,
)
from tinytensor.codegen.legalize_philox import legalize_philox
from tinytensor.codegen.placement import Placement, drop_unused
from tinytensor.dtype import dtypes
from tinytensor.ops.linear import Linear
from tinytensor.ops.op import COMPARE, FUNCTIONS, UNARY, Op
from tinytensor.ops.uop import UOp
from tinytensor.target import Target

Rule = Callable[[UOp, Target], UOp]

# A rule returns the node itself when it is legal already. An op without a row is always legal.
RULES: dict[Op, Rule] = {
    **dict.fromkeys((Op.MAX, Op.MIN), legalize_maximum),
    **dict.fromkeys(FUNCTIONS, legalize_function),
    Op.FLOORDIV: divide_toward_floor,
    Op.MOD: legalize_modulo,
    Op.SHL: shift_left,
    Op.SHR: shift_right,
    Op.PHILOX: legalize_philox,
    Op.CAST: legalize_cast,
}
ON_HALVES: dict[Op, Rule] = {
    **dict.fromkeys((Op.ADD, Op.SUB, Op.MUL, Op.DIV, Op.MOD, Op.MAX, Op.MIN), legalize_half),
    **dict.fromkeys((*COMPARE, *UNARY), legalize_half),
    Op.NEG: negate_half,
}


def find_rule(node: UOp) -> Rule | None:
    """Return the rule for a node, by its op and the dtype of its operands."""
    dtype = node.operands[0].dtype if node.operands else node.dtype
    if dtype.scalar is dtypes.bool and node.op in BOOL_RULES:
        return legalize_bool
    if dtype.is_half and node.op in ON_HALVES:
        return ON_HALVES[node.op]
    return RULES.get(node.op)


def legalize(linear: Linear, target: Target) -> Linear:
    """Replace what C lacks by arithmetic that it has; the value of every node is kept.

    What is an instruction of the target stays.

    Takes:  LINEAR form as plans write it.
    Gives:  LINEAR form without FLOORDIV, MOD, MAX, MIN, PHILOX, functions; halves are only moved,
            selected and cast to and from float32; bool has AND OR XOR and WHERE alone; shifts stay
            inside their width, casts of floats to integers inside the integer's range.
    Placed: after the plan, before emission. On its own output it changes nothing.
    """
    legalizer = _Legalizer(target)
    placement = Placement()
    for node in linear.statements:
        placement.add(legalizer.legal(node))
    return replace(linear, statements=drop_unused(placement.statements))


class _Legalizer:
    """Applies the rules to a node, its operands, and whatever the rules produce."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._legal: dict[UOp, UOp] = {}
        self._results: dict[UOp, UOp] = {}

    def legal(self, root: UOp) -> UOp:
        """Return the node that replaces this one. Iterative: depth does not matter."""
        pending = [root]
        while pending:
            node = pending[-1]
            waits_for = self._advance(node) if node not in self._legal else []
            pending.extend(waits_for)
            if not waits_for:
                pending.pop()
        return self._legal[root]

    def _advance(self, node: UOp) -> list[UOp]:
        """Settle a node, or name the nodes that must be settled before."""
        waits_for = [each for each in node.operands if each not in self._legal]
        if waits_for:
            return waits_for
        rebuilt = node.replace(tuple([self._legal[each] for each in node.operands]))
        result = self._result(rebuilt)
        if result is rebuilt:
            self._legal[rebuilt] = rebuilt
        elif result not in self._legal:
            return [result]
        self._legal[node] = self._legal[result]
        return []

    def _result(self, node: UOp) -> UOp:
        if node not in self._results:
            rule = None if is_instruction(node, self.target) else find_rule(node)
            self._results[node] = node if rule is None else rule(node, self.target)
        return self._results[node]
