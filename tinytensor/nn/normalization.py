"""Turns elements into ones of mean 0 and variance 1, over the axes that each layer folds."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tinytensor.errors import ShapeError
from tinytensor.nn.parameter import check_parameters
from tinytensor.nn.rounding import check_float, widened
from tinytensor.tensor.companions import accompany, is_companion
from tinytensor.tensor.elementwise import inverse
from tinytensor.tensor.formulas import add, mul, sqrt, sub
from tinytensor.tensor.nodes import broadcast
from tinytensor.tensor.reduction import average
from tinytensor.tensor.tensor import Tensor


def scale_and_shift(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """Return x * weight + bias, without those that are None."""
    if weight is not None:
        x = x * widened(weight)
    return x if bias is None else x + widened(bias)


def standardize(x: Tensor, axes: Sequence[int], eps: float) -> Tensor:
    """Return (x - mean) / sqrt(var + eps) over axes; var is over n.

    One Tensor is made, not one for each op: half of what a call on a small x costs.
    """
    node, folded = x.uop, tuple([axis % x.ndim for axis in axes])
    centered = sub(node, broadcast(average(node, folded), node.shape))
    spread = average(mul(centered, centered), folded)
    scale = inverse(sqrt(add(spread, eps)))
    return x._wrap(mul(centered, broadcast(scale, node.shape)))


def last_axes(who: str, x: Tensor, normalized_shape: Sequence[int]) -> list[int]:
    """Return the axes, counted from the end, that have the given shape.

    Raises: ShapeError.
    """
    shape = tuple(normalized_shape)
    if not shape or x.shape[-len(shape) :] != shape:
        sentence = f"{who}: the last axes are not those to fold: {x.shape} and {shape}"
        raise ShapeError(f"{sentence}; the shape must end with all of normalized_shape.")
    return list(range(-len(shape), 0))


def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-05,
) -> Tensor:
    """Standardize over the last axes, then scale and shift; halves compute in float32."""
    dtype = check_float("layer_norm", input)
    axes = last_axes("layer_norm", input, normalized_shape)
    check_parameters("layer_norm", normalized_shape, weight, bias)
    normal = standardize(widened(input), axes, eps)
    return scale_and_shift(normal, weight, bias).to(dtype)


def rms_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:
    """Divide by sqrt(mean(x * x) + eps) over the last axes; eps is the dtype's own unless given."""
    dtype = check_float("rms_norm", input)
    axes = last_axes("rms_norm", input, normalized_shape)
    check_parameters("rms_norm", normalized_shape, weight)
    x = widened(input).uop
    least = x.dtype.epsilon if eps is None else eps
    spread = average(mul(x, x), tuple([axis % input.ndim for axis in axes]))
    scale = inverse(sqrt(add(spread, least)))
    normal = input._wrap(mul(x, broadcast(scale, x.shape)))
    return scale_and_shift(normal, weight, None).to(dtype)


def along_channels(parameter: Tensor, ndim: int) -> Tensor:
    """Return one value a channel in a shape that expands over a tensor of (n, channels, ..)."""
    return parameter.reshape(-1, *[1] * (ndim - 2))


def change_channels(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """Scale and shift each channel."""
    if weight is not None:
        x = x * along_channels(widened(weight), x.ndim)
    return x if bias is None else x + along_channels(widened(bias), x.ndim)


def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-05,
) -> Tensor:
    """Standardize over groups of channels, then scale and shift each channel."""
    dtype = check_float("group_norm", input)
    if input.ndim < 2 or num_groups < 1 or input.shape[1] % num_groups:
        sentence = f"group_norm: channels do not form groups: {input.shape} in {num_groups}"
        raise ShapeError(f"{sentence}; shape[1] must be a multiple of the number of groups.")
    check_parameters("group_norm", input.shape[1:2], weight, bias)
    count = math.prod(input.shape[1:]) // num_groups
    groups = widened(input).reshape(input.shape[0], num_groups, count)
    normal = standardize(groups, (2,), eps).reshape(input.shape)
    return change_channels(normal, weight, bias).to(dtype)


def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float | Tensor = 0.1,
    eps: float = 1e-05,
) -> Tensor:
    """Standardize each channel, then scale and shift it.

    In training the mean and variance are those of the batch, and the running ones move towards
    them by `momentum`; else they are the running ones.
    """
    dtype = check_float("batch_norm", input)
    check_parameters("batch_norm", input.shape[1:2], running_mean, running_var, weight, bias)
    x = widened(input)
    axes = [axis for axis in range(input.ndim) if axis != 1]
    if training:
        count = input.numel() // max(input.shape[1], 1)
        if count < 2:
            sentence = f"batch_norm: one value a channel has no variance: shape {input.shape}"
            raise ShapeError(f"{sentence}; training needs 2 or more.")
        normal = standardize(x, axes, eps)
        move_towards(running_mean, x.mean(axes), momentum)
        move_towards(running_var, x.var(axes), momentum)
    elif running_mean is None or running_var is None:
        raise ValueError("batch_norm: no running statistics: None; they must be given to evaluate.")
    else:
        factor = (widened(running_var) + eps).rsqrt()
        centered = x - along_channels(widened(running_mean), x.ndim)
        normal = centered * along_channels(factor, x.ndim)
    return change_channels(normal, weight, bias).to(dtype)


def move_towards(running: Tensor | None, current: Tensor, momentum: float | Tensor) -> None:
    """Replace a running statistic's value; who read it before keeps the one it read."""
    if running is not None:
        if is_companion(running):  # of a step that was not made: each graph ends with its batch
            running.realize()
        moved = running * (1 - momentum) + current * momentum
        running.detach().copy_(moved.detach())
        accompany(running)


def normalize(input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Tensor:
    """Divide by the p-norm along an axis, which counts as eps or more."""
    dtype = check_float("normalize", input)
    x = widened(input)
    return (x / x.norm(p, dim, keepdim=True).clamp(min=eps)).to(dtype)
