"""What a Tensor shows of itself."""

import math

import numpy as np
import pytest

from tinytensor.dtype import dtypes
from tinytensor.tensor.tensor import Tensor


@pytest.mark.parametrize(
    ("tensor", "expected"),
    [
        (Tensor(3), "3, dtype=int64"),
        (Tensor([1.0, -2.0]), "[ 1., -2.], dtype=float32"),
        (Tensor([1.5, 2.0]), "[1.5000, 2.0000], dtype=float32"),
        (Tensor([1e-5, 1.0]), "[1.0000e-05, 1.0000e+00], dtype=float32"),
        (Tensor([math.nan, 1.0]), "[nan,  1.], dtype=float32"),
        (Tensor([True, False]), "[ True, False], dtype=bool"),
        (Tensor.zeros(0), "[], dtype=float32"),
        (Tensor.zeros(2, 0), "[], size=(2, 0), dtype=float32"),
        (Tensor([0.1]).bfloat16(), "[0.1001], dtype=bfloat16"),
        (
            Tensor([[1, 2], [3, 40]]),
            "[[ 1,  2],\n        [ 3, 40]], dtype=int64",
        ),
    ],
)
def test_values_dtype_and_device_are_shown(tensor, expected):
    assert repr(tensor) == f"Tensor({expected}, device={tensor.device!r})"


def test_a_tensor_that_requires_a_gradient_says_so():
    assert repr(Tensor([1.0], requires_grad=True)).endswith(", requires_grad=True)")


def test_many_values_are_summarized():
    shown = repr(Tensor(np.arange(1001, dtype=np.int32)))

    assert shown.startswith("Tensor([   0,    1,    2, ...,  998,  999, 1000], dtype=int32")


def test_wide_floats_are_shown_with_an_exponent():
    assert "1.0000e+10" in repr(Tensor([1e10, 0.5], dtype=dtypes.float64))
