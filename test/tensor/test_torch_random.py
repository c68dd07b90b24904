"""Shapes, dtypes and refusals of random tensors are PyTorch's; the numbers are not."""

import pytest

import tinytensor
from tinytensor import Tensor, dtypes

torch = pytest.importorskip("torch")

CALLS = {
    "rand": lambda kind, dtype: kind.rand(2, 3),
    "rand-tuple": lambda kind, dtype: kind.rand((2, 3), dtype=dtype.float16),
    "randn-0d": lambda kind, dtype: kind.randn(()),
    "randn-empty": lambda kind, dtype: kind.randn(0, 3, dtype=dtype.float64),
    "randint-high": lambda kind, dtype: kind.randint(5, (2, 3)),
    "randint-named": lambda kind, dtype: kind.randint(high=5, size=(4,)),
    "randint-low": lambda kind, dtype: kind.randint(-2, 5, (4,), dtype=dtype.int16),
    "randint-float": lambda kind, dtype: kind.randint(0, 5, (4,), dtype=dtype.float32),
}
REFUSED = {
    "rand-int": lambda kind, dtype: kind.rand(2, dtype=dtype.int64),
    "randint-empty": lambda kind, dtype: kind.randint(4, 4, (2,)),
    "randint-too-high": lambda kind, dtype: kind.randint(0, 300, (2,), dtype=dtype.uint8),
}
SEEDS = [0, 5, -1, -(2**63), 2**64 - 1]


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_the_result_s_shape_and_dtype(call):
    found, expected = call(Tensor, dtypes), call(torch, torch)

    assert (found.dtype.name, found.shape) == (
        str(expected.dtype).removeprefix("torch."),
        tuple(expected.shape),
    )


@pytest.mark.parametrize("call", REFUSED.values(), ids=REFUSED)
def test_what_is_refused(call):
    with pytest.raises(RuntimeError):
        call(torch, torch)
    with pytest.raises(RuntimeError):
        call(Tensor, dtypes)


@pytest.mark.parametrize("seed", SEEDS)
def test_seeds(seed):
    ours, theirs = tinytensor.Generator().manual_seed(seed), torch.Generator().manual_seed(seed)

    assert ours.initial_seed() == theirs.initial_seed()


def test_the_first_seed():
    assert tinytensor.Generator().initial_seed() == torch.Generator().initial_seed()


def test_dropout_of_nothing_but_zeros_keeps_nan_as_a_product_does():
    x = [1.0, float("nan"), float("inf")]

    found = Tensor(x).dropout(1.0).numpy()
    expected = torch.nn.functional.dropout(torch.tensor(x), 1.0).numpy()

    assert str(found) == str(expected)
