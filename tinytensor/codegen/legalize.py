"""Turns LINEAR form with any thread-level op into LINEAR form with only the ops its target has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tinytensor.codegen.instructions_cuda import is_instruction
from tinytensor.codegen.legalize_casts import legalize_cast
from tinytensor.codegen.legalize_floats import (
    legalize_arithmetic,
    legalize_compare,
    legalize_function,
    legalize_maximum,
    legalize_modulo,
    legalize_negation,
)
from tinytensor.codegen.legalize_integers import (
    divide_toward_floor,
    legalize_bits,
    shift_left,
    shift_right,
)
from tinytensor.codegen.legalize_philox import legalize_philox
from tinytensor.codegen.placement import Placement, drop_unused
from tinytensor.ops.linear import Linear
from tinytensor.ops.op import COMPARE, Op
from tinytensor.ops.uop import UOp
from tinytensor.target import Target

Rule = Callable[[UOp, Target], UOp]

# A rule returns the node itself when it is legal already. An op without a row is always legal.
RULES: dict[Op, Rule] = {
    **dict.fromkeys((Op.ADD, Op.SUB, Op.MUL), legalize_arithmetic),
    **dict.fromkeys((Op.DIV, Op.SQRT, Op.FLOOR, Op.TRUNC), legalize_arithmetic),
    **dict.fromkeys((Op.MAX, Op.MIN), legalize_maximum),
    **dict.fromkeys((Op.EXP, Op.LOG, Op.SIN, Op.COS, Op.TANH, Op.ERF), legalize_function),
    **dict.fromkeys(COMPARE, legalize_compare),
    **dict.fromkeys((Op.AND, Op.OR, Op.XOR), legalize_bits),
    Op.NEG: legalize_negation,
    Op.FLOORDIV: divide_toward_floor,
    Op.MOD: legalize_modulo,
    Op.SHL: shift_left,
    Op.SHR: shift_right,
    Op.PHILOX: legalize_philox,
    Op.CAST: legalize_cast,
}


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
            rule = None if is_instruction(node, self.target) else RULES.get(node.op)
            self._results[node] = node if rule is None else rule(node, self.target)
        return self._results[node]
