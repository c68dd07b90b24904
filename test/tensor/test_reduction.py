"""Reductions over any axes: values, result dtypes, empty and 0-d tensors."""

import math

import numpy as np
import pytest
from tensor.closeness import assert_bits, assert_within

from tinytensor.dtype import dtypes
from tinytensor.tensor.tensor import Tensor

WHOLE = np.array([[3, -1, 4], [1, -5, 9]], np.float32)
DIMS = [None, 0, 1, -1, (0, 1), (1,)]


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize(
    ("name", "reference"),
    [("sum", np.sum), ("prod", np.prod), ("amax", np.max), ("amin", np.min)],
)
def test_folds(name, reference, dim, keepdim):
    expected = np.asarray(reference(WHOLE, axis=dim, keepdims=keepdim))

    assert_bits(getattr(Tensor(WHOLE), name)(dim, keepdim), expected)


@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("name", ["float16", "float32", "float64"])
def test_mean_var_and_std(name, dim):
    x = WHOLE.astype(name)
    wide = WHOLE.astype(np.float64)

    # Sums of at most 6 small numbers: one rounding each, and those of the differences before.
    assert_within(Tensor(x).mean(dim), np.mean(wide, dim), roundings=8)
    assert_within(Tensor(x).var(dim), np.var(wide, dim, ddof=1), roundings=16)
    assert_within(Tensor(x).std(dim, correction=0), np.std(wide, dim), roundings=16)


def test_var_with_too_few_elements():
    assert_bits(Tensor([3.0]).var(), np.array(np.nan, np.float32))
    assert_bits(Tensor([1.0, 5.0]).std(correction=5), np.array(np.inf, np.float32))


@pytest.mark.parametrize(
    ("name", "dtype", "expected"),
    [
        ("sum", "bool", "int64"),
        ("sum", "int8", "int64"),
        ("sum", "float16", "float16"),
        ("sum", "bfloat16", "bfloat16"),
        ("prod", "uint8", "int64"),
        ("amax", "int8", "int8"),
        ("argmax", "float16", "int64"),
        ("any", "float32", "bool"),
        ("all", "uint8", "uint8"),
        ("mean", "bfloat16", "bfloat16"),
    ],
)
def test_result_dtypes(name, dtype, expected):
    x = Tensor.ones(2, 2, dtype=getattr(dtypes, dtype))

    assert getattr(x, name)().dtype.name == expected


def test_sums_of_integers_do_not_wrap_at_their_width():
    assert Tensor(np.full(4, 100, np.int8)).sum().item() == 400
    assert Tensor(np.full(9, 100, np.int8)).prod().item() == 10**18


def test_a_dtype_is_taken_before_the_fold():
    assert_bits(Tensor([1.5, 1.5]).sum(dtype=dtypes.int32), np.array(2, np.int32))
    assert_bits(Tensor([1, 2]).mean(dtype=dtypes.float64), np.array(1.5))


def test_half_sums_accumulate_in_float32():
    tall = np.array([32000] * 4 + [-32000] * 4, np.float16)

    assert_bits(Tensor(tall).sum(), np.array(0, np.float16))
    assert_bits(Tensor.ones(70000, dtype=dtypes.float16).mean(), np.array(1, np.float16))


@pytest.mark.parametrize(
    ("values", "first"),
    [([math.nan, 4.6], 0), ([1, math.nan, 3], 1), ([2, 5, 5], 1), ([-math.inf, -math.inf], 0)],
)
def test_positions_are_the_first_and_nan_first(values, first):
    x = Tensor(np.array(values, np.float32))

    assert x.argmax().item() == first
    assert (-x).argmin().item() == first


def test_positions_along_an_axis_and_of_all():
    x = Tensor(WHOLE)

    assert_bits(x.argmax(1), WHOLE.argmax(1))
    assert_bits(x.argmin(0, keepdim=True), WHOLE.argmin(0, keepdims=True))
    assert_bits(x.argmax(), np.array(5))
    assert_bits(x.argmax(keepdim=True), np.array([[5]]))
    assert Tensor(~np.array([2, 2], np.int32)).argmax().item() == 0


def test_extremes_of_all_and_along_an_axis():
    values, indices = Tensor(WHOLE).max(1)
    least = Tensor(WHOLE).min(0, keepdim=True)

    assert (Tensor(WHOLE).max().item(), Tensor(WHOLE).min().item()) == (9, -5)
    assert_bits(values, WHOLE.max(1))
    assert_bits(indices, WHOLE.argmax(1))
    assert_bits(least.values, WHOLE.min(0, keepdims=True))
    assert_bits(least.indices, WHOLE.argmin(0, keepdims=True))


def test_nan_is_an_extreme():
    x = Tensor([[1.0, math.nan], [-0.0, 0.0]])

    assert_bits(x.amax(1), np.array([np.nan, 0.0], np.float32))
    assert_bits(x.amin(1), np.array([np.nan, -0.0], np.float32))


@pytest.mark.parametrize("dim", DIMS)
def test_truth_of_floats_counts_nan(dim):
    x = np.array([[0, math.nan, 1], [0, -0.0, 1]], np.float32)

    assert_bits(Tensor(x).any(dim), np.asarray(x.any(axis=dim)))
    assert_bits(Tensor(x).all(dim), np.asarray(x.all(axis=dim)))


def test_empty_folds_give_the_identity():
    x = Tensor.zeros(0, 2)

    assert_bits(x.sum(0), np.zeros(2, np.float32))
    assert_bits(x.prod(), np.array(1, np.float32))
    assert_bits(x.mean(0), np.full(2, np.nan, np.float32))
    assert_bits(x.any(0), np.zeros(2, bool))
    assert_bits(x.all(0), np.ones(2, bool))
    assert_bits(x.amax(1), np.zeros(0, np.float32))
    assert x.max(1).indices.shape == (0,)


def test_a_dim_may_be_any_integer_object():
    x = Tensor([[1.0, 2.0], [3.0, 4.0]])

    assert x.sum(np.int64(1)).tolist() == x.sum((np.int64(1),)).tolist() == [3.0, 7.0]


def test_0d_tensors_fold_as_one_element():
    x = Tensor(3.0)

    folded = [x.sum(), x.sum(0), x.mean(-1), x.amax(0), x.max(0).values, x.prod(0, keepdim=True)]

    assert [(each.shape, each.item()) for each in folded] == [((), 3)] * 6
    assert (x.argmax(-1).item(), x.any().item(), x.max(0).indices.item()) == (0, True, 0)
    assert math.isnan(x.var().item())


def test_the_sum_of_minus_zero_is_plus_zero():
    assert_bits(Tensor([[-0.0]]).sum(0), np.array([0.0], np.float32))


@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("name", ["float16", "float32", "float64"])
def test_softmax(name, dim):
    x = WHOLE.astype(name)
    powers = np.exp(x.astype(np.float64))
    shares = powers / powers.sum(dim, keepdims=True)

    # x - max is at most 14, so the exponent's rounding alone moves a share by 7 epsilons.
    assert_within(Tensor(x).softmax(dim), shares, roundings=20)
    assert_within(Tensor(x).log_softmax(dim), np.log(shares), roundings=8, scale=14)


def test_softmax_of_special_rows():
    x = Tensor([[0.0, -math.inf], [math.nan, 1.0], [-math.inf, -math.inf]])

    assert_bits(x.softmax(1), np.array([[1, 0], [np.nan] * 2, [np.nan] * 2], np.float32))
    assert_bits(x[:1].log_softmax(1), np.array([[0, -np.inf]], np.float32))


def test_softmax_in_a_wider_dtype_computes_in_it():
    x = np.array([0.1, 0.2], np.float16)
    powers = np.exp(x.astype(np.float64))

    assert_within(Tensor(x).softmax(0, dtype=dtypes.float32), powers / powers.sum(), roundings=8)


def test_softmax_of_small_shapes():
    assert_bits(Tensor(3.0).softmax(-1), np.array(1, np.float32))
    assert Tensor.zeros(0, 3).softmax(0).shape == (0, 3)
    assert Tensor([2.5]).softmax(0).tolist() == [1]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.0, math.inf], math.inf),
        ([-math.inf, -math.inf], -math.inf),
        ([math.nan, 1.0], math.nan),
        ([], -math.inf),
    ],
)
def test_logsumexp_at_the_ends(values, expected):
    assert_bits(Tensor(values).logsumexp(0), np.array(expected, np.float32))


@pytest.mark.parametrize("dim", [0, 1, (0, 1)])
def test_logsumexp(dim):
    expected = np.log(np.exp(WHOLE.astype(np.float64)).sum(dim))

    assert_within(Tensor(WHOLE).logsumexp(dim), expected, roundings=16)
    assert Tensor([True]).logsumexp(0).item() == 1.0
