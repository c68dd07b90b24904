import numpy as np
import pytest

from tinytensor.dtype import dtypes
from tinytensor.ops import attrs as a
from tinytensor.ops.attrs import Combine
from tinytensor.ops.interpret_tensor import interpret
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp, buffer, cast, const

F32 = dtypes.float32
X = np.arange(6, dtype=np.float32).reshape(2, 3)


def apply(op, attrs, x=X, *operands, dtype=F32):
    """The values of one op on a leaf that holds x."""
    leaf = buffer(F32, x.shape, "PYTHON")
    node = UOp(op, dtype, (leaf, *operands), attrs)

    (found,) = interpret([node], {leaf: x})

    assert found.shape == node.shape
    assert found.dtype == dtype.value_numpy
    return found.tolist()


def test_views():
    assert apply(Op.RESHAPE, a.ShapeAttrs((3, 2))) == [[0, 1], [2, 3], [4, 5]]
    assert apply(Op.PERMUTE, a.OrderAttrs((1, 0))) == [[0, 3], [1, 4], [2, 5]]
    assert apply(Op.EXPAND, a.ShapeAttrs((2, 2)), X[:, :1]) == [[0, 0], [3, 3]]


@pytest.mark.parametrize(
    ("begin", "step", "extent", "expected"),
    [
        ((0, 1), (1, 1), (2, 2), [[1, 2], [4, 5]]),
        ((1, 2), (-1, -1), (2, 3), [[5, 4, 3], [2, 1, 0]]),
        ((1, 2), (-1, -2), (1, 2), [[5, 3]]),
        ((0, 0), (1, 2), (1, 2), [[0, 2]]),
        ((0, 5), (1, 1), (2, 0), [[], []]),
    ],
)
def test_a_slice_walks_either_way(begin, step, extent, expected):
    assert apply(Op.SLICE, a.SliceAttrs(begin, step, extent)) == expected


def test_a_pad_surrounds_with_its_fill():
    found = apply(Op.PAD, a.PadAttrs((0, 1), (1, 0)), X, const(F32, 9))

    assert found == [[9, 0, 1, 2], [9, 3, 4, 5], [9, 9, 9, 9]]


def test_a_reduction_keeps_its_axes():
    assert apply(Op.REDUCE, a.ReduceAttrs(Combine.ADD, (1,))) == [[3], [12]]
    position = a.ReduceAttrs(Combine.ARGMAX, (0,))
    assert apply(Op.REDUCE, position, dtype=dtypes.int64) == [[1, 1, 1]]


def gathered(x, axes, *indices):
    leaves = [buffer(dtypes.int64, each.shape, "PYTHON") for each in (x, *indices)]
    node = UOp(Op.GATHER, dtypes.int64, tuple(leaves), a.GatherAttrs(axes))
    (found,) = interpret([node], dict(zip(leaves, (x, *indices), strict=True)))
    return found.tolist()


def test_a_gather_reads_at_its_indices():
    x, rows = np.arange(6).reshape(2, 3), np.array([[1, 0, 1]])

    assert gathered(x, (0,), rows) == [[3, 1, 5]]
    assert gathered(x, (0, 1), rows, np.array([[2, 2, 0]])) == [[5, 2, 3]]


def test_an_index_beyond_its_axis_is_taken_as_the_nearer_end():
    assert gathered(np.arange(3), (0,), np.array([-5, 9, 1])) == [0, 2, 1]


def test_a_gather_of_nothing_reads_nothing():
    assert gathered(np.zeros((0, 2), int), (0,), np.zeros((0, 2), int)) == []


def test_counting_wraps_into_its_dtype():
    node = UOp(Op.IOTA, dtypes.int8, (), a.ExtentAttrs(130))

    (found,) = interpret([node], {})

    assert found[126:].tolist() == [126, 127, -128, -127]


def test_bfloat16_values_are_rounded_float32():
    leaf = buffer(F32, (), "PYTHON")

    (found,) = interpret([cast(leaf, dtypes.bfloat16) + 1.0], {leaf: np.array(2.0**-9, np.float32)})

    assert found.dtype == np.float32
    assert found == 1.0


def test_a_long_chain_needs_no_recursion():
    leaf = buffer(dtypes.int32, (), "PYTHON")
    node = leaf
    for _ in range(20_000):
        node = node + 1

    (found,) = interpret([node], {leaf: np.array(-1, np.int32)})

    assert found == 19_999
