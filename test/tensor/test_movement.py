"""Views, borders, indices and joins move values and change none."""

import math

import numpy as np
import pytest
from tensor.closeness import assert_bits

from tinytensor.dtype import dtypes
from tinytensor.tensor.tensor import Tensor

CUBE = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


@pytest.mark.parametrize("shape", [(24,), (4, 6), (-1, 8), (2, -1, 2), (1, 24, 1)])
def test_reshape(shape):
    assert_bits(Tensor(CUBE).reshape(*shape), CUBE.reshape(shape))
    assert_bits(Tensor(CUBE).view(shape), CUBE.reshape(shape))


def test_shapes_without_elements_or_axes():
    assert Tensor.zeros(0, 3).reshape(3, -1).shape == (3, 0)
    assert Tensor(5).reshape(1, 1).shape == (1, 1)
    assert Tensor([5]).reshape(()).shape == ()


def test_a_reshape_of_a_permuted_tensor_reads_it_in_order():
    assert_bits(Tensor(CUBE).permute(2, 0, 1).reshape(8, 3), CUBE.transpose(2, 0, 1).reshape(8, 3))


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (-1, 0, 1)])
def test_permute(order):
    assert_bits(Tensor(CUBE).permute(*order), CUBE.transpose(order))
    assert_bits(Tensor(CUBE).permute(order), CUBE.transpose(order))


def test_exchanged_axes():
    assert_bits(Tensor(CUBE).transpose(0, -1), CUBE.swapaxes(0, 2))
    assert_bits(Tensor(CUBE).T, CUBE.T)
    assert_bits(Tensor(CUBE).mT, CUBE.swapaxes(1, 2))
    assert_bits(Tensor(3.0).transpose(0, 0), np.array(3, np.float32))


def test_axes_of_extent_1():
    x = Tensor(CUBE[:, :1, :1])

    assert x.squeeze().shape == (2,)
    assert x.squeeze(1).shape == (2, 1)
    assert x.squeeze((0, -1)).shape == (2, 1)
    assert x.unsqueeze(0).shape == (1, 2, 1, 1)
    assert x.unsqueeze(-1).shape == (2, 1, 1, 1)
    assert Tensor(1.0).squeeze(0).shape == ()


@pytest.mark.parametrize(
    ("dims", "shape"), [((), (24,)), ((1,), (2, 12)), ((0, 1), (6, 4)), ((-1, -1), (2, 3, 4))]
)
def test_flatten(dims, shape):
    assert_bits(Tensor(CUBE).flatten(*dims), CUBE.reshape(shape))


def test_expand():
    x = Tensor([[1.0], [2.0]])

    assert_bits(x.expand(-1, 3), np.array([[1, 1, 1], [2, 2, 2]], np.float32))
    assert x.expand(4, -1, 3).shape == (4, 2, 3)
    assert x.expand(2, 0).shape == (2, 0)
    assert Tensor(1.0).expand(2, 2).sum().item() == 4


@pytest.mark.parametrize("dims", [(0,), (2,), (0, -1), (0, 1, 2)])
def test_flip(dims):
    assert_bits(Tensor(CUBE).flip(*dims), np.flip(CUBE, dims))


@pytest.mark.parametrize("value", [0.0, -1.5, math.nan, math.inf, -math.inf])
def test_pad_with_any_value(value):
    expected = np.pad(CUBE, ((0, 0), (0, 1), (1, 2)), constant_values=value)

    assert_bits(Tensor(CUBE).pad((1, 2, 0, 1), value=value), expected)


def test_sizes_of_a_pad_may_be_of_numpys():
    sizes = np.array([1, 2])

    assert_bits(Tensor(CUBE).pad([*sizes]), np.pad(CUBE, ((0, 0), (0, 0), (1, 2))))


def test_negative_pads_crop():
    assert_bits(Tensor(CUBE).pad((-1, 2, 1, -2)), np.pad(CUBE[:, :1, 1:], ((0, 0), (1, 0), (0, 2))))
    assert Tensor([1, 2]).pad((-1, -1)).shape == (0,)


@pytest.mark.parametrize(
    "index",
    [
        0,
        -1,
        (1, 2, 3),
        (slice(None), 1),
        slice(1, None),
        (..., slice(0, 4, 3)),
        (..., 0),
        (0, ..., slice(-2, None)),
        (None, 0),
        (slice(None), None, slice(2, 0)),
        (slice(-100, 100), slice(1, 2)),
        (..., None),
        np.int64(1),
        (),
        ...,
    ],
    ids=str,
)
def test_index(index):
    assert_bits(Tensor(CUBE)[index], CUBE[index])


def test_iteration_walks_the_first_axis():
    assert [row.tolist() for row in Tensor([[1, 2], [3, 4]])] == [[1, 2], [3, 4]]


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_cat_of_several_parts(axis):
    parts = [CUBE, -CUBE, CUBE + 0.5]

    assert_bits(Tensor.cat([Tensor(each) for each in parts], axis), np.concatenate(parts, axis))


def test_cat_keeps_nan_and_minus_zero():
    x, y = np.array([math.nan, -0.0], np.float32), np.array([-0.0, math.inf], np.float32)

    assert_bits(Tensor.cat([Tensor(x), Tensor(y)]), np.concatenate([x, y]))


def test_cat_promotes_and_leaves_out_what_is_empty():
    assert Tensor.cat([Tensor([True]), Tensor([1.0]).bfloat16()]).dtype is dtypes.bfloat16
    assert_bits(Tensor.cat([Tensor([1]), Tensor([2.5])]), np.array([1, 2.5], np.float32))
    assert Tensor.cat([Tensor.zeros(0), Tensor.ones(2, 2)]).shape == (2, 2)
    assert Tensor.cat([Tensor.zeros(2, 0), Tensor.ones(2, 1)], 1).tolist() == [[1], [1]]
    assert Tensor.cat([Tensor.zeros(2, 0), Tensor.ones(2, 0)], 1).shape == (2, 0)
    assert Tensor.cat([Tensor.zeros(0), Tensor.zeros(0)]).shape == (0,)


@pytest.mark.parametrize("axis", [0, 1, 3, -1])
def test_stack(axis):
    expected = np.stack([CUBE, -CUBE], axis)

    assert_bits(Tensor.stack([Tensor(CUBE), Tensor(-CUBE)], axis), expected)


def test_stack_of_numbers():
    assert Tensor.stack([Tensor(1), Tensor(2)]).tolist() == [1, 2]
