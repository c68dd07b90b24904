import math

import numpy as np
import pytest

from tinytensor.codegen.builder import Builder, fma, lane, shuffle, splat, stack
from tinytensor.dtype import dtypes
from tinytensor.errors import InternalError
from tinytensor.ops.attrs import CallAttrs
from tinytensor.ops.interpret_linear import run_linear
from tinytensor.ops.kernel import Param
from tinytensor.ops.linear import Linear
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp, compare, const

F32 = dtypes.float32
TRUE = const(dtypes.bool, True)


def builder(*elements, dtype=F32):
    """A builder whose first param is written, and the others are read."""
    params = [Param(dtype, count, number == 0) for number, count in enumerate(elements)]
    return Builder("sample", params, dtypes.int32)


def run(b, *arrays, poison=True):
    """The first param's array after a run; its elements start as 99."""
    out = np.full(b.params[0].elements, 99, b.params[0].dtype.storage_numpy)
    run_linear(b.finish(), (out, *arrays), poison)
    return out.tolist()


def test_a_loop_takes_each_value_below_its_end():
    b = builder(7)
    with b.loop(1, 7, step=2) as i:
        b.store(b.param(0), i, const(F32, 0.0))

    assert run(b) == [99, 0, 99, 0, 99, 0, 99]


@pytest.mark.parametrize(("begin", "end"), [(3, 3), (4, 3)])
def test_a_loop_without_values_is_skipped(begin, end):
    b = builder(7)
    with b.loop(begin, end) as i, b.loop(0, 2):
        b.store(b.param(0), i, const(F32, 0.0))
    b.store(b.param(0), b.index(0), const(F32, 1.0))

    assert run(b) == [1, 99, 99, 99, 99, 99, 99]


def test_loops_nest_and_start_anew():
    b = builder(6)
    with b.loop(0, 2) as i, b.loop(i, 3) as j:
        b.store(b.param(0), i * 3 + j, const(F32, 1.0))

    assert run(b) == [1, 1, 1, 99, 1, 1]


def test_a_branch_runs_one_half():
    b = builder(4)
    with b.loop(0, 4) as i, b.branch(compare(Op.LT, i, 2)) as opened:
        b.store(b.param(0), i, const(F32, 1.0))
        b.otherwise(opened)
        with b.branch(compare(Op.EQ, i, 3)):
            b.store(b.param(0), i, const(F32, 2.0))

    assert run(b) == [1, 1, 99, 2]


def test_a_register_carries_a_value_around_a_loop():
    b = builder(1, 5)
    total = b.register(F32, 0.5)
    with b.loop(0, 5) as i:
        b.write(total, b.read(total) + b.load(b.param(1), i))
    b.store(b.param(0), b.index(0), b.read(total))

    assert run(b, np.float32([1, 2, 3, 4, 5])) == [15.5]


def test_vectors_are_lanes():
    b = builder(8, 4)
    x = b.load(b.param(1), b.index(0), lanes=4)
    y = fma(x, x, splat(const(F32, 1.0), 4))
    b.store(b.param(0), b.index(0), shuffle(x, y, (7, 0, 3, 4)))
    b.store(b.param(0), b.index(4), stack([lane(y, 3), lane(x, 1), lane(x, 0), lane(x, 0)]))

    assert run(b, np.float32([1, 2, 3, 4])) == [17, 1, 4, 2, 17, 2, 1, 1]


def test_only_valid_lanes_are_touched():
    b = builder(3, 3)
    x = b.load(b.param(1), b.index(1), lanes=4, valid=2)
    b.store(b.param(0), b.index(0), lane(x, 2))
    b.store(b.param(0), b.index(1), x, valid=2)

    assert run(b, np.float32([1, 2, 3])) == [0, 2, 3]


def test_a_false_guard_touches_nothing():
    b = builder(2, 1)
    never = const(dtypes.bool, False)
    x = b.load(b.param(1), b.index(-5), lanes=2, guard=never)
    b.store(b.param(0), b.index(7), x, guard=never)
    b.store(b.param(0), b.index(0), x, guard=TRUE)

    assert run(b, np.float32([1])) == [0, 0]


def test_scratch_memory_keeps_what_is_written():
    b = builder(4, 4)
    first, second = b.workspace(F32, 4), b.workspace(dtypes.int16, 4)
    b.store(first, b.index(0), b.load(b.param(1), b.index(0), lanes=4))
    b.store(second, b.index(3), const(dtypes.int16, 7))
    b.store(b.param(0), b.index(0), b.load(first, b.index(0), lanes=4))

    assert run(b, np.float32([1, 2, 3, 4])) == [1, 2, 3, 4]


def test_bfloat16_is_stored_as_its_upper_half():
    b = builder(2, 2, dtype=dtypes.bfloat16)
    x = b.load(b.param(1), b.index(0), lanes=2)
    b.store(b.param(0), b.index(0), x + 1.0)

    assert run(b, np.array([0x3F80, 0xC000], np.uint16)) == [0x4000, 0xBF80]


def test_a_call_computes_where_its_condition_holds():
    b = builder(3, 3)
    x = b.load(b.param(1), b.index(0), lanes=2)
    cond = stack([const(dtypes.bool, False), TRUE])
    b.store(b.param(0), b.index(0), UOp(Op.CALL, x.dtype, (cond, x), CallAttrs("sin")))
    scalar = b.load(b.param(1), b.index(2))
    rest = UOp(Op.CALL, F32, (TRUE, scalar, const(F32, 2.0)), CallAttrs("fmod"))
    b.store(b.param(0), b.index(2), rest)

    found = run(b, np.float32([math.inf, 0.5, -5]))

    assert found == [0, float(np.float32(math.sin(0.5))), -1]


@pytest.mark.parametrize(
    ("index", "lanes", "sentence"),
    [
        (-1, 1, "elements -1 to -1 are not within 4: statement 4, STORE void"),
        (2, 4, "elements 2 to 5 are not within 4: statement 5, STORE void"),
    ],
)
def test_an_access_outside_its_buffer_is_refused(index, lanes, sentence):
    b = builder(4)
    where = b.value(b.index(index))
    b.value(b.param(0))
    b.value(const(F32, 1.0))
    b.value(b.index(9))
    b.store(b.param(0), where, splat(const(F32, 1.0), lanes))

    with pytest.raises(InternalError) as caught:
        run(b)

    attrs = f"AccessAttrs(order=1, valid={lanes})"
    assert str(caught.value) == f"run linear: sample: {sentence} {attrs}."


def test_a_read_of_unwritten_scratch_memory_is_refused():
    b = builder(1)
    scratch = b.workspace(dtypes.float32, 1)
    b.store(b.param(0), b.index(0), b.load(scratch, b.index(0)))

    with pytest.raises(InternalError) as caught:
        run_linear(b.finish(), [np.zeros(1, np.float32)])

    assert str(caught.value) == (
        "run linear: sample: reads scratch memory that was never written: statement 2, LOAD "
        "float32 AccessAttrs(order=1, valid=1)."
    )


def test_a_load_without_an_order_is_refused_once_its_element_is_written():
    b = builder(2)
    b.store(b.param(0), b.index(1), const(F32, 1.0))
    b.store(b.param(0), b.index(0), b.load_unwritten(b.param(0), b.index(1)))

    with pytest.raises(InternalError) as caught:
        run_linear(b.finish(), [np.zeros(2, np.float32)])

    assert str(caught.value) == (
        "run linear: sample: reads what this launch wrote; such a load has an order: statement 5, "
        "LOAD float32 AccessAttrs(order=-1, valid=1)."
    )


def test_unwritten_scratch_memory_is_poison_when_it_may_be_read():
    b = builder(1, dtype=dtypes.uint8)
    scratch = b.workspace(dtypes.uint8, 1)
    b.store(b.param(0), b.index(0), b.load(scratch, b.index(0)))

    assert run(b, poison=False) == [0xA5]


def test_a_register_read_before_it_is_written_is_refused():
    b = builder(1)
    total = b.register(F32, 0.0)
    b.store(b.param(0), b.index(0), b.read(total))
    finished = b.finish()
    unwritten = tuple(node for node in finished.statements if node.op is not Op.WRITE)

    with pytest.raises(InternalError) as caught:
        run_linear(Linear("sample", finished.params, unwritten, 0), [np.zeros(1, np.float32)])

    assert str(caught.value) == (
        "run linear: sample: the register was never written: statement 2, READ float32 "
        "EffectAttrs(order=3)."
    )


def test_a_call_of_an_unknown_function_is_refused():
    b = builder(1)
    x = const(F32, 1.0)
    b.store(b.param(0), b.index(0), UOp(Op.CALL, F32, (TRUE, x), CallAttrs("gamma")))

    with pytest.raises(InternalError) as caught:
        run(b)

    assert str(caught.value) == (
        "run linear: sample: no function is called gamma: statement 4, CALL float32 "
        "CallAttrs(function='gamma')."
    )
