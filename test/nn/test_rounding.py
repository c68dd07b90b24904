"""Functions of layers round halves once, take integers as PyTorch does, and have true slopes."""

import math

import numpy as np
import pytest
from tensor.closeness import assert_bits

from tinytensor import Tensor, autograd, dtypes
from tinytensor.nn import functional

DEVICES = ["CPU", "PYTHON"]
PLANE = np.array([[[3, 1, 4, 1], [5, 9, 2, 6], [5, 3, 5, 8]]], np.float32)


def half(values, device):
    return Tensor(np.array(values, np.float16), device=device)


@pytest.mark.parametrize("device", DEVICES)
def test_linear_adds_its_bias_before_it_rounds(device):
    # 2048 + 1 is 2048 in float16, and 2049 + 1 is 2050.
    x, weight, bias = (half(each, device) for each in ([[2048, 1]], [[1, 1]], [1]))

    assert_bits(functional.linear(x, weight, bias), np.array([[2050]], np.float16))


@pytest.mark.parametrize("device", DEVICES)
def test_a_convolution_adds_its_bias_before_it_rounds(device):
    x, weight, bias = (half(each, device) for each in ([[[2048, 1]]], [[[1, 1]]], [1]))

    assert_bits(functional.conv1d(x, weight, bias), np.array([[[2050]]], np.float16))


@pytest.mark.parametrize("device", DEVICES)
def test_normalize_rounds_once(device):
    # sqrt(9 + 1) is 3.162; 1 divided by its float16 would be one step less.
    expected = np.array([3 / math.sqrt(10), 1 / math.sqrt(10)]).astype(np.float16)

    assert_bits(functional.normalize(half([3, 1], device), dim=0), expected)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_max_pooling_tells_places_in_the_plane(dtype, device):
    x = Tensor(PLANE, dtype=getattr(dtypes, dtype), device=device)

    values, indices = functional.max_pool2d(x, 2, stride=1, return_indices=True)

    assert_bits(values, np.array([[[9, 9, 6], [9, 9, 8]]]).astype(dtype))
    assert_bits(indices, np.array([[[5, 5, 7], [5, 5, 11]]]))


@pytest.mark.parametrize("device", DEVICES)
def test_max_pooling_tells_no_place_in_the_padding(device):
    x = Tensor([[-math.inf, -math.inf, 2.0]], device=device)

    values, indices = functional.max_pool1d(x, 3, stride=2, padding=1, return_indices=True)

    assert_bits(values, np.array([[-math.inf, 2]], np.float32))
    assert_bits(indices, np.array([[0, 2]]))


@pytest.mark.parametrize("device", DEVICES)
def test_the_mean_of_integers_in_a_window_is_rounded_toward_0(device):
    x = Tensor([[-3, -4, 7, 8]], device=device)

    assert_bits(functional.avg_pool1d(x, 2), np.array([[-3, 7]]))


def test_the_summed_distance_of_integers_is_int64():
    x, y = (Tensor(each, dtype=dtypes.int8) for each in ([100, -100], [1, 27]))

    assert_bits(functional.l1_loss(x, y, reduction="sum"), np.array(226))


def test_logsigmoid_bends_at_0_as_elsewhere():
    x = Tensor([0.0, 1.0], requires_grad=True)

    (slope,) = autograd.grad(functional.logsigmoid(x).sum(), [x], create_graph=True)
    (bend,) = autograd.grad(slope.sum(), [x])

    share = 1 / (1 + math.exp(-1))
    np.testing.assert_allclose(slope.detach().numpy(), [0.5, 1 - share], rtol=1e-6)
    np.testing.assert_allclose(bend.numpy(), [-0.25, -share * (1 - share)], rtol=1e-6)


@pytest.mark.parametrize("name", ["sinh", "cosh"])
def test_hyperbolic_functions_of_infinity_bend_up(name):
    x = Tensor([math.inf], dtype=dtypes.float64, requires_grad=True)

    (slope,) = autograd.grad(getattr(x, name)(), [x], create_graph=True)
    (bend,) = autograd.grad(slope, [x])

    assert bend.item() == math.inf


def test_the_slope_of_logit_is_nan_where_logit_is():
    x = Tensor([-1.0, 0.5, 2.0], requires_grad=True)

    x.logit().sum().backward()

    np.testing.assert_array_equal(x.grad.numpy(), [math.nan, 4, math.nan])


EMPTY = {
    "logsumexp": lambda x: x.logsumexp(0),
    "gather": lambda x: x.gather(0, Tensor(np.zeros((0, 2), np.int64))),
    "norm": lambda x: x.norm(0, 0),
}


@pytest.mark.parametrize("function", EMPTY.values(), ids=EMPTY)
def test_a_gradient_passes_through_nothing(function):
    x = Tensor(np.zeros((0, 2)), requires_grad=True)

    function(x).sum().backward()

    assert x.grad.shape == (0, 2)
