"""Turns matrix products into REDUCE[add] of a product of widened operands, (batch, m, n, k)."""

from __future__ import annotations

from typing import Self

from tinytensor.dtype import dtypes
from tinytensor.errors import DTypeError, ShapeError
from tinytensor.ops.attrs import Combine
from tinytensor.ops.uop import Number, UOp, cast
from tinytensor.tensor.arithmetic import Arithmetic
from tinytensor.tensor.axes import broadcast_shapes
from tinytensor.tensor.base import TensorBase
from tinytensor.tensor.formulas import add, mul
from tinytensor.tensor.host import check_number
from tinytensor.tensor.movement import Movement
from tinytensor.tensor.nodes import broadcast, fold, reshape, swap_with_last, widen
from tinytensor.tensor.operands import check_devices


def product(a: UOp, b: UOp) -> UOp:
    """Return the sums of products over k, before any rounding to the operands' dtype.

    Shapes: a (batch, m, k), b (batch, k, n) -> (batch, m, n, 1); batches broadcast.
    DTypes: halves and float32 accumulate in float32, others in their own.
    """
    a_batch, (m, k) = a.shape[:-2], a.shape[-2:]
    b_batch, n = b.shape[:-2], b.shape[-1]
    shape = (*broadcast_shapes("matmul", [a_batch, b_batch]), m, n, k)
    rows = broadcast(reshape(a, (*a_batch, m, 1, k)), shape)
    turned = swap_with_last(b, len(b_batch))
    columns = broadcast(reshape(turned, (*b_batch, 1, n, k)), shape)
    if a.dtype.is_float:
        rows, columns = widen(rows), widen(columns)
    return fold(Combine.ADD, mul(rows, columns), (len(shape) - 1,))


class LinearAlgebra(Arithmetic, Movement):
    """Products of vectors, matrices and batches of matrices."""

    __slots__ = ()

    def matmul(self, other: TensorBase) -> Self:
        """Return the product of the last two axes; a 1-d operand is a row or a column.

        Shapes: a (.., m, k), b (.., k, n) -> (.., m, n).
        """
        return self._product("matmul", other)

    def __matmul__(self, other: TensorBase) -> Self:
        return self._product("matmul", other)

    def mm(self, mat2: TensorBase) -> Self:
        """Return the product of two matrices."""
        return self._ranked("mm", mat2, 2, 2)

    def bmm(self, mat2: TensorBase) -> Self:
        """Return the products of two batches of matrices, without broadcasting."""
        if self.ndim == mat2.ndim == 3 and self.shape[0] != mat2.shape[0]:
            raise _mismatch("bmm", "batches differ", self, mat2, "a.shape[0] must equal b.shape[0]")
        return self._ranked("bmm", mat2, 3, 3)

    def mv(self, vec: TensorBase) -> Self:
        """Return the product of a matrix and a vector."""
        return self._ranked("mv", vec, 2, 1)

    def dot(self, tensor: TensorBase) -> Self:
        """Return the sum of products of two vectors."""
        return self._ranked("dot", tensor, 1, 1)

    def linear(
        self,
        weight: Movement,
        bias: TensorBase | None = None,
    ) -> Self:
        """Return x @ weight.T + bias.

        Shapes: x (.., k), weight (n, k), bias (n,) -> (.., n).
        """
        return self._product("linear", weight.t(), bias)

    def addmm(
        self,
        mat1: TensorBase,
        mat2: TensorBase,
        *,
        beta: Number = 1,
        alpha: Number = 1,
    ) -> Self:
        """Return beta * x + alpha * (mat1 @ mat2), rounded once."""
        return self._plus_product("addmm", mat1, mat2, beta, alpha, 2)

    def baddbmm(
        self,
        batch1: TensorBase,
        batch2: TensorBase,
        *,
        beta: Number = 1,
        alpha: Number = 1,
    ) -> Self:
        """Return beta * x + alpha * (batch1 @ batch2), rounded once."""
        return self._plus_product("baddbmm", batch1, batch2, beta, alpha, 3)

    def _plus_product(
        self, who: str, a: TensorBase, b: TensorBase, beta: Number, alpha: Number, ndim: int
    ) -> Self:
        check_devices(who, [self, a, b])
        if self.dtype is not a.dtype:
            sentence = f"{who}: dtypes differ: {self.dtype.name} and {a.dtype.name}"
            raise DTypeError(f"{sentence}; they must be equal.")
        check_product(who, a, b)
        if (a.ndim, b.ndim) != (ndim, ndim) or a.shape[:-2] != b.shape[:-2]:
            required = f"both must have ndim {ndim} and the same batch"
            raise _mismatch(who, "shapes are not those of this product", a, b, required)
        sums = product(a.uop, b.uop)
        scaled = mul(reshape(sums, sums.shape[:-1]), check_number(who, alpha, sums.dtype))
        if broadcast_shapes(who, [self.shape, scaled.shape]) != scaled.shape:
            sentence = f"{who}: does not expand to the product: {self.shape} to {scaled.shape}"
            raise ShapeError(f"{sentence}; aligned at the end, its sizes must be equal or 1.")
        if beta == 0:
            return self._wrap(cast(scaled, self.dtype))
        start = cast(broadcast(self.uop, scaled.shape), sums.dtype)
        total = add(mul(start, check_number(who, beta, sums.dtype)), scaled)
        return self._wrap(cast(total, self.dtype))

    def _ranked(
        self,
        who: str,
        other: TensorBase,
        ndim: int,
        other_ndim: int,
    ) -> Self:
        if (self.ndim, other.ndim) != (ndim, other_ndim):
            required = f"they must have ndim {ndim} and {other_ndim}"
            raise _mismatch(who, "ranks are not those of this product", self, other, required)
        return self._product(who, other)

    def _product(
        self,
        who: str,
        other: TensorBase,
        bias: TensorBase | None = None,
    ) -> Self:
        check_product(who, self, other)
        a, b = self.uop, other.uop
        rows = a if len(a.shape) > 1 else reshape(a, (1, *a.shape))
        columns = b if len(b.shape) > 1 else reshape(b, (*b.shape, 1))
        sums = product(rows, columns)
        # The row or column of one that a vector was made goes with the axis that is summed.
        batch, m, n = sums.shape[:-3], sums.shape[-3:-2], sums.shape[-2:-1]
        total = reshape(sums, batch + (m if rows is a else ()) + (n if columns is b else ()))
        if bias is not None:
            total = add(total, _aligned_bias(who, bias, self, total))
        return self._wrap(cast(total, self.dtype))


def _aligned_bias(who: str, bias: TensorBase, x: TensorBase, total: UOp) -> UOp:
    """Return a bias in the shape and dtype of sums."""
    check_devices(who, [x, bias])
    if bias.dtype is not x.dtype:
        sentence = f"{who}: dtypes differ: {x.dtype.name}, and {bias.dtype.name} of the bias"
        raise DTypeError(f"{sentence}; they must be equal.")
    if broadcast_shapes(who, [bias.shape, total.shape]) != total.shape:
        sentence = f"{who}: the bias does not expand: {bias.shape} to {total.shape}"
        raise ShapeError(f"{sentence}; aligned at the end, its sizes must be equal or 1.")
    return cast(broadcast(bias.uop, total.shape), total.dtype)


def _mismatch(who: str, what: str, a: TensorBase, b: TensorBase, required: str) -> ShapeError:
    return ShapeError(f"{who}: {what}: a is {a.shape}, b is {b.shape}; {required}.")


def check_product(who: str, a: TensorBase, b: TensorBase) -> None:
    """Raise DTypeError or ShapeError unless two tensors have a product."""
    check_devices(who, [a, b])
    if a.dtype is not b.dtype or a.dtype is dtypes.bool:
        sentence = f"{who}: dtypes do not multiply: a is {a.dtype.name}, b is {b.dtype.name}"
        raise DTypeError(f"{sentence}; they must be equal and not bool.")
    a_shape, b_shape = a.shape, b.shape
    if not (a_shape and b_shape):
        raise _mismatch(who, "an operand is 0-d", a, b, "ndim must be 1 or more")
    axis = -2 if len(b_shape) > 1 else -1
    if a_shape[-1] != b_shape[axis]:
        required = f"a.shape[-1] must equal b.shape[{axis}]"
        raise _mismatch(who, "inner sizes differ", a, b, required)
