"""The gradient of a convolution: exact on whole numbers, and one kernel where windows step by 1."""

import numpy as np
import pytest
from schedule.reading import kernels_of

from tinytensor import Tensor, autograd, dtypes
from tinytensor.nn import functional


def whole(*shape, seed=0):
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(np.float32)


def gradients_by_taps(x, weight, g, stride, padding, dilation, groups):
    """The gradients by their definition: each tap of each group on its own."""
    wide = np.pad(x, [(0, 0), (0, 0), *[(each, each) for each in padding]])
    of_input, of_weight = np.zeros_like(wide), np.zeros_like(weight)
    per_group, channels = weight.shape[0] // groups, weight.shape[1]
    for group, i, j in np.ndindex(groups, *weight.shape[2:]):
        made = slice(group * per_group, (group + 1) * per_group)
        read = slice(group * channels, (group + 1) * channels)
        begins = [tap * apart for tap, apart in zip((i, j), dilation, strict=True)]
        rows, columns = [
            slice(begin, begin + step * count, step)
            for begin, step, count in zip(begins, stride, g.shape[2:], strict=True)
        ]
        of_input[:, read, rows, columns] += np.einsum(
            "nohw,oc->nchw", g[:, made], weight[made, :, i, j]
        )
        of_weight[made, :, i, j] += np.einsum(
            "nohw,nchw->oc", g[:, made], wide[:, read, rows, columns]
        )
    rows, columns = [
        slice(side, extent + side) for side, extent in zip(padding, x.shape[2:], strict=True)
    ]
    return of_input[:, :, rows, columns], of_weight, g.sum((0, 2, 3))


CASES = [
    {},
    {"padding": (1, 1)},
    {"padding": (3, 4)},
    {"stride": (2, 1), "padding": (0, 2)},
    {"stride": (2, 3), "padding": (1, 0), "dilation": (1, 2)},
    {"stride": (4, 2), "dilation": (2, 3), "groups": 2},
    {"dilation": (2, 3), "padding": (2, 3), "groups": 4},
    {"stride": (5, 4), "padding": (1, 1)},  # more combs than are computed one by one
]


@pytest.mark.parametrize("options", CASES, ids=str)
def test_gradients_are_exact_sums_over_taps(options):
    pairs = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": 1, **options}
    arrays = whole(2, 4, 11, 10), whole(8, 4 // pairs["groups"], 3, 2, seed=1), whole(8, seed=2)
    x, weight, bias = [Tensor(each).requires_grad_() for each in arrays]

    result = functional.conv2d(x, weight, bias, **pairs)
    g = whole(*result.shape, seed=3)
    found = autograd.grad(result, [x, weight, bias], Tensor(g))

    for each, want in zip(found, gradients_by_taps(*arrays[:2], g, **pairs), strict=True):
        np.testing.assert_array_equal(each.numpy(), want)


def test_a_gradient_has_a_gradient():
    x, weight = Tensor(whole(1, 2, 6, 6)).requires_grad_(), Tensor(whole(3, 2, 3, 3, seed=1))

    (slope,) = autograd.grad(
        functional.conv2d(x, weight.requires_grad_(), padding=1).square().sum(),
        [x],
        create_graph=True,
    )
    (twice,) = autograd.grad(slope.sum(), [x])

    ones = np.ones_like(x.detach().numpy())
    through = functional.conv2d(Tensor(ones), weight.detach(), padding=1).numpy()
    want, *_ = gradients_by_taps(
        ones, weight.detach().numpy(), 2 * through, (1, 1), (1, 1), (1, 1), 1
    )
    np.testing.assert_array_equal(twice.numpy(), want)


@pytest.mark.parametrize("groups", [1, 2])
def test_each_gradient_is_one_contraction(groups):
    x = Tensor(whole(2, 8, 9, 9), dtype=dtypes.float16).realize().requires_grad_()
    weight = Tensor(whole(4, 8 // groups, 3, 3), dtype=dtypes.float16).realize().requires_grad_()
    result = functional.conv2d(x, weight, padding=1, groups=groups)

    for target in (x, weight):
        g = Tensor(whole(*result.shape), dtype=dtypes.float16).realize()
        kernels = kernels_of(*autograd.grad(result, [target], g))
        assert [kernel.contraction is not None for kernel in kernels] == [True]


def test_a_convolution_of_no_channels_has_empty_gradients():
    x, weight = [
        Tensor(whole(*shape), requires_grad=True) for shape in ((1, 0, 5, 5), (6, 0, 2, 2))
    ]

    result = functional.conv2d(x, weight)
    result.sum().backward()

    assert result.tolist() == np.zeros((1, 6, 4, 4)).tolist()
    assert (x.grad.shape, weight.grad.shape) == (x.shape, weight.shape)
