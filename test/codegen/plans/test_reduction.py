"""Folds along rows and columns: their bits, their accuracy, and how they run."""

import numpy as np
import pytest
from codegen.machine import run_c, target
from codegen.plans.plan_kernels import (
    KernelBuilder,
    assert_plans_agree,
    contract,
    fold,
    load,
)

from tinytensor.codegen.plans import loops, reduction
from tinytensor.dtype import dtypes
from tinytensor.ops.attrs import Combine
from tinytensor.ops.interpret_linear import run_linear
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp, cast, index_const, make_range
from tinytensor.target import CPU_AVX512

COMBINES = tuple(Combine)
UNIT = 2.0**-24  # half the gap at 1: the error of one float32 rounding


def row_fold(combine, dtype, rows, columns):
    r, k = make_range(0, rows), make_range(1, columns)
    builder = KernelBuilder(r)
    source = builder.param(dtype, rows * columns)
    builder.store(r, fold(combine, load(source, r * columns + k), k), rows)
    return builder.kernel()


def column_fold(combine, dtype, rows, columns):
    k, c = make_range(0, rows), make_range(1, columns)
    builder = KernelBuilder(c)
    source = builder.param(dtype, rows * columns)
    builder.store(c, fold(combine, load(source, k * columns + c), k), columns)
    return builder.kernel()


def lanes_of(kernel):
    """(the lanes of kept ranges, the lanes of folds) that the plan chooses on 64-byte vectors."""
    facts = reduction.facts(kernel, CPU_AVX512)
    along = {node: (range_, lanes.count) for node, (range_, lanes) in facts.along.items()}
    return {range_: lanes.count for range_, lanes in facts.lanes.items()}, list(along.values())


@pytest.mark.parametrize("columns", [1, 2, 15, 16, 17, 127, 128, 129])
@pytest.mark.parametrize("combine", [Combine.ADD, Combine.MAX, Combine.ARGMIN])
def test_a_row_of_any_length_folds(combine, columns):
    assert_plans_agree(row_fold(combine, dtypes.float32, 3, columns))


@pytest.mark.parametrize("columns", [1, 2, 15, 16, 17, 127, 128, 129])
@pytest.mark.parametrize("combine", [Combine.ADD, Combine.MIN, Combine.ARGMAX])
def test_any_number_of_columns_folds(combine, columns):
    assert_plans_agree(column_fold(combine, dtypes.float32, 5, columns))


@pytest.mark.parametrize("combine", COMBINES)
@pytest.mark.parametrize("dtype", [dtypes.int8, dtypes.uint64, dtypes.bool])
def test_integers_fold_with_every_combine(dtype, combine):
    assert_plans_agree(row_fold(combine, dtype, 2, 70))
    assert_plans_agree(column_fold(combine, dtype, 7, 70))


@pytest.mark.parametrize("combine", [Combine.MAX, Combine.MIN, Combine.ARGMAX, Combine.ARGMIN])
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float16, dtypes.float64])
def test_extremes_of_nan_and_signed_zeros_are_exact(dtype, combine, seed):
    kernel = row_fold(combine, dtype, 40, 67)
    rng = np.random.default_rng(seed)
    edges = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0])
    chances = rng.dirichlet(np.full(7, 0.3), 40)
    rows = [rng.choice(edges, 67, p=each) for each in chances]
    source = np.concatenate(rows).astype(dtype.storage_numpy)
    result = np.zeros(40, kernel.params[1].dtype.storage_numpy)

    assert_plans_agree(kernel, [source, result])


def test_an_extreme_with_only_negative_zeros_is_negative_zero():
    linear = reduction.lower(
        reduction.facts(row_fold(Combine.MAX, dtypes.float32, 1, 33), CPU_AVX512), CPU_AVX512
    )
    result = np.ones(1, np.float32)

    run_linear(linear, [np.full(33, -0.0, np.float32), result])

    assert np.signbit(result[0])


@pytest.mark.parametrize("plan", [loops, reduction])
def test_a_sum_of_negative_zeros_is_positive_zero(plan):
    kernel = row_fold(Combine.ADD, dtypes.float32, 2, 33)
    linear = plan.lower(plan.facts(kernel, CPU_AVX512), CPU_AVX512)
    result = np.full(2, -1, np.float32)

    run_linear(linear, [np.full(66, -0.0, np.float32), result])

    assert not np.signbit(result).any()


def test_nothing_folded_gives_the_identity():
    assert_plans_agree(row_fold(Combine.ADD, dtypes.float32, 4, 0))
    assert_plans_agree(column_fold(Combine.MUL, dtypes.int32, 0, 9))


def test_no_rows_store_nothing():
    assert_plans_agree(row_fold(Combine.ADD, dtypes.float32, 0, 9))


def test_a_row_sum_runs_along_the_row():
    kept, folds = lanes_of(row_fold(Combine.ADD, dtypes.float32, 64, 1024))

    assert kept == {}
    assert folds == [(make_range(1, 1024), 16)]


def test_a_column_sum_runs_along_the_columns():
    kept, folds = lanes_of(column_fold(Combine.ADD, dtypes.float32, 64, 1024))

    assert kept == {make_range(1, 1024): 16}
    assert folds == []


def test_the_positions_of_an_extreme_narrow_the_vectors_of_bytes():
    _, folds = lanes_of(row_fold(Combine.ARGMAX, dtypes.int8, 64, 1024))

    assert folds == [(make_range(1, 1024), 16)]


def test_a_sum_over_all_axes_runs_as_one_range():
    r, c = make_range(0, 30), make_range(1, 50)
    builder = KernelBuilder()
    source = builder.param(dtypes.float32, 1500)
    builder.store(index_const(0), fold(Combine.ADD, load(source, r * 50 + c), r, c), 1)
    kernel = builder.kernel()

    _, folds = lanes_of(kernel)

    assert [range_.extent for range_, _ in folds] == [1500]
    assert_plans_agree(kernel)


@pytest.mark.parametrize("make", [row_fold, column_fold], ids=["row", "column"])
def test_a_long_sum_of_equal_values_is_nearly_exact(make):
    """Sequential float32 addition would stop growing at 2**24 times the value, and err by 1e-3."""
    count = 300_000
    kernel = make(Combine.ADD, dtypes.float32, *((1, count) if make is row_fold else (count, 2)))
    linear = reduction.lower(reduction.facts(kernel, target()), target())
    source = np.full(kernel.params[0].elements, np.float32(0.1))
    result = np.zeros(kernel.params[1].elements, np.float32)

    run_c(linear, [source, result])

    exact = count * float(np.float32(0.1))
    # Blocks of isqrt(count) values, then their sums: so many roundings, each of a partial sum.
    bound = 2 * np.sqrt(count) * UNIT * exact
    assert np.all(np.abs(result.astype(np.float64) - exact) <= bound)


def test_folds_of_several_ranges_out_of_order_agree():
    a, b, c = make_range(0, 6), make_range(1, 20), make_range(2, 9)
    builder = KernelBuilder(b)
    source = builder.param(dtypes.float32, 6 * 20 * 9)
    element = load(source, a * 180 + b * 9 + c)
    builder.store(b, fold(Combine.ADD, element, c, a), 20)

    assert_plans_agree(builder.kernel())


def test_a_fold_of_a_fold_agrees():
    r, j, k = make_range(0, 5), make_range(1, 7), make_range(2, 18)
    builder = KernelBuilder(r)
    source = builder.param(dtypes.int32, 5 * 7 * 18)
    most = fold(Combine.MAX, load(source, r * 126 + j * 18 + k), k)
    builder.store(r, fold(Combine.ADD, most * most, j), 5)

    assert_plans_agree(builder.kernel())


def test_several_folds_and_stores_of_different_dtypes_agree():
    r, j, k = make_range(0, 5), make_range(1, 40), make_range(2, 40)
    builder = KernelBuilder(r)
    source = builder.param(dtypes.float16, 200)
    total = fold(Combine.ADD, cast(load(source, r * 40 + j), dtypes.float32), j)
    place = fold(Combine.ARGMAX, load(source, r * 40 + k), k)
    builder.store(r, total, 5)
    builder.store(r, place, 5)
    builder.store(r, total < cast(place, dtypes.float32), 5)

    assert_plans_agree(builder.kernel())


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.bfloat16, dtypes.int16])
def test_matrix_times_vector_agrees_both_ways(dtype):
    r, c = make_range(0, 21), make_range(1, 35)
    accumulate = dtype if dtype.is_int else dtypes.float32
    for kept, folded in ((r, c), (c, r)):
        builder = KernelBuilder(kept)
        a = load(builder.param(dtype, 21 * 35), r * 35 + c)
        b = load(builder.param(dtype, folded.extent), folded)
        builder.store(kept, contract(a, b, accumulate, m=(kept,), k=(folded,)), kept.extent)

        assert_plans_agree(builder.kernel())


def test_wide_indices_agree():
    r, k = make_range(0, 6), make_range(1, 90)
    builder = KernelBuilder(r, index_dtype=dtypes.int64)
    source = builder.param(dtypes.float32, 540)
    element = load(source, r * 90 + k) + cast(k, dtypes.float32)
    builder.store(r, fold(Combine.ADD, element, k), 6)

    assert_plans_agree(builder.kernel())


def softmax(rows, columns):
    r, c, j, k = make_range(0, rows), *[make_range(i, columns) for i in (1, 2, 3)]
    builder = KernelBuilder(r, c)
    source = builder.param(dtypes.float32, rows * columns)

    def above(range_, most):
        return UOp(Op.EXP, dtypes.float32, (load(source, r * columns + range_) - most,))

    most = fold(Combine.MAX, load(source, r * columns + j), j)
    total = fold(Combine.ADD, above(k, most), k)
    value = UOp(Op.DIV, dtypes.float32, (above(c, most), total))
    builder.store(r * columns + c, value, rows * columns)
    return builder.kernel()


def test_a_softmax_keeps_its_exponentials():
    facts = reduction.facts(softmax(8, 100), CPU_AVX512)

    (kept,) = facts.residents
    assert kept.twin.op is Op.EXP
    assert kept.stored is make_range(1, 100)


def test_a_row_too_long_for_the_cache_is_not_kept():
    assert reduction.facts(softmax(8, 2**20), CPU_AVX512).residents == ()


def test_a_softmax_sums_to_one(seed):
    kernel = softmax(4, 100)
    linear = reduction.lower(reduction.facts(kernel, CPU_AVX512), CPU_AVX512)
    source = np.random.default_rng(seed).standard_normal(400).astype(np.float32)
    result = np.zeros(400, np.float32)

    run_linear(linear, [source, result])

    powers = np.exp(source.reshape(4, 100).astype(np.float64))
    want = powers / powers.sum(1, keepdims=True)
    # Each factor is within 2 ulp, the sum of 7 levels of halves within 7 more, the quotient 1.
    np.testing.assert_allclose(result.reshape(4, 100), want, rtol=24 * UNIT)


def test_a_kernel_without_a_fold_is_of_another_kind():
    r = make_range(0, 8)
    builder = KernelBuilder(r)
    builder.store(r, load(builder.param(dtypes.int32, 8), r), 8)

    assert reduction.facts(builder.kernel(), CPU_AVX512) is None


def shares(rows, columns, same_range=True):
    """Each element's share of its row after EXP, and the row's sum: a row kernel of two stores."""
    r, c, k = make_range(0, rows), make_range(1, columns), make_range(2, columns)
    again = k if same_range else make_range(3, columns)
    builder = KernelBuilder(r, c)
    source = builder.param(dtypes.float32, rows * columns)
    highest = fold(Combine.MAX, load(source, r * columns + k), k)

    def power(at):
        return UOp(Op.EXP, dtypes.float32, (load(source, r * columns + at) - highest,))

    total = fold(Combine.ADD, power(again), again)
    builder.store(r, total, rows)
    share = UOp(Op.DIV, dtypes.float32, (power(c), total))
    builder.store(r * columns + c, share, rows * columns)
    return builder.kernel()


def equal_rows(kernel):
    """Rows of equal elements: their exponentials are 1, and any order gives the same sums."""
    (rows,) = [param.elements for param in kernel.params[1:2]]
    elements = kernel.params[0].elements
    source = np.repeat(np.arange(rows, dtype=np.float32), elements // rows)
    return [source, np.zeros(rows, np.float32), np.zeros(elements, np.float32)]


@pytest.mark.parametrize("same_range", [True, False])
@pytest.mark.parametrize("columns", [1, 7, 16, 33, 64, 65, 200])
def test_a_row_kernel_has_the_bits_of_its_meaning(columns, same_range):
    kernel = shares(19, columns, same_range)

    assert_plans_agree(kernel, equal_rows(kernel))


def test_an_exponential_of_a_long_row_is_kept_for_the_store():
    facts = reduction.facts(shares(19, 1000), CPU_AVX512)

    (kept,) = facts.residents
    assert (kept.value.op, kept.folded.extent, kept.stored.extent) == (Op.EXP, 1000, 1000)


def test_short_rows_stay_in_registers_several_at_once():
    facts = reduction.facts(shares(19, 32), CPU_AVX512)

    widths = {(lanes.count, lanes.vectors) for _, lanes in facts.along.values()}

    assert facts.residents == ()
    assert widths == {(16, 2)}
    assert max(lanes.vectors for lanes in facts.lanes.values() if lanes.count == 1) == 8


def test_folds_over_one_range_share_a_loop():
    r, k = make_range(0, 4), make_range(1, 1000)
    builder = KernelBuilder(r)
    source = builder.param(dtypes.float32, 4000)
    for combine in (Combine.ADD, Combine.MAX, Combine.MIN):
        builder.store(r, fold(combine, load(source, r * 1000 + k), k), 4)
    kernel = builder.kernel()

    linear = reduction.lower(reduction.facts(kernel, CPU_AVX512), CPU_AVX512)

    assert [each.op for each in linear.statements].count(Op.LOOP) == 2
    assert_plans_agree(kernel)


def test_a_result_of_a_row_is_stored_outside_the_loop_over_its_elements():
    linear = loops.lower(shares(3, 5), CPU_AVX512)

    ops = [each.op for each in linear.statements if each.op in (Op.LOOP, Op.ENDLOOP, Op.STORE)]

    assert ops[-5:] == [Op.STORE, Op.LOOP, Op.STORE, Op.ENDLOOP, Op.ENDLOOP]
