"""The C of memory, masks, lanes, registers and blocks, and the door to it."""

import math

import numpy as np
import pytest
from codegen.edges import edges_of, padded
from codegen.machine import bits_of, elementwise_kernel, empty, run_c, stored, target

from tinytensor.codegen.builder import Builder, lane, shuffle, splat, stack
from tinytensor.codegen.emit_c import emit_c
from tinytensor.codegen.legalize import legalize
from tinytensor.dtype import USER_DTYPES, dtypes
from tinytensor.errors import InternalError
from tinytensor.ops.attrs import CallAttrs, ConstAttrs
from tinytensor.ops.interpret_linear import run_linear
from tinytensor.ops.kernel import Param
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp, binary, cast, compare, operand, where
from tinytensor.target import CPU_AVX2, CPU_AVX512, CPU_SSE

F32, F64, I32, BOOL = dtypes.float32, dtypes.float64, dtypes.int32, dtypes.bool
FUNCTIONS = (Op.EXP, Op.LOG, Op.SIN, Op.COS, Op.TANH, Op.ERF)


def builder(*params, name="kernel"):
    """A builder whose params are (dtype, elements, written)."""
    return Builder(name, [Param(*each) for each in params], I32)


def source_of(linear, chosen=CPU_AVX512):
    return emit_c(legalize(linear, chosen), chosen).source


# Memory.
def partial(dtype, lanes, valid):
    """A kernel that reads some lanes and stores all, and reads all and stores some."""
    b = builder((dtype, lanes, False), (dtype, lanes, True), (dtype, lanes, True))
    part = b.load(b.param(0), b.index(0), lanes, valid)
    b.store(b.param(1), b.index(0), part)
    b.store(b.param(2), b.index(0), b.load(b.param(0), b.index(0), lanes), valid)
    return b.finish()


@pytest.mark.parametrize(
    "lanes, valid", [(4, 1), (4, 2), (4, 3), (4, 4), (8, 5), (8, 7), (16, 6), (16, 13)]
)
@pytest.mark.parametrize("dtype", USER_DTYPES[:1] + USER_DTYPES[5:], ids=lambda each: each.name)
def test_a_partial_access_touches_its_valid_lanes_only(dtype, lanes, valid):
    if lanes * dtype.itemsize > target().vector_bytes:
        pytest.skip("no register holds it")
    source = stored(np.arange(1, lanes + 1) % 2, dtype)
    padded_load, short_store = empty(lanes, dtype), empty(lanes, dtype)

    run_c(partial(dtype, lanes, valid), [source, padded_load, short_store])

    is_valid = np.arange(lanes) < valid
    assert np.array_equal(padded_load, np.where(is_valid, source, 0))
    assert np.array_equal(short_store, np.where(is_valid, source, empty(lanes, dtype)))


def test_a_partial_vector_does_not_go_through_memory_where_an_instruction_masks_it():
    kernel = partial(F32, 8, 5)

    assert "load_some_f32x8(p0 + 0, 0x1f)" in source_of(kernel)
    assert "store_some_f32x8(p2 + 0, load_f32x8(p0 + 0), 0x1f);" in source_of(kernel)
    assert "memcpy" not in source_of(kernel)
    assert source_of(kernel, CPU_AVX2).count("memcpy") == 2


@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("dtype", [F32, BOOL], ids=lambda each: each.name)
def test_a_false_guard_touches_no_memory(dtype, lanes):
    b = builder((BOOL, 2, False), (dtype, lanes, False), (dtype, 2 * lanes, True))
    far = b.index(2**30)
    for each in range(2):
        guard = b.load(b.param(0), b.index(each))
        index = where(guard, b.index(0), far)
        value = b.load(b.param(1), index, lanes, guard=guard)
        b.store(b.param(2), b.index(each * lanes), value)
        other = binary(Op.XOR, guard, True)
        b.store(b.param(2), where(other, b.index(0), far), value, guard=other)
    ones = stored(np.ones(lanes), dtype)
    out = empty(2 * lanes, dtype)

    run_c(b.finish(), [np.array([False, True]), ones, out])

    assert np.array_equal(out, np.concatenate([ones * 0, ones]))


def test_stored_bytes_other_than_one_are_true():
    kernel = elementwise_kernel("truth", (BOOL,), [(BOOL, lambda x: x)], 16, 32)
    out = empty(32, BOOL)

    run_c(kernel, [np.arange(32, dtype=np.uint8).view(np.bool_), out])

    assert np.array_equal(out.view(np.uint8), np.arange(32) > 0)


def test_workspace_regions_hold_values_apart():
    b = builder((F32, 16, False), (F32, 16, True))
    floats, wholes = b.workspace(F32, 16), b.workspace(I32, 16)
    with b.loop(0, 16) as i:
        x = b.load(b.param(0), i)
        b.store(floats, i, x * 2.0)
        b.store(wholes, i, i + 100)
    with b.loop(0, 16, step=4) as i:
        mixed = b.load(floats, i, 4) + cast(b.load(wholes, i, 4), F32)
        b.store(b.param(1), i, mixed)
    out = empty(16, F32)

    run_c(b.finish(), [np.arange(16, dtype=np.float32), out])

    assert np.array_equal(out, np.arange(16) * 2 + np.arange(100, 116))


# Masks.
WIDTHS = [dtypes.int8, dtypes.float16, I32, F32, dtypes.int64, F64]


@pytest.mark.parametrize("made_of", WIDTHS, ids=lambda each: f"from_{each.name}")
@pytest.mark.parametrize("used_on", WIDTHS, ids=lambda each: f"on_{each.name}")
def test_a_mask_selects_values_of_another_width(made_of, used_on):
    def select(x, y):
        positive = operand(x, 0) < x
        even = compare(Op.EQ, cast(y, I32) & 1, 0)
        return where(positive & even, y, 7)

    lanes = target().lanes(8)
    kernel = elementwise_kernel("mix", (made_of, used_on), [(used_on, select)], lanes, 64)
    x, y = np.arange(64) % 3 - 1, np.arange(64)
    out = empty(64, used_on)

    run_c(kernel, [stored(x, made_of), stored(y, used_on), out])

    assert np.array_equal(out, np.where((x > 0) & (y % 2 == 0), y, 7).astype(out.dtype))


@pytest.mark.parametrize("lanes", [1, 4, 8])
def test_bools_go_through_registers_constants_and_selection(lanes):
    b = builder((F32, 64, False), (BOOL, 64, False), (BOOL, lanes, True))
    seen = b.register(BOOL.vector(lanes), False)
    with b.loop(0, 64, step=lanes) as i:
        negative = b.load(b.param(0), i, lanes) < 0.0
        flag = b.load(b.param(1), i, lanes)
        chosen = where(flag, negative, binary(Op.XOR, negative, True))
        b.write(seen, b.read(seen) ^ chosen)
    b.store(b.param(2), b.index(0), b.read(seen))
    x = np.where(np.arange(64) * 7 % 5 < 2, -1.0, 1.0).astype(np.float32)
    flags = np.arange(64) % 3 == 0
    out = empty(lanes, BOOL)

    run_c(b.finish(), [x, flags, out])

    chosen = np.where(flags, x < 0, x >= 0).reshape(-1, lanes)
    assert np.array_equal(out, np.bitwise_xor.reduce(chosen, axis=0))


# Lanes.
@pytest.mark.parametrize("dtype", [BOOL, dtypes.float16, F32, F64], ids=lambda each: each.name)
def test_lanes_are_picked_stacked_and_shuffled(dtype):
    b = builder((dtype, 8, False), (dtype, 4, True), (dtype, 4, True), (dtype, 2, True))
    x, y = (b.load(b.param(0), b.index(start), 4) for start in (0, 4))
    b.store(b.param(1), b.index(0), shuffle(x, y, (7, 0, 5, 0)))
    b.store(b.param(2), b.index(0), stack([lane(y, 3), lane(x, 1), lane(y, 0), lane(x, 2)]))
    b.store(b.param(3), b.index(0), shuffle(x, y, (4, 3)))
    source = stored([1, 0, 1, 1, 0, 0, 0, 1] if dtype is BOOL else np.arange(8), dtype)
    outs = [empty(4, dtype), empty(4, dtype), empty(2, dtype)]

    run_c(b.finish(), [source, *outs])

    assert np.array_equal(outs[0], source[[7, 0, 5, 0]])
    assert np.array_equal(outs[1], source[[7, 1, 4, 2]])
    assert np.array_equal(outs[2], source[[4, 3]])


@pytest.mark.parametrize("lanes", [1, 2, 4])
@pytest.mark.parametrize("dtype", USER_DTYPES, ids=lambda each: each.name)
def test_a_splat_keeps_every_bit(dtype, lanes):
    edges = edges_of(dtype)
    b = builder((dtype, len(edges), False), (dtype, lanes * len(edges), True))
    with b.loop(0, len(edges)) as i:
        b.store(b.param(1), i * lanes, splat(b.load(b.param(0), i), lanes))
    out = empty(lanes * len(edges), dtype)

    run_c(b.finish(), [stored(edges, dtype), out])

    wanted = np.repeat(stored(edges, dtype), lanes)
    assert np.array_equal(bits_of(out, dtype), bits_of(wanted, dtype))


# Registers and blocks.
def test_registers_swap_in_the_order_of_their_writes():
    b = builder((I32, 2, True))
    x, y = b.register(I32, 3), b.register(I32, 4)
    with b.loop(0, 2):
        former = b.read(x)
        b.write(x, b.read(y) + 1)
        b.write(y, former)
    b.store(b.param(0), b.index(0), b.read(x))
    b.store(b.param(0), b.index(1), b.read(y))
    out = empty(2, I32)

    run_c(b.finish(), [out])

    assert out.tolist() == [4, 5]  # from (3, 4) by way of (5, 3)


@pytest.mark.parametrize("unroll", [1, 4])
@pytest.mark.parametrize("count", [0, 1, 7])
def test_nested_loops_run_as_often_as_they_say(count, unroll):
    b = builder((I32, 1, True))
    total = b.register(I32, 0)
    with b.loop(0, count) as i, b.loop(i, count, step=2, unroll=unroll) as j:
        b.write(total, b.read(total) + i * 10 + j)
    b.store(b.param(0), b.index(0), b.read(total))
    out = empty(1, I32)

    run_c(b.finish(), [out])

    assert out[0] == sum(10 * i + j for i in range(count) for j in range(i, count, 2))


def test_branches_take_one_side_each():
    b = builder((I32, 8, True))
    with b.loop(0, 8) as i, b.branch(compare(Op.EQ, i % 2, 0)) as even:
        b.store(b.param(0), i, i * 10)
        b.otherwise(even)
        with b.branch(i < 4):
            b.store(b.param(0), i, i * 100)
    out = np.full(8, -1, np.int32)

    run_c(b.finish(), [out])

    assert out.tolist() == [0, 100, 20, 300, 40, -1, 60, -1]


def test_a_loop_that_ends_near_the_greatest_index_stops():
    b = builder((I32, 2, True))
    with b.loop(2**31 - 33, 2**31 - 1, step=16) as i:
        b.store(b.param(0), (i - (2**31 - 33)) // 16, i)
    out = empty(2, I32)

    run_c(b.finish(), [out])

    assert out.tolist() == [2**31 - 33, 2**31 - 17]


@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("dtype", [dtypes.int8, I32, dtypes.int64], ids=lambda each: each.name)
def test_sums_wrap_where_a_compiler_could_assume_they_do_not(dtype, lanes):
    # With undefined overflow x + 1 > x is always true.
    kernel = elementwise_kernel("wrap", (dtype,), [(BOOL, lambda x: x < x + 1)], lanes, 64)
    x = padded(edges_of(dtype))
    out = empty(64, BOOL)

    run_c(kernel, [x, out])

    assert np.array_equal(out, x != dtype.max)


# Functions.
@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("op", FUNCTIONS, ids=lambda each: each.name)
def test_a_float32_function_has_the_bits_of_its_expansion(op, lanes):
    kernel = elementwise_kernel("f", (F32,), [(F32, lambda x: UOp(op, x.dtype, (x,)))], lanes, 64)
    x = padded(edges_of(F32))[:64]
    x = np.where(np.abs(x) >= 30000, np.float32(1.5), x)  # beyond, a lane asks the C library
    meant, out = empty(64, F32), empty(64, F32)
    run_linear(legalize(kernel, target()), [x, meant])

    run_c(kernel, [x, out])

    assert np.array_equal(bits_of(out, F32), bits_of(meant, F32))


@pytest.mark.parametrize("lanes", [1, 2, 4])
@pytest.mark.parametrize("op", FUNCTIONS, ids=lambda each: each.name)
def test_a_float64_function_is_the_c_librarys(op, lanes):
    kernel = elementwise_kernel("f", (F64,), [(F64, lambda x: UOp(op, x.dtype, (x,)))], lanes, 32)
    x = np.linspace(0.01, 5, 32)
    out = empty(32, F64)

    run_c(kernel, [x, out])

    function = getattr(math, op.name.lower())
    assert out.tolist() == [function(each) for each in x]


def test_a_call_runs_only_in_the_lanes_that_ask():
    def call(x, y):
        asks = operand(x, 0.0) < x
        return UOp(Op.CALL, x.dtype, (asks, x, y), CallAttrs("fmod"))

    kernel = elementwise_kernel("f", (F64, F64), [(F64, call)], target().lanes(8), 32)
    x, y = np.linspace(-20, 20, 32), np.full(32, 3.0)
    out = empty(32, F64)

    run_c(kernel, [x, y, out])

    assert np.array_equal(out, np.where(x > 0, np.fmod(x, y), 0))


# The file.
def test_a_small_kernel_reads_like_this():
    b = builder((F32, 40, False), (F32, 40, True), name="relu")
    with b.loop(0, 32, step=16) as i:
        x = b.load(b.param(0), i, 16)
        b.store(b.param(1), i, where(x < 0.0, operand(x, 0.0), x))

    source = source_of(b.finish())

    assert source.partition("union number")[0] == GOLDEN


GOLDEN = """\
typedef float f32x16 __attribute__((vector_size(64)));
typedef float f32x16_loose __attribute__((vector_size(64), aligned(4), may_alias));
#define INLINE static inline __attribute__((always_inline))

INLINE f32x16 load_f32x16(const float *from)
{
    return *(const f32x16_loose *)from;
}

INLINE f32x16 splat_f32x16(float x)
{
    return (f32x16){x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x};
}

INLINE f32x16 max_f32x16(f32x16 x, f32x16 y)
{
#if defined(__clang__)
    f32x16 out;
    for (int i = 0; i < 16; i++)
        out[i] = x[i] > y[i] ? x[i] : y[i];
    return out;
#else
    return __builtin_ia32_maxps512_mask(x, y, x, (unsigned short)-1, 4);
#endif
}

INLINE void store_f32x16(float *to, f32x16 x)
{
    *(f32x16_loose *)to = x;
}

static __attribute__((noinline)) void relu(
    const float *restrict p0,
    float *restrict p1)
{
    for (int i0 = 0; i0 < 32; i0 += 16) {
        f32x16 v0 = load_f32x16(p0 + i0);
        f32x16 v1 = splat_f32x16(0.0f);
        store_f32x16(p1 + i0, max_f32x16(v1, v0));
    }
}

"""


def test_libraries_are_named_only_where_the_c_library_is_called():
    def program(dtype, op, chosen):
        results = [(dtype, lambda x: UOp(op, x.dtype, (x,)))]
        linear = elementwise_kernel("f", (dtype,), results, 1, 4)
        return emit_c(legalize(linear, chosen), chosen)

    assert program(F32, Op.SQRT, CPU_SSE).libraries == ()
    assert program(F32, Op.FLOOR, CPU_AVX512).libraries == ()
    assert program(F64, Op.EXP, CPU_AVX512).libraries == ("-lm",)


def test_only_long_kernels_release_the_lock_of_python():
    short = elementwise_kernel("f", (F32,), [(F32, lambda x: x + 1.0)], 1, 100)
    long = elementwise_kernel("f", (F32,), [(F32, lambda x: x + 1.0)], 1, 1_000_000)

    assert "f_is_long = 0;" in source_of(short)
    assert "f_is_long = 1;" in source_of(long)


def test_a_vector_beyond_the_registers_is_refused():
    kernel = elementwise_kernel("wide", (F32,), [(F32, lambda x: x + 1.0)], 8, 16)

    with pytest.raises(InternalError) as error:
        emit_c(kernel, CPU_SSE)

    assert str(error.value) == (
        "emit c: wide: no register holds this vector: f32x8; it must have a power of two of lanes "
        "and at most 16 bytes."
    )


def test_an_op_that_is_not_legal_is_refused():
    kernel = elementwise_kernel("f", (I32, I32), [(I32, lambda x, y: x % y)], 1, 4)

    with pytest.raises(InternalError, match="emit c: no text for this op: <MOD int32"):
        emit_c(kernel, CPU_SSE)


def test_constants_keep_the_bits_of_a_nan():
    nans = [0x7FC00000, 0xFFC00000, 0x7FC00123, 0x7F800001]
    b = builder((F32, len(nans), True))
    for number, bits in enumerate(nans):
        b.store(b.param(0), b.index(number), UOp(Op.CONST, F32, (), ConstAttrs(bits)))
    out = empty(len(nans), F32)

    run_c(b.finish(), [out])

    assert out.view(np.uint32).tolist() == nans
