"""Casts to and from floats of 8 bits give PyTorch's bits."""

import numpy as np
import pytest

from tinytensor import Tensor, dtypes
from tinytensor.dtype import encode

torch = pytest.importorskip("torch")

NAMES = ("float8_e4m3fn", "float8_e5m2")
SATURATES = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 13)
FROM_MORE = [
    pytest.param(
        NAMES[0], marks=pytest.mark.skipif(not SATURATES, reason="PyTorch 2.11 makes NaN of 500")
    ),
    NAMES[1],
]
OTHERS = ("bool", "uint8", "int8", "int32", "int64", "float16", "bfloat16", "float32")


def bits_of(tensor):
    """The bits of a Tensor of 8-bit floats."""
    dtype = tensor.dtype
    return [encode(dtype, value) for value in tensor.numpy().astype(float).tolist()]


def is_same(result, expected):
    """Whether numbers are equal with their zeros' signs, any NaN being like another."""
    result, expected = np.asarray(result, np.float64), np.asarray(expected, np.float64)
    both_nan = np.isnan(result) & np.isnan(expected)
    return bool(
        np.all(both_nan | (result == expected) & (np.signbit(result) == np.signbit(expected)))
    )


@pytest.mark.parametrize("name", FROM_MORE)
def test_every_float16_becomes_what_pytorch_makes_of_it(name):
    halves = np.arange(2**16, dtype=np.uint16).view(np.float16)
    halves = halves[~np.isnan(halves)]

    result = Tensor(halves).to(getattr(dtypes, name))

    expected = torch.tensor(halves).to(getattr(torch, name))
    assert bits_of(result) == expected.view(torch.uint8).tolist()


@pytest.mark.parametrize("name", FROM_MORE)
def test_random_floats_become_what_pytorch_makes_of_them(name):
    bits = np.random.default_rng(8).integers(0, 2**32, 20_000, dtype=np.uint32)
    floats = bits.view(np.float32)
    floats = floats[~np.isnan(floats)]

    result = Tensor(floats).to(getattr(dtypes, name))

    expected = torch.tensor(floats).to(getattr(torch, name))
    assert bits_of(result) == expected.view(torch.uint8).tolist()


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("name", NAMES)
def test_other_dtypes_come_and_go_as_in_pytorch(name, other):
    values = torch.tensor([0, 1, -1, 3, 17, 18, 19, 100, -100, 127]).to(getattr(torch, other))
    ours = Tensor(values.tolist()).to(getattr(dtypes, other))

    there = ours.to(getattr(dtypes, name))
    back = there.to(getattr(dtypes, other))

    theirs = values.to(getattr(torch, name))
    assert is_same(there.float().numpy(), theirs.float().numpy())
    if other not in ("uint8", "int8"):  # which numbers outside of them become is left open there
        assert back.tolist() == theirs.to(getattr(torch, other)).tolist()


@pytest.mark.parametrize("name", NAMES)
def test_all_bits_mean_what_they_do_in_pytorch(name):
    expected = torch.arange(256, dtype=torch.uint8).view(getattr(torch, name)).float().numpy()

    result = Tensor(expected).to(getattr(dtypes, name)).float().numpy()

    assert is_same(result, expected)
