"""Index expressions: what views make of ranges comes back as ranges, and values never change."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinytensor.dtype import dtypes
from tinytensor.ops.interpret import evaluate
from tinytensor.ops.op import Op
from tinytensor.ops.simplify_index import simplify_index
from tinytensor.ops.uop import binary, cast, compare, const, index_const, make_range, walk, where


def ranges_of(shape):
    return [make_range(axis, extent) for axis, extent in enumerate(shape)]


def flatten(indices, shape):
    """The row-major position of indices, as written by a reshape."""
    flat = index_const(0)
    for index, extent in zip(indices, shape, strict=True):
        flat = flat * extent + index
    return flat


def unflatten(flat, shape):
    """The indices of a row-major position, as written by a reshape."""
    strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    return [flat // stride % extent for stride, extent in zip(strides, shape, strict=True)]


def through(shapes):
    """Ranges of the last shape, as a position in the first one: a chain of reshapes."""
    indices = ranges_of(shapes[-1])
    for outer, inner in itertools.pairwise(reversed(shapes)):
        indices = unflatten(flatten(indices, outer), inner)
    return flatten(indices, shapes[0])


def dense(shape):
    """What an index into dense memory should be: one product a range, no division."""
    return simplify_index(flatten(ranges_of(shape), shape))


def ops_in(node):
    return [each.op for each in walk((node,))]


@pytest.mark.parametrize(
    "shapes",
    [
        [(4, 3), (12,)],
        [(12,), (3, 4)],
        [(2, 3, 4), (6, 4), (2, 12)],
        [(2, 3, 4), (24,), (4, 6)],
        [(6, 4), (2, 12), (8, 3)],
        [(1, 4, 3), (12, 1)],
        [(5, 1, 7), (35,), (1, 5, 7, 1)],
        [(16, 49, 3), (4, 4, 7, 7, 3), (16, 147)],
        [(30,), (2, 15), (10, 3), (5, 6)],
        [(7, 11), (77,), (11, 7)],
    ],
    ids=str,
)
def test_a_chain_of_reshapes_of_dense_memory_is_dense(shapes):
    assert simplify_index(through(shapes)) is dense(shapes[-1])


def test_indices_of_a_flattened_matrix_are_its_ranges():
    row, column = ranges_of((4, 3))

    found = [simplify_index(each) for each in unflatten(flatten((row, column), (4, 3)), (4, 3))]

    assert found == [row, column]


def test_a_quotient_keeps_only_the_ranges_above_it():
    r0, r1, r2 = ranges_of((2, 4, 3))

    assert simplify_index((r0 * 12 + r1 * 3 + r2) // 3 % 4) is r1
    assert simplify_index((r0 * 12 + r1 * 3 + r2) // 12) is r0
    assert simplify_index((r0 * 12 + r1 * 3 + r2) % 12) is simplify_index(r1 * 3 + r2)


def test_a_reshape_that_splits_one_range_divides_that_range_alone():
    r0, r1 = ranges_of((6, 4))

    row = simplify_index((r0 * 4 + r1) // 12)
    column = simplify_index((r0 * 4 + r1) % 12)

    assert row is r0 // 3
    assert column is simplify_index((r0 % 3) * 4 + r1)


def test_a_permute_between_reshapes_needs_one_division_a_range():
    # x (4, 3) -> transpose (3, 4) -> flatten (12): element r is x[r % 4, r // 4].
    (r,) = ranges_of((12,))
    row, column = unflatten(r, (3, 4))

    found = simplify_index(flatten((column, row), (4, 3)))

    assert found is simplify_index(r % 4 * 3 + r // 4)
    assert sorted(op.name for op in ops_in(found) if op in (Op.FLOORDIV, Op.MOD)) == [
        "FLOORDIV",
        "MOD",
    ]


def test_a_permute_undone_between_reshapes_is_dense():
    # (6, 4) -> reshape (2, 3, 4) -> permute (1, 0, 2) -> permute back -> reshape (6, 4)
    a, b, c = unflatten(flatten(ranges_of((6, 4)), (6, 4)), (2, 3, 4))
    swapped = (b, a, c)

    found = simplify_index(flatten((swapped[1], swapped[0], swapped[2]), (2, 3, 4)))

    assert found is dense((6, 4))


def test_heads_split_and_merged_are_dense():
    # (tokens, heads * width) -> (tokens, heads, width) -> (heads, tokens, width) and back.
    indices = unflatten(flatten(ranges_of((5, 8)), (5, 8)), (5, 2, 4))

    assert simplify_index(flatten(indices, (5, 2, 4))) is dense((5, 8))


def test_a_slice_with_steps_of_a_flattened_matrix_scales_the_range():
    # x (4, 6).reshape(24)[1:24:2].reshape(4, 3): element (i, j) is x[i, 2 * j + 1].
    i, j = ranges_of((4, 3))
    row, column = unflatten(flatten((i, j), (4, 3)) * 2 + 1, (4, 6))

    assert simplify_index(row) is i
    assert simplify_index(column) is simplify_index(j * 2 + 1)


def test_a_flip_of_a_flattened_matrix_flips_each_axis():
    # x (4, 3).reshape(12).flip().reshape(4, 3): element (i, j) is x[3 - i, 2 - j].
    i, j = ranges_of((4, 3))
    flipped = index_const(11) - flatten((i, j), (4, 3))

    assert simplify_index(flatten(unflatten(flipped, (4, 3)), (4, 3))) is simplify_index(flipped)


def test_a_roll_reshaped_keeps_one_remainder():
    (r,) = ranges_of((12,))
    rolled = (r + 5) % 12

    found = simplify_index(flatten(unflatten(rolled, (4, 3)), (4, 3)))

    assert found is simplify_index(rolled)


def test_like_terms_are_collected_and_constants_stand_right():
    r0, r1 = ranges_of((4, 5))

    found = simplify_index(r1 + 3 + r0 * 2 - r1 + r0 + index_const(4))

    assert found is r0 * 3 + 7


def test_equal_sums_are_the_identical_node():
    r0, r1 = ranges_of((4, 5))

    assert simplify_index((r0 + r1) * 4 - 2) is simplify_index(r1 * 4 + (r0 * 2 - 1) * 2)


@pytest.mark.parametrize(
    "write, value",
    [
        (lambda r: r < 8, True),
        (lambda r: r < 0, False),
        (lambda r: compare(Op.LE, index_const(0), r), True),
        (lambda r: compare(Op.EQ, r * 2, 3), False),
        (lambda r: compare(Op.NE, r + 9, 3), True),
        (lambda r: r * 2 < r + 8, True),
    ],
)
def test_a_comparison_that_bounds_decide_is_constant(write, value):
    assert simplify_index(write(make_range(0, 8))) is const(dtypes.bool, value)


@pytest.mark.parametrize(
    "write, canonical",
    [
        (lambda r: r + 3 < 7, lambda r: r < 4),
        (lambda r: r * 4 < 13, lambda r: r < 4),
        (lambda r: compare(Op.LE, r, 4), lambda r: r < 5),
        (lambda r: compare(Op.LE, index_const(0), r - 2), lambda r: index_const(1) < r),
        (lambda r: compare(Op.EQ, index_const(7), r + 2), lambda r: compare(Op.EQ, r, 5)),
    ],
)
def test_comparisons_that_say_the_same_are_identical(write, canonical):
    r = make_range(0, 8)

    assert simplify_index(write(r)) is canonical(r)


def test_of_two_bounds_the_tighter_stays():
    r = make_range(0, 8)

    assert simplify_index((r < 5) & (r + 1 < 4)) is (r < 3)
    assert simplify_index((r < 3) & (r < 3)) is (r < 3)


def test_bounds_that_exclude_each_other_are_false():
    r = make_range(0, 8)

    assert simplify_index((r < 3) & (index_const(2) < r)) is const(dtypes.bool, False)


def test_a_guard_that_always_holds_vanishes():
    # A pad of no elements after: 2 <= r is asked, r < 10 is known.
    r = make_range(0, 10)

    assert simplify_index((index_const(1) < r) & (r < 10)) is (index_const(1) < r)


def test_a_choice_between_equals_vanishes():
    r0, r1 = ranges_of((4, 5))

    assert simplify_index(where(r0 < 2, r0 + r1, r1 + r0)) is r0 + r1


def test_an_index_kept_in_int64_and_back_is_itself():
    r = make_range(0, 4)

    assert simplify_index(cast(cast(r, dtypes.int64), dtypes.index)) is r


def test_an_index_kept_in_too_few_bits_stays_wrapped():
    r = make_range(0, 300)
    wrapped = cast(cast(r, dtypes.uint8), dtypes.index)

    assert simplify_index(wrapped) is wrapped


def test_a_roll_by_a_count_known_at_run_time_keeps_its_remainder():
    # roll(arange(8), -k) reads position (r + k) % 8, whatever the sign of k.
    r, k = make_range(0, 8), cast(cast(make_range(1, 16), dtypes.int32), dtypes.index) - 8
    rolled = simplify_index((r + k) % 8)

    values = [int(run(rolled, {0: r_value, 1: 7})) for r_value in range(8)]  # k = -1

    assert values == [7, 0, 1, 2, 3, 4, 5, 6]


EXTENTS = (1, 2, 3, 4)
RANGES = ranges_of(EXTENTS)
GRID = np.indices(EXTENTS).reshape(len(EXTENTS), -1)


def run(node, ranges):
    """The value of an expression, for given values (numbers or arrays) of its ranges."""
    found = {}
    for each in walk((node,)):
        if each.op is Op.RANGE:
            found[each] = np.asarray(ranges[each.attrs.number], np.int64)
        elif each.op is Op.CONST:
            found[each] = np.asarray(each.value, each.dtype.value_numpy)
        else:
            operands = [found[operand] for operand in each.operands]
            found[each] = evaluate(each.op, each.dtype, *operands)
    return found[node]


def extend(smaller):
    small = st.integers(-3, 13)
    ops = st.sampled_from((Op.ADD, Op.SUB, Op.MAX, Op.MIN))
    by_constant = st.sampled_from((Op.MUL, Op.FLOORDIV, Op.MOD, Op.FLOORDIV, Op.MOD))
    conditions = st.builds(compare, st.sampled_from((Op.LT, Op.LE, Op.EQ, Op.NE)), smaller, smaller)
    return st.one_of(
        st.builds(binary, ops, smaller, smaller),
        st.builds(binary, by_constant, smaller, small),
        st.builds(where, conditions, smaller, smaller),
    )


def guards(expressions):
    compared = st.builds(
        compare, st.sampled_from((Op.LT, Op.LE, Op.EQ, Op.NE)), expressions, st.integers(-3, 13)
    )
    return st.builds(lambda p, q, r: p & q & r, compared, compared, compared)


LEAVES = st.one_of(st.sampled_from(RANGES), st.builds(index_const, st.integers(-4, 12)))
EXPRESSIONS = st.recursive(LEAVES, extend, max_leaves=10)


@settings(max_examples=600)
@given(EXPRESSIONS)
def test_an_expression_keeps_its_value_for_all_ranges(node):
    result = simplify_index(node)

    assert np.array_equal(
        np.broadcast_to(run(result, GRID), GRID[0].shape),
        np.broadcast_to(run(node, GRID), GRID[0].shape),
    )


@settings(max_examples=300)
@given(guards(EXPRESSIONS))
def test_a_guard_keeps_its_value_for_all_ranges(node):
    result = simplify_index(node)

    assert np.array_equal(
        np.broadcast_to(run(result, GRID), GRID[0].shape),
        np.broadcast_to(run(node, GRID), GRID[0].shape),
    )


@settings(max_examples=300)
@given(EXPRESSIONS)
def test_simplifying_twice_is_simplifying_once(node):
    once = simplify_index(node)

    assert simplify_index(once) is once
