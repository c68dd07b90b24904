"""Turns windows into their greatest elements or their means."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

from tinytensor.dtype import dtypes
from tinytensor.errors import ShapeError
from tinytensor.nn.convolution import Each, for_axes, slide_all
from tinytensor.nn.rounding import check_float, widened
from tinytensor.tensor.reduction import Extremes
from tinytensor.tensor.tensor import Tensor

PLANE = 2
LINE = 1


def reach(
    who: str,
    x: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
) -> list[int]:
    """Return how far beyond the padding the last windows reach, for each of the last axes.

    With ceil_mode a window may be cut off at the end, if it starts before it.
    Raises: ShapeError.
    """
    if x.ndim not in (len(kernel) + 1, len(kernel) + 2):
        sentence = f"{who}: axes do not fit: shape {x.shape}"
        raise ShapeError(f"{sentence}; ndim must be {len(kernel) + 1} or {len(kernel) + 2}.")
    beyond = []
    numbers = zip(x.shape[-len(kernel) :], kernel, stride, padding, dilation, strict=True)
    for extent, size, step, side, apart in numbers:
        if side > (apart * (size - 1) + 1) // 2:
            sentence = f"{who}: the padding is more than half of the window: {side} of {size}"
            raise ShapeError(f"{sentence}; each window must hold an element.")
        span = extent + 2 * side - apart * (size - 1) - 1
        extra = -span % step if ceil_mode else 0
        is_outside = span + extra >= extent + side
        beyond.append(0 if is_outside else extra)
    return beyond


def bordered(x: Tensor, padding: Sequence[int], beyond: Sequence[int], value: float) -> Tensor:
    """Return a tensor padded on both sides, and further at its end."""
    pairs = list(zip(padding, beyond, strict=True))[::-1]
    return x.pad(
        [side for before, extra in pairs for side in (before, before + extra)], value=value
    )


def make_max_pool(who: str, count: int) -> Callable[..., Any]:  # Any: two Tensors on request
    """Return the function that takes the greatest element of windows along the last axes."""

    def function(
        input: Tensor,
        kernel_size: Each,
        stride: Each | None = None,
        padding: Each = 0,
        dilation: Each = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Tensor | Extremes[Tensor]:
        """Return the greatest element of each window, NaN if there is one; on request with places.

        The stride is the window's size unless given.
        """
        kernel = for_axes(who, "kernel_size", kernel_size, count, 1)
        steps = for_axes(who, "stride", kernel if stride is None else stride, count, 1)
        sides = for_axes(who, "padding", padding, count, 0)
        apart = for_axes(who, "dilation", dilation, count, 1)
        beyond = reach(who, input, kernel, steps, sides, apart, ceil_mode)
        padded = bordered(input, sides, beyond, input.dtype.min)
        windows = slide_all(who, padded, kernel, steps, apart)
        if not windows.requires_grad and not return_indices:
            return windows.amax(tuple(range(-count, 0)))
        # A gradient goes to the first of equal elements, where amax would share it.
        values, inside = windows.flatten(-count).max(-1)
        if not return_indices:
            return values
        extents = input.shape[-count:]
        return Extremes(values, places_in(inside, extents, kernel, steps, sides, apart))

    function.__name__ = function.__qualname__ = who
    return function


def places_in(
    inside: Tensor,
    extents: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> Tensor:
    """Return where in the input's last axes, as one number, the positions in windows lie.

    One before the axis stands for a window of least elements, whose first own element it is.
    """
    place = inside.zeros_like()
    rest = inside
    count = len(kernel)
    for axis in reversed(range(count)):
        window = Tensor.arange(inside.shape[axis - count], device=inside.device)
        aligned = window.reshape(-1, *[1] * (count - 1 - axis)) * stride[axis] - padding[axis]
        along = aligned + rest % kernel[axis] * dilation[axis]
        along = along.where(along >= 0, along % dilation[axis])
        place = place + along * math.prod(extents[axis + 1 :])
        rest = rest // kernel[axis]
    return place


def average_pool(
    who: str,
    count: int,
    input: Tensor,
    kernel_size: Each,
    stride: Each | None,
    padding: Each,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Tensor:
    """Return the mean of each window, or its sum divided by another number."""
    dtype = input.dtype if input.dtype is dtypes.int64 else check_float(who, input)
    kernel = for_axes(who, "kernel_size", kernel_size, count, 1)
    steps = for_axes(who, "stride", kernel if stride is None else stride, count, 1)
    sides = for_axes(who, "padding", padding, count, 0)
    ones = (1,) * count
    beyond = reach(who, input, kernel, steps, sides, ones, ceil_mode)
    folded = tuple(range(-count, 0))
    padded = bordered(widened(input), sides, beyond, 0)
    sums = slide_all(who, padded, kernel, steps, ones).sum(folded)
    if divisor_override is not None:
        return divided(sums, divisor_override).to(dtype)
    counted = Tensor.ones(input.shape[-count:], dtype=sums.dtype, device=input.device)
    inner = bordered(counted, sides, [0] * count, float(count_include_pad))
    weights = bordered(inner, [0] * count, beyond, 0)
    counts = slide_all(who, weights, kernel, steps, ones).sum(folded)
    return divided(sums, counts).to(dtype)


def divided(sums: Tensor, count: Tensor | int) -> Tensor:
    """Return means of sums, those of integers rounded toward 0."""
    return sums / count if sums.dtype.is_float else sums.div(count, rounding_mode="trunc")


max_pool1d: Final = make_max_pool("max_pool1d", LINE)
max_pool2d: Final = make_max_pool("max_pool2d", PLANE)


def avg_pool1d(
    input: Tensor,
    kernel_size: Each,
    stride: Each | None = None,
    padding: Each = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """Return the mean of windows along the last axis; padding counts as zeros."""
    given = (kernel_size, stride, padding, ceil_mode, count_include_pad, None)
    return average_pool("avg_pool1d", LINE, input, *given)


def avg_pool2d(
    input: Tensor,
    kernel_size: Each,
    stride: Each | None = None,
    padding: Each = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """Return the mean of windows along the last two axes; padding counts as zeros."""
    given = (kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
    return average_pool("avg_pool2d", PLANE, input, *given)
