"""What layers apply, against NumPy in float64 on both devices; and the kernels it becomes."""

import math

import numpy as np
import pytest
from schedule.reading import kernels_of
from tensor.closeness import assert_bits, assert_within

from tinytensor.dtype import dtypes
from tinytensor.nn import functional
from tinytensor.tensor.tensor import Tensor

DEVICES = ["CPU", "PYTHON"]


def whole(*shape):
    """Small whole numbers, whose sums are exact in every order."""
    count = math.prod(shape)
    return (np.arange(count) % 7 - 3).reshape(shape).astype(np.float32)


def convolved(x, weight, stride, padding, dilation):
    """A convolution by its definition, one place and one tap at a time."""
    x = np.pad(x, [(0, 0), (0, 0), (padding, padding), (padding, padding)]).astype(np.float64)
    *_, rows, columns = weight.shape
    height = (x.shape[2] - dilation * (rows - 1) - 1) // stride + 1
    width = (x.shape[3] - dilation * (columns - 1) - 1) // stride + 1
    result = np.zeros((x.shape[0], weight.shape[0], height, width))
    for i in range(rows):
        for j in range(columns):
            top, left = i * dilation, j * dilation
            part = x[:, :, top : top + stride * height : stride]
            part = part[..., left : left + stride * width : stride]
            result += np.einsum("nchw,oc->nohw", part, weight[:, :, i, j])
    return result


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("stride, padding, dilation", [(1, 0, 1), (2, 1, 1), (3, 2, 2)])
def test_a_convolution_is_its_definition(stride, padding, dilation, device):
    x, weight = whole(2, 3, 11, 9), whole(4, 3, 3, 2)
    given = [Tensor(each, device=device) for each in (x, weight)]

    result = functional.conv2d(*given, stride=stride, padding=padding, dilation=dilation)

    expected = convolved(x, weight, stride, padding, dilation)
    assert_bits(result, expected.astype(np.float32))


@pytest.mark.parametrize("options", [{}, {"stride": 2, "padding": 1}, {"dilation": 2}], ids=str)
def test_a_convolution_is_one_contraction(options):
    x, weight = Tensor(whole(2, 8, 9, 9)).realize(), Tensor(whole(4, 8, 3, 3)).realize()

    kernels = kernels_of(functional.conv2d(x, weight, Tensor(whole(4)).realize(), **options))

    assert [kernel.contraction is not None for kernel in kernels] == [True]


@pytest.mark.parametrize("device", DEVICES)
def test_pools_of_planes(device):
    x = whole(1, 2, 6, 4)
    windows = x.reshape(1, 2, 3, 2, 2, 2)
    tensor = Tensor(x, device=device)

    assert_bits(functional.max_pool2d(tensor, 2), windows.max((3, 5)))
    assert_bits(functional.avg_pool2d(tensor, 2), windows.mean((3, 5)))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.float32], ids=str)
def test_norms_of_rows(dtype, device):
    x = whole(6, 8)
    wide = x.astype(np.float64)
    centered = wide - wide.mean(1, keepdims=True)
    tensor = Tensor(x, dtype=dtype, device=device)

    layer = functional.layer_norm(tensor, (8,))
    root = functional.rms_norm(tensor, (8,), eps=1e-5)

    spread = np.sqrt((centered**2).mean(1, keepdims=True) + 1e-5)
    assert_within(layer, centered / spread, roundings=16, scale=1)
    size = np.sqrt((wide**2).mean(1, keepdims=True) + 1e-5)
    assert_within(root, wide / size, roundings=16)


@pytest.mark.parametrize("device", DEVICES)
def test_cross_entropy_of_indices(device):
    x, target = whole(3, 5), np.array([4, -100, 0])
    wide = x.astype(np.float64)
    shares = wide - np.log(np.exp(wide).sum(1, keepdims=True))
    given = Tensor(x, device=device), Tensor(target, device=device)

    result = functional.cross_entropy(*given)

    assert_within(result, -(shares[0, 4] + shares[2, 0]) / 2, roundings=16)


@pytest.mark.parametrize("device", DEVICES)
def test_an_index_that_names_no_class_raises_at_the_host_read(device):
    x, target = Tensor.zeros(2, 3, device=device), Tensor([1, 3], device=device)

    loss = functional.cross_entropy(x, target, reduction="none").realize()

    with pytest.raises(IndexError, match="cross_entropy: an index is out of range: 3 on axis 1"):
        loss.numpy()


@pytest.mark.parametrize("device", DEVICES)
def test_an_embedding_reads_rows(device):
    weight = Tensor(whole(6, 3), device=device)
    rows = np.array([[5, 0], [0, 2]])

    result = functional.embedding(Tensor(rows, device=device), weight)

    assert_bits(result, whole(6, 3)[rows])


@pytest.mark.parametrize("device", DEVICES)
def test_the_padding_of_an_embedding_has_no_gradient(device):
    weight = Tensor(whole(4, 3), device=device, requires_grad=True)
    rows = Tensor([3, 1, 3, 2], device=device)

    functional.embedding(rows, weight, padding_idx=-1).sum().backward()

    assert weight.grad.tolist() == [[0.0] * 3, [1.0] * 3, [1.0] * 3, [0.0] * 3]


@pytest.mark.parametrize("device", DEVICES)
def test_attention_sees_only_what_its_mask_allows(device):
    q, k, v = whole(1, 2, 3, 4), whole(1, 2, 5, 4), whole(1, 2, 5, 6)
    mask = np.array([[1, 1, 0, 0, 1], [0, 0, 0, 0, 0], [1, 0, 0, 0, 0]], bool)
    given = [Tensor(each, device=device) for each in (q, k, v, mask)]

    result = functional.scaled_dot_product_attention(*given)

    scores = np.where(mask, q.astype(np.float64) @ k.swapaxes(-1, -2) / 2, -np.inf)
    powers = np.where(mask, np.exp(scores - 30), 0)
    shares = powers / np.maximum(powers.sum(-1, keepdims=True), 1e-300)
    assert_within(result, shares @ v, roundings=32, scale=3)
    assert_bits(result[:, :, 1], np.zeros((1, 2, 6), np.float32))
