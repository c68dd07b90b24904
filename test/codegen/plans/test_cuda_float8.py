"""Products of floats of 8 bits on a GPU: Hopper's own instructions, elsewhere those of float16."""

from dataclasses import replace

import numpy as np
import pytest
from codegen.gpu_machine import cubin_of, frame_bytes, program_of, run_on_device
from codegen.plans import test_cuda_contraction as portable
from codegen.plans import test_cuda_hopper as hopper
from codegen.plans.plan_kernels import arrays_for, expected
from runtime.cuda.programs import needs_nvrtc

from tinytensor.codegen.plan import choose
from tinytensor.codegen.plans import cuda_contraction, cuda_hopper
from tinytensor.codegen.plans.cuda_hopper_tiling import TILINGS, estimate
from tinytensor.dtype import dtypes, float8_bits, float8_values
from tinytensor.ops.op import Op
from tinytensor.runtime.device import Device
from tinytensor.target import SM80, SM90A

E4M3, E5M2 = dtypes.float8_e4m3fn, dtypes.float8_e5m2
F16, BF16, F32 = dtypes.float16, dtypes.bfloat16, dtypes.float32
PAIRS = {"e4m3": (E4M3, E4M3), "e5m2": (E5M2, E5M2)}
PAIRS |= {"e4m3.e5m2": (E4M3, E5M2), "e5m2.e4m3": (E5M2, E4M3)}
by_pair = pytest.mark.parametrize("pair", PAIRS)
FITTING = [each for each in TILINGS if each.held * 2 * each.threads <= 65536]


def product_of(m, n, k, pair=(E4M3, E4M3), turned=(False, True)):
    return portable.whole(m, n, k, pair, F32, turned)


def scaled(m, n, k):
    return portable.scaled(m, n, k, E4M3, F32)


@by_pair
@pytest.mark.parametrize("tiling", hopper.FORMS, ids=lambda each: each.name)
def test_every_form_sums_ragged_matrices(tiling, pair):
    hopper.assert_exact(product_of(72, 80, 272, PAIRS[pair]), tiling)


@by_pair
def test_each_pair_has_its_instruction(pair):
    kernel = product_of(256, 256, 256, PAIRS[pair])

    assert choose(kernel, SM90A).decisions[0].reason.startswith(f"wgmma.{pair}, ")
    assert (
        choose(kernel, SM90A)
        .decisions[0]
        .reason.endswith(" Sums of 128 values of k keep some 14 bits.")
    )
    assert choose(kernel, SM80).decisions[0].reason.startswith("m16n8k16.f16, ")


def test_scales_are_the_epilogue_of_one_launch():
    kernel = scaled(72, 66, 400)

    assert len(hopper.lowered(kernel)) == 1
    hopper.assert_exact(kernel, hopper.ALTERNATING)


def test_parts_of_k_are_summed_apart():
    hopper.assert_exact(product_of(72, 70, 528), parts=3)


def test_sums_are_promoted_after_every_stage():
    """Each of 3 stages begins new sums: 4 instructions, a wait, and an addition to the others."""
    (linear,) = hopper.lowered(product_of(64, 64, 384))

    products = [node for node in linear.statements if node.op is Op.WGMMA]
    assert cuda_hopper.PROMOTED_AFTER == 128
    assert [each.operands[-1].value for each in products] == [False, True, True, True]


def test_wide_tiles_are_promoted_by_halves():
    """The first half of the columns is added up while the products of the second are summed."""
    (linear,) = hopper.lowered(product_of(64, 128, 384), hopper.ACROSS)

    products = [node for node in linear.statements if node.op is Op.WGMMA]
    waits = [node.attrs.pending for node in linear.statements if node.op is Op.WGMMA_WAIT]
    assert [each.operands[-1].value for each in products] == [False, True, True, True] * 2
    assert {each.attrs.instruction for each in products} == {"m64n64k32.e4m3"}
    assert waits == [1, 0, 0]


def test_what_is_not_promoted_is_found():
    """Sums that go on growing in the instruction are added again and again."""
    kernel = product_of(64, 64, 512)
    facts = replace(hopper.taken(kernel), promoted_after=256)
    arrays = arrays_for(kernel)
    right = hopper.Candidate(hopper.ONE, 2, 0, 0.0)

    (linear,) = cuda_hopper.lower(facts, hopper.SMALL, right)
    adds = [node for node in linear.statements if node.op is Op.WGMMA][0].operands[-1]
    wrong = portable.rebuilt(linear, lambda node: always(node) if node is adds else node)

    assert (hopper.results_of([linear], arrays)[2] == expected(kernel, arrays)[2]).all()
    assert hopper.is_found([wrong], arrays, expected(kernel, arrays), 0)


def always(node):
    """The claim 0 <= x in place of 0 < x."""
    return type(node)(Op.LE, node.dtype, node.operands)


@pytest.mark.parametrize(("turned", "launches"), [((0, 1), 1), ((0, 0), 2), ((1, 0), 3)])
def test_rows_that_do_not_run_along_k_are_rewritten_first(turned, launches, monkeypatch):
    monkeypatch.setattr(cuda_contraction, "PACKED_PRODUCTS", 1)
    kernel = product_of(80, 48, 144, turned=turned)

    assert len(hopper.lowered(kernel)) == launches
    hopper.assert_exact(kernel)


def test_a_small_product_of_rows_along_n_says_why_hopper_does_not_take_it():
    choice = choose(product_of(40, 48, 64, turned=(False, False)), SM90A)

    assert choice.plan == "contraction"
    assert choice.decisions[1].reason == (
        "factor b has no rows along k, which products of E4M3 take, and the product is too small "
        "to rewrite it in rows."
    )


# Where there is no instruction.
@by_pair
@pytest.mark.parametrize("turned", [(0, 0), (0, 1), (1, 0), (1, 1)], ids=str)
def test_the_portable_plan_widens_to_float16(pair, turned):
    portable.assert_mma_exact(product_of(33, 34, 35, PAIRS[pair], turned))


@pytest.mark.parametrize("half", [F16, BF16], ids=lambda each: each.name)
@pytest.mark.parametrize("dtype", [E4M3, E5M2], ids=lambda each: each.name)
def test_beside_a_half_the_other_factor_is_widened(dtype, half):
    for pair in ((dtype, half), (half, dtype)):
        kernel = product_of(33, 34, 36, pair)
        portable.assert_mma_exact(kernel)
        assert choose(kernel, SM90A).plan == "contraction"


def test_a_beside_float32_is_summed_by_threads():
    assert choose(product_of(64, 64, 64, (E4M3, F32)), SM90A).plan == "multiply-add"


# Pipelines with one mistake.
@pytest.mark.parametrize("mistake", hopper.MISTAKES)
def test_a_mistake_in_the_pipeline_is_found(mistake):
    kernel = product_of(136, 64, 656)
    (right,) = hopper.lowered(kernel, target=replace(SM90A, multiprocessors=1))
    arrays = arrays_for(kernel)
    want = expected(kernel, arrays)

    wrong = hopper.MISTAKES[mistake](right)

    assert any(hopper.is_found([wrong], arrays, want, seed) for seed in range(2))


# Compiled.
@needs_nvrtc
@by_pair
def test_every_pair_compiles(pair):
    (linear,) = cuda_hopper.lower(hopper.taken(product_of(512, 512, 512, PAIRS[pair])), SM90A)

    assert frame_bytes(cubin_of(program_of(linear, SM90A).source, SM90A.name)) == 0


@needs_nvrtc
@pytest.mark.parametrize("tiling", FITTING, ids=lambda each: each.name)
def test_no_register_is_spilled(tiling):
    facts = hopper.taken(scaled(1024, 1024, 768))
    candidate = estimate(tiling, cuda_hopper.need_of(facts), SM90A)
    (linear,) = cuda_hopper.lower(facts, SM90A, candidate)

    assert frame_bytes(cubin_of(program_of(linear, SM90A).source, SM90A.name)) == 0


@pytest.mark.gpu
@by_pair
@pytest.mark.parametrize("turned", [(0, 0), (0, 1), (1, 0), (1, 1)], ids=str)
def test_the_device_gives_the_exact_sums_of_small_integers(turned, pair):
    kernel = product_of(328, 272, 464, PAIRS[pair], turned)
    arrays = arrays_for(kernel)

    results = run_on_device(choose(kernel, Device["CUDA"].target).linears, arrays)

    for result, want in zip(results, expected(kernel, arrays), strict=True):
        np.testing.assert_array_equal(result, want, strict=True)


def bound_of(a, b):
    """Bound the error of a @ b.T summed in parts of 128: each term of an instruction is cut off.

    An instruction aligns 32 products and the sum so far to the greatest, and keeps 13 bits below.
    """
    m, k = a.shape
    products = (a[:, None] * b).reshape(m, len(b), k // 32, 32)
    steps = products.sum(axis=3).reshape(m, len(b), -1, 4)
    before = np.cumsum(steps, axis=3) - steps
    greatest = np.abs(products).max(axis=3).reshape(steps.shape)
    cut = 33 * 2.0**-13 * np.maximum(greatest, np.abs(before)).sum(axis=(2, 3))
    return cut * (1 + 4 * 33 * 2.0**-13) + np.abs(products).sum(axis=(2, 3)) * k / 128 * 2.0**-23


@pytest.mark.gpu
@by_pair
def test_the_device_sums_within_the_bits_that_it_keeps(pair):
    m, n, k = 64, 48, 1024
    kernel = product_of(m, n, k, PAIRS[pair])
    rng = np.random.default_rng(3)
    factors = [rng.standard_normal((rows, k)) for rows in (m, n)]
    arrays = [float8_bits(x, each) for x, each in zip(factors, PAIRS[pair], strict=True)]
    a, b = [
        float8_values(x, each).astype(np.float64)
        for x, each in zip(arrays, PAIRS[pair], strict=True)
    ]
    flat = [*(each.reshape(-1) for each in arrays), np.full(m * n, np.nan, np.float32)]

    result = run_on_device(choose(kernel, Device["CUDA"].target).linears, flat)[2]

    assert (np.abs(result.reshape(m, n) - a @ b.T) <= bound_of(a, b)).all()
