"""Turns reductions over axes into REDUCE nodes with PyTorch's result dtypes."""

from __future__ import annotations

import math
from typing import Generic, NamedTuple, Self, TypeVar, overload

from tinytensor.dtype import DType, dtypes
from tinytensor.errors import DTypeError, IndexOutOfRange, ShapeError
from tinytensor.grad import with_rules
from tinytensor.ops.attrs import Combine
from tinytensor.ops.uop import UOp, cast
from tinytensor.tensor.arithmetic import check_dtype, is_no_bool
from tinytensor.tensor.axes import Dims, Shape, check_axes
from tinytensor.tensor.base import TensorBase
from tinytensor.tensor.formulas import div, is_equal, mul, sqrt, sub
from tinytensor.tensor.nodes import broadcast, fold, full_like, iota, reshape, select, widen

T = TypeVar("T")


class Extremes(NamedTuple, Generic[T]):
    """The greatest or least elements along an axis, and where they are."""

    values: T
    indices: T


def at_least_1d(x: UOp) -> UOp:
    """Return x, as an axis of one element if it is 0-d: then it folds like any other."""
    return x if x.shape else reshape(x, (1,))


def average(x: UOp, axes: Shape, fewer: float = 0) -> UOp:
    """Return the sum over axes divided by the number of elements, less `fewer`."""
    count = math.prod(x.shape[axis] for axis in axes) - fewer
    return div(fold(Combine.ADD, x, axes), max(count, 0))


def variance(x: UOp, axes: Shape, correction: float | None) -> UOp:
    """Return the mean of squared differences from the mean, in two passes."""
    centered = sub(x, broadcast(average(x, axes), x.shape))
    return average(mul(centered, centered), axes, 1 if correction is None else correction)


def root_of_spread(x: UOp) -> UOp:
    """Return the square root; its gradient at 0 is 0, where nothing spreads."""

    def slope(g: UOp, out: UOp, x: UOp) -> UOp:
        is_zero = is_equal(out, 0)
        return select(is_zero, full_like(g, 0), div(g, mul(out, 2)))

    return with_rules(sqrt(x), [x], slope)


def element_at(folded: UOp, x: UOp, positions: UOp, axis: int) -> UOp:
    """Return a fold that is x's element at a position along an axis: its gradient goes there."""
    extent = x.shape[axis]
    aligned = tuple([extent if each == axis else 1 for each in range(len(x.shape))])

    def slope(g: UOp, out: UOp, x: UOp) -> UOp:
        here = broadcast(reshape(iota(extent), aligned), x.shape)
        is_chosen = is_equal(here, broadcast(positions, x.shape))
        return select(is_chosen, broadcast(g, x.shape), full_like(x, 0))

    return with_rules(folded, [x], slope)


def check_float(who: str, dtype: DType) -> DType:
    """Return a dtype that must be a float dtype.

    Raises: DTypeError.
    """
    if not dtype.is_float:
        sentence = f"{who}: does not take {dtype.name}"
        raise DTypeError(f"{sentence}; it must be a float dtype. Use float() first.")
    return dtype


class Reduction(TensorBase):
    """Folds over one axis, several or all."""

    __slots__ = ()

    def _folded(self, folded: UOp, axes: Shape, keepdim: bool, dtype: DType) -> Self:
        """Give a fold its final dtype, and drop its axes unless they are kept."""
        extents = enumerate(self.shape)
        if keepdim:
            left = [1 if axis in axes else extent for axis, extent in extents]
        else:
            left = [extent for axis, extent in extents if axis not in axes]
        return self._wrap(reshape(cast(folded, dtype), tuple(left)))

    def _filled_axes(self, who: str, dim: Dims, error: type[Exception] = IndexOutOfRange) -> Shape:
        axes = check_axes(who, dim, self.ndim)
        extents = [self.shape[axis] for axis in axes if self.shape]
        if 0 in extents:
            sentence = f"{who}: nothing to choose from: axes {axes} of shape {self.shape}"
            raise error(f"{sentence}; they must hold 1 element or more.")
        return axes

    def _accumulated(
        self, who: str, combine: Combine, dim: Dims, keepdim: bool, dtype: DType | None
    ) -> Self:
        """Sum or multiply: integers in int64, halves in float32 and rounded once."""
        axes = check_axes(who, dim, self.ndim)
        result = dtype or (self.dtype if self.dtype.is_float else dtypes.int64)
        x = cast(at_least_1d(self.uop), result)
        wide = widen(x) if result.is_float else x
        return self._folded(fold(combine, wide, axes), axes, keepdim, result)

    def sum(
        self,
        dim: Dims = None,
        keepdim: bool = False,
        *,
        dtype: DType | None = None,
    ) -> Self:
        """Return the sum; of integers and bool in int64."""
        return self._accumulated("sum", Combine.ADD, dim, keepdim, dtype)

    def prod(
        self,
        dim: Dims = None,
        keepdim: bool = False,
        *,
        dtype: DType | None = None,
    ) -> Self:
        """Return the product; of integers and bool in int64."""
        return self._accumulated("prod", Combine.MUL, dim, keepdim, dtype)

    def mean(
        self,
        dim: Dims = None,
        keepdim: bool = False,
        *,
        dtype: DType | None = None,
    ) -> Self:
        """Return the sum divided by the number of elements; NaN of none."""
        result = check_float("mean", dtype or self.dtype)
        axes = check_axes("mean", dim, self.ndim)
        x = widen(cast(at_least_1d(self.uop), result))
        return self._folded(average(x, axes), axes, keepdim, result)

    def var(
        self,
        dim: Dims = None,
        *,
        correction: float | None = 1,
        keepdim: bool = False,
    ) -> Self:
        """Return the mean squared difference from the mean, over n - correction."""
        return self._spread("var", dim, correction, keepdim)

    def std(
        self,
        dim: Dims = None,
        *,
        correction: float | None = 1,
        keepdim: bool = False,
    ) -> Self:
        """Return the square root of var."""
        return self._spread("std", dim, correction, keepdim)

    def _spread(self, who: str, dim: Dims, correction: float | None, keepdim: bool) -> Self:
        result = check_float(who, self.dtype)
        axes = check_axes(who, dim, self.ndim)
        spread = variance(widen(at_least_1d(self.uop)), axes, correction)
        chosen = root_of_spread(spread) if who == "std" else spread
        return self._folded(chosen, axes, keepdim, result)

    def any(self, dim: Dims = None, keepdim: bool = False) -> Self:
        """Tell whether one element is not 0."""
        return self._truth("any", Combine.OR, dim, keepdim)

    def all(self, dim: Dims = None, keepdim: bool = False) -> Self:
        """Tell whether all elements are not 0."""
        return self._truth("all", Combine.AND, dim, keepdim)

    def _truth(self, who: str, combine: Combine, dim: Dims, keepdim: bool) -> Self:
        axes = check_axes(who, dim, self.ndim)
        folded = fold(combine, cast(at_least_1d(self.uop), dtypes.bool), axes)
        result = dtypes.uint8 if self.dtype is dtypes.uint8 else dtypes.bool
        return self._folded(folded, axes, keepdim, result)

    def amax(self, dim: Dims = None, keepdim: bool = False) -> Self:
        """Return the greatest element; NaN if there is one."""
        return self._extreme("amax", Combine.MAX, dim, keepdim)

    def amin(self, dim: Dims = None, keepdim: bool = False) -> Self:
        """Return the least element; NaN if there is one."""
        return self._extreme("amin", Combine.MIN, dim, keepdim)

    def _extreme(self, who: str, combine: Combine, dim: Dims, keepdim: bool) -> Self:
        axes = self._filled_axes(who, dim, ShapeError if dim is None else IndexOutOfRange)
        folded = fold(combine, at_least_1d(self.uop), axes)
        return self._folded(folded, axes, keepdim, self.dtype)

    def argmax(self, dim: int | None = None, keepdim: bool = False) -> Self:
        """Return where the greatest element is: the first one, or the first NaN."""
        return self._position("argmax", Combine.ARGMAX, dim, keepdim)

    def argmin(self, dim: int | None = None, keepdim: bool = False) -> Self:
        """Return where the least element is: the first one, or the first NaN."""
        return self._position("argmin", Combine.ARGMIN, dim, keepdim)

    def _position(self, who: str, combine: Combine, dim: int | None, keepdim: bool) -> Self:
        check_dtype(who, self.dtype, is_no_bool)
        axes = self._filled_axes(who, dim)
        flat = dim is None
        x = reshape(self.uop, (self.numel(),)) if flat else at_least_1d(self.uop)
        folded = fold(combine, x, (0,) if flat else axes)
        return self._folded(folded, axes, keepdim, dtypes.int64)

    def _extreme_with_place(
        self, who: str, combine: Combine, place: Combine, dim: int, keepdim: bool
    ) -> Extremes[Self]:
        axes = self._filled_axes(who, dim)
        x = at_least_1d(self.uop)
        positions = fold(place, x, axes)
        values = element_at(fold(combine, x, axes), x, positions, axes[0])
        return Extremes(
            self._folded(values, axes, keepdim, self.dtype),
            self._folded(positions, axes, keepdim, dtypes.int64),
        )

    @overload
    def max(self) -> Self: ...
    @overload
    def max(self, dim: int, keepdim: bool = False) -> Extremes[Self]: ...
    def max(self, dim: int | None = None, keepdim: bool = False) -> Self | Extremes[Self]:
        """Return the greatest element; with dim, the pair (values, indices) along it."""
        if dim is None:
            return self._extreme("max", Combine.MAX, dim, keepdim)
        return self._extreme_with_place("max", Combine.MAX, Combine.ARGMAX, dim, keepdim)

    @overload
    def min(self) -> Self: ...
    @overload
    def min(self, dim: int, keepdim: bool = False) -> Extremes[Self]: ...
    def min(self, dim: int | None = None, keepdim: bool = False) -> Self | Extremes[Self]:
        """Return the least element; with dim, the pair (values, indices) along it."""
        if dim is None:
            return self._extreme("min", Combine.MIN, dim, keepdim)
        return self._extreme_with_place("min", Combine.MIN, Combine.ARGMIN, dim, keepdim)
