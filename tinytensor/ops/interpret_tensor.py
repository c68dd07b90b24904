"""Turns a TENSOR graph and its leaves' arrays into result arrays: the meaning of that form."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tinytensor.ops.fold import fold
from tinytensor.ops.interpret import EVALUATE, Array, constant, evaluate
from tinytensor.ops.op import ELEMENTWISE, Op
from tinytensor.ops.uop import UOp, walk


def interpret(roots: Sequence[UOp], arrays: dict[UOp, Array]) -> list[Array]:
    """Return the values of the roots, given those of every BUFFER (or of any other node).

    Values are as `ops/interpret.py` holds them; a result may share memory with an operand.
    """
    known = dict(arrays)
    for node in walk(roots, stop=set(arrays)):
        if node not in known:
            operands = [known[each] for each in node.operands]
            known[node] = TENSOR[node.op](node, *operands)
    return [np.broadcast_to(known[root], root.shape) for root in roots]


def _elementwise(node: UOp, *operands: Array) -> Array:
    return evaluate(node.op, node.dtype, *operands)


def _iota(node: UOp) -> Array:
    return np.arange(node.attrs.extent).astype(node.dtype.value_numpy)


def _slice(node: UOp, x: Array) -> Array:
    attrs = node.attrs
    slices = map(_strided, attrs.begin, attrs.step, attrs.extent)
    return x[tuple(slices)]


def _strided(begin: int, step: int, extent: int) -> slice:
    if extent == 0:
        return slice(0, 0)
    end = begin + step * extent
    return slice(begin, end if end >= 0 else None, step)


def _pad(node: UOp, x: Array, fill: Array) -> Array:
    padded = np.full(node.shape, fill, x.dtype)
    before = node.attrs.before
    ones = (1,) * len(before)
    inside = map(_strided, before, ones, x.shape)
    padded[tuple(inside)] = x
    return padded


def _gather(node: UOp, x: Array, *indices: Array) -> Array:
    if 0 in node.shape:
        return np.empty(node.shape, x.dtype)
    places = list(np.indices(node.shape, sparse=True))
    for axis, index in zip(node.attrs.axes, indices, strict=True):
        last = x.shape[axis] - 1
        inside = np.clip(index, 0, last)
        places[axis] = inside.astype(np.int64)
    return x[tuple(places)]


def _reduce(node: UOp, x: Array) -> Array:
    attrs = node.attrs
    return fold(attrs.combine, x, attrs.axes, node.dtype)


TENSOR: dict[Op, Callable[..., Array]] = {
    **{op: _elementwise for op in EVALUATE if op in ELEMENTWISE},
    Op.CONST: constant,
    Op.IOTA: _iota,
    Op.RESHAPE: lambda node, x: x.reshape(node.shape),
    Op.PERMUTE: lambda node, x: x.transpose(node.attrs.order),
    Op.EXPAND: lambda node, x: np.broadcast_to(x, node.shape),
    Op.SLICE: _slice,
    Op.PAD: _pad,
    Op.REDUCE: _reduce,
    Op.GATHER: _gather,
    **dict.fromkeys((Op.CHECK, Op.COPY, Op.DETACH), lambda node, x: x),
}
