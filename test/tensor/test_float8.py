"""Floats of 8 bits: casts round once to nearest even, e4m3fn saturates and e5m2 overflows."""

import math

import numpy as np
import pytest

from tinytensor import Tensor, dtypes
from tinytensor.dtype import decode, encode, float8_bits, float8_values
from tinytensor.errors import DTypeError

E4M3, E5M2 = dtypes.float8_e4m3fn, dtypes.float8_e5m2
BOTH = pytest.mark.parametrize("dtype", [E4M3, E5M2], ids=lambda each: each.name)
INF, NAN = math.inf, math.nan


@pytest.mark.parametrize(
    ("dtype", "bits", "value"),
    [
        *((E4M3, 0x01, 2.0**-9), (E4M3, 0x07, 7 * 2.0**-9), (E4M3, 0x08, 2.0**-6)),
        *((E4M3, 0x38, 1.0), (E4M3, 0x7E, 448.0), (E4M3, 0x80, -0.0), (E4M3, 0xC1, -2.25)),
        *((E5M2, 0x01, 2.0**-16), (E5M2, 0x03, 3 * 2.0**-16), (E5M2, 0x04, 2.0**-14)),
        *((E5M2, 0x3C, 1.0), (E5M2, 0x7B, 57344.0), (E5M2, 0x7C, INF), (E5M2, 0xC1, -2.5)),
    ],
)
def test_bits_mean_what_the_formats_say(dtype, bits, value):
    assert math.copysign(1, decode(dtype, bits)) == math.copysign(1, value)
    assert decode(dtype, bits) == value
    assert encode(dtype, value) == bits


@pytest.mark.parametrize(("dtype", "first"), [(E4M3, 0x7F), (E5M2, 0x7D)])
def test_the_last_patterns_are_no_numbers(dtype, first):
    values = float8_values(np.arange(256), dtype)

    for sign in (0, 128):
        assert np.isnan(values[sign + first : sign + 128]).all()
        assert not np.isnan(values[sign : sign + first]).any()
    assert encode(dtype, NAN) == 0x7F


@BOTH
def test_every_number_comes_back(dtype):
    bits = np.arange(256, dtype=np.uint8)
    values = float8_values(bits, dtype)
    is_number = ~np.isnan(values)

    assert (float8_bits(values, dtype) == bits)[is_number].all()


EDGES = [
    0.0,
    -0.0,
    1.0,
    448.0,
    464.0,
    464.1,
    480.0,
    1e9,
    INF,
    -INF,
    NAN,
    2.0**-10,
    57344.0,
    61439.0,
]
ROUNDED = {
    E4M3: [
        0.0,
        -0.0,
        1.0,
        448.0,
        448.0,
        448.0,
        448.0,
        448.0,
        448.0,
        -448.0,
        NAN,
        0.0,
        448.0,
        448.0,
    ],
    E5M2: [
        0.0,
        -0.0,
        1.0,
        448.0,
        448.0,
        448.0,
        512.0,
        INF,
        INF,
        -INF,
        NAN,
        2.0**-10,
        57344.0,
        57344.0,
    ],
}


@BOTH
@pytest.mark.parametrize("source", ["float32", "float64"])
def test_what_is_too_large_becomes_the_greatest_or_infinity(dtype, source):
    x = Tensor(np.array(EDGES, source))

    result = x.to(dtype).float().numpy()

    np.testing.assert_array_equal(result, np.array(ROUNDED[dtype], np.float32), strict=True)
    assert math.copysign(1, result[1]) == -1


@BOTH
@pytest.mark.parametrize("source", [dtypes.float16, dtypes.float32, dtypes.float64], ids=repr)
def test_a_cast_rounds_once_to_the_nearest_and_ties_to_even(dtype, source):
    """Around the middle of two neighbors, where a second rounding would go wrong."""
    values = float8_values(np.arange(0x70), dtype).astype(np.float64)
    middles = (values[:-1] + values[1:]) / 2
    even = np.where(np.arange(len(middles)) % 2, values[1:], values[:-1])
    stored = middles.astype(source.value_numpy)
    inputs = [stored, np.nextafter(stored, 2 * stored), np.nextafter(stored, 0 * stored)]

    found = [Tensor(each).to(dtype).float().numpy() for each in inputs]

    np.testing.assert_array_equal(stored, middles)
    for result, want in zip(found, (even, values[1:], values[:-1]), strict=True):
        np.testing.assert_array_equal(result, want)


@BOTH
def test_views_copies_and_choices_keep_the_bits(dtype):
    x = Tensor([[0.0, 1.0, 2.0, 3.0], [4.0, 5.0, 6.0, 7.0], [8.0, 10.0, 12.0, 14.0]]).to(dtype)

    assert x.T.contiguous().tolist() == [[0, 4, 8], [1, 5, 10], [2, 6, 12], [3, 7, 14]]
    assert Tensor.cat([x[:1], x[2:]]).tolist() == [[0, 1, 2, 3], [8, 10, 12, 14]]
    assert (x == x).all().item()
    assert x.to(dtype) is x


@BOTH
def test_arithmetic_rounds_each_op_once(dtype):
    values = float8_values(np.arange(0x70), dtype).astype(np.float32)
    x, y = Tensor(values).to(dtype), Tensor(values[::-1].copy()).to(dtype)

    total = (x + y).float().numpy()

    exact = values + values[::-1]
    np.testing.assert_array_equal(total, float8_values(float8_bits(exact, dtype), dtype))


@pytest.mark.parametrize("other", [dtypes.float32, dtypes.float16, dtypes.int32, dtypes.bool])
@BOTH
def test_no_dtype_is_common_with_others(dtype, other):
    x, y = Tensor([1.0]).to(dtype), Tensor([1.0]).to(other)
    names = f"{dtype.name} and {other.name}"

    with pytest.raises(DTypeError) as caught:
        x + y

    assert str(caught.value) == (
        f"promote: no dtype is common to floats of 8 bits and others: {names}; cast one of them "
        "first."
    )


def test_a_number_takes_the_dtype():
    x = Tensor([1.0, 3.0]).to(E4M3)

    assert (x * 2).dtype is E4M3
    assert (x * 2).float().tolist() == [2.0, 6.0]


@BOTH
@pytest.mark.parametrize("way", ["float", "half", "bfloat16"])
def test_widened_factors_are_summed_in_float32(dtype, way):
    rng = np.random.default_rng(5)
    a, b = (Tensor(rng.standard_normal(each).astype(np.float32)) for each in ((9, 33), (33, 10)))
    x, y = a.to(dtype), b.to(dtype)
    product = getattr(x, way)() @ getattr(y, way)()

    exact = x.double().numpy() @ y.double().numpy()
    magnitudes = np.abs(x.double().numpy()) @ np.abs(y.double().numpy())
    bound = magnitudes * (33 * 2.0**-24 + product.dtype.epsilon)

    assert (np.abs(product.double().numpy() - exact) <= bound).all()
