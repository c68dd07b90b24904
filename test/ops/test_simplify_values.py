"""Rules for values at the edges where other compilers changed results."""

import numpy as np
import pytest

from tinytensor.dtype import USER_DTYPES, dtypes
from tinytensor.ops.attrs import Combine, ParamAttrs, ReduceAttrs
from tinytensor.ops.interpret import evaluate
from tinytensor.ops.op import Op
from tinytensor.ops.simplify_index import simplify
from tinytensor.ops.uop import (
    UOp,
    binary,
    bitcast,
    cast,
    compare,
    const,
    index_const,
    make_range,
    walk,
    where,
)

SIGNED = (dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64)
FLOATS = (dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64)


def load(dtype, number=0, guard=()):
    memory = UOp(Op.PARAM, dtype, (), ParamAttrs(number, 8))
    return UOp(Op.LOAD, dtype, (memory, make_range(0, 8), *guard))


def simplified(node):
    return simplify((node,))[0]


def negate(x):
    return UOp(Op.NEG, x.dtype, (x,))


def run(node, loaded):
    """The values of a graph over one loaded array."""
    found = {}
    for each in walk((node,)):
        if each.op is Op.LOAD:
            found[each] = loaded
        elif each.op is Op.CONST:
            found[each] = np.asarray(each.value, each.dtype.value_numpy)
        elif each.op not in (Op.PARAM, Op.RANGE):
            operands = [found[operand] for operand in each.operands]
            found[each] = evaluate(each.op, each.dtype, *operands)
    return found[node]


def dtype_name(dtype):
    return dtype.name


# Case 1: a negation inside a maximum.
def test_a_complement_under_argmax_stays():
    folded = binary(Op.XOR, load(dtypes.int32), -1)
    node = UOp(Op.REDUCE, dtypes.int64, (folded, make_range(0, 8)), ReduceAttrs(Combine.ARGMAX))

    assert simplified(node) is node


# Case 2: folds that forget infinities, NaN and -0.0.
@pytest.mark.parametrize("dtype", FLOATS, ids=dtype_name)
def test_float_identities_of_reals_are_not_used(dtype):
    x = load(dtype)
    nodes = [
        x * 0.0,
        x - x,
        x + 0.0,
        x - const(dtype, -0.0),
        binary(Op.DIV, x, x),
        compare(Op.EQ, x, x),
        compare(Op.LE, x, x),
        x + 1.0 + 2.0,
        x * 2.0 * 0.5,
        binary(Op.MAX, x, 0.0),
    ]

    assert list(simplify(nodes)) == nodes


@pytest.mark.parametrize("dtype", FLOATS, ids=dtype_name)
def test_float_identities_that_keep_every_bit_are_used(dtype):
    x = load(dtype)
    nodes = [
        x + -0.0,
        x - 0.0,
        x * 1.0,
        binary(Op.DIV, x, 1.0),
        negate(negate(x)),
        binary(Op.MAX, x, -np.inf),
        binary(Op.MIN, x, x),
    ]

    assert list(simplify(nodes)) == [x] * len(nodes)


@pytest.mark.parametrize(
    "value, expected",
    [(np.inf, "nan"), (np.nan, "nan"), (-1.0, "-0.0"), (0.0, "0.0")],
)
def test_a_constant_times_zero_folds_to_what_the_machine_gives(value, expected):
    product = simplified(const(dtypes.float32, value) * 0.0)

    assert product.op is Op.CONST
    assert str(product.value) == expected


def test_a_function_is_not_folded():
    node = UOp(Op.EXP, dtypes.float32, (const(dtypes.float32, 1.0),))

    assert simplified(node) is node


# Case 4: a pair of casts that rounds.
@pytest.mark.parametrize("narrow", [dtypes.float16, dtypes.bfloat16], ids=dtype_name)
def test_a_cast_to_half_and_back_stays(narrow):
    x = load(dtypes.float32)
    node = cast(cast(x, narrow), dtypes.float32)

    assert simplified(node) is node


def test_casts_of_constants_to_half_round_at_the_boundary():
    values = [65504.0, 65519.0, 65520.0, 65536.0]

    halves = [simplified(cast(const(dtypes.float32, each), dtypes.float16)) for each in values]

    assert [each.value for each in halves] == [65504.0, 65504.0, np.inf, np.inf]


@pytest.mark.parametrize("wide", [dtypes.float32, dtypes.float64], ids=dtype_name)
def test_a_half_widened_and_rounded_is_itself(wide):
    x = load(dtypes.float16)

    assert simplified(cast(cast(x, wide), dtypes.float16)) is x


@pytest.mark.parametrize(
    "src, inner, outer",
    [
        (dtypes.int32, dtypes.float32, dtypes.int32),
        (dtypes.int64, dtypes.float64, dtypes.int64),
        (dtypes.int32, dtypes.float64, dtypes.bfloat16),
        (dtypes.int16, dtypes.float16, dtypes.float32),
        (dtypes.uint32, dtypes.int32, dtypes.int64),
        (dtypes.int8, dtypes.uint8, dtypes.int32),
        (dtypes.int16, dtypes.float32, dtypes.int8),
        (dtypes.int32, dtypes.bool, dtypes.int32),
        (dtypes.float32, dtypes.int32, dtypes.float32),
        (dtypes.float32, dtypes.int64, dtypes.int8),
        (dtypes.float64, dtypes.float32, dtypes.float16),
    ],
    ids=dtype_name,
)
def test_a_cast_that_changes_values_on_its_way_stays(src, inner, outer):
    node = cast(cast(load(src), inner), outer)

    assert simplified(node) is node


@pytest.mark.parametrize(
    "src, inner, outer",
    [
        (dtypes.int16, dtypes.float32, dtypes.int32),
        (dtypes.int32, dtypes.float64, dtypes.float32),
        (dtypes.uint8, dtypes.float16, dtypes.uint8),
        (dtypes.int64, dtypes.int32, dtypes.int16),
        (dtypes.bool, dtypes.int8, dtypes.float32),
        (dtypes.int8, dtypes.int64, dtypes.uint8),
        (dtypes.bfloat16, dtypes.float32, dtypes.int8),
    ],
    ids=dtype_name,
)
def test_a_cast_that_keeps_values_on_its_way_merges(src, inner, outer):
    x = load(src)

    assert simplified(cast(cast(x, inner), outer)) is cast(x, outer)


# Case 5: floats out of an integer's range, as constants.
@pytest.mark.parametrize(
    "value, expected",
    [(np.nan, 0), (np.inf, 2**31 - 1), (-np.inf, -(2**31)), (3e9, 2**31 - 1)],
)
def test_a_constant_out_of_range_saturates(value, expected):
    assert simplified(cast(const(dtypes.float32, value), dtypes.int32)).value == expected


# Case 6: a missing wrap.
def test_a_negated_unsigned_wraps_before_it_is_compared():
    u = const(dtypes.uint8, 6)

    negated, is_small = simplify((negate(u), negate(u) < 4))

    assert negated.value == 250
    assert is_small.value is False


def test_a_negated_unsigned_is_not_taken_for_small():
    node = compare(Op.LE, negate(load(dtypes.uint8)), 254)

    assert simplified(node) is node


# Case 31: narrow integers in a wider register.
def test_narrow_integers_wrap_at_their_own_width():
    hundred = const(dtypes.int8, 100)
    total = hundred + hundred

    wide, is_positive = simplify((cast(total, dtypes.int32), const(dtypes.int8, 0) < total))

    assert wide.value == -56
    assert is_positive.value is False


@pytest.mark.parametrize("dtype", SIGNED[:3], ids=dtype_name)
def test_a_cast_does_not_move_into_narrow_arithmetic(dtype):
    x = load(dtype)
    node = cast(x + x, dtypes.int64)

    assert simplified(node) is node


# Case 32: integer rewrites that ignore wraparound.
@pytest.mark.parametrize(
    "write",
    [
        lambda x: x * 3 // 3,
        lambda x: negate(x) // -4,
        lambda x: x < x + 1,
        lambda x: x + 1 + 2 < 5,
        lambda x: x * 4 % 4,
        lambda x: (x * 4 + 1) // 4,
        lambda x: cast(x, dtypes.int8) < 5,
        lambda x: x - 1 - 1 < x,
    ],
)
@pytest.mark.parametrize("dtype", SIGNED, ids=dtype_name)
def test_wrapping_integers_keep_their_values_at_the_ends(dtype, write):
    ends = (dtype.min, dtype.min + 1, -1, 0, 1, dtype.max // 3 + 1, dtype.max - 1, dtype.max)
    values = np.array(ends, dtype.value_numpy)
    node = write(load(dtype))

    assert np.array_equal(run(simplified(node), values), run(node, values))


# Case 33: a cast moved past a shift or a product.
def test_shifts_and_products_stay_in_the_dtype_written():
    position = UOp(
        Op.REDUCE,
        dtypes.int64,
        (load(dtypes.float32), make_range(0, 8)),
        ReduceAttrs(Combine.ARGMAX),
    )
    x = load(dtypes.int32)
    shifted = binary(Op.SHR, cast(load(dtypes.int32), dtypes.int64), 41)
    product = cast(x * x, dtypes.int64)

    assert simplify((shifted, product)) == (shifted, product)
    assert simplified(binary(Op.SHR, position, 41)).value == 0  # a position below 8


# Case 34: comparisons rewritten as negations.
@pytest.mark.parametrize("op", [Op.LT, Op.LE], ids=lambda op: op.name)
def test_a_negated_order_of_floats_stays(op):
    node = compare(op, load(dtypes.float32, 0), load(dtypes.float32, 1)) ^ True

    assert simplified(node) is node


def test_a_negated_equality_of_floats_is_an_inequality():
    x, y = load(dtypes.float32, 0), load(dtypes.float32, 1)

    assert simplified(compare(Op.EQ, x, y) ^ True) is compare(Op.NE, x, y)


def test_a_negated_order_of_integers_is_the_other_order():
    x, y = load(dtypes.int32, 0), load(dtypes.int32, 1)

    assert simplified((x < y) ^ True) is compare(Op.LE, y, x)


# Bits, choices and guards.
@pytest.mark.parametrize("dtype", USER_DTYPES, ids=dtype_name)
def test_an_identity_is_the_operand(dtype):
    x = load(dtype)

    assert simplified(x * 1 if dtype is not dtypes.bool else x & True) is x


def test_a_constant_moves_right_and_meets_another():
    x = load(dtypes.int8)

    assert simplified(binary(Op.ADD, const(dtypes.int8, 100), x) + 100) is x + -56


def test_the_bits_of_a_constant_are_read_as_another_dtype():
    assert simplified(bitcast(const(dtypes.float32, -0.0), dtypes.int32)).value == -(2**31)


def test_a_choice_by_a_constant_is_its_arm():
    x, y = load(dtypes.float32, 0), load(dtypes.float32, 1)

    assert simplified(where(const(dtypes.bool, False), x, y)) is y
    assert simplified(where(const(dtypes.bool, True), x, y)) is x


def test_a_choice_of_zero_beside_a_guarded_load_is_the_load():
    guard = make_range(1, 8) < 3
    x = load(dtypes.float32, guard=(guard,))

    assert simplified(where(guard, x, 0.0)) is x


def test_a_choice_of_minus_zero_beside_a_guarded_load_stays():
    guard = make_range(1, 8) < 3
    node = where(guard, load(dtypes.float32, guard=(guard,)), -0.0)

    assert simplified(node) is node


def test_a_guard_that_bounds_settle_leaves_the_load():
    x = load(dtypes.float32, guard=(make_range(0, 8) < 8,))

    assert simplified(x) is load(dtypes.float32)


def test_a_load_that_is_never_made_is_zero():
    x = load(dtypes.float32, guard=(make_range(0, 8) < 0,))

    assert simplified(x) is const(dtypes.float32, 0.0)


def test_a_sink_is_simplified_whole():
    x = load(dtypes.float32)
    memory = UOp(Op.PARAM, dtypes.float32, (), ParamAttrs(1, 8))
    index = make_range(0, 8) * 4 // 4
    store = UOp(Op.STORE, dtypes.void, (memory, index, x * 1.0, index < index_const(8)))

    (sink,) = simplify((UOp(Op.SINK, dtypes.void, (store,)),))

    assert sink.operands == (UOp(Op.STORE, dtypes.void, (memory, make_range(0, 8), x)),)
