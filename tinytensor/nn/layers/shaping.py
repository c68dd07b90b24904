"""Turns tensors into themselves, into matrices, or into themselves with holes."""

from __future__ import annotations

from tinytensor.nn.module import Argument, Module
from tinytensor.tensor.tensor import Tensor


class Identity(Module):
    """Return the input; all arguments are ignored."""

    def __init__(self, *args: Argument, **options: Argument) -> None:
        super().__init__()

    def forward(self, input: Tensor) -> Tensor:
        """Return the input."""
        return input


class Flatten(Module):
    """Make one axis of several: of all but the batch.

    Shapes: (n, a, b, ..) -> (n, a * b * ..).
    """

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, input: Tensor) -> Tensor:
        """Return the input in its other shape."""
        return input.flatten(self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        """Return the axes."""
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Dropout(Module):
    """In training make each element 0 with probability p, and divide the others by 1 - p.

    Shapes: any, also the result's.
    DTypes: a float dtype, also the result's.
    Raises: ValueError unless p is a probability.
    """

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise ValueError(f"Dropout: p is no probability: {p}; it must be in 0 .. 1.")
        self.p, self.inplace = p, inplace

    def forward(self, input: Tensor) -> Tensor:
        """Return the input with holes, or itself when not in training."""
        result = input.dropout(self.p, self.training)
        return input.copy_(result) if self.inplace else result

    def extra_repr(self) -> str:
        """Return the options."""
        return f"p={self.p}, inplace={self.inplace}"
