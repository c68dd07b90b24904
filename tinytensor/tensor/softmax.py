"""Turns softmax and its kin into exponentials of differences from the greatest element."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Self

from tinytensor.dtype import DType
from tinytensor.grad import cut, with_rules
from tinytensor.ops.attrs import Combine
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp, cast
from tinytensor.tensor.axes import Dims, Shape, check_axes, check_axis
from tinytensor.tensor.formulas import add, exp, is_equal, log, magnitude, mul
from tinytensor.tensor.nodes import apply, broadcast, floating, fold, full, reshape, select, widen
from tinytensor.tensor.reduction import Reduction, at_least_1d, check_float


def _over_axes(op: Op, x: UOp, folded: UOp) -> UOp:
    """Apply an op to x and a fold of it, repeated over the folded axes."""
    return apply(op, x, broadcast(folded, x.shape))


def greatest(x: UOp, axes: Shape) -> UOp:
    """Return the maximum to subtract, which cancels: so its gradient is 0 and is left out."""
    return cut(fold(Combine.MAX, x, axes))


def exponential_shares(x: UOp, axes: Shape) -> UOp:
    """Return exp(x - max) divided by its sum.

    Its gradient needs the shares and nothing else, so the exponentials need not be kept for it.
    """

    def slope(g: UOp, out: UOp, x: UOp) -> UOp:
        total = fold(Combine.ADD, mul(g, out), axes)
        return mul(_over_axes(Op.SUB, g, total), out)

    lowered = _over_axes(Op.SUB, x, fold(Combine.MAX, x, axes))
    powers = exp(lowered)
    shares = _over_axes(Op.DIV, powers, fold(Combine.ADD, powers, axes))
    return with_rules(shares, [x], slope)


def log_shares(x: UOp, axes: Shape) -> UOp:
    """Return (x - max) less the logarithm of the sum of its exponentials."""
    lowered = _over_axes(Op.SUB, x, greatest(x, axes))
    total = fold(Combine.ADD, exp(lowered), axes)
    return _over_axes(Op.SUB, lowered, log(total))


def log_total(x: UOp, axes: Shape) -> UOp:
    """Return log(sum(exp(x))); an infinite maximum is not subtracted, as inf - inf is NaN."""
    most = greatest(x, axes)
    infinite = is_equal(magnitude(most), inf)
    shift = select(infinite, full(x.dtype, 0, most.shape), most)
    total = fold(Combine.ADD, exp(_over_axes(Op.SUB, x, shift)), axes)
    return add(log(total), shift)


class Softmax(Reduction):
    """Functions of all elements along an axis."""

    __slots__ = ()

    def softmax(
        self,
        dim: int,
        dtype: DType | None = None,
    ) -> Self:
        """Return exp(x) divided by its sum along an axis; halves compute in float32."""
        return self._shares("softmax", exponential_shares, dim, dtype)

    def log_softmax(
        self,
        dim: int,
        dtype: DType | None = None,
    ) -> Self:
        """Return the logarithm of softmax; halves compute in float32."""
        return self._shares("log_softmax", log_shares, dim, dtype)

    def logsumexp(
        self,
        dim: Dims,
        keepdim: bool = False,
    ) -> Self:
        """Return log(sum(exp(x))) over axes; integers and bool as float32."""
        axes = check_axes("logsumexp", dim, self.ndim)
        x = floating(self.uop)
        wide = widen(at_least_1d(x))
        is_empty = 0 in [wide.shape[axis] for axis in axes]
        total = log(fold(Combine.ADD, wide, axes)) if is_empty else log_total(wide, axes)
        return self._folded(total, axes, keepdim, x.dtype)

    def _shares(
        self, who: str, formula: Callable[[UOp, Shape], UOp], dim: int, dtype: DType | None
    ) -> Self:
        axis = check_axis(who, dim, self.ndim)
        result = check_float(who, dtype or self.dtype)
        x = cast(self.uop, result)
        if 0 in x.shape:
            return self._wrap(x)
        shares = formula(widen(at_least_1d(x)), (axis,))
        return self._wrap(reshape(cast(shares, result), self.shape))
