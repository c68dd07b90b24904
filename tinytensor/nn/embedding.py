"""Turns indices into rows of a table."""

from __future__ import annotations

from tinytensor.tensor.tensor import Tensor


def embedding(input: Tensor, weight: Tensor, padding_idx: int | None = None) -> Tensor:
    """Return the row of each index; the row of the padding gets no gradient.

    Shapes: input (..), weight (rows, features) -> (.., features).
    DTypes: input any integer; the result's is the weight's.
    """
    rows = weight[input]
    if padding_idx is None:
        return rows
    place = padding_idx + weight.shape[0] if padding_idx < 0 else padding_idx
    return rows.detach().where((input == place).unsqueeze(-1), rows)
