"""Turns nodes into nodes of TENSOR form, leaving out the ones that would change nothing."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from tinytensor.dtype import DType, dtypes
from tinytensor.ops.attrs import (
    POSITIONS,
    Combine,
    ExtentAttrs,
    GatherAttrs,
    OrderAttrs,
    PadAttrs,
    ReduceAttrs,
    ShapeAttrs,
    SliceAttrs,
)
from tinytensor.ops.op import COMPARE, Op
from tinytensor.ops.size import are_same, is_one, is_open, is_repeated, is_zero
from tinytensor.ops.uop import Number, UOp, cast, const
from tinytensor.records import dataclass

Shape = tuple[int, ...]
COMPARISONS = frozenset(COMPARE)
# Looked up once: each op makes some.
RESHAPE, EXPAND, PERMUTE, REDUCE, WHERE = Op.RESHAPE, Op.EXPAND, Op.PERMUTE, Op.REDUCE, Op.WHERE
BOOL = dtypes.bool
# The same line makes the same attrs again and again.
shape_attrs = functools.lru_cache(maxsize=4096)(ShapeAttrs)
order_attrs = functools.lru_cache(maxsize=4096)(OrderAttrs)
reduce_attrs = functools.lru_cache(maxsize=4096)(ReduceAttrs)


def full(dtype: DType, value: Number, shape: Shape) -> UOp:
    """Return an array of one value, which takes no memory."""
    if type(value) is int:
        return _counted(dtype, value, shape)
    return _filled(const(dtype, value), shape)


def full_like(x: UOp, value: Number) -> UOp:
    """Return an array of one value with x's dtype and shape."""
    return full(x.dtype, value, x.shape)


# The same numbers are written again and again: kept, they are a third of the nodes of a norm.
@functools.lru_cache(maxsize=1024)
def _filled(single: UOp, shape: Shape) -> UOp:
    return broadcast(single, shape)


@functools.lru_cache(maxsize=1024)  # of ints alone: 0.0 and -0.0 are equal
def _counted(dtype: DType, value: int, shape: Shape) -> UOp:
    return _filled(const(dtype, value), shape)


def iota(extent: int) -> UOp:
    """Return 0 .. extent - 1 as int64."""
    return UOp(Op.IOTA, dtypes.int64, (), ExtentAttrs(extent))


def iota_along(axis: int, shape: Shape, dtype: DType) -> UOp:
    """Return the place of each element along an axis, in an integer dtype."""
    single = tuple([shape[axis] if each == axis else 1 for each in range(len(shape))])
    return broadcast(reshape(UOp(Op.IOTA, dtype, (), ExtentAttrs(shape[axis])), single), shape)


def apply(op: Op, x: UOp, *others: UOp | Number) -> UOp:
    """Return an elementwise op; a number stands for an array of x's dtype and shape."""
    dtype = BOOL if op in COMPARISONS else x.dtype
    operands = [x]
    for y in others:
        operands.append(y if isinstance(y, UOp) else full_like(x, y))
    return UOp(op, dtype, tuple(operands))


def select(cond: UOp, x: UOp, y: UOp) -> UOp:
    """Return x where cond, else y."""
    return UOp(WHERE, x.dtype, (cond, x, y))


def widen(x: UOp) -> UOp:
    """Return what a composite computes in: float32 for halves and for what is no float."""
    dtype = x.dtype
    if dtype.is_float and not dtype.is_narrow:
        return x
    return cast(x, dtypes.float32)


def floating(x: UOp) -> UOp:
    """Return x if it is a float, else x as float32."""
    return x if x.dtype.is_float else cast(x, dtypes.float32)


def reshape(x: UOp, shape: Shape) -> UOp:
    """Return x's elements in row-major order under another shape."""
    if are_same(x.shape, shape):
        return x
    if x.op is RESHAPE:
        return reshape(x.operands[0], shape)
    return UOp(RESHAPE, x.dtype, (x,), shape_attrs(shape))


def broadcast(x: UOp, shape: Shape) -> UOp:
    """Return x repeated along leading axes and axes of extent 1."""
    if are_same(x.shape, shape):
        return x
    if x.op is EXPAND:
        return broadcast(x.operands[0], shape)
    added = len(shape) - len(x.shape)
    if added:
        x = reshape(x, (1,) * added + x.shape)
        if are_same(x.shape, shape):
            return x
    return UOp(EXPAND, x.dtype, (x,), shape_attrs(shape))


def permute(x: UOp, order: Shape) -> UOp:
    """Return x with axis i taken from axis order[i]."""
    if order == tuple(range(len(order))):
        return x
    if x.op is PERMUTE:
        first = x.attrs.order
        return permute(x.operands[0], tuple([first[axis] for axis in order]))
    return UOp(PERMUTE, x.dtype, (x,), order_attrs(order))


def swap_with_last(x: UOp, axis: int) -> UOp:
    """Return x with one axis and the last one in each other's place."""
    order = list(range(len(x.shape)))
    order[axis], order[-1] = order[-1], axis
    return permute(x, tuple(order))


@dataclass(frozen=True, slots=True)
class Stretch:
    """Evenly spaced indices, as a range has them, where a number is known only at launch."""

    start: int
    step: int
    count: int


Indices = range | Stretch


def stretch(start: int, count: int, step: int = 1) -> Indices:
    """Return so many indices from the first one on."""
    if is_open((start, count)):
        return Stretch(start, step, count)
    return range(start, start + count * step, step)


def count_of(indices: Indices) -> int:
    """Return how many indices there are."""
    return indices.count if isinstance(indices, Stretch) else len(indices)


def take_slices(x: UOp, slices: Sequence[Indices]) -> UOp:
    """Return the elements of x whose index along each axis is in that axis's range.

    Of what is repeated a part is taken first, so that it may turn out not to be repeated.
    """
    if x.op is EXPAND:
        single = x.operands[0]
        pairs = zip(single.shape, x.shape, slices, strict=True)
        kept = [stretch(0, n) if is_repeated(n, m) else each for n, m, each in pairs]
        return broadcast(take_slices(single, kept), tuple(map(count_of, slices)))
    extents = tuple(map(count_of, slices))
    facts = list(zip(slices, extents, strict=True))
    steps = [1 if is_one(count) or is_zero(count) else each.step for each, count in facts]
    begins = [0 if is_zero(count) else each.start for each, count in facts]
    if are_same(extents, x.shape) and all(map(is_zero, begins)) and set(steps) <= {1}:
        return x
    attrs = SliceAttrs(tuple(begins), tuple(steps), extents)
    return UOp(Op.SLICE, x.dtype, (x,), attrs)


def pad(x: UOp, before: Shape, after: Shape, value: Number) -> UOp:
    """Return x with a border of one value."""
    if all(map(is_zero, before + after)):
        return x
    fill = const(x.dtype, value)
    attrs = PadAttrs(before, after)
    return UOp(Op.PAD, x.dtype, (x, fill), attrs)


def gather_at(x: UOp, axes: Shape, indices: Sequence[UOp]) -> UOp:
    """Return x at indices along some axes; the indices have the result's shape."""
    attrs = GatherAttrs(axes)
    return UOp(Op.GATHER, x.dtype, (x, *indices), attrs)


def fold(combine: Combine, x: UOp, axes: Shape) -> UOp:
    """Return x folded over axes, which stay with extent 1; argmax and argmin give int64."""
    attrs = reduce_attrs(combine, axes)
    if combine in POSITIONS:
        return UOp(REDUCE, dtypes.int64, (x,), attrs)
    return UOp(REDUCE, x.dtype, (x,), attrs)


def replace_axis(shape: Shape, axis: int, *extents: int) -> Shape:
    """Return a shape with one axis replaced by others."""
    return (*shape[:axis], *extents, *shape[axis + 1 :])


def take_part(x: UOp, axis: int, part: Indices) -> UOp:
    """Return the elements of x whose index along one axis is in a range."""
    if isinstance(part, range) and part == stretch(0, x.shape[axis]):
        return x
    slices = [stretch(0, n) for n in x.shape]
    slices[axis] = part
    return take_slices(x, slices)


def pad_axis(x: UOp, axis: int, before: int, after: int, value: Number) -> UOp:
    """Return x with a border of one value at both ends of one axis."""
    front, back = [0] * len(x.shape), [0] * len(x.shape)
    front[axis], back[axis] = before, after
    return pad(x, tuple(front), tuple(back), value)


def put_slices(
    x: UOp,
    attrs: SliceAttrs,
    shape: Shape,
    fill: Number = 0,
) -> UOp:
    """Return an array with x's elements where a SLICE of these attrs would read them."""
    if 0 in x.shape:
        return full(x.dtype, fill, shape)
    for axis, (begin, step) in enumerate(zip(attrs.begin, attrs.step, strict=True)):
        x = _put_along(axis, x, begin, step, shape[axis], fill)
    return x


def _put_along(axis: int, x: UOp, begin: int, step: int, extent: int, fill: Number) -> UOp:
    count = x.shape[axis]
    if step < 0:
        x = take_part(x, axis, range(count)[::-1])
        begin += step * (count - 1)
    spread = _spread(axis, x, abs(step), fill)
    after = extent - begin - spread.shape[axis]
    return pad_axis(spread, axis, begin, after, fill)


def _spread(axis: int, x: UOp, step: int, fill: Number) -> UOp:
    """Return x with step - 1 times one value between neighbors along an axis."""
    if step == 1:
        return x
    count = x.shape[axis]
    column = replace_axis(x.shape, axis, count, 1)
    padded = pad_axis(reshape(x, column), axis + 1, 0, step - 1, fill)
    extent = count * step
    flat = reshape(padded, replace_axis(x.shape, axis, extent))
    last = extent - step
    return take_part(flat, axis, range(last + 1))
