"""Matrix products of every rank, exact on small integers; the form of their graph."""

import numpy as np
import pytest
from tensor.closeness import assert_bits

from tinytensor.dtype import dtypes
from tinytensor.ops.op import Op
from tinytensor.ops.uop import walk
from tinytensor.tensor.tensor import Tensor


def small_integers(shape, dtype):
    """Integers of -3 .. 3: every order of a sum of their products gives the same float."""
    return (np.arange(np.prod(shape)) * 5 % 7 - 3).reshape(shape).astype(dtype)


SHAPES = [
    ((3,), (3,)),
    ((2, 3), (3,)),
    ((3,), (3, 4)),
    ((2, 3), (3, 4)),
    ((5, 2, 3), (3, 4)),
    ((5, 2, 3), (5, 3, 4)),
    ((2, 1, 2, 3), (5, 3, 4)),
    ((3,), (5, 3, 2)),
    ((5, 2, 3), (3,)),
    ((2, 0), (0, 3)),
    ((0, 3), (3, 2)),
    ((1, 1), (1, 1)),
]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "int32", "int64"])
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_products_of_every_rank(shapes, dtype):
    a, b = (small_integers(shape, dtype) for shape in shapes)

    assert_bits(Tensor(a) @ Tensor(b), np.asarray(a @ b))


def test_a_batch_of_products_keeps_its_batch():
    a, b = small_integers((2, 3, 4), np.float32), small_integers((2, 4, 5), np.float32)

    assert_bits(Tensor(a).bmm(Tensor(b)), a @ b)


def test_products_by_rank():
    matrix, vector = Tensor([[1, 2], [3, 4]]), Tensor([5, 6])

    assert matrix.mm(matrix).tolist() == [[7, 10], [15, 22]]
    assert matrix.mv(vector).tolist() == [17, 39]
    assert vector.dot(vector).item() == 61
    assert matrix.matmul(vector).tolist() == [17, 39]


def test_halves_accumulate_in_float32_and_round_once():
    ones = Tensor.ones(1, 2049, dtype=dtypes.float16)

    rounded = ones @ ones.T

    assert_bits(rounded, np.array([[2048]], np.float16))
    assert_bits(rounded + 1, np.array([[2048]], np.float16))


def test_bfloat16_products():
    a = small_integers((4, 5), np.float32)

    result = Tensor(a).bfloat16() @ Tensor(a.T).bfloat16()

    assert result.dtype is dtypes.bfloat16
    assert_bits(result, a @ a.T)


def test_integers_wrap_in_their_own_dtype():
    x = Tensor([100, 100], dtype=dtypes.int8)

    assert_bits(x @ x, np.array(20000).astype(np.int8))


def test_linear_multiplies_by_the_transposed_weight():
    x, weight = small_integers((2, 3, 4), np.float32), small_integers((5, 4), np.float32)
    bias = np.arange(5, dtype=np.float32)

    assert_bits(Tensor(x).linear(Tensor(weight), Tensor(bias)), x @ weight.T + bias)
    assert_bits(Tensor(x).linear(Tensor(weight)), x @ weight.T)


def test_a_product_is_a_sum_of_products_of_widened_operands():
    a, b = Tensor.ones(2, 3).half().realize(), Tensor.ones(3, 4).half().realize()

    sums = [node for node in walk([(a @ b).uop]) if node.op is Op.REDUCE]

    assert [(each.dtype, each.shape) for each in sums] == [(dtypes.float32, (2, 4, 1))]
    (multiplied,) = sums[0].operands
    assert (multiplied.op, multiplied.shape) == (Op.MUL, (2, 4, 3))
    assert [each.op for each in multiplied.operands] == [Op.CAST, Op.CAST]
