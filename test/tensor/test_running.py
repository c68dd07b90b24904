"""Folds of the elements up to each one are those of NumPy, and need no memory but the result's."""

import math

import numpy as np
import pytest
from tensor.closeness import assert_bits

from tinytensor import config
from tinytensor.schedule.memory import assign_memory
from tinytensor.schedule.schedule import Options, schedule
from tinytensor.target import CPU_AVX512, SM90A
from tinytensor.tensor.running import BASE, RADIX, ROUNDS, WHOLE
from tinytensor.tensor.tensor import Tensor

DEVICES = ["CPU", "PYTHON"]
ROW = BASE * RADIX**ROUNDS
# One round, two, all in two rows, and an extent that no rounds make up.
EXTENTS = [1, BASE, RADIX * BASE, 2 * ROW, WHOLE + 1]


def whole_numbers(shape):
    return np.random.default_rng(9).integers(-9, 9, shape).astype(np.int32)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("extent", EXTENTS)
@pytest.mark.parametrize("axis", [0, 1])
def test_running_sums_of_integers_are_exact(axis, extent, device):
    x = whole_numbers((extent, 3) if axis == 0 else (2, extent))

    result = Tensor(x, device=device).cumsum(axis)

    assert_bits(result, np.cumsum(x, axis, dtype=np.int64))


@pytest.mark.parametrize("fuse", [0, 1, 2, 3])
@pytest.mark.parametrize("extent", [RADIX * BASE, WHOLE + 1])
def test_running_sums_of_whole_floats_are_exact_however_kernels_are_joined(extent, fuse):
    x = whole_numbers((2, extent)).astype(np.float32)

    with config(fuse=fuse):
        result = Tensor(x).cumsum(1).realize()

    assert_bits(result, np.cumsum(x, 1))


@pytest.mark.parametrize("extent", [RADIX * BASE, WHOLE + 1])
def test_running_extremes_are_exact(extent):
    x = whole_numbers((2, extent))

    values, indices = Tensor(x).cummin(1)

    assert_bits(values, np.minimum.accumulate(x, 1))
    assert_bits(values, np.take_along_axis(x, indices.numpy(), 1))


def test_a_running_product_keeps_the_sign_of_a_zero():
    x = np.full((1, RADIX * BASE), -1.0, np.float32)
    x[0, 3] = 0.0

    assert_bits(Tensor(x).cumprod(1), np.cumprod(x, 1))


@pytest.mark.parametrize("extent", [BASE, RADIX * BASE, 2 * ROW])
def test_the_gradient_of_a_running_sum_runs_backwards(extent):
    upstream = whole_numbers((2, extent)).astype(np.float32)
    x = Tensor(np.ones((2, extent), np.float32), requires_grad=True)

    (x.cumsum(1) * Tensor(upstream)).sum().backward()

    assert_bits(x.grad, np.cumsum(upstream[:, ::-1], 1)[:, ::-1])


def test_the_gradient_of_a_running_product_leaves_one_factor_out():
    x = np.ones(RADIX * BASE)
    x[5], x[40] = 2.0, 0.0
    leaf = Tensor(x, requires_grad=True)

    leaf.cumprod(0)[-1].backward()

    expected = np.where(np.arange(x.size) == 40, 2.0, 0.0)  # of all others one factor is 0
    assert_bits(leaf.grad, expected)


@pytest.mark.parametrize("target", [CPU_AVX512, SM90A], ids=lambda target: target.name)
@pytest.mark.parametrize("axis", [0, 1])
def test_the_rounds_lie_where_the_result_will(axis, target):
    root = Tensor(np.zeros((ROW, ROW), np.float32)).realize().cumsum(axis).uop

    assigned = assign_memory(schedule([root], target, Options(3, True, False)), [root], {})

    assert assigned.arena_bytes == 0


def test_the_totals_of_rows_are_all_that_lies_beside_the_result():
    shape = (4, 16 * ROW)
    root = Tensor(np.zeros(shape, np.float32)).realize().cumsum(1).uop

    calls = schedule([root], CPU_AVX512, Options(3, True, False))

    assert assign_memory(calls, [root], {}).arena_bytes <= 2 * 4 * math.prod(shape) // ROW
