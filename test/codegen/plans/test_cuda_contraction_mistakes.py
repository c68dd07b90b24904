"""Programs of the portable CUDA plans with one mistake are refused, or their sums differ."""

from dataclasses import replace

import pytest
from codegen.plans.plan_kernels import arrays_for, expected
from codegen.plans.test_cuda_contraction import (
    assert_a_swizzle_matters,
    double,
    half,
    mma_lowered,
    rebuilt,
    without,
)

from tinytensor.codegen.legalize_tiles import legalize_tiles
from tinytensor.codegen.plans.tiling_cuda import MmaTiling
from tinytensor.errors import InternalError
from tinytensor.ops.interpret_blocks import run_blocks
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp
from tinytensor.target import SM80, SM90A


def assert_rejected(linear, kernel, words):
    with pytest.raises(InternalError, match=words):
        run_blocks(linear, arrays_for(kernel))


def test_a_swizzle_on_one_side_alone_mixes_the_factors_up():
    assert_a_swizzle_matters(half(64, 32, 96), TWO_WARPS)


TWO_WARPS = MmaTiling("two warps", 64, 32, 16, 2, 1, stages=3)


@pytest.fixture(scope="module", params=["collective", "threads", "threads on doubles"])
def product_form(request):
    kernel = double(64, 32, 96) if "doubles" in request.param else half(64, 32, 96)
    linear = mma_lowered(kernel, TWO_WARPS)
    return kernel, linear if request.param == "collective" else legalize_tiles(linear, SM80)


def test_doubles_of_rows_that_are_spread_otherwise_are_mixed_up():
    """Sums are stored where the lanes' rows are, so both must spread them in the same way."""
    kernel = double(64, 32, 96)
    arrays = arrays_for(kernel)

    def turn(node):
        is_product = node.op is Op.TILE_MMA
        changed = replace(node.attrs, instruction="m8n8k4.f64") if is_product else None
        return UOp(node.op, node.dtype, node.operands, changed) if is_product else node

    linear = mma_lowered(kernel, TWO_WARPS, SM90A)
    results = [each.copy() for each in arrays]
    run_blocks(legalize_tiles(rebuilt(linear, turn), SM90A), results)

    assert (results[2] != expected(kernel, arrays)[2]).any()


def test_a_missing_barrier_is_found(product_form):
    kernel, linear = product_form

    assert_rejected(without(linear, Op.BARRIER, 0), kernel, "race|unfinished|flight|poison")


def test_a_missing_wait_is_found(product_form):
    kernel, linear = product_form

    assert_rejected(without(linear, Op.COPY_WAIT, 0), kernel, "race|unfinished|flight|poison")


def test_a_wait_for_one_group_too_few_is_found(product_form):
    kernel, linear = product_form

    def wait_less(node):
        if node.op is not Op.COPY_WAIT:
            return node
        return UOp(node.op, node.dtype, (), replace(node.attrs, pending=node.attrs.pending + 1))

    assert_rejected(rebuilt(linear, wait_less), kernel, "race|unfinished|flight|poison")


def test_one_stage_too_few_is_found(product_form):
    kernel, linear = product_form

    def turn_sooner(node):
        is_turn = node.op is Op.TRUNCMOD and node.operands[1].value == TWO_WARPS.stages
        return node.operands[0] % 2 if is_turn else node

    assert_rejected(rebuilt(linear, turn_sooner), kernel, "race|unfinished|flight|poison")
