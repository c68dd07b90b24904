"""Sorts, searches and what is built on them give PyTorch's results and refusals."""

import numpy as np
import pytest

import tinytensor
from tinytensor import Tensor
from tinytensor.tensor import autograd

torch = pytest.importorskip("torch")

NAN = float("nan")
ROW = torch.tensor([3.0, NAN, 1.0, 2.0, -float("inf")])
# All elements of a row differ: of equal ones PyTorch chooses any in topk and kthvalue.
MATRIX = torch.tensor(np.random.default_rng(8).permutation(40).reshape(4, 10) - 20)
TIES = MATRIX // 4
SEQUENCE = torch.tensor([1.0, 3.0, 3.0, 5.0])
VALUES = torch.tensor([[0.0, 1.0, 3.0], [4.0, 5.0, NAN]])
POINT = torch.tensor(2.0)


def ours(x):
    return Tensor(x.numpy())


CALLS = {
    "sort": lambda lib, to: to(ROW).sort(),
    "sort-descending": lambda lib, to: to(ROW).sort(0, True),
    "sort-stable": lambda lib, to: lib.sort(to(TIES), dim=0, stable=True),
    "sort-stable-descending": lambda lib, to: to(TIES).sort(descending=True, stable=True),
    "sort-bool": lambda lib, to: lib.sort(to(TIES > 0), stable=True),
    "sort-0d": lambda lib, to: to(POINT).sort(),
    "sort-dim": lambda lib, to: to(ROW).sort(1),
    "sort-empty": lambda lib, to: to(torch.zeros(2, 0)).sort(0),
    "argsort": lambda lib, to: lib.argsort(to(TIES), stable=True),
    "argsort-0d": lambda lib, to: to(POINT).argsort(-1),
    "msort": lambda lib, to: lib.msort(to(MATRIX)),
    "msort-0d": lambda lib, to: to(POINT).msort(),
    "topk": lambda lib, to: lib.topk(to(MATRIX), 3),
    "topk-least": lambda lib, to: to(ROW).topk(2, largest=False),
    "topk-axis": lambda lib, to: to(MATRIX).topk(2, dim=0, largest=True, sorted=True),
    "topk-nan": lambda lib, to: to(ROW).topk(2),
    "topk-0d": lambda lib, to: to(POINT).topk(1),
    "topk-0d-of-none": lambda lib, to: to(POINT).topk(0),
    "topk-none": lambda lib, to: to(MATRIX).topk(0),
    "topk-empty": lambda lib, to: to(torch.zeros(3, 0)).topk(0),
    "topk-too-many": lambda lib, to: to(ROW).topk(6),
    "topk-negative": lambda lib, to: to(ROW).topk(-1),
    "topk-0d-too-many": lambda lib, to: to(POINT).topk(2),
    "topk-dim": lambda lib, to: to(MATRIX).topk(2, 2),
    "kth": lambda lib, to: lib.kthvalue(to(MATRIX), 4, 0, True),
    "kth-0d": lambda lib, to: to(POINT).kthvalue(1, keepdim=True),
    "kth-nan": lambda lib, to: to(ROW).kthvalue(5),
    "kth-zero": lambda lib, to: to(ROW).kthvalue(0),
    "kth-too-many": lambda lib, to: to(ROW).kthvalue(6),
    "kth-empty": lambda lib, to: to(torch.zeros(3, 0)).kthvalue(1),
    "kth-of-no-rows": lambda lib, to: to(torch.zeros(0, 3)).kthvalue(1),
    "median": lambda lib, to: lib.median(to(MATRIX)),
    "median-nan": lambda lib, to: to(ROW).median(),
    "median-nan-place": lambda lib, to: to(ROW).median(0),
    "median-axis": lambda lib, to: to(MATRIX).median(1, keepdim=True),
    "median-0d": lambda lib, to: to(POINT).median(0),
    "median-of-nothing": lambda lib, to: to(torch.zeros(0)).median(),
    "median-of-no-integers": lambda lib, to: to(torch.zeros(0, dtype=torch.int64)).median(),
    "median-empty": lambda lib, to: to(torch.zeros(0)).median(0),
    "cummax": lambda lib, to: lib.cummax(to(TIES), 1),
    "cummin": lambda lib, to: to(TIES).cummin(dim=0),
    "cummax-nan": lambda lib, to: to(VALUES.flip(1)).cummax(1),
    "cummin-nan": lambda lib, to: to(VALUES.flip(1)).cummin(1),
    "cummax-bool": lambda lib, to: to(TIES > 0).cummax(1),
    "cummax-zeros": lambda lib, to: to(torch.tensor([0.0, -0.0, 0.0])).cummax(0),
    "cummin-0d": lambda lib, to: to(POINT).cummin(0),
    "cummax-empty": lambda lib, to: to(torch.zeros(0, 2)).cummax(0),
    "cummax-dim": lambda lib, to: to(ROW).cummax(1),
    "search": lambda lib, to: lib.searchsorted(to(SEQUENCE), to(VALUES)),
    "search-right": lambda lib, to: lib.searchsorted(to(SEQUENCE), to(VALUES), right=True),
    "search-side": lambda lib, to: lib.searchsorted(to(SEQUENCE), to(VALUES), side="right"),
    "search-int32": lambda lib, to: lib.searchsorted(to(SEQUENCE), 3, out_int32=True),
    "search-0d": lambda lib, to: lib.searchsorted(to(SEQUENCE), to(POINT)),
    "search-rows": lambda lib, to: lib.searchsorted(to(MATRIX.sort(1)[0]), to(MATRIX)),
    "search-mixed": lambda lib, to: lib.searchsorted(to(SEQUENCE), to(MATRIX)),
    "search-in-integers": lambda lib, to: lib.searchsorted(to(MATRIX[0].sort()[0]), 0.5),
    "search-in-nothing": lambda lib, to: lib.searchsorted(to(torch.zeros(0)), to(VALUES)),
    "search-sorter": lambda lib, to: lib.searchsorted(
        to(MATRIX), to(MATRIX), sorter=to(MATRIX.argsort())
    ),
    "search-sides": lambda lib, to: lib.searchsorted(
        to(SEQUENCE), to(VALUES), right=True, side="left"
    ),
    "search-middle": lambda lib, to: lib.searchsorted(to(SEQUENCE), to(VALUES), side="middle"),
    "search-in-0d": lambda lib, to: lib.searchsorted(to(POINT), to(VALUES)),
    "search-rows-differ": lambda lib, to: lib.searchsorted(to(MATRIX), to(VALUES)),
    "search-0d-in-rows": lambda lib, to: lib.searchsorted(to(VALUES), to(POINT)),
    "search-short-sorter": lambda lib, to: lib.searchsorted(
        to(SEQUENCE), to(VALUES), sorter=to(torch.tensor([0]))
    ),
    "search-int32-sorter": lambda lib, to: lib.searchsorted(
        to(SEQUENCE), to(VALUES), sorter=to(torch.zeros(4, dtype=torch.int32))
    ),
    "buckets": lambda lib, to: lib.bucketize(to(VALUES), to(SEQUENCE)),
    "buckets-right": lambda lib, to: lib.bucketize(to(VALUES), to(SEQUENCE), right=True),
    "buckets-of-a-number": lambda lib, to: lib.bucketize(3, to(SEQUENCE), out_int32=True),
    "buckets-2d": lambda lib, to: lib.bucketize(to(VALUES), to(VALUES)),
    "none-drawn": lambda lib, to: lib.multinomial(to(SEQUENCE), 0),
    "too-many-drawn": lambda lib, to: lib.multinomial(to(SEQUENCE), 5),
    "negative-chance": lambda lib, to: lib.multinomial(to(SEQUENCE - 2), 1),
    "nan-chance": lambda lib, to: lib.multinomial(to(VALUES), 1, True),
    "no-chance": lambda lib, to: lib.multinomial(to(torch.eye(3)[:, :2]), 1),
    "integer-chances": lambda lib, to: lib.multinomial(to(MATRIX), 1),
    "0d-chances": lambda lib, to: lib.multinomial(to(POINT), 1),
    "no-rows-drawn": lambda lib, to: lib.multinomial(to(torch.zeros(0, 3)), 2),
    "negative-randperm": lambda lib, to: lib.randperm(-1),
    "narrow-randperm": lambda lib, to: lib.randperm(257, dtype=lib.uint8),
    "half-randperm": lambda lib, to: lib.randperm(2050, dtype=lib.float16),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_call(call):
    try:
        expected = call(torch, lambda x: x)
    except (RuntimeError, IndexError, ValueError) as error:
        kinds = (IndexError, ValueError, RuntimeError)
        kind = next(each for each in kinds if isinstance(error, each))
        with pytest.raises(kind):
            call(tinytensor, ours)
        return
    assert_alike(call(tinytensor, ours), expected)


def assert_alike(found, expected):
    if not isinstance(expected, torch.Tensor):
        assert found._fields == ("values", "indices")
        for mine, theirs in zip(found, expected, strict=True):
            assert_alike(mine, theirs)
        return
    assert found.dtype.name == str(expected.dtype).removeprefix("torch.")
    assert found.shape == tuple(expected.shape)
    np.testing.assert_array_equal(found.numpy(), expected.numpy())
    np.testing.assert_array_equal(np.signbit(found.numpy()), np.signbit(expected.numpy()))


SLOPES = {
    "sort": lambda x: x.sort(0).values,
    "sort-descending": lambda x: x.sort(descending=True)[0],
    "msort": lambda x: x.msort(),
    "topk": lambda x: x.topk(3, 0)[0],
    "kth": lambda x: x.kthvalue(2)[0],
    "median": lambda x: x.median(1)[0],
    "median-of-all": lambda x: x.median(),
    "cummax": lambda x: x.cummax(1)[0],
    "cummin": lambda x: x.cummin(0)[0],
    "of a product": lambda x: (x * x).sort(1)[0] * x,
}


@pytest.mark.parametrize("call", SLOPES.values(), ids=SLOPES)
def test_first_and_second_gradients(call):
    found = gradients_of(call, Tensor(MATRIX.double().numpy(), requires_grad=True))

    expected = gradients_of(call, MATRIX.double().requires_grad_())

    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(mine.detach().numpy(), theirs.detach().numpy())


def gradients_of(call, x):
    """The gradient of a sum of cubes, and that of the sum of its squares: sums of integers."""
    out = call(x)
    grad = torch.autograd.grad if isinstance(x, torch.Tensor) else autograd.grad
    (first,) = grad((out * out * out).sum(), x, create_graph=True)
    (second,) = grad((first * first).sum(), x)
    return first, second
