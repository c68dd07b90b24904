"""Turns shapes and draws into Tensors of random numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from operator import index
from typing import Self

from tinytensor.dtype import DType, dtypes
from tinytensor.errors import DTypeError, ValueOutOfRange
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp, cast
from tinytensor.tensor.axes import Shape, check_shape
from tinytensor.tensor.base import TensorBase
from tinytensor.tensor.creation import Sizes, device_name
from tinytensor.tensor.distributions import chance, normal, uniform, uniform_integer
from tinytensor.tensor.formulas import add, is_less, mul
from tinytensor.tensor.generator import Generator, default_generator
from tinytensor.tensor.host import check_number
from tinytensor.tensor.nodes import (
    broadcast,
    full,
    full_like,
    iota,
    reshape,
    select,
    take_slices,
    widen,
)
from tinytensor.tracing import ACTIVE, feed


def draw_bits(shape: Shape, device: str, generator: Generator | None) -> UOp:
    """Return 64 random bits an element: those of the generator's next draw.

    The draw is taken now, whenever it is computed. Its number and seed are values in memory, so
    programs that differ in them alone are one program.
    """
    leaf = _leaf_of_draw(generator or default_generator, device)
    number, seed = (reshape(take_slices(leaf, [range(place, place + 1)]), ()) for place in range(2))
    element = cast(reshape(iota(math.prod(shape)), shape), dtypes.uint64)
    operands = (element, broadcast(number, shape), broadcast(seed, shape))
    return UOp(Op.PHILOX, dtypes.uint64, operands)


def _leaf_of_draw(generator: Generator, device: str) -> UOp:
    """Return number and seed of a generator's next draw; one that is repeated keeps its leaf."""
    trace = ACTIVE.trace
    if trace is not None:
        trace.begin_effect()
    drawn = generator.draw()
    if trace is not None and drawn in trace.draws:
        return trace.draws[drawn]
    waiting = [drawn]

    def numbers() -> list[int]:
        draw = waiting.pop() if waiting else generator.draw()
        return [draw.number, draw.seed]

    leaf = feed(numbers, dtypes.uint64, device)
    if trace is not None:
        trace.draws[drawn] = leaf
    return leaf


def check_probability(who: str, p: float) -> None:
    """Raise ValueOutOfRange unless p is a probability."""
    if not 0 <= p <= 1:
        raise ValueOutOfRange(f"{who}: p is no probability: {p}; it must be in 0 .. 1.")


def _float_dtype(who: str, dtype: DType | None) -> DType:
    chosen = dtype or dtypes.float32
    if not chosen.is_float:
        sentence = f"{who}: the numbers are fractions: dtype is {chosen.name}"
        raise DTypeError(f"{sentence}; it must be a float dtype.")
    return chosen


class Random(TensorBase):
    """Random numbers: which ones is settled by the call, not by the order of computing."""

    __slots__ = ()

    @classmethod
    def _drawn(
        cls,
        numbers: Callable[[UOp], UOp],
        shape: Shape,
        generator: Generator | None,
        device: str | None,
        requires_grad: bool,
    ) -> Self:
        place = device_name(device)
        return cls._made(numbers(draw_bits(shape, place, generator)), place, requires_grad)

    @classmethod
    def rand(
        cls,
        *size: Sizes,
        generator: Generator | None = None,
        dtype: DType | None = None,
        device: str | None = None,
        requires_grad: bool = False,
    ) -> Self:
        """Make a tensor of numbers spread evenly over [0, 1)."""
        shape = check_shape("rand", size)
        numbers = partial(uniform, dtype=_float_dtype("rand", dtype))
        return cls._drawn(numbers, shape, generator, device, requires_grad)

    @classmethod
    def randn(
        cls,
        *size: Sizes,
        generator: Generator | None = None,
        dtype: DType | None = None,
        device: str | None = None,
        requires_grad: bool = False,
    ) -> Self:
        """Make a tensor of normal numbers, of mean 0 and variance 1."""
        shape = check_shape("randn", size)
        numbers = partial(normal, dtype=_float_dtype("randn", dtype))
        return cls._drawn(numbers, shape, generator, device, requires_grad)

    @classmethod
    def randint(
        cls,
        low: int = 0,
        high: int | Sequence[int] | None = None,
        size: Sequence[int] | None = None,
        *,
        generator: Generator | None = None,
        dtype: DType | None = None,
        device: str | None = None,
        requires_grad: bool = False,
    ) -> Self:
        """Make a tensor of integers low .. high - 1; `randint(high, size)` begins at 0.

        >>> from tinytensor.tensor.tensor import Tensor
        >>> Tensor.randint(5, 6, (2, 2)).tolist()
        [[5, 5], [5, 5]]
        """
        sizes = high if size is None else size
        first, end = (low, high) if size is not None and high is not None else (0, low)
        if not isinstance(sizes, Sequence) or isinstance(end, Sequence):
            sentence = f"randint: a bound or the size is missing: {low}, {high}, {size}"
            raise TypeError(f"{sentence}; give high and size, or low, high and size.")
        first, end = index(first), index(end)
        shape, chosen = check_shape("randint", (sizes,)), dtype or dtypes.int64
        if first >= end:
            sentence = f"randint: there is no integer to choose: {first} .. {end - 1}"
            raise ValueOutOfRange(f"{sentence}; low must be below high.")
        for bound in (first, end - 1):
            check_number("randint", bound, chosen if chosen.is_int else dtypes.int64)
        numbers = partial(integers, low=first, high=end, dtype=chosen)
        return cls._drawn(numbers, shape, generator, device, requires_grad)

    def rand_like(
        self,
        *,
        generator: Generator | None = None,
        dtype: DType | None = None,
        device: str | None = None,
        requires_grad: bool = False,
    ) -> Self:
        """Make what rand makes, with this tensor's shape and, unless given, dtype and device."""
        numbers = partial(uniform, dtype=_float_dtype("rand_like", dtype or self.dtype))
        place = device or self.device
        return self._drawn(numbers, self.shape, generator, place, requires_grad)

    def randn_like(
        self,
        *,
        generator: Generator | None = None,
        dtype: DType | None = None,
        device: str | None = None,
        requires_grad: bool = False,
    ) -> Self:
        """Make what randn makes, with this tensor's shape and, unless given, dtype and device."""
        numbers = partial(normal, dtype=_float_dtype("randn_like", dtype or self.dtype))
        place = device or self.device
        return self._drawn(numbers, self.shape, generator, place, requires_grad)

    def randint_like(
        self,
        low: int = 0,
        high: int | None = None,
        *,
        generator: Generator | None = None,
        dtype: DType | None = None,
        device: str | None = None,
        requires_grad: bool = False,
    ) -> Self:
        """Make what randint makes, with this tensor's shape and, unless given, dtype and device."""
        return self.randint(
            low,
            high,
            self.shape,
            generator=generator,
            dtype=dtype or self.dtype,
            device=device or self.device,
            requires_grad=requires_grad,
        )

    def bernoulli(self, p: float | None = None, *, generator: Generator | None = None) -> Self:
        """Make ones with probability p, or with this tensor's own values as probabilities.

        Values outside 0 .. 1 are taken as the nearer end; NaN never gives a one.
        """
        bits = draw_bits(self.shape, self.device, generator)
        if p is not None:
            check_probability("bernoulli", p)
            return self._wrap(cast(chance(bits, p), self.dtype))
        _float_dtype("bernoulli", self.dtype)
        chances = widen(self.uop)
        ones = is_less(uniform(bits, chances.dtype), chances)
        return self._wrap(cast(ones, self.dtype))

    def dropout(self, p: float = 0.5, training: bool = True) -> Self:
        """Return this tensor with each element set to 0 with probability p, the others / (1 - p).

        Unless training, or where p is 0, it is this tensor.
        """
        check_probability("dropout", p)
        if p == 0 or not training:
            return self
        dtype = _float_dtype("dropout", self.dtype)
        drops = chance(draw_bits(self.shape, self.device, None), p)
        kept = full(dtype, 1 / (1 - p) if p < 1 else 0, self.shape)
        factors = select(drops, full_like(kept, 0), kept)
        return self._wrap(mul(self.uop, factors))


def integers(bits: UOp, low: int, high: int, dtype: DType) -> UOp:
    """Return integers low .. high - 1 in a dtype."""
    chosen = cast(uniform_integer(bits, high - low), dtypes.int64)
    return cast(add(chosen, low), dtype)
