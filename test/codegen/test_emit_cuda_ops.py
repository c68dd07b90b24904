"""Every elementwise op on every dtype in a GPU's form: before and after its passes, as CUDA."""

import numpy as np
import pytest
from codegen.cuda_on_host import needs_cpp, run_on_host
from codegen.edges import edges_of, padded, pairs_of
from codegen.gpu_machine import (
    TARGETS,
    block_kernel,
    cubin_of,
    frame_bytes,
    lanes_of_access,
    legal,
    run_form,
    run_on_device,
    source_of,
)
from codegen.machine import bits_of, empty, stored
from codegen.test_emit_c_ops import UNARY, apply, assert_equal_bits, ops_of, result_dtype
from runtime.cuda.programs import needs_nvrtc

from tinytensor.codegen.builder import fma
from tinytensor.codegen.functions_cuda import EXPANSIONS
from tinytensor.codegen.legalize import legalize
from tinytensor.codegen.legalize_lanes import split_lanes
from tinytensor.dtype import USER_DTYPES, dtypes
from tinytensor.ops.interpret import evaluate
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp, bitcast, cast, operand, where
from tinytensor.target import SM80

FUNCTIONS = (Op.EXP, Op.LOG, Op.SIN, Op.COS, Op.TANH, Op.ERF)
FLOATS = tuple(dtype for dtype in USER_DTYPES if dtype.is_float)
INTEGERS = tuple(dtype for dtype in USER_DTYPES if not dtype.is_float)
SAMPLE = 64
REDUCIBLE = 30000.0  # beyond, sin and cos ask a function of the device

by_dtype = pytest.mark.parametrize("dtype", USER_DTYPES, ids=lambda each: each.name)
by_float = pytest.mark.parametrize("dtype", FLOATS, ids=lambda each: each.name)
by_integer = pytest.mark.parametrize("dtype", INTEGERS, ids=lambda each: each.name)
by_target = pytest.mark.parametrize("target", TARGETS, ids=lambda each: each.name)
by_shape = pytest.mark.parametrize("is_vector", [False, True], ids=["scalar", "vector"])


def kernel_of_ops(dtype, is_vector, x, y):
    """One kernel with an output an op, and its arrays."""
    kinds = [result_dtype(op, dtype) for op in ops_of(dtype)]
    results = [(kind, apply(op)) for kind, op in zip(kinds, ops_of(dtype), strict=True)]
    lanes = lanes_of_access(dtype) if is_vector else 1
    linear = block_kernel(f"ops_{dtype.name}", (dtype, dtype), results, lanes, len(x))
    return linear, [stored(x, dtype), stored(y, dtype), *(empty(len(x), kind) for kind in kinds)]


def kernel_of_casts(dtype, is_vector):
    """One kernel with an output a dtype, and its arrays."""
    x = padded(edges_of(dtype))
    results = [(dst, lambda x, dst=dst: cast(x, dst)) for dst in USER_DTYPES]
    lanes = lanes_of_access(dtypes.float64) if is_vector else 1
    linear = block_kernel(f"casts_{dtype.name}", (dtype,), results, lanes, len(x))
    return linear, [stored(x, dtype), *(empty(len(x), dst) for dst in USER_DTYPES)]


def kernel_of_moves(dtype, is_vector):
    """A selection, and bits read as another dtype and back."""
    x, y = pairs_of(dtype)
    other = dtypes.bool if dtype is dtypes.bool else unsigned(dtype)
    results = [
        (dtype, lambda cond, x, y: where(cond, x, y)),
        (dtype, lambda cond, x, y: bitcast(bitcast(x, other), dtype)),
    ]
    lanes = lanes_of_access(dtype) if is_vector else 1
    linear = block_kernel("moves", (dtypes.bool, dtype, dtype), results, lanes, len(x))
    cond = np.arange(len(x)) % 3 == 0
    arrays = [cond, stored(x, dtype), stored(y, dtype), empty(len(x), dtype), empty(len(x), dtype)]
    return linear, arrays, [np.where(cond, x, y), x]


def kernel_of_constants(dtype):
    """An output an edge value, each a constant."""
    edges = edges_of(dtype)
    results = [(dtype, lambda x, each=each: operand(x, each)) for each in edges.tolist()]
    linear = block_kernel("constants", (dtype,), results, 1, 32, threads=32)
    return linear, [empty(32, dtype) for _ in range(len(edges) + 1)], edges


def unsigned(dtype):
    return {8: dtypes.uint8, 16: dtypes.uint16, 32: dtypes.uint32, 64: dtypes.uint64}[dtype.bits]


def kernel_of_functions(dtype, x):
    """One kernel with an output a function, and its arrays."""
    results = [(dtype, apply_function(op)) for op in FUNCTIONS]
    linear = block_kernel(f"functions_{dtype.name}", (dtype,), results, 1, len(x))
    return linear, [stored(x, dtype), *(empty(len(x), dtype) for _ in FUNCTIONS)]


def apply_function(op):
    return lambda x: UOp(op, x.dtype, (x,))


def sample_of_pairs(dtype):
    x, y = pairs_of(dtype)
    step = max(1, len(x) // SAMPLE)
    return x[::step][:SAMPLE], y[::step][:SAMPLE]


# Form: before the passes and after them.
@by_target
@by_shape
@by_dtype
def test_the_passes_of_a_gpu_keep_the_value_of_every_op(dtype, is_vector, target):
    linear, arrays = kernel_of_ops(dtype, is_vector, *sample_of_pairs(dtype))

    before = run_form(linear, arrays)
    after = run_form(legal(linear, target), arrays)

    for op, one, other in zip(ops_of(dtype), before[2:], after[2:], strict=True):
        kind = result_dtype(op, dtype)
        assert np.array_equal(bits_of(one, kind), bits_of(other, kind)), op


@by_shape
@by_dtype
def test_the_passes_of_a_gpu_keep_the_value_of_every_cast(dtype, is_vector):
    linear, arrays = kernel_of_casts(dtype, is_vector)
    expected = [evaluate(Op.CAST, dst, padded(edges_of(dtype))) for dst in USER_DTYPES]

    results = run_form(legal(linear), arrays)

    for dst, result, want in zip(USER_DTYPES, results[1:], expected, strict=True):
        assert_equal_bits(result, want, dst)


@pytest.mark.parametrize("each", [split_lanes, legalize])
@by_target
@by_dtype
def test_a_pass_of_a_gpu_changes_nothing_in_its_own_output(dtype, target, each):
    linear, _ = kernel_of_ops(dtype, True, *sample_of_pairs(dtype))

    once = each(split_lanes(linear, target), target)

    assert each(once, target) == once


@by_shape
@by_dtype
def test_the_passes_of_a_gpu_keep_what_is_moved(dtype, is_vector):
    linear, arrays, expected = kernel_of_moves(dtype, is_vector)

    results = run_form(legal(linear), arrays)

    for result, want in zip(results[3:], expected, strict=True):
        assert_equal_bits(result, want, dtype)


# Source: it compiles, and no function of its own asks for a stack.
@needs_nvrtc
@by_shape
@by_dtype
def test_every_op_compiles_without_a_stack(dtype, is_vector):
    target = TARGETS[is_vector]
    linear, _ = kernel_of_ops(dtype, is_vector, *pairs_of(dtype))

    cubin = cubin_of(source_of(linear, target), target.name)

    assert frame_bytes(cubin) == 0


@needs_nvrtc
@by_shape
@by_dtype
def test_every_cast_compiles_without_a_stack(dtype, is_vector):
    target = TARGETS[is_vector]

    cubin = cubin_of(source_of(kernel_of_casts(dtype, is_vector)[0], target), target.name)

    assert frame_bytes(cubin) == 0


@needs_nvrtc
@by_dtype
def test_moves_and_constants_compile_without_a_stack(dtype):
    for linear in (kernel_of_moves(dtype, False)[0], kernel_of_constants(dtype)[0]):
        assert frame_bytes(cubin_of(source_of(linear), SM80.name)) == 0


@needs_nvrtc
@pytest.mark.parametrize("dtype", FLOATS[:3], ids=lambda each: each.name)
def test_functions_compile_without_a_stack(dtype):
    linear, _ = kernel_of_functions(dtype, padded(edges_of(dtype)))

    assert frame_bytes(cubin_of(source_of(linear, TARGETS[1]), TARGETS[1].name)) == 0


@needs_nvrtc
def test_a_stack_frame_is_seen():
    # CUDA's float64 sine reduces large arguments in an array of its own.
    linear, _ = kernel_of_functions(dtypes.float64, padded(edges_of(dtypes.float64)))

    assert frame_bytes(cubin_of(source_of(linear), SM80.name)) > 0


# Run: the bits of the meaning; integers need no device.
@needs_cpp
@by_shape
@by_integer
def test_integer_ops_as_cuda_have_the_bits_of_their_meaning(dtype, is_vector, tmp_path):
    x, y = pairs_of(dtype)
    linear, arrays = kernel_of_ops(dtype, is_vector, x, y)

    results = run_on_host(linear, arrays, tmp_path)

    for op, result in zip(ops_of(dtype), results[2:], strict=True):
        kind = result_dtype(op, dtype)
        expected = evaluate(op, kind, *((x,) if op in UNARY else (x, y)))
        assert_equal_bits(result, expected, kind, x, y)


@pytest.mark.gpu
@by_shape
@by_dtype
def test_ops_on_a_gpu_have_the_bits_of_their_meaning(dtype, is_vector):
    x, y = pairs_of(dtype)
    linear, arrays = kernel_of_ops(dtype, is_vector, x, y)

    results = run_on_device(linear, arrays)

    for op, result in zip(ops_of(dtype), results[2:], strict=True):
        kind = result_dtype(op, dtype)
        expected = evaluate(op, kind, *((x,) if op in UNARY else (x, y)))
        assert_equal_bits(result, expected, kind, x, y)


@pytest.mark.gpu
@by_shape
@by_dtype
def test_casts_on_a_gpu_have_the_bits_of_their_meaning(dtype, is_vector):
    linear, arrays = kernel_of_casts(dtype, is_vector)
    x = padded(edges_of(dtype))

    results = run_on_device(linear, arrays)

    for dst, result in zip(USER_DTYPES, results[1:], strict=True):
        assert_equal_bits(result, evaluate(Op.CAST, dst, x), dst, x)


@pytest.mark.gpu
@by_shape
@by_dtype
def test_moves_on_a_gpu_keep_bits(dtype, is_vector):
    linear, arrays, expected = kernel_of_moves(dtype, is_vector)

    results = run_on_device(linear, arrays)

    for result, want in zip(results[3:], expected, strict=True):
        assert_equal_bits(result, want, dtype)


@pytest.mark.gpu
@by_dtype
def test_constants_on_a_gpu_are_emitted_bit_for_bit(dtype):
    linear, arrays, edges = kernel_of_constants(dtype)

    results = run_on_device(linear, arrays)

    assert_equal_bits(np.stack(results[1:])[:, 0], edges, dtype, edges)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", FLOATS[:2], ids=lambda each: each.name)
@pytest.mark.parametrize("op", [Op.ADD, Op.SUB, Op.MUL, Op.MAX, Op.MIN], ids=lambda op: op.name)
def test_pairs_of_halves_round_as_their_meaning(dtype, op, seed):
    bits = np.random.default_rng(seed).integers(0, 2**16, (2, 2**20), np.uint16)
    x, y = (evaluate(Op.BITCAST, dtype, each) for each in bits)
    linear = block_kernel("pairs", (dtype, dtype), [(dtype, apply(op))], 8, len(x))
    arrays = [bits[0].view(dtype.storage_numpy), bits[1].view(dtype.storage_numpy)]

    results = run_on_device(linear, [*arrays, empty(len(x), dtype)])

    assert_equal_bits(results[2], evaluate(op, dtype, x, y), dtype, x, y)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64], ids=lambda each: each.name)
def test_fma_on_a_gpu_rounds_once(dtype):
    x, y = pairs_of(dtype)
    z = np.roll(y, 7)
    linear = block_kernel("fma", (dtype,) * 3, [(dtype, fma)], 1, len(x))
    arrays = [stored(x, dtype), stored(y, dtype), stored(z, dtype), empty(len(x), dtype)]

    results = run_on_device(linear, arrays)

    assert_equal_bits(results[3], evaluate(Op.FMA, dtype, x, y, z), dtype, x, y, z)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", FLOATS[:3], ids=lambda each: each.name)
def test_exact_graphs_of_functions_have_the_bits_of_the_interpreted_form(dtype, seed):
    random = np.random.default_rng(seed).normal(0.0, 20.0, 2**12)
    edges = padded(edges_of(dtype)).astype(np.float64)
    near = np.where(np.abs(edges) <= REDUCIBLE, edges, 1.0)
    linear, arrays = kernel_of_functions(dtype, np.concatenate([near, random]))

    expected = run_form(legal(linear), arrays)
    results = run_on_device(linear, arrays)

    bits = zip(FUNCTIONS, results[1:], expected[1:], strict=True)
    for op, result, want in [each for each in bits if each[0] not in EXPANSIONS]:
        assert np.array_equal(bits_of(result, dtype), bits_of(want, dtype)), op


@pytest.mark.gpu
@pytest.mark.parametrize("op", [Op.SIN, Op.COS], ids=lambda op: op.name)
def test_large_angles_on_a_gpu_are_within_an_ulp(op, seed):
    bits = np.random.default_rng(seed).integers(0x46EA6000, 0x7F800000, 2**16, np.uint32)
    x = bits.view(np.float32)
    signed = np.where(np.arange(len(x)) % 2 == 0, x, -x)
    linear = block_kernel(
        "angles", (dtypes.float32,), [(dtypes.float32, apply_function(op))], 1, len(x)
    )
    exact = evaluate(op, dtypes.float64, signed.astype(np.float64))

    result = run_on_device(linear, [signed, empty(len(x), dtypes.float32)])[1]

    ulp = np.spacing(np.abs(exact).astype(np.float32))
    assert np.max(np.abs(result - exact) / ulp) <= 0.51


@pytest.mark.gpu
@pytest.mark.parametrize("op", FUNCTIONS, ids=lambda op: op.name)
def test_float64_functions_on_a_gpu_are_within_three_ulp(op, seed):
    x = np.random.default_rng(seed).normal(0.0, 3.0, 2**12)
    float64 = dtypes.float64
    linear = block_kernel("wide", (float64,), [(float64, apply_function(op))], 1, len(x))
    exact = evaluate(op, float64, x)

    result = run_on_device(linear, [x, empty(len(x), float64)])[1]

    assert np.array_equal(np.isnan(result), np.isnan(exact))
    error = np.abs(result - exact) / np.spacing(np.abs(exact))
    assert np.nanmax(error) <= 3.0
