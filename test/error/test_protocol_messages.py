"""Mistakes that Python's own protocols and arguments let through are told as others are."""

import pytest

import tinytensor
from tinytensor import Tensor
from tinytensor.errors import DTypeError


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Tensor(2, 3), "tensor: no dtype: 3; it must be one of dtypes."),
        (
            lambda: tinytensor.ones(2, dtype=float),
            "ones: no dtype: <class 'float'>; it must be one of dtypes.",
        ),
        (
            lambda: tinytensor.tensor([1.0], dtype="float32"),
            "tensor: no dtype: 'float32'; it must be one of dtypes.",
        ),
    ],
    ids=["a size", "a type", "a name"],
)
def test_what_is_no_dtype_is_named(make, sentence):
    with pytest.raises(DTypeError) as found:
        make()

    assert str(found.value) == sentence


def test_a_0d_tensor_is_not_walked():
    with pytest.raises(TypeError) as found:
        list(Tensor(1.0))

    sentence = "iter: a 0-d tensor has no elements in a row; ndim must be 1 or more."
    assert str(found.value) == sentence
