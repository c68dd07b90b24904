from dataclasses import replace

import pytest
from codegen.hopper_kernel import hopper_product

from tinytensor.codegen.block_builder import BlockBuilder
from tinytensor.codegen.builder import Builder, stack
from tinytensor.dtype import dtypes
from tinytensor.errors import InternalError
from tinytensor.ops import attrs as a
from tinytensor.ops import attrs_blocks as ab
from tinytensor.ops.kernel import Param
from tinytensor.ops.linear import Grid
from tinytensor.ops.op import Op
from tinytensor.ops.text import parse, show
from tinytensor.ops.uop import UOp, compare, const
from tinytensor.ops.verify import verify_linear

F16, F32, I32 = dtypes.float16, dtypes.float32, dtypes.int32
MMA = ab.TileMmaAttrs(0, "m16n8k16.f16", 2, 1, True, True)


def builder(threads=64, blocks=(2, 1, 1)):
    return BlockBuilder("sample", (Param(F32, 256, True),), I32, blocks, threads)


def refusal(b, **changes):
    """The words of the error that checking raises, after changes to the finished Linear."""
    with pytest.raises(InternalError) as error:
        verify_linear(replace(b.finish(), **changes))
    return str(error.value)


def odd_threads(b):
    return b.branch(compare(Op.EQ, b.thread % 2, 1))


def second_warp(b):
    return b.branch(compare(Op.EQ, b.thread // 32, 1))


def test_the_text_of_a_grid_can_be_read_back():
    linear = hopper_product(64, 64, 64)
    linear = replace(linear, grid=replace(linear.grid, resident=2))

    assert parse(show(linear)) == linear
    assert "grid (1,1,1) 160" in show(linear)
    assert "\n  %" in show(linear)  # what a role runs is indented


# Who comes to a statement.
def test_the_barrier_of_the_block_is_not_for_some_lanes():
    b = builder()
    with odd_threads(b):
        b.barrier()

    assert refusal(b) == (
        "verify linear: sample: is inside a branch by thread: "
        "%6 = BARRIER void order=2 number=0 threads=64; all threads must come here."
    )


def test_the_barrier_of_the_block_is_not_for_some_warps():
    b = builder()
    with second_warp(b):
        b.barrier()

    assert "is inside a branch by thread" in refusal(b)


def test_the_barrier_of_the_block_is_not_in_a_loop_that_threads_leave_apart():
    b = builder()
    with b.loop(0, b.thread):
        b.barrier()

    assert "is inside a branch by thread" in refusal(b)


def test_what_threads_wrote_to_a_register_counts_as_different():
    b = builder()
    count = b.register(I32, 4)
    with b.loop(0, 2):
        with b.loop(0, b.read(count)):
            b.barrier()
        b.write(count, b.thread)

    assert "is inside a branch by thread" in refusal(b)


def test_the_barrier_of_the_block_is_not_in_a_role():
    b = builder()
    with b.role("load", warps=1):
        b.barrier()

    assert "is inside a role: %1 = BARRIER" in refusal(b)


def test_the_wait_for_other_launches_comes_before_memory_and_for_all_threads():
    late, inside = builder(), builder()
    late.store(late.param(0), late.thread, const(F32, 1.0))
    late.grid_wait()
    with inside.role("load", warps=1):
        inside.grid_wait()

    assert "comes after the first buffer: %" in refusal(late)
    assert "is inside a role: %1 = GRID_WAIT" in refusal(inside)


def test_a_group_of_warps_may_meet_at_a_barrier_of_its_own():
    b = builder(threads=128)
    b.barrier(1, threads=64, group=b.warp // 2)

    verify_linear(b.finish())


def test_a_loop_that_surely_runs_may_give_a_register_its_first_value():
    b = builder()
    first = b.register(F32)
    with b.loop(0, 2):
        b.write(first, const(F32, 1.0))
    b.read(first)
    verify_linear(b.finish())

    second = b.register(F32)
    with b.loop(0, b.block(0)):
        b.write(second, const(F32, 1.0))
    b.read(second)

    assert "register may not be written yet" in refusal(b)


@pytest.mark.parametrize("divisor", [32, 64])
def test_a_warp_may_exchange_where_all_of_it_comes(divisor):
    b = builder()
    with b.branch(compare(Op.EQ, b.thread // divisor, 0)):
        b.exchange(b.thread, 1)
        b.barrier(1, threads=32)

    verify_linear(b.finish())


@pytest.mark.parametrize("divisor", [2, 16, 48])
def test_a_warp_does_not_exchange_where_some_of_it_comes(divisor):
    b = builder()
    with b.branch(compare(Op.EQ, b.thread // divisor, 0)):
        b.exchange(b.thread, 1)

    assert "is inside a branch by lane" in refusal(b)


def test_a_block_branches_together_by_its_own_number():
    b = builder()
    with b.branch(compare(Op.EQ, b.block(0), 1)):
        b.barrier()

    verify_linear(b.finish())


def test_a_collective_op_is_for_all_warps():
    b = builder()
    x, y = b.tile(F16, 32, 32), b.tile(F16, 16, 32)
    total = b.accumulator("m16n8k16.f16", 32, 16, 2, 1)
    with second_warp(b):
        b.tile_mma(total, x, 0, y, 0, MMA)

    assert "is inside a branch by thread" in refusal(b)


def test_a_product_has_as_many_warps_as_run():
    b = builder(threads=128)
    x, y = b.tile(F16, 32, 32), b.tile(F16, 16, 32)
    b.tile_mma(b.accumulator("m16n8k16.f16", 32, 16, 2, 1), x, 0, y, 0, MMA)

    assert "is for 64 threads: " in refusal(b)
    assert "; 128 come here." in refusal(b)


def test_roles_do_not_share_warps():
    b = builder()
    with b.role("left", warps=1):
        b.proxy_fence()
    b._role_warps = 0
    with b.role("right", warps=1):
        b.proxy_fence()

    assert "warps have another role" in refusal(b)


def test_roles_do_not_nest():
    b = builder()
    with b.role("outer", warps=1), b.role("inner", warps=1):
        b.proxy_fence()

    assert "is inside another role" in refusal(b)


def test_more_warps_than_there_are_take_no_role():
    b = builder()

    with pytest.raises(InternalError, match="role load needs warps 0 to 2, of 64 threads"):
        b.role("load", warps=3).__enter__()


# Shared memory and grids.
def test_shared_memory_is_given_out_apart_and_aligned():
    b = builder()
    regions = [b.shared(F16, 3), b.shared(F32, 4), b.tile(F16, 8, 64, 2), b.mbarriers(2, 1)]

    assert [each.attrs.offset_bytes for each in regions] == [0, 16, 1024, 3072]
    assert b.finish().grid == Grid((2, 1, 1), 64, 3088)


def test_regions_do_not_overlap():
    b = builder()
    for offset in (0, 60):
        region = UOp(Op.SHARED, F32, (), ab.SharedAttrs(offset, 16))
        b.store(region, b.index(0), const(F32, 0.0))

    assert "region overlaps another" in refusal(b, grid=Grid((2, 1, 1), 64, 128))


def test_regions_lie_in_the_blocks_memory():
    b = builder()
    b.store(b.shared(F32, 16), b.index(0), const(F32, 0.0))

    assert "a block has 60 bytes" in refusal(b, grid=Grid((2, 1, 1), 64, 60))


@pytest.mark.parametrize(
    ("grid", "words"),
    [
        (Grid((2, 1, 1), 48), "a block is whole warps"),
        (Grid((2, 1, 1), 1056), "a block is whole warps"),
        (Grid((2, 70000, 1), 64), "CUDA takes 1 to"),
        (Grid((0, 1, 1), 64), "CUDA takes 1 to"),
        (Grid((3, 1, 1), 64), "extent is not the grid's"),
        (None, "its form has a grid"),
    ],
)
def test_a_grid_is_one_that_runs(grid, words):
    b = builder()
    b.store(b.param(0), b.block(0), const(F32, 0.0))

    assert words in refusal(b, grid=grid)


def test_an_access_moves_at_most_16_bytes():
    b = builder()
    b.store(b.param(0), b.index(0), stack([const(F32, 0.0)] * 8))

    assert "moves too much at once" in refusal(b)


# Accumulators.
def product_builder(threads=64):
    b = builder(threads)
    x, y = b.tile(F16, 32, 32), b.tile(F16, 16, 32)
    total = b.accumulator("m16n8k16.f16", 32, 16, 2, 1)
    return b, total, lambda: b.tile_mma(total, x, 0, y, 0, MMA)


def test_an_accumulator_in_flight_is_not_read():
    b, total, multiply = product_builder()
    multiply()
    b.mma_wait(total, pending=1)
    b.read(total)

    assert "accumulator is in flight" in refusal(b)


@pytest.mark.parametrize("number", [0, 1])
def test_a_wait_that_leaves_a_group_settles_the_groups_before(number):
    b = builder(threads=128)
    x = b.tile(F16, 64, 64)
    totals = [b.register(F32.vector(4)) for _ in range(2)]
    for each in totals:
        b.wgmma_fence(each)
        b.wgmma(each, x, 0, x, 0, ab.WgmmaAttrs(0, "m64n8k16.f16", True, True))
        b.wgmma_commit()
    b.wgmma_wait(*totals, pending=1)
    b.read(totals[number])

    if number == 0:
        verify_linear(b.finish())
    else:
        assert "accumulator is in flight" in refusal(b)


def test_an_accumulator_in_flight_at_the_end_of_a_loop_is_not_read_at_its_beginning():
    b, total, multiply = product_builder()
    with b.loop(0, 2):
        b.read(total)
        multiply()

    assert "accumulator is in flight" in refusal(b)


def test_a_wait_in_one_half_of_a_branch_is_not_enough():
    b, total, multiply = product_builder()
    multiply()
    with b.branch(compare(Op.EQ, b.block(0), 1)) as opened:
        b.mma_wait(total)
        b.otherwise(opened)
        b.proxy_fence()
    b.read(total)

    assert "accumulator is in flight" in refusal(b)


def test_an_accumulator_is_read_after_the_wait():
    b, total, multiply = product_builder()
    with b.loop(0, 2):
        multiply()
        b.mma_wait(total)
    b.read(total)

    verify_linear(b.finish())


# Nodes that are ill formed by themselves.
def tile(dtype=F16, rows=16, columns=64, swizzle=True):
    return UOp(Op.TILE, dtype, (), ab.TileAttrs(0, rows, columns, 2, swizzle))


ZERO = const(I32, 0)
SOURCE = UOp(Op.PARAM, F16, (), a.ParamAttrs(0, 64))
VOID = dtypes.void
EFFECT = a.EffectAttrs(1)


@pytest.mark.parametrize(
    ("op", "dtype", "operands", "attrs", "words"),
    [
        (Op.PLACE, I32, (), ab.PlaceAttrs("lane", 32), "coordinates are thread, warp, block_x"),
        (Op.PLACE, dtypes.int64, (), ab.PlaceAttrs("thread", 32), "is an int32"),
        (Op.SHARED, F32, (), ab.SharedAttrs(2, 4), "is aligned to 4 bytes"),
        (Op.TILE, F16, (), ab.TileAttrs(512, 8, 64, 1, True), "is aligned to 1024 bytes"),
        (Op.TILE, F16, (), ab.TileAttrs(0, 8, 40, 1, True), "a swizzled row has"),
        (Op.TILE, F16, (), ab.TileAttrs(0, 4, 64, 1, True), "a multiple of 1024 bytes"),
        (Op.BARRIER, VOID, (), ab.BarrierAttrs(1, 16, 32), "numbers are below 16"),
        (Op.BARRIER, VOID, (), ab.BarrierAttrs(1, 1, 33), "awaits whole warps"),
        (Op.BARRIER, VOID, (ZERO,), ab.BarrierAttrs(1, 0, 64), "named ones alone have groups"),
        (Op.EXCHANGE, I32, (ZERO,), ab.ExchangeAttrs(1, 32), "distances are 0 to 31"),
        (Op.EXCHANGE, F32, (ZERO,), ab.ExchangeAttrs(1, 1), "dtypes differ"),
        (Op.ROLE, VOID, (), ab.RoleAttrs(1, "two words", 0, 1, 0), "named by one word"),
        (Op.ROLE, VOID, (), ab.RoleAttrs(1, "load", 0, 1, 100), "budgets are multiples of 8"),
        (Op.COPY_WAIT, VOID, (), ab.WaitAttrs(1, -1), "leaves a negative number"),
        (
            *(Op.COPY_ASYNC, VOID, (tile(), ZERO, SOURCE, ZERO, ZERO), ab.CopyAttrs(1, 3)),
            "moves 4, 8 or 16 bytes",
        ),
        (
            *(Op.COPY_ASYNC, VOID, (SOURCE, ZERO, tile(), ZERO, ZERO), ab.CopyAttrs(1, 8)),
            "copies from global to shared",
        ),
        (Op.LDMATRIX, I32, (tile(), ZERO), ab.FragmentAttrs(1, False), "gives uint32x4"),
        (
            *(Op.LDMATRIX, dtypes.uint32.vector(4), (tile(F32), ZERO)),
            *(ab.FragmentAttrs(1, False), "reads elements of 8 or 16 bits"),
        ),
        (Op.MBARRIER_ARRIVE, VOID, (tile(), ZERO), EFFECT, "is about something"),
        (
            *(Op.TENSOR_MAP, F16, (SOURCE,), ab.TensorMapAttrs((64, 64), (60,), (64, 8), 128)),
            "16 bytes divide the offset and the stride",
        ),
        (
            *(Op.TENSOR_MAP, F16, (SOURCE,), ab.TensorMapAttrs((64, 64), (64,), (32, 8), 128)),
            "a swizzle is that of the box's row",
        ),
        (
            *(Op.TENSOR_MAP, F16, (SOURCE,), ab.TensorMapAttrs((64, 64), (64,), (64, 8, 1), 128)),
            "describes rows and columns",
        ),
        (
            *(Op.TENSOR_MAP, F32, (SOURCE,), ab.TensorMapAttrs((64, 64), (64,), (32, 8), 128)),
            "sees global memory, in its dtype",
        ),
    ],
)
def test_an_ill_formed_node_is_refused(op, dtype, operands, attrs, words):
    with pytest.raises(InternalError, match=words):
        UOp(op, dtype, operands, attrs)


@pytest.mark.parametrize(
    ("attrs", "registers", "words"),
    [
        (
            ab.TileMmaAttrs(1, "m16n8k16.bf16", 1, 1, True, True),
            8,
            "dtype is not the instruction's",
        ),
        (ab.TileMmaAttrs(1, "m16n8k16.f16", 1, 1, True, False), 8, "k differs"),
        (
            ab.TileMmaAttrs(1, "m16n8k16.f16", 2, 1, True, True),
            4,
            "does not divide what a warp",
        ),
        (ab.TileMmaAttrs(1, "m64n16k16.f16", 2, 1, True, True), 4, "no whole warpgroups"),
        (ab.TileMmaAttrs(1, "m16n8k16.f16", 1, 1, True, True), 4, "must be float32x8"),
    ],
)
def test_an_ill_formed_product_is_refused(attrs, registers, words):
    total = UOp(Op.REGISTER, F32.vector(registers), (), EFFECT)

    with pytest.raises(InternalError, match=words):
        UOp(Op.TILE_MMA, VOID, (total, tile(), ZERO, tile(), ZERO), attrs)


def test_a_single_thread_has_no_place():
    b = Builder("sample", (Param(F32, 8, True),), I32)
    place = UOp(Op.PLACE, I32, (), ab.PlaceAttrs("thread", 32))
    b.store(b.param(0), place, const(F32, 0.0))

    assert "is an op of a thread block" in refusal(b)
