"""Guards every access of an expression by one claim: that the point lies inside the result."""

from __future__ import annotations

from tinytensor.codegen.vectorize import guard_of, stride_of
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp, compare, const, index_const, make_range, walk, where

# Stands for the claim in INDEXED expressions, which an Evaluator is told as a known value. It is
# the same in all lanes, so it takes nothing from the accesses along them.
_MARK = make_range(-1, 2)
INSIDE = compare(Op.NE, _MARK, index_const(0))

ACCESSES = (Op.LOAD, Op.STORE)


def guard_accesses(
    roots: tuple[UOp, ...], claim: UOp = INSIDE, along: UOp | None = None
) -> tuple[UOp, ...]:
    """Return the expressions with a claim among what each LOAD and STORE claims.

    With a range `along` those alone whose index it moves.
    """
    guarded: dict[UOp, UOp] = {}
    for node in walk(roots):
        operands = [guarded[each] for each in node.operands]
        rebuilt = node.replace(tuple(operands))
        if node.op in ACCESSES and (along is None or stride_of(node.operands[1], along) != 0):
            rebuilt = guard_access(rebuilt, claim)
        guarded[node] = rebuilt
    return tuple([guarded[root] for root in roots])


def zero_outside(value: UOp, claim: UOp = INSIDE) -> UOp:
    """Return the expression that is 0, and reads nothing, where a claim does not hold."""
    (guarded,) = guard_accesses((value,), claim)
    if value.op is Op.LOAD:
        return guarded
    zero = const(value.dtype, 0)
    return where(claim, guarded, zero)


def guard_access(access: UOp, claim: UOp) -> UOp:
    """Return an access that claims something more."""
    own = guard_of(access)
    if own is None:
        return access.replace((*access.operands, claim))
    return access.replace((*access.operands[:-1], own & claim))
