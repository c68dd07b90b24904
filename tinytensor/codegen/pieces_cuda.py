"""Finds the aligned vectors in which the lanes of a load lie, for a GPU, which loads no others."""

from __future__ import annotations

import functools

from tinytensor.codegen.builder import Pieces
from tinytensor.codegen.vectorize import is_multiple, stride_of
from tinytensor.dtype import dtypes
from tinytensor.ops.guards import conjuncts
from tinytensor.ops.op import Op
from tinytensor.ops.simplify_index import simplify_index
from tinytensor.ops.sums import collect
from tinytensor.ops.uop import UOp, compare, const

ACCESS_BYTES = 16  # of the widest access of a thread; buffers begin at multiples of it
FARTHEST = 64  # elements from lane to lane beyond which vectors would hold none of the neighbors'


def pieces_of(load: UOp, range_: UOp, lanes: int) -> Pieces | None:
    """Return the aligned vectors in which the lanes of a load lie: it begins amid one, or steps.

    Of x[i + 1] where i + 1 < 64, lanes take the last seven of one vector and the first of the next,
    which is not read beyond 64. No vector is read of which no lane is, so all lie in the buffer,
    which is whole vectors.
    """
    param = load.operands[0]
    step = stride_of(load.operands[1], range_)
    if param.op is not Op.PARAM or not step or abs(step) > FARTHEST:
        return None
    width = ACCESS_BYTES // param.dtype.itemsize
    while width > 1:
        pieces = _pieces_of_width(load, range_, lanes, step, width)
        if pieces is not None:
            return pieces
        width //= 2
    return None


def _pieces_of_width(load: UOp, range_: UOp, lanes: int, step: int, width: int) -> Pieces | None:
    param, index, *guards = load.operands
    total = collect(index)
    factors = [factor for node, factor in total.coefficients.items() if node is not range_]
    if any(each % width for each in (*factors, step * lanes, param.attrs.elements)):
        return None
    begin = total.constant % width
    places = [begin + step * number for number in range(lanes)]
    numbers = sorted({place // width for place in places})
    claims = conjuncts(*guards) if guards else []
    vectors: list[UOp] = []
    for number in numbers:
        ahead = number * width - begin
        moved = [_moved(claim, range_, step, ahead, width) for claim in claims]
        found = [each for each in moved if each is not None]
        if len(found) < len(claims):
            return None
        guard = simplify_index(functools.reduce(UOp.__and__, found, const(dtypes.bool, True)))
        is_free = guard.op is Op.CONST and bool(guard.value)
        operands = (param, simplify_index(index + ahead), guard)
        vectors.append(load.replace(operands[:2] if is_free else operands))
    at = [numbers.index(place // width) * width + place % width for place in places]
    return Pieces(tuple(vectors), width, tuple(at))


def _moved(claim: UOp, range_: UOp, step: int, ahead: int, width: int) -> UOp | None:
    """Return a claim on an element as one on the vector so far ahead; None unless its lanes agree.

    A claim on the element is one in which the range counts as it does in the index.
    """
    if stride_of(claim, range_) == 0:
        return claim
    if claim.op not in (Op.LT, Op.LE) or claim.operands[0].dtype is not dtypes.index:
        return None
    x, y = claim.operands
    stride = stride_of(y - x, range_)
    if not stride or step % stride:
        return None
    grows, scale = stride * step > 0, abs(step // stride)
    x, y = x * scale, y * scale + (ahead if grows else -ahead)
    last = 0 if claim.op is Op.LE else -1
    is_whole = is_multiple(y - x, range_, width, last if grows else last + 1)
    return compare(claim.op, x, y) if is_whole else None
