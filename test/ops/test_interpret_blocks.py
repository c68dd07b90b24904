from dataclasses import dataclass

import numpy as np
import pytest
from codegen.hopper_kernel import Protocol, hopper_product

from tinytensor.codegen.block_builder import BlockBuilder
from tinytensor.codegen.builder import lane, stack
from tinytensor.dtype import dtypes
from tinytensor.errors import InternalError
from tinytensor.ops.attrs_blocks import FragmentAttrs, MmaAttrs, TileMmaAttrs
from tinytensor.ops.fragments import accumulator_position, c_position
from tinytensor.ops.interpret_blocks import run_blocks, run_launches
from tinytensor.ops.kernel import Param
from tinytensor.ops.op import Op
from tinytensor.ops.tile import element_index
from tinytensor.ops.uop import UOp, cast, compare, const, where
from tinytensor.ops.verify import verify_linear

F16, F32, I32 = dtypes.float16, dtypes.float32, dtypes.int32
SEEDS = range(4)


def builder(*elements, dtype=F32, threads=64, blocks=(1, 1, 1)):
    """A builder whose first param is written, and the others are read."""
    params = [Param(dtype, count, number == 0) for number, count in enumerate(elements)]
    return BlockBuilder("sample", params, I32, blocks, threads)


def run(linear, *inputs, seed=0):
    """The first param's array after a run; its elements start as 99."""
    verify_linear(linear)
    param = linear.params[0]
    out = np.full(param.elements, 99, param.dtype.storage_numpy)
    run_blocks(linear, (out, *inputs), seed)
    return out


def refusal(linear, *inputs, seed=0):
    """The words of the error that a run raises."""
    with pytest.raises(InternalError) as error:
        run(linear, *inputs, seed=seed)
    return str(error.value)


# Places, branches and loops of lanes.
def test_each_thread_of_each_block_has_its_place():
    b = builder(256, dtype=I32, threads=32, blocks=(2, 2, 2))
    number = b.block(0) + b.block(1) * 2 + b.block(2) * 4
    b.store(b.param(0), number * 32 + b.thread, b.thread * 10 + number)

    found = run(b.finish())

    assert found.tolist() == [thread * 10 + block for block in range(8) for thread in range(32)]


def test_lanes_take_the_halves_of_a_branch_that_they_choose():
    b = builder(32, dtype=I32, threads=32)
    with b.branch(compare(Op.LT, b.thread, 5)) as opened:
        b.store(b.param(0), b.thread, const(I32, 1))
        b.otherwise(opened)
        with b.branch(compare(Op.LT, b.thread, 9)):
            b.store(b.param(0), b.thread, const(I32, 2))

    assert run(b.finish()).tolist() == [1] * 5 + [2] * 4 + [99] * 23


def test_lanes_leave_a_loop_when_they_are_done():
    b = builder(32, dtype=I32, threads=32)
    total = b.register(I32, 0)
    with b.loop(b.thread, 30, step=3) as i:
        b.write(total, b.read(total) + i)
    b.store(b.param(0), b.thread, b.read(total))

    assert run(b.finish()).tolist() == [sum(range(lane, 30, 3)) for lane in range(32)]


def test_a_guarded_access_touches_nothing():
    b = builder(40, 40, dtype=I32)
    inside = compare(Op.LT, b.thread, 40)
    b.store(b.param(0), b.thread, b.load(b.param(1), b.thread, guard=inside), guard=inside)

    assert run(b.finish(), np.arange(40, dtype=np.int32)).tolist() == list(range(40))


def test_vectors_move_together():
    b = builder(128, 128, threads=32)
    pair = b.load(b.param(1), b.thread * 4, lanes=4)
    b.store(b.param(0), b.thread * 4, stack([lane(pair, 3 - i) for i in range(4)]))
    x = np.arange(128, dtype=np.float32)

    assert run(b.finish(), x).tolist() == x.reshape(32, 4)[:, ::-1].reshape(-1).tolist()


# A block's sum through shared memory.
def block_sum(with_barrier=True):
    """Each of 3 blocks of 128 threads adds 128 integers; one warp adds the sums of four."""
    b = builder(3, 384, dtype=I32, threads=128, blocks=(3, 1, 1))
    sums = b.shared(I32, 4)
    total = b.load(b.param(1), b.block(0) * 128 + b.thread)
    for distance in (16, 8, 4, 2, 1):
        total = total + b.exchange(total, distance)
    with b.branch(compare(Op.EQ, b.thread % 32, 0)):
        b.store(sums, b.thread // 32, total)
    if with_barrier:
        b.barrier()
    with b.branch(compare(Op.EQ, b.thread, 0)):
        parts = [b.load(sums, b.index(warp)) for warp in range(4)]
        b.store(b.param(0), b.block(0), parts[0] + parts[1] + parts[2] + parts[3])
    return b.finish()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_block_adds_through_shared_memory(seed):
    x = np.random.default_rng(seed).integers(-1000, 1000, 384, np.int32)

    found = run(block_sum(), x, seed=seed)

    assert found.tolist() == x.reshape(3, 128).sum(1).tolist()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_missing_barrier_is_found_in_every_order(seed):
    words = refusal(block_sum(with_barrier=False), np.zeros(384, np.int32), seed=seed)

    assert "poison" in words or "race" in words
    assert "LOAD int32" in words and "thread 0" in words


# A ring of tiles filled by cp.async.
@dataclass(frozen=True)
class Ring:
    """What keeps the ring in order."""

    barrier: bool = True
    waits: bool = True
    swizzled_reader: bool = True
    lead: int = 2  # how many tiles ahead copies start: one fewer than there are stages


RING_STAGES, RING_STEPS, RING_ROWS, RING_COLUMNS = 3, 5, 16, 64


def ring_copy(ring=Ring()):
    """Copies 5 tiles (16, 64), each with its rows reversed; reads what other threads brought."""
    count = RING_STEPS * RING_ROWS * RING_COLUMNS
    b = builder(count, count, dtype=F16, threads=128)
    tile = b.tile(F16, RING_ROWS, RING_COLUMNS, RING_STAGES)
    row, chunk = b.thread // 8, b.thread % 8
    place = row * RING_COLUMNS + chunk * 8

    def start(step):
        index = element_index(tile, step % RING_STAGES, row, chunk * 8)
        inside = where(compare(Op.LT, step, RING_STEPS), b.index(8), b.index(0))
        b.copy_async(tile, index, b.param(1), step * (RING_ROWS * RING_COLUMNS) + place, 8, inside)
        b.commit()

    for step in range(ring.lead):
        start(b.index(step))
    with b.loop(0, RING_STEPS) as step:
        if ring.waits:
            b.wait_copies(ring.lead - 1)
        if ring.barrier:
            b.barrier()
        start(step + ring.lead)
        stage, turned = step % RING_STAGES, b.index(RING_ROWS - 1) - row
        index = element_index(tile, stage, turned, chunk * 8)
        if not ring.swizzled_reader:
            index = stage * (RING_ROWS * RING_COLUMNS) + turned * RING_COLUMNS + chunk * 8
        b.store(b.param(0), step * (RING_ROWS * RING_COLUMNS) + place, b.load(tile, index, lanes=8))
    return b.finish()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_ring_of_copies_brings_every_tile(seed):
    x = np.random.default_rng(seed).standard_normal(5120).astype(np.float16)

    found = run(ring_copy(), x, seed=seed)

    assert found.tolist() == x.reshape(5, 16, 64)[:, ::-1].reshape(-1).tolist()


@pytest.mark.parametrize(
    ("ring", "words"),
    [
        (Ring(barrier=False), ("poison", "race")),
        (Ring(waits=False), ("unfinished copy",)),
        (Ring(lead=3), ("race",)),
    ],
    ids=["no barrier", "no wait", "a stage is reused too early"],
)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_ring_out_of_order_is_found_in_every_order(ring, words, seed):
    found = refusal(ring_copy(ring), np.zeros(5120, np.float16), seed=seed)

    assert any(word in found for word in words)


def test_a_reader_without_the_swizzle_gets_other_elements():
    x = np.arange(5120).astype(np.float16)

    found = run(ring_copy(Ring(swizzled_reader=False)), x)

    assert found.tolist() != x.reshape(5, 16, 64)[:, ::-1].reshape(-1).tolist()
    assert sorted(found.tolist()) == sorted(x.tolist())


def test_a_copy_fills_with_zeros_beyond_what_is_valid():
    b = builder(128, 100, dtype=I32, threads=32)
    shared = b.shared(I32, 128)
    b.copy_async(shared, b.thread * 4, b.param(1), b.thread * 4, 4, b.index(98) - b.thread * 4)
    b.commit()
    b.wait_copies()
    b.store(b.param(0), b.thread * 4, b.load(shared, b.thread * 4, lanes=4))

    found = run(b.finish(), np.arange(1, 101, dtype=np.int32))

    assert found.tolist() == [*range(1, 99), *[0] * 30]


# Products.
def random_half(seed, *shape):
    """Small integers over 8: their products and sums are exact in float32."""
    values = np.random.default_rng(seed).integers(-16, 17, shape) / 8
    return values.astype(np.float16)


def load_matrices(b, source, index, transposed):
    """Four 8 x 8 matrices as uint32x4; lane 8 * i + r gives row r of matrix i."""
    attrs = FragmentAttrs(b._next_order(), transposed)
    return b._effect(UOp(Op.LDMATRIX, dtypes.uint32.vector(4), (source, index), attrs))


def test_a_warp_multiplies_fragments():
    b = builder(128, 256, 128, dtype=F32, threads=32)
    params = (Param(F32, 128, True), Param(F16, 256, False), Param(F16, 128, False))
    b = BlockBuilder("sample", params, I32, (1, 1, 1), 32)
    x, y = b.tile(F16, 16, 16, swizzle=False), b.tile(F16, 16, 8, swizzle=False)
    b.store(x, b.thread * 8, b.load(b.param(1), b.thread * 8, lanes=8))
    b.store(y, b.thread * 4, b.load(b.param(2), b.thread * 4, lanes=4))
    b.barrier()
    # Matrices of A in the order of its registers: down the rows, then right; B is transposed.
    a = load_matrices(b, x, b.thread % 16 * 16 + b.thread // 16 * 8, transposed=False)
    turned = load_matrices(b, y, b.thread % 16 * 8, transposed=True)
    zero = stack([const(F32, 0.0)] * 4)
    operands = a, stack([lane(turned, 0), lane(turned, 1)]), zero
    product = UOp(Op.MMA, zero.dtype, operands, MmaAttrs("m16n8k16.f16"))
    for register in range(4):
        row, column = c_position(b.thread, register)
        b.store(b.param(0), row * 8 + column, lane(product, register))
    left, right = random_half(1, 16, 16), random_half(2, 16, 8)

    found = run(b.finish(), left.reshape(-1), right.reshape(-1))

    expected = left.astype(np.float64) @ right.astype(np.float64)
    assert found.reshape(16, 8).tolist() == expected.tolist()


@dataclass(frozen=True)
class Product:
    """How a block multiplies (m, k) by (k, n): warps, which side is k-major, and its waits."""

    warps: tuple[int, int] = (2, 2)
    a_k_major: bool = True
    b_k_major: bool = False
    waits_product: bool = True
    barrier: bool = True


def tile_product(made, m, n, k, block=(64, 32, 32)):
    """One block that multiplies ragged matrices by tiles; each matrix lies as its major tells."""
    params = (Param(F32, m * n, True), Param(F16, m * k, False), Param(F16, n * k, False))
    b = BlockBuilder("product", params, I32, (1, 1, 1), 32 * made.warps[0] * made.warps[1])
    block_m, block_n, block_k = block
    attrs = TileMmaAttrs(0, "m16n8k16.f16", *made.warps, made.a_k_major, made.b_k_major)
    sides = []
    for number, outer, extent, k_major in (
        (1, block_m, m, made.a_k_major),
        (2, block_n, n, made.b_k_major),
    ):
        shape = (outer, block_k) if k_major else (block_k, outer)
        sides.append((number, b.tile(F16, *shape), extent, k_major))
    total = b.accumulator("m16n8k16.f16", block_m, block_n, *made.warps)
    with b.loop(0, k, step=block_k) as begin:
        for number, tile, extent, k_major in sides:
            start = begin if k_major else begin * extent
            left = b.index(k) - begin
            rows, columns = (b.index(extent), left) if k_major else (left, b.index(extent))
            stride = k if k_major else extent
            b.tile_copy(tile, 0, b.param(number), start, rows, columns, stride)
        b.commit()
        b.wait_copies()
        b.barrier()
        b.tile_mma(total, sides[0][1], 0, sides[1][1], 0, attrs)
        if made.waits_product:
            b.mma_wait(total)
        if made.barrier:
            b.barrier()
    b.mma_wait(total)
    values = b.read(total)
    for register in range(values.dtype.lanes):
        row, column = accumulator_position(attrs, block_m, block_n, b.thread, register)
        inside = compare(Op.LT, row, m) & compare(Op.LT, column, n)
        b.store(b.param(0), row * n + column, lane(values, register), guard=inside)
    return b.finish()


@pytest.mark.parametrize(
    "made",
    [
        Product(),
        Product(warps=(1, 2), b_k_major=True),
        Product(warps=(4, 1), a_k_major=False),
        Product(warps=(1, 1), a_k_major=False, b_k_major=True),
    ],
)
def test_a_block_multiplies_ragged_tiles(made):
    m, n, k = 50, 27, 70
    left, right = random_half(3, m, k), random_half(4, k, n)
    x = left if made.a_k_major else left.T
    y = right.T if made.b_k_major else right

    found = run(tile_product(made, m, n, k), x.reshape(-1), y.reshape(-1))

    expected = left.astype(np.float64) @ right.astype(np.float64)
    assert found.reshape(m, n).tolist() == expected.tolist()


@pytest.mark.parametrize(
    "made", [Product(waits_product=False), Product(barrier=False)], ids=["no wait", "no barrier"]
)
def test_a_tile_refilled_while_it_is_multiplied_is_found(made):
    x = np.zeros(64 * 64, np.float16)

    words = refusal(tile_product(made, 64, 32, 64), x, x[: 64 * 32])

    assert "race" in words and ("TILE_COPY" in words or "TILE_MMA" in words)


def test_a_promise_of_wide_accesses_is_checked():
    b = builder(8, 640, dtype=F16, threads=32)
    b.tile_copy(b.tile(F16, 8, 64), 0, b.param(1), 0, 8, 60, row_stride=80, access_elements=8)

    words = refusal(b.finish(), np.zeros(640, np.float16))

    assert "8 does not divide start, row_stride, columns: [0, 80, 60]" in words


# Hopper: roles, mbarriers, bulk copies and WGMMA.
@pytest.mark.parametrize("seed", SEEDS)
def test_a_producer_and_consumers_multiply_ragged_matrices(seed):
    m, n, k = 72, 80, 200
    x, w = random_half(seed, m, k), random_half(seed + 9, n, k)

    found = run(hopper_product(m, n, k), x.reshape(-1), w.reshape(-1), seed=seed)

    expected = (x.astype(np.float64) @ w.T.astype(np.float64)).astype(np.float16)
    assert found.reshape(m, n).tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        ({"waits_full": False}, ("poison", "unfinished bulk load")),
        ({"waits_empty": False}, ("more arrive in a phase", "race")),
        ({"releases_late": False}, ("unfinished product",)),
        ({"fences": False}, ("without a proxy fence",)),
        ({"waits_store": False}, ("exits with an unfinished bulk store",)),
        ({"missing_bytes": 16}, ("deadlock",)),
        ({"empty_arrivals": 5}, ("deadlock",)),
        ({"empty_arrivals": 3}, ("race", "more arrive in a phase", "deadlock")),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
@pytest.mark.parametrize("seed", SEEDS[:2])
def test_a_broken_pipeline_is_found_in_every_order(broken, words, seed):
    linear = hopper_product(64, 64, 320, Protocol(**broken))

    found = refusal(linear, *[np.zeros(64 * 320, np.float16)] * 2, seed=seed)

    assert any(word in found for word in words)


def test_groups_of_warps_meet_apart():
    """Each pair of warps hands its values over, at a barrier of its own."""
    b = builder(128, dtype=I32, threads=128)
    pair = b.warp // 2
    kept = b.shared(I32, 128)
    b.store(kept, b.thread, b.thread)
    b.barrier(1, threads=64, group=pair)
    b.store(b.param(0), b.thread, b.load(kept, pair * 128 + (b.index(63) - b.thread)))

    assert run(b.finish()).tolist() == [*range(63, -1, -1), *range(127, 63, -1)]


# What is refused, with its words.
def test_a_deadlock_names_where_each_warp_waits():
    b = builder(64)
    with b.role("left", warps=1):
        b.barrier(1, threads=64)
    with b.role("right", warps=1):
        b.barrier(2, threads=64)

    assert refusal(b.finish()) == (
        "run blocks: sample: deadlock, all wait: block (0, 0, 0): "
        "warp 0 at statement 1, BARRIER void BarrierAttrs(order=2, number=1, threads=64); "
        "warp 1 at statement 4, BARRIER void BarrierAttrs(order=5, number=2, threads=64)."
    )


def test_an_access_outside_names_the_thread():
    b = builder(40)
    b.store(b.param(0), b.thread, const(F32, 0.0))

    assert refusal(b.finish()) == (
        "run blocks: sample: elements 40 to 40 are not within 40: block (0, 0, 0), warp 1, "
        "thread 40: statement 3, STORE void AccessAttrs(order=1, valid=1)."
    )


def test_two_blocks_that_write_one_element_are_refused():
    b = builder(32, dtype=I32, threads=32, blocks=(2, 1, 1))
    b.store(b.param(0), b.thread, b.thread)

    assert "writes what another block wrote" in refusal(b.finish())


@pytest.mark.parametrize("seed", SEEDS)
def test_a_block_that_reads_what_another_writes_is_refused(seed):
    b = builder(64, dtype=I32, threads=32, blocks=(2, 1, 1))
    other = (b.index(1) - b.block(0)) * 32 + b.thread
    found = b.load(b.param(0), other)
    b.store(b.param(0), b.block(0) * 32 + b.thread, found)

    words = refusal(b.finish(), seed=seed)

    assert "writes what another block read" in words or "reads what another block wrote" in words


def test_lanes_that_write_different_values_to_one_place_are_refused():
    b = builder(1, dtype=I32, threads=32)
    b.store(b.param(0), b.index(0), b.thread)

    assert "lanes write different values to a place" in refusal(b.finish())


def test_an_unaligned_vector_is_refused():
    b = builder(256, threads=32)
    b.store(b.param(0), b.thread * 4 + 2, stack([const(F32, 0.0)] * 4))

    assert "byte 8 is not aligned to 16" in refusal(b.finish())


def test_poison_in_shared_memory_and_registers_is_refused():
    b = builder(32, threads=32)
    shared = b.shared(F32, 32)
    b.store(b.param(0), b.thread, b.load(shared, b.thread))

    assert "reads poison" in refusal(b.finish())


def test_scratch_memory_goes_from_launch_to_launch():
    params = (Param(I32, 64, True),)
    first = BlockBuilder("first", params, I32, (2, 1, 1), 32)
    first.store(first.workspace(I32, 64), first.block(0) * 32 + first.thread, first.thread * 3)
    second = BlockBuilder("second", params, I32, (1, 1, 1), 64)
    scratch = second.workspace(I32, 64)
    second.store(
        second.param(0), second.thread, second.load(scratch, second.index(63) - second.thread)
    )
    out = np.zeros(64, np.int32)

    run_launches((first.finish(), second.finish()), (out,))

    assert out.tolist() == [(63 - i) % 32 * 3 for i in range(64)]


def test_blocks_can_be_chosen():
    b = builder(64, dtype=I32, threads=32, blocks=(2, 1, 1))
    b.store(b.param(0), b.block(0) * 32 + b.thread, const(I32, 1))
    out = np.zeros(64, np.int32)

    run_blocks(b.finish(), (out,), blocks=[(1, 0, 0)])

    assert out.tolist() == [0] * 32 + [1] * 32


def test_bfloat16_moves_and_widens():
    b = builder(32, 32, dtype=dtypes.bfloat16, threads=32)
    doubled = cast(b.load(b.param(1), b.thread), F32) * 2.0
    b.store(b.param(0), b.thread, cast(doubled, dtypes.bfloat16))
    stored = np.arange(32, dtype=np.uint16) + 0x3F80

    # One more in the exponent doubles a normal number.
    assert run(b.finish(), stored).tolist() == (stored + 0x80).tolist()
