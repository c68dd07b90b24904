"""The GPU plans for elementwise kernels and folds, run as grids of threads on small kernels."""

import dataclasses
import math

import numpy as np
import pytest
from codegen.gpu_machine import cubin_of, frame_bytes, legal
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
from runtime.cuda.programs import needs_nvrtc

from tinytensor.codegen.emit_cuda import emit_cuda
from tinytensor.codegen.plan import CUDA_PLANS
from tinytensor.codegen.plans import (
    cuda_folding,
    cuda_loops,
    cuda_pointwise,
    cuda_reduction,
    cuda_turning,
)
from tinytensor.dtype import dtypes
from tinytensor.errors import InternalError
from tinytensor.ops.attrs import Combine
from tinytensor.ops.interpret_blocks import run_launches
from tinytensor.ops.op import Op
from tinytensor.ops.uop import binary, cast, const, index_const, make_range, walk, where
from tinytensor.ops.verify import verify_indexed, verify_linear
from tinytensor.target import SM80, SM90A

PLANS = CUDA_PLANS[2:]  # those of contractions come before
# One multiprocessor: the number of blocks, and so of chunks, stays small.
SMALL = dataclasses.replace(SM90A, multiprocessors=1)
FLOATS = (dtypes.float32, dtypes.float64, dtypes.float16, dtypes.bfloat16)


MOST_STEPS = 4096  # of one thread's loops; more take the interpreter too long


def shrunk(facts):
    """The same with small blocks, where the plan takes blocks of any size."""
    if isinstance(facts, cuda_pointwise.CudaPointwiseFacts | cuda_loops.LoopFacts):
        return dataclasses.replace(facts, threads=32)
    return facts


def lowered(kernel, target=SMALL):
    """(plan, launches) for each plan that takes the kernel."""
    for plan in PLANS:
        facts = plan.module.facts(kernel, target)
        is_long = plan.name == "loops" and folded_elements(kernel) > MOST_STEPS
        if facts is not None and not isinstance(facts, str) and not is_long:
            yield plan, plan.module.lower(shrunk(facts), target)


def folded_elements(kernel):
    ranges = [each for each in walk((kernel.sink,)) if each.op is Op.RANGE]
    return math.prod([each.extent for each in ranges if each not in kernel.ranges])


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
    for plan, launches in lowered(kernel, target):
        for linear in launches:
            verify_linear(linear)
        assert_same(run(launches, arrays), wanted, plan.name)


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
@pytest.mark.parametrize("elements", [0, 1, 3, 4, 255, 256, 259])
@pytest.mark.parametrize("dtype", VALUE_DTYPES, ids=lambda dtype: dtype.name)
def test_every_element_of_a_flat_kernel_is_computed(elements, dtype):
    assert_plans_agree(relu_kernel(elements, dtype))


def test_a_flat_kernel_moves_16_bytes_a_thread():
    kernel = relu_kernel(1 << 20)

    (linear,) = cuda_pointwise.lower(cuda_pointwise.facts(kernel, SM90A), SM90A)

    moved = [each for each in linear.statements if each.op in (Op.LOAD, Op.STORE)]
    assert [
        each.operands[-1].dtype.lanes if each.op is Op.STORE else each.dtype.lanes for each in moved
    ] == [4, 4]
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


def quotients(rows, columns):
    """More division than memory, of bfloat16: each row's elements by a row that all share."""
    r, c = make_range(0, rows), make_range(1, columns)
    builder = KernelBuilder(r, c)
    x = load(builder.param(dtypes.bfloat16, rows * columns), r * columns + c)
    a = load(builder.param(dtypes.bfloat16, columns), c)
    quotient = binary(Op.DIV, binary(Op.DIV, x, a), x + 1)
    builder.store(r * columns + c, quotient, rows * columns)
    return builder.kernel()


@pytest.mark.parametrize(
    ("rows", "columns", "taken", "steps"),
    [
        *((8, 2048, 4, 1), (2048, 8, 4, 1), (9, 2048, None, 4)),
        *((1, 16384, None, 4), (1, 16387, None, 4)),
        (7, 2048, None, 1),  # too few blocks would be left
    ],
)
def test_a_thread_of_a_heavy_kernel_takes_several_vectors(rows, columns, taken, steps):
    kernel = quotients(rows, columns)

    facts = cuda_pointwise.facts(kernel, SMALL)

    assert (facts.rows.extent if facts.rows else None, facts.steps) == (taken, steps)
    assert_plans_agree(kernel)


def test_rows_of_one_thread_share_what_is_the_same_in_each():
    kernel = quotients(8, 2048)

    (linear,) = cuda_pointwise.lower(cuda_pointwise.facts(kernel, SMALL), SMALL)

    loads = [each.operands[0].attrs.number for each in linear.statements if each.op is Op.LOAD]
    (x, a) = (each.operands[0].attrs.number for each in accesses_of(kernel.sink)[:2])
    assert (loads.count(x), loads.count(a)) == (4, 1)


def accesses_of(sink):
    return [node for node in walk((sink,)) if node.op is Op.LOAD]


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
    i = make_range(0, 150)
    builder = KernelBuilder(i)
    x = builder.param(dtypes.float32, 150, written=True)
    kernel = builder.kernel()
    store = binary(Op.ADD, load(x, i), const(dtypes.float32, 1))
    sink = type(x)(Op.SINK, dtypes.void, (type(x)(Op.STORE, dtypes.void, (x, i, store)),))
    kernel = dataclasses.replace(kernel, sink=sink)
    values = np.arange(150, dtype=np.float32)

    assert_plans_agree(kernel, [values])


# Turned tiles.
def transposition(rows, columns, dtype, batch=1):
    """out[b, c, r] = x[b, r, c] + bias[r], and the same doubled."""
    b, c, r = make_range(0, batch), make_range(1, columns), make_range(2, rows)
    builder = KernelBuilder(b, c, r)
    elements = batch * rows * columns
    x = load(builder.param(dtype, elements), (b * rows + r) * columns + c)
    value = x + load(builder.param(dtype, rows), r)
    place = (b * columns + c) * rows + r
    builder.store(place, value, elements)
    builder.store(place, value + x, elements)
    return builder.kernel()


TURNED = [(dtypes.float32, (72, 40)), (dtypes.bfloat16, (72, 40)), (dtypes.float64, (34, 34))]
TURNED += [(dtypes.float32, (144, 48)), (dtypes.int8, (64, 32)), (dtypes.float16, (64, 144))]


@pytest.mark.parametrize(("dtype", "shape"), TURNED, ids=str)
def test_a_transposition_is_turned_in_tiles(dtype, shape):
    kernel = transposition(*shape, dtype, batch=2)

    facts = cuda_turning.facts(kernel, SMALL)

    assert isinstance(facts, cuda_turning.CudaTurningFacts)
    assert_plans_agree(kernel)


def test_a_ragged_side_is_not_turned():
    kernel = transposition(33, 64, dtypes.float32)

    reason = cuda_turning.facts(kernel, SM90A)

    assert reason == "33 and 64 are not whole vectors of 4 elements."
    assert_plans_agree(kernel)


# Folds.
# Lanes of a warp, several warps, registers, loops; ragged and not, and many short rows.
SHAPES = [(1, 1), (0, 5), (33, 1), (3, 40), (5, 33), (2, 700), (40, 8), (1, 4099), (100, 9)]
CASES = [
    *[(combine, dtypes.float32) for combine in Combine if combine.value not in ("and", "or")],
    *[(combine, dtypes.int32) for combine in Combine],
    *[(Combine.ADD, dtype) for dtype in VALUE_DTYPES],
    *[(Combine.MAX, dtype) for dtype in VALUE_DTYPES],
    (Combine.ARGMAX, dtypes.bfloat16),
]


def case_name(case):
    return "-".join(each.name if hasattr(each, "name") else each.value for each in case)


def arrays_of(kernel, combine):
    """Integers whose fold is exact; for products few factors that are not one."""
    arrays = arrays_for(kernel)
    if combine is Combine.MUL:
        for each in arrays:
            each[...] = 1
            each[:: max(1, each.size // 8)] = 2
    return arrays


@pytest.mark.parametrize("make", [row_kernel, column_kernel])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("combine", [Combine.ADD, Combine.MAX, Combine.ARGMAX])
def test_a_fold_of_any_shape_has_the_same_bits(make, shape, combine):
    kernel = make(combine, *shape)

    assert_plans_agree(kernel)


@pytest.mark.parametrize("make", [row_kernel, column_kernel])
@pytest.mark.parametrize("case", CASES, ids=case_name)
def test_every_fold_of_every_dtype_has_the_same_bits(make, case):
    kernel = make(case[0], 5, 40, case[1])

    assert_plans_agree(kernel, arrays_of(kernel, case[0]))


@pytest.mark.parametrize("make", [row_kernel, column_kernel])
def test_a_sum_of_nothing_is_zero(make):
    shape = (5, 0) if make is row_kernel else (0, 5)
    kernel = make(Combine.ADD, *shape)

    for plan, launches in lowered(kernel):
        result = run(launches, [np.zeros(0, np.float32), np.ones(5, np.float32)])[1]
        np.testing.assert_array_equal(result, np.zeros(5, np.float32), plan.name)


def softmax_kernel(rows, columns, dtype=dtypes.float32, combine=Combine.ADD, by_row=True):
    """A maximum, a fold of the differences, and their sum, stored along the same axis."""
    r = make_range(0, rows)
    c = [make_range(1 + number, columns) for number in range(3)]
    builder = KernelBuilder(r, c[2])
    x = builder.param(dtype, rows * columns)
    at = [r * columns + each if by_row else each * rows + r for each in c]
    most = fold(Combine.MAX, load(x, at[0]), c[0])
    total = fold(combine, load(x, at[1]) - most, c[1])
    builder.store(at[2], load(x, at[2]) - most + total, rows * columns)
    return builder.kernel()


@pytest.mark.parametrize("shape", [(3, 64), (2, 1000), (5, 103), (40, 12), (1, 4099)], ids=str)
@pytest.mark.parametrize("by_row", [True, False])
def test_folds_that_need_one_another_run_over_the_same_rows(shape, by_row):
    assert_plans_agree(softmax_kernel(*shape, by_row=by_row))


def test_a_row_that_fits_registers_is_read_once():
    kernel = softmax_kernel(8, 8192)

    (linear,) = cuda_folding.lower(cuda_reduction.facts(kernel, SM90A), SM90A)

    loads = [each for each in linear.statements if each.op is Op.LOAD]
    from_memory = [each for each in loads if each.operands[0].op is Op.PARAM]
    assert len(from_memory) == 4
    assert {each.dtype.lanes for each in from_memory} == {4}


CHUNKED = [row_kernel(combine, 1, 8209) for combine in (Combine.ADD, Combine.MAX)]
CHUNKED += [row_kernel(Combine.ARGMAX, 2, 8209), softmax_kernel(1, 8209)]
CHUNKED += [column_kernel(Combine.ADD, 300, 72), softmax_kernel(40, 300, by_row=False)]


@pytest.mark.parametrize("kernel", CHUNKED, ids=range(len(CHUNKED)))
def test_few_long_folds_are_cut_into_chunks(kernel):
    several = dataclasses.replace(SM90A, multiprocessors=2)

    facts = cuda_reduction.facts(kernel, several)
    launches = cuda_folding.lower(facts, several)

    assert facts.chunks > 1
    assert len(launches) == facts.levels + 1
    arrays = arrays_for(kernel)
    assert_same(run(launches, arrays), expected(kernel, arrays), "chunked")


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda dtype: dtype.name)
def test_a_product_of_a_matrix_and_a_vector_folds_along_rows(dtype):
    m, k = make_range(0, 5), make_range(1, 72)
    builder = KernelBuilder(m)
    a = load(builder.param(dtype, 5 * 72), m * 72 + k)
    x = load(builder.param(dtype, 72), k)
    accumulate = dtypes.float64 if dtype is dtypes.float64 else dtypes.float32
    builder.store(m, contract(a, x, accumulate, m=(m,), k=(k,)), 5)

    assert_plans_agree(builder.kernel())


def test_nan_wins_and_the_first_one_has_the_position():
    kernel = row_kernel(Combine.ARGMAX, 3, 100)
    x = np.zeros(300, np.float32)
    x[[70, 40, 150, 299]] = [np.nan, np.nan, np.inf, -1]
    wanted = np.array([40, 50, 0], np.int64)

    for plan, launches in lowered(kernel):
        result = run(launches, [x, np.zeros(3, np.int64)])[1]
        np.testing.assert_array_equal(result, wanted, plan.name)


def test_a_fold_inside_another_runs_as_loops():
    r, c = make_range(0, 4), make_range(1, 30)
    builder = KernelBuilder()
    x = load(builder.param(dtypes.float32, 120), r * 30 + c)
    builder.store(index_const(0), fold(Combine.ADD, fold(Combine.MAX, x, c), r), 1)
    kernel = builder.kernel()

    declined = cuda_reduction.facts(kernel, SMALL)

    assert declined.startswith("a reduction runs inside another's ranges")
    assert_plans_agree(kernel)


# A form without its barrier is refused by the interpreter.
BARRED = [row_kernel(Combine.ADD, 2, 600), column_kernel(Combine.ADD, 50, 64)]
BARRED += [transposition(64, 32, dtypes.float32)]


@pytest.mark.parametrize("kernel", BARRED, ids=["rows", "columns", "turned"])
def test_without_its_barrier_a_form_races(kernel):
    _, (linear,) = next(lowered(kernel))
    kept = [each for each in linear.statements if each.op is not Op.BARRIER]
    assert len(kept) == len(linear.statements) - 1
    broken = dataclasses.replace(linear, statements=tuple(kept))

    with pytest.raises(InternalError):
        run((broken,), arrays_for(kernel))


# What the compiler makes of them.
LARGE = {
    "relu": relu_kernel(1 << 28),
    "sum": row_kernel(Combine.ADD, 1, 1 << 28),
    "columns": column_kernel(Combine.ADD, 8192, 8192, dtypes.bfloat16),
    "argmax": row_kernel(Combine.ARGMAX, 8192, 8192),
    "argmax of all": row_kernel(Combine.ARGMAX, 1, 1 << 24),
    "softmax": softmax_kernel(8192, 8192, dtypes.bfloat16),
    "softmax of all": softmax_kernel(1, 1 << 24),
    "softmax of columns": softmax_kernel(512, 8192, by_row=False),
    "transposition": transposition(8192, 8192, dtypes.float32),
    "transposition of halves": transposition(4096, 4096, dtypes.bfloat16),
    "beyond 32 bits": column_kernel(Combine.MAX, 1 << 16, 1 << 16, dtypes.int8),
}


@needs_nvrtc
@pytest.mark.parametrize("target", [SM80, SM90A], ids=lambda target: target.name)
@pytest.mark.parametrize("name", LARGE)
def test_all_values_of_a_thread_are_in_registers(name, target):
    kernel = wide_enough(LARGE[name])
    _, launches = next(lowered(kernel, target))
    source = emit_cuda([legal(each, target) for each in launches], "k", target).source

    cubin = cubin_of(source, target.name)

    assert frame_bytes(cubin) == 0


def wide_enough(kernel):
    """The kernel with an index dtype that holds all its indices."""
    is_large = max(each.elements for each in kernel.params) > 2**31
    return dataclasses.replace(kernel, index_dtype=dtypes.int64) if is_large else kernel


# Random kernels.
@given(st.one_of(pointwise_kernels(), fold_kernels(), row_kernels()))
@settings(max_examples=60, deadline=None)
def test_a_random_kernel_has_the_same_bits_in_every_gpu_plan(kernel):
    assert_plans_agree(kernel)


@pytest.mark.fuzz
@given(st.one_of(pointwise_kernels(), fold_kernels(), row_kernels()))
@settings(max_examples=3000, deadline=None)
def test_many_random_kernels_have_the_same_bits_in_every_gpu_plan(kernel):
    assert_plans_agree(kernel)
