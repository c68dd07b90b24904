"""Turns draws into random orders and random choices, by sorting and searching."""

from __future__ import annotations

import math
from typing import Self

from tinytensor.dtype import MANTISSA_BITS, DType, dtypes
from tinytensor.errors import DTypeError, ShapeError, ValueOutOfRange
from tinytensor.ops.attrs import Combine
from tinytensor.ops.uop import UOp, cast
from tinytensor.tensor.axes import check_shape
from tinytensor.tensor.creation import device_name
from tinytensor.tensor.distributions import exponential, uniform
from tinytensor.tensor.formulas import both, div, is_at_most, is_less, is_unequal, mul
from tinytensor.tensor.generator import Generator
from tinytensor.tensor.nodes import broadcast, fold, full, full_like, reshape, select, widen
from tinytensor.tensor.ordering import ascending_order
from tinytensor.tensor.random import draw_bits
from tinytensor.tensor.reduction import Reduction, check_float
from tinytensor.tensor.running import running
from tinytensor.tensor.searching import count_before

WORD = 2**32
# Weights are integers of which a row's sum has as many digits as a float64.
TOTAL_DIGITS = 52


def race(bits: UOp, chances: UOp, count: int) -> UOp:
    """Return `count` different places of each row, one after the other by the chances left.

    Whoever comes in first: an exponential time over the chance is least with just that chance. A
    place without a chance comes last.
    """
    times = div(exponential(bits, chances.dtype), chances)
    finished = select(is_less(full_like(chances, 0), chances), times, full_like(times, math.nan))
    return ascending_order(finished, 1, count)


def choose(bits: UOp, chances: UOp) -> UOp:
    """Return places of each row by their chances, as many as there are columns of bits.

    Sums of integers are exact, so a place without a chance is never chosen. Whole weights leave out
    chances below 2 ** -51 of all, times the number of places.
    """
    wide = cast(chances, dtypes.float64)
    greatest = broadcast(fold(Combine.MAX, wide, (1,)), wide.shape)
    digits = TOTAL_DIGITS - chances.shape[1].bit_length()
    weights = cast(mul(div(wide, greatest), 2.0**digits), dtypes.int64)
    ends = running(Combine.ADD, weights, 1)
    total = broadcast(fold(Combine.ADD, weights, (1,)), bits.shape)
    drawn = mul(uniform(bits, dtypes.float64), cast(total, dtypes.float64))
    return count_before(ends, cast(drawn, dtypes.int64), right=True)


class Sampling(Reduction):
    """Random orders and choices."""

    __slots__ = ()

    @classmethod
    def randperm(
        cls,
        n: int,
        *,
        generator: Generator | None = None,
        dtype: DType | None = None,
        device: str | None = None,
        requires_grad: bool = False,
    ) -> Self:
        """Make a tensor of 0 .. n - 1 in random order: that of 64 random bits for each.

        >>> from tinytensor import Tensor
        >>> sorted(Tensor.randperm(4).tolist())
        [0, 1, 2, 3]
        """
        shape, chosen = check_shape("randperm", (n,)), dtype or dtypes.int64
        _check_holds("randperm", shape[0], chosen)
        place = device_name(device)
        order = ascending_order(draw_bits(shape, place, generator), 0)
        return cls._made(cast(order, chosen), place, requires_grad)

    def multinomial(
        self, num_samples: int, replacement: bool = False, *, generator: Generator | None = None
    ) -> Self:
        """Return places along the last axis, each drawn with its element as its chance.

        Chances need not add up to 1. Realizes this tensor, because they are checked.
        Shapes: (n,) -> (num_samples,), (rows, n) -> (rows, num_samples).
        """
        self._check_chances(num_samples, replacement)
        *outer, extent = self.shape
        rows = math.prod(outer)
        chances = reshape(widen(self.uop), (rows, extent))
        columns = num_samples if replacement else extent
        bits = draw_bits((rows, columns), self.device, generator)
        if rows == 0:
            places = full(dtypes.int64, 0, (0, num_samples))
        elif replacement:
            places = choose(bits, chances)
        else:
            places = race(bits, chances, num_samples)
        return self._wrap(reshape(places, (*outer, num_samples)))

    def _check_chances(self, num_samples: int, replacement: bool) -> None:
        who = "multinomial"
        check_float(who, self.dtype)
        if self.ndim not in (1, 2) or self.shape[-1] == 0:
            sentence = f"{who}: the chances are no rows: shape {self.shape}"
            raise ShapeError(f"{sentence}; it must be (n,) or (rows, n) with n of 1 or more.")
        most = WORD if replacement else self.shape[-1]
        if not 1 <= num_samples <= most:
            sentence = f"{who}: num_samples is out of range: {num_samples} of {self.shape[-1]}"
            raise ValueOutOfRange(f"{sentence}; it must be in 1 .. {most}.")
        x = self.uop
        infinity = full_like(x, math.inf)
        is_chance = both(is_at_most(full_like(x, 0), x), is_less(x, infinity))
        is_sound = self._wrap(is_chance).all()
        has_some = self._wrap(is_unequal(x, 0)).any(-1).all()
        if not is_sound.realize(has_some):
            sentence = f"{who}: an element is no chance: shape {self.shape}"
            raise ValueOutOfRange(f"{sentence}; all must be 0 or more and finite.")
        if not has_some:
            sentence = f"{who}: there is nothing to draw: a row of shape {self.shape} is 0"
            raise ValueOutOfRange(f"{sentence}; its sum must be above 0.")


def _check_holds(who: str, n: int, dtype: DType) -> None:
    """Raise unless a dtype holds all of 0 .. n - 1."""
    most = 2 ** (MANTISSA_BITS[dtype.name] + 1) if dtype.is_float else dtype.max
    if dtype is dtypes.bool or n - 1 > most:
        sentence = f"{who}: the dtype cannot hold the numbers: 0 .. {n - 1} in {dtype.name}"
        raise DTypeError(f"{sentence}; it must be an integer or float dtype that holds each.")
