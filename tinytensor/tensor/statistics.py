"""Turns norms, counts and running sums into folds."""

from __future__ import annotations

import math
from functools import partial
from typing import Generic, NamedTuple, Self, TypeVar

from tinytensor.dtype import DType, dtypes
from tinytensor.errors import ShapeError, ValueOutOfRange
from tinytensor.grad import with_rules
from tinytensor.ops.attrs import Combine
from tinytensor.ops.uop import UOp, cast
from tinytensor.tensor import nodes, precise
from tinytensor.tensor.arithmetic import number_power
from tinytensor.tensor.axes import Dims, Shape, check_axes, check_axis
from tinytensor.tensor.formulas import div, is_equal, is_unequal, magnitude, mul
from tinytensor.tensor.nodes import fold, full_like, select, widen
from tinytensor.tensor.reduction import Reduction, at_least_1d, check_float, root_of_spread
from tinytensor.tensor.running import running

T = TypeVar("T")


class Bounds(NamedTuple, Generic[T]):
    """The least and the greatest element."""

    min: T
    max: T


def powers_of(x: UOp, exponent: float) -> UOp:
    """Return x ** exponent, computed in float64, in x's dtype."""
    wide = cast(x, dtypes.float64)
    return cast(precise.power(wide, full_like(wide, exponent)), x.dtype)


def norm_of(x: UOp, p: float, axes: Shape) -> UOp:
    """Return the p-norm over axes, which stay with extent 1."""
    size = magnitude(x)
    if math.isinf(p):
        return fold(Combine.MAX if p > 0 else Combine.MIN, size, axes)
    if p == 0:
        counted = cast(is_unequal(x, 0), x.dtype)
        return fold(Combine.ADD, with_rules(counted, [x], lambda g, *_: full_like(g, 0)), axes)
    if p == 1:
        return fold(Combine.ADD, size, axes)
    if p == 2:
        return root_of_spread(fold(Combine.ADD, mul(x, x), axes))
    value = powers_of(fold(Combine.ADD, powers_of(size, p), axes), 1 / p)
    return with_rules(value, [size], partial(_of_norm, p))


def _of_norm(p: float, g: UOp, out: UOp, size: UOp) -> UOp:
    """Return g * (size / out) ** (p - 1), where what is 0 has the slope 0."""
    is_zero = is_equal(size, 0)
    one = full_like(size, 1)
    whole = select(is_zero, one, nodes.broadcast(out, size.shape))
    slope = number_power(div(select(is_zero, one, size), whole), p - 1)
    return select(is_zero, full_like(size, 0), mul(nodes.broadcast(g, size.shape), slope))


class Statistics(Reduction):
    """Norms, counts and running sums."""

    __slots__ = ()

    def norm(
        self,
        p: float | str | None = "fro",
        dim: Dims = None,
        keepdim: bool = False,
        dtype: DType | None = None,
    ) -> Self:
        """Return the p-norm of the elements as one vector; 'fro' and None are the 2-norm."""
        if isinstance(p, str) and p != "fro":
            raise ValueOutOfRange(f"norm: no such norm: {p!r}; it must be a number or 'fro'.")
        order = 2.0 if p is None or isinstance(p, str) else float(p)
        check_float("norm", self.dtype)
        result = check_float("norm", dtype or self.dtype)
        axes = check_axes("norm", dim, self.ndim)
        extents = [self.shape[axis] for axis in axes if self.shape]
        if math.isinf(order) and 0 in extents:
            sentence = f"norm: nothing to choose from: axes {axes} of shape {self.shape}"
            raise ShapeError(f"{sentence}; they must hold 1 element or more.")
        x = widen(cast(at_least_1d(self.uop), result))
        return self._folded(norm_of(x, order, axes), axes, keepdim, result)

    def count_nonzero(self, dim: Dims = None) -> Self:
        """Return how many elements are not 0, as int64."""
        return self._wrap(is_unequal(self.uop, 0)).sum(dim)

    def nansum(
        self, dim: Dims = None, keepdim: bool = False, *, dtype: DType | None = None
    ) -> Self:
        """Return the sum of the elements that are not NaN."""
        x = self.uop
        kept = select(is_unequal(x, x), full_like(x, 0), x) if x.dtype.is_float else x
        return self._wrap(kept).sum(dim, keepdim, dtype=dtype)

    def var_mean(
        self,
        dim: Dims = None,
        *,
        correction: float | None = 1,
        keepdim: bool = False,
    ) -> tuple[Self, Self]:
        """Return var and mean."""
        spread = self.var(dim, correction=correction, keepdim=keepdim)
        return spread, self.mean(dim, keepdim)

    def std_mean(
        self,
        dim: Dims = None,
        *,
        correction: float | None = 1,
        keepdim: bool = False,
    ) -> tuple[Self, Self]:
        """Return std and mean."""
        spread = self.std(dim, correction=correction, keepdim=keepdim)
        return spread, self.mean(dim, keepdim)

    def aminmax(self, *, dim: int | None = None, keepdim: bool = False) -> Bounds[Self]:
        """Return amin and amax, of all elements or along an axis."""
        return Bounds(self.amin(dim, keepdim), self.amax(dim, keepdim))

    def cumsum(self, dim: int, *, dtype: DType | None = None) -> Self:
        """Return the sum of the elements up to each one along an axis; of integers in int64."""
        return self._running("cumsum", Combine.ADD, dim, dtype)

    def cumprod(self, dim: int, *, dtype: DType | None = None) -> Self:
        """Return the product of the elements up to each one along an axis; of integers in int64."""
        return self._running("cumprod", Combine.MUL, dim, dtype)

    def _running(self, who: str, combine: Combine, dim: int, dtype: DType | None) -> Self:
        axis = check_axis(who, dim, self.ndim)
        result = dtype or (self.dtype if self.dtype.is_float else dtypes.int64)
        x = cast(self.uop, result)
        if self.ndim == 0 or 0 in self.shape:
            return self._wrap(x)
        wide = widen(x) if result.is_float else x
        return self._wrap(cast(running(combine, wide, axis), result))
