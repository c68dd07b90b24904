"""Tensors from numbers, lists, arrays and shapes hold the values they were made from."""

import numpy as np
import pytest
from tensor.closeness import assert_bits

from tinytensor.dtype import USER_DTYPES, dtypes
from tinytensor.ops.op import Op
from tinytensor.ops.uop import walk
from tinytensor.tensor.tensor import Tensor

NAMES = [dtype.name for dtype in USER_DTYPES if dtype.storage_numpy is dtype.value_numpy]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (3, np.array(3)),
        (2.5, np.array(2.5, np.float32)),
        (True, np.array(True)),
        ([1, 2], np.array([1, 2])),
        ([1, 2.5], np.array([1, 2.5], np.float32)),
        ([True, 2], np.array([1, 2])),
        ([[True], [False]], np.array([[True], [False]])),
        ([], np.zeros(0, np.float32)),
        ([[], []], np.zeros((2, 0), np.float32)),
        ((1, 2), np.array([1, 2])),
        (np.float64(1.5), np.array(1.5)),
        ([-(2**63), 2**63 - 1], np.array([-(2**63), 2**63 - 1])),
        ([float("nan"), float("-inf"), -0.0], np.array([np.nan, -np.inf, -0.0], np.float32)),
    ],
)
def test_content_gives_its_values_and_dtype(content, expected):
    assert_bits(Tensor(content), expected)


@pytest.mark.parametrize("name", NAMES)
def test_an_array_keeps_its_dtype(name):
    array = np.arange(6).reshape(2, 3).astype(name)

    assert_bits(Tensor(array), array)


@pytest.mark.parametrize("array", [np.zeros((0, 3)), np.array(1.5), np.arange(6).reshape(2, 3).T])
def test_an_array_of_any_shape_and_layout_is_taken(array):
    assert_bits(Tensor(array), array)


def test_an_array_is_copied():
    array = np.ones(3, np.float32)
    tensor = Tensor(array)

    array[:] = 2

    assert_bits(tensor, np.ones(3, np.float32))


def test_a_dtype_converts_what_is_given():
    assert_bits(Tensor([1.9, -1.9], dtype=dtypes.int8), np.array([1, -1], np.int8))
    assert_bits(Tensor(np.array([300, -1]), dtype=dtypes.uint8), np.array([44, 255], np.uint8))
    assert_bits(Tensor(Tensor([2]), dtype=dtypes.float64), np.array([2.0]))


@pytest.mark.parametrize("value", [1.00390625, 1.01171875, 3.4e38, float("inf")])
def test_bfloat16_rounds_to_nearest_even_and_comes_back_as_float32(value):
    above = np.array([1.0, 1.015625, np.inf, np.inf], np.float32)
    expected = above[[1.00390625, 1.01171875, 3.4e38, float("inf")].index(value)]

    assert_bits(Tensor([value], dtype=dtypes.bfloat16), np.array([expected]))
    assert_bits(Tensor(value, dtype=dtypes.bfloat16), np.array(expected))


def test_filled_tensors_take_no_buffer():
    made = [Tensor.zeros(2, 3), Tensor.ones((2,)), Tensor.full((4, 1), 7), Tensor.empty(2)]

    assert not [node for node in walk([each.uop for each in made]) if node.op is Op.BUFFER]


def test_filled_tensors_hold_their_value():
    assert_bits(Tensor.zeros(2, 3), np.zeros((2, 3), np.float32))
    assert_bits(Tensor.ones((2,), dtype=dtypes.int16), np.ones(2, np.int16))
    assert_bits(Tensor.full((2, 0), True), np.ones((2, 0), bool))
    assert_bits(Tensor.full((2,), -0.0), np.full(2, -0.0, np.float32))
    assert_bits(Tensor.full((), 5), np.array(5))


@pytest.mark.parametrize("sign", [1, -1])
def test_an_integer_beyond_all_floats_is_infinite(sign):
    assert Tensor(sign * 10**400, dtype=dtypes.float32).item() == sign * np.inf


def test_like_tensors_take_shape_dtype_and_device():
    model = Tensor(np.zeros((2, 1), np.float16), device="PYTHON")

    made = [Tensor.zeros_like(model), model.ones_like(), model.full_like(2.5)]

    assert [each.numpy().tolist() for each in made] == [[[0], [0]], [[1], [1]], [[2.5], [2.5]]]
    assert {(each.dtype, each.device) for each in made} == {(dtypes.float16, "PYTHON")}


@pytest.mark.parametrize(
    "bounds",
    [(5,), (0,), (2, 9), (9, 2, -3), (0, 10, 4), (3, 3), (-5, 5, 5), (0, 10**12, 3 * 10**11)],
)
def test_an_integer_arange_is_exact(bounds):
    assert_bits(Tensor.arange(*bounds), np.arange(*bounds, dtype=np.int64))


@pytest.mark.parametrize("bounds", [(5.0,), (0, 1, 0.1), (1.5, -2, -0.5), (0.0, 0.0)])
def test_a_float_arange_is_rounded_once_from_float64(bounds):
    start, end, step = (0, bounds[0], 1) if len(bounds) == 1 else (*bounds, 1)[:3]
    count = int(np.ceil((end - start) / step))

    expected = (start + np.arange(count) * np.float64(step)).astype(np.float32)

    assert_bits(Tensor.arange(*bounds), expected)


@pytest.mark.parametrize("shape", [(3,), (2, 3), (3, 2), (0, 2)])
def test_eye_has_ones_on_the_diagonal(shape):
    assert_bits(Tensor.eye(*shape), np.eye(*shape, dtype=np.float32))


def test_values_come_back_as_python_numbers():
    assert Tensor([[1, 2], [3, 4]]).tolist() == [[1, 2], [3, 4]]
    assert Tensor(2.5).tolist() == 2.5
    assert Tensor([[7]]).item() == 7
    assert (bool(Tensor([0.0])), int(Tensor(3.7)), float(Tensor(2))) == (False, 3, 2.0)
    assert [10, 20][Tensor(1)] == 20
    assert len(Tensor.zeros(4, 0)) == 4


def test_facts_need_no_values():
    tensor = Tensor.zeros(2, 3, requires_grad=True)

    assert (tensor.shape, tensor.ndim, tensor.numel()) == ((2, 3), 2, 6)
    assert (tensor.size(), tensor.size(-1)) == ((2, 3), 3)
    assert tensor.requires_grad
    assert tensor.uop.op is not Op.BUFFER


def test_realize_computes_several_at_once_and_keeps_the_values():
    x = Tensor([1.0, 2.0])
    doubled, squared = x * 2, x * x

    assert doubled.realize(squared) is doubled

    assert doubled.uop.op is squared.uop.op is Op.BUFFER
    assert (doubled.tolist(), squared.tolist()) == ([2, 4], [1, 4])


def test_a_tensor_remembers_the_line_that_made_it():
    tensor = Tensor([1.0]) + 1

    assert tensor.site.code is test_a_tensor_remembers_the_line_that_made_it.__code__
