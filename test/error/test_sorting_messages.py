"""Mistakes with sorts, searches and random choices are refused in one sentence with the values."""

import re

import pytest

import tinytensor
from tinytensor import Tensor, dtypes
from tinytensor.errors import DTypeError, IndexOutOfRange, ShapeError, ValueOutOfRange

X = Tensor.zeros(2, 3)
ROW = Tensor([1.0, 2.0])
LONG = Tensor.zeros(1).expand(2**32)

MISTAKES = [
    (
        lambda: X.topk(4),
        ValueOutOfRange,
        "topk: k is out of range: 4 of 3 elements; it must be in 0 .. 3.",
    ),
    (
        lambda: X.kthvalue(0),
        ValueOutOfRange,
        "kthvalue: k is out of range: 0 of 3 elements; it must be in 1 .. 3.",
    ),
    (
        lambda: Tensor.zeros(2, 0).median(1),
        IndexOutOfRange,
        "median: nothing to choose from: axes (1,) of shape (2, 0); "
        "they must hold 1 element or more.",
    ),
    (
        lambda: LONG.sort(),
        ShapeError,
        "sort: the axis is too long: extent 4294967296; it must be below 2 ** 32.",
    ),
    (
        lambda: tinytensor.searchsorted(ROW, ROW, side="up"),
        ValueOutOfRange,
        "searchsorted: no such side: 'up'; it must be 'left' or 'right'.",
    ),
    (
        lambda: tinytensor.searchsorted(ROW, ROW, right=True, side="left"),
        ValueOutOfRange,
        "searchsorted: right and side disagree: right is True, side is 'left'; give one of them.",
    ),
    (
        lambda: tinytensor.searchsorted(X, ROW),
        ShapeError,
        "searchsorted: shapes do not fit: sequence (2, 3), values (2,); "
        "the sequence must be 1-d, or all axes but the last equal.",
    ),
    (
        lambda: tinytensor.searchsorted(ROW, ROW, sorter=Tensor([0])),
        ShapeError,
        "searchsorted: shapes differ: sequence (2,), sorter (1,); they must be equal.",
    ),
    (
        lambda: tinytensor.searchsorted(ROW, ROW, sorter=ROW),
        DTypeError,
        "searchsorted: the sorter is not int64: dtype is float32; it must be int64.",
    ),
    (
        lambda: tinytensor.bucketize(ROW, X),
        ShapeError,
        "bucketize: the boundaries are not 1-d: shape (2, 3); they must have one axis.",
    ),
    (
        lambda: Tensor.randperm(-2),
        ShapeError,
        "randperm: a size is negative: (-2,); all must be 0 or more.",
    ),
    (
        lambda: Tensor.randperm(257, dtype=dtypes.uint8),
        DTypeError,
        "randperm: the dtype cannot hold the numbers: 0 .. 256 in uint8; "
        "it must be an integer or float dtype that holds each.",
    ),
    (
        lambda: Tensor(1.0).multinomial(1),
        ShapeError,
        "multinomial: the chances are no rows: shape (); "
        "it must be (n,) or (rows, n) with n of 1 or more.",
    ),
    (
        lambda: ROW.multinomial(3),
        ValueOutOfRange,
        "multinomial: num_samples is out of range: 3 of 2; it must be in 1 .. 2.",
    ),
    (
        lambda: Tensor([1.0, -1.0]).multinomial(1),
        ValueOutOfRange,
        "multinomial: an element is no chance: shape (2,); all must be 0 or more and finite.",
    ),
    (
        lambda: Tensor([[1.0], [0.0]]).multinomial(1),
        ValueOutOfRange,
        "multinomial: there is nothing to draw: a row of shape (2, 1) is 0; "
        "its sum must be above 0.",
    ),
    (
        lambda: Tensor([1, 2]).multinomial(1),
        DTypeError,
        "multinomial: does not take int64; it must be a float dtype. Use float() first.",
    ),
]


@pytest.mark.parametrize(("mistake", "error", "message"), MISTAKES)
def test_a_mistake_is_refused(mistake, error, message):
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        mistake()


def test_a_sorter_that_leaves_the_sequence_is_told_at_the_host_read():
    places = tinytensor.searchsorted(ROW, ROW, sorter=Tensor([0, 2]))

    with pytest.raises(IndexOutOfRange, match="^searchsorted: "):
        places.tolist()
