"""Turns queries, keys and values into weighted means of the values."""

from __future__ import annotations

import math

from tinytensor.errors import ShapeError
from tinytensor.nn.rounding import check_float
from tinytensor.tensor.linalg import check_product, product
from tinytensor.tensor.tensor import Tensor


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Return softmax(query @ key.mT * scale + mask) @ value.

    Scores stay in float32 (of float64, in float64); weights are rounded to the values' dtype. A
    row without any key that it may see is 0. With enable_gqa several heads of queries share each
    head of keys and values.
    Shapes: query (.., m, k), key (.., n, k), value (.., n, d) -> (.., m, d); mask (.., m, n).
    """
    dtype = check_float("attention", query, key, value)
    check_axes(query, key, value)
    if enable_gqa:
        key, value = share_heads(query, key), share_heads(query, value)
    factor = 1 / math.sqrt(max(query.shape[-1], 1)) if scale is None else scale
    scores = wide_product(query, key.transpose(-2, -1)) * factor
    if is_causal:
        if attn_mask is not None:
            sentence = "attention: both a mask and is_causal are given"
            raise ShapeError(f"{sentence}; there must be at most one.")
        attn_mask = scores.ones_like().tril() != 0
    weights = scores.softmax(-1) if attn_mask is None else masked_shares(scores, attn_mask)
    weights = weights.to(dtype)
    if dropout_p:
        weights = weights.dropout(dropout_p)
    return wide_product(weights, value).to(dtype)


def check_axes(*tensors: Tensor) -> None:
    """Raise ShapeError unless each tensor has rows of vectors."""
    if min(each.ndim for each in tensors) < 2:
        shapes = ", ".join(str(each.shape) for each in tensors)
        raise ShapeError(f"attention: a tensor has no rows: {shapes}; ndim must be 2 or more.")


def wide_product(a: Tensor, b: Tensor) -> Tensor:
    """Return a @ b as it is accumulated, not rounded to the operands' dtype."""
    check_product("attention", a, b)
    sums = a._wrap(product(a.uop, b.uop))
    return sums.squeeze(-1)


def masked_shares(scores: Tensor, mask: Tensor) -> Tensor:
    """Return softmax over the keys that a bool mask allows, or of scores plus a float mask."""
    if mask.dtype.is_float:
        masked = scores + mask.to(scores.dtype)
    else:
        masked = scores.where(mask != 0, -math.inf)
    is_seen = masked.amax(-1, keepdim=True) > -math.inf
    return masked.where(is_seen, 0).softmax(-1).where(is_seen, 0)


def share_heads(query: Tensor, x: Tensor) -> Tensor:
    """Return each head as often as queries share it.

    Raises: ShapeError.
    """
    heads, shared = query.shape[-3], x.shape[-3]
    if heads % shared:
        sentence = f"attention: heads do not share: {heads} of queries, {shared} of keys"
        raise ShapeError(f"{sentence}; the first must be a multiple of the second.")
    return x.repeat_interleave(heads // shared, -3)
