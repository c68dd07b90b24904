"""Turns numbers, tensors and draws into new values of a tensor that is there already."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

import numpy as np

from tinytensor.dtype import MANTISSA_BITS, DType, dtypes
from tinytensor.errors import ShapeError, ValueOutOfRange
from tinytensor.ops.uop import Number, UOp, cast, const
from tinytensor.tensor.axes import Shape, broadcast_shapes
from tinytensor.tensor.base import TensorBase
from tinytensor.tensor.creation import copy_to
from tinytensor.tensor.distributions import chance, normal, uniform
from tinytensor.tensor.formulas import add, is_less, mul
from tinytensor.tensor.generator import Generator
from tinytensor.tensor.host import check_number
from tinytensor.tensor.nodes import broadcast, reshape, widen
from tinytensor.tensor.random import check_probability, draw_bits, integers
from tinytensor.tensor.reduction import check_float


def number_node(who: str, value: Number, dtype: DType) -> UOp:
    """Return a number that is written as a constant.

    Raises: DTypeError for one that the dtype cannot hold.
    """
    number = value.item() if isinstance(value, np.generic) else value
    return const(dtype, check_number(who, number, dtype))


class Filling(TensorBase):
    """Writes that do not depend on the values before."""

    __slots__ = ()

    def copy_(self, src: TensorBase | Number, non_blocking: bool = False) -> Self:
        """Write another tensor's values, expanded to this shape, in this dtype and place."""
        if isinstance(src, TensorBase):
            return self._copied("copy_", src, src.uop)
        return self._assign("copy_", src)

    def fill_(self, value: Number | TensorBase) -> Self:
        """Write one number everywhere."""
        if isinstance(value, TensorBase) and value.ndim:
            sentence = f"fill_: the value has axes: shape {value.shape}"
            raise ShapeError(f"{sentence}; it must be a number or 0-d. Use copy_.")
        return self._assign("fill_", value)

    def zero_(self) -> Self:
        """Write 0 everywhere."""
        return self.fill_(0)

    def _assign(self, who: str, value: Number | TensorBase) -> Self:
        """Write a number, or a tensor that expands to this shape once axes in front are gone."""
        if isinstance(value, TensorBase):
            front = max(value.ndim - self.ndim, 0)
            is_single = set(value.shape[:front]) <= {1}
            shape = value.shape[front:] if is_single else value.shape
            return self._copied(who, value, reshape(value.uop, shape))
        filled = broadcast(number_node(who, value, self.dtype), self.shape)
        self._write(who, filled, is_one_value=who == "fill_")
        return self

    def _copied(self, who: str, source: TensorBase, value: UOp) -> Self:
        self._check_fit(who, value.shape)
        moved = copy_to(cast(value, self.dtype), source.device, self.device)
        self._write(who, broadcast(moved, self.shape))
        return self

    def _check_fit(self, who: str, shape: Shape) -> None:
        if broadcast_shapes(who, [self.shape, shape]) != self.shape:
            sentence = f"{who}: the values do not fit: shape {shape} into {self.shape}"
            raise ShapeError(f"{sentence}; a tensor that is written is not broadcast.")

    def normal_(
        self, mean: float = 0, std: float = 1, *, generator: Generator | None = None
    ) -> Self:
        """Write normal numbers of a mean and a standard deviation."""
        if std < 0:
            sentence = f"normal_: the standard deviation is negative: {std}"
            raise ValueOutOfRange(f"{sentence}; it must be 0 or more.")
        return self._draw("normal_", generator, normal, std, mean)

    def uniform_(
        self, start: float = 0, to: float = 1, *, generator: Generator | None = None
    ) -> Self:
        """Write numbers spread evenly over [start, to); PyTorch names the first bound `from`."""
        if start > to:
            sentence = f"uniform_: there is no number to choose: {start} .. {to}"
            raise ValueOutOfRange(f"{sentence}; the first bound must not be above the second.")
        return self._draw("uniform_", generator, uniform, to - start, start)

    def bernoulli_(
        self, p: float | TensorBase = 0.5, *, generator: Generator | None = None
    ) -> Self:
        """Write ones with probability p, which may differ between elements, and zeros."""
        bits = draw_bits(self.shape, self.device, generator)
        if isinstance(p, TensorBase):
            self._check_fit("bernoulli_", p.shape)
            chances = broadcast(widen(p.uop), self.shape)
            ones = is_less(uniform(bits, chances.dtype), chances)
        else:
            check_probability("bernoulli_", p)
            ones = chance(bits, p)
        self._write("bernoulli_", cast(ones, self.dtype))
        return self

    def random_(self, *bounds: int | None, generator: Generator | None = None) -> Self:
        """Write integers: `random_(to)` those of 0 .. to - 1, `random_(start, to)` from start on.

        Without an end all that the dtype holds, of a float dtype those below which every integer
        is one of its numbers.
        """
        dtype = self.dtype
        first, end = bounds if len(bounds) == 2 else (0, *bounds, None)[:2]
        least, limit = first or 0, end
        if limit is None:
            limit = _count_from_0(dtype)
        if least >= limit:
            sentence = f"random_: there is no integer to choose: {least} .. {limit - 1}"
            raise ValueOutOfRange(f"{sentence}; the first bound must be below the second.")
        for bound in (least, limit - 1):
            check_number("random_", bound, dtype if dtype.is_int else dtypes.int64)
        bits = draw_bits(self.shape, self.device, generator)
        self._write("random_", integers(bits, least, limit, dtype))
        return self

    def _draw(
        self,
        who: str,
        generator: Generator | None,
        numbers: Callable[[UOp, DType], UOp],
        scale: float,
        shift: float,
    ) -> Self:
        """Write numbers of a distribution, scaled and shifted; halves are rounded once more."""
        dtype = check_float(who, self.dtype)
        drawn = widen(numbers(draw_bits(self.shape, self.device, generator), dtype))
        self._write(who, cast(add(mul(drawn, scale), shift), dtype))
        return self


def _count_from_0(dtype: DType) -> int:
    """Return how many integers from 0 on a dtype holds one by one; of int64's, all there are."""
    if dtype.is_float:
        return (2 << MANTISSA_BITS[dtype.name]) + 1
    digits = min(dtype.bits - (dtype.kind == "int"), 63)
    return 2 if dtype is dtypes.bool else 1 << digits
