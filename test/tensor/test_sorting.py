"""Sorted, greatest, middle and record elements are NumPy's, by a stable order; NaN is greatest."""

import numpy as np
import pytest

from tinytensor import Tensor, dtypes
from tinytensor.tensor import autograd

CASE = np.array([3, np.nan, 1, 2], np.float32)
TIES = np.array([[2, 0, 1, 2, 0], [1, 1, 1, 1, 1], [-0.0, 0.0, -1, 0.0, -0.0]], np.float32)


def long_row(extent=150):
    """Small integers, so that most occur several times."""
    return np.random.default_rng(5).integers(-20, 20, extent).astype(np.float32)


def descending(x):
    """NumPy's stable order of the greatest first."""
    return np.argsort(-x, -1, kind="stable")


# Whole orders.
@pytest.mark.parametrize("x", [CASE, TIES, long_row()], ids=["nan", "ties", "long"])
def test_a_sort(x):
    values, indices = Tensor(x).sort()

    assert indices.dtype is dtypes.int64
    assert indices.tolist() == np.argsort(x, -1, kind="stable").tolist()
    np.testing.assert_array_equal(values.numpy(), np.sort(x, -1, kind="stable"))


@pytest.mark.parametrize("x", [TIES, long_row()], ids=["ties", "long"])
def test_a_descending_sort_keeps_the_order_of_equal_elements(x):
    values, indices = Tensor(x).sort(descending=True)

    assert indices.tolist() == descending(x).tolist()
    assert values.tolist() == np.take_along_axis(x, descending(x), -1).tolist()


def test_nan_comes_last_and_first_when_descending():
    assert Tensor(CASE).argsort().tolist() == [2, 3, 0, 1]
    assert Tensor(CASE).argsort(descending=True).tolist() == [1, 0, 3, 2]


def test_the_ends_of_integers_are_sorted_in_both_directions():
    ends = [dtypes.int64.max, 0, dtypes.int64.min, -1]

    assert Tensor(ends).argsort().tolist() == [2, 3, 1, 0]
    assert Tensor(ends).argsort(descending=True).tolist() == [0, 1, 3, 2]


def test_bools_and_bfloat16_are_sorted():
    assert Tensor([True, False, True, False]).sort().indices.tolist() == [1, 3, 0, 2]
    assert Tensor([2.0, -1.0, 0.5]).bfloat16().sort().values.tolist() == [-1.0, 0.5, 2.0]


def test_msort_goes_along_the_first_axis():
    assert Tensor(TIES).msort().tolist() == np.sort(TIES, 0).tolist()


def test_an_axis_in_front_is_sorted():
    x = long_row(2 * 40 * 3).reshape(2, 40, 3)

    assert Tensor(x).argsort(1).tolist() == np.argsort(x, 1, kind="stable").tolist()


# Parts of orders.
@pytest.mark.parametrize("k", [0, 1, 5, 70, 150])
@pytest.mark.parametrize("largest", [True, False])
def test_the_k_greatest_or_least(largest, k):
    x = long_row()
    order = descending(x) if largest else np.argsort(x, kind="stable")

    values, indices = Tensor(x).topk(k, largest=largest)

    assert indices.tolist() == order[:k].tolist()
    assert values.tolist() == x[order[:k]].tolist()


def test_topk_of_each_column():
    expected = np.sort(TIES, 0)[::-1][:2]

    assert Tensor(TIES).topk(2, 0).values.tolist() == expected.tolist()


@pytest.mark.parametrize("k", [1, 40, 150])
def test_the_kth_least(k):
    x = long_row(300).reshape(2, 150)

    values, indices = Tensor(x).kthvalue(k)

    assert values.tolist() == np.sort(x, -1)[:, k - 1].tolist()
    assert indices.tolist() == np.argsort(x, -1, kind="stable")[:, k - 1].tolist()
    assert Tensor(x).kthvalue(k, keepdim=True).values.shape == (2, 1)


@pytest.mark.parametrize("extent", [1, 2, 7, 98])
def test_the_lower_median(extent):
    x = long_row(extent)

    assert Tensor(x).median().item() == np.sort(x)[(extent - 1) // 2]
    assert Tensor(x).median(0).values.item() == np.sort(x)[(extent - 1) // 2]


def test_a_median_with_nan_is_nan():
    x = np.stack([CASE, [4, 1, 3, 2]])

    values, indices = Tensor(x).median(1, keepdim=True)

    assert indices.tolist() == [[1], [3]]
    np.testing.assert_array_equal(values.numpy(), [[np.nan], [2]])


def test_a_median_of_integers_and_of_nothing():
    assert Tensor([[5, 1], [2, 8]]).median().item() == 2
    assert Tensor([]).median().isnan().item()
    assert Tensor([], requires_grad=True).median().requires_grad


# Records.
@pytest.mark.parametrize("extent", [1, 9, 200])
def test_running_extremes(extent):
    x = long_row(extent)

    assert Tensor(x).cummax(0).values.tolist() == np.maximum.accumulate(x).tolist()
    assert Tensor(x).cummin(0).values.tolist() == np.minimum.accumulate(x).tolist()


def test_a_running_extreme_is_where_it_was_last():
    x = Tensor([[1.0, 0.0, 1.0], [np.nan, 2.0, np.nan], [-0.0, 0.0, -1.0]])

    assert x.cummax(1).indices.tolist() == [[0, 0, 2], [0, 0, 2], [0, 1, 1]]
    assert x.cummin(1).indices.tolist() == [[0, 1, 1], [0, 0, 2], [0, 1, 2]]
    assert x.cummax(0).indices.tolist() == [[0, 0, 0], [1, 1, 1], [1, 1, 1]]


def test_running_extremes_of_integers_and_bools():
    ends = Tensor([dtypes.int64.min, -1, dtypes.int64.max, 0])

    assert ends.cummax(0).indices.tolist() == [0, 1, 2, 2]
    assert Tensor([True, False, True]).cummin(0).indices.tolist() == [0, 1, 1]


# Nothing and 0-d.
def test_a_0d_tensor_is_its_own_order():
    x = Tensor(2.0)

    for values, indices in (x.sort(), x.topk(1), x.kthvalue(1), x.median(0), x.cummax(-1)):
        assert (values.shape, values.item()) == ((), 2.0)
        assert (indices.shape, indices.item()) == ((), 0)
    assert x.argsort().item() == 0


def test_empty_axes():
    x = Tensor.zeros(2, 0)

    assert x.sort(0).values.shape == x.sort(1).indices.shape == (2, 0)
    assert x.topk(0).values.shape == x.cummax(1).indices.shape == (2, 0)
    assert Tensor.zeros(0, 3).kthvalue(1).values.shape == (0,)


# Gradients.
def test_a_gradient_goes_where_the_element_was():
    x = Tensor(CASE, requires_grad=True)
    weights = Tensor([10.0, 20.0, 30.0, 40.0])

    (found,) = autograd.grad((x.sort().values * weights).sum(), x)

    assert found.tolist() == [30.0, 40.0, 10.0, 20.0]


@pytest.mark.parametrize(
    ("choose", "expected"),
    [
        (lambda x: x.topk(2).values, [0, 1, 0, 1]),
        (lambda x: x.kthvalue(2).values, [1, 0, 0, 0]),
        (lambda x: x.median(), [1, 0, 0, 0]),
        (lambda x: x.cummax(0).values, [1, 3, 0, 0]),
        (lambda x: x.msort(), [1, 1, 1, 1]),
    ],
)
def test_a_gradient_of_chosen_elements(choose, expected):
    x = Tensor([2.0, 4.0, 1.0, 3.0], requires_grad=True)

    choose(x).sum().backward()

    assert x.grad.tolist() == expected
