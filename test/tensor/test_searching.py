"""Values find NumPy's places in ascending sequences."""

import numpy as np
import pytest

import tinytensor
from tinytensor import Tensor, dtypes
from tinytensor.tensor.searching import bucketize, searchsorted

SEQUENCE = np.sort(np.random.default_rng(3).integers(0, 60, 50)).astype(np.float32)
VALUES = np.arange(-2, 66).reshape(2, 34).astype(np.float32)


@pytest.mark.parametrize("extent", [1, 2, 3, 8, 50])
@pytest.mark.parametrize("side", ["left", "right"])
def test_places_in_a_sequence(side, extent):
    sequence = SEQUENCE[:extent]

    found = searchsorted(Tensor(sequence), Tensor(VALUES), side=side)

    assert found.dtype is dtypes.int64
    assert found.tolist() == np.searchsorted(sequence, VALUES, side).tolist()


def test_each_row_has_a_sequence():
    rows = np.sort(VALUES[:, ::3] * [[1], [-1]], -1)

    found = searchsorted(Tensor(rows), Tensor(VALUES), right=True)

    expected = [np.searchsorted(*each, "right") for each in zip(rows, VALUES, strict=True)]
    assert found.tolist() == np.array(expected).tolist()


def test_a_sorter_orders_the_sequence():
    sequence = Tensor([5.0, 3.0, 1.0])

    assert searchsorted(sequence, Tensor([3.0, 6.0]), sorter=sequence.argsort()).tolist() == [1, 3]


def test_a_number_is_searched_in_the_common_dtype():
    assert searchsorted(Tensor([1, 3, 5]), 3.5).item() == 2
    assert bucketize(3, Tensor([1, 3, 5]), right=True, out_int32=True).dtype is dtypes.int32


def test_everything_is_before_nan():
    assert searchsorted(Tensor(SEQUENCE), Tensor([np.nan])).tolist() == [50]


def test_nothing_is_in_an_empty_sequence():
    assert searchsorted(Tensor([]), Tensor([1.0, 2.0])).tolist() == [0, 0]
    assert searchsorted(Tensor([1.0]), Tensor([])).shape == (0,)


def test_buckets_end_at_their_boundaries():
    boundaries = Tensor([1.0, 3.0])

    assert tinytensor.bucketize(Tensor([[1.0, 2.0], [3.0, 4.0]]), boundaries).tolist() == [
        [0, 1],
        [1, 2],
    ]
    assert tinytensor.bucketize(Tensor([1.0, 3.0]), boundaries, right=True).tolist() == [1, 2]
