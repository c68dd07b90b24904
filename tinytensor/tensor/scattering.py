"""Turns writes at places that other tensors name into values: nothing is written in place.

Where several writes meet, the last one in row-major order wins, or they are summed or folded
otherwise. Sums of halves are taken in float32 and rounded once, together with what was there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, Self

from tinytensor.dtype import DType, dtypes
from tinytensor.errors import DTypeError, IndexOutOfRange, ShapeError, ValueOutOfRange
from tinytensor.grad import Rule, sum_at, wide, with_rules
from tinytensor.ops.attrs import Combine
from tinytensor.ops.op import Op
from tinytensor.ops.uop import Number, UOp, cast, const
from tinytensor.tensor.axes import Shape, broadcast_shapes, check_axis
from tinytensor.tensor.base import TensorBase
from tinytensor.tensor.formulas import FOLD_TWO, add, div, greater, is_equal, mul, sub
from tinytensor.tensor.gathering import along, check_index, checked, from_either_end
from tinytensor.tensor.host import check_number
from tinytensor.tensor.nodes import (
    apply,
    broadcast,
    full,
    full_like,
    gather_at,
    pad,
    replace_axis,
    reshape,
    select,
    take_slices,
    widen,
)
from tinytensor.tensor.operands import check_devices
from tinytensor.tensor.reduction import at_least_1d
from tinytensor.tensor.running import running
from tinytensor.tensor.updates import NOWHERE, fold_at, is_hit_at, last_at

REDUCTIONS: Final = {
    "sum": Combine.ADD,
    "prod": Combine.MUL,
    "mean": Combine.ADD,
    "amax": Combine.MAX,
    "amin": Combine.MIN,
}


def put_at(
    x: UOp, axes: Shape, indices: Sequence[UOp], values: UOp, accumulate: bool = False
) -> UOp:
    """Return x with values put at indices along some axes, or added there: gather_at's mirror.

    Shapes: indices and values alike; along all other axes as x.
    """
    if 0 in values.shape or 0 in x.shape:
        return x
    if accumulate:
        return add_at(x, axes, indices, values)
    is_hit = is_hit_at(axes, indices, x.shape)
    chosen = last_at(values, axes, indices, x.shape)

    def of_x(g: UOp, *_: UOp) -> UOp:
        return select(is_hit, full_like(g, 0), g)

    def of_values(g: UOp, *_: UOp) -> UOp:
        return gather_at(g, axes, indices)

    return with_rules(select(is_hit, chosen, x), [x, values], of_x, of_values)


def add_at(x: UOp, axes: Shape, indices: Sequence[UOp], values: UOp) -> UOp:
    """Return x plus the values that indices along some axes send to each place."""
    terms = widen(values) if x.dtype.is_float else values
    total = fold_at(Combine.ADD, terms, axes, indices, x.shape)
    result = cast(add(cast(x, total.dtype), total), x.dtype)
    if x.dtype.is_float:  # x + 0.0 would lose the sign of -0.0
        result = select(is_equal(total, 0), x, result)

    def of_values(g: UOp, *_: UOp) -> UOp:
        return cast(gather_at(g, axes, indices), values.dtype)

    return with_rules(result, [x, values], lambda g, *_: g, of_values)


def reduce_at(
    how: str, x: UOp, axes: Shape, indices: Sequence[UOp], values: UOp, include_self: bool
) -> UOp:
    """Return x with the values that indices send to each place folded, with x's own if included."""
    if 0 in values.shape or 0 in x.shape:
        return x
    if how == "sum" and include_self:
        return add_at(x, axes, indices, values)
    is_float, combine = x.dtype.is_float, REDUCTIONS[how]
    own, terms = (widen(x), widen(values)) if is_float else (x, values)
    folded = fold_at(combine, terms, axes, indices, x.shape)
    joined = FOLD_TWO[combine](own, folded) if include_self else folded
    if how == "mean":
        count = _count_at(axes, indices, x.shape, joined.dtype, include_self)
        joined = apply(Op.DIV if is_float else Op.FLOORDIV, joined, count)
    is_hit = is_hit_at(axes, indices, x.shape)
    result = select(is_hit, cast(joined, x.dtype), x)
    of_x, of_values = _rules_of(how, axes, indices, include_self)

    def of_kept(g: UOp, *nodes: UOp) -> UOp:
        return select(is_hit, of_x(g, *nodes) if include_self else full_like(g, 0), g)

    return with_rules(result, [x, values], wide(of_kept), wide(of_values))


def _count_at(
    axes: Shape, indices: Sequence[UOp], shape: Shape, dtype: DType, include_self: bool
) -> UOp:
    """Return how many values a mean divides by; nowhere 0."""
    ones = full(dtypes.int32, 1, indices[0].shape)
    count = fold_at(Combine.ADD, ones, axes, indices, shape)
    return cast(add(count, 1) if include_self else greater(count, 1), dtype)


def _rules_of(
    how: str, axes: Shape, indices: Sequence[UOp], include_self: bool
) -> tuple[Rule, Rule]:
    """Return the gradients of x, where something was folded into it, and of the values."""

    def read(y: UOp) -> UOp:
        return gather_at(y, axes, indices)

    def mean_share(g: UOp, *_: UOp) -> UOp:
        return div(g, _count_at(axes, indices, g.shape, g.dtype, include_self))

    def extreme_share(g: UOp, out: UOp, x: UOp, values: UOp) -> UOp:
        tied = sum_at(cast(is_equal(values, read(out)), g.dtype), axes, indices, x.shape)
        own = cast(is_equal(x, out), g.dtype)
        return div(g, add(tied, own) if include_self else tied)

    def extreme_of_values(g: UOp, out: UOp, x: UOp, values: UOp) -> UOp:
        share = read(extreme_share(g, out, x, values))
        return mul(cast(is_equal(values, read(out)), g.dtype), share)

    def extreme_of_x(g: UOp, out: UOp, x: UOp, values: UOp) -> UOp:
        return mul(cast(is_equal(x, out), g.dtype), extreme_share(g, out, x, values))

    def product_of_x(g: UOp, out: UOp, x: UOp, values: UOp) -> UOp:
        return mul(g, reduce_at("prod", full_like(x, 1), axes, indices, values, True))

    def product_of_values(g: UOp, out: UOp, x: UOp, values: UOp) -> UOp:
        """Divide the product of what is not 0 by the value itself; 0 if another one is 0."""
        is_zero = is_equal(values, 0)
        divisor = select(is_zero, full_like(values, 1), values)
        own = x if include_self else full_like(x, 1)
        product = reduce_at("prod", own, axes, indices, divisor, True)
        zeros = cast(is_zero, g.dtype)
        others = sub(read(sum_at(zeros, axes, indices, x.shape)), zeros)
        share = div(read(mul(g, product)), divisor)
        return select(is_equal(others, 0), share, full_like(share, 0))

    if how == "mean":
        return mean_share, lambda g, *nodes: read(mean_share(g))
    if how == "prod":
        return product_of_x, product_of_values
    if how == "sum":
        return lambda g, *_: g, lambda g, *_: read(g)
    return extreme_of_x, extreme_of_values


class Scattering(TensorBase):
    """Writes at places that other tensors name, as new tensors."""

    __slots__ = ()

    def scatter(
        self,
        dim: int,
        index: TensorBase,
        src: TensorBase | Number | None = None,
        *,
        value: Number | None = None,
        reduce: str | None = None,
    ) -> Self:
        """Return this tensor with src[i], or a number, at index[i] along an axis.

        reduce 'add' or 'multiply' folds them with what is there.
        Shapes: the index has as many axes as both, and is nowhere longer, but along dim.

        >>> from tinytensor.tensor.tensor import Tensor
        >>> Tensor([0, 0, 0]).scatter(0, Tensor([2, 0]), Tensor([7, 8])).tolist()
        [8, 0, 7]
        """
        source = value if src is None else src
        if source is None:
            raise TypeError("scatter: nothing to write: None; src or value must be given.")
        how = {None: None, "add": "sum", "multiply": "prod"}
        if reduce not in how:
            sentence = f"scatter: no such reduction: {reduce!r}"
            raise ValueOutOfRange(f"{sentence}; it must be 'add' or 'multiply'.")
        return self._scattered("scatter", dim, index, source, how[reduce])

    def scatter_add(self, dim: int, index: TensorBase, src: TensorBase) -> Self:
        """Return this tensor with src[i] added at index[i] along an axis, as often as it occurs."""
        return self._scattered("scatter_add", dim, index, src, "sum")

    def scatter_reduce(
        self,
        dim: int,
        index: TensorBase,
        src: TensorBase,
        reduce: str,
        *,
        include_self: bool = True,
    ) -> Self:
        """Return this tensor with the src[i] of each place along an axis folded there.

        Without include_self what is there is replaced, where there is a src[i].
        """
        who = "scatter_reduce"
        if reduce not in REDUCTIONS:
            listed = ", ".join(map(repr, REDUCTIONS))
            sentence = f"{who}: no such reduction: {reduce!r}"
            raise ValueOutOfRange(f"{sentence}; it must be one of {listed}.")
        if reduce == "mean" and self.dtype is dtypes.bool:
            raise DTypeError(f"{who}: bools have no mean: dtype is bool; it must be a number's.")
        return self._scattered(who, dim, index, src, reduce, include_self)

    def _scattered(
        self,
        who: str,
        dim: int,
        index: TensorBase,
        source: TensorBase | Number,
        how: str | None,
        include_self: bool = True,
    ) -> Self:
        check_index(who, self, index)
        axis = check_axis(who, dim, self.ndim)
        x, places = at_least_1d(self.uop), at_least_1d(index.uop)
        if isinstance(source, TensorBase):
            check_source(who, self, source)
            values = at_least_1d(source.uop)
        else:
            number = check_number(who, source, self.dtype)
            values = full(self.dtype, number, places.shape)
        if 0 in places.shape:
            return self._wrap(self.uop)
        check_fit(who, axis, places.shape, x.shape, values.shape)
        places = checked(who, places, axis, x.shape[axis])
        values = take_slices(values, list(map(range, places.shape)))
        whole = replace_axis(x.shape, axis, places.shape[axis])
        places, values = extend(places, whole, NOWHERE), extend(values, whole, 0)
        if how is None:
            result = put_at(x, (axis,), [places], values)
        else:
            result = reduce_at(how, x, (axis,), [places], values, include_self)
        return self._wrap(reshape(result, self.shape))

    def index_add(
        self, dim: int, index: TensorBase, source: TensorBase, *, alpha: Number = 1
    ) -> Self:
        """Return this tensor with slices of a source, times alpha, added where an index says."""
        axis, places = self._slices_at("index_add", dim, index)
        values = self._slices_of("index_add", source, axis, places.shape)
        if alpha != 1:
            scale = check_number("index_add", alpha, self.dtype)
            values = mul(widen(values) if self.dtype.is_float else values, scale)
        result = add_at(at_least_1d(self.uop), (axis,), [places], values)
        return self._wrap(reshape(result, self.shape))

    def index_copy(self, dim: int, index: TensorBase, source: TensorBase) -> Self:
        """Return this tensor with slices of a source where a 1-d index says."""
        axis, places = self._slices_at("index_copy", dim, index)
        values = self._slices_of("index_copy", source, axis, places.shape)
        result = put_at(at_least_1d(self.uop), (axis,), [places], values)
        return self._wrap(reshape(result, self.shape))

    def index_fill(self, dim: int, index: TensorBase, value: TensorBase | Number) -> Self:
        """Return this tensor with a number in the slices that an index names.

        Negative indices count from the end.
        """
        axis, places = self._slices_at("index_fill", dim, index)
        values = broadcast(self._single("index_fill", value), places.shape)
        result = put_at(at_least_1d(self.uop), (axis,), [places], values)
        return self._wrap(reshape(result, self.shape))

    def _slices_at(self, who: str, dim: int, index: TensorBase) -> tuple[int, UOp]:
        """Return the axis of a dim, and the slices along it that an index names, as indices."""
        check_index(who, self, index)
        axis = check_axis(who, dim, self.ndim)
        if index.ndim > 1:
            sentence = f"{who}: the index has several axes: shape {index.shape}"
            raise IndexOutOfRange(f"{sentence}; it must be 1-d.")
        shape, places = at_least_1d(self.uop).shape, at_least_1d(index.uop)
        check = from_either_end if who == "index_fill" else checked
        return axis, along(check(who, places, axis, shape[axis]), axis, shape)

    def _slices_of(self, who: str, source: TensorBase, axis: int, shape: Shape) -> UOp:
        """Return a source that has one slice for each index."""
        check_source(who, self, source)
        values = at_least_1d(source.uop)
        if values.shape == shape and (source.ndim == self.ndim or who != "index_add"):
            return values
        is_count = len(values.shape) != len(shape) or values.shape[axis] != shape[axis]
        error = IndexOutOfRange if who == "index_copy" and is_count else ShapeError
        sentence = f"{who}: the source does not fit: {source.shape} for shape {self.shape}"
        required = f"it must have this shape with {shape[axis]} slices along axis {axis}"
        raise error(f"{sentence}; {required}.")

    def _single(self, who: str, value: TensorBase | Number) -> UOp:
        """Return a number, or a 0-d tensor, in this tensor's dtype."""
        if not isinstance(value, TensorBase):
            return const(self.dtype, check_number(who, value, self.dtype))
        check_devices(who, [self, value])
        if value.ndim:
            sentence = f"{who}: the value has axes: shape {value.shape}"
            raise ShapeError(f"{sentence}; it must be a number or 0-d.")
        return cast(value.uop, self.dtype)

    def put(self, index: TensorBase, source: TensorBase, accumulate: bool = False) -> Self:
        """Return this tensor with the source's elements at row-major positions, or added there."""
        check_index("put", self, index)
        check_source("put", self, source)
        if source.numel() != index.numel():
            sentence = f"put: numbers of elements differ: {source.shape} and {index.shape}"
            raise IndexOutOfRange(f"{sentence}; source and index must hold as many.")
        places = reshape(index.uop, (index.numel(),))
        places = from_either_end("put", places, 0, self.numel())
        x, values = reshape(self.uop, (self.numel(),)), reshape(source.uop, places.shape)
        return self._wrap(reshape(put_at(x, (0,), [places], values, accumulate), self.shape))

    def masked_fill(self, mask: TensorBase, value: TensorBase | Number) -> Self:
        """Return this tensor with a number where a mask holds; both broadcast.

        >>> from tinytensor.tensor.tensor import Tensor
        >>> Tensor([1, 2]).masked_fill(Tensor([True, False]), 9).tolist()
        [9, 2]
        """
        shape = self._shape_with("masked_fill", mask)
        filled = broadcast(self._single("masked_fill", value), shape)
        return self._wrap(select(broadcast(mask.uop, shape), filled, broadcast(self.uop, shape)))

    def masked_scatter(self, mask: TensorBase, source: TensorBase) -> Self:
        """Return this tensor with the source's elements, one by one, where a mask holds.

        Both broadcast. The next host read raises if the source has too few elements.
        """
        who = "masked_scatter"
        shape = self._shape_with(who, mask)
        check_source(who, self, source)
        x, holds = broadcast(self.uop, shape), broadcast(mask.uop, shape)
        if 0 in shape:
            return self._wrap(x)
        ordinals = running(Combine.ADD, cast(reshape(holds, (math.prod(shape),)), dtypes.int64), 0)
        number = select(holds, sub(reshape(ordinals, shape), 1), full(dtypes.int64, 0, shape))
        flat = reshape(number, (math.prod(shape),))
        places = checked(who, flat, 0, source.numel())
        taken = gather_at(reshape(source.uop, (source.numel(),)), (0,), [places])
        return self._wrap(select(holds, reshape(taken, shape), x))

    def _shape_with(self, who: str, mask: TensorBase) -> Shape:
        if mask.dtype is not dtypes.bool:
            sentence = f"{who}: the mask is no bool: dtype is {mask.dtype.name}"
            raise DTypeError(f"{sentence}; it must be bool.")
        check_devices(who, [self, mask])
        return broadcast_shapes(who, [self.shape, mask.shape])


def check_source(who: str, x: TensorBase, source: TensorBase) -> None:
    """Raise unless what is written has the dtype, and the device, of what it is written to."""
    if source.dtype is not x.dtype:
        sentence = f"{who}: dtypes differ: {x.dtype.name} and source {source.dtype.name}"
        raise DTypeError(f"{sentence}; they must be equal.")
    check_devices(who, [x, source])


def check_fit(who: str, axis: int, index: Shape, x: Shape, source: Shape) -> None:
    """Raise unless an index has the axes of both, and is nowhere longer, but for x along axis."""
    has_room = len(index) == len(x) == len(source) and all(
        n <= own or place == axis for place, (n, own) in enumerate(zip(index, x, strict=True))
    )
    if has_room and all(n <= given for n, given in zip(index, source, strict=True)):
        return
    sentence = f"{who}: the index does not fit: {index} for shape {x} and source {source}"
    required = f"it must have as many axes and be nowhere longer, but for the first along {axis}"
    raise ShapeError(f"{sentence}; {required}.")


def extend(x: UOp, shape: Shape, fill: Number) -> UOp:
    """Return x with a value behind it along each axis, up to a shape."""
    missing = tuple([extent - own for own, extent in zip(x.shape, shape, strict=True)])
    return pad(x, (0,) * len(shape), missing, fill)
