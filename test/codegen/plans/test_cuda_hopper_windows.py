"""Convolutions on Hopper: boxes of the copy engine give the interpreter's sums, whatever windows."""

from dataclasses import replace

import numpy as np
import pytest
from codegen.plans.plan_kernels import arrays_for, expected
from schedule.reading import kernels_of

from tinytensor import Tensor, autograd, dtypes
from tinytensor.codegen.plans import cuda_contraction, cuda_hopper, cuda_hopper_windows
from tinytensor.codegen.plans.cuda_hopper_tiling import Candidate, HopperTiling
from tinytensor.nn import functional
from tinytensor.ops.interpret_blocks import run_launches
from tinytensor.ops.verify import verify_linear
from tinytensor.target import SM90A

ONE = HopperTiling("one", 64, 64, 2, 1)
ACROSS = HopperTiling("across", 64, 128, 2, 2, alternates=True)
DOWN = HopperTiling("down", 128, 64, 2, 2)
SMALL = replace(SM90A, multiprocessors=2)
F16 = dtypes.float16


@pytest.fixture(autouse=True)
def packs_small_products(monkeypatch):
    monkeypatch.setattr(cuda_contraction, "PACKED_PRODUCTS", 1)


def leaf(shape, is_last):
    """A tensor with memory of its own, channels second or innermost."""
    if not is_last:
        return Tensor.zeros(shape, dtype=F16).contiguous().realize()
    n, channels, *places = shape
    held = Tensor.zeros((n, *places, channels), dtype=F16).contiguous().realize()
    return held.permute(0, -1, *range(1, len(shape) - 1))


def kernel_of(which, x_shape, weight_shape, is_last=False, **options):
    """The kernel of a convolution, or of its gradient by the input or the weight."""
    x, weight = leaf(x_shape, is_last), leaf(weight_shape, is_last)
    x.requires_grad_(), weight.requires_grad_()
    convolve = {3: functional.conv1d, 4: functional.conv2d, 5: functional.conv3d}[len(x_shape)]
    result = convolve(x, weight, **options)
    if which != "forward":
        g = leaf(result.shape, is_last)
        (result,) = autograd.grad(result, [{"input": x, "weight": weight}[which]], g)
    (kernel,) = kernels_of(result, target=SM90A)
    return kernel


def ways_of(kernel):
    product = cuda_contraction.facts(kernel, SM90A)
    return cuda_hopper_windows.products_in_windows(product)


def assert_exact(kernel, product, tiling, arrays=None, parts=1):
    candidate = Candidate(tiling, tiling.stages, 0, 0.0, False, parts)
    linears = cuda_hopper.lower(product, SMALL, candidate)
    for each in linears:
        verify_linear(each)
    arrays = arrays_for(kernel) if arrays is None else arrays
    results = [each.copy() for each in arrays]

    run_launches(linears, results, 1)

    for result, want in zip(results, expected(kernel, arrays), strict=True):
        np.testing.assert_array_equal(result, want, strict=True)


# (input, weight, options): borders, steps, gaps, groups; rows that 16 bytes do not divide.
SHAPES = [
    ((2, 64, 10, 40), (64, 64, 3, 3), {"padding": 1}),
    ((2, 40, 9, 9), (72, 40, 2, 3), {"padding": (0, 2)}),
    ((3, 64, 11, 12), (8, 64, 3, 3), {"stride": 2, "padding": 1}),
    ((2, 48, 12, 40), (40, 48, 3, 2), {"dilation": (2, 3), "padding": (1, 2)}),
    ((2, 80, 6, 64), (64, 40, 3, 3), {"groups": 2, "padding": 1}),
    ((2, 64, 80), (64, 64, 5), {"padding": 2}),
    ((1, 64, 4, 5, 6), (64, 64, 2, 3, 3), {"padding": 1}),
]


@pytest.mark.parametrize("is_last", [False, True], ids=["channels second", "channels last"])
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_a_forward_convolution(shapes, is_last):
    *arrays, options = shapes
    kernel = kernel_of("forward", *arrays, is_last, **options)

    ways = ways_of(kernel)

    assert ways
    for way, tiling in zip(ways, (ONE, ACROSS), strict=False):
        assert_exact(kernel, way, tiling)


GRADIENTS = [
    ((2, 64, 4, 8), (64, 64, 3, 3), {"padding": 1}),
    ((64, 40, 4, 4), (48, 40, 3, 3), {}),
    ((4, 32, 8, 16), (32, 32, 3, 3), {"stride": 2, "padding": 1}),
    ((1, 64, 3, 64), (64, 64, 1, 3), {"padding": (0, 1)}),
]


@pytest.mark.parametrize("is_last", [False, True], ids=["channels second", "channels last"])
@pytest.mark.parametrize("shapes", GRADIENTS, ids=str)
def test_the_gradient_of_a_weight(shapes, is_last):
    *arrays, options = shapes
    kernel = kernel_of("weight", *arrays, is_last, **options)

    ways = ways_of(kernel)

    assert ways
    for parts, way in enumerate(ways, 1):
        assert_exact(kernel, way, ONE, parts=parts)


def test_what_lies_outside_a_window_is_not_multiplied():
    kernel = kernel_of("weight", (1, 64, 3, 64), (64, 64, 1, 3), padding=(0, 1))
    arrays = arrays_for(kernel)
    for each in arrays[1:]:
        each.reshape(64, 3, 64)[::7, :, -1] = np.nan
    forward = kernel_of("forward", (2, 64, 3, 40), (64, 64, 3, 3), padding=1)
    given = arrays_for(forward)
    given[1].reshape(2, 64, 3, 40)[:, ::9, :, ::13] = np.inf

    for way in ways_of(kernel):
        assert_exact(kernel, way, ONE, arrays)
    for way in ways_of(forward):
        assert_exact(forward, way, ONE, given)


def test_the_gradient_of_an_input():
    kernel = kernel_of("input", (2, 64, 4, 9), (64, 64, 3, 3), padding=(1, 2))

    for way in ways_of(kernel):
        assert_exact(kernel, way, DOWN)


def test_an_epilogue_and_several_stores_over_patches():
    x, weight = leaf((2, 64, 4, 40), False), leaf((64, 64, 3, 3), False)
    bias, skip = leaf((64,), False), leaf((2, 64, 4, 40), False)
    total = functional.conv2d(x, weight, bias, padding=1)
    (kernel,) = kernels_of(total, (total + skip).relu(), target=SM90A)

    ways = ways_of(kernel)

    assert len(ways) == 2
    for way in ways:
        assert_exact(kernel, way, ACROSS)
