"""Tile copies and tile products become what each thread does, with the same results."""

import numpy as np
import pytest
from codegen.gpu_machine import legal, run_form
from codegen.machine import empty

from tinytensor.codegen.block_builder import BlockBuilder
from tinytensor.codegen.builder import lane
from tinytensor.codegen.legalize_tiles import legalize_tiles
from tinytensor.dtype import dtypes
from tinytensor.errors import InternalError
from tinytensor.ops.attrs_blocks import TileMmaAttrs
from tinytensor.ops.fragments import accumulator_position
from tinytensor.ops.kernel import Param
from tinytensor.ops.op import Op
from tinytensor.ops.tile import element_index
from tinytensor.ops.verify import verify_linear
from tinytensor.target import SM80, SM90A

F16, BF16, F32, I32 = dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.int32
COLLECTIVE = {Op.TILE_COPY, Op.TILE_MMA, Op.MMA_WAIT}
STAGE = 1


def copy_kernel(dtype, shape, access, inside, threads=64, swizzle=True):
    """Bring pitched rows into a tile, and store the tile row by row; `inside` is what exists."""
    rows, columns = shape
    params = [Param(dtype, rows * pitch_of(shape), False), Param(dtype, rows * columns, True)]
    b = BlockBuilder("copy", params, I32, (1, 1, 1), threads)
    tile = b.tile(dtype, rows, columns, 2, swizzle)
    b.tile_copy(tile, STAGE, b.param(0), 0, *inside, pitch_of(shape), access)
    b.commit()
    b.wait_copies()
    b.barrier()
    for begin in range(0, rows * columns, threads):
        number = b.thread + begin
        with b.branch(number < rows * columns):
            place = element_index(tile, b.index(STAGE), number // columns, number % columns)
            b.store(b.param(1), number, b.load(tile, place))
    return b.finish()


def pitch_of(shape):
    return shape[1] + 16


def copied(dtype, shape, inside):
    """The arrays before, and the tile with zeros outside."""
    rows, columns = shape
    source = np.arange(1, rows * pitch_of(shape) + 1).astype(dtype.storage_numpy)
    whole = source.reshape(rows, -1)[:, :columns]
    is_inside = np.add.outer(np.arange(rows) < inside[0], np.zeros(columns, bool))
    is_inside &= np.arange(columns) < inside[1]
    return [source, empty(rows * columns, dtype)], np.where(is_inside, whole, 0).reshape(-1)


SHAPES = [(32, 64), (64, 32), (64, 16), (16, 128)]


@pytest.mark.parametrize("access", [8, 4, 2, 1])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_tile_is_copied_by_accesses_of_any_size(shape, access):
    inside = (shape[0] - 3, shape[1] - 8)
    linear = legalize_tiles(copy_kernel(dtypes.uint16, shape, access, inside), SM80)
    arrays, expected = copied(dtypes.uint16, shape, inside)

    results = run_form(linear, arrays)

    assert np.array_equal(results[1], expected)


@pytest.mark.parametrize("dtype", [dtypes.uint8, F32, dtypes.float64], ids=lambda each: each.name)
@pytest.mark.parametrize("swizzle", [False, True])
def test_a_tile_of_any_width_is_copied(dtype, swizzle):
    shape, access = (32, 32), 16 // dtype.itemsize
    linear = legalize_tiles(copy_kernel(dtype, shape, access, shape, swizzle=swizzle), SM80)
    arrays, expected = copied(dtype, shape, shape)

    results = run_form(linear, arrays)

    assert np.array_equal(results[1], expected)


@pytest.mark.parametrize("threads", [32, 96, 160, 512])
def test_any_number_of_threads_shares_a_copy(threads):
    shape = (32, 64)
    linear = legalize_tiles(copy_kernel(F16, shape, 8, shape, threads), SM80)
    arrays, expected = copied(F16, shape, shape)

    results = run_form(linear, arrays)

    assert np.array_equal(results[1], expected)


def test_an_access_of_16_bytes_is_one_asynchronous_copy():
    linear = legalize_tiles(copy_kernel(F16, (32, 64), 8, (32, 64)), SM80)

    copies = [node for node in linear.statements if node.op is Op.COPY_ASYNC]

    assert [each.attrs.elements for each in copies] == [8] * 4


def test_a_whole_tile_is_copied_without_a_test():
    linear = legalize_tiles(copy_kernel(F16, (32, 64), 8, (32, 64)), SM80)

    ops = [node.op for node in linear.statements[: _position(linear, Op.COPY_COMMIT)]]

    assert Op.LT not in ops
    assert Op.WHERE not in ops


def test_one_address_serves_all_copies_of_a_thread():
    linear = legalize_tiles(copy_kernel(F16, (64, 64), 8, (64, 64)), SM80)

    ops = [node.op for node in linear.statements[: _position(linear, Op.COPY_COMMIT)]]

    assert ops.count(Op.XOR) == 1


def test_a_role_counts_its_own_threads():
    params = [Param(F16, 32 * 80, False), Param(F16, 32 * 64, True)]
    b = BlockBuilder("role", params, I32, (1, 1, 1), 96)
    tile = b.tile(F16, 32, 64, 2)
    with b.role("idle", warps=2):
        pass
    with b.role("copy", warps=1) as thread:
        b.tile_copy(tile, STAGE, b.param(0), 0, 32, 64, 80, 8)
        b.commit()
        b.wait_copies()
        b.barrier(1, 32)
        for begin in range(0, 32 * 64, 32):
            number = thread + begin
            place = element_index(tile, b.index(STAGE), number // 64, number % 64)
            b.store(b.param(1), number, b.load(tile, place))
    arrays, expected = copied(F16, (32, 64), (32, 64))

    results = run_form(legal(b.finish()), arrays)

    assert np.array_equal(results[1], expected)


# Products.
def product_kernel(word, shape, warps, k_major, row_bytes=0):
    """c = a @ b of one block, whole tiles, float32 out; `k_major` of a and of b."""
    m, n, k = shape
    dtype = {"f16": F16, "bf16": BF16}[word]
    params = [Param(dtype, m * k, False), Param(dtype, k * n, False), Param(F32, m * n, True)]
    b = BlockBuilder("product", params, I32, (1, 1, 1), 32 * warps[0] * warps[1])
    tiles = []
    for number, (extent, is_k_major) in enumerate(zip((m, n), k_major, strict=True)):
        rows, columns = (extent, k) if is_k_major else (k, extent)
        tiles.append(b.tile(dtype, rows, columns, 2))
        b.tile_copy(tiles[-1], STAGE, b.param(number), 0, rows, columns, columns, 8)
    b.commit()
    b.wait_copies()
    b.barrier()
    attrs = TileMmaAttrs(0, f"m16n8k16.{word}", *warps, *k_major)
    total = b.accumulator(attrs.instruction, m, n, *warps)
    for _ in range(2):
        b.tile_mma(total, tiles[0], STAGE, tiles[1], STAGE, attrs)
    b.mma_wait(total)
    sums = b.read(total)
    for register in range(sums.dtype.lanes):
        row, column = accumulator_position(attrs, m, n, b.thread, register)
        b.store(b.param(2), row * n + column, lane(sums, register))
    return b.finish()


PRODUCTS = [
    ((32, 32, 16), (1, 1)),
    ((64, 32, 64), (2, 1)),
    ((32, 48, 32), (2, 2)),
    ((16, 64, 128), (1, 4)),
]


@pytest.mark.parametrize("k_major", [(a, b) for a in (True, False) for b in (True, False)], ids=str)
@pytest.mark.parametrize(("shape", "warps"), PRODUCTS)
@pytest.mark.parametrize("word", ["f16", "bf16"])
def test_a_product_of_tiles_is_that_of_matrices(word, shape, warps, k_major, seed):
    m, n, k = shape
    if not tile_fits(m, k, k_major[0]) or not tile_fits(n, k, k_major[1]):
        pytest.skip("a swizzled row has 32, 64 or a multiple of 128 bytes")
    linear = legalize_tiles(product_kernel(word, shape, warps, k_major), SM80)
    random = np.random.default_rng(seed)
    a, b = random.integers(-4, 5, (m, k)), random.integers(-4, 5, (k, n))
    arrays = [
        as_half(a if k_major[0] else a.T, word),
        as_half(b.T if k_major[1] else b, word),
        empty(m * n, F32),
    ]

    verify_linear(linear)
    results = run_form(linear, arrays)

    assert np.array_equal(results[2].reshape(m, n), 2 * (a @ b))
    assert COLLECTIVE.isdisjoint({node.op for node in linear.statements})


def tile_fits(extent, k, is_k_major):
    row_bytes = 2 * (k if is_k_major else extent)
    return row_bytes in (32, 64) or row_bytes % 128 == 0


def as_half(values, word):
    """Small integers as memory holds them."""
    floats = np.ascontiguousarray(values).reshape(-1).astype(np.float32)
    if word == "f16":
        return floats.astype(np.float16)
    return (floats.view(np.uint32) >> 16).astype(np.uint16)


@pytest.mark.parametrize("k_major", [True, False])
def test_a_fragment_is_loaded_once_for_all_products_that_take_it(k_major):
    linear = legalize_tiles(product_kernel("f16", (64, 64, 32), (1, 1), (k_major, k_major)), SM80)

    ops = [node.op for node in linear.statements]

    # Two products of two k steps of 4 x 8 fragments; right ones are loaded two at a time.
    assert ops.count(Op.MMA) == 2 * 2 * 4 * 8
    assert ops.count(Op.LDMATRIX) == 2 * 2 * (4 + 4)


def test_an_instruction_of_a_warpgroup_is_refused():
    b = BlockBuilder("wide", [Param(F16, 4096, False)], I32, (1, 1, 1), 128)
    x, y = b.tile(F16, 64, 64), b.tile(F16, 64, 64)
    attrs = TileMmaAttrs(0, "m64n64k16.f16", 4, 1, True, True)
    total = b.accumulator(attrs.instruction, 64, 64, 4, 1)
    b.tile_mma(total, x, 0, y, 0, attrs)

    with pytest.raises(InternalError, match="no lowering for m64n64k16.f16"):
        legalize_tiles(b.finish(), SM90A)


def _position(linear, op):
    return [node.op for node in linear.statements].index(op)
