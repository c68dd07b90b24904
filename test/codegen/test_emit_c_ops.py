"""Every elementwise op on every dtype, scalar and vector, gives the bits of its meaning."""

import functools

import numpy as np
import pytest
from codegen.edges import edges_of, padded, pairs_of
from codegen.machine import bits_of, elementwise_kernel, empty, run_c, stored, targets

from tinytensor.codegen.builder import fma, splat
from tinytensor.codegen.instructions import can_scale
from tinytensor.codegen.legalize import legalize
from tinytensor.dtype import USER_DTYPES, dtypes
from tinytensor.ops.interpret import evaluate
from tinytensor.ops.interpret_linear import run_linear
from tinytensor.ops.op import COMPARE, Op
from tinytensor.ops.uop import UOp, binary, bitcast, cast, compare, const, operand, where
from tinytensor.target import CPU_AVX512, CPU_SSE

ANY = (Op.ADD, Op.SUB, Op.MUL, Op.MAX, Op.MIN, Op.MOD, Op.NEG)
FLOATS = (*ANY, Op.DIV, Op.SQRT, Op.FLOOR, Op.TRUNC)
INTEGERS = (*ANY, Op.FLOORDIV, Op.AND, Op.OR, Op.XOR, Op.SHL, Op.SHR)
UNARY = (Op.NEG, Op.SQRT, Op.FLOOR, Op.TRUNC)
UNSIGNED = {8: dtypes.uint8, 16: dtypes.uint16, 32: dtypes.uint32, 64: dtypes.uint64}
SAMPLE = 64

# The least and the greatest that run here; what lies between has no arithmetic of its own.
EXTREMES = dict.fromkeys((targets()[0], targets()[-1]))
by_target = pytest.mark.parametrize("chosen", EXTREMES, ids=lambda each: f"{each.vector_bytes}B")
by_every_target = pytest.mark.parametrize(
    "chosen", targets(), ids=lambda each: f"{each.vector_bytes}B"
)
by_shape = pytest.mark.parametrize("is_vector", [False, True], ids=["scalar", "vector"])
by_dtype = pytest.mark.parametrize("dtype", USER_DTYPES, ids=lambda each: each.name)


def ops_of(dtype):
    return (*(FLOATS if dtype.is_float else INTEGERS), *COMPARE)


def result_dtype(op, dtype):
    return dtypes.bool if op in COMPARE else dtype


def lanes_of(is_vector, chosen, *each):
    """Lanes that fill a register with the widest type; halves compute in float32."""
    sizes = [4 if dtype.is_narrow else dtype.itemsize for dtype in each]
    return chosen.lanes(max(sizes)) if is_vector else 1


def apply(op):
    if op in UNARY:
        return lambda x, y: UOp(op, x.dtype, (x,))
    if op in COMPARE:
        return lambda x, y: compare(op, x, y)
    return lambda x, y: UOp(op, x.dtype, (x, y))


def kernel_of_ops(dtype, lanes, x, y):
    """One kernel with an output an op, and its arrays."""
    kinds = [result_dtype(op, dtype) for op in ops_of(dtype)]
    results = [(kind, apply(op)) for kind, op in zip(kinds, ops_of(dtype), strict=True)]
    linear = elementwise_kernel(f"ops_{dtype.name}", (dtype, dtype), results, lanes, len(x))
    return linear, [stored(x, dtype), stored(y, dtype), *(empty(len(x), kind) for kind in kinds)]


@functools.cache
def results_of_ops(dtype, lanes, chosen):
    linear, arrays = kernel_of_ops(dtype, lanes, *pairs_of(dtype))
    run_c(linear, arrays, chosen)
    return dict(zip(ops_of(dtype), arrays[2:], strict=True))


def assert_equal_bits(result, expected, dtype, *inputs):
    wanted = stored(expected, dtype)
    wrong = np.flatnonzero(bits_of(result, dtype) != bits_of(wanted, dtype))[:5]
    shown = [([each[i] for each in inputs], result[i], wanted[i]) for i in wrong]
    assert len(wrong) == 0, f"(inputs, result, expected): {shown}"


@by_target
@by_shape
@pytest.mark.parametrize(
    ("dtype", "op"),
    [(dtype, op) for dtype in USER_DTYPES for op in ops_of(dtype)],
    ids=lambda each: each.name,
)
def test_an_op_in_c_has_the_bits_of_its_meaning(dtype, op, is_vector, chosen):
    x, y = pairs_of(dtype)
    kind = result_dtype(op, dtype)
    expected = evaluate(op, kind, *((x,) if op in UNARY else (x, y)))

    result = results_of_ops(dtype, lanes_of(is_vector, chosen, dtype), chosen)[op]

    assert_equal_bits(result, expected, kind, x, y)


@pytest.mark.parametrize("chosen", [CPU_SSE, CPU_AVX512], ids=["sse", "avx512"])
@pytest.mark.parametrize("lanes", [1, 4])
@by_dtype
def test_legalize_keeps_the_value_of_every_op(dtype, lanes, chosen):
    x, y = (values[:: len(values) // SAMPLE][:SAMPLE] for values in pairs_of(dtype))
    linear, before = kernel_of_ops(dtype, lanes, x, y)
    after = [np.array(each) for each in before]

    run_linear(linear, before)
    run_linear(legalize(linear, chosen), after)

    for op, one, other in zip(ops_of(dtype), before[2:], after[2:], strict=True):
        kind = result_dtype(op, dtype)
        assert np.array_equal(bits_of(one, kind), bits_of(other, kind)), op


@pytest.mark.parametrize("chosen", [CPU_SSE, CPU_AVX512], ids=["sse", "avx512"])
@pytest.mark.parametrize("lanes", [1, 4])
@by_dtype
def test_legalize_changes_nothing_in_its_own_output(dtype, lanes, chosen):
    linear, _ = kernel_of_ops(dtype, lanes, *pairs_of(dtype))

    once = legalize(linear, chosen)

    assert legalize(once, chosen) == once


@functools.cache
def results_of_casts(dtype, lanes, chosen):
    x = padded(edges_of(dtype))
    results = [(dst, lambda x, dst=dst: cast(x, dst)) for dst in USER_DTYPES]
    linear = elementwise_kernel(f"casts_{dtype.name}", (dtype,), results, lanes, len(x))
    arrays = [stored(x, dtype), *(empty(len(x), dst) for dst in USER_DTYPES)]
    run_c(linear, arrays, chosen)
    return dict(zip(USER_DTYPES, arrays[1:], strict=True))


@by_target
@by_shape
@pytest.mark.parametrize("dst", USER_DTYPES, ids=lambda each: f"to_{each.name}")
@by_dtype
def test_a_cast_in_c_has_the_bits_of_its_meaning(dtype, dst, is_vector, chosen):
    x = padded(edges_of(dtype))
    expected = evaluate(Op.CAST, dst, x)
    lanes = lanes_of(is_vector, chosen, dtypes.float64)

    assert_equal_bits(results_of_casts(dtype, lanes, chosen)[dst], expected, dst, x)


def run_elementwise(sources, result, function, lanes, arrays, chosen=None):
    """Run a kernel with one output; its stored array."""
    linear = elementwise_kernel("one", sources, [(result, function)], lanes, len(arrays[0]))
    out = empty(len(arrays[0]), result)
    inputs = [stored(each, dtype) for each, dtype in zip(arrays, sources, strict=True)]
    run_c(linear, [*inputs, out], chosen)
    return out


@by_every_target
@pytest.mark.parametrize("lanes", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16], ids=lambda each: each.name)
def test_every_half_widens_exactly_and_back(dtype, lanes, chosen):
    if lanes > chosen.lanes(4):
        pytest.skip("wider than a register")
    halves = np.arange(2**16, dtype=np.uint16).view(dtype.storage_numpy)
    as_wide = empty(2**16, dtypes.float32)
    back = empty(2**16, dtype)
    wide = (dtypes.float32, lambda x: cast(x, dtypes.float32))
    again = (dtype, lambda x: cast(cast(x, dtypes.float32) * 1.0, dtype))
    linear = elementwise_kernel("halves", (dtype,), [wide, again], lanes, 2**16)

    run_c(linear, [halves, as_wide, back], chosen)

    values = halves.astype(np.float32)
    if dtype is dtypes.bfloat16:
        values = (halves.astype(np.uint32) << 16).view(np.float32)
    assert_equal_bits(as_wide, values, dtypes.float32, halves)
    assert np.array_equal(bits_of(back, dtype), bits_of(halves, dtype))


@by_shape
@by_dtype
def test_where_selects_bits(dtype, is_vector):
    x, y = pairs_of(dtype)
    cond = padded(np.arange(len(x)) % 3 == 0)
    lanes = lanes_of(is_vector, CPU_SSE, dtype)

    result = run_elementwise((dtypes.bool, dtype, dtype), dtype, where, lanes, [cond, x, y])

    assert_equal_bits(result, np.where(cond, x, y), dtype, cond, x, y)


@by_shape
@pytest.mark.parametrize("dtype", USER_DTYPES[1:], ids=lambda each: each.name)
def test_bitcast_keeps_bits(dtype, is_vector):
    x = padded(edges_of(dtype))
    other = UNSIGNED[dtype.bits]
    lanes = lanes_of(is_vector, CPU_SSE, dtype)

    result = run_elementwise(
        (dtype,), dtype, lambda x: bitcast(bitcast(x, other) ^ 1, dtype), lanes, [x]
    )

    bits = f"uint{dtype.bits}"
    assert np.array_equal(result.view(bits), stored(x, dtype).view(bits) ^ 1)


@by_every_target
@by_shape
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64], ids=lambda each: each.name)
def test_fma_rounds_once(dtype, is_vector, chosen):
    x, y = pairs_of(dtype)
    z = np.roll(y, 7)
    expected = evaluate(Op.FMA, dtype, x, y, z)
    lanes = lanes_of(is_vector, chosen, dtype)

    result = run_elementwise((dtype,) * 3, dtype, fma, lanes, [x, y, z], chosen)

    assert_equal_bits(result, expected, dtype, x, y, z)


@by_every_target
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64], ids=lambda each: each.name)
def test_a_power_of_two_is_applied_by_one_instruction_where_there_is_one(dtype, chosen):
    lanes = lanes_of(True, chosen, dtype)
    probe = splat(const(dtype, 1), lanes)
    if not can_scale(probe, chosen):
        pytest.skip("no such instruction")
    x, n = pairs_of(dtype)
    n = np.clip(np.trunc(np.nan_to_num(n)), -2000, 2000)
    expected = evaluate(Op.SCALE, dtype, x, n)

    result = run_elementwise((dtype,) * 2, dtype, apply(Op.SCALE), lanes, [x, n], chosen)

    assert_equal_bits(result, expected, dtype, x, n)


DIVISORS = (1, 2, 3, 7, 64, 100, -1, -2, -7)


@by_shape
@pytest.mark.parametrize("op", [Op.FLOORDIV, Op.MOD], ids=lambda each: each.name)
@pytest.mark.parametrize("divisor", DIVISORS)
@pytest.mark.parametrize("dtype", [dtypes.int8, dtypes.int32, dtypes.int64], ids=lambda d: d.name)
def test_division_by_a_constant_rounds_toward_the_floor(dtype, divisor, op, is_vector):
    x = padded(edges_of(dtype))
    expected = evaluate(op, dtype, x, np.full_like(x, divisor))
    lanes = lanes_of(is_vector, CPU_SSE, dtype)

    result = run_elementwise((dtype,), dtype, lambda x: binary(op, x, divisor), lanes, [x])

    assert_equal_bits(result, expected, dtype, x)


@pytest.mark.parametrize("bound", [0.0, -0.0, 1.0, np.inf, np.nan])
@pytest.mark.parametrize("op", [Op.MAX, Op.MIN], ids=lambda each: each.name)
@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.float32], ids=lambda each: each.name)
def test_an_extremum_with_a_constant_keeps_nan_and_zeros_sign(dtype, op, bound):
    x = padded(edges_of(dtype))
    expected = evaluate(op, dtype, x, np.full_like(x, bound))

    result = run_elementwise((dtype,), dtype, lambda x: binary(op, x, bound), 4, [x])

    assert_equal_bits(result, expected, dtype, x)


@by_shape
@pytest.mark.parametrize("integer", [dtypes.int8, dtypes.int32, dtypes.int64], ids=lambda d: d.name)
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64], ids=lambda each: each.name)
def test_a_float_cast_to_an_integer_and_back_is_no_negative_zero(dtype, integer, is_vector):
    x = padded(edges_of(dtype))
    expected = evaluate(Op.CAST, dtype, evaluate(Op.CAST, integer, x))
    lanes = lanes_of(is_vector, CPU_SSE, dtypes.float64)

    result = run_elementwise((dtype,), dtype, lambda x: cast(cast(x, integer), dtype), lanes, [x])

    assert_equal_bits(result, expected, dtype, x)


@by_dtype
def test_a_constant_is_emitted_bit_for_bit(dtype):
    edges = edges_of(dtype)
    results = [(dtype, lambda x, each=each: operand(x, each)) for each in edges.tolist()]
    linear = elementwise_kernel("constants", (dtype,), results, 1, 1)
    arrays = [empty(1, dtype) for _ in range(len(edges) + 1)]

    run_c(linear, arrays)

    assert_equal_bits(np.concatenate(arrays[1:]), edges, dtype, edges)
