"""Kernels that meet every shape of loop, compiled: the C gives the INDEXED interpreter's bits."""

import numpy as np
import pytest
from codegen.machine import run_c, target, targets
from codegen.plans.plan_kernels import (
    KernelBuilder,
    arrays_for,
    contract,
    expected,
    fold,
    load,
    lowered,
)

from tinytensor.codegen.plan import choose
from tinytensor.dtype import dtypes
from tinytensor.ops.attrs import Combine
from tinytensor.ops.op import Op
from tinytensor.ops.uop import cast, compare, const, index_const, make_range, where

ROWS, COLUMNS = 37, 150
R, C = make_range(0, ROWS), make_range(1, COLUMNS)
K = make_range(2, COLUMNS)
AT = R * COLUMNS + C
AT_K = R * COLUMNS + K


def relu(dtype):
    builder = KernelBuilder(R, C)
    value = load(builder.param(dtype, ROWS * COLUMNS), AT) + 1
    builder.store(AT, where(compare(Op.LT, value, const(dtype, 0)), const(dtype, 0), value), 5550)
    return builder.kernel()


def transposed_sum():
    builder = KernelBuilder(R, C)
    x = load(builder.param(dtypes.float32, 5550), AT)
    y = load(builder.param(dtypes.float32, 5550), C * ROWS + R)
    builder.store(AT, x + y, 5550)
    return builder.kernel()


def padded():
    wide = make_range(1, COLUMNS + 7)
    builder = KernelBuilder(R, wide)
    guard = (index_const(3) <= wide) & (wide < COLUMNS + 3)
    inside = load(builder.param(dtypes.float32, 5550), R * COLUMNS + wide - 3, guard)
    value = where(guard, inside, const(dtypes.float32, 7))
    builder.store(R * (COLUMNS + 7) + wide, value, ROWS * (COLUMNS + 7))
    return builder.kernel()


def flipped_and_counted():
    builder = KernelBuilder(R, C)
    x = load(builder.param(dtypes.int16, 5550), index_const(5549) - AT)
    builder.store(AT, x + cast(C, dtypes.int16), 5550)
    builder.store(AT, compare(Op.LT, x, const(dtypes.int16, 0)), 5550)
    return builder.kernel()


def by_row(combine, dtype):
    builder = KernelBuilder(R)
    builder.store(R, fold(combine, load(builder.param(dtype, 5550), AT_K), K), ROWS)
    return builder.kernel()


def by_column(combine, dtype):
    builder = KernelBuilder(C)
    builder.store(C, fold(combine, load(builder.param(dtype, 5550), AT), R), COLUMNS)
    return builder.kernel()


def softmax_of_integers():
    """No exponential, so that every order of summation gives the same bits."""
    other = make_range(3, COLUMNS)
    builder = KernelBuilder(R, C)
    source = builder.param(dtypes.float16, 5550)
    most = fold(Combine.MAX, load(source, AT_K), K)
    below = cast(load(source, R * COLUMNS + other) - most, dtypes.float32)
    total = fold(Combine.ADD, below, other)
    builder.store(AT, cast(load(source, AT) - most, dtypes.float32) + total, 5550)
    return builder.kernel()


def matrix_vector():
    builder = KernelBuilder(R)
    a, b = builder.param(dtypes.float16, 5550), builder.param(dtypes.float16, COLUMNS)
    product = contract(load(a, AT_K), load(b, K), dtypes.float32, m=(R,), k=(K,))
    builder.store(R, cast(product, dtypes.float16), ROWS)
    return builder.kernel()


KERNELS = {
    "relu float32": relu(dtypes.float32),
    "relu float16": relu(dtypes.float16),
    "relu int8": relu(dtypes.int8),
    "transposed sum": transposed_sum(),
    "padded": padded(),
    "flipped": flipped_and_counted(),
    "row sum": by_row(Combine.ADD, dtypes.float32),
    "row sum bfloat16": by_row(Combine.ADD, dtypes.bfloat16),
    "row any": by_row(Combine.OR, dtypes.bool),
    "row maximum int8": by_row(Combine.MAX, dtypes.int8),
    "row argmax": by_row(Combine.ARGMAX, dtypes.float32),
    "row argmin float64": by_row(Combine.ARGMIN, dtypes.float64),
    "column sum": by_column(Combine.ADD, dtypes.float32),
    "column minimum": by_column(Combine.MIN, dtypes.float64),
    "column argmax": by_column(Combine.ARGMAX, dtypes.int32),
    "softmax of integers": softmax_of_integers(),
    "matrix times vector": matrix_vector(),
}


@pytest.mark.parametrize("name", KERNELS)
def test_the_chosen_plan_gives_the_same_bits_in_c(name):
    kernel = KERNELS[name]
    arrays = arrays_for(kernel)

    results = [each.copy() for each in arrays]
    (linear,) = choose(kernel, target()).linears
    run_c(linear, results)

    for result, want in zip(results, expected(kernel, arrays), strict=True):
        np.testing.assert_array_equal(result, want)


@pytest.mark.slow
@pytest.mark.parametrize("chosen", targets(), ids=lambda each: f"{each.vector_bytes} bytes")
@pytest.mark.parametrize("name", KERNELS)
def test_every_plan_gives_the_same_bits_in_c(name, chosen):
    kernel = KERNELS[name]
    arrays = arrays_for(kernel)

    for _, linear in lowered(kernel, chosen):
        results = [each.copy() for each in arrays]
        run_c(linear, results, chosen)

        for result, want in zip(results, expected(kernel, arrays), strict=True):
            np.testing.assert_array_equal(result, want)
