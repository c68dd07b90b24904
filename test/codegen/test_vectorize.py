"""INDEXED expressions as LINEAR values: which accesses become vectors, and what lanes read."""

import numpy as np
import pytest

from tinytensor.codegen.builder import Builder
from tinytensor.codegen.vectorize import Evaluator, stride_of, widest_itemsize
from tinytensor.dtype import dtypes
from tinytensor.errors import InternalError
from tinytensor.ops.attrs import Combine, ParamAttrs, ReduceAttrs
from tinytensor.ops.interpret_linear import run_linear
from tinytensor.ops.kernel import Param
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp, cast, const, index_const, make_range, where

F32 = dtypes.float32
LANES = 8
ELEMENTS = 100
C, R = make_range(0, 64), make_range(1, 10)
SOURCE = UOp(Op.PARAM, F32, (), ParamAttrs(0, ELEMENTS))
TARGET = UOp(Op.PARAM, F32, (), ParamAttrs(1, ELEMENTS))


def load(index, guard=None):
    operands = (SOURCE, index) if guard is None else (SOURCE, index, guard)
    return UOp(Op.LOAD, F32, operands)


def store(index, value):
    return UOp(Op.STORE, dtypes.void, (TARGET, index, value))


def builder():
    params = (Param(F32, ELEMENTS, False), Param(F32, ELEMENTS, True))
    return Builder("k", params, dtypes.int32)


def evaluator(b, valid=0, known=None):
    """Lanes along C from 16 on, at R = 2."""
    places = {C: b.index(16), R: b.index(2)}
    return Evaluator(b, places, C, LANES, valid, known)


def run(value, at=C, valid=0):
    """The target after storing `value` at `at`: source[i] is i, what is not stored stays -1."""
    b = builder()
    evaluator(b, valid).store(store(at, value))
    target = np.full(ELEMENTS, -1, np.float32)
    run_linear(b.finish(), [np.arange(ELEMENTS, dtype=np.float32), target])
    return target


@pytest.mark.parametrize(
    ("index", "stride"),
    [
        (C, 1),
        (R, 0),
        (C * 3 + R, 3),
        (R * 10 - C, -1),
        (index_const(7) * C, 7),
        (C * 2 - C, 1),
        ((C + R) * 4, 4),
        (C // 2, None),
        (C % 8, None),
        (R // 2, 0),
        (C * R, None),
    ],
)
def test_the_stride_is_the_step_of_an_affine_index(index, stride):
    assert stride_of(index, C) == stride


def test_an_adjacent_load_is_one_vector():
    loaded = evaluator(builder()).value(load(C + R))

    assert loaded.op is Op.LOAD
    assert loaded.dtype is F32.vector(LANES)


def test_a_flipped_load_is_one_vector_turned_round():
    flipped = evaluator(builder()).value(load(index_const(63) - C))

    assert flipped.op is Op.SHUFFLE
    assert flipped.attrs.lanes == (7, 6, 5, 4, 3, 2, 1, 0)
    assert flipped.operands[0].op is Op.LOAD


def test_a_load_that_the_lanes_share_is_scalar():
    assert evaluator(builder()).value(load(R * 3)).dtype is F32


def test_any_other_load_is_one_load_for_each_lane():
    assert evaluator(builder()).value(load(C // 2)).op is Op.STACK


def test_a_scalar_is_spread_where_it_meets_a_vector():
    total = evaluator(builder()).value(load(C) + load(R))

    assert [each.op for each in total.operands] == [Op.LOAD, Op.SPLAT]


def test_a_division_that_cannot_be_negative_truncates():
    assert evaluator(builder()).value(cast(C // 3, F32)).operands[0].op is Op.TRUNCDIV


def test_a_division_that_can_be_negative_rounds_down():
    assert evaluator(builder()).value(cast((C - 5) // 3, F32)).operands[0].op is Op.FLOORDIV


@pytest.mark.parametrize(
    ("value", "want"),
    [
        (load(C), range(16, 24)),
        (load(C + R), range(18, 26)),
        (load(index_const(63) - C), range(47, 39, -1)),
        (load(C * 2), range(32, 48, 2)),
        (load(C // 2), [8, 8, 9, 9, 10, 10, 11, 11]),
        (load(R), [2] * 8),
        (load(C, C < 19), [16, 17, 18, 0, 0, 0, 0, 0]),
        (load(C * 50, C < 2), [0] * 8),
        (cast(C * 3 - 50, F32), range(-2, 22, 3)),
        (where(C < 18, const(F32, 5), load(C)), [5, 5, 18, 19, 20, 21, 22, 23]),
    ],
)
def test_each_lane_has_its_own_value(value, want):
    np.testing.assert_array_equal(run(value)[16:24], np.array(want, np.float32))


@pytest.mark.parametrize("index", [C, index_const(63) - C, C * 2, C // 2])
def test_a_tail_stores_its_valid_lanes_alone(index):
    target = run(load(index), valid=3)

    np.testing.assert_array_equal(target[16:19], run(load(index))[16:19])
    np.testing.assert_array_equal(np.delete(target, np.s_[16:19]), -1)


@pytest.mark.parametrize(
    ("at", "places"),
    [
        (index_const(63) - C, range(47, 39, -1)),
        (C * 3, range(48, 72, 3)),
        (C % 8, range(8)),
    ],
)
@pytest.mark.parametrize("valid", [8, 5])
def test_lanes_are_stored_where_their_index_says(at, places, valid):
    target = run(load(C), at, valid)

    want = np.full(ELEMENTS, -1, np.float32)
    want[list(places)[:valid]] = np.arange(16, 16 + valid)
    np.testing.assert_array_equal(target, want)


def test_a_known_node_is_not_computed():
    b = builder()
    known = b.load(b.param(0), b.index(40), LANES)

    value = evaluator(b, known={load(C): known}).value(load(C) + 1)

    assert value.operands[0] is known


def test_a_fold_that_is_not_known_is_refused():
    fold = UOp(Op.REDUCE, F32, (load(C), C), ReduceAttrs(Combine.ADD))

    with pytest.raises(InternalError) as caught:
        evaluator(builder()).value(fold)

    assert str(caught.value) == (
        "reduce: has no value here; a fold's must be known: <REDUCE float32 () of 2 operands>."
    )


def test_a_deep_expression_needs_no_recursion():
    value = load(C)
    for _ in range(5000):
        value = value + 1

    assert evaluator(builder()).value(value).dtype is F32.vector(LANES)


def test_halves_count_as_the_float32_they_are_computed_in():
    assert widest_itemsize([cast(load(C), dtypes.float16)], dtypes.int32) == 4
    assert widest_itemsize([const(dtypes.float16, 1)], dtypes.int32) == 4
    assert widest_itemsize([const(dtypes.int8, 1)], dtypes.int64) == 1


def test_an_index_counts_where_it_is_a_value():
    assert widest_itemsize([load(C)], dtypes.int64) == 4
    assert widest_itemsize([load(C) + cast(C, F32)], dtypes.int64) == 8
