"""What a sum of products is depends on which ranges each factor reads, and on nothing else."""

import numpy as np
import pytest
from schedule.reading import kernels_of

from tinytensor import Tensor, dtypes
from tinytensor.ops.op import Op
from tinytensor.schedule.contraction import is_exact_widening, path_to_product


def zeros(*shape, dtype=dtypes.float32):
    return Tensor.zeros(*shape, dtype=dtype).realize()


def contraction_of(tensor):
    (kernel,) = kernels_of(tensor)
    return kernel.contraction


def numbers(ranges):
    return [each.attrs.number for each in ranges]


def einsum_like():
    """Sum over j, l of a[i, j, l] * b[l, h, j]: two folded axes, crosswise."""
    a, b = zeros(2, 3, 5), zeros(5, 7, 3)
    left = a.unsqueeze(1)
    right = b.permute(1, 2, 0).unsqueeze(0)
    return (left * right).sum((2, 3))


def convolve(x, weight):
    """Sum over c, k of x[c, i + k] * weight[o, c, k]; views alone make the windows of x."""
    channels, width = x.shape
    taps = weight.shape[-1]
    rows = x.unsqueeze(1).expand(channels, taps, width).reshape(channels, taps * width)
    skewed = rows.pad((0, taps)).reshape(channels, taps, width + 1)[:, :, : width - taps + 1]
    return (skewed.permute(2, 0, 1).unsqueeze(1) * weight.unsqueeze(0)).sum((2, 3))


@pytest.mark.parametrize(
    ("program", "extents"),
    [
        (lambda: zeros(4, 3) @ zeros(3, 5), (1, 4, 5, 3)),
        (lambda: zeros(3, 4).T @ zeros(5, 3).T, (1, 4, 5, 3)),
        (lambda: (lambda x: x @ x.T)(zeros(4, 3)), (1, 4, 4, 3)),
        (lambda: zeros(2, 4, 3) @ zeros(2, 3, 5), (2, 4, 5, 3)),
        (lambda: zeros(2, 4, 3) @ zeros(3, 5), (1, 8, 5, 3)),
        (lambda: zeros(4, 3) @ zeros(2, 3, 5), (1, 4, 10, 3)),
        (einsum_like, (1, 2, 7, 15)),
        (lambda: convolve(zeros(2, 6), zeros(5, 2, 3)), (1, 4, 5, 6)),
    ],
    ids=["nn", "tt", "gram", "batch", "a_has_more", "b_has_more", "einsum", "convolution"],
)
def test_each_class_holds_the_ranges_of_its_readers(program, extents):
    assert contraction_of(program()).extents == extents


def test_a_convolution_as_a_contraction_has_the_values_of_one(seed):
    rng = np.random.default_rng(seed)
    x, weight = rng.integers(-9, 9, (2, 6)), rng.integers(-9, 9, (5, 2, 3))

    result = convolve(Tensor(x), Tensor(weight))

    windows = np.lib.stride_tricks.sliding_window_view(x, 3, axis=1)
    np.testing.assert_array_equal(result.numpy(), np.einsum("cik,ock->io", windows, weight))


def test_a_batch_that_one_factor_broadcasts_over_belongs_to_the_other():
    fact = contraction_of(zeros(2, 4, 3) @ zeros(3, 5))

    assert (numbers(fact.batch), numbers(fact.m), numbers(fact.n)) == ([], [0, 1], [2])


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16])
def test_a_cast_that_widens_exactly_is_no_prologue(dtype):
    fact = contraction_of(zeros(4, 3, dtype=dtype) @ zeros(3, 5, dtype=dtype))

    a, b = fact.node.operands[:2]
    assert (a.op, b.op, a.dtype, fact.node.attrs.accumulate) == (
        Op.LOAD,
        Op.LOAD,
        dtype,
        dtypes.float32,
    )
    assert fact.prologues == ""


def test_other_work_on_a_factor_is_its_prologue():
    fact = contraction_of(zeros(4, 3).relu() @ zeros(3, 5))

    assert fact.prologues == "a"


@pytest.mark.parametrize(
    ("narrow", "wide", "is_exact"),
    [
        (dtypes.float16, dtypes.float32, True),
        (dtypes.bfloat16, dtypes.float64, True),
        (dtypes.float16, dtypes.bfloat16, False),
        (dtypes.bfloat16, dtypes.float16, False),
        (dtypes.float64, dtypes.float32, False),
        (dtypes.int8, dtypes.int32, True),
        (dtypes.uint8, dtypes.int16, True),
        (dtypes.uint32, dtypes.int32, False),
        (dtypes.int8, dtypes.uint32, False),
        (dtypes.int32, dtypes.float32, False),
        (dtypes.bool, dtypes.float32, False),
    ],
    ids=str,
)
def test_a_widening_is_exact_when_no_value_is_lost(narrow, wide, is_exact):
    assert is_exact_widening(narrow, wide) == is_exact


def test_the_path_to_the_product_ends_at_its_mul():
    node = (zeros(4, 3) @ zeros(3, 5)).uop
    while node.op is not Op.REDUCE:
        (node,) = node.operands

    path = path_to_product(node)

    assert path[-1].op is Op.MUL
    assert path[0] is node.operands[0]
