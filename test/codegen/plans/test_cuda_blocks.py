"""Products whose sums are scaled for each block of k, on Hopper: in one pipeline, or refused."""

from dataclasses import replace

import numpy as np
import pytest
from codegen.gpu_machine import cubin_of, frame_bytes, program_of, run_on_device
from codegen.plans import test_cuda_hopper as hopper
from codegen.plans.plan_kernels import arrays_for, expected
from codegen.plans.test_cuda_contraction import rebuilt, without
from runtime.cuda.programs import needs_nvrtc
from schedule.reading import kernels_of

from tinytensor import Tensor, dtypes
from tinytensor.codegen.plan import choose
from tinytensor.codegen.plans import cuda_contraction, cuda_hopper
from tinytensor.codegen.plans.cuda_hopper_tiling import HopperTiling, Rest
from tinytensor.dtype import float8_bits, float8_values
from tinytensor.ops.op import Op
from tinytensor.ops.uop import const
from tinytensor.runtime.device import Device
from tinytensor.target import SM90A

E4M3, I8, F16 = dtypes.float8_e4m3fn, dtypes.int8, dtypes.float16
WIDE = {I8: dtypes.int32}
BLOCK = {E4M3: 128, I8: 128, F16: 64}
HALVES = HopperTiling("halves", 64, 128, 2, 1)
BESIDE = HopperTiling("beside", 64, 128, 2, 2, beside=True)
FORMS = (hopper.FEW, hopper.TOGETHER, HALVES, BESIDE)
ONE_SM = replace(SM90A, multiprocessors=1)


def leaf(*shape, dtype=dtypes.float32):
    return Tensor.zeros(*shape, dtype=dtype).realize()


def partial_sums(m, n, blocks, dtype=E4M3, extent=0, turned=True):
    """The sums of each block of k, (blocks, m, n)."""
    extent = extent or BLOCK[dtype]
    wide = WIDE.get(dtype, dtypes.float32)
    x = leaf(m, blocks * extent, dtype=dtype).reshape(m, blocks, extent)
    w = leaf(n, blocks * extent, dtype=dtype) if turned else leaf(blocks * extent, n, dtype=dtype).T
    w = w.reshape(n, blocks, extent)
    return (x.permute(1, 0, 2).to(wide) @ w.permute(1, 2, 0).to(wide)).float()


def in_tiles(m, n, blocks, dtype=E4M3, **layout):
    """Scales of 1 x 128 and 128 x 128."""
    rows, tiles = leaf(m, blocks).T.unsqueeze(2), leaf(-(-n // 128), blocks).T.unsqueeze(2)
    columns = tiles.expand(blocks, -(-n // 128), 128).reshape(blocks, 1, -1)[:, :, :n]
    return (partial_sums(m, n, blocks, dtype, **layout) * (rows * columns)).sum(0)


def in_rows(m, n, blocks, dtype=E4M3, **layout):
    """Scales of 1 x 128 for both factors, of which one lies along n."""
    rows, columns = leaf(m, blocks).T.unsqueeze(2), leaf(blocks, n).unsqueeze(1)
    return (partial_sums(m, n, blocks, dtype, **layout) * rows * columns).sum(0)


def each_apart(m, n, blocks, dtype=E4M3, **layout):
    """A scale for every sum."""
    return (partial_sums(m, n, blocks, dtype, **layout) * leaf(blocks, m, n)).sum(0)


SCALES = {"tiles": in_tiles, "rows": in_rows, "apart": each_apart}


def kernel_of(tensor):
    (kernel,) = kernels_of(tensor, target=SM90A)
    return kernel


@pytest.mark.parametrize("scales", SCALES)
@pytest.mark.parametrize("tiling", FORMS, ids=lambda each: each.name)
def test_every_form_scales_the_sums_of_each_block(tiling, scales):
    hopper.assert_exact(kernel_of(SCALES[scales](66, 72, 2)), tiling)


def test_warpgroups_beside_each_other_have_all_rows_of_a_tile():
    tall = replace(BESIDE, block_m=128)

    hopper.assert_exact(kernel_of(in_rows(72, 130, 2)), tall)


@pytest.mark.parametrize("dtype", [I8, F16], ids=lambda each: each.name)
def test_integers_and_halves_are_summed_in_blocks_of_several_stages_too(dtype):
    hopper.assert_exact(kernel_of(in_rows(10, 131, 3, dtype)), HALVES)
    hopper.assert_exact(kernel_of(in_tiles(10, 65, 2, dtype, extent=256)))


def test_scales_that_are_no_floats_are_read_where_they_are_needed():
    halves = leaf(3, 10, 1, dtype=F16).float()

    hopper.assert_exact(kernel_of((partial_sums(10, 64, 3) * halves).sum(0)))


def test_sums_may_be_added_up_as_something_else_than_products():
    added = (partial_sums(10, 64, 3) * leaf(3, 10, 1) + leaf(3, 1, 64)).sum(0)

    hopper.assert_exact(kernel_of(added))


def test_a_batch_has_scales_of_its_own():
    x = leaf(2, 10, 2, 128, dtype=E4M3).permute(2, 0, 1, 3).float()
    w = leaf(24, 2, 128, dtype=E4M3).permute(1, 2, 0).unsqueeze(1).float()
    scales = leaf(2, 10, 2).permute(2, 0, 1).unsqueeze(3)

    hopper.assert_exact(kernel_of(((x @ w) * scales).sum(0).half()))


def test_an_epilogue_follows_the_sum_of_all_blocks():
    kernel = kernel_of((in_tiles(10, 128, 2) + leaf(128)).relu().bfloat16())

    assert len(hopper.lowered(kernel)) == 1
    hopper.assert_exact(kernel, HALVES)


def test_rows_that_do_not_run_along_k_are_rewritten_first_in_any_case():
    kernel = kernel_of(in_tiles(10, 24, 2, turned=False))

    assert len(hopper.lowered(kernel)) == 2
    hopper.assert_exact(kernel)


@pytest.mark.parametrize("scales", SCALES)
@pytest.mark.parametrize("tiling", [HALVES, BESIDE], ids=lambda each: each.name)
def test_parts_of_k_are_whole_blocks(tiling, scales):
    hopper.assert_exact(kernel_of(SCALES[scales](10, 72, 4)), tiling, parts=2)


def test_parts_cut_no_block():
    facts = hopper.taken(kernel_of(in_tiles(64, 64, 45)))
    assert {each.parts for each in cuda_hopper.rank(facts, SM90A)} == {1, 3}


@pytest.mark.parametrize(("axis", "begin"), [("m", 64), ("n", 128)])
def test_the_last_tiles_are_scaled_as_the_first_ones(axis, begin):
    kernel = kernel_of(in_rows(72, 136, 2))
    rest = hopper.Candidate(hopper.ONE, 2, 0, 0.0, parts=2)
    both = hopper.Candidate(HALVES, 2, 0, 0.0, rest=Rest(axis, begin, rest))
    arrays = arrays_for(kernel)

    linears = cuda_hopper.lower(hopper.taken(kernel), hopper.SMALL, both)

    results = hopper.results_of(linears, arrays)
    for result, want in zip(results, expected(kernel, arrays), strict=True):
        np.testing.assert_array_equal(result, want, strict=True)


def test_a_symmetric_product_has_scales_that_are_not():
    x = leaf(10, 2, 128, dtype=E4M3).permute(1, 0, 2).float()
    kernel = kernel_of(((x @ x.permute(0, 2, 1)) * leaf(2, 10, 1)).sum(0))

    assert not hopper.taken(kernel).work.is_symmetric
    hopper.assert_exact(kernel)


def test_a_scale_of_a_whole_tile_is_read_once_a_block():
    (linear,) = hopper.lowered(kernel_of(in_tiles(64, 128, 3)), HALVES)

    loop = [node.op for node in linear.statements].index(Op.LOOP)
    loads = [node for node in linear.statements[loop:] if node.op is Op.LOAD]
    assert len(loads) == 3  # of the tile, and of the two rows of a thread


@pytest.mark.parametrize(("scales", "best"), [("tiles", "square"), ("rows", "beside")])
def test_threads_have_few_columns_where_each_has_its_own_scale(scales, best):
    facts = hopper.taken(kernel_of(SCALES[scales](4096, 4096, 2)))
    names = [each.tiling.name for each in cuda_hopper.rank(facts, SM90A)]

    assert names[0] == best
    assert not {"square", "beside"} <= set(names)


def test_threads_with_scales_of_columns_take_registers_of_a_warpgroup_that_loads():
    (linear,) = hopper.lowered(kernel_of(in_rows(10, 65, 2)), BESIDE)

    roles = [node.attrs for node in linear.statements if node.op is Op.ROLE]
    assert [(each.warps, each.registers) for each in roles] == [(8, 232), (4, 40)]


def test_other_plans_say_that_they_do_not_scale_blocks():
    kernel = kernel_of(in_tiles(64, 64, 2))

    said = cuda_contraction.facts(kernel, SM90A)

    assert said == "the kernel folds 2 times; a block's tile holds one sum."


def test_a_plan_says_how_long_the_blocks_are():
    assert (
        choose(kernel_of(in_tiles(64, 64, 2, I8)), SM90A)
        .decisions[0]
        .reason.endswith(" Sums of 128 values of k are scaled, and then added up.")
    )


# Pipelines with one mistake.
@pytest.mark.parametrize("mistake", hopper.MISTAKES)
def test_a_mistake_in_the_pipeline_is_found(mistake):
    kernel = kernel_of(in_rows(72, 128, 5))
    (right,) = hopper.lowered(kernel, HALVES, ONE_SM)
    arrays = arrays_for(kernel)
    want = expected(kernel, arrays)

    wrong = hopper.MISTAKES[mistake](right)

    assert any(hopper.is_found([wrong], arrays, want, seed) for seed in range(2))


def block_before(linear):
    """The form that reads the scales of the block at hand where it should those of the next."""
    ahead = [node for node in linear.statements if node.op is Op.MIN][-1]
    return rebuilt(linear, lambda node: node.operands[0] if node is ahead else node)


def second_half_first(linear):
    """The form whose second products take the columns of the first."""

    def change(node):
        if node.op is not Op.WGMMA:
            return node
        attrs = replace(node.attrs, b_ahead=node.attrs.b_ahead % 128)
        return type(node)(node.op, node.dtype, node.operands, attrs)

    return rebuilt(linear, change)


def never_begun(linear):
    """The form whose products go on adding to the sums of the block before."""
    never = const(dtypes.bool, False)
    always = const(dtypes.bool, True)

    def change(node):
        last = node.operands[-1:] if node.op is Op.WGMMA else ()
        return node.replace((*node.operands[:-1], always)) if last == (never,) else node

    return rebuilt(linear, change)


OWN_MISTAKES = {
    "scales of another block": block_before,
    "columns of the other half": second_half_first,
    "sums that go on": never_begun,
    "no wait for the first half": lambda form: without(form, Op.WGMMA_WAIT, 0),
    "no wait for the second half": lambda form: without(form, Op.WGMMA_WAIT, 1),
}


@pytest.mark.parametrize("mistake", OWN_MISTAKES)
def test_a_mistake_with_scales_is_found(mistake):
    kernel = kernel_of(in_rows(16, 128, 3))
    (right,) = hopper.lowered(kernel, HALVES, ONE_SM)
    arrays = arrays_for(kernel)
    want = expected(kernel, arrays)
    assert not hopper.is_found([right], arrays, want, 0)

    wrong = OWN_MISTAKES[mistake](right)

    assert hopper.is_found([wrong], arrays, want, 0)


# Compiled.
@needs_nvrtc
@pytest.mark.parametrize("dtype", [E4M3, I8], ids=lambda each: each.name)
@pytest.mark.parametrize("scales", ["tiles", "rows"])
def test_no_register_is_spilled(scales, dtype):
    facts = hopper.taken(kernel_of(SCALES[scales](1024, 1024, 8, dtype).bfloat16()))
    fitting = [each for each in cuda_hopper.rank(facts, SM90A) if each.parts == 1]

    widest = {"tiles": "square", "rows": "beside"}[scales]
    assert widest in [each.name for each in fitting]
    for candidate in fitting:
        (linear,) = cuda_hopper.lower(facts, SM90A, candidate)
        assert frame_bytes(cubin_of(program_of(linear, SM90A).source, SM90A.name)) == 0


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [E4M3, I8, F16], ids=lambda each: each.name)
@pytest.mark.parametrize("scales", SCALES)
def test_the_device_gives_the_exact_sums_of_small_integers(scales, dtype):
    kernel = kernel_of(SCALES[scales](328, 272, 5, dtype))
    arrays = arrays_for(kernel)
    arrays[0][:] = np.nan

    results = run_on_device(choose(kernel, Device["CUDA"].target).linears, arrays)

    np.testing.assert_array_equal(results[0], expected(kernel, arrays)[0], strict=True)


@pytest.mark.gpu
def test_the_device_scales_as_a_product_in_float64():
    """Off by the bits that an instruction keeps: 33 * 2**-13 of what it adds, 4 times a block."""
    m, n, blocks = 136, 264, 6
    kernel = kernel_of(in_rows(m, n, blocks))
    rng = np.random.default_rng(5)
    x, w = [float8_bits(rng.standard_normal((rows, blocks * 128)), E4M3) for rows in (m, n)]
    a, b = [float8_values(each, E4M3).astype(np.float64) for each in (x, w)]
    rows, columns = rng.uniform(0.5, 2, (m, blocks)), rng.uniform(0.5, 2, (blocks, n))
    scales = [each.astype(np.float32) for each in (rows, columns)]
    arrays = [np.full(m * n, np.nan, np.float32), x, w, *scales]

    flat = [each.reshape(-1) for each in arrays]
    result = run_on_device(choose(kernel, Device["CUDA"].target).linears, flat)[0]

    a = (a.reshape(m, blocks, 128) * scales[0][:, :, None].astype(np.float64)).reshape(m, -1)
    b = (b.reshape(n, blocks, 128) * scales[1].T[:, :, None].astype(np.float64)).reshape(n, -1)
    bound = 4 * 33 * 2.0**-13 * (np.abs(a) @ np.abs(b).T)
    assert (np.abs(result.reshape(m, n) - a @ b.T) <= bound).all()
