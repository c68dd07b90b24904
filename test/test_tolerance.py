"""The bound holds for every order of evaluation, is not slack, and lets no wrong result through."""

import math

import numpy as np
import pytest
from tolerance import assert_close, error_bound

from tinytensor.dtype import dtypes
from tinytensor.ops.attrs import Combine, OrderAttrs, ReduceAttrs, ShapeAttrs
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp, binary, buffer, cast, compare, const, where

SLACK = 1000  # how many times the observed error the bound may be


def leaf(shape, dtype=dtypes.float32):
    return buffer(dtype, shape, "CPU")


def reduce(x, combine, *axes, dtype=None):
    return UOp(Op.REDUCE, dtype or x.dtype, (x,), ReduceAttrs(combine, axes))


def expand(x, shape):
    return UOp(Op.EXPAND, x.dtype, (x,), ShapeAttrs(shape))


def full(shape, dtype, value):
    ones = (1,) * len(shape)
    return expand(UOp(Op.RESHAPE, dtype, (const(dtype, value),), ShapeAttrs(ones)), shape)


def unary(op, x):
    return UOp(op, x.dtype, (x,))


def softmax(x):
    shifted = x - expand(reduce(x, Combine.MAX, 1), x.shape)
    weights = unary(Op.EXP, shifted)
    return binary(Op.DIV, weights, expand(reduce(weights, Combine.ADD, 1), x.shape))


def matmul(a, b):
    """a (m, k), b (k, n) -> (m, n, 1), accumulated in float32."""
    (m, k), n = a.shape, b.shape[1]
    turned = UOp(Op.PERMUTE, b.dtype, (b,), OrderAttrs((1, 0)))
    left = UOp(Op.RESHAPE, a.dtype, (a,), ShapeAttrs((m, 1, k)))
    right = UOp(Op.RESHAPE, b.dtype, (turned,), ShapeAttrs((1, n, k)))
    operands = [cast(expand(each, (m, n, k)), dtypes.float32) for each in (left, right)]
    return reduce(binary(Op.MUL, *operands), Combine.ADD, 2)


def random(seed, shape, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


# Sums of one row in several orders, in float32 throughout.
def forward(row):
    return np.cumsum(row, dtype=np.float32)[-1]


def backward(row):
    return forward(row[::-1])


def by_size(row):
    return forward(row[np.argsort(-np.abs(row))])


def pairwise(row):
    return np.sum(row, dtype=np.float32)


def in_lanes(row):
    return forward(np.add.accumulate(row.reshape(-1, 16), 0, dtype=np.float32)[-1])


ORDERS = [forward, backward, by_size, pairwise, in_lanes]


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: order.__name__)
@pytest.mark.parametrize("offset", [0, 1, 1000])
def test_a_sum_in_any_order_stays_within_its_bound(order, offset, seed):
    x = leaf((64, 512))
    array = random(seed, x.shape) + np.float32(offset)

    result = np.array([[order(row)] for row in array])

    assert_close(result, reduce(x, Combine.ADD, 1), {x: array})


def test_the_bound_of_a_sum_is_not_slack(seed):
    x = leaf((256, 512))
    array = random(seed, x.shape)

    values, bounds = error_bound(reduce(x, Combine.ADD, 1), {x: array})

    observed = np.abs(np.array([[forward(row)] for row in array]) - values)
    assert bounds.max() < SLACK * observed.max()


def softmax_of(array, order):
    weights = np.exp(array - array.max(1, keepdims=True))
    return weights / np.array([[order(row)] for row in weights])


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: order.__name__)
def test_a_softmax_stays_within_its_bound_and_the_bound_is_not_slack(order, seed):
    x = leaf((64, 128))
    array = random(seed, x.shape) * np.float32(5)
    root = softmax(x)

    result = softmax_of(array, order)

    assert_close(result, root, {x: array}, incomparable=0)
    values, bounds = error_bound(root, {x: array})
    assert bounds.max() < SLACK * np.abs(result - values).max()


@pytest.mark.parametrize("factor", [1 + 2e-4, 1 - 2e-4])
def test_a_wrong_softmax_is_refused(factor, seed):
    x = leaf((8, 128))
    array = random(seed, x.shape)
    result = softmax_of(array, pairwise) * np.float32(factor)

    with pytest.raises(AssertionError, match="1024 of 1024 elements are wrong"):
        assert_close(result, softmax(x), {x: array})


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.float32], ids=lambda dtype: dtype.name)
def test_a_product_of_matrices_stays_within_its_bound(dtype, seed):
    a, b = leaf((17, 96), dtype), leaf((96, 13), dtype)
    arrays = {a: random(seed, a.shape, dtype.value_numpy)}
    arrays[b] = random(seed + 1, b.shape, dtype.value_numpy)
    left, right = arrays[a].astype(np.float32), arrays[b].astype(np.float32)
    rounded = cast(matmul(a, b), dtype)

    result = (left @ right)[..., None].astype(dtype.value_numpy)

    assert_close(result, rounded, arrays, incomparable=0)


def test_a_product_that_forgot_one_term_is_refused(seed):
    a, b = leaf((5, 96)), leaf((96, 7))
    arrays = {a: random(seed, a.shape), b: random(seed + 1, b.shape)}
    short = (arrays[a][:, 1:] @ arrays[b][1:])[..., None]

    with pytest.raises(AssertionError, match="35 of 35 elements are wrong"):
        assert_close(short, matmul(a, b), arrays)


def test_sums_of_small_integers_are_compared_bit_for_bit(seed):
    a, b = leaf((4, 64)), leaf((64, 4))
    rng = np.random.default_rng(seed)
    arrays = {each: rng.integers(-8, 9, each.shape).astype(np.float32) for each in (a, b)}

    values, bounds = error_bound(matmul(a, b), arrays)

    assert not bounds.any()
    np.testing.assert_array_equal(values[..., 0], arrays[a].astype(int) @ arrays[b].astype(int))


def test_products_that_round_to_integers_are_no_integers():
    a, b = leaf((1, 2)), leaf((2, 1))
    arrays = {a: np.full((1, 2), 10, np.float32), b: np.full((2, 1), 0.1, np.float32)}

    _, bounds = error_bound(matmul(a, b), arrays)

    # Fused, one product is 1 + 10 * 2**-26 / 1.6777216, not 1: the two forms may differ.
    assert bounds.all()


def test_exact_ops_on_exact_operands_leave_no_tolerance(seed):
    x, y = leaf((1000,)), leaf((1000,))
    arrays = {x: random(seed, 1000), y: random(seed + 1, 1000)}
    root = unary(Op.SQRT, binary(Op.DIV, x * y, x + y))
    with np.errstate(invalid="ignore"):
        right = np.sqrt(arrays[x] * arrays[y] / (arrays[x] + arrays[y]))

    assert_close(right, root, arrays, incomparable=0)
    with pytest.raises(AssertionError, match="elements are wrong"):
        assert_close(np.nextafter(right, np.float32(9)), root, arrays)


def test_the_sign_of_an_exact_zero_counts():
    x = leaf((2,))
    array = np.array([-0.0, 0.0], np.float32)

    with pytest.raises(AssertionError, match="1 of 2 elements are wrong"):
        assert_close(np.zeros(2, np.float32), x, {x: array})


def test_wide_integers_are_compared_to_the_last_bit():
    x = leaf((1,), dtypes.int64)
    arrays = {x: np.array([2**62 + 1])}

    with pytest.raises(AssertionError, match="1 of 1 elements are wrong"):
        assert_close(np.array([2**62]), x, arrays)


def test_a_nan_is_required_where_every_order_gives_it():
    x = leaf((2, 2))
    array = np.array([[np.inf, -np.inf], [np.inf, 1]], np.float32)
    root = reduce(x, Combine.ADD, 1)

    assert_close(np.array([[np.nan], [np.inf]], np.float32), root, {x: array}, incomparable=0)
    with pytest.raises(AssertionError, match="2 of 2 elements are wrong"):
        assert_close(np.zeros((2, 1), np.float32), root, {x: array})


# Decisions on inexact operands.
def tenth_sum():
    """A sum that is about 1, within some ulp, and the arrays of its leaves."""
    x = leaf((10,))
    return x, reduce(x, Combine.ADD, 0), {x: np.full(10, 0.1, np.float32)}


@pytest.mark.parametrize(("limit", "is_open"), [(1.0, True), (1.001, False), (0.5, False)])
def test_a_comparison_within_the_error_is_not_judged(limit, is_open):
    _, total, arrays = tenth_sum()
    root = compare(Op.LT, total, full((1,), dtypes.float32, limit))

    _, bounds = error_bound(root, arrays)

    assert np.isinf(bounds[0]) == is_open


@pytest.mark.parametrize(("scale", "is_open"), [(1.0, True), (1.5, False)])
def test_a_truncation_within_the_error_is_not_judged(scale, is_open):
    _, total, arrays = tenth_sum()
    root = cast(total * full((1,), dtypes.float32, scale), dtypes.int32)

    _, bounds = error_bound(root, arrays)

    assert np.isinf(bounds[0]) == is_open


def test_an_undecided_choice_may_be_either_side():
    _, total, arrays = tenth_sum()
    one = full((1,), dtypes.float32, 1.0)
    root = where(total < one, full((1,), dtypes.float32, 3.0), full((1,), dtypes.float32, 5.0))

    for right in (3.0, 5.0):
        assert_close(np.array([right], np.float32), root, arrays, incomparable=0)
    with pytest.raises(AssertionError, match="1 of 1 elements are wrong"):
        assert_close(np.array([7.5], np.float32), root, arrays)


def test_a_maximum_position_that_errors_can_change_is_not_judged():
    x = leaf((2, 2, 3))
    rows = [[[0.1, 0.2, 0.3], [0.3, 0.2, 0.1]], [[0.1, 0.2, 0.3], [0.3, 0.5, 0.1]]]
    sums = reduce(x, Combine.ADD, 2)

    root = reduce(sums, Combine.ARGMAX, 1, dtype=dtypes.int64)
    values, bounds = error_bound(root, {x: np.array(rows, np.float32)})

    assert values[1].item() == 1
    assert np.isinf(bounds.ravel()).tolist() == [True, False]


def test_too_many_elements_that_cannot_be_compared_are_refused():
    _, total, arrays = tenth_sum()
    root = compare(Op.LT, total, full((1,), dtypes.float32, 1.0))

    with pytest.raises(AssertionError, match="1 of 1 elements cannot be compared"):
        assert_close(np.array([True]), root, arrays)


def exp_bound(argument):
    x = leaf((1,))
    values, bounds = error_bound(unary(Op.EXP, x), {x: np.array([argument], np.float32)})
    return values[0], bounds[0]


def test_a_sure_overflow_is_infinity():
    assert exp_bound(100.0) == (np.inf, 0)


def test_what_may_overflow_is_not_judged():
    # e**x is the largest float32 within half an ulp.
    _, bound = exp_bound(88.72284)

    assert np.isinf(bound)


def test_a_function_may_be_off_by_a_few_ulp_and_no_more():
    value, bound = exp_bound(1.0)

    assert value == pytest.approx(np.e, rel=1e-15)
    assert 2 * 2**-22 <= bound <= 4 * 2**-22


# Propagation: a perturbed operand moves the result by no more than the bound says.
UNARY = [Op.EXP, Op.LOG, Op.SIN, Op.COS, Op.TANH, Op.ERF, Op.SQRT, Op.NEG, Op.FLOOR, Op.TRUNC]
BINARY = [Op.ADD, Op.SUB, Op.MUL, Op.DIV, Op.MAX, Op.MIN, Op.MOD]


@pytest.mark.parametrize("op", [*UNARY, *BINARY], ids=lambda op: op.name)
def test_an_error_of_the_operands_is_carried_along(op, seed):
    x = leaf((500, 20))
    array = random(seed, x.shape) * np.float32(3)
    orders = [np.array([[order(row)] for row in array]) for order in (forward, backward)]
    total = reduce(x, Combine.ADD, 1)
    other = full((500, 1), dtypes.float32, 0.7)
    operands = (total,) if op in UNARY else (total, other)
    root = UOp(op, total.dtype, operands)

    results = [_run(op, total_of, np.float32(0.7)) for total_of in orders]

    for result in results:
        assert_close(result, root, {x: array})
    assert any(np.any(results[0] != each) for each in results[1:]) or op in (Op.FLOOR, Op.TRUNC)


def _run(op, x, y):
    """The op on float32 operands, by NumPy in float64, rounded."""
    functions = {
        **{Op.EXP: np.exp, Op.LOG: np.log, Op.SIN: np.sin, Op.COS: np.cos, Op.TANH: np.tanh},
        **{Op.ERF: np.vectorize(math.erf), Op.SQRT: np.sqrt, Op.NEG: np.negative},
        **{Op.FLOOR: np.floor, Op.TRUNC: np.trunc, Op.ADD: np.add, Op.SUB: np.subtract},
        **{Op.MUL: np.multiply, Op.DIV: np.divide, Op.MAX: np.maximum, Op.MIN: np.minimum},
        Op.MOD: np.mod,
    }
    operands = (x,) if op in UNARY else (x, y)
    with np.errstate(all="ignore"):
        return functions[op](*[each.astype(np.float64) for each in operands]).astype(np.float32)


def test_a_product_over_an_axis_stays_within_its_bound(seed):
    x = leaf((50, 32))
    array = 1 + random(seed, x.shape) / np.float32(4)
    root = reduce(x, Combine.MUL, 1)

    for flip in (1, -1):
        result = np.multiply.accumulate(array[:, ::flip], 1, dtype=np.float32)[:, -1:]
        assert_close(result, root, {x: array}, incomparable=0)
