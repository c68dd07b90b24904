"""Gives tensors their first values: constants, or random numbers whose spread fits the layer."""

from __future__ import annotations

import math

from tinytensor.errors import ShapeError
from tinytensor.ops.uop import Number
from tinytensor.tensor.generator import Generator
from tinytensor.tensor.grad_mode import no_grad
from tinytensor.tensor.signatures import explain_functions
from tinytensor.tensor.tensor import Tensor

GAINS = {
    "tanh": 5 / 3,
    "relu": math.sqrt(2),
    "selu": 3 / 4,
    **dict.fromkeys(("linear", "sigmoid", "conv1d", "conv2d", "conv3d"), 1.0),
}


@no_grad
def uniform_(
    tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Generator | None = None
) -> Tensor:
    """Fill a tensor with numbers spread evenly over [a, b)."""
    return tensor.uniform_(a, b, generator=generator)


@no_grad
def normal_(
    tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Generator | None = None
) -> Tensor:
    """Fill a tensor with normal numbers."""
    return tensor.normal_(mean, std, generator=generator)


@no_grad
def constant_(tensor: Tensor, val: Number) -> Tensor:
    """Fill a tensor with one number."""
    return tensor.fill_(val)


def zeros_(tensor: Tensor) -> Tensor:
    """Fill a tensor with zeros."""
    return constant_(tensor, 0)


def ones_(tensor: Tensor) -> Tensor:
    """Fill a tensor with ones."""
    return constant_(tensor, 1)


@no_grad
def eye_(tensor: Tensor) -> Tensor:
    """Make a matrix the identity.

    Raises: ShapeError.
    """
    if tensor.ndim != 2:
        raise ShapeError(f"eye_: no matrix: shape {tensor.shape}; ndim must be 2.")
    return tensor.copy_(Tensor.eye(*tensor.shape, device=tensor.device))


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """Return by how much a layer's spread must grow for what a nonlinearity takes away.

    Raises: ValueError.
    """
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else param
        return math.sqrt(2 / (1 + slope**2))
    if nonlinearity not in GAINS:
        sentence = f"calculate_gain: no such nonlinearity: {nonlinearity!r}"
        raise ValueError(f"{sentence}; it must be leaky_relu, {', '.join(GAINS)}.")
    return GAINS[nonlinearity]


def fans_of(tensor: Tensor) -> dict[str, int]:
    """Return how many inputs each output has (fan_in), and how many outputs each input.

    Shapes: (outputs, inputs, *kernel).
    Raises: ShapeError.
    """
    if tensor.ndim < 2:
        sentence = f"init: no inputs and outputs: shape {tensor.shape}"
        raise ShapeError(f"{sentence}; ndim must be 2 or more.")
    outputs, inputs, *kernel = tensor.shape
    window = math.prod(kernel)
    return {"fan_in": inputs * window, "fan_out": outputs * window}


def kaiming_std(tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float:
    """Return the spread that keeps that of the signal through a layer (He and others, 2015).

    Raises: ShapeError, ValueError.
    """
    fans = fans_of(tensor)
    if mode not in fans:
        raise ValueError(f"init: no such mode: {mode!r}; it must be 'fan_in' or 'fan_out'.")
    return calculate_gain(nonlinearity, a) / math.sqrt(max(fans[mode], 1))


def kaiming_uniform_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """Fill a weight evenly, so that a layer keeps the spread of the signal.

    Raises: ShapeError, ValueError.
    """
    bound = math.sqrt(3) * kaiming_std(tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """Fill a weight with normal numbers, so that a layer keeps the spread of the signal.

    Raises: ShapeError, ValueError.
    """
    return normal_(tensor, 0, kaiming_std(tensor, a, mode, nonlinearity), generator)


def xavier_std(tensor: Tensor, gain: float) -> float:
    """Return the spread between that for signals and that for gradients (Glorot, Bengio, 2010)."""
    return gain * math.sqrt(2 / max(sum(fans_of(tensor).values()), 1))


def xavier_uniform_(
    tensor: Tensor, gain: float = 1.0, generator: Generator | None = None
) -> Tensor:
    """Fill a weight evenly, so that a layer keeps the spread of signal and gradient alike.

    Raises: ShapeError.
    """
    bound = math.sqrt(3) * xavier_std(tensor, gain)
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Fill a weight with normal numbers, as xavier_uniform_ does evenly.

    Raises: ShapeError.
    """
    return normal_(tensor, 0, xavier_std(tensor, gain), generator)


explain_functions(globals())
