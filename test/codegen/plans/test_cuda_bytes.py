"""Products of 8-bit integers on a GPU: both plans of matrix instructions give int32's sums."""

from dataclasses import replace

import numpy as np
import pytest
from codegen.gpu_machine import TARGETS, cubin_of, frame_bytes, legal, program_of, run_on_device
from codegen.plans import test_cuda_contraction as portable
from codegen.plans import test_cuda_hopper as hopper
from codegen.plans.plan_kernels import arrays_for, expected
from codegen.plans.test_contraction import square
from runtime.cuda.programs import needs_nvrtc

from tinytensor import Tensor
from tinytensor.codegen.plan import choose
from tinytensor.codegen.plans import cuda_contraction, cuda_hopper
from tinytensor.codegen.plans.cuda_hopper_tiling import TILINGS, estimate
from tinytensor.codegen.plans.tiling_cuda import MMA_TILINGS, MmaTiling
from tinytensor.dtype import dtypes
from tinytensor.ops.interpret_blocks import run_blocks
from tinytensor.ops.uop import buffer, substitute
from tinytensor.runtime.device import Device
from tinytensor.schedule.schedule import Options, schedule
from tinytensor.target import SM80, SM90A

I8, U8, I32, I64 = dtypes.int8, dtypes.uint8, dtypes.int32, dtypes.int64
LAYOUTS = {"NN": (0, 0), "NT": (0, 1), "TN": (1, 0), "TT": (1, 1)}
SIGNS = {"s8": (I8, I8), "u8": (U8, U8), "s8.u8": (I8, U8), "u8.s8": (U8, I8)}
MMA = MmaTiling("smallest", 32, 32, 32, 1, 1, stages=3)
MMA_WARPS = MmaTiling("two by two warps", 64, 32, 64, 2, 2, stages=2, group=2)


def whole(m, n, k, layout="NT", signs="s8", summed=I32):
    return portable.whole(m, n, k, SIGNS[signs], summed, LAYOUTS[layout])


def scaled(m, n, k):
    return portable.scaled(m, n, k, I8, I32)


def extremes(kernel):
    """Factors of the ends of their types, whose products are the greatest."""
    arrays = arrays_for(kernel)
    for array, param in zip(arrays, kernel.params, strict=True):
        if not param.written:
            array[:] = param.dtype.min if param.dtype is I8 else param.dtype.max
    return arrays


# The portable plan.
@pytest.mark.parametrize("tiling", [MMA, MMA_WARPS], ids=lambda each: each.name)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("sizes", [(32, 32, 32), (33, 17, 18), (40, 72, 80)])
def test_matrix_instructions_sum_every_layout_and_ragged_size(sizes, layout, tiling):
    portable.assert_mma_exact(whole(*sizes, layout), tiling)


@pytest.mark.parametrize("signs", SIGNS)
def test_signs_may_differ(signs):
    kernel = whole(40, 48, 80, signs=signs)

    portable.assert_mma_exact(kernel, MMA)
    hopper.assert_exact(kernel)
    assert choose(kernel, SM80).decisions[0].reason.startswith(f"m16n8k32.{signs}, block ")
    assert choose(kernel, SM90A).decisions[0].reason.startswith(f"wgmma.{signs}, ")


@pytest.mark.parametrize("signs", SIGNS)
def test_the_ends_of_the_types_are_summed(signs):
    kernel = whole(32, 32, 64, signs=signs)
    (form,) = hopper.lowered(kernel)
    arrays = extremes(kernel)
    a, b = (int(each[0]) for each in arrays[:2])

    for linear in (portable.mma_lowered(kernel, MMA), form):
        results = [each.copy() for each in arrays]
        run_blocks(linear, results)
        assert (results[2] == 64 * a * b).all()


@pytest.mark.parametrize("summed", [I8, dtypes.uint8, dtypes.int16, dtypes.uint32, I64])
def test_a_narrower_sum_is_the_low_bits_of_int32s(summed):
    kernel = whole(40, 48, 512, summed=summed)

    portable.assert_mma_exact(kernel, MMA)
    hopper.assert_exact(kernel)


@pytest.mark.parametrize(("layout", "launches"), [("NT", 1), ("NN", 2), ("TT", 2), ("TN", 3)])
def test_rows_along_n_are_rewritten_along_k(layout, launches, monkeypatch):
    monkeypatch.setattr(cuda_contraction, "PACKED_PRODUCTS", 1)
    kernel = whole(48, 32, 48, layout)
    forms = cuda_contraction.lower(cuda_contraction.facts(kernel, SM80), SM80, MMA)
    arrays = arrays_for(kernel)

    results = hopper.results_of(forms, arrays)

    assert len(forms) == launches
    for result, want in zip(results, expected(kernel, arrays), strict=True):
        np.testing.assert_array_equal(result, want, strict=True)


# Hopper's plan.
@pytest.mark.parametrize("tiling", hopper.FORMS, ids=lambda each: each.name)
def test_every_form_sums_ragged_matrices(tiling):
    hopper.assert_exact(whole(72, 80, 272), tiling)
    hopper.assert_exact(scaled(72, 66, 144), tiling)


def test_parts_of_k_are_summed_apart_as_int32():
    hopper.assert_exact(whole(72, 70, 528), parts=3)


@pytest.mark.parametrize(("layout", "launches"), [("NT", 1), ("NN", 2), ("TT", 2), ("TN", 3)])
def test_rows_that_do_not_run_along_k_are_rewritten_first(layout, launches, monkeypatch):
    monkeypatch.setattr(cuda_contraction, "PACKED_PRODUCTS", 1)
    kernel = whole(80, 48, 144, layout)

    assert len(hopper.lowered(kernel)) == launches
    hopper.assert_exact(kernel)


@pytest.mark.parametrize("tiling", [hopper.ONE, hopper.ALTERNATING], ids=lambda each: each.name)
def test_half_of_a_symmetric_product_is_computed_and_mirrored(tiling):
    product = square(136, 136, 144)
    x = product.operand(I8, product.m, product.k)
    total = product.contract(x, substitute(x, {product.m: product.n}), I32)
    product.store(total)

    hopper.assert_exact(product.kernel(total), tiling, mirrors=True)


@pytest.mark.parametrize("mistake", hopper.MISTAKES)
def test_a_mistake_in_the_pipeline_is_found(mistake):
    kernel = whole(136, 64, 656)
    (right,) = hopper.lowered(kernel, target=replace(SM90A, multiprocessors=1))
    arrays = arrays_for(kernel)
    want = expected(kernel, arrays)

    wrong = hopper.MISTAKES[mistake](right)

    assert any(hopper.is_found([wrong], arrays, want, seed) for seed in range(2))


def test_a_swizzle_on_one_side_alone_mixes_the_factors_up():
    portable.assert_a_swizzle_matters(whole(64, 32, 192), MMA_WARPS)


def test_the_passes_keep_the_pipeline():
    kernel = scaled(72, 72, 144)
    (linear,) = hopper.lowered(kernel, hopper.ALTERNATING)
    arrays = arrays_for(kernel)

    results = hopper.results_of([legal(linear, SM90A)], arrays)

    for result, want in zip(results, expected(kernel, arrays), strict=True):
        np.testing.assert_array_equal(result, want, strict=True)


# Which plan, and why.
def kernels_of(result):
    """The kernels that a result takes on Hopper."""
    return [call.kernel for call in schedule([result.uop], SM90A, Options(3, False, False))]


@pytest.mark.parametrize(("dtype", "words"), [(I8, "s8"), (dtypes.float8_e4m3fn, "e4m3")])
def test_a_quantized_layer_is_one_kernel(dtype, words):
    """x @ w.T of 8-bit factors, with scales of rows, of columns and of the whole, and a bias."""
    x, w = (Tensor._made(buffer(dtype, (n, 768), "CPU"), "CPU") for n in (512, 1024))
    row, column, bias = (Tensor.ones(*shape).realize() for shape in ((512, 1), (1024,), (1024,)))
    wide = dtypes.int32 if dtype is I8 else dtypes.float32

    summed = x.to(wide) @ w.T.to(wide)
    kernels = kernels_of((summed.float() * row * column * 0.5 + bias).bfloat16())

    assert len(kernels) == 1
    assert len(choose(kernels[0], SM90A).linears) == 1
    assert choose(kernels[0], SM90A).decisions[0].reason.startswith(f"wgmma.{words}, ")


def test_the_plans_say_what_a_block_computes():
    by_target = [
        choose(whole(4096, 4096, 4096, layout), target).decisions[0].reason
        for layout, target in (("NT", SM90A), ("NN", SM90A), ("NT", SM80))
    ]

    assert by_target == [
        "wgmma.s8, 1024 tiles 128 x 128 (alternating), 2 alternating warpgroups, 6 stages: about "
        "154691 clocks; then long 155357, wide 162371.",
        "wgmma.s8, 1024 tiles 128 x 128 (alternating), 2 alternating warpgroups, 6 stages: about "
        "154691 clocks; then long 155357, wide 162371. 1 of 2 factors rewritten in rows before.",
        "m16n8k32.s8, block 128 x 256 x 128 (wide), 3 stages, warps 2 x 4.",
    ]


def test_a_small_product_of_rows_along_n_says_why_hopper_does_not_take_it():
    choice = choose(whole(40, 48, 64, "NN"), SM90A)

    assert choice.plan == "contraction"
    assert choice.decisions[1].reason == (
        "factor b has no rows along k, which products of S8 take, and the product is too small "
        "to rewrite it in rows."
    )


def test_sums_that_int32_does_not_hold_are_declined():
    kernel = whole(16, 16, 1 << 16, summed=I64)

    assert cuda_contraction.facts(kernel, SM80) == (
        "the sum is kept in int64; matrix instructions on int8 sum int32."
    )
    assert choose(kernel, SM90A).plan == "multiply-add"


# Compiled.
@needs_nvrtc
@pytest.mark.parametrize("tiling", TILINGS, ids=lambda each: each.name)
def test_no_register_is_spilled_by_hopper(tiling):
    facts = hopper.taken(scaled(1024, 1024, 768))
    (linear,) = cuda_hopper.lower(facts, SM90A, estimate(tiling, cuda_hopper.need_of(facts), SM90A))

    assert frame_bytes(cubin_of(program_of(linear, SM90A).source, SM90A.name)) == 0


@needs_nvrtc
@pytest.mark.parametrize("target", TARGETS, ids=lambda each: each.name)
@pytest.mark.parametrize("number", range(len(MMA_TILINGS)), ids=lambda each: MMA_TILINGS[each].name)
def test_matrix_instructions_need_no_stack(number, target):
    facts = cuda_contraction.facts(scaled(1024, 1024, 768), target)
    name = MMA_TILINGS[number].name
    (tiling,) = [each for each in cuda_contraction.candidates(facts, target) if each.name == name]
    (linear,) = cuda_contraction.lower(facts, target, tiling)

    assert frame_bytes(cubin_of(program_of(linear, target).source, target.name)) == 0


@pytest.mark.gpu
@pytest.mark.parametrize("signs", SIGNS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_device_gives_the_exact_sums(layout, signs):
    target = Device["CUDA"].target
    kernel = whole(328, 272, 464, layout, signs)
    arrays = arrays_for(kernel)

    for linears in (
        choose(kernel, target).linears,
        (portable.mma_lowered(kernel, None, target),),
    ):
        results = run_on_device(linears, arrays)
        for result, want in zip(results, expected(kernel, arrays), strict=True):
            np.testing.assert_array_equal(result, want, strict=True)


@pytest.mark.gpu
@pytest.mark.parametrize("tiling", TILINGS, ids=lambda each: each.name)
def test_the_device_gives_the_exact_sums_by_every_tiling(tiling):
    hopper.assert_device_exact(whole(328, 272, 464), tiling)
