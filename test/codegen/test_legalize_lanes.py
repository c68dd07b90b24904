"""Vectors become scalars and pairs: how loads, stores, registers and products are taken apart."""

import numpy as np
import pytest
from codegen.gpu_machine import block_kernel, lanes_of_access, run_form
from codegen.hopper_kernel import hopper_product
from codegen.machine import bits_of, empty, stored

from tinytensor.codegen.block_builder import BlockBuilder
from tinytensor.codegen.builder import lane, shuffle, splat, stack
from tinytensor.codegen.legalize import legalize
from tinytensor.codegen.legalize_lanes import split_lanes
from tinytensor.dtype import USER_DTYPES, dtypes
from tinytensor.ops.kernel import Param
from tinytensor.ops.op import Op
from tinytensor.ops.uop import binary, cast
from tinytensor.ops.verify import verify_linear
from tinytensor.target import SM80, SM90A

F16, BF16, F32, I32 = dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.int32
THREADS = 32

by_half = pytest.mark.parametrize("dtype", [F16, BF16], ids=lambda each: each.name)


def builder(*params):
    """A builder of one warp whose params are (dtype, elements, written)."""
    return BlockBuilder("kernel", [Param(*each) for each in params], I32, (1, 1, 1), THREADS)


def split(linear, target=SM80):
    result = split_lanes(linear, target)
    verify_linear(result)
    return result


def dtypes_of(linear, op):
    """The dtypes of the results of an op, in order."""
    return [node.dtype for node in linear.statements if node.op is op]


def halves_of(linear, op):
    """The same without those of indices."""
    return [each for each in dtypes_of(linear, op) if each.is_half]


def assert_same_bits(linear, arrays):
    before, after = run_form(linear, arrays), run_form(split(linear), arrays)

    for one, other, param in zip(before, after, linear.params, strict=True):
        assert np.array_equal(bits_of(one, param.dtype), bits_of(other, param.dtype))


def counting(count, dtype):
    return stored(np.arange(count) % 128, dtype)


# Pairs.
@by_half
@pytest.mark.parametrize("op", [Op.ADD, Op.SUB, Op.MUL, Op.MAX, Op.MIN], ids=lambda op: op.name)
def test_arithmetic_of_halves_is_done_in_pairs(dtype, op):
    linear = block_kernel("k", (dtype, dtype), [(dtype, lambda x, y: binary(op, x, y))], 8, 512)

    result = legalize(split(linear), SM80)

    assert halves_of(result, op) == [dtype.vector(2)] * 4
    assert Op.CAST not in {node.op for node in result.statements}


@by_half
def test_a_chain_of_halves_stays_in_pairs(dtype):
    linear = block_kernel("k", (dtype,), [(dtype, lambda x: (x * x + x) * x)], 8, 512)

    result = split(linear)

    assert halves_of(result, Op.MUL) == [dtype.vector(2)] * 8
    assert dtypes_of(result, Op.LANE).count(dtype) == 8  # the stored ones alone


@by_half
def test_an_odd_number_of_halves_is_computed_in_float32(dtype):
    b = builder((dtype, 32, False), (dtype, 32, True))
    x = b.load(b.param(0), b.thread)
    b.store(b.param(1), b.thread, x * x)

    result = legalize(split(b.finish()), SM80)

    assert dtypes_of(result, Op.MUL) == [F32]


@by_half
def test_floats_are_rounded_to_halves_two_by_two(dtype):
    linear = block_kernel("k", (F32,), [(dtype, lambda x: cast(x, dtype))], 4, 256)

    result = split(linear)

    assert dtypes_of(result, Op.CAST) == [dtype.vector(2)] * 2


@pytest.mark.parametrize("dtype", [F32, I32, dtypes.int8], ids=lambda each: each.name)
def test_other_arithmetic_is_done_lane_by_lane(dtype):
    linear = block_kernel("k", (dtype,), [(dtype, lambda x: x * x)], 4, 256)

    assert {each.lanes for each in dtypes_of(split(linear), Op.MUL)} == {1}


# Memory.
@pytest.mark.parametrize("dtype", USER_DTYPES, ids=lambda each: each.name)
def test_a_load_of_16_bytes_stays_one(dtype):
    lanes = lanes_of_access(dtype)
    linear = block_kernel("k", (dtype,), [(dtype, lambda x: x)], lanes, 64 * lanes)

    result = split(linear)

    assert dtypes_of(result, Op.LOAD) == [dtype.vector(lanes)]
    stores = [node for node in result.statements if node.op is Op.STORE]
    assert [each.operands[2].dtype for each in stores] == [dtype.vector(lanes)]


@pytest.mark.parametrize("valid", [1, 2, 3])
@pytest.mark.parametrize("dtype", [F32, F16, dtypes.bool], ids=lambda each: each.name)
def test_a_partial_access_touches_its_valid_lanes_only(dtype, valid):
    b = builder((dtype, 128, False), (dtype, 128, True), (dtype, 128, True))
    index = b.thread * 4
    part = b.load(b.param(0), index, 4, valid)
    b.store(b.param(1), index, part)
    b.store(b.param(2), index, b.load(b.param(0), index, 4), valid)

    assert_same_bits(b.finish(), [counting(128, dtype), empty(128, dtype), empty(128, dtype)])


def test_a_guard_holds_for_every_part():
    b = builder((F32, 128, False), (F32, 128, True))
    index = b.thread * 4
    guard = b.thread < 20
    loaded = b.load(b.param(0), index, 4, 3, guard)
    b.store(b.param(1), index, loaded, guard=guard)

    assert_same_bits(b.finish(), [counting(128, F32), empty(128, F32)])


# Lanes and state.
@pytest.mark.parametrize("dtype", [F32, F16, dtypes.int16], ids=lambda each: each.name)
def test_lanes_are_picked_stacked_and_turned(dtype):
    b = builder((dtype, 128, False), (dtype, 128, True))
    x = b.load(b.param(0), b.thread * 4, 4)
    turned = shuffle(x, splat(lane(x, 3), 4), (3, 7, 1, 0))
    mixed = stack([lane(turned, 1), lane(x, 2), lane(x, 0), lane(turned, 0)])
    b.store(b.param(1), b.thread * 4, turned + mixed)

    assert_same_bits(b.finish(), [counting(128, dtype), empty(128, dtype)])


@pytest.mark.parametrize("dtype", [F32, F16, BF16, dtypes.bool], ids=lambda each: each.name)
def test_a_register_of_lanes_becomes_registers(dtype):
    b = builder((dtype, 128, False), (dtype, 128, True))
    total = b.register(dtype.vector(4), 0)
    with b.loop(0, 3):
        b.write(total, b.read(total) + b.load(b.param(0), b.thread * 4, 4))
    b.store(b.param(1), b.thread * 4, b.read(total))
    linear = b.finish()

    assert_same_bits(linear, [counting(128, dtype), empty(128, dtype)])
    registers = dtypes_of(split(linear), Op.REGISTER)
    assert registers == ([dtype.vector(2)] * 2 if dtype.is_half else [dtype] * 4)


def test_registers_that_trade_values_are_all_read_before_one_is_written():
    b = builder((F32, 64, False), (F32, 64, True))
    pair = b.register(F32.vector(2), 0.0)
    b.write(pair, b.load(b.param(0), b.thread * 2, 2))
    x = b.read(pair)
    b.write(pair, shuffle(x, x, (1, 0)))
    b.store(b.param(1), b.thread * 2, b.read(pair))
    linear = b.finish()

    assert_same_bits(linear, [counting(64, F32), empty(64, F32)])
    after = run_form(split(linear), [counting(64, F32), empty(64, F32)])
    assert np.array_equal(after[1].reshape(32, 2), np.arange(64.0).reshape(32, 2)[:, ::-1])


def test_the_accumulator_of_a_warpgroup_stays_whole():
    result = split(hopper_product(64, 64, 64), SM90A)

    assert dtypes_of(result, Op.REGISTER) == [F32.vector(32)]
