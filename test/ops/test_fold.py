import math

import numpy as np
import pytest

from tinytensor.dtype import dtypes
from tinytensor.ops.attrs import Combine
from tinytensor.ops.fold import fold
from tinytensor.ops.interpret import round_to

NAN, INF = math.nan, math.inf


def fold_list(combine, values, dtype):
    return fold(combine, np.array(values, dtype.value_numpy), (0,), dtype)


@pytest.mark.parametrize(
    ("combine", "dtype", "values", "expected"),
    [
        (Combine.ADD, dtypes.int8, [100, 100], -56),
        (Combine.ADD, dtypes.uint8, [200, 100], 44),
        (Combine.ADD, dtypes.bool, [True, True], True),
        (Combine.ADD, dtypes.int64, [], 0),
        (Combine.MUL, dtypes.int8, [64, 4, 1], 0),
        (Combine.MUL, dtypes.bool, [True, False], False),
        (Combine.MUL, dtypes.float32, [], 1.0),
        (Combine.MAX, dtypes.int32, [], -(2**31)),
        (Combine.MAX, dtypes.float32, [], -INF),
        (Combine.MIN, dtypes.uint64, [], 2**64 - 1),
        (Combine.MIN, dtypes.bool, [True, True], True),
        (Combine.MAX, dtypes.bool, [], False),
        (Combine.AND, dtypes.bool, [], True),
        (Combine.AND, dtypes.int16, [], -1),
        (Combine.AND, dtypes.uint8, [0b110, 0b011], 0b010),
        (Combine.OR, dtypes.uint8, [0b100, 0b001], 0b101),
        (Combine.OR, dtypes.bool, [], False),
    ],
)
def test_a_fold_stays_in_its_dtype(combine, dtype, values, expected):
    found = fold_list(combine, values, dtype)

    assert found.dtype == dtype.value_numpy
    assert found.tolist() == [expected]


@pytest.mark.parametrize("values", [[-0.0], [-0.0, -0.0]])
def test_a_float_sum_starts_from_plus_zero(values):
    assert math.copysign(1, fold_list(Combine.ADD, values, dtypes.float32)[0]) == 1


@pytest.mark.parametrize(
    ("combine", "values", "sign"),
    [
        (Combine.MAX, [-0.0, 0.0, -1.0], 1),
        (Combine.MAX, [0.0, -0.0, -1.0], 1),
        (Combine.MAX, [-0.0, -1.0], -1),
        (Combine.MIN, [0.0, -0.0, 1.0], -1),
        (Combine.MIN, [-0.0, 0.0, 1.0], -1),
        (Combine.MIN, [0.0, 1.0], 1),
    ],
)
def test_an_extreme_of_zeros_does_not_depend_on_order(combine, values, sign):
    found = fold_list(combine, values, dtypes.float16)

    assert found[0] == 0
    assert math.copysign(1, found[0]) == sign


@pytest.mark.parametrize("combine", [Combine.MAX, Combine.MIN, Combine.ADD, Combine.MUL])
def test_a_nan_wins_a_fold(combine):
    assert np.isnan(fold_list(combine, [1.0, NAN, INF], dtypes.float32))


@pytest.mark.parametrize(
    ("combine", "values", "expected"),
    [
        (Combine.ARGMAX, [1, 3, 3], 1),
        (Combine.ARGMIN, [2, 1, 1], 1),
        (Combine.ARGMAX, [1.0, NAN, 3.0], 1),
        (Combine.ARGMIN, [NAN, 4.6, NAN], 0),
        (Combine.ARGMAX, [-0.0, 0.0], 0),
        (Combine.ARGMAX, [False, True], 1),
        (Combine.ARGMAX, [], 0),
    ],
)
def test_the_position_is_the_first_of_the_extreme_or_of_a_nan(combine, values, expected):
    found = fold(combine, np.array(values), (0,), dtypes.int64)

    assert found.dtype == np.int64
    assert found.tolist() == [expected]


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16], ids=str)
def test_a_half_sum_is_wider_inside(dtype):
    values = np.ones(4097)

    assert fold_list(Combine.ADD, values, dtype).tolist() == [
        float(round_to(np.array(4097.0), dtype))
    ]


def test_folded_axes_stay_with_extent_1():
    values = np.arange(24, dtype=np.int32).reshape(2, 3, 4)

    found = fold(Combine.ADD, values, (0, 2), dtypes.int32)

    assert found.shape == (1, 3, 1)
    assert found.ravel().tolist() == [
        sum(range(0, 4)) + sum(range(12, 16)),
        sum(range(4, 8)) + sum(range(16, 20)),
        sum(range(8, 12)) + sum(range(20, 24)),
    ]
