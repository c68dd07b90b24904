"""Guards every access of an expression by one claim: that the point lies inside the result."""

from __future__ import annotations

from tinytensor.codegen.vectorize import guard_of
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp, compare, const, index_const, make_range, walk, where

# Stands for the claim in INDEXED expressions, which an Evaluator is told as a known value. It is
# the same in all lanes, so it takes nothing from the accesses along them.
INSIDE = compare(Op.NE, make_range(-1, 2), index_const(0))


def guard_accesses(roots: tuple[UOp, ...]) -> tuple[UOp, ...]:
    """Return the expressions with INSIDE among what each LOAD and STORE claims."""
    guarded: dict[UOp, UOp] = {}
    for node in walk(roots):
        rebuilt = node.replace(tuple([guarded[each] for each in node.operands]))
        guarded[node] = _guard(rebuilt) if node.op in (Op.LOAD, Op.STORE) else rebuilt
    return tuple([guarded[root] for root in roots])


def zero_outside(value: UOp) -> UOp:
    """Return the expression that is 0, and reads nothing, outside."""
    guarded = guard_accesses((value,))[0]
    return guarded if value.op is Op.LOAD else where(INSIDE, guarded, const(value.dtype, 0))


def _guard(access: UOp) -> UOp:
    own = guard_of(access)
    claim = INSIDE if own is None else own & INSIDE
    operands = access.operands if own is None else access.operands[:-1]
    return UOp(access.op, access.dtype, (*operands, claim), access.attrs)
