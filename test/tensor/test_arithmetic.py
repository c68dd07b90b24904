"""Operators promote, broadcast and compute as NumPy and PyTorch do."""

import operator

import numpy as np
import pytest
from tensor.closeness import assert_bits, assert_within

from tinytensor.dtype import USER_DTYPES, dtypes
from tinytensor.tensor.tensor import Tensor

INTEGERS = [dtype.name for dtype in USER_DTYPES if dtype.is_int]
EDGES = np.array([0.0, -0.0, 1.0, -2.5, np.inf, -np.inf, np.nan, 1e-45, 3e38], np.float32)
PAIRS = [each.ravel() for each in np.meshgrid(EDGES, EDGES)]


def integer_pairs(name):
    limits = np.iinfo(name)
    values = np.array([limits.min, limits.min + 1, 0, 1, 2, 7, limits.max], name)
    return [each.ravel() for each in np.meshgrid(values, values)]


@pytest.mark.parametrize("op", [operator.add, operator.sub, operator.mul, operator.truediv])
def test_floats_follow_ieee(op):
    x, y = PAIRS
    with np.errstate(all="ignore"):
        expected = op(x, y)

    assert_bits(op(Tensor(x), Tensor(y)), expected)


@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize("op", [operator.add, operator.sub, operator.mul])
def test_integers_wrap_at_their_width(op, name):
    x, y = integer_pairs(name)
    with np.errstate(over="ignore"):
        expected = op(x, y)

    assert_bits(op(Tensor(x), Tensor(y)), expected)


@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize("op", [operator.floordiv, operator.mod])
def test_integer_quotients_round_down_and_are_0_for_a_divisor_of_0(op, name):
    x, y = integer_pairs(name)
    with np.errstate(all="ignore"):
        expected = op(x, y)

    assert_bits(op(Tensor(x), Tensor(y)), expected)


def test_integers_divide_in_float32():
    assert_bits(Tensor([1, 3]) / Tensor([2, 0]), np.array([0.5, np.inf], np.float32))
    assert_bits(7 / Tensor([2]), np.array([3.5], np.float32))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_float_quotients_round_the_exact_quotient_down(dtype):
    x, y = (each.astype(dtype) for each in PAIRS)
    with np.errstate(all="ignore"):
        expected = np.floor_divide(x, y)

    np.testing.assert_array_equal((Tensor(x) // Tensor(y)).numpy(), expected)


def test_a_quotient_that_rounds_up_to_an_integer_is_still_rounded_down():
    tenths = Tensor([1.0, 2.0, 3.0], dtype=dtypes.float64)

    assert (tenths // 0.1).tolist() == [9.0, 19.0, 29.0]


def test_a_remainder_of_halves_is_computed_in_float32():
    x, y = np.float16(3.0), np.float16(0.1)
    expected = np.array([np.fmod(np.float32(x), np.float32(y))]).astype(np.float16)

    assert_bits(Tensor([3.0], dtype=dtypes.float16) % 0.1, expected)


def test_reflected_operators_keep_the_order():
    x = Tensor([2, 5])

    results = [10 - x, 10 // x, 10 % x, 1 << x, 100 >> x, 1 + x, 3 * x, 6 & x, 1 | x, 1 ^ x]

    expected = [[8, 5], [5, 2], [0, 0], [4, 32], [25, 3], [3, 6], [6, 15], [2, 4], [3, 5], [3, 4]]
    assert [each.tolist() for each in results] == expected


def test_numpy_operands_leave_the_operator_to_the_tensor():
    result = np.float64(2) * Tensor([1.0, 2.0])

    assert_bits(result, np.array([2, 4], np.float32))


@pytest.mark.parametrize(
    ("x", "y", "expected"),
    [
        (("uint8", 1), 3, "uint8"),
        (("uint8", 1), 2.5, "float32"),
        (("bool", 1), True, "bool"),
        (("bool", 1), 2, "int64"),
        (("float16", 1), 2.5, "float16"),
        (("float16", 1), 2, "float16"),
        (("float64", 1), 2.5, "float64"),
        (("int8", 1), ("int32", 0), "int8"),
        (("int8", 1), ("float64", 0), "float64"),
        (("float32", 1), ("float64", 0), "float32"),
        (("float32", 1), ("float64", 1), "float64"),
        (("float16", 1), ("bfloat16", 1), "float32"),
        (("uint8", 1), ("int8", 1), "int16"),
        (("int64", 1), ("float16", 1), "float16"),
        (("int32", 0), 2.5, "float32"),
        (("float16", 0), ("float32", 0), "float32"),
    ],
)
def test_promotion_ranks_axes_before_0d_before_numbers(x, y, expected):
    def made(operand):
        if not isinstance(operand, tuple):
            return operand
        name, ndim = operand
        return Tensor.ones((2,) * ndim, dtype=getattr(dtypes, name))

    assert (made(x) * made(y)).dtype.name == expected


@pytest.mark.parametrize(
    "shapes",
    [((2, 3), (3,)), ((2, 1), (1, 3)), ((), (2,)), ((4, 1, 2), (3, 1)), ((0, 1), (1, 2))],
)
def test_shapes_broadcast(shapes):
    x, y = (np.arange(np.prod(shape)).reshape(shape) for shape in shapes)

    assert_bits(Tensor(x) + Tensor(y), x + y)


@pytest.mark.parametrize("name", ["int32", "int64"])
@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 7, 40])
def test_integer_powers_are_exact_and_wrap(name, exponent):
    x = np.array([-3, -1, 0, 1, 2, 5, 11], name)

    assert_bits(Tensor(x) ** exponent, x**exponent)


@pytest.mark.parametrize("name", ["float16", "float32", "float64"])
@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 7, -1, -2, 2.0, 0.5, -0.5])
def test_float_powers_are_products_and_roots(name, exponent):
    x = np.array([0.3, 1.0, 1.7, 2.5], name)

    assert_within(Tensor(x) ** exponent, x.astype(np.float64) ** exponent, roundings=8)


def test_a_negative_power_of_minus_zero_keeps_the_sign():
    assert_bits(Tensor([-0.0]) ** -1, np.array([-np.inf], np.float32))


def test_integers_to_a_float_power_are_float32():
    assert_bits(Tensor([4, 9]) ** 0.5, np.array([2, 3], np.float32))
    assert_bits(Tensor([True, False]) ** 2, np.array([1, 0]))


def test_negation_and_magnitude():
    x = np.array([-0.0, 0.0, -2.5, np.nan, -np.inf], np.float32)

    assert_bits(-Tensor(x), -x)
    assert_bits(abs(Tensor(x)), np.abs(x))
    assert_bits(-Tensor([6], dtype=dtypes.uint8), np.array([250], np.uint8))
    assert_bits(abs(Tensor([-128, 3], dtype=dtypes.int8)), np.array([-128, 3], np.int8))
    assert_bits(Tensor([200], dtype=dtypes.uint8).abs(), np.array([200], np.uint8))


@pytest.mark.parametrize("op", [operator.and_, operator.or_, operator.xor])
@pytest.mark.parametrize("name", [*INTEGERS, "bool"])
def test_bits(op, name):
    x = np.array([0, 1, 5, 1, 127], name)
    y = np.array([1, 1, 3, 0, 64], name)

    assert_bits(op(Tensor(x), Tensor(y)), op(x, y))


@pytest.mark.parametrize("name", [*INTEGERS, "bool"])
def test_inverted_bits(name):
    x = np.array([0, 1, 100], name)

    assert_bits(~Tensor(x), ~x)


def test_shifts_beyond_the_width_give_0_or_the_sign():
    x = Tensor([1, -8, 5], dtype=dtypes.int32)

    assert (x << Tensor([31, 1, 32], dtype=dtypes.int32)).tolist() == [-(2**31), -16, 0]
    assert (x >> Tensor([1, 40, -1], dtype=dtypes.int32)).tolist() == [0, -1, 0]


@pytest.mark.parametrize(
    "op", [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne]
)
def test_comparisons(op):
    x, y = PAIRS

    assert_bits(op(Tensor(x), Tensor(y)), op(x, y))
    assert_bits(op(Tensor(x), 1.0), op(x, 1.0))
    assert_bits(op(1.0, Tensor(x)), op(1.0, x))


def test_numbers_that_do_not_fit_compare_by_value():
    x = Tensor([0, 255], dtype=dtypes.uint8)

    assert [(x < 300).tolist(), (x > -1).tolist(), (x == 256).tolist()] == [
        [True, True],
        [True, True],
        [False, False],
    ]


def test_equality_with_something_else_is_false():
    assert (Tensor([1]) == None) is False  # noqa: E711 - the operator is what is tested
    assert Tensor([1]) != "one"


def test_tensors_are_hashed_by_identity():
    x = Tensor([1])

    assert {x: 5}[x] == 5
