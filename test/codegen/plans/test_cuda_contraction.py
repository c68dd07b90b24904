"""The contraction plans of a GPU: a grid of blocks gives the INDEXED interpreter's sums."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from codegen.gpu_machine import TARGETS, cubin_of, frame_bytes, program_of, run_on_device
from codegen.plans.plan_kernels import arrays_for, expected, load
from codegen.plans.test_contraction import gram, plain, relu, square
from runtime.cuda.programs import needs_nvrtc

from tinytensor.codegen.legalize_tiles import legalize_tiles
from tinytensor.codegen.plans import cuda_contraction, cuda_ffma
from tinytensor.codegen.plans.tiling_cuda import (
    DOUBLE_TILINGS,
    DOUBLE_TILINGS_THROUGH_REGISTERS,
    FMA_TILINGS,
    FMA_TILINGS_THROUGH_REGISTERS,
    MMA_TILINGS,
    MMA_TILINGS_THROUGH_REGISTERS,
    FmaTiling,
    MmaTiling,
)
from tinytensor.dtype import dtypes
from tinytensor.ops.interpret_blocks import run_blocks, run_launches
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp, cast, index_const
from tinytensor.ops.verify import verify_linear
from tinytensor.runtime.device import Device
from tinytensor.target import CPU_AVX512, SM80, SM90A

MMA = MmaTiling("smallest", 32, 32, 16, 1, 1, stages=3)
MMA_WARPS = MmaTiling("two by two warps", 64, 32, 32, 2, 2, stages=2, group=2)
FMA = FmaTiling("smallest", 16, 32, 16, 4, 4, stages=3)
FMA_SQUARE = FmaTiling("smallest square", 32, 32, 16, 4, 4, stages=2)
FMA_WARPS = FmaTiling("two by two warps", 32, 64, 16, 4, 4, stages=2, group=2)
SLICED = [
    FmaTiling("four slices of a warp", 32, 32, 32, 8, 4, stages=3, slices=4),
    FmaTiling("two slices of two warps", 32, 32, 16, 4, 4, stages=4, slices=2),
]
SIZES = [(32, 32, 32), (33, 17, 18), (40, 72, 50), (7, 90, 5)]


def mma_lowered(kernel, tiling=MMA, target=SM80):
    facts = cuda_contraction.facts(kernel, target)
    assert facts is not None
    assert not isinstance(facts, str), facts
    (linear,) = cuda_contraction.lower(facts, target, tiling)
    return linear


def fma_lowered(kernel, tiling=FMA, target=SM80):
    facts = cuda_ffma.facts(kernel, target)
    assert not isinstance(facts, str), facts
    (linear,) = cuda_ffma.lower(facts, target, tiling)
    return linear


def assert_runs_exactly(kernel, linear):
    """Integer-valued inputs: the INDEXED interpreter's bits, whatever the order of the sum."""
    verify_linear(linear)
    arrays = arrays_for(kernel)
    results = [each.copy() for each in arrays]

    run_blocks(linear, results)

    for result, want in zip(results, expected(kernel, arrays), strict=True):
        np.testing.assert_array_equal(result, want, strict=True)


def assert_mma_exact(kernel, tiling=MMA, target=SM80):
    """Both levels: collective ops on tiles, and the thread ops they become."""
    linear = mma_lowered(kernel, tiling, target)
    assert_runs_exactly(kernel, linear)
    assert_runs_exactly(kernel, legalize_tiles(linear, target))


def assert_fma_exact(kernel, tiling=FMA):
    assert_runs_exactly(kernel, fma_lowered(kernel, tiling))


def half(m, n, k, transposed_a=False, transposed_b=False, dtype=dtypes.float16):
    return plain(m, n, k, transposed_a, transposed_b, dtype)


# Layouts and sizes.
@pytest.mark.parametrize("transposed_b", [False, True])
@pytest.mark.parametrize("transposed_a", [False, True])
@pytest.mark.parametrize("sizes", SIZES)
def test_matrix_instructions_sum_every_layout_and_ragged_size(sizes, transposed_a, transposed_b):
    assert_mma_exact(half(*sizes, transposed_a, transposed_b))


@pytest.mark.parametrize("transposed_b", [False, True])
@pytest.mark.parametrize("transposed_a", [False, True])
@pytest.mark.parametrize("sizes", SIZES)
def test_threads_sum_every_layout_and_ragged_size(sizes, transposed_a, transposed_b):
    assert_fma_exact(plain(*sizes, transposed_a, transposed_b))


@pytest.mark.parametrize("tiling", SLICED, ids=lambda each: each.name)
@pytest.mark.parametrize("transposed_b", [False, True])
@pytest.mark.parametrize("sizes", [(33, 70, 80), (32, 64, 1), (40, 36, 256), (5, 5, 0)])
def test_slices_of_k_are_folded(sizes, transposed_b, tiling):
    assert_fma_exact(plain(*sizes, False, transposed_b), tiling)
    assert_fma_exact(gram(max(sizes[:2]), sizes[2], biased=True), tiling)


@pytest.mark.parametrize("k", [0, 1, 16, 17, 80])
def test_any_number_of_stages_is_summed(k):
    assert_mma_exact(half(32, 32, k))
    assert_fma_exact(plain(16, 32, k))


@pytest.mark.parametrize("transposed", [False, True])
def test_warps_share_a_block(transposed):
    assert_mma_exact(half(150, 40, 70, transposed, not transposed), MMA_WARPS)
    assert_fma_exact(plain(70, 100, 20, transposed, not transposed), FMA_WARPS)


def test_the_other_half_has_its_own_instruction():
    assert_mma_exact(half(33, 34, 35, dtype=dtypes.bfloat16))


def double(m, n, k, transposed_a=False, transposed_b=False):
    return plain(m, n, k, transposed_a, transposed_b, dtypes.float64)


@pytest.mark.parametrize("target", TARGETS, ids=lambda each: each.name)
@pytest.mark.parametrize("transposed_b", [False, True])
@pytest.mark.parametrize("transposed_a", [False, True])
@pytest.mark.parametrize("sizes", SIZES[1:])
def test_doubles_are_summed_by_both_instructions(sizes, transposed_a, transposed_b, target):
    assert_mma_exact(double(*sizes, transposed_a, transposed_b), target=target)


@pytest.mark.parametrize("k", [0, 1, 16, 17, 80])
def test_doubles_of_any_number_of_stages_are_summed(k):
    assert_mma_exact(double(32, 32, k, False, True), target=SM90A)


@pytest.mark.parametrize("transposed", [False, True])
def test_warps_share_a_block_of_doubles(transposed):
    assert_mma_exact(double(100, 40, 36, transposed, not transposed), MMA_WARPS, SM90A)


DTYPES = (dtypes.float16, dtypes.float64, dtypes.int8, dtypes.int32, dtypes.int64, dtypes.uint16)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda each: each.name)
def test_threads_sum_every_dtype(dtype, transposed):
    assert_fma_exact(plain(17, 34, 18, transposed, transposed, dtype))


WORDS = ["mma", "fma", "mma of doubles"]
KINDS = [dtypes.float16, dtypes.float32, dtypes.float64]


def accumulated(dtype):
    return dtypes.float32 if dtype.is_half else dtype


@pytest.mark.parametrize("broadcast", [False, True])
@pytest.mark.parametrize("dtype", KINDS, ids=WORDS)
def test_a_batch_takes_blocks_of_its_own(dtype, broadcast):
    product = square(33, 24, 16, 2, 3)
    outer, inner = product.batch
    a = product.operand(dtype, outer, inner, product.m, product.k)
    b_batch = (inner,) if broadcast else (outer, inner)
    b = product.operand(dtype, *b_batch, product.n, product.k)
    total = product.contract(a, b, accumulated(dtype))
    product.store(total)
    kernel = product.kernel(total)

    if dtype is dtypes.float32:
        assert_fma_exact(kernel)
    else:
        assert_mma_exact(kernel)


# Around the sum.
def biased(m, n, k, dtype=dtypes.float16):
    """relu(round(a @ b.T) + bias), rounded to the factors' dtype before and after the bias."""
    product = square(m, n, k)
    a = product.operand(dtype, product.m, product.k)
    b = product.operand(dtype, product.n, product.k)
    total = product.contract(a, b, accumulated(dtype))
    product.store(relu(cast(total, dtype) + product.operand(dtype, product.n)))
    return product.kernel(total)


@pytest.mark.parametrize("sizes", [(32, 32, 16), (40, 38, 20), (33, 35, 8)])
def test_an_epilogue_runs_on_the_sums(sizes):
    assert_mma_exact(biased(*sizes))
    assert_mma_exact(biased(*sizes, dtypes.float64), target=SM90A)
    assert_fma_exact(biased(*sizes, dtypes.float32))


def test_a_bias_is_read_before_the_sum():
    statements = mma_lowered(biased(32, 32, 32)).statements
    loop = next(i for i, node in enumerate(statements) if node.op is Op.LOOP)
    loads = [i for i, node in enumerate(statements) if node.op is Op.LOAD]

    assert loads
    assert max(loads) < loop


def two_stores(dtype):
    product = square(40, 36, 24)
    m, n = product.m, product.n
    a = product.operand(dtype, m, product.k)
    b = product.operand(dtype, product.k, n)
    total = product.contract(a, b, accumulated(dtype))
    residual = product.operand(total.dtype, m, n)
    product.store(total + residual)
    product.store(cast(total * 2.0, dtypes.int8), n, m)
    return product.kernel(total)


def test_several_stores_share_the_sum():
    assert_mma_exact(two_stores(dtypes.bfloat16))
    assert_mma_exact(two_stores(dtypes.float64))
    assert_fma_exact(two_stores(dtypes.float32))


def test_the_sum_may_be_rounded_between_two_steps():
    product = square(33, 40, 64)
    a = product.operand(dtypes.float16, product.m, product.k)
    b = product.operand(dtypes.float16, product.k, product.n)
    total = product.contract(a, b, dtypes.float32)
    rounded = cast(total * 1001.0, dtypes.float16)
    product.store(cast(rounded, dtypes.float32) - 0.5)

    assert_mma_exact(product.kernel(total))


def whole(m, n, k, factors, summed, turned=(False, True)):
    """A product of factors of two dtypes, whose sum is stored as it is."""
    product = square(m, n, k)
    x = product.operand(
        factors[0], *((product.k, product.m) if turned[0] else (product.m, product.k))
    )
    y = product.operand(
        factors[1], *((product.n, product.k) if turned[1] else (product.k, product.n))
    )
    total = product.contract(x, y, summed)
    product.store(total)
    return product.kernel(total)


def scaled(m, n, k, factor, summed):
    """A product that is scaled by rows and columns, and rounded to bfloat16."""
    product = square(m, n, k)
    x = product.operand(factor, product.m, product.k)
    y = product.operand(factor, product.n, product.k)
    total = product.contract(x, y, summed)
    by_row = cast(total, dtypes.float32) * product.operand(dtypes.float32, product.m)
    product.store(cast(by_row * product.operand(dtypes.float32, product.n), dtypes.bfloat16))
    return product.kernel(total)


def prologue(dtype):
    """(relu(a) of rows of k) @ (b + 1 of any dtype, turned)."""
    product = square(35, 34, 22)
    a = relu(product.operand(dtype, product.m, product.k))
    b = cast(product.operand(dtypes.int8, product.n, product.k), dtype) + 1.0
    total = product.contract(a, b, accumulated(dtype))
    product.store(total)
    return product.kernel(total)


@pytest.mark.parametrize("dtype", [dtypes.bfloat16, dtypes.float64], ids=lambda each: each.name)
@pytest.mark.parametrize("tiling", [MMA, MMA_WARPS], ids=lambda each: each.name)
def test_a_prologue_runs_on_the_way_to_the_tile(tiling, dtype):
    assert_mma_exact(prologue(dtype), tiling)


@pytest.mark.parametrize("tiling", [FMA, FMA_WARPS], ids=lambda each: each.name)
def test_a_prologue_runs_before_threads_sum(tiling):
    assert_fma_exact(prologue(dtypes.float32), tiling)


@pytest.mark.parametrize("dtype", KINDS, ids=WORDS)
def test_a_guarded_operand_reads_zero_outside(dtype):
    product = square(33, 34, 35)
    k, n = product.k, product.n
    a = product.operand(dtype, product.m, k)
    shifted = n + index_const(-2)
    guard = (index_const(-1) < shifted) & (shifted < 31)
    b = load(product.builder.param(dtype, 35 * 31), k * 31 + shifted, guard)
    total = product.contract(a, b, accumulated(dtype))
    product.store(total)
    kernel = product.kernel(total)

    if dtype is dtypes.float32:
        assert_fma_exact(kernel)
    else:
        assert_mma_exact(kernel)


def test_wide_indices_are_computed_in_int64():
    kernel = replace(biased(33, 34, 35), index_dtype=dtypes.int64)

    assert_mma_exact(kernel)


# Symmetric products.
@pytest.mark.parametrize("n", [32, 64, 90])
def test_half_of_a_symmetric_product_is_computed_and_mirrored(n):
    assert_mma_exact(gram(n, 20, dtypes.float16, biased=True))
    assert_mma_exact(gram(n, 20, dtypes.float64, biased=True), target=SM90A)
    assert_fma_exact(gram(n, 20, biased=True), FMA_SQUARE)


def test_a_symmetric_product_has_half_the_blocks():
    assert mma_lowered(gram(96, 16, dtypes.float16)).grid.blocks == (6, 1, 1)
    assert fma_lowered(gram(96, 16), FMA_SQUARE).grid.blocks == (6, 1, 1)


def test_tiles_that_are_not_square_compute_all_of_a_symmetric_product():
    assert fma_lowered(gram(96, 16), FMA).grid.blocks == (18, 1, 1)
    assert_fma_exact(gram(33, 16))


# Factors rewritten by a launch of their own.
def assert_packed_exact(kernel, launches, monkeypatch):
    monkeypatch.setattr(cuda_contraction, "PACKED_PRODUCTS", 1)
    forms = cuda_contraction.lower(cuda_contraction.facts(kernel, SM80), SM80, MMA)
    arrays = arrays_for(kernel)
    results = [each.copy() for each in arrays]

    for form in forms:
        verify_linear(form)
    run_launches(forms, results)

    assert len(forms) == launches
    for result, want in zip(results, expected(kernel, arrays), strict=True):
        np.testing.assert_array_equal(result, want, strict=True)


@pytest.mark.parametrize("transposed", [False, True])
def test_rows_of_odd_pitch_are_rewritten_first(transposed, monkeypatch):
    assert_packed_exact(half(33, 35, 37, transposed, not transposed), 3, monkeypatch)


def test_only_the_factor_that_needs_it_is_rewritten(monkeypatch):
    assert_packed_exact(half(40, 35, 40), 2, monkeypatch)


def test_doubles_of_any_pitch_are_copied_as_they_lie(monkeypatch):
    assert_packed_exact(double(33, 35, 37, True, False), 1, monkeypatch)


def test_a_prologue_is_computed_once(monkeypatch):
    assert_packed_exact(prologue(dtypes.float16), 3, monkeypatch)


def test_each_of_a_batch_is_rewritten(monkeypatch):
    product = square(9, 10, 11, 2, 3)
    outer, inner = product.batch
    a = product.operand(dtypes.float16, outer, inner, product.m, product.k)
    b = product.operand(dtypes.float16, inner, product.n, product.k)
    total = product.contract(a, b, dtypes.float32)
    product.store(total)

    assert_packed_exact(product.kernel(total), 3, monkeypatch)


# Declines.
def test_a_target_or_dtype_without_a_matrix_instruction_is_declined():
    assert cuda_contraction.facts(half(8, 8, 8), replace(CPU_AVX512, name="x")) == (
        "x has no matrix instructions."
    )
    assert cuda_contraction.facts(plain(8, 8, 8), SM80) == (
        "no matrix instruction takes factors of float32 and float32."
    )


def test_a_vector_is_declined_by_both():
    reason = "the product has no m range: a matrix-vector product, which has no tile."

    assert cuda_contraction.facts(half(1, 8, 8), SM80) == reason
    assert cuda_ffma.facts(plain(1, 8, 8), SM80) == reason


def test_a_kernel_without_a_contraction_is_of_another_kind():
    kernel = replace(plain(8, 8, 8), contraction=None)

    assert cuda_contraction.facts(kernel, SM80) is None
    assert cuda_ffma.facts(kernel, SM80) is None


def test_a_plan_says_what_a_block_computes():
    odd = cuda_contraction.facts(half(1001, 999, 1003), SM90A)
    large = cuda_ffma.facts(plain(4096, 4096, 4096), SM90A)

    assert cuda_contraction.describe(odd, SM90A) == (
        "m16n8k16.f16, block 128 x 64 x 64 (tall), 4 stages, warps 2 x 2; 2 of 2 factors rewritten "
        "in rows before. Sums may be truncated where others round."
    )
    doubles = cuda_contraction.facts(double(1001, 999, 1003), SM90A)
    assert cuda_contraction.describe(doubles, SM90A) == (
        "m16n8k4.f64, block 64 x 64 x 32 (deep), 3 stages, warps 2 x 2."
    )
    assert cuda_contraction.describe(doubles, SM80).startswith("m8n8k4.f64, ")
    assert cuda_ffma.describe(large, SM90A) == (
        "block 128 x 128 x 8 (large), 4 stages, 8 x 16 sums a thread."
    )


@pytest.mark.parametrize("layout", [(0, 0), (0, 1)], ids=["NN", "NT"])
def test_what_a_measurement_may_choose_sums_exactly(layout):
    kernel = plain(40, 72, 40, *layout)
    facts = cuda_ffma.facts(kernel, SM90A)
    listed = cuda_ffma.candidates(facts, SM90A)

    for tiling in listed[len(FMA_TILINGS) :: 31]:
        linear = fma_lowered(kernel, tiling, SM90A)
        assert linear.grid.shared_bytes <= SM90A.shared_bytes
        assert_runs_exactly(kernel, linear)


def test_factors_that_pass_through_registers_have_two_stages():
    facts = cuda_ffma.facts(prologue(dtypes.float32), SM90A)

    listed = cuda_ffma.candidates(facts, SM90A)

    assert {each.stages for each in listed} == {2}
    assert len(listed) >= 24


def test_an_empty_result_is_declined():
    assert cuda_ffma.facts(plain(0, 8, 8), SM80) == "the result is empty."


@pytest.mark.parametrize(
    ("dtype", "resident"), [(dtypes.float32, 2), (dtypes.float64, 1)], ids=lambda each: str(each)
)
def test_registers_are_left_for_the_blocks_a_multiprocessor_can_hold(dtype, resident):
    (large_tiling,) = [each for each in FMA_TILINGS if each.name == "large"]

    linear = fma_lowered(plain(256, 256, 64, 0, 0, dtype), large_tiling, SM90A)

    assert linear.grid.resident == resident
    assert f"__launch_bounds__(128, {resident})" in program_of(linear, SM90A).source


@pytest.mark.parametrize(("rows", "columns"), [(8, 8), (8, 4), (4, 4), (3, 8)])
def test_each_sum_of_a_thread_shares_a_factor_with_the_one_before(rows, columns):
    walked = list(cuda_ffma._walk(rows, columns))

    assert sorted(walked) == [(row, column) for row in range(rows) for column in range(columns)]
    for (row, column), (next_row, next_column) in itertools.pairwise(walked):
        assert (row == next_row) != (column == next_column)


@pytest.mark.parametrize(("parts", "runs"), [(1, 1), (4, 4), (15, 15)])
def test_copies_are_begun_between_multiply_adds(parts, runs):
    tiling = replace(FMA, block_m=128, rows=16, copy_parts=parts)

    linear = fma_lowered(plain(128, 64, 128), tiling)

    loop = [node.op for node in body_of_the_last_loop(linear)]
    groups = itertools.groupby([op for op in loop if op in (Op.COPY_ASYNC, Op.FMA)])
    assert [op for op, _ in groups].count(Op.COPY_ASYNC) == runs
    assert (Op.IF in loop) == (parts == 1)


def body_of_the_last_loop(linear):
    ops = [node.op for node in linear.statements]
    end = len(ops) - ops[::-1].index(Op.ENDLOOP)
    begin = len(ops) - ops[::-1].index(Op.LOOP)
    return linear.statements[begin:end]


@pytest.mark.parametrize(("n", "exchanged"), [(64, 16), (63, 0)])
def test_sums_stored_in_vectors_are_parted_from_their_stores(n, exchanged):
    linear = fma_lowered(plain(32, n, 32))

    exchanges = [node for node in linear.statements if node.op is Op.EXCHANGE]
    assert len(exchanges) == exchanged
    assert {node.attrs.distance for node in exchanges} <= {0}


# Compiled.
@needs_nvrtc
@pytest.mark.parametrize("target", TARGETS, ids=lambda each: each.name)
@pytest.mark.parametrize("tiling", MMA_TILINGS, ids=lambda each: each.name)
def test_matrix_instructions_need_no_stack(tiling, target):
    program = program_of(mma_lowered(biased(1024, 1024, 768), tiling, target), target)

    assert frame_bytes(cubin_of(program.source, target.name)) == 0


@needs_nvrtc
@pytest.mark.parametrize("target", TARGETS, ids=lambda each: each.name)
@pytest.mark.parametrize("tiling", DOUBLE_TILINGS, ids=lambda each: each.name)
def test_matrix_instructions_on_doubles_need_no_stack(tiling, target):
    kernel = biased(1024, 1024, 768, dtypes.float64)
    program = program_of(mma_lowered(kernel, tiling, target), target)

    assert frame_bytes(cubin_of(program.source, target.name)) == 0


WIDE_FMA = FmaTiling("wide", 128, 256, 8, 8, 16, stages=4)


@needs_nvrtc
@pytest.mark.parametrize("tiling", [*FMA_TILINGS, WIDE_FMA], ids=lambda each: each.name)
def test_sums_of_threads_need_no_stack(tiling):
    program = program_of(fma_lowered(biased(1024, 1024, 768, dtypes.float32), tiling, SM90A), SM90A)

    assert frame_bytes(cubin_of(program.source, SM90A.name)) == 0


COMPUTED = [
    *[(dtypes.bfloat16, each) for each in MMA_TILINGS_THROUGH_REGISTERS],
    *[(dtypes.float64, each) for each in DOUBLE_TILINGS_THROUGH_REGISTERS],
]


@needs_nvrtc
@pytest.mark.parametrize(("dtype", "tiling"), COMPUTED, ids=lambda each: each.name)
def test_a_prologue_needs_no_stack_before_matrix_instructions(dtype, tiling):
    program = program_of(mma_lowered(prologue(dtype), tiling, SM90A), SM90A)

    assert frame_bytes(cubin_of(program.source, SM90A.name)) == 0


@needs_nvrtc
@pytest.mark.parametrize("tiling", FMA_TILINGS_THROUGH_REGISTERS, ids=lambda each: each.name)
def test_a_prologue_needs_no_stack_before_sums_of_threads(tiling):
    program = program_of(fma_lowered(prologue(dtypes.float32), tiling, SM90A), SM90A)

    assert frame_bytes(cubin_of(program.source, SM90A.name)) == 0


@pytest.mark.gpu
@pytest.mark.parametrize("sizes", [(1024, 1024, 768), (300, 200, 100), (129, 127, 65)])
def test_the_device_gives_the_exact_sums(sizes):
    """Integer-valued inputs, whose sums are exact in any order."""
    kernel = half(*sizes, transposed_b=True)
    arrays = arrays_for(kernel)
    linear = mma_lowered(kernel, None, Device["CUDA"].target)

    result = run_on_device(linear, arrays)[2]

    m, n, k = sizes
    a, b = (each.astype(np.float64) for each in arrays[:2])
    np.testing.assert_array_equal(result.reshape(m, n), a.reshape(m, k) @ b.reshape(n, k).T)


@pytest.mark.gpu
@pytest.mark.parametrize("layout", [(0, 0), (0, 1), (1, 0), (1, 1)], ids=["NN", "NT", "TN", "TT"])
def test_the_device_sums_doubles_as_closely_as_float64_allows(layout, seed):
    """Whole numbers of 26 bits, whose products alone fill a double, against exact integers."""
    m, n, k = 129, 127, 65
    kernel = double(m, n, k, *layout)
    random = np.random.default_rng(seed)
    a = random.integers(-(2**26), 2**26, (m, k))
    b = random.integers(-(2**26), 2**26, (k, n))
    arrays = arrays_for(kernel)
    arrays[0] = (a.T if layout[0] else a).astype(np.float64).reshape(-1)
    arrays[1] = (b.T if layout[1] else b).astype(np.float64).reshape(-1)
    linear = mma_lowered(kernel, None, Device["CUDA"].target)

    result = run_on_device(linear, arrays)[2].reshape(m, n)

    bound = k * np.finfo(np.float64).eps * (np.abs(a).astype(float) @ np.abs(b).astype(float))
    assert (np.abs(result - a.astype(object).dot(b.astype(object))) <= bound).all()


# Programs with one mistake must not pass.
def without(linear, op, number):
    """The form with one of its statements of an op left out."""
    found = [node for node in linear.statements if node.op is op]
    statements = tuple([node for node in linear.statements if node is not found[number]])
    return replace(linear, statements=statements)


def rebuilt(linear, change):
    """The form with every node changed, operands first."""
    nodes = {}
    for node in linear.statements:
        nodes[node] = change(node.replace(tuple([nodes[each] for each in node.operands])))
    return replace(linear, statements=tuple([nodes[each] for each in linear.statements]))


def assert_a_swizzle_matters(kernel, tiling):
    """Tiles that are written swizzled, and read as if they were not, mix elements up."""
    arrays = arrays_for(kernel)

    def read_unswizzled(node):
        if node.op is not Op.TILE_MMA:
            return node
        accumulator, tile, *rest = node.operands
        plain_tile = UOp(tile.op, tile.dtype, (), replace(tile.attrs, swizzle=False))
        return node.replace((accumulator, plain_tile, *rest))

    twin = rebuilt(mma_lowered(kernel, tiling), read_unswizzled)
    results = [each.copy() for each in arrays]
    run_blocks(legalize_tiles(twin, SM80), results)

    assert (results[2] != expected(kernel, arrays)[2]).any()
