"""Random kernels: every plan gives the bits of the INDEXED interpreter."""

import math
from dataclasses import dataclass

import pytest
from codegen.plans.plan_kernels import KernelBuilder, assert_plans_agree, fold, load
from fuzz.random_graphs import Program
from hypothesis import given, settings
from hypothesis import strategies as st
from schedule.reading import kernels_of

from tinytensor.codegen.plan import choose
from tinytensor.dtype import dtypes
from tinytensor.ops.attrs import Combine
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp, binary, cast, compare, const, index_const, make_range, where
from tinytensor.ops.verify import verify_linear
from tinytensor.target import SM90A

MOST_ELEMENTS = 400
VALUE_DTYPES = (
    *(dtypes.float32, dtypes.float64, dtypes.float16, dtypes.bfloat16),
    *(dtypes.int8, dtypes.int32, dtypes.int64, dtypes.uint16, dtypes.bool),
)
FLOAT_COMBINES = (Combine.ADD, Combine.MAX, Combine.MIN, Combine.ARGMAX, Combine.ARGMIN)
INTEGER_COMBINES = (*FLOAT_COMBINES, Combine.MUL, Combine.AND, Combine.OR)


@dataclass
class Space:
    """Ranges to draw indices over."""

    ranges: list[UOp]

    def elements(self):
        return math.prod(each.extent for each in self.ranges)


@st.composite
def spaces(draw, most=3):
    ranges = []
    left = MOST_ELEMENTS
    for number in range(draw(st.integers(1, most))):
        ranges.append(make_range(number, draw(st.integers(1, min(40, left)))))
        left //= ranges[-1].extent
    return Space(ranges)


@st.composite
def affine_indices(draw, ranges):
    """(index, elements): permuted, stepped, flipped or broadcast along each range."""
    index, elements = index_const(draw(st.integers(0, 3))), 1
    for each in draw(st.permutations(ranges)):
        kind = draw(st.sampled_from(("plain", "plain", "stepped", "flipped", "fixed")))
        if kind == "fixed":
            continue
        stride = elements * (2 if kind == "stepped" else 1)
        place = index_const(each.extent - 1) - each if kind == "flipped" else each
        index = place * stride + index
        elements = stride * each.extent
    return index, elements + 3


@st.composite
def loads(draw, builder, ranges, dtype):
    """A load, perhaps with a guard that keeps one range inside bounds that its index leaves."""
    index, elements = draw(affine_indices(ranges))
    if draw(st.booleans()):
        return load(builder.param(dtype, elements), index)
    each = draw(st.sampled_from(ranges))
    low = draw(st.integers(0, each.extent))
    guard = index_const(low) <= each
    if draw(st.booleans()):
        guard = guard & (each < draw(st.integers(0, each.extent)))
    return load(builder.param(dtype, elements), index, guard)


@st.composite
def values(draw, builder, ranges, dtype):
    """An elementwise expression over a few loads."""
    value = draw(loads(builder, ranges, dtype))
    for _ in range(draw(st.integers(0, 2))):
        kind = draw(st.sampled_from(("add", "max", "where", "position")))
        if kind == "position":
            value = value + cast(draw(st.sampled_from(ranges)), dtype)
            continue
        other = draw(loads(builder, ranges, dtype))
        if kind == "where":
            value = where(compare(Op.LT, other, value), other, value)
        else:
            value = binary(Op.ADD if kind == "add" else Op.MAX, value, other)
    return value


@st.composite
def pointwise_kernels(draw):
    space = draw(spaces())
    builder = KernelBuilder(*space.ranges)
    value = draw(values(builder, space.ranges, draw(st.sampled_from(VALUE_DTYPES))))
    store_all(builder, draw(st.permutations(space.ranges)), value, draw(st.booleans()))
    return builder.kernel()


def store_all(builder, ranges, value, twice):
    """Store a value row-major over ranges, and perhaps a bool made of it."""
    index, elements = row_major(ranges)
    builder.store(index, value, elements)
    if twice:
        builder.store(index, compare(Op.LT, value, const(value.dtype, 1)), elements)


def row_major(ranges):
    index = index_const(0)
    for each in ranges:
        index = index * each.extent + each
    return index, math.prod(each.extent for each in ranges)


@st.composite
def fold_kernels(draw):
    space = draw(spaces())
    dtype = draw(st.sampled_from(VALUE_DTYPES))
    folded = draw(st.integers(0, len(space.ranges) - 1))
    kept = [each for at, each in enumerate(space.ranges) if at != folded]
    builder = KernelBuilder(*kept)
    combine = draw(st.sampled_from(FLOAT_COMBINES if dtype.is_float else INTEGER_COMBINES))
    element = draw(values(builder, space.ranges, dtype))
    result = fold(combine, element, space.ranges[folded])
    if kept and draw(st.booleans()):
        result = result + cast(draw(values(builder, kept, dtype)), result.dtype)
    store_all(builder, kept, result, draw(st.booleans()))
    return builder.kernel()


@st.composite
def row_kernels(draw):
    """A softmax's shape: an extreme, a sum of what is above it, and stores along the same axis."""
    rows = make_range(0, draw(st.integers(1, 5)))
    extent = draw(st.integers(1, 40))
    columns = [make_range(1 + number, extent) for number in range(3)]
    dtype = draw(st.sampled_from((dtypes.float32, dtypes.float16, dtypes.int32)))
    by_row = draw(st.booleans())
    builder = KernelBuilder(rows, columns[2])
    source = builder.param(dtype, rows.extent * extent)
    at = [rows * extent + c if by_row else c * rows.extent + rows for c in columns]
    most = fold(Combine.MAX, load(source, at[0]), columns[0])
    total = fold(Combine.ADD, load(source, at[1]) - most, columns[1])
    builder.store(at[2], load(source, at[2]) - most + total, rows.extent * extent)
    return builder.kernel()


@given(pointwise_kernels())
@settings(max_examples=60)
def test_a_pointwise_kernel_has_the_same_bits_in_every_plan(kernel):
    assert_plans_agree(kernel)


@given(fold_kernels())
@settings(max_examples=60)
def test_a_fold_has_the_same_bits_in_every_plan(kernel):
    assert_plans_agree(kernel)


@given(row_kernels())
@settings(max_examples=30)
def test_a_row_kernel_has_the_same_bits_in_every_plan(kernel):
    assert_plans_agree(kernel)


@pytest.mark.parametrize("first", range(0, 300, 50))
def test_each_kernel_of_random_graphs_is_well_formed_on_a_gpu(first):
    for seed in range(first, first + 50):
        tensors = [each for each in Program(seed).outputs if each.uop.op is not Op.BUFFER]
        for kernel in kernels_of(*tensors, target=SM90A) if tensors else ():
            for linear in choose(kernel, SM90A).linears:
                verify_linear(linear)


@pytest.mark.fuzz
@given(st.one_of(pointwise_kernels(), fold_kernels(), row_kernels()))
@settings(max_examples=3000)
def test_many_random_kernels_have_the_same_bits_in_every_plan(kernel):
    assert_plans_agree(kernel)
