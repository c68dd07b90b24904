"""Names the elementwise ops, so that a formula over nodes reads as one."""

from __future__ import annotations

from functools import partial
from typing import Final

from tinytensor.ops.attrs import Combine
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp
from tinytensor.tensor.nodes import apply

add = partial(apply, Op.ADD)
sub = partial(apply, Op.SUB)
mul = partial(apply, Op.MUL)
div = partial(apply, Op.DIV)
mod = partial(apply, Op.MOD)
neg = partial(apply, Op.NEG)
both = partial(apply, Op.AND)
either = partial(apply, Op.OR)
greater = partial(apply, Op.MAX)
lesser = partial(apply, Op.MIN)
is_less = partial(apply, Op.LT)
is_at_most = partial(apply, Op.LE)
is_equal = partial(apply, Op.EQ)
is_unequal = partial(apply, Op.NE)
exp = partial(apply, Op.EXP)
log = partial(apply, Op.LOG)
sin = partial(apply, Op.SIN)
cos = partial(apply, Op.COS)
tanh = partial(apply, Op.TANH)
erf = partial(apply, Op.ERF)
sqrt = partial(apply, Op.SQRT)
floor = partial(apply, Op.FLOOR)
trunc = partial(apply, Op.TRUNC)
FOLD_TWO: Final = {Combine.ADD: add, Combine.MUL: mul, Combine.MAX: greater, Combine.MIN: lesser}


def magnitude(x: UOp) -> UOp:
    """Return the absolute value: +0.0 for -0.0; the least integer stays, as it wraps."""
    if x.dtype.kind in ("uint", "bool"):
        return x
    return greater(x, neg(x))
