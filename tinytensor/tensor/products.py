"""Turns products of all pairs of elements, and traces, into products and sums."""

from __future__ import annotations

import math
from typing import Self

from tinytensor.errors import ShapeError
from tinytensor.tensor.linalg import LinearAlgebra
from tinytensor.tensor.reduction import Reduction
from tinytensor.tensor.slicing import Slicing


class Products(LinearAlgebra, Slicing, Reduction):
    """Products of all pairs of elements, and traces."""

    __slots__ = ()

    def outer(self, vec2: Self) -> Self:
        """Return the products of all elements of two vectors."""
        if (self.ndim, vec2.ndim) != (1, 1):
            sentence = f"outer: not two vectors: shapes {self.shape} and {vec2.shape}"
            raise ShapeError(f"{sentence}; both must have ndim 1.")
        return self.unsqueeze(1) * vec2

    def inner(self, other: Self) -> Self:
        """Return sums of products over the last axis of both; a 0-d tensor multiplies."""
        if self.ndim == 0 or other.ndim == 0:
            return self * other
        if self.shape[-1] != other.shape[-1]:
            sentence = f"inner: last sizes differ: {self.shape} and {other.shape}"
            raise ShapeError(f"{sentence}; they must be equal.")
        rows = self.reshape(math.prod(self.shape[:-1]), self.shape[-1])
        columns = other.reshape(math.prod(other.shape[:-1]), other.shape[-1])
        return (rows @ columns.T).reshape(self.shape[:-1] + other.shape[:-1])

    def kron(self, other: Self) -> Self:
        """Return the products of all elements of two tensors, as blocks of the second."""
        ndim = max(self.ndim, other.ndim)
        blocks = (1,) * (ndim - self.ndim) + self.shape
        places = (1,) * (ndim - other.ndim) + other.shape
        a = self.reshape([n for extent in blocks for n in (extent, 1)])
        b = other.reshape([n for extent in places for n in (1, extent)])
        return (a * b).reshape([m * n for m, n in zip(blocks, places, strict=True)])

    def trace(self) -> Self:
        """Return the sum of a matrix's diagonal; of integers in int64."""
        if self.ndim != 2:
            sentence = f"trace: no matrix: shape {self.shape}"
            raise ShapeError(f"{sentence}; ndim must be 2.")
        return self.diagonal().sum()
