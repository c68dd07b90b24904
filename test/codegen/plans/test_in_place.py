"""Kernels that compute in an operand's memory give the bits of those that do not, in every plan."""

import numpy as np
from codegen.plans import test_cuda_bandwidth as cuda
from codegen.plans.plan_kernels import (
    KernelBuilder,
    arrays_for,
    assert_plans_agree,
    expected,
    load,
    lowered,
    small_integers,
)
from codegen.plans.test_random_kernels import VALUE_DTYPES, row_major, spaces, values
from hypothesis import given, settings
from hypothesis import strategies as st

from tinytensor.dtype import dtypes
from tinytensor.ops.interpret_linear import run_linear
from tinytensor.ops.op import Op
from tinytensor.ops.uop import compare, const, make_range, where
from tinytensor.schedule.take_over import may_take, merge_params
from tinytensor.target import CPU_SSE


@st.composite
def kernels(draw):
    """A store of what its operand has at the same place, and others have anywhere."""
    ranges = draw(spaces()).ranges
    builder = KernelBuilder(*ranges)
    index, elements = row_major(draw(st.permutations(ranges)))
    dtype = draw(st.sampled_from(VALUE_DTYPES))
    operand = load(builder.param(dtype, elements), index)
    other = draw(values(builder, ranges, dtype))
    is_below = compare(Op.LT, other, operand)
    value = draw(st.sampled_from([operand + other, where(is_below, other, operand)]))
    builder.store(index, value, elements)
    return builder.kernel()


def merged_with_arrays(kernel, operand=0):
    """The kernel in place of an operand, arrays for it, and what the separate one makes of them."""
    output = next(number for number, each in enumerate(kernel.params) if each.written)
    assert may_take(kernel, output, operand)
    arrays = arrays_for(kernel)
    wanted = expected(kernel, arrays)[output]
    arrays[output] = arrays.pop(operand) if operand > output else arrays[operand]
    merged = merge_params(kernel, {output: operand})
    arrays = [each for number, each in enumerate(arrays) if number != operand]
    return merged, arrays, wanted


def assert_same_in_place(kernel, agree):
    merged, arrays, wanted = merged_with_arrays(kernel)

    agree(merged, arrays)

    (output,) = (number for number, each in enumerate(merged.params) if each.written)
    np.testing.assert_array_equal(expected(merged, arrays)[output], wanted)


@given(kernels())
@settings(max_examples=60)
def test_a_kernel_in_place_has_the_same_bits_in_every_plan(kernel):
    assert_same_in_place(kernel, assert_plans_agree)


@given(kernels())
@settings(max_examples=30)
def test_a_kernel_in_place_has_the_same_bits_in_every_plan_for_a_gpu(kernel):
    assert_same_in_place(kernel, cuda.assert_plans_agree)


def test_a_transposed_operand_beside_the_one_taken_is_turned_in_tiles():
    r, c = make_range(0, 40), make_range(1, 40)
    builder = KernelBuilder(r, c)
    index, elements = row_major([r, c])
    operand = load(builder.param(dtypes.float32, elements), index)
    turned = load(builder.param(dtypes.float32, elements), c * 40 + r)
    builder.store(index, operand + turned, elements)

    assert_same_in_place(builder.kernel(), assert_plans_agree)
    assert_same_in_place(builder.kernel(), cuda.assert_plans_agree)


def test_an_operand_that_is_read_elsewhere_would_be_overwritten_too_early():
    i = make_range(0, 64)
    builder = KernelBuilder(i)
    x = builder.param(dtypes.float32, 64)
    builder.store(i, load(x, i) + load(x, const(dtypes.index, 63) - i), 64)
    kernel = builder.kernel()
    rng = np.random.default_rng(0)
    arrays = [small_integers(kernel.params[0], rng), np.zeros(64, np.float32)]
    wanted = expected(kernel, arrays)[1]

    merged = merge_params(kernel, {1: 0})
    results = {name: in_place(linear, arrays[0]) for name, linear in lowered(merged, CPU_SSE)}

    assert not may_take(kernel, 1, 0)
    assert not np.array_equal(results["loops"], wanted)  # so the rule is needed


def in_place(linear, array):
    (result,) = arrays = [array.copy()]
    run_linear(linear, arrays)
    return result
