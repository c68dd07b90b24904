"""Turns a convolution into one sum of products over windows, which the schedule contracts."""

from __future__ import annotations

from collections.abc import Sequence

from tinytensor.dtype import DType, dtypes
from tinytensor.errors import DTypeError, ShapeError
from tinytensor.nn.rounding import widened
from tinytensor.tensor import windows
from tinytensor.tensor.correlation import Slide, correlate
from tinytensor.tensor.tensor import Tensor

Each = int | Sequence[int]  # one number for all axes, or one for each


def for_axes(who: str, name: str, value: Each, count: int, least: int) -> tuple[int, ...]:
    """Return a number for each axis.

    Raises: ShapeError.
    """
    numbers = (value,) * count if isinstance(value, int) else tuple(value)
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
    check_windows(who, x.shape[-len(kernel) :], kernel, dilation)
    return x._wrap(windows.slide_all(x.uop, kernel, stride, dilation))


def check_windows(
    who: str, extents: Sequence[int], kernel: Sequence[int], dilation: Sequence[int]
) -> None:
    """Raise ShapeError unless a full window fits into axes."""
    for extent, apart, n in zip(kernel, dilation, extents, strict=True):
        if apart * (extent - 1) + 1 > n:
            sentence = f"{who}: the window is larger than its axis: {extent} on {n}"
            raise ShapeError(f"{sentence}; with dilation {apart} at least one must fit.")


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
    dtype = check_dtypes(who, input, weight, bias)
    check_channels(who, input, weight, count, groups)
    x = input if input.ndim == count + 2 else input.unsqueeze(0)
    kernel = weight.shape[2:]
    steps = for_axes(who, "stride", stride, count, 1)
    apart = for_axes(who, "dilation", dilation, count, 1)
    n, channels, *extents = x.shape
    sides = border(who, padding, kernel, steps, apart)[::-1]
    slides = [Slide(*each) for each in zip(steps, apart, sides[1::2], sides[::2], strict=True)]
    padded = [n + each.before + each.after for n, each in zip(extents, slides, strict=True)]
    check_windows(who, padded, kernel, apart)
    grouped = x.reshape(n, groups, channels // groups, *extents)
    filters = weight.reshape(groups, weight.shape[0] // groups, *weight.shape[1:])
    sums = x._wrap(correlate(grouped.uop, filters.uop, slides))
    result = sums.reshape(n, weight.shape[0], *sums.shape[3:])
    if bias is not None:
        result = result + widened(bias).reshape(-1, *[1] * count)
    return (result if x is input else result.squeeze(0)).to(dtype)


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


def conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Each = 1,
    padding: Each | str = 0,
    dilation: Each = 1,
    groups: int = 1,
) -> Tensor:
    """Convolve along the last axis; halves accumulate in float32."""
    return convolve("conv1d", 1, input, weight, bias, stride, padding, dilation, groups)


def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Each = 1,
    padding: Each | str = 0,
    dilation: Each = 1,
    groups: int = 1,
) -> Tensor:
    """Convolve along the last two axes; halves accumulate in float32."""
    return convolve("conv2d", 2, input, weight, bias, stride, padding, dilation, groups)


def conv3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Each = 1,
    padding: Each | str = 0,
    dilation: Each = 1,
    groups: int = 1,
) -> Tensor:
    """Convolve along the last three axes; halves accumulate in float32."""
    return convolve("conv3d", 3, input, weight, bias, stride, padding, dilation, groups)
