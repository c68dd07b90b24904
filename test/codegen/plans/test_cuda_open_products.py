"""Products of a GPU whose extents are known only at launch: one program, exact at every size."""

import numpy as np
import pytest
from codegen.gpu_machine import cubin_of
from codegen.plans.test_cuda_contraction import FMA_SQUARE, FMA_WARPS, MMA, MMA_WARPS
from codegen.plans.test_cuda_hopper import ALTERNATING, FEW, ONE, TOGETHER
from codegen.plans.test_cuda_hopper import SMALL as ON_TWO
from runtime.cuda.programs import needs_nvrtc
from schedule.reading import leaf_values

from tinytensor import Tensor, Variable, dtypes, mark_dynamic
from tinytensor.codegen.legalize_tiles import legalize_tiles
from tinytensor.codegen.lower import lower
from tinytensor.codegen.plans import cuda_contraction, cuda_ffma, cuda_hopper
from tinytensor.codegen.plans.amounts import pitch_of
from tinytensor.codegen.plans.cuda_hopper_tiling import Candidate
from tinytensor.codegen.plans.tiling_cuda import MmaTiling
from tinytensor.config import config
from tinytensor.ops.interpret import from_storage, to_storage
from tinytensor.ops.interpret_blocks import run_launches
from tinytensor.ops.op import Op
from tinytensor.ops.simplify_index import simplify_index
from tinytensor.ops.size import recorded_claims, value_of
from tinytensor.ops.uop import index_const, make_range, make_variable
from tinytensor.ops.verify import verify_indexed, verify_linear
from tinytensor.schedule.schedule import Options, schedule
from tinytensor.target import SM80, SM90A

N, M = Variable("n", 1, 4096), Variable("m", 1, 4096)
SIZES = (2, 32, 33, 70)
WEIGHT = (np.arange(40 * 24).reshape(40, 24) % 7 - 3).astype(np.float32)
BIAS = np.arange(24, dtype=np.float32) - 12
MMA_SQUARE = MmaTiling("smallest in two stages", 32, 32, 16, 1, 1, stages=2)


def operand(*shape):
    """Small integers, so that sums are exact in any order, and as halves."""
    return (np.arange(np.prod(shape)).reshape(shape) * 7 % 5 - 2).astype(np.float32)


def opened(values, dtype, *axes):
    x = Tensor(values, device=config.device or "CPU").cast(dtype).realize()
    for axis, variable in axes:
        x = mark_dynamic(x, axis, variable)
    return x


def constant(values, dtype):
    return Tensor(values, device=config.device or "CPU").cast(dtype).realize()


def swapped(x):
    return np.swapaxes(x, -1, -2)


# Each gives the tensor of a program at a size, and its values in NumPy.
def linear(n, dtype):
    values = operand(n, 40)
    x = opened(values, dtype, (0, N))
    return x @ constant(WEIGHT.T, dtype).T + constant(BIAS, dtype), values @ WEIGHT + BIAS


def rows(n, dtype):
    values = operand(n, 40)
    return opened(values, dtype, (0, N)) @ constant(WEIGHT, dtype), values @ WEIGHT


def gram(n, dtype):
    values = operand(n, 40)
    x = opened(values, dtype, (0, N))
    return (x @ x.T + 1).relu(), np.maximum(values @ values.T + 1, 0)


def square(n, dtype):
    values = operand(n, n)
    x = opened(values, dtype, (0, N), (1, N))
    return (x @ x.T + 1).relu(), np.maximum(values @ values.T + 1, 0)


def inner(n, dtype):
    values = operand(n, 40)
    x = opened(values, dtype, (0, N))
    return x.T @ x, values.T @ values


def columns(n, dtype):
    values = operand(40, n)
    return constant(WEIGHT.T, dtype) @ opened(values, dtype, (1, N)), WEIGHT.T @ values


def batch(n, dtype):
    values = operand(n % 7 + 2, 9, 40)
    x = opened(values, dtype, (0, N))
    return x @ x.transpose(1, 2), values @ swapped(values)


def batch_of_rows(n, dtype):
    values = operand(3, n, 24)
    x = opened(values, dtype, (1, N))
    return x @ x.transpose(1, 2), values @ swapped(values)


def prologue(n, dtype):
    values = operand(n, 40)
    x = opened(values, dtype, (0, N))
    return (x * 2 + 1) @ constant(WEIGHT, dtype), (values * 2 + 1) @ WEIGHT


def pair(n, dtype):
    left, right = operand(n, 24), operand(n // 2 + 1, 24)
    a, b = opened(left, dtype, (0, N)), opened(right, dtype, (0, M))
    return a @ b.T, left @ right.T


ROWS = (linear, rows, columns, prologue, pair)
GRAMS = (gram, square, inner, batch, batch_of_rows)
PROGRAMS = ROWS + GRAMS
NAMED = {"ids": lambda each: each.__name__}


def planned(make, n, dtype, target=SM80):
    """The one kernel of a program at a size, its arrays, its result, and its scalars."""
    tensor, wanted = make(n, dtype)
    if dtype is dtypes.float16:
        assert np.abs(wanted).max() < 2048, "halves hold the results"
    with recorded_claims() as claims:
        (call,) = schedule([tensor.uop], target, Options(3, True, False))
    verify_indexed(call.kernel)
    assert all(each.op is not Op.EQ for each in claims)
    known = leaf_values(tensor)
    arrays = [np.zeros(wanted.size, tensor.uop.dtype.storage_numpy)]
    arrays += [to_storage(known[each].reshape(-1), each.dtype) for each in call.nodes[1:]]
    return call.kernel, arrays, wanted, tuple(map(value_of, call.variables))


def assert_exact(plan, make, n, dtype, tiling, target=SM80, change=lambda each: each):
    kernel, arrays, wanted, scalars = planned(make, n, dtype, target)
    facts = plan.facts(kernel, target)
    assert not isinstance(facts, str), facts
    launches = [change(each) for each in plan.lower(facts, target, tiling)]
    for each in launches:
        verify_linear(each)

    run_launches(launches, arrays, scalars=scalars)

    found = from_storage(arrays[0], kernel.params[0].dtype).reshape(wanted.shape)
    np.testing.assert_array_equal(found.astype(np.float64), wanted.astype(np.float64))


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("make", PROGRAMS, **NAMED)
def test_matrix_instructions_sum_every_size(make, n):
    assert_exact(cuda_contraction, make, n, dtypes.float16, MMA_SQUARE)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("make", PROGRAMS, **NAMED)
def test_threads_sum_every_size(make, n):
    assert_exact(cuda_ffma, make, n, dtypes.float32, FMA_SQUARE)


@pytest.mark.parametrize("n", [2, 33, 70])
@pytest.mark.parametrize("make", PROGRAMS, **NAMED)
def test_factors_of_every_size_are_rewritten_in_rows(make, n, monkeypatch):
    monkeypatch.setattr(cuda_contraction, "PACKED_PRODUCTS", 0)
    assert_exact(cuda_contraction, make, n, dtypes.float16, MMA_SQUARE)


def on_hopper(tiling, mirrors=False, parts=1):
    return Candidate(tiling, tiling.stages, 0, 0.0, mirrors, parts)


@pytest.mark.parametrize("n", [2, 64, 70])
@pytest.mark.parametrize("make", PROGRAMS, **NAMED)
def test_hopper_sums_every_size(make, n, monkeypatch):
    monkeypatch.setattr(cuda_contraction, "PACKED_PRODUCTS", 0)
    assert_exact(cuda_hopper, make, n, dtypes.float16, on_hopper(ONE), ON_TWO)


@pytest.mark.parametrize("tiling", [ALTERNATING, TOGETHER, FEW], ids=lambda each: each.name)
@pytest.mark.parametrize("make", [linear, square, inner], **NAMED)
def test_every_form_of_hopper_sums_open_sizes(make, tiling, monkeypatch):
    monkeypatch.setattr(cuda_contraction, "PACKED_PRODUCTS", 0)
    assert_exact(cuda_hopper, make, 70, dtypes.float16, on_hopper(tiling), ON_TWO)


@pytest.mark.parametrize("n", [64, 130])
def test_hopper_mirrors_an_open_symmetric_product(n, monkeypatch):
    monkeypatch.setattr(cuda_contraction, "PACKED_PRODUCTS", 0)
    for make in (gram, square):
        assert_exact(cuda_hopper, make, n, dtypes.float16, on_hopper(ONE, mirrors=True), ON_TWO)


def long_rows(n, dtype):
    values, weight = operand(n, 320), operand(320, 24)
    weight[:, ::2] = 1
    x = opened(values % 2, dtype, (0, N))
    return x @ constant(weight, dtype), (values % 2) @ weight


@pytest.mark.parametrize("n", [2, 65])
def test_parts_of_open_rows_are_summed_apart(n):
    assert_exact(cuda_hopper, long_rows, n, dtypes.float16, on_hopper(ONE, parts=2), ON_TWO)


def test_a_sum_of_any_length_has_one_part():
    kernel, _, _, _ = planned(inner, 100, dtypes.float16, SM90A)

    ranked = cuda_hopper.rank(cuda_hopper.facts(kernel, SM90A), SM90A)

    assert {each.parts for each in ranked} == {1}


@pytest.mark.parametrize("make", [rows, gram, inner], **NAMED)
def test_warps_share_a_block_of_an_open_product(make):
    assert_exact(cuda_contraction, make, 70, dtypes.float16, MMA_WARPS)
    assert_exact(cuda_ffma, make, 70, dtypes.float32, FMA_WARPS)


@pytest.mark.parametrize("n", [2, 33])
@pytest.mark.parametrize("make", PROGRAMS, **NAMED)
def test_the_threads_of_a_tile_sum_every_size(make, n):
    def change(linear):
        return legalize_tiles(linear, SM80)

    assert_exact(cuda_contraction, make, n, dtypes.float16, MMA, change=change)


@pytest.mark.parametrize("make", [each for each in PROGRAMS if each not in (pair, batch)], **NAMED)
def test_one_kernel_serves_a_class_of_sizes(make):
    kernels = {planned(make, n, dtypes.float32)[0].sink for n in (130, 131, 300, 512)}

    assert len(kernels) == 1
    other = planned(make, 128, dtypes.float32)[0].sink
    assert (other in kernels) == (make is inner), "tiles do not depend on how much is summed"


def test_half_of_an_open_symmetric_product_is_computed():
    kernel, _, _, _ = planned(square, 40, dtypes.float16)
    facts = cuda_contraction.facts(kernel, SM80)

    (linear,) = cuda_contraction.lower(facts, SM80, MMA_SQUARE)

    tiles = [2, 3, 4, 7]
    blocks = [linear.grid.blocks_at((32 * each,))[0] for each in tiles]
    assert blocks == [each * (each + 1) // 2 for each in tiles]
    assert linear.grid.blocks == (10, 1, 1)


def test_rows_of_an_open_length_are_copied_as_they_lie():
    kernel, _, _, _ = planned(square, 40, dtypes.float32)
    facts = cuda_ffma.facts(kernel, SM80)

    (linear,) = cuda_ffma.lower(facts, SM80, FMA_SQUARE)

    assert not facts.through_registers
    assert any(node.op is Op.COPY_ASYNC for node in linear.statements)


ROW, COLUMN, LENGTH = make_range(0, 64), make_range(1, 64), make_variable(1, 1, 64)


@pytest.mark.parametrize(
    ("index", "pitch"),
    [
        (ROW * 48 + COLUMN + 5, index_const(48)),
        (ROW * LENGTH + COLUMN, LENGTH),
        (ROW * LENGTH + ROW * 3 + COLUMN, LENGTH + 3),
        (COLUMN, index_const(0)),
        (ROW * COLUMN, None),
        (ROW // 2 + COLUMN, None),
    ],
)
def test_a_pitch_is_what_a_row_adds_to_an_index(index, pitch):
    found = pitch_of(index, ROW)

    assert found is (None if pitch is None else simplify_index(pitch))


@needs_nvrtc
@pytest.mark.parametrize("target", [SM80, SM90A], ids=lambda each: each.name)
@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.float32], ids=lambda each: each.name)
@pytest.mark.parametrize("make", PROGRAMS, **NAMED)
def test_open_products_compile(make, dtype, target):
    kernel, _, _, _ = planned(make, 200, dtype, target)
    lowered = lower(kernel, target)

    assert lowered.plan in ("hopper", "contraction", "multiply-add")
    assert cubin_of(lowered.program.source, target.name)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.float32], ids=lambda each: each.name)
@pytest.mark.parametrize("make", PROGRAMS, **NAMED)
def test_the_device_gives_the_exact_products_of_every_size(make, dtype):
    for n in (2, 33, 128, 200, 511, 600, 1):
        with config(device="CUDA"):
            tensor, wanted = make(n, dtype)
            found = tensor.numpy()

        np.testing.assert_array_equal(found, wanted.astype(found.dtype), f"{n} rows")
