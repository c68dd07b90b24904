"""Functions of single elements, against float64; half composites round once."""

import math

import numpy as np
import pytest
from tensor.closeness import assert_bits, assert_within

from tinytensor.dtype import dtypes
from tinytensor.tensor.tensor import Tensor

SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan], np.float32)
POINTS = np.array([-3.0, -1.25, -0.5, 0.25, 0.5, 1.0, 2.75, 6.0])
HALVES = np.array([-2.5, -1.5, -0.5, -0.25, 0.5, 1.5, 2.5, 7.75, 1e30, -0.0, np.nan, -np.inf])


def erf(x):
    return np.vectorize(math.erf)(x)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


REFERENCES = {
    "exp": np.exp,
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
    "erf": erf,
    "sigmoid": sigmoid,
    "silu": lambda x: x * sigmoid(x),
    "reciprocal": lambda x: 1 / x,
    "square": np.square,
}


@pytest.mark.parametrize("name", REFERENCES)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_functions(name, dtype):
    x = POINTS.astype(dtype)

    # silu and sigmoid: 2 ulp of EXP are 4 roundings, then a sum and a quotient.
    assert_within(getattr(Tensor(x), name)(), REFERENCES[name](x.astype(np.float64)), roundings=6)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("name", ["log", "sqrt", "rsqrt"])
def test_functions_of_positive_numbers(name, dtype):
    x = np.array([0.1, 0.5, 1.5, 20.0], dtype)
    wide = x.astype(np.float64)
    expected = {"log": np.log(wide), "sqrt": np.sqrt(wide), "rsqrt": 1 / np.sqrt(wide)}[name]

    assert_within(getattr(Tensor(x), name)(), expected, roundings=4)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gelu(dtype):
    x = POINTS[3:].astype(dtype)  # below 0 the sum with erf cancels, and no relative bound holds
    wide = x.astype(np.float64)
    exact = wide * (1 + erf(wide / math.sqrt(2))) / 2
    inner = math.sqrt(2 / math.pi) * (wide + 0.044715 * wide**3)

    assert_within(Tensor(x).gelu(), exact, roundings=8)
    assert_within(Tensor(x).gelu(approximate="tanh"), wide * (1 + np.tanh(inner)) / 2, roundings=12)


def test_half_composites_round_once():
    x = np.linspace(-4, 4, 201).astype(np.float16)
    expected = sigmoid(x.astype(np.float64)).astype(np.float16)

    result = Tensor(x).sigmoid().numpy()

    # float32 is so much finer that it rounds to another half for hardly any point.
    assert result.dtype == np.float16
    assert np.count_nonzero(result != expected) <= 2


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("exp", [1, 1, np.inf, 0, np.nan]),
        ("log", [-np.inf, -np.inf, np.inf, np.nan, np.nan]),
        ("sqrt", [0, -0.0, np.inf, np.nan, np.nan]),
        ("rsqrt", [np.inf, -np.inf, 0, np.nan, np.nan]),
        ("reciprocal", [np.inf, -np.inf, 0, -0.0, np.nan]),
        ("tanh", [0, -0.0, 1, -1, np.nan]),
        ("relu", [0, -0.0, np.inf, 0, np.nan]),
        ("sigmoid", [0.5, 0.5, 1, 0, np.nan]),
        ("silu", [0, -0.0, np.inf, np.nan, np.nan]),
        ("sign", [0, 0, 1, -1, 0]),
        ("floor", [0, -0.0, np.inf, -np.inf, np.nan]),
        ("ceil", [0, -0.0, np.inf, -np.inf, np.nan]),
        ("trunc", [0, -0.0, np.inf, -np.inf, np.nan]),
        ("abs", [0, 0, np.inf, np.inf, np.nan]),
    ],
)
def test_special_values(name, expected):
    assert_bits(getattr(Tensor(SPECIAL), name)(), np.array(expected, np.float32))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("name", ["round", "floor", "ceil", "trunc"])
def test_rounding_keeps_signs_and_large_numbers(name, dtype):
    with np.errstate(over="ignore"):
        x = HALVES.astype(dtype)

    assert_bits(getattr(Tensor(x), name)(), getattr(np, name)(x))


@pytest.mark.parametrize("name", ["round", "floor", "ceil", "trunc"])
def test_integers_are_whole_already(name):
    assert_bits(getattr(Tensor([-3, 2]), name)(), np.array([-3, 2]))


@pytest.mark.parametrize("name", ["exp", "sigmoid", "sqrt", "rsqrt", "reciprocal"])
def test_functions_of_integers_and_bool_are_float32(name):
    assert getattr(Tensor([1, 2]), name)().dtype is dtypes.float32
    assert getattr(Tensor([True]), name)().dtype is dtypes.float32


def test_relu_sign_and_square_of_integers_stay_integers():
    x = Tensor([-2, 0, 3], dtype=dtypes.int8)

    assert_bits(x.relu(), np.array([0, 0, 3], np.int8))
    assert_bits(x.sign(), np.array([-1, 0, 1], np.int8))
    assert_bits(x.square(), np.array([4, 0, 9], np.int8))
    assert_bits(Tensor([200], dtype=dtypes.uint8).sign(), np.array([1], np.uint8))


def test_questions_about_values():
    x = Tensor(SPECIAL)

    assert_bits(x.isnan(), np.isnan(SPECIAL))
    assert_bits(x.isinf(), np.isinf(SPECIAL))
    assert_bits(x.logical_not(), np.logical_not(SPECIAL))
    assert_bits(Tensor([0, 3]).isinf(), np.array([False, False]))
    assert_bits(Tensor([0, 3]).isnan(), np.array([False, False]))


def test_extremes_of_two_let_nan_win_and_order_zeros():
    x = Tensor([0.0, -0.0, math.nan, 1.0, 2.0])
    y = Tensor([-0.0, 0.0, 1.0, math.nan, 3.0])

    assert_bits(x.maximum(y), np.array([0.0, 0.0, np.nan, np.nan, 3], np.float32))
    assert_bits(x.minimum(y), np.array([-0.0, -0.0, np.nan, np.nan, 2], np.float32))
    assert_bits(Tensor([1, 5]).maximum(Tensor(2.0)), np.array([2, 5], np.float32))


def test_clamp():
    x = Tensor([-2.0, 0.5, math.nan, 9.0])

    assert_bits(x.clamp(0, 1), np.array([0, 0.5, np.nan, 1], np.float32))
    assert_bits(x.clamp(max=0.0), np.array([-2, 0, np.nan, 0], np.float32))
    assert_bits(Tensor([1, 2]).clamp(min=1.5), np.array([1.5, 2], np.float32))
    assert_bits(Tensor([1, 2]).clamp(2, 1), np.array([1, 1]))
    assert_bits(x.clamp(min=Tensor([[0.0], [1.0]])).sum(1), np.array([np.nan, np.nan], np.float32))


def test_where_chooses_and_broadcasts():
    cond = Tensor([[True], [False]])
    x = Tensor([1.0, -0.0])

    expected = np.array([[1, -0.0], [7, 7]], np.float32)

    assert_bits(x.where(cond, 7), expected)
    assert Tensor([1]).where(Tensor([True]), 0.5).dtype is dtypes.float32


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ([65504.0, 65519.0, 65520.0], "float16", np.array([65504, 65504, np.inf], np.float16)),
        ([1.9, -1.9], "int32", np.array([1, -1], np.int32)),
        ([300.0, -300.0], "int8", np.array([127, -128], np.int8)),
        ([math.nan, math.inf, -math.inf], "int32", np.array([0, 2**31 - 1, -(2**31)], np.int32)),
        ([300, -1], "uint8", np.array([44, 255], np.uint8)),
        ([math.nan, 0.0, -0.0, 2.0], "bool", np.array([True, False, False, True])),
        ([True, False], "float64", np.array([1.0, 0.0])),
    ],
)
def test_casts(source, target, expected):
    assert_bits(Tensor(source).cast(getattr(dtypes, target)), expected)


def test_narrow_integers_wrap_before_they_are_widened():
    x = Tensor([100], dtype=dtypes.int8)

    assert (x + x).cast(dtypes.int32).tolist() == [-56]


def test_conversions_by_name():
    x = Tensor([1.5])
    names = ["half", "bfloat16", "float", "double", "int", "long", "bool"]

    found = [getattr(x, name)().dtype.name for name in names]

    expected = ["float16", "bfloat16", "float32", "float64", "int32", "int64", "bool"]
    assert found == expected


def test_to_moves_and_converts():
    x = Tensor([1.5, 2.5], device="CPU")

    moved = x.to("python", dtypes.int32)

    assert (moved.device, moved.dtype, moved.tolist()) == ("PYTHON", dtypes.int32, [1, 2])
    assert x.to(moved).device == "PYTHON"
    assert x.to(dtypes.float32) is x
    assert Tensor(x, device="PYTHON").tolist() == [1.5, 2.5]
