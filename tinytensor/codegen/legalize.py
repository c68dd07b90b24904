"""Turns LINEAR form with any thread-level op into LINEAR form with only the ops its target has."""

from __future__ import annotations

from collections.abc import Callable

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
    legalize_shift,
)
from tinytensor.codegen.legalize_philox import legalize_philox
from tinytensor.codegen.placement import rebuilt
from tinytensor.dtype import dtypes
from tinytensor.ops.linear import Linear
from tinytensor.ops.op import COMPARE, FUNCTIONS, UNARY, Op
from tinytensor.ops.rewrite import Rewriter
from tinytensor.ops.uop import UOp
from tinytensor.target import Target

Rule = Callable[[UOp, Target], UOp]

# A rule returns the node itself when it is legal already. An op without a row is always legal.
RULES: dict[Op, Rule] = {
    **dict.fromkeys((Op.MAX, Op.MIN), legalize_maximum),
    **dict.fromkeys(FUNCTIONS, legalize_function),
    **dict.fromkeys((Op.SHL, Op.SHR), legalize_shift),
    Op.FLOORDIV: divide_toward_floor,
    Op.MOD: legalize_modulo,
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
    if dtype.is_narrow and node.op in ON_HALVES:
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
    return rebuilt(linear, _Legalizer(target).run(linear.statements))


class _Legalizer(Rewriter):
    """Applies the rules to a node, its operands, and whatever the rules produce."""

    last = "legalize"
    visits_per_node = 10_000  # a function of a half is hundreds of nodes

    def __init__(self, target: Target) -> None:
        super().__init__()
        self.target = target

    def apply(self, node: UOp) -> UOp:
        """Return what a node means in ops that the target has."""
        rule = None if is_instruction(node, self.target) else find_rule(node)
        return node if rule is None else rule(node, self.target)
