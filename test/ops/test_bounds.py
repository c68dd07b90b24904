"""Bounds of integer nodes: they contain every value, and are exact where an op is monotone."""

import itertools

import numpy as np
import pytest

from tinytensor.dtype import dtypes
from tinytensor.ops.attrs import Combine, ExtentAttrs, ParamAttrs, ReduceAttrs, ShapeAttrs
from tinytensor.ops.bounds import bounds_of, single_value
from tinytensor.ops.interpret import evaluate
from tinytensor.ops.op import BINARY, COMPARE, Op
from tinytensor.ops.uop import UOp, binary, cast, const, index_const, make_range, where

INTEGER_BINARY = [op for op in BINARY if op is not Op.DIV]
ENDS = {
    dtypes.int8: (-128, -3, -1, 0, 1, 2, 7, 127),
    dtypes.uint8: (0, 1, 2, 7, 8, 254, 255),
}
MONOTONE = (Op.MAX, Op.MIN, *COMPARE)


def load(dtype):
    return UOp(Op.LOAD, dtype, (UOp(Op.PARAM, dtype, (), ParamAttrs(0, 8)), index_const(0)))


def between(dtype, low, high):
    """A node whose bounds are an interval."""
    return cast(make_range(0, high - low + 1) + low, dtype)


def values_between(dtype, low, high):
    return np.arange(low, high + 1).astype(dtype.value_numpy)


def intervals(dtype):
    return [(low, high) for low, high in itertools.product(ENDS[dtype], repeat=2) if low <= high]


@pytest.mark.parametrize("dtype", ENDS, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("op", (*INTEGER_BINARY, *COMPARE), ids=lambda op: op.name)
def test_bounds_contain_what_every_pair_of_values_gives(op, dtype):
    result_dtype = dtypes.bool if op in COMPARE else dtype
    for x, y in itertools.product(intervals(dtype), repeat=2):
        node = UOp(op, result_dtype, (between(dtype, *x), between(dtype, *y)))
        columns = values_between(dtype, *x)[:, None]
        results = evaluate(op, result_dtype, columns, values_between(dtype, *y)[None, :])

        low, high = bounds_of(node)

        assert low <= results.min(), (x, y)
        assert results.max() <= high, (x, y)


@pytest.mark.parametrize("op", [Op.ADD, Op.SUB, Op.MUL, Op.MAX, Op.MIN], ids=lambda op: op.name)
def test_bounds_are_reached_where_nothing_wraps(op):
    for x, y in itertools.product([(-3, 2), (0, 4), (-5, -1), (3, 3)], repeat=2):
        node = binary(op, between(dtypes.int8, *x), between(dtypes.int8, *y))
        columns = values_between(dtypes.int8, *x)[:, None]
        results = evaluate(op, dtypes.int8, columns, values_between(dtypes.int8, *y)[None, :])

        assert bounds_of(node) == (results.min(), results.max()), (x, y)


INDEX_BINARY = (Op.FLOORDIV, Op.MOD, Op.ADD, Op.SUB, Op.MUL)


@pytest.mark.parametrize("op", INDEX_BINARY, ids=lambda op: op.name)
def test_bounds_of_an_index_contain_exact_results(op):
    for x, y in itertools.product(intervals(dtypes.int8), repeat=2):
        node = binary(op, between(dtypes.index, *x), between(dtypes.index, *y))
        columns = np.arange(x[0], x[1] + 1)[:, None]
        results = evaluate(op, dtypes.int64, columns, np.arange(y[0], y[1] + 1)[None, :])

        low, high = bounds_of(node)

        assert low <= results.min() <= results.max() <= high, (x, y)


@pytest.mark.parametrize("low, high", [(0, 0), (-128, 127), (-5, 9), (100, 120), (-128, -120)])
def test_bounds_of_unary_ops_and_casts_contain_every_value(low, high):
    x, values = between(dtypes.int8, low, high), values_between(dtypes.int8, low, high)
    targets = [dtypes.bool, dtypes.uint8, dtypes.int16, dtypes.uint64, dtypes.int8]
    nodes = [UOp(Op.NEG, dtypes.int8, (x,)), *[UOp(Op.CAST, each, (x,)) for each in targets]]
    for node in nodes:
        results = evaluate(node.op, node.dtype, values)

        least, greatest = bounds_of(node)

        assert least <= results.min(), node
        assert results.max() <= greatest, node


def test_what_can_wrap_has_the_whole_range():
    x = between(dtypes.int8, 100, 120)

    assert bounds_of(x + 7) == (107, 127)
    assert bounds_of(x + 8) == (-128, 127)


def test_negating_the_least_integer_wraps():
    assert bounds_of(UOp(Op.NEG, dtypes.int8, (load(dtypes.int8),))) == (-128, 127)


def test_the_least_integer_by_minus_one_wraps():
    assert bounds_of(load(dtypes.int8) // -1) == (-128, 127)


def test_an_index_never_wraps():
    assert bounds_of(make_range(0, 2**40) * 2**40)[1] == (2**40 - 1) * 2**40


@pytest.mark.parametrize("extent, greatest", [(0, 0), (1, 0), (7, 6)])
def test_a_range_ends_below_its_extent(extent, greatest):
    assert bounds_of(make_range(0, extent)) == (0, greatest)


def test_a_remainder_in_one_quotient_keeps_its_interval():
    assert bounds_of((make_range(0, 4) + 9) % 8) == (1, 4)


def test_a_cast_to_index_keeps_bounds():
    assert bounds_of(cast(load(dtypes.int8), dtypes.index)) == (-128, 127)


def test_a_cast_from_float_has_the_whole_range():
    assert bounds_of(cast(const(dtypes.float32, 1.0), dtypes.uint8)) == (0, 255)


def test_a_float_is_unbounded():
    assert bounds_of(load(dtypes.float16)) == (-np.inf, np.inf)


def test_comparisons_of_floats_are_open():
    x = load(dtypes.float32)

    for op in COMPARE:
        assert bounds_of(UOp(op, dtypes.bool, (x, x))) == (0, 1)


def test_a_choice_has_the_bounds_of_both_arms():
    cond = make_range(1, 2) < 1

    assert bounds_of(where(cond, make_range(0, 4), 9)) == (0, 9)
    assert bounds_of(where(const(dtypes.bool, True), make_range(0, 4), 9)) == (0, 3)


def test_positions_lie_below_the_extent():
    attrs = ReduceAttrs(Combine.ARGMAX)
    node = UOp(Op.REDUCE, dtypes.int64, (load(dtypes.float32), make_range(0, 9)), attrs)

    assert bounds_of(node) == (0, 8)


def test_a_sum_over_ranges_is_scaled():
    x = between(dtypes.int32, -2, 3)
    node = UOp(Op.REDUCE, dtypes.int32, (x, make_range(5, 4)), ReduceAttrs(Combine.ADD))

    assert bounds_of(node) == (-8, 12)


def test_views_keep_bounds():
    iota = UOp(Op.IOTA, dtypes.int64, (), ExtentAttrs(6))

    assert bounds_of(UOp(Op.RESHAPE, dtypes.int64, (iota,), ShapeAttrs((2, 3)))) == (0, 5)


@pytest.mark.parametrize("dtype", [dtypes.index, dtypes.int8, dtypes.bool], ids=lambda d: d.name)
def test_a_long_chain_has_bounds(dtype):
    node = UOp(Op.CAST, dtype, (load(dtypes.int16),))
    for step in range(20_000):
        node = binary(Op.MAX, node, const(dtype, step % 2))

    assert single_value(node) in (None, 1)
    assert bounds_of(node)[0] == 1
