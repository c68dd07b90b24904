"""Turns indices into rows of a table."""

from __future__ import annotations

from tinytensor.errors import ShapeError
from tinytensor.tensor.gathering import along, check_index, checked
from tinytensor.tensor.nodes import gather_at, reshape
from tinytensor.tensor.tensor import Tensor


def embedding(input: Tensor, weight: Tensor, padding_idx: int | None = None) -> Tensor:
    """Return the row of a table that each index names; that of padding_idx has no gradient.

    Shapes: input (..), weight (rows, columns) -> (.., columns).

    >>> embedding(Tensor([1, 0]), Tensor([[1.0, 2.0], [3.0, 4.0]])).tolist()
    [[3.0, 4.0], [1.0, 2.0]]
    """
    check_index("embedding", weight, input)
    if weight.ndim != 2:
        sentence = f"embedding: the weight is no table: shape {weight.shape}"
        raise ShapeError(f"{sentence}; ndim must be 2.")
    rows, columns = weight.shape
    places = reshape(checked("embedding", input.uop, 0, rows), (input.numel(),))
    found = gather_at(weight.uop, (0,), [along(places, 0, weight.shape)])
    result = weight._wrap(reshape(found, (*input.shape, columns)))
    if padding_idx is None:
        return result
    if not -rows <= padding_idx < rows:
        sentence = f"embedding: padding_idx is out of range: {padding_idx} for {rows} rows"
        raise ValueError(f"{sentence}; it must be in {-rows} .. {rows - 1}.")
    is_padding = (input == padding_idx % rows).unsqueeze(-1)
    return result.detach().where(is_padding, result)
