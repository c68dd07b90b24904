"""The CUDA of memory, registers, blocks of threads and several launches."""

from dataclasses import replace

import numpy as np
import pytest
from codegen.gpu_machine import (
    TARGETS,
    block_kernel,
    cubin_of,
    frame_bytes,
    legal,
    program_of,
    run_form,
    run_on_device,
    source_of,
)
from codegen.hopper_kernel import hopper_product
from codegen.machine import bits_of, empty, stored
from codegen.test_legalize_tiles import as_half, copied, copy_kernel, product_kernel
from runtime.cuda.programs import needs_nvrtc

from tinytensor.codegen.block_builder import BlockBuilder
from tinytensor.codegen.builder import shuffle
from tinytensor.codegen.emit_cuda import emit_cuda
from tinytensor.dtype import USER_DTYPES, dtypes
from tinytensor.errors import InternalError
from tinytensor.ops.kernel import Param
from tinytensor.ops.op import Op
from tinytensor.ops.uop import binary, cast, where
from tinytensor.runtime.device import Device
from tinytensor.target import SM80, SM90A

F16, BF16, F32, I32 = (
    dtypes.float16,
    dtypes.bfloat16,
    dtypes.float32,
    dtypes.int32,
)
by_dtype = pytest.mark.parametrize("dtype", USER_DTYPES, ids=lambda each: each.name)

SCALE_AND_CLIP = """\
struct __align__(8) u32x2 { unsigned x, y; };
#define DEVICE static __device__ __forceinline__

DEVICE unsigned mul_f16x2(unsigned x0, unsigned x1)
{
    unsigned out;
    asm("mul.rn.f16x2 %0, %1, %2;"
        : "=r"(out)
        : "r"(x0), "r"(x1));
    return out;
}

DEVICE unsigned max_f16x2(unsigned x0, unsigned x1)
{
    unsigned out;
    asm("max.NaN.f16x2 %0, %1, %2;"
        : "=r"(out)
        : "r"(x0), "r"(x1));
    return out;
}

extern "C" __global__ void __launch_bounds__(64)
scale_and_clip_0(
    const unsigned short *__restrict__ p0,
    unsigned short *__restrict__ p1)
{
    const int thread = threadIdx.x;
    const int block_x = blockIdx.x;
    int v0 = ((block_x * 64) + thread) * 4;
    if (v0 < 1000) {
        u32x2 v1 = *(const u32x2 *)(p0 + v0);
        unsigned v2 = max_f16x2(mul_f16x2(v1.x, 0x40004000u), 0x00000000u);
        unsigned v3 = max_f16x2(mul_f16x2(v1.y, 0x40004000u), 0x00000000u);
        *(u32x2 *)(p1 + v0) = u32x2{v2, v3};
    }
}
"""


def builder(*params, threads=32, blocks=1):
    """A builder whose params are (dtype, elements, written)."""
    return BlockBuilder("kernel", [Param(*each) for each in params], I32, (blocks, 1, 1), threads)


def body_of(linear, target=SM80):
    """The lines between the entry's braces."""
    lines = source_of(linear, target).partition("extern")[2].splitlines()
    return [line.strip() for line in lines[lines.index("{") + 1 : -1]]


def sum_in_block(threads=64):
    """Each block's sum of its integers: warps by exchange, then across warps in shared memory."""
    b = builder((I32, 4 * threads, False), (I32, 4, True), threads=threads, blocks=4)
    x = b.load(b.param(0), b.block(0) * threads + b.thread)
    for distance in (16, 8, 4, 2, 1):
        x = x + b.exchange(x, distance)
    parts = b.shared(I32, threads // 32)
    with b.branch(b.thread % 32 < 1):
        b.store(parts, b.thread // 32, x)
    b.barrier()
    total = b.load(parts, b.index(0))
    for warp in range(1, threads // 32):
        total = total + b.load(parts, b.index(warp))
    with b.branch(b.thread < 1):
        b.store(b.param(1), b.block(0), total)
    return b.finish()


# Text.
def test_a_small_kernel_reads_like_this():
    linear = block_kernel(
        "scale_and_clip", (F16,), [(F16, lambda x: binary(Op.MAX, x * 2.0, 0.0))], 4, 1000
    )

    assert source_of(linear) == SCALE_AND_CLIP


def test_a_kernel_without_a_grid_is_refused():
    linear = replace(block_kernel("k", (F32,), [(F32, lambda x: x)], 1, 64), grid=None)

    with pytest.raises(InternalError, match="emit cuda: k: has no grid"):
        emit_cuda([linear], "k", SM80)


def test_an_op_that_is_not_legal_is_refused():
    linear = block_kernel("k", (I32, I32), [(I32, lambda x, y: x // y)], 1, 64)

    with pytest.raises(InternalError, match="no text for this op: <FLOORDIV"):
        emit_cuda([linear], "k", SM80)


def test_launches_share_params_and_scratch_memory():
    first = block_kernel("first", (F32,), [(F32, lambda x: x)], 1, 128)
    b = builder((F32, 128, False), (F32, 128, True))
    b.store(b.workspace(F32, 128), b.thread, b.load(b.param(0), b.thread))
    second = b.finish()

    program = emit_cuda([legal(first), legal(second)], "both", SM80)

    assert [each.entry for each in program.launches] == ["both_0", "both_1"]
    assert [each.threads for each in program.launches] == [64, 32]
    assert program.workspace_bytes == 512
    assert program.source.count("unsigned char *__restrict__ workspace)") == 2


def test_a_launch_is_described():
    program = program_of(sum_in_block())

    (launch,) = program.launches
    assert (launch.grid, launch.threads, launch.shared_bytes) == ((4, 1, 1), 64, 8)


def test_tensor_maps_are_the_last_params_in_the_order_of_the_launch():
    program = program_of(hopper_product(64, 64, 64), SM90A)

    assert [each.number for each in program.launches[0].tensor_maps] == [0, 1, 2]
    assert "    const __grid_constant__ TensorMap m2)" in program.source


def test_arms_of_a_selection_are_computed_before_it():
    b = builder((F32, 32, False), (F32, 32, True))
    x = b.load(b.param(0), b.thread)
    b.store(b.param(1), b.thread, where(x < 0.0, x * 2.0, x + 1.0))

    chosen = [line for line in body_of(b.finish()) if "?" in line]

    assert chosen == ["p1[thread] = (v0 < 0.0f) ? v1 : v2;"]


def test_a_register_is_declared_where_it_is_filled():
    b = builder((F32, 32, True))
    total = b.register(F32, 1.0)
    b.store(b.param(0), b.thread, b.read(total))

    assert "float r0 = 1.0f;" in body_of(b.finish())


def test_a_register_filled_in_a_branch_is_declared_before_it():
    b = builder((F32, 32, True))
    total = b.register(F32, 1.0)
    b.write(total, b.read(total) + 1.0)
    with b.branch(b.thread < 3):
        b.write(total, b.read(total) * 2.0)
    b.store(b.param(0), b.thread, b.read(total))
    linear = b.finish()

    lines = body_of(linear)

    assert [line for line in lines if line.startswith("float r")] == ["float r0 = 1.0f;"]
    expected = np.where(np.arange(32) < 3, 4.0, 2.0).astype(np.float32)
    assert np.array_equal(run_form(legal(linear), [empty(32, F32)])[0], expected)


def test_a_guarded_scalar_is_read_only_where_the_guard_holds():
    b = builder((F32, 32, False), (F32, 32, True))
    b.store(b.param(1), b.thread, b.load(b.param(0), b.thread, guard=b.thread < 7))

    assert "p1[thread] = (thread < 7) ? p0[thread] : 0;" in body_of(b.finish())


# It compiles: each shape of statement, for both architectures, without a stack.
def statements_kernel():
    """Loops, branches, 64-bit indices, partial and guarded accesses, scratch memory."""
    params = [(BF16, 1 << 20, False), (F32, 1 << 20, True), (dtypes.bool, 1 << 20, True)]
    b = builder(*params, threads=64, blocks=16)
    i = cast(b.block(0) * 64 + b.thread, dtypes.int64) * 8
    scratch = b.workspace(F32, 1 << 14)
    total = b.register(F32.vector(4), 0.0)
    flags = b.register(dtypes.bool, False)
    with b.loop(0, 4, unroll=2) as step:
        place = i + cast(step, dtypes.int64)
        x = cast(b.load(b.param(0), i, 8, guard=b.thread < 60), F32)
        part = b.load(b.param(0), place, 4, 3)
        b.write(total, b.read(total) + cast(part, F32))
        b.write(flags, b.read(flags) | (b.exchange(step, 1) < 2))
        with b.branch(b.thread < 3) as first:
            b.store(b.param(1), i, b.read(total), 3)
            b.otherwise(first)
            b.store(scratch, b.thread * 4, shuffle(x, x, (7, 5, 2, 0)))
    b.store(b.param(2), i, b.exchange(b.read(flags), 2), guard=b.thread < 50)
    return b.finish()


KERNELS = {
    "statements": (statements_kernel, 0),
    "sum of a block": (sum_in_block, 0),
    "tile copy": (lambda: copy_kernel(F16, (32, 64), 8, (29, 56)), 0),
    "tile copy by elements": (lambda: copy_kernel(F16, (32, 64), 1, (29, 56)), 0),
    "product f16": (lambda: product_kernel("f16", (64, 64, 32), (2, 2), (True, True)), 0),
    "product bf16": (lambda: product_kernel("bf16", (64, 64, 64), (2, 1), (False, False)), 0),
    "hopper": (lambda: hopper_product(128, 64, 192), 1),
}
COMPILED = [(name, each) for name, (_, least) in KERNELS.items() for each in TARGETS[least:]]


@needs_nvrtc
@pytest.mark.parametrize(("name", "target"), COMPILED, ids=lambda each: getattr(each, "name", each))
def test_a_kernel_compiles_without_a_stack(name, target):
    linear = KERNELS[name][0]()

    assert frame_bytes(cubin_of(source_of(linear, target), target.name)) == 0


# It runs on a device as in the interpreter.
@pytest.mark.gpu
def test_a_sum_of_a_block_on_a_gpu():
    x = np.arange(256, dtype=np.int32) ** 2

    result = run_on_device(sum_in_block(), [x, empty(4, I32)])[1]

    assert np.array_equal(result, x.reshape(4, 64).sum(1))


@pytest.mark.gpu
@by_dtype
@pytest.mark.parametrize("distance", [0, 1, 4, 16])
def test_an_exchange_of_every_dtype_on_a_gpu(dtype, distance):
    b = builder((dtype, 32, False), (dtype, 32, True))
    b.store(b.param(1), b.thread, b.exchange(b.load(b.param(0), b.thread), distance))
    x = stored(np.arange(32) % (2 if dtype is dtypes.bool else 32), dtype)

    result = run_on_device(b.finish(), [x, empty(32, dtype)])[1]

    assert np.array_equal(result, x[np.arange(32) ^ distance])


@pytest.mark.gpu
@pytest.mark.parametrize("access", [8, 4, 2, 1])
@pytest.mark.parametrize("shape", [(32, 64), (64, 32), (64, 16), (16, 128)])
def test_a_tile_copy_on_a_gpu(shape, access):
    inside = (shape[0] - 3, shape[1] - 8)
    arrays, expected = copied(F16, shape, inside)

    result = run_on_device(copy_kernel(F16, shape, access, inside), arrays)[1]

    assert np.array_equal(bits_of(result, F16), bits_of(expected, F16))


@pytest.mark.gpu
@pytest.mark.parametrize("k_major", [(a, b) for a in (True, False) for b in (True, False)], ids=str)
@pytest.mark.parametrize("word", ["f16", "bf16"])
def test_a_product_of_tiles_on_a_gpu(word, k_major, seed):
    m, n, k = 64, 64, 32
    random = np.random.default_rng(seed)
    a, b = random.integers(-4, 5, (m, k)), random.integers(-4, 5, (k, n))
    arrays = [
        as_half(a if k_major[0] else a.T, word),
        as_half(b.T if k_major[1] else b, word),
        empty(m * n, F32),
    ]

    result = run_on_device(product_kernel(word, (m, n, k), (2, 2), k_major), arrays)[2]

    assert np.array_equal(result.reshape(m, n), 2 * (a @ b))


@pytest.mark.gpu
@pytest.mark.parametrize("sizes", [(64, 64, 64), (128, 64, 192), (100, 72, 200)])
def test_a_hopper_product_on_a_gpu(sizes, seed):
    if "wgmma" not in run_target().features:
        pytest.skip("no Hopper")
    m, n, k = sizes
    random = np.random.default_rng(seed)
    x, w = random.integers(-2, 3, (m, k)), random.integers(-2, 3, (n, k))
    arrays = [empty(m * n, F16), as_half(x, "f16"), as_half(w, "f16")]

    result = run_on_device(hopper_product(m, n, k), arrays)[0]

    assert np.array_equal(result.reshape(m, n), (x @ w.T).astype(np.float16))


def run_target():
    return Device["CUDA"].target
