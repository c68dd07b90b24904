"""Convolutions of each channel by itself on a GPU: threads fold whole windows, several together."""

from dataclasses import replace

import numpy as np
import pytest
from codegen.plans.plan_kernels import arrays_for, expected
from codegen.plans.test_cuda_hopper_windows import leaf
from schedule.reading import kernels_of

from tinytensor import autograd, dtypes
from tinytensor.codegen.plan import choose
from tinytensor.nn import functional
from tinytensor.ops.interpret_blocks import run_launches
from tinytensor.ops.verify import verify_linear
from tinytensor.target import SM90A

SMALL = replace(SM90A, multiprocessors=1)
MANY = replace(SM90A, multiprocessors=0)  # however few results there are, they fill it


def kernel_of(which, shape, taps, is_last, dtype, **options):
    """The kernel of a convolution of each channel, or of a gradient of it."""
    channels = shape[1]
    x = leaf(shape, is_last, dtype).requires_grad_()
    weight = leaf((channels, 1, *taps), False, dtype).requires_grad_()
    result = functional.conv2d(x, weight, groups=channels, **options)
    if which != "forward":
        g = leaf(result.shape, is_last, dtype)
        (result,) = autograd.grad(result, [{"input": x, "weight": weight}[which]], g)
    if is_last and which != "weight":
        result = result.permute(0, 2, 3, 1).contiguous()
    return kernels_of(result, target=SM90A)[-1]


def assert_exact(kernel, target=MANY):
    choice = choose(kernel, target)
    for each in choice.linears:
        verify_linear(each)
    arrays = arrays_for(kernel)
    results = [each.copy() for each in arrays]

    run_launches(choice.linears, results)

    for result, want in zip(results, expected(kernel, arrays), strict=True):
        np.testing.assert_array_equal(result, want, strict=True)


SHAPES = [
    ((2, 8, 8, 16), (3, 3), {"padding": 1}),
    ((2, 8, 6, 8), (3, 5), {"padding": (1, 2)}),
    ((1, 8, 9, 16), (3, 3), {"padding": 1, "stride": 2}),
    ((1, 16, 8, 24), (1, 3), {"padding": (0, 2), "dilation": 2}),
    ((2, 3, 7, 5), (3, 3), {}),
    ((1, 8, 8, 24), (7, 7), {"padding": 3}),
]


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.float32], ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("is_last", [False, True], ids=["channels second", "channels last"])
@pytest.mark.parametrize("which", ["forward", "input", "weight"])
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_each_channel_is_convolved(which, shapes, is_last, dtype):
    shape, taps, options = shapes
    kernel = kernel_of(which, shape, taps, is_last, dtype, **options)

    assert_exact(kernel)
