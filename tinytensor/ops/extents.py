"""Turns an index expression over variables into the number it is in one launch."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence

from tinytensor.dtype import dtypes
from tinytensor.errors import InternalError
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp, walk


def index_at(node: UOp, values: Mapping[UOp, int]) -> int:
    """Return an index expression's value (a comparison's: 0 or 1) where variables have values.

    >>> from tinytensor.ops.uop import make_variable
    >>> n = make_variable(0, 1, 8)
    >>> index_at(n * 3 + 1, {n: 5})
    16
    """
    found = dict(values)
    for each in walk([node], stop=values.keys()):
        if each.op is Op.CONST:
            found[each] = int(each.value)
        elif each not in found:
            found[each] = _evaluate(each, [found[operand] for operand in each.operands])
    return found[node]


def index_with(node: UOp, scalars: Sequence[float]) -> int:
    """Return an index expression's value in a launch with those scalars."""
    variables = [each for each in walk([node]) if each.op is Op.VARIABLE]
    return index_at(node, {each: int(scalars[each.attrs.number]) for each in variables})


def _evaluate(node: UOp, operands: list[int]) -> int:
    if node.op in (Op.FLOORDIV, Op.MOD) and operands[1] == 0:
        return 0
    if node.op not in _MEANING or not (node.dtype is dtypes.index or node.dtype is dtypes.bool):
        raise InternalError(f"extents: a launch does not know this number: {node!r}.")
    return int(_MEANING[node.op](*operands))


_MEANING: dict[Op, Callable[..., int]] = {
    Op.ADD: operator.add,
    Op.SUB: operator.sub,
    Op.MUL: operator.mul,
    Op.NEG: operator.neg,
    Op.FLOORDIV: operator.floordiv,
    Op.MOD: operator.mod,
    Op.MAX: max,
    Op.MIN: min,
    Op.LT: operator.lt,
    Op.LE: operator.le,
    Op.EQ: operator.eq,
    Op.NE: operator.ne,
    Op.AND: operator.and_,
    Op.OR: operator.or_,
    Op.WHERE: lambda cond, x, y: x if cond else y,
}
