"""Mistakes that Python's own protocols and arguments let through are told as others are."""

import pytest

import tinytensor
from tinytensor import Tensor


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Tensor(2, 3), "Tensor: dtype cannot be this: int 3; it must be a dtype or None."),
        (
            lambda: tinytensor.ones(2, dtype=bytes),
            "ones: dtype cannot be this: type bytes; it must be a dtype or None.",
        ),
        (
            lambda: tinytensor.tensor([1.0], dtype="float32"),
            "Tensor: dtype cannot be this: str 'float32'; it must be a dtype or None.",
        ),
    ],
    ids=["a size", "a type", "a name"],
)
def test_what_is_no_dtype_is_named(make, sentence):
    with pytest.raises(TypeError) as found:
        make()

    assert str(found.value) == sentence


def test_a_0d_tensor_is_not_walked():
    with pytest.raises(TypeError) as found:
        list(Tensor(1.0))

    sentence = "iter: a 0-d tensor has no elements in a row; ndim must be 1 or more."
    assert str(found.value) == sentence
