"""What a Tensor shows of itself."""

import math

import numpy as np
import pytest

from tinytensor.dtype import dtypes
from tinytensor.tensor.tensor import Tensor


@pytest.mark.parametrize(
    ("tensor", "expected"),
    [
        (Tensor(3), "Tensor(3, dtype=int64, device='CPU')"),
        (Tensor([1.0, -2.0]), "Tensor([ 1., -2.], dtype=float32, device='CPU')"),
        (Tensor([1.5, 2.0]), "Tensor([1.5000, 2.0000], dtype=float32, device='CPU')"),
        (Tensor([1e-5, 1.0]), "Tensor([1.0000e-05, 1.0000e+00], dtype=float32, device='CPU')"),
        (Tensor([math.nan, 1.0]), "Tensor([nan,  1.], dtype=float32, device='CPU')"),
        (Tensor([True, False]), "Tensor([ True, False], dtype=bool, device='CPU')"),
        (Tensor.zeros(0), "Tensor([], dtype=float32, device='CPU')"),
        (Tensor.zeros(2, 0), "Tensor([], size=(2, 0), dtype=float32, device='CPU')"),
        (Tensor([0.1]).bfloat16(), "Tensor([0.1001], dtype=bfloat16, device='CPU')"),
        (
            Tensor([[1, 2], [3, 40]]),
            "Tensor([[ 1,  2],\n        [ 3, 40]], dtype=int64, device='CPU')",
        ),
        (
            Tensor([1.0], requires_grad=True),
            "Tensor([1.], dtype=float32, device='CPU', requires_grad=True)",
        ),
    ],
)
def test_values_dtype_and_device_are_shown(tensor, expected):
    tensor = tensor.to("CPU")

    assert repr(tensor) == expected


def test_many_values_are_summarized():
    shown = repr(Tensor(np.arange(1001, dtype=np.int32)).to("CPU"))

    assert shown == "Tensor([   0,    1,    2, ...,  998,  999, 1000], dtype=int32, device='CPU')"


def test_wide_floats_are_shown_with_an_exponent():
    assert "1.0000e+10" in repr(Tensor([1e10, 0.5], dtype=dtypes.float64))
