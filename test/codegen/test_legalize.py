"""What legalize leaves: the ops of C, as few of them as bounds allow, in the same blocks."""

import pytest
from codegen.machine import elementwise_kernel

from tinytensor.codegen.builder import Builder
from tinytensor.codegen.legalize import legalize
from tinytensor.dtype import dtypes
from tinytensor.ops.kernel import Param
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp, binary, cast, where
from tinytensor.target import CPU_AVX512, CPU_SSE

F16, F32, I32, U32 = dtypes.float16, dtypes.float32, dtypes.int32, dtypes.uint32
PLUMBING = (Op.PARAM, Op.CONST, Op.LOOP, Op.ENDLOOP, Op.LOAD, Op.STORE)


def ops_after(dtype, function, target=CPU_AVX512, result=None):
    """The ops that a function of two loaded values becomes."""
    results = [(result or dtype, function)]
    linear = elementwise_kernel("kernel", (dtype, dtype), results, 1, 4)
    statements = legalize(linear, target).statements
    return [node.op for node in statements if node.op not in PLUMBING]


@pytest.mark.parametrize("dtype", [I32, U32], ids=lambda each: each.name)
def test_division_by_a_power_of_two_shifts(dtype):
    assert ops_after(dtype, lambda x, y: x // 8) == [Op.SHR]


@pytest.mark.parametrize("dtype", [I32, U32], ids=lambda each: each.name)
def test_a_remainder_by_a_power_of_two_masks(dtype):
    assert ops_after(dtype, lambda x, y: x % 8) == [Op.AND]


def test_unsigned_division_by_a_constant_needs_no_guard():
    ops = ops_after(U32, lambda x, y: x // 7)

    assert Op.TRUNCDIV in ops
    assert Op.EQ not in ops


def test_a_nonnegative_divisor_needs_no_test_for_minus_one():
    tests = ops_after(I32, lambda x, y: x // (y & 15)).count(Op.EQ)

    assert tests == 1  # against 0, for the divisor and for the result


def test_a_shift_inside_the_width_stays():
    assert ops_after(I32, lambda x, y: binary(Op.SHL, x, 31)) == [Op.SHL]


def test_a_masked_shift_stays():
    assert ops_after(I32, lambda x, y: binary(Op.SHR, x, y & 31)) == [Op.AND, Op.SHR]


def test_a_half_widened_and_rounded_back_is_itself():
    assert ops_after(F16, lambda x, y: cast(cast(x, F32), F16)) == []


def test_halves_compute_in_float32():
    assert ops_after(F16, lambda x, y: x + y) == [Op.CAST, Op.CAST, Op.ADD, Op.CAST]


def test_a_half_is_selected_without_widening_the_value():
    ops = ops_after(F16, lambda x, y: where(x < 0.0, y, x))

    assert ops == [Op.CAST, Op.LT, Op.WHERE]


def test_a_target_without_half_conversions_gets_integers():
    ops = ops_after(F16, lambda x, y: cast(x, F32), CPU_SSE, F32)

    assert Op.BITCAST in ops
    assert Op.SHL in ops


def test_a_maximum_with_a_constant_is_one_comparison():
    assert ops_after(F32, lambda x, y: binary(Op.MAX, x, 0.0)) == [Op.LE, Op.WHERE]


def test_a_value_placed_before_a_loop_stays_there():
    b = Builder("hoisted", [Param(F16, 4, False), Param(F16, 4, True)], I32)
    scale = b.value(b.load(b.param(0), b.index(0)) * 2.0)
    with b.loop(0, 4) as i:
        b.store(b.param(1), i, scale)

    ops = [node.op for node in legalize(b.finish(), CPU_AVX512).statements]

    assert ops.index(Op.MUL) < ops.index(Op.LOOP)


def test_a_value_used_in_both_branches_is_made_in_each():
    b = Builder("twice", [Param(F16, 8, False), Param(F16, 8, True)], I32)
    with b.loop(0, 4) as i:
        x = b.load(b.param(0), i)
        with b.branch(i < 2) as first:
            b.store(b.param(1), i, x * 2.0)
            b.otherwise(first)
            b.store(b.param(1), i + 4, x * 2.0)

    ops = [node.op for node in legalize(b.finish(), CPU_AVX512).statements]

    assert ops.count(Op.MUL) == 2


def test_a_long_chain_does_not_recurse():
    def chain(x, y):
        for _ in range(5000):
            x = UOp(Op.MAX, x.dtype, (x, y))
        return x

    assert ops_after(I32, chain).count(Op.WHERE) == 5000
