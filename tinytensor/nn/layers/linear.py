"""Turns features into sums of them, and indices into features."""

from __future__ import annotations

import math

from tinytensor.dtype import DType
from tinytensor.nn import init
from tinytensor.nn.functional import embedding
from tinytensor.nn.module import Module
from tinytensor.nn.parameter import Parameter, empty_parameter
from tinytensor.tensor.tensor import Tensor


def start_evenly(weight: Tensor, bias: Tensor | None) -> None:
    """Give the parameters of a linear map PyTorch's first values: even, in +-1 / sqrt(fan_in)."""
    init.kaiming_uniform_(weight, a=math.sqrt(5))
    inputs = init.fans_of(weight)["fan_in"]
    if bias is not None and inputs:
        init.uniform_(bias, -1 / math.sqrt(inputs), 1 / math.sqrt(inputs))


class Linear(Module):
    """Return x @ weight.T + bias.

    Shapes: x (.., in_features) -> (.., out_features); weight (out_features, in_features).
    DTypes: one float dtype; halves accumulate in float32.
    """

    weight: Parameter
    bias: Parameter | None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: str | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.weight = empty_parameter(out_features, in_features, device=device, dtype=dtype)
        offset = empty_parameter(out_features, device=device, dtype=dtype) if bias else None
        self.register_parameter("bias", offset)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw first values."""
        start_evenly(self.weight, self.bias)

    def forward(self, input: Tensor) -> Tensor:
        """Return the sums of products."""
        return input.linear(self.weight, self.bias)

    def extra_repr(self) -> str:
        """Return the numbers of features."""
        counts = f"in_features={self.in_features}, out_features={self.out_features}"
        return f"{counts}, bias={self.bias is not None}"


class Embedding(Module):
    """Return the row of `weight` that each index names.

    The row of the padding starts as zeros, and gets no gradient.
    Shapes: indices (..) -> (.., embedding_dim); weight (num_embeddings, embedding_dim).
    DTypes: any integer -> the weight's.
    Raises: ValueError when there is no row for the padding.
    """

    weight: Parameter

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        *,
        device: str | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        if padding_idx is not None and not -num_embeddings <= padding_idx < num_embeddings:
            sentence = f"Embedding: no row for the padding: {padding_idx} of {num_embeddings}"
            required = f"it must be in {-num_embeddings} .. {num_embeddings - 1}"
            raise ValueError(f"{sentence}; {required}.")
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.padding_idx = None if padding_idx is None else padding_idx % num_embeddings
        self.weight = empty_parameter(num_embeddings, embedding_dim, device=device, dtype=dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw first values."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            init.zeros_(self.weight[self.padding_idx])

    def forward(self, input: Tensor) -> Tensor:
        """Return the rows."""
        return embedding(input, self.weight, self.padding_idx)

    def extra_repr(self) -> str:
        """Return the table's size."""
        size = f"{self.num_embeddings}, {self.embedding_dim}"
        return size if self.padding_idx is None else f"{size}, padding_idx={self.padding_idx}"
