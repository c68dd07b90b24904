"""Hopper's plan of contractions: its pipeline gives the interpreter's sums, or is refused."""

from dataclasses import replace

import numpy as np
import pytest
from codegen.gpu_machine import cubin_of, frame_bytes, legal, program_of, run_on_device
from codegen.plans.plan_kernels import arrays_for, expected
from codegen.plans.test_contraction import gram, relu, square
from codegen.plans.test_cuda_contraction import biased, prologue, rebuilt, without
from runtime.cuda.programs import needs_nvrtc

from tinytensor.codegen.plan import choose
from tinytensor.codegen.plans import cuda_contraction, cuda_hopper
from tinytensor.codegen.plans.cuda_hopper_tiling import (
    TILINGS,
    Candidate,
    HopperTiling,
    Rest,
    estimate,
)
from tinytensor.dtype import dtypes
from tinytensor.errors import InternalError
from tinytensor.ops.interpret_blocks import run_launches
from tinytensor.ops.op import Op
from tinytensor.ops.uop import cast, const, substitute
from tinytensor.ops.verify import verify_linear
from tinytensor.runtime.device import Device
from tinytensor.target import SM80, SM90A

ONE = HopperTiling("one", 64, 64, 2, 1)
ALTERNATING = HopperTiling("alternating", 64, 64, 3, 2, alternates=True)
TOGETHER = HopperTiling("together", 256, 64, 2, 2, group=2)
ACROSS = HopperTiling("across", 64, 128, 2, 1)
FEW = HopperTiling("few", 64, 16, 3, 1, swaps=True)
FORMS = (ONE, ALTERNATING, TOGETHER, ACROSS, FEW)
SMALL = replace(SM90A, multiprocessors=2)  # so that blocks go from tile to tile
BY_NAME = {"ids": lambda each: each.name}
BF16, F16, F32 = dtypes.bfloat16, dtypes.float16, dtypes.float32


def taken(kernel, target=SM90A):
    facts = cuda_hopper.facts(kernel, target)
    assert not isinstance(facts, str), facts
    return facts


def lowered(kernel, tiling=ONE, target=SMALL, mirrors=False, parts=1):
    candidate = Candidate(tiling, tiling.stages, 0, 0.0, mirrors, parts)
    return cuda_hopper.lower(taken(kernel), target, candidate)


def results_of(linears, arrays, seed=0):
    results = [each.copy() for each in arrays]
    run_launches(linears, results, seed)
    return results


def assert_exact(kernel, tiling=ONE, seed=0, mirrors=False, parts=1):
    linears = lowered(kernel, tiling, mirrors=mirrors, parts=parts)
    for each in linears:
        verify_linear(each)
    arrays = arrays_for(kernel)

    results = results_of(linears, arrays, seed)

    for result, want in zip(results, expected(kernel, arrays), strict=True):
        np.testing.assert_array_equal(result, want, strict=True)


def rounded(m, n, k, dtype=F16, *layout):
    """A product that is stored in the factors' dtype."""
    product = square(m, n, k)
    turned_a, turned_b = layout or (False, True)
    a = product.operand(dtype, *((product.k, product.m) if turned_a else (product.m, product.k)))
    b = product.operand(dtype, *((product.n, product.k) if turned_b else (product.k, product.n)))
    total = product.contract(a, b, F32)
    product.store(cast(total, dtype))
    return product.kernel(total)


# Layouts, sizes, forms.
@pytest.mark.parametrize("layout", [(0, 0), (0, 1), (1, 0), (1, 1)], ids=["NN", "NT", "TN", "TT"])
@pytest.mark.parametrize("tiling", FORMS, **BY_NAME)
def test_every_form_sums_every_layout_of_ragged_matrices(tiling, layout):
    assert_exact(rounded(72, 72, 136, F16, *layout), tiling)


@pytest.mark.parametrize("sizes", [(64, 64, 8), (2, 8, 64), (7, 200, 72), (65, 72, 264)])
@pytest.mark.parametrize("tiling", [ONE, ALTERNATING, FEW], **BY_NAME)
def test_blocks_go_from_tile_to_tile(tiling, sizes):
    assert_exact(rounded(*sizes, BF16), tiling, seed=3)


@pytest.mark.parametrize("layout", [(0, 0), (0, 1), (1, 0), (1, 1)], ids=["NN", "NT", "TN", "TT"])
@pytest.mark.parametrize("columns", [96, 112, 160])
def test_a_tile_of_any_width_uses_a_part_of_its_last_rows(columns, layout):
    odd = HopperTiling("odd", 64, columns, 2, 1)

    assert_exact(rounded(72, columns + 8, 72, F16, *layout), odd)
    assert_exact(rounded(64, 2 * columns, 64, F16, *layout), odd)


def test_threads_with_many_sums_take_registers_of_a_warpgroup_that_loads():
    many = HopperTiling("many", 128, 128, 2, 2, alternates=True)
    kernel = rounded(136, 128, 72)

    (linear,) = lowered(kernel, many)

    roles = [node.attrs for node in linear.statements if node.op is Op.ROLE]
    assert [(each.warps, each.registers) for each in roles] == [(8, 232), (4, 40)]
    assert 8 * 232 + 4 * 40 == 12 * 168
    assert_exact(kernel, many)


@pytest.mark.parametrize("broadcast", [False, True])
def test_a_batch_is_seen_as_one_more_axis(broadcast):
    product = square(40, 72, 24, 2, 3)
    outer, inner = product.batch
    a = product.operand(F16, outer, inner, product.k, product.m)
    b = product.operand(F16, *((inner,) if broadcast else (outer, inner)), product.n, product.k)
    total = product.contract(a, b, F32)
    product.store(cast(total, F16))

    assert_exact(product.kernel(total))


def test_wide_indices_are_computed_in_int64():
    kernel = replace(biased(72, 72, 72), index_dtype=dtypes.int64)

    assert_exact(kernel, ALTERNATING)


# Around the sum.
@pytest.mark.parametrize("sizes", [(128, 128, 64), (72, 80, 24), (70, 65, 16)])
@pytest.mark.parametrize("tiling", [ALTERNATING, FEW], **BY_NAME)
def test_a_bias_meets_the_rounded_product(tiling, sizes):
    assert_exact(biased(*sizes), tiling)


def test_a_bias_is_read_before_the_sum():
    (linear,) = lowered(biased(64, 64, 64))
    multiply = next(i for i, node in enumerate(linear.statements) if node.op is Op.WGMMA)
    loads = [i for i, node in enumerate(linear.statements) if node.op is Op.LOAD]

    assert loads
    assert max(loads) < multiply


def test_several_stores_share_the_sum_and_two_go_in_bulk():
    product = square(72, 64, 40)
    a = product.operand(BF16, product.m, product.k)
    b = product.operand(BF16, product.k, product.n)
    total = product.contract(a, b, F32)
    residual = product.operand(BF16, product.m, product.n)
    product.store(cast(total, BF16) + residual)
    product.store(relu(total))
    product.store(cast(total, dtypes.int8), product.n, product.m)

    assert_exact(product.kernel(total))


@pytest.mark.parametrize(("columns", "in_tray"), [(96, 32), (128, 64), (112, 0)])
def test_trays_are_as_wide_as_the_tile_allows(columns, in_tray):
    (linear,) = lowered(rounded(64, 256, 64), HopperTiling("tray", 64, columns, 2, 1))

    stores = [node for node in linear.statements if node.op is Op.BULK_STORE]
    assert {node.operands[1].attrs.columns for node in stores} == ({in_tray} if in_tray else set())


def test_stores_that_the_engine_cannot_write_are_the_threads_own():
    kernel = rounded(40, 36, 24)
    (linear,) = lowered(kernel)

    assert Op.BULK_STORE not in {node.op for node in linear.statements}
    assert_exact(kernel, ALTERNATING)


# Symmetric products.
@pytest.mark.parametrize("n", [128, 136, 200])
@pytest.mark.parametrize("tiling", [ONE, ALTERNATING], **BY_NAME)
def test_half_of_a_symmetric_product_is_computed_and_mirrored(tiling, n):
    kernel = gram(n, 72, F16, biased=True)

    (linear,) = lowered(kernel, tiling, mirrors=True)

    count = -(-n // 64)
    tiles = count * (count + 1) // 2
    assert [node.operands[1].value for node in linear.statements if is_tile_loop(node)] == [
        *([tiles] * 2)
    ]
    assert_exact(kernel, tiling, mirrors=True)


def is_tile_loop(node):
    """Whether a statement opens a loop whose step is the number of blocks, or of both groups'."""
    return node.op is Op.LOOP and node.attrs.step > 1


def test_a_wide_symmetric_product_is_mirrored_by_the_threads():
    assert_exact(gram(136, 40, BF16), mirrors=True)
    assert_exact(wide_gram(136, 24), mirrors=True)


def test_each_of_a_batch_of_symmetric_products_is_mirrored():
    product = square(72, 72, 24, 2)
    (outer,) = product.batch
    x = product.operand(F16, outer, product.m, product.k)
    total = product.contract(x, substitute(x, {product.m: product.n}), F32)
    product.store(cast(total, F16))

    assert_exact(product.kernel(total), mirrors=True)


def wide_gram(n, k):
    """x @ x.T, stored as it is summed."""
    product = square(n, n, k)
    x = product.operand(BF16, product.m, product.k)
    total = product.contract(x, substitute(x, {product.m: product.n}), F32)
    product.store(total)
    return product.kernel(total)


def test_square_tiles_alone_take_half_of_a_symmetric_product():
    ranked = cuda_hopper.rank(taken(gram(4096, 4096, F16)), SM90A)

    mirrored = {each.tiling.name: each.tiles for each in ranked if each.mirrors}
    assert mirrored == {"alternating": 528, "square": 528, "small": 2080}
    assert ranked[0].mirrors
    assert (
        ranked[0].clocks < 0.6 * cuda_hopper.rank(taken(rounded(4096, 4096, 4096)), SM90A)[0].clocks
    )


# Sums in parts.
@pytest.mark.parametrize("parts", [2, 3])
@pytest.mark.parametrize("tiling", [ONE, ALTERNATING], **BY_NAME)
def test_parts_of_k_are_summed_apart_and_folded_in_order(tiling, parts):
    assert_exact(biased(72, 70, 264), tiling, parts=parts)


def test_a_batch_is_summed_in_parts_and_its_epilogue_runs_once():
    product = square(24, 40, 200, 2)
    (outer,) = product.batch
    a = product.operand(BF16, outer, product.m, product.k)
    b = product.operand(BF16, product.k, product.n)
    total = product.contract(a, b, F32)
    product.store(relu(cast(total, BF16) + product.operand(BF16, outer, product.m, product.n)))
    kernel = product.kernel(total)

    multiply, fold = lowered(kernel, parts=4)

    assert Op.BULK_STORE in {node.op for node in multiply.statements}
    assert Op.ROLE not in {node.op for node in fold.statements}
    assert multiply.workspace_bytes == fold.workspace_bytes == 4 * 2 * 24 * 40 * 4
    assert_exact(kernel, parts=4)


@pytest.mark.parametrize(
    ("sizes", "parts"),
    [((768, 768, 8192), range(2, 7)), ((4096, 4096, 4096), [1]), ((1024, 1024, 768), [1])],
    ids=str,
)
def test_few_tiles_with_a_long_k_are_split(sizes, parts):
    assert cuda_hopper.rank(taken(rounded(*sizes)), SM90A)[0].parts in parts


# Products in two pieces.
PIECES = {
    "NN": rounded(136, 200, 136, BF16, 0, 0),
    "TN": rounded(136, 200, 136, BF16, 1, 0),
    "TT": rounded(136, 200, 136, BF16, 1, 1),
    "biased": biased(136, 200, 136),
    "odd": rounded(136, 199, 136, F16, 0, 1),
    "rewritten": rounded(136, 199, 135, F16, 0, 1),
}


@pytest.mark.parametrize(("axis", "begin"), [("m", 64), ("n", 128)])
@pytest.mark.parametrize("kind", PIECES)
def test_the_last_tiles_are_left_to_another_tiling_in_parts(kind, axis, begin, monkeypatch):
    monkeypatch.setattr(cuda_contraction, "PACKED_PRODUCTS", 1)
    kernel = PIECES[kind]
    rest = Candidate(ONE, ONE.stages, 0, 0.0, parts=2)
    both = Candidate(ALTERNATING, ALTERNATING.stages, 0, 0.0, rest=Rest(axis, begin, rest))
    arrays = arrays_for(kernel)

    linears = cuda_hopper.lower(taken(kernel), SMALL, both)

    assert len(linears) == (5 if kind == "rewritten" else 3)
    for each in linears:
        verify_linear(each)
    for result, want in zip(results_of(linears, arrays), expected(kernel, arrays), strict=True):
        np.testing.assert_array_equal(result, want, strict=True)


def test_a_few_tiles_beyond_a_whole_round_are_left_to_another_tiling():
    ranked = cuda_hopper.rank(taken(rounded(3072, 768, 8192, BF16, 1, 0)), SM90A)

    best, whole = ranked[0], next(each for each in ranked if each.rest is None)
    assert (best.name, best.tiles) == ("square to m 2816, then square in 11 parts", 132)
    assert best.clocks < 0.95 * whole.clocks


# TF32, where it is asked for.
ROUNDING = SM90A.with_fp32_matmul("tf32")


def tf32_lowered(kernel, tiling, target=ROUNDING):
    facts = taken(kernel, target)
    small = replace(target, multiprocessors=2)
    return cuda_hopper.lower(facts, small, Candidate(tiling, tiling.stages, 0, 0.0))


@pytest.mark.parametrize("tiling", [ONE, ALTERNATING, FEW], **BY_NAME)
def test_products_of_float32_take_small_integers_exactly(tiling):
    kernel = biased(72, 68, 72, F32)
    arrays = arrays_for(kernel)

    results = results_of(tf32_lowered(kernel, tiling), arrays)

    for result, want in zip(results, expected(kernel, arrays), strict=True):
        np.testing.assert_array_equal(result, want, strict=True)


def test_factors_are_rounded_to_the_nearest_of_tf32():
    """Products by 1 show what became of the factors: 10 bits of the fraction, ties to even."""
    kernel = rounded(8, 8, 8, F32)
    x = np.zeros((8, 8), np.float32)
    x[0, :4] = [1 + 2**-10, 1 + 2**-11, 1 + 3 * 2**-11, 1 + 2**-11 + 2**-20]
    arrays = [x.reshape(-1), np.eye(8, dtype=np.float32).reshape(-1), np.zeros(64, np.float32)]

    result = results_of(tf32_lowered(kernel, ONE), arrays)[2]

    assert result[:4].tolist() == [1 + 2**-10, 1.0, 1 + 2**-9, 1 + 2**-10]


def test_rows_that_do_not_run_along_k_are_rewritten_first(monkeypatch):
    monkeypatch.setattr(cuda_contraction, "PACKED_PRODUCTS", 1)
    kernel = rounded(40, 36, 40, F32, False, False)
    arrays = arrays_for(kernel)

    forms = tf32_lowered(kernel, ONE)

    assert len(forms) == 2
    want = expected(kernel, arrays)
    for result, other in zip(results_of(forms, arrays), want, strict=True):
        np.testing.assert_array_equal(result, other, strict=True)


def test_float32_is_rounded_only_where_that_is_allowed():
    kernel = rounded(4096, 4096, 4096, F32)
    turned = rounded(40, 36, 40, F32, False, False)

    assert choose(kernel, SM90A).plan == "multiply-add"
    assert choose(kernel, ROUNDING).decisions[0].reason.startswith("wgmma.tf32, ")
    assert (
        choose(kernel, ROUNDING)
        .decisions[0]
        .reason.endswith(" Factors are rounded to TF32. Sums may be truncated where others round.")
    )
    assert cuda_hopper.facts(turned, ROUNDING) == (
        "factor b has no rows along k, which products of TF32 take, and the product is too small "
        "to rewrite it in rows."
    )
    assert SM80.with_fp32_matmul("tf32") is SM80


@needs_nvrtc
@pytest.mark.parametrize("tiling", TILINGS, **BY_NAME)
def test_products_of_tf32_compile_without_spills(tiling):
    facts = taken(biased(1024, 1024, 768, F32), ROUNDING)
    candidate = estimate(tiling, cuda_hopper.need_of(facts), ROUNDING)
    (linear,) = cuda_hopper.lower(facts, ROUNDING, candidate)

    assert frame_bytes(cubin_of(program_of(linear, SM90A).source, SM90A.name)) == 0


# Factors rewritten by a launch of their own.
@pytest.mark.parametrize(("kernel", "launches"), [
    (rounded(33, 35, 37), 3),
    (rounded(40, 35, 40, F16, False, False), 2),
    (prologue(F16), 3),
], ids=["odd", "one odd", "prologue"])  # fmt: skip
def test_factors_that_the_engine_cannot_read_are_rewritten(kernel, launches, monkeypatch):
    monkeypatch.setattr(cuda_contraction, "PACKED_PRODUCTS", 1)

    assert len(lowered(kernel)) == launches
    assert_exact(kernel)


# Pipelines with one mistake: refused, or the numbers differ.
@pytest.fixture(scope="module")
def mistaken():
    return rounded(136, 64, 328)


def is_found(linears, arrays, want, seed):
    try:
        verify_linear(linears[-1])
        results = results_of(linears, arrays, seed)
    except InternalError:
        return True
    return any((one != other).any() for one, other in zip(results, want, strict=True))


def turned_parity(linear, number):
    """The form in which one wait awaits the other phase."""
    waits = [node for node in linear.statements if node.op is Op.MBARRIER_WAIT]
    target = waits[number]

    def change(node):
        if node.op is not Op.MBARRIER_WAIT or node.attrs != target.attrs:
            return node
        barriers, place, parity = node.operands
        return node.replace((barriers, place, const(parity.dtype, 1) - parity))

    return rebuilt(linear, change)


def unswizzled(linear):
    """The form whose trays are written as if nothing were swizzled."""

    def change(node):
        if node.op is not Op.STORE or node.operands[0].op is not Op.TILE:
            return node
        tile, index, value = node.operands
        return node.replace((tile, without_xor(index), value))

    return rebuilt(linear, change)


def without_xor(index):
    """An index whose XORs give their first operand."""
    operands = tuple([without_xor(each) for each in index.operands])
    return operands[0] if index.op is Op.XOR else index.replace(operands)


def looser(linear, op):
    """The form whose waits of a kind leave one group more unfinished."""

    def change(node):
        if node.op is not op:
            return node
        attrs = replace(node.attrs, pending=node.attrs.pending + 1)
        return type(node)(node.op, node.dtype, node.operands, attrs)

    return rebuilt(linear, change)


MISTAKES = {
    "no wait for bytes": lambda form: without(form, Op.MBARRIER_WAIT, -2),
    "no wait for room": lambda form: without(form, Op.MBARRIER_WAIT, -1),
    "wrong phase of bytes": lambda form: turned_parity(form, -2),
    "wrong phase of room": lambda form: turned_parity(form, -1),
    "no release in the loop": lambda form: without(form, Op.MBARRIER_ARRIVE, 0),
    "no last release": lambda form: without(form, Op.MBARRIER_ARRIVE, -1),
    "released too early": lambda form: looser(form, Op.WGMMA_WAIT),
    "no fence of sums": lambda form: without(form, Op.WGMMA_FENCE, 0),
    "no fence of trays": lambda form: without(form, Op.PROXY_FENCE, 0),
    "tray not yet read": lambda form: looser(form, Op.BULK_WAIT),
    "tray not yet filled": lambda form: without(form, Op.BARRIER, -1),
    "no barrier after the start": lambda form: without(form, Op.BARRIER, 0),
    "another swizzle": unswizzled,
}


@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.parametrize("tiling", [ONE, ALTERNATING], **BY_NAME)
def test_a_mistake_in_the_pipeline_is_found(tiling, mistake, mistaken):
    (right,) = lowered(mistaken, tiling, replace(SM90A, multiprocessors=1))
    arrays = arrays_for(mistaken)
    want = expected(mistaken, arrays)

    wrong = MISTAKES[mistake](right)

    assert any(is_found([wrong], arrays, want, seed) for seed in range(2))


def test_alternating_warpgroups_wait_for_one_another(mistaken):
    (right,) = lowered(mistaken, ALTERNATING, replace(SM90A, multiprocessors=1))
    arrays = arrays_for(mistaken)
    want = expected(mistaken, arrays)

    wrong = without(right, Op.MBARRIER_WAIT, 0)

    assert any(is_found([wrong], arrays, want, seed) for seed in range(4))


# Compiled.
@needs_nvrtc
def test_wide_indices_compile():
    kernel = replace(biased(1024, 1024, 768), index_dtype=dtypes.int64)
    (linear,) = cuda_hopper.lower(taken(kernel), SM90A)

    assert frame_bytes(cubin_of(program_of(linear, SM90A).source, SM90A.name)) == 0


@needs_nvrtc
@pytest.mark.parametrize("tiling", TILINGS, **BY_NAME)
def test_no_register_is_spilled(tiling):
    facts = taken(biased(1024, 1024, 768))
    candidate = estimate(tiling, cuda_hopper.need_of(facts), SM90A)
    (linear,) = cuda_hopper.lower(facts, SM90A, candidate)

    assert frame_bytes(cubin_of(program_of(linear, SM90A).source, SM90A.name)) == 0


def test_the_passes_keep_the_pipeline():
    kernel = biased(72, 72, 72)
    (linear,) = lowered(kernel, ALTERNATING)
    arrays = arrays_for(kernel)

    results = results_of([legal(linear, SM90A)], arrays)

    for result, want in zip(results, expected(kernel, arrays), strict=True):
        np.testing.assert_array_equal(result, want, strict=True)


def device_target():
    target = Device["CUDA"].target
    if not target.features >= cuda_hopper.FEATURES:
        pytest.skip("the GPU is no Hopper")
    return target


def assert_device_exact(kernel, tiling, parts=1):
    """Integer-valued inputs, whose sums are exact in any order."""
    target = device_target()
    facts = taken(kernel, target)
    candidate = estimate(tiling, cuda_hopper.need_of(facts), target, parts)
    linears = cuda_hopper.lower(facts, target, candidate)
    arrays = arrays_for(kernel)

    results = run_on_device(linears, arrays)

    for result, want in zip(results, expected(kernel, arrays), strict=True):
        np.testing.assert_array_equal(result, want, strict=True)


@pytest.mark.gpu
@pytest.mark.parametrize("tiling", TILINGS, **BY_NAME)
@pytest.mark.parametrize("layout", [(0, 0), (0, 1), (1, 0), (1, 1)], ids=["NN", "NT", "TN", "TT"])
def test_the_device_gives_the_exact_sums(tiling, layout):
    assert_device_exact(rounded(328, 264, 456, F16, *layout), tiling)


@pytest.mark.gpu
@pytest.mark.parametrize("tiling", [each for each in TILINGS if not each.swaps], **BY_NAME)
def test_the_device_mirrors_and_folds_to_the_exact_sums(tiling):
    assert_device_exact(gram(520, 136, F16, biased=True), tiling)
    assert_device_exact(biased(200, 136, 1040), tiling, parts=2)


@pytest.mark.gpu
@pytest.mark.parametrize(("axis", "begin"), [("m", 256), ("n", 128)])
def test_the_device_gives_the_exact_sums_in_two_pieces(axis, begin):
    target, kernel = device_target(), biased(328, 264, 1040)
    facts = taken(kernel, target)
    need = cuda_hopper.need_of(facts)
    rest = estimate(TILINGS[0], need, target, parts=2)
    whole = estimate(TILINGS[1], need, target)
    arrays = arrays_for(kernel)

    linears = cuda_hopper.lower(facts, target, replace(whole, rest=Rest(axis, begin, rest)))

    for result, want in zip(run_on_device(linears, arrays), expected(kernel, arrays), strict=True):
        np.testing.assert_array_equal(result, want, strict=True)


@pytest.mark.gpu
def test_the_device_rounds_factors_to_the_nearest_of_tf32():
    """Products by 1 show what became of the factors."""
    target = device_target().with_fp32_matmul("tf32")
    facts = taken(rounded(128, 64, 64, F32), target)
    x = np.random.default_rng(3).standard_normal((128, 64)).astype(np.float32)
    arrays = [x.reshape(-1), np.eye(64, dtype=np.float32).reshape(-1)]
    arrays.append(np.full(128 * 64, np.nan, np.float32))

    result = run_on_device(cuda_hopper.lower(facts, target), arrays)[2]

    mantissa, exponent = np.frexp(x.astype(np.float64).reshape(-1))
    want = np.ldexp(np.round(mantissa * 2**11) / 2**11, exponent)
    np.testing.assert_array_equal(result, want.astype(np.float32), strict=True)
