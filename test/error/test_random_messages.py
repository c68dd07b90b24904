"""Mistakes with random numbers are refused at the call, in one sentence with the values."""

import pytest

from tinytensor import Generator, Tensor, dtypes
from tinytensor.errors import DTypeError, ShapeError, ValueOutOfRange

MISTAKES = [
    (
        lambda: Generator().manual_seed(2**64),
        ValueOutOfRange,
        "manual_seed: the seed is too large: 18446744073709551616; "
        "it must be in -9223372036854775808 .. 18446744073709551615.",
    ),
    (
        lambda: Tensor.rand(2, -1),
        ShapeError,
        "rand: a size is negative: (2, -1); all must be 0 or more.",
    ),
    (
        lambda: Tensor.randn(2, dtype=dtypes.int64),
        DTypeError,
        "randn: the numbers are fractions: dtype is int64; it must be a float dtype.",
    ),
    (
        lambda: Tensor.zeros(2, dtype=dtypes.uint8).rand_like(),
        DTypeError,
        "rand_like: the numbers are fractions: dtype is uint8; it must be a float dtype.",
    ),
    (
        lambda: Tensor.randint(3, 3, (2,)),
        ValueOutOfRange,
        "randint: there is no integer to choose: 3 .. 2; low must be below high.",
    ),
    (
        lambda: Tensor.randint(0, 300, (2,), dtype=dtypes.uint8),
        DTypeError,
        "randint: the value does not fit the dtype: 299 in uint8; it must be in 0 .. 255.",
    ),
    (
        lambda: Tensor.randint(3),
        TypeError,
        "randint: a bound or the size is missing: 3, None, None; "
        "give high and size, or low, high and size.",
    ),
    (
        lambda: Tensor.zeros(2).bernoulli(1.5),
        ValueOutOfRange,
        "bernoulli: p is no probability: 1.5; it must be in 0 .. 1.",
    ),
    (
        lambda: Tensor.zeros(2).dropout(-0.1),
        ValueOutOfRange,
        "dropout: p is no probability: -0.1; it must be in 0 .. 1.",
    ),
    (
        lambda: Tensor.zeros(2, dtype=dtypes.int64).dropout(),
        DTypeError,
        "dropout: the numbers are fractions: dtype is int64; it must be a float dtype.",
    ),
]


@pytest.mark.parametrize(
    ("mistake", "error", "sentence"), MISTAKES, ids=[each[2].split(":")[0] for each in MISTAKES]
)
def test_a_mistake_is_named(mistake, error, sentence):
    with pytest.raises(error) as caught:
        mistake()

    assert str(caught.value) == sentence
