"""Products of float32 as three of TF32: errors are like those of float32 sums."""

from dataclasses import replace

import numpy as np
import pytest
from codegen.gpu_machine import cubin_of, frame_bytes, program_of, run_on_device
from codegen.plans.plan_kernels import arrays_for
from codegen.plans.test_cuda_contraction import without
from codegen.plans.test_cuda_hopper import (
    ALTERNATING,
    BY_NAME,
    FEW,
    ONE,
    TOGETHER,
    device_target,
    is_found,
    results_of,
    rounded,
    taken,
)
from runtime.cuda.programs import needs_nvrtc

from tinytensor.codegen.plan import choose
from tinytensor.codegen.plans import cuda_contraction, cuda_hopper
from tinytensor.codegen.plans.cuda_hopper_halves import PROMOTED_AFTER
from tinytensor.codegen.plans.cuda_hopper_tiling import TILINGS, Candidate, estimate
from tinytensor.dtype import dtypes
from tinytensor.ops.op import Op
from tinytensor.ops.verify import verify_linear
from tinytensor.target import SM90A

F32 = dtypes.float32
EXACTLY = SM90A.with_fp32_matmul("3xtf32")
FORMS = (ONE, ALTERNATING, TOGETHER, FEW)
# Both roundings of lows to TF32 and the product of lows, each 2**-22 of a product.
LOST = 3 * 2.0**-22
ULP = 2.0**-24


@pytest.fixture(autouse=True)
def small_products_are_rewritten(monkeypatch):
    monkeypatch.setattr(cuda_contraction, "PACKED_PRODUCTS", 1)


def lowered(kernel, tiling, target=EXACTLY, parts=1):
    candidate = Candidate(tiling, tiling.stages, 0, 0.0, parts=parts)
    return cuda_hopper.lower(taken(kernel, target), replace(target, multiprocessors=2), candidate)


def assert_near(result, x, y, truncated=1.0):
    """Compare with exact sums; each of a block's sums and of the promoted rounds once."""
    x, y = x.astype(np.float64), y.astype(np.float64)
    chunk = min(x.shape[1], PROMOTED_AFTER)
    sums = 3 * chunk + x.shape[1] // chunk + 1
    bound = (LOST + truncated * sums * ULP) * (abs(x) @ abs(y))
    assert (abs(result.reshape(bound.shape) - x @ y) <= bound).all()


def drawn(m, n, k, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape).astype(np.float32) for shape in ((m, k), (k, n))]


def arrays_of(x, y, turned):
    return [
        x.reshape(-1),
        (y.T if turned else y).reshape(-1),
        np.full(x.shape[0] * y.shape[1], np.nan, np.float32),
    ]


@pytest.mark.parametrize("turned", [False, True], ids=["NN", "NT"])
@pytest.mark.parametrize("tiling", FORMS, **BY_NAME)
def test_sums_are_as_exact_as_those_of_float32(tiling, turned):
    x, y = drawn(72, 40, 101)

    forms = lowered(rounded(72, 40, 101, F32, False, turned), tiling)

    for each in forms:
        verify_linear(each)
    assert_near(results_of(forms, arrays_of(x, y, turned))[2], x, y)


def test_sums_in_parts_are_as_exact():
    x, y = drawn(64, 64, 300)

    forms = lowered(rounded(64, 64, 300, F32), ONE, parts=3)

    assert_near(results_of(forms, arrays_of(x, y, True))[2], x, y)


def test_small_integers_are_exact():
    kernel = rounded(72, 64, 130, F32)
    arrays = arrays_for(kernel)

    result = results_of(lowered(kernel, ONE), arrays)[2]

    x, y = arrays[0].reshape(72, 130).astype(np.float64), arrays[1].reshape(64, 130)
    np.testing.assert_array_equal(result.reshape(72, 64), x @ y.T)


def test_what_is_not_finite_or_nearly_so():
    """A factor times 1: great floats stay, NaN too, and infinities become NaN."""
    greatest = np.float32(np.finfo(np.float32).max * (1 - 2.0**-20))
    quiet_low = np.array([0x7F800001], np.uint32).view(np.float32)[0]
    values = np.array([greatest, -greatest, np.inf, np.nan, quiet_low, 1e-40, 0, 3], np.float32)
    x = np.diag(values)

    forms = lowered(rounded(8, 8, 8, F32), ONE)
    result = results_of(forms, arrays_of(x, np.eye(8, dtype=np.float32), True))[2].reshape(8, 8)

    found = [result[i, i] for i in range(8)]
    np.testing.assert_allclose(found[:2], [greatest, -greatest], rtol=2.0**-22)
    assert np.isnan(found[2:5]).all()
    assert abs(found[5] - values[5]) <= 2.0**-137  # what is left is cut off below the least of TF32
    assert found[6:] == [0, 3]


MISTAKES = {
    "sums are added before they are there": lambda form: without(form, Op.WGMMA_WAIT, -2),
    "no fence of sums": lambda form: without(form, Op.WGMMA_FENCE, 0),
}


@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.parametrize("tiling", [ONE, ALTERNATING], **BY_NAME)
def test_a_mistake_in_the_promotion_is_found(tiling, mistake):
    kernel = rounded(64, 64, 128, F32)
    arrays = arrays_for(kernel)
    *before, right = lowered(kernel, tiling)
    want = results_of((*before, right), arrays)

    wrong = (*before, MISTAKES[mistake](right))

    assert is_found(wrong, arrays, want, 0)


def test_the_plan_says_that_factors_are_sums():
    kernel = rounded(4096, 4096, 4096, F32)

    reason = choose(kernel, EXACTLY).decisions[0].reason

    assert reason == (
        "wgmma.tf32, 1024 tiles 128 x 128 (square), 2 warpgroups, 3 stages: about 1651640 clocks; "
        "then half 1725747, flat 1735987. 2 of 2 factors rewritten in rows before. Factors are "
        "sums of two TF32. Sums may be truncated where others round."
    )


@needs_nvrtc
@pytest.mark.parametrize("tiling", TILINGS, **BY_NAME)
def test_promoted_sums_compile_without_spills(tiling):
    facts = taken(rounded(1024, 1024, 768, F32), EXACTLY)
    candidate = estimate(tiling, cuda_hopper.need_of(facts), EXACTLY)
    if candidate is None:
        assert tiling.name in ("alternating", "wide", "tall", "broad", "three", "long")
        return
    *_, linear = cuda_hopper.lower(facts, EXACTLY, candidate)

    assert frame_bytes(cubin_of(program_of(linear, SM90A).source, SM90A.name)) == 0


@pytest.mark.gpu
@pytest.mark.parametrize("sizes", [(256, 384, 1024), (100, 260, 4099)], ids=str)
@pytest.mark.parametrize("turned", [False, True], ids=["NN", "NT"])
def test_the_device_sums_as_exactly(sizes, turned):
    """Its instructions truncate where others round, which doubles an error."""
    target = device_target().with_fp32_matmul("3xtf32")
    x, y = drawn(*sizes)

    forms = cuda_hopper.lower(taken(rounded(*sizes, F32, False, turned), target), target)

    assert_near(run_on_device(forms, arrays_of(x, y, turned))[2], x, y, truncated=2.0)
