"""The GPU plans for elementwise kernels and folds, run as grids of threads on small kernels."""

import dataclasses

import numpy as np
import pytest
from codegen.plans.plan_kernels import (
    KernelBuilder,
    arrays_for,
    contract,
    expected,
    fold,
    load,
)
from codegen.plans.test_random_kernels import (
    VALUE_DTYPES,
    fold_kernels,
    pointwise_kernels,
    row_kernels,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from tinytensor.codegen.plans import cuda_loops, cuda_pointwise, cuda_reduction
from tinytensor.dtype import dtypes
from tinytensor.errors import InternalError
from tinytensor.ops.attrs import Combine
from tinytensor.ops.interpret_blocks import run_launches
from tinytensor.ops.op import Op
from tinytensor.ops.uop import binary, cast, const, index_const, make_range, where
from tinytensor.ops.verify import verify_indexed, verify_linear
from tinytensor.target import SM90A

PLANS = (cuda_pointwise, cuda_reduction, cuda_loops)
# One multiprocessor: the number of blocks, and so of chunks, stays small.
SMALL = dataclasses.replace(SM90A, multiprocessors=1)
FLOATS = (dtypes.float32, dtypes.float64, dtypes.float16, dtypes.bfloat16)


def lowered(kernel, target=SMALL):
    """(plan, facts, launches) for each plan that takes the kernel."""
    for plan in PLANS:
        facts = plan.facts(kernel, target)
        if not isinstance(facts, str):
            yield plan, facts, plan.lower(facts, target)


def run(launches, arrays):
    results = [each.copy() for each in arrays]
    run_launches(launches, results)
    return results


def assert_same(results, wanted, message):
    for number, (result, want) in enumerate(zip(results, wanted, strict=True)):
        np.testing.assert_array_equal(result, want, f"{message}, buffer {number}", strict=True)


def assert_plans_agree(kernel, arrays=None, target=SMALL):
    """Every plan that takes the kernel gives the INDEXED interpreter's bits."""
    arrays = arrays_for(kernel) if arrays is None else arrays
    verify_indexed(kernel)
    wanted = expected(kernel, arrays)
    for plan, _, launches in lowered(kernel, target):
        for linear in launches:
            verify_linear(linear)
        assert_same(run(launches, arrays), wanted, plan.__name__)


def relu_kernel(elements, dtype=dtypes.float32):
    i = make_range(0, elements)
    builder = KernelBuilder(i)
    x = load(builder.param(dtype, elements), i)
    builder.store(i, binary(Op.MAX, x + 1, const(dtype, 0)), elements)
    return builder.kernel()


def row_kernel(combine, rows, columns, dtype=dtypes.float32):
    r, c = make_range(0, rows), make_range(1, columns)
    builder = KernelBuilder(r)
    x = load(builder.param(dtype, rows * columns), r * columns + c)
    builder.store(r, fold(combine, x, c), rows)
    return builder.kernel()


def column_kernel(combine, rows, columns, dtype=dtypes.float32):
    r, c = make_range(0, rows), make_range(1, columns)
    builder = KernelBuilder(c)
    x = load(builder.param(dtype, rows * columns), r * columns + c)
    builder.store(c, fold(combine, x, r), columns)
    return builder.kernel()


# Elementwise.
@pytest.mark.parametrize("elements", [0, 1, 3, 4, 1023, 1024, 1027, 2500])
@pytest.mark.parametrize("dtype", VALUE_DTYPES, ids=lambda dtype: dtype.name)
def test_every_element_of_a_flat_kernel_is_computed(elements, dtype):
    assert_plans_agree(relu_kernel(elements, dtype))


def test_a_flat_kernel_moves_16_bytes_a_thread():
    kernel = relu_kernel(1 << 20)

    (linear,) = cuda_pointwise.lower(cuda_pointwise.facts(kernel, SM90A), SM90A)

    moved = [each for each in linear.statements if each.op in (Op.LOAD, Op.STORE)]
    assert [each.operands[-1].dtype.lanes if each.op is Op.STORE else each.dtype.lanes
            for each in moved] == [4, 4]
    assert linear.grid.blocks == (1024, 1, 1)
    assert not any(each.op is Op.IF for each in linear.statements)


def broadcast_kernel(rows, columns, dtype):
    r, c = make_range(0, rows), make_range(1, columns)
    builder = KernelBuilder(r, c)
    x = load(builder.param(dtype, rows * columns), r * columns + c)
    a = load(builder.param(dtype, columns), c)
    s = load(builder.param(dtype, rows), r)
    builder.store(r * columns + c, x * a + s, rows * columns)
    builder.store(r * columns + c, cast(x * a, dtypes.int32), rows * columns)
    return builder.kernel()


@pytest.mark.parametrize("columns", [1, 6, 8, 13, 64])
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.bfloat16], ids=lambda dtype: dtype.name)
def test_rows_and_columns_are_broadcast(columns, dtype):
    assert_plans_agree(broadcast_kernel(9, columns, dtype))


def test_an_unaligned_view_is_read_element_by_element():
    i = make_range(0, 640)
    builder = KernelBuilder(i)
    x = load(builder.param(dtypes.float32, 643), i + 3)
    builder.store(i, x + 1, 640)

    facts = cuda_pointwise.facts(builder.kernel(), SMALL)

    assert (facts.spread.lanes, facts.steps) == (1, 4)
    assert_plans_agree(builder.kernel())


def test_a_flipped_view_is_read_in_vectors():
    i = make_range(0, 640)
    builder = KernelBuilder(i)
    x = load(builder.param(dtypes.float32, 640), index_const(639) - i)
    builder.store(i, x + 1, 640)

    facts = cuda_pointwise.facts(builder.kernel(), SMALL)

    assert facts.spread.lanes == 4
    assert_plans_agree(builder.kernel())


def concatenation(first, elements):
    """Two buffers end to end, each read under a guard."""
    i = make_range(0, elements)
    builder = KernelBuilder(i)
    left = i < first
    x = load(builder.param(dtypes.float32, first), i, left)
    y = load(builder.param(dtypes.float32, elements - first), i - first, index_const(first) <= i)
    builder.store(i, where(left, x, y), elements)
    return builder.kernel()


@pytest.mark.parametrize(("first", "lanes"), [(512, 4), (514, 2), (515, 1)])
def test_a_guard_that_changes_between_vectors_keeps_them_whole(first, lanes):
    kernel = concatenation(first, 1200)

    facts = cuda_pointwise.facts(kernel, SMALL)

    assert facts.spread.lanes == lanes
    assert_plans_agree(kernel)


def test_a_kernel_in_place_reads_before_it_writes():
    i = make_range(0, 1500)
    builder = KernelBuilder(i)
    x = builder.param(dtypes.float32, 1500, written=True)
    kernel = builder.kernel()
    store = binary(Op.ADD, load(x, i), const(dtypes.float32, 1))
    sink = type(x)(Op.SINK, dtypes.void, (type(x)(Op.STORE, dtypes.void, (x, i, store)),))
    kernel = dataclasses.replace(kernel, sink=sink)
    values = np.arange(1500, dtype=np.float32)

    assert_plans_agree(kernel, [values])


# Folds.
SHAPES = [(1, 1), (3, 40), (5, 33), (2, 700), (130, 8), (1, 9000), (0, 5), (5, 0), (33, 1)]
FOLDS = [
    *[(combine, dtypes.float32) for combine in Combine if combine.value not in ("and", "or")],
    *[(combine, dtypes.int32) for combine in Combine],
    *[(Combine.ADD, dtype) for dtype in VALUE_DTYPES],
    *[(Combine.MAX, dtype) for dtype in VALUE_DTYPES],
    (Combine.ARGMAX, dtypes.bfloat16),
]


def fold_name(case):
    return "-".join(each.name if hasattr(each, "name") else each.value for each in case)


def arrays_of(kernel, combine):
    """Integers whose fold is exact; for products few factors that are not one."""
    arrays = arrays_for(kernel)
    if combine is Combine.MUL:
        for each in arrays:
            each[...] = 1
            each[:: max(1, each.size // 8)] = 2
    return arrays


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("case", FOLDS, ids=fold_name)
@pytest.mark.parametrize("make", [row_kernel, column_kernel])
def test_a_fold_of_rows_and_of_columns_has_the_same_bits(make, case, shape):
    combine, dtype = case
    rows, columns = shape
    folded = columns if make is row_kernel else rows
    if folded == 0 and combine in (Combine.ARGMAX, Combine.ARGMIN, Combine.MAX, Combine.MIN):
        pytest.skip("an empty row has no extreme")
    kernel = make(combine, rows, columns, dtype)

    assert_plans_agree(kernel, arrays_of(kernel, combine))
