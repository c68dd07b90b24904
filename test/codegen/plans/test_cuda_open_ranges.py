"""Extents known only at launch on a GPU: grids and loops end where the scalars say."""

import numpy as np
import pytest
from codegen.gpu_machine import cubin_of, legal
from codegen.plans.plan_kernels import KernelBuilder, arrays_for, fold, load
from codegen.plans.test_cuda_bandwidth import SMALL, shrunk
from codegen.plans.test_open_ranges import open_kernels, row_sums, sliced
from codegen.plans.test_random_kernels import fold_kernels, pointwise_kernels, row_kernels
from hypothesis import given, settings
from runtime.cuda.programs import needs_nvrtc

from tinytensor.codegen.emit_cuda import emit_cuda
from tinytensor.codegen.lower import lower
from tinytensor.codegen.plan import CUDA_PLANS, choose
from tinytensor.dtype import dtypes
from tinytensor.ops.attrs import Combine
from tinytensor.ops.interpret_blocks import run_launches
from tinytensor.ops.interpret_indexed import run_kernel
from tinytensor.ops.text import parse, show
from tinytensor.ops.uop import make_range, make_variable
from tinytensor.ops.verify import verify_indexed, verify_linear
from tinytensor.target import SM80, SM90A

N = make_variable(0, 1, 64)


def assert_open_plans_agree(kernel, scalars):
    """Every plan that takes variables gives the INDEXED interpreter's bits."""
    verify_indexed(kernel)
    wanted = arrays_for(kernel)
    run_kernel(kernel, wanted, scalars)
    for plan in CUDA_PLANS:
        facts = plan.module.facts(kernel, SMALL) if plan.takes_open else None
        if facts is None or isinstance(facts, str):
            continue
        launches = plan.module.lower(shrunk(facts), SMALL)
        for linear in launches:
            verify_linear(linear)
        results = arrays_for(kernel)
        run_launches(launches, results, scalars=scalars)
        for number, (result, want) in enumerate(zip(results, wanted, strict=True)):
            message = f"{plan.name}, buffer {number}, {scalars}"
            np.testing.assert_array_equal(result, want, message, strict=True)


@given(open_kernels(pointwise_kernels()))
@settings(max_examples=25)
def test_a_pointwise_kernel_has_the_same_bits_at_every_size(example):
    assert_open_plans_agree(*example)


@given(open_kernels(fold_kernels(), least=1))
@settings(max_examples=25)
def test_a_fold_has_the_same_bits_at_every_size(example):
    assert_open_plans_agree(*example)


@given(open_kernels(row_kernels(), least=1))
@settings(max_examples=15)
def test_a_row_kernel_has_the_same_bits_at_every_size(example):
    assert_open_plans_agree(*example)


def scaled_rows():
    """out[r, c] = x[r, c] * 2 over n rows of 8."""
    row, column = make_range(0, 64, N), make_range(1, 8)
    builder = KernelBuilder(row, column)
    x = load(builder.param(dtypes.float32, 512), row * 8 + column)
    builder.store(row * 8 + column, x * 2.0, 512)
    return builder.kernel()


def summed_columns():
    """out[c] = the sum of x[r, c] over n rows of 32."""
    row, column = make_range(0, 64, N), make_range(1, 32)
    builder = KernelBuilder(column)
    x = load(builder.param(dtypes.float32, 2048), row * 32 + column)
    builder.store(column, fold(Combine.ADD, x, row), 32)
    return builder.kernel()


def test_a_grid_has_as_many_blocks_as_the_launch_needs():
    (linear,) = choose(scaled_rows(), SM80).linears

    assert linear.grid.blocks == (1, 1, 1)
    assert linear.grid.blocks_at((64,)) == (1, 1, 1)
    (linear,) = choose(sliced(), SM80).linears
    assert linear.grid.blocks == (4, 1, 1)
    assert linear.grid.blocks_at((1025, 0)) == (2, 1, 1)
    assert parse(show(linear)) == linear


def test_rows_of_whole_vectors_stay_vectors():
    choice = choose(scaled_rows(), SM80)

    assert choice.plan == "pointwise"
    assert choice.decisions[0].reason == "one vector of 4 elements a thread."


@needs_nvrtc
@pytest.mark.parametrize("target", [SM80, SM90A], ids=lambda each: each.name)
@pytest.mark.parametrize("make", [scaled_rows, summed_columns, row_sums, sliced])
def test_kernels_of_open_extents_compile(make, target):
    lowered = lower(make(), target)

    assert cubin_of(lowered.program.source, target.name)
    assert lowered.program.launches[0].across or make in (summed_columns, row_sums)
    assert emit_cuda([legal(each, target) for each in lowered.planned], "k", target)
