"""Kernels that compute in an operand's memory give the bits of those that do not, in every plan."""

import numpy as np
import pytest
from codegen.plans import test_cuda_bandwidth as cuda
from codegen.plans.plan_kernels import (
    KernelBuilder,
    arrays_for,
    assert_plans_agree,
    expected,
    fold,
    load,
    lowered,
    small_integers,
)
from codegen.plans.test_random_kernels import VALUE_DTYPES, row_major, spaces, values
from hypothesis import given, settings
from hypothesis import strategies as st

from tinytensor.codegen.plan import choose
from tinytensor.dtype import dtypes
from tinytensor.errors import InternalError
from tinytensor.ops.attrs import Combine
from tinytensor.ops.interpret_indexed import CACHED_ELEMENTS
from tinytensor.ops.interpret_linear import run_linear
from tinytensor.ops.op import Op
from tinytensor.ops.uop import compare, const, make_range, substitute, where
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
    arrays = [small_integers(kernel.params[0], rng)]

    merged = merge_params(kernel, {1: 0})

    assert not may_take(kernel, 1, 0)
    for _, linear in lowered(merged, CPU_SSE):
        with pytest.raises(InternalError, match="reads what this launch wrote"):
            run_linear(linear, arrays)


# Rows: what folds read is overwritten once all of a row is folded.
@st.composite
def row_kernels(draw):
    """Stores over rows of what folds of each row and its own element make, and perhaps a fold."""
    ranges = draw(spaces()).ranges
    rows = draw(st.lists(st.sampled_from(ranges), unique=True))
    apart = [each for each in ranges if each not in rows]
    again = [make_range(10 + each.attrs.number, each.extent) for each in apart]
    builder = KernelBuilder(*draw(st.permutations(ranges)))
    index, elements = row_major(draw(st.permutations(ranges)))
    dtype = draw(st.sampled_from((dtypes.float32, dtypes.bfloat16, dtypes.int32)))
    x = builder.param(dtype, elements)
    operand = load(x, index)
    inner = load(x, substitute(index, dict(zip(apart, again, strict=True))))
    again = again or [make_range(10, 3)]
    most = fold(Combine.MAX, inner, *again)
    least = fold(draw(st.sampled_from((Combine.MIN, Combine.ADD))), inner - most, *again)
    row, count = row_major(rows)
    told = draw(st.sampled_from(("before", "after", "never")))
    if told == "before":
        builder.store(row, least, count)
    builder.store(index, draw(st.sampled_from((operand - least, least, most + operand))), elements)
    if told == "after":
        builder.store(row, most, count)
    return builder.kernel(), {"before": 2, "after": 1, "never": 1}[told]


def rows_in_place(case):
    """A kernel of rows in place of its operand, arrays, and what it gives apart from it."""
    kernel, output = case
    assert may_take(kernel, output, 0)
    arrays = arrays_for(kernel)
    wanted = expected(kernel, arrays)
    arrays[output] = arrays[0]
    return merge_params(kernel, {output: 0}), arrays[1:], wanted[1:]


@given(row_kernels())
@settings(max_examples=80)
def test_rows_in_place_have_the_same_bits_in_every_plan(case):
    merged, arrays, wanted = rows_in_place(case)

    assert_plans_agree(merged, arrays)

    for result, want in zip(expected(merged, arrays), wanted, strict=True):
        np.testing.assert_array_equal(result, want)


@given(row_kernels())
@settings(max_examples=40)
def test_rows_in_place_have_the_same_bits_on_a_gpu(case):
    merged, arrays, wanted = rows_in_place(case)

    chosen = choose(merged, cuda.SMALL)

    assert chosen.plan == "reduction"  # other plans fold again while others store
    for result, want in zip(cuda.run(chosen.linears, arrays), wanted, strict=True):
        np.testing.assert_array_equal(result, want)


def one_row(columns):
    """Each element of a row less the sum of all, in place of the row, and what it gives."""
    c, again = make_range(0, columns), make_range(10, columns)
    builder = KernelBuilder(c)
    x = builder.param(dtypes.float32, columns)
    builder.store(c, load(x, c) - fold(Combine.ADD, load(x, again), again), columns)
    return rows_in_place((builder.kernel(), 1))


def test_blocks_that_share_a_row_fold_it_in_a_launch_before_they_store():
    merged, arrays, wanted = one_row(40_000)

    chosen = choose(merged, cuda.SMALL)

    assert len(chosen.linears) == 2
    np.testing.assert_array_equal(cuda.run(chosen.linears, arrays)[0], wanted[0])


def test_the_interpreter_folds_a_row_before_it_stores_the_first_block_of_it():
    merged, arrays, wanted = one_row(2 * CACHED_ELEMENTS + 1)

    np.testing.assert_array_equal(expected(merged, arrays)[0], wanted[0])
