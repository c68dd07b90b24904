"""Which values are written at their only use."""

import pytest

from tinytensor.codegen.builder import Builder
from tinytensor.codegen.emit import estimate_steps, find_inlined
from tinytensor.dtype import dtypes
from tinytensor.ops.kernel import Param
from tinytensor.ops.op import Op
from tinytensor.ops.uop import const

F32, I32 = dtypes.float32, dtypes.int32


@pytest.fixture
def b():
    return Builder("kernel", [Param(F32, 8, False), Param(F32, 8, True)], I32)


def inlined_ops(b):
    statements = b.finish().statements
    return [statements[each].op for each in sorted(find_inlined(statements))]


def test_a_value_read_once_is_inlined(b):
    b.store(b.param(1), b.index(0), b.load(b.param(0), b.index(1)) + 1.5)

    assert Op.ADD in inlined_ops(b)
    assert Op.LOAD in inlined_ops(b)


def test_a_value_read_twice_is_named(b):
    x = b.load(b.param(0), b.index(1)) + 1.5
    b.store(b.param(1), b.index(0), x * x)

    assert Op.ADD not in inlined_ops(b)


def test_a_value_placed_before_a_loop_is_not_moved_into_it(b):
    x = b.value(b.load(b.param(0), b.index(1)) + 1.5)
    with b.loop(0, 8) as i:
        b.store(b.param(1), i, x)

    assert Op.ADD not in inlined_ops(b)


def test_a_read_is_inlined_into_the_write_that_replaces_it(b):
    total = b.register(F32, 0.0)
    with b.loop(0, 8) as i:
        b.write(total, b.read(total) + b.load(b.param(0), i))

    assert Op.READ in inlined_ops(b)


def test_a_read_does_not_move_past_a_write(b):
    total = b.register(F32, 0.0)
    former = b.read(total)
    b.write(total, b.load(b.param(0), b.index(0)))
    b.store(b.param(1), b.index(0), former)

    assert Op.READ not in inlined_ops(b)


def test_a_read_inside_an_inlined_value_does_not_move_past_a_write(b):
    total = b.register(F32, 0.0)
    more = b.value(b.read(total) + 1.5)
    b.write(total, b.load(b.param(0), b.index(0)))
    b.store(b.param(1), b.index(0), more)

    assert Op.READ not in inlined_ops(b)


def test_a_read_does_not_move_past_a_write_inside_a_block(b):
    total = b.register(F32, 0.0)
    former = b.read(total)
    with b.loop(0, 8) as i:
        b.write(total, b.load(b.param(0), i))
    b.store(b.param(1), b.index(0), former)

    assert Op.READ not in inlined_ops(b)


def test_a_load_of_written_memory_stays_where_it_is(b):
    x = b.load(b.param(1), b.index(0))
    b.store(b.param(1), b.index(1), x)

    assert Op.LOAD not in inlined_ops(b)


def test_a_load_of_what_is_yet_unwritten_does_not_move_past_a_store(b):
    early = b.value(b.load_unwritten(b.param(1), b.index(1)))
    b.store(b.param(1), b.index(0), const(F32, 0.0))
    b.store(b.param(1), b.index(1), early)

    assert Op.LOAD not in inlined_ops(b)


def test_steps_multiply_by_the_trips_of_loops(b):
    with b.loop(0, 10), b.loop(0, 7, step=2):
        b.store(b.param(1), b.index(0), b.load(b.param(0), b.index(0)))
    statements = b.finish().statements

    # Before the loops 0 and 10; the outer LOOP counts as inside itself, as does the inner one's 7.
    inner = sum(node.op in (Op.PARAM, Op.LOAD, Op.STORE) for node in statements)
    assert estimate_steps(statements) >= 40 * inner
    assert estimate_steps(statements) < 40 * len(statements)
