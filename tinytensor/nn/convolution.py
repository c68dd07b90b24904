"""Turns a convolution into one sum of products over windows, which the schedule contracts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from tinytensor.dtype import DType, dtypes
from tinytensor.errors import DTypeError, ShapeError
from tinytensor.grad import with_rules
from tinytensor.nn.convolution_gradient import (
    MOST_COMBS,
    Stepping,
    bias_gradient,
    input_gradient,
    weight_gradient,
)
from tinytensor.nn.parameter import check_parameters
from tinytensor.nn.rounding import widened
from tinytensor.ops.uop import UOp
from tinytensor.tensor.axes import flat_sizes
from tinytensor.tensor.tensor import Tensor
from tinytensor.tensor.windows import slide

Each = int | Sequence[int]  # one number for all axes, or one for each


def for_axes(who: str, name: str, value: Each, count: int, least: int) -> tuple[int, ...]:
    """Return a number for each axis.

    Raises: ShapeError.
    """
    numbers = flat_sizes((value,))
    if len(numbers) == 1:
        numbers *= count
    if len(numbers) != count or min(numbers) < least:
        sentence = f"{who}: {name} does not fit {count} axes: {numbers}"
        raise ShapeError(f"{sentence}; there must be {count} numbers, each {least} or more.")
    return numbers


def slide_all(
    who: str, x: Tensor, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> Tensor:
    """Return the windows along the last axes.

    Shapes: x (.., *extents) -> (.., *windows, *kernel).
    Raises: ShapeError when there is no full window.
    """
    count = len(kernel)
    before = x.ndim - count
    uop = x.uop
    for number, (extent, step, apart) in enumerate(zip(kernel, stride, dilation, strict=True)):
        axis = before + 2 * number
        if apart * (extent - 1) + 1 > uop.shape[axis]:
            sentence = f"{who}: the window is larger than its axis: {extent} on {uop.shape[axis]}"
            raise ShapeError(f"{sentence}; with dilation {apart} at least one must fit.")
        uop = slide(uop, axis, extent, step, apart)
    places = range(before, before + 2 * count, 2)
    order = (*range(before), *[axis + 1 for axis in places], *places)
    return x._wrap(uop).permute(order)


def convolve(
    who: str,
    count: int,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Each,
    padding: Each | str,
    dilation: Each,
    groups: int,
) -> Tensor:
    """Return the sums of products of windows and weights, accumulated as in matmul.

    Shapes: input ([n,] groups * c, *extents), weight (groups * m, c, *kernel), bias (groups * m,).
    """
    check_dtypes(who, input, weight, bias)
    check_channels(who, input, weight, count, groups)
    check_parameters(who, weight.shape[:1], bias)
    x = input if input.ndim == count + 2 else input.unsqueeze(0)
    kernel = weight.shape[2:]
    steps = for_axes(who, "stride", stride, count, 1)
    apart = for_axes(who, "dilation", dilation, count, 1)
    sides = border(who, padding, kernel, steps, apart)
    windows = _grouped(slide_all(who, x.pad(sides), kernel, steps, apart), count, groups)
    value = _sum_windows(windows, weight, bias)
    extents, before = x.shape[2:], sides[-2::-2]
    axes = [Stepping(*each) for each in zip(extents, kernel, steps, apart, before, strict=True)]

    def of_input(g: UOp, out: UOp, x: UOp, weight: UOp, *_: UOp) -> UOp:
        wrapped = value._wrap(g), value._wrap(weight)
        return input_gradient(*wrapped, axes, groups, partial(_convolve_all, count)).uop

    def of_weight(g: UOp, out: UOp, x: UOp, weight: UOp, *_: UOp) -> UOp:
        padded = value._wrap(x).pad(sides)
        seen = _grouped(slide_all(who, padded, kernel, steps, apart), count, groups)
        return weight_gradient(value._wrap(g), seen, value._wrap(weight), groups).uop

    def of_bias(g: UOp, *_: UOp) -> UOp:
        return bias_gradient(value._wrap(g)).uop

    given = [each.uop for each in (x, weight, bias) if each is not None]
    rules = (of_input, of_weight, of_bias)[: len(given)]
    has_rules = 0 not in value.shape and math.prod(steps) <= MOST_COMBS
    result = value._wrap(with_rules(value.uop, given, *rules)) if has_rules else value
    return result if x is input else result.squeeze(0)


def _convolve_all(
    count: int, x: Tensor, weight: Tensor, dilation: Sequence[int], groups: int
) -> Tensor:
    return convolve("convolve", count, x, weight, None, 1, 0, dilation, groups)


def _grouped(windows: Tensor, count: int, groups: int) -> Tensor:
    """Set the channels of a group apart: n, group, 1, places, input channel of it, kernel."""
    n, channels, *rest = windows.shape
    grouped = windows.reshape(n, groups, 1, channels // groups, *rest)
    return grouped.movedim(3, 3 + len(rest) - count)


def _sum_windows(windows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Multiply windows by filters, sum them, add the bias, and round once."""
    count = weight.ndim - 2
    n, groups, _, *rest = windows.shape
    ones = (1,) * count
    filters = weight.reshape(1, groups, weight.shape[0] // groups, *ones, *weight.shape[1:])
    sums = (widened(windows) * widened(filters)).sum(tuple(range(-count - 1, 0)))
    result = sums.reshape(n, weight.shape[0], *rest[:count])
    if bias is not None:
        result = result + widened(bias).reshape(-1, *ones)
    return result.to(weight.dtype)


def check_dtypes(who: str, *tensors: Tensor | None) -> DType:
    """Return the dtype that all given tensors share.

    Raises: DTypeError.
    """
    found = [each.dtype for each in tensors if each is not None]
    if found.count(found[0]) < len(found) or found[0] is dtypes.bool:
        names = ", ".join(each.name for each in found)
        raise DTypeError(
            f"{who}: dtypes do not multiply: {names}; they must be equal and not bool."
        )
    return found[0]


def check_channels(who: str, x: Tensor, weight: Tensor, count: int, groups: int) -> None:
    """Raise ShapeError unless input and weight have fitting axes and channels."""
    if x.ndim not in (count + 1, count + 2) or weight.ndim != count + 2:
        sentence = f"{who}: axes do not fit: input {x.shape}, weight {weight.shape}"
        raise ShapeError(f"{sentence}; ndim must be {count + 2}, of the input also {count + 1}.")
    fits = groups > 0 and weight.shape[0] % groups == 0
    if not fits or x.shape[-count - 1] != weight.shape[1] * groups:
        sentence = f"{who}: channels do not fit: input {x.shape}, weight {weight.shape}"
        required = f"input.shape[{-count - 1}] must be {groups} times weight.shape[1]"
        raise ShapeError(f"{sentence}, groups {groups}; {required}.")


def border(
    who: str,
    padding: Each | str,
    kernel: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
) -> list[int]:
    """Return what Tensor.pad takes: (before, after) of each axis, the last one first.

    Raises: ShapeError.
    """
    if isinstance(padding, str):
        if padding not in ("valid", "same") or (padding == "same" and max(stride) > 1):
            sentence = f"{who}: no such padding: {padding!r} with stride {tuple(stride)}"
            raise ShapeError(f"{sentence}; it must be numbers, 'valid', or 'same' with stride 1.")
        spans = [apart * (n - 1) for n, apart in zip(kernel, dilation, strict=True)]
        totals = spans if padding == "same" else [0] * len(spans)
        return [side for total in totals[::-1] for side in (total // 2, total - total // 2)]
    sides = for_axes(who, "padding", padding, len(kernel), 0)
    return [side for each in sides[::-1] for side in (each, each)]


def make_convolution(who: str, count: int) -> Callable[..., Tensor]:
    """Return the function that convolves along so many last axes."""

    def function(
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Each = 1,
        padding: Each | str = 0,
        dilation: Each = 1,
        groups: int = 1,
    ) -> Tensor:
        """Convolve along the last axes; halves accumulate in float32."""
        return convolve(who, count, input, weight, bias, stride, padding, dilation, groups)

    function.__name__ = function.__qualname__ = who
    return function


conv1d: Final = make_convolution("conv1d", 1)
conv2d: Final = make_convolution("conv2d", 2)
conv3d: Final = make_convolution("conv3d", 3)
