"""Turns a node's op, operands and attrs into its shape, and refuses nodes that are not well formed.

These are checks on the compiler itself (InternalError): a user's mistakes are caught at the door of
each Tensor method, before a node is built.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from tinytensor.dtype import DType, dtypes
from tinytensor.ops.attrs import POSITIONS
from tinytensor.ops.infer_blocks import BLOCK_INFER
from tinytensor.ops.op import APPROXIMATE, BINARY, BITWISE, COMPARE, MACHINE, UNARY, Op
from tinytensor.ops.well_formed import check

if TYPE_CHECKING:
    from tinytensor.ops.uop import UOp

Shape = tuple[int, ...]
ONE = 1  # one object in all of Python
INTEGER_ONLY = frozenset((*BITWISE, Op.FLOORDIV, Op.TRUNCDIV, Op.TRUNCMOD))
BUFFERS = (Op.PARAM, Op.WORKSPACE, Op.SHARED, Op.TILE)
FLOAT_ONLY = frozenset((*UNARY, *MACHINE, Op.DIV)) - {Op.NEG, Op.TRUNCDIV, Op.TRUNCMOD}


def _scalar(node: UOp) -> Shape:
    return ()


def _leaf(node: UOp) -> Shape:
    check(not node.operands, node, "a leaf has no operands")
    return ()


def _range(node: UOp) -> Shape:
    exact = [each.dtype is dtypes.index for each in node.operands]
    check(len(exact) <= 1 and all(exact), node, "has another extent than one index")
    return ()


def _variable(node: UOp) -> Shape:
    attrs, dtype = node.attrs, node.dtype
    check(not dtype.is_narrow and dtype.lanes == 1, node, "is no scalar that a launch can take")
    check(dtype.is_float or attrs.least <= attrs.most, node, "no value lies between its ends")
    return _leaf(node)


def _buffer(node: UOp) -> Shape:
    shape: Shape = node.attrs.shape
    return shape


def _iota(node: UOp) -> Shape:
    check(node.dtype.is_int, node, "counts in an integer dtype")
    return (node.attrs.extent,)


def _elementwise(node: UOp) -> Shape:
    operands, dtype = node.operands, node.dtype
    shape = operands[0].shape
    if len(operands) != len(node.op.operands):
        check(False, node, "has another number of operands")
    for each in operands:
        if each.shape is not shape and each.shape != shape:
            check(False, node, "shapes differ")
        if each.dtype is not dtype and each.dtype.lanes != dtype.lanes:
            check(False, node, "lanes")
    return shape


def _arithmetic(node: UOp) -> Shape:
    shape, dtype = _elementwise(node), node.dtype
    for each in node.operands:
        if each.dtype is not dtype:
            check(False, node, "dtypes differ")
    return shape


def _of_integers(node: UOp) -> Shape:
    dtype = node.dtype
    check(dtype.is_int or dtype.scalar is dtypes.bool, node, "takes integers or bool")
    return _arithmetic(node)


def _of_floats(node: UOp) -> Shape:
    check(node.dtype.is_float, node, "takes floats")
    return _arithmetic(node)


def _approximate(node: UOp) -> Shape:
    check(node.dtype.scalar is dtypes.float32, node, "takes float32")
    return _arithmetic(node)


def _compare(node: UOp) -> Shape:
    shape = _elementwise(node)
    x, y = node.operands
    check(x.dtype is y.dtype, node, "dtypes differ")
    check(node.dtype.scalar is dtypes.bool, node, "gives bool")
    return shape


def _philox(node: UOp) -> Shape:
    check(node.dtype.scalar is dtypes.uint64, node, "gives uint64")
    return _arithmetic(node)


def _where(node: UOp) -> Shape:
    shape = _elementwise(node)
    cond, x, y = node.operands
    check(cond.dtype.scalar is dtypes.bool, node, "takes a bool condition")
    check(x.dtype is node.dtype and y.dtype is node.dtype, node, "dtypes differ")
    return shape


def _bitcast(node: UOp) -> Shape:
    shape = _elementwise(node)
    check(node.operands[0].dtype.bits == node.dtype.bits, node, "widths differ")
    return shape


def _same_dtype(node: UOp) -> UOp:
    x = node.operands[0]
    if x.dtype is not node.dtype:
        check(False, node, "dtype differs from its operand's")
    return x


def _reshape(node: UOp) -> Shape:
    x = _same_dtype(node)
    shape: Shape = node.attrs.shape
    check(math.prod(shape) == math.prod(x.shape), node, "number of elements differs")
    return shape


def _permute(node: UOp) -> Shape:
    order: Shape = node.attrs.order
    shape = _same_dtype(node).shape
    moved = _permuted(shape, order)
    is_order = len(moved) == len(order) == len(shape)
    check(is_order, node, "order is no permutation")
    return moved


@functools.lru_cache(maxsize=4096)
def _permuted(shape: Shape, order: Shape) -> Shape:
    """Return the extents in an order of the axes; none where it is no such order."""
    is_order = sorted(order) == list(range(len(shape)))
    return tuple([shape[axis] for axis in order]) if is_order else ()


def _expand(node: UOp) -> Shape:
    x = _same_dtype(node)
    shape: Shape = node.attrs.shape
    check(len(shape) == len(x.shape), node, "number of axes differs")
    for axis, extent in enumerate(x.shape):
        if extent is not ONE and extent is not shape[axis]:  # the usual cases
            # What is known only at launch is compared with 1 last.
            check(shape[axis] == extent or extent == 1, node, "only axes of extent 1 expand")
    return shape


def _slice(node: UOp) -> Shape:
    x = _same_dtype(node)
    begin, step, extent = node.attrs.begin, node.attrs.step, node.attrs.extent
    check(len(begin) == len(step) == len(extent) == len(x.shape), node, "number of axes differs")
    for first, stride, count, size in zip(begin, step, extent, x.shape, strict=True):
        last = first + stride * (count - 1)
        inside = count == 0 or (0 <= first < size and 0 <= last < size)
        check(stride != 0 and count >= 0 and inside, node, "reaches outside its operand")
    shape: Shape = extent
    return shape


def _pad(node: UOp) -> Shape:
    x = _same_dtype(node)
    fill = node.operands[1]
    before, after = node.attrs.before, node.attrs.after
    check(fill.dtype is x.dtype and fill.shape == (), node, "fill is no scalar of its dtype")
    check(len(before) == len(after) == len(x.shape), node, "number of axes differs")
    check(min((*before, *after), default=0) >= 0, node, "a pad is negative")
    return tuple([b + n + c for b, n, c in zip(before, x.shape, after, strict=True)])


def _check_op(node: UOp) -> Shape:
    x = _same_dtype(node)
    check(x.dtype is dtypes.int64, node, "takes int64")
    return x.shape


def _gather(node: UOp) -> Shape:
    x, *indices = node.operands
    axes: Shape = node.attrs.axes
    check(x.dtype is node.dtype, node, "dtype differs from its operand's")
    check(len(indices) == len(axes) > 0, node, "number of indices is not that of axes")
    check(list(axes) == sorted(set(axes)), node, "axes are not ascending")
    shape = indices[0].shape
    for index in indices:
        check(index.dtype.is_int and index.shape == shape, node, "indices differ or are no ints")
    check(len(shape) == len(x.shape) > axes[-1], node, "number of axes differs")
    kept = all(n == m for d, (n, m) in enumerate(zip(shape, x.shape, strict=True)) if d not in axes)
    check(kept, node, "other axes differ")
    empty = any(x.shape[axis] == 0 for axis in axes)
    check(not empty or 0 in shape, node, "chooses from nothing")
    return shape


def _reduce(node: UOp) -> Shape:
    x, *ranges = node.operands
    combine, axes = node.attrs.combine, node.attrs.axes
    for each in ranges:
        check(each.op is Op.RANGE, node, "folds over something not a range")
    check(not (ranges and axes), node, "has both axes and ranges")
    if combine in POSITIONS:
        check(node.dtype is dtypes.int64, node, "gives int64")
        check(len(ranges) + len(axes) == 1, node, "runs over one axis")
    else:
        check(node.dtype is x.dtype, node, "dtype differs from its operand's")
    shape = list(x.shape)
    for number, axis in enumerate(axes):
        check(number == 0 or axes[number - 1] < axis, node, "axes are not ascending")
        shape[axis] = 1
    return tuple(shape)


def _contract(node: UOp) -> Shape:
    accumulate: DType = node.attrs.accumulate
    check(node.dtype is accumulate, node, "gives its accumulator's dtype")
    check(len(node.operands) >= 3, node, "folds over at least one range")
    return ()


def _unchanged(node: UOp) -> Shape:
    return _same_dtype(node).shape


def _load(node: UOp) -> Shape:
    buffer = node.operands[0]
    check(buffer.op in BUFFERS, node, "reads something that is no buffer")
    check(buffer.dtype is node.dtype.scalar, node, "dtype differs from its buffer's")
    return ()


def _store(node: UOp) -> Shape:
    buffer, _, value = node.operands[:3]
    check(buffer.op in BUFFERS, node, "writes something that is no buffer")
    check(buffer.dtype is value.dtype.scalar, node, "value's dtype differs from its buffer's")
    return ()


def _write(node: UOp) -> Shape:
    register, value = node.operands
    check(register.op is Op.REGISTER, node, "writes something that is no register")
    check(register.dtype is value.dtype, node, "value's dtype differs from its register's")
    return ()


def _splat(node: UOp) -> Shape:
    check(node.operands[0].dtype is node.dtype.scalar, node, "dtype differs")
    return ()


def _stack(node: UOp) -> Shape:
    check(len(node.operands) == node.dtype.lanes, node, "number of lanes differs")
    check(all(each.dtype is node.dtype.scalar for each in node.operands), node, "dtypes differ")
    return ()


def _shuffle(node: UOp) -> Shape:
    count = sum(each.dtype.lanes for each in node.operands)
    lanes: tuple[int, ...] = node.attrs.lanes
    check(len(lanes) == node.dtype.lanes, node, "number of lanes differs")
    check(all(0 <= lane < count for lane in lanes), node, "a lane is outside its operands")
    return ()


INFER: dict[Op, Callable[[UOp], Shape]] = {
    **dict.fromkeys((Op.CONST, Op.PARAM, Op.EXTENT, Op.WORKSPACE, Op.REGISTER), _leaf),
    Op.RANGE: _range,
    **dict.fromkeys((*UNARY, *BINARY, *MACHINE), _arithmetic),
    **dict.fromkeys(INTEGER_ONLY, _of_integers),
    **dict.fromkeys(FLOAT_ONLY, _of_floats),
    **dict.fromkeys(APPROXIMATE, _approximate),
    **dict.fromkeys(COMPARE, _compare),
    **dict.fromkeys((Op.SINK, Op.LOOP, Op.ENDLOOP, Op.IF, Op.ELSE, Op.ENDIF), _scalar),
    **dict.fromkeys((Op.READ, Op.CALL), _scalar),
    **dict.fromkeys((Op.LANE, Op.SHUFFLE), _shuffle),
    **BLOCK_INFER,
    **dict.fromkeys((Op.BUFFER, Op.RUN), _buffer),
    Op.IOTA: _iota,
    Op.VARIABLE: _variable,
    Op.PHILOX: _philox,
    Op.WHERE: _where,
    Op.CAST: _elementwise,
    Op.BITCAST: _bitcast,
    Op.RESHAPE: _reshape,
    Op.PERMUTE: _permute,
    Op.EXPAND: _expand,
    Op.SLICE: _slice,
    Op.PAD: _pad,
    Op.CHECK: _check_op,
    Op.GATHER: _gather,
    Op.REDUCE: _reduce,
    Op.CONTRACT: _contract,
    **dict.fromkeys((Op.COPY, Op.DETACH), _unchanged),
    Op.LOAD: _load,
    Op.STORE: _store,
    Op.WRITE: _write,
    Op.SPLAT: _splat,
    Op.STACK: _stack,
}
