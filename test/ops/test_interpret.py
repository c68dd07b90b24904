import math
import warnings
from fractions import Fraction

import numpy as np
import pytest

from tinytensor.dtype import USER_DTYPES, dtypes
from tinytensor.errors import InternalError
from tinytensor.ops.attrs import ConstAttrs
from tinytensor.ops.interpret import constant, evaluate, from_storage, to_storage
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp

INTS = [dtype for dtype in USER_DTYPES if dtype.is_int]
FLOATS = [dtype for dtype in USER_DTYPES if dtype.is_float and dtype.bits >= 16]
BYTES = np.arange(-128, 128, dtype=np.int8)
EVERY_FLOAT16 = np.arange(2**16, dtype=np.uint16).view(np.float16)
EVERY_BFLOAT16 = from_storage(np.arange(2**16, dtype=np.uint16), dtypes.bfloat16)
NAN, INF = math.nan, math.inf


@pytest.fixture(autouse=True)
def warnings_are_errors():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def wrapped(dtype, value):
    """The value of the dtype that an exact integer wraps to."""
    value %= 2**dtype.bits
    return value - 2**dtype.bits if value > dtype.max else value


def is_same(found, expected):
    """Whether floats are equal with their zeros' signs, any NaN being like another."""
    found, expected = np.asarray(found), np.asarray(expected)
    both_nan = np.isnan(found) & np.isnan(expected)
    equal = (found == expected) & (np.signbit(found) == np.signbit(expected))
    return found.dtype == expected.dtype and bool(np.all(both_nan | equal))


def edges(dtype):
    near = [dtype.min, dtype.min + 1, dtype.max - 1, dtype.max, 0, 1, 2, 3, 7, dtype.bits]
    return [*near, -1, -2, -3] if dtype.kind == "int" else near


def shifted(x, y, bits):
    return x << y if 0 <= y < bits else 0


def shifted_right(x, y, bits):
    return x >> y if 0 <= y < bits else -(x < 0)


EXACTLY = {
    Op.ADD: lambda x, y, bits: x + y,
    Op.SUB: lambda x, y, bits: x - y,
    Op.MUL: lambda x, y, bits: x * y,
    Op.FLOORDIV: lambda x, y, bits: x // y if y else 0,
    Op.MOD: lambda x, y, bits: x % y if y else 0,
    Op.MAX: lambda x, y, bits: max(x, y),
    Op.MIN: lambda x, y, bits: min(x, y),
    Op.AND: lambda x, y, bits: x & y,
    Op.OR: lambda x, y, bits: x | y,
    Op.XOR: lambda x, y, bits: x ^ y,
    Op.SHL: shifted,
    Op.SHR: shifted_right,
}


@pytest.mark.parametrize("dtype", INTS, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("op", EXACTLY, ids=lambda op: op.name)
def test_an_integer_op_is_python_s_wrapped_to_its_width(op, dtype):
    values = BYTES.tolist() if dtype is dtypes.int8 else edges(dtype)
    column = np.array(values, dtype.value_numpy)

    found = evaluate(op, dtype, column[:, None], column[None, :])

    expected = [[wrapped(dtype, EXACTLY[op](x, y, dtype.bits)) for y in values] for x in values]
    assert found.dtype == dtype.value_numpy
    assert found.tolist() == expected


@pytest.mark.parametrize("dtype", INTS, ids=lambda dtype: dtype.name)
def test_negation_wraps(dtype):
    values = edges(dtype)

    found = evaluate(Op.NEG, dtype, np.array(values, dtype.value_numpy))

    assert found.tolist() == [wrapped(dtype, -value) for value in values]


@pytest.mark.parametrize("dtype", [dtypes.int8, dtypes.int64, dtypes.uint16], ids=str)
def test_truncating_division_is_toward_zero(dtype):
    values = [value for value in edges(dtype) if value not in (0, -1)]
    column = np.array(values, dtype.value_numpy)

    quotient = evaluate(Op.TRUNCDIV, dtype, column[:, None], column[None, :])
    rest = evaluate(Op.TRUNCMOD, dtype, column[:, None], column[None, :])

    exact = [[abs(x) // abs(y) * (1 if x * y >= 0 else -1) for y in values] for x in values]
    assert quotient.tolist() == exact
    expected = [
        [x - q * y for y, q in zip(values, row, strict=True)]
        for x, row in zip(values, exact, strict=True)
    ]
    assert rest.tolist() == expected


@pytest.mark.parametrize(("x", "y"), [(1, 0), (-128, -1)])
def test_a_truncating_division_that_traps_is_refused(x, y):
    operands = np.array(x, np.int8), np.array(y, np.int8)

    with pytest.raises(InternalError) as caught:
        evaluate(Op.TRUNCDIV, dtypes.int8, *operands)

    assert str(caught.value) == (
        f"truncdiv: the machine traps: {x} by {y}; y is not 0, no overflow."
    )


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        (Op.ADD, [False, True, True, True]),
        (Op.MUL, [False, False, False, True]),
        (Op.MAX, [False, True, True, True]),
        (Op.MIN, [False, False, False, True]),
        (Op.AND, [False, False, False, True]),
        (Op.OR, [False, True, True, True]),
        (Op.XOR, [False, True, True, False]),
        (Op.LT, [False, True, False, False]),
        (Op.LE, [True, True, False, True]),
        (Op.EQ, [True, False, False, True]),
    ],
    ids=lambda each: getattr(each, "name", ""),
)
def test_bools_are_logical(op, expected):
    x, y = np.array([False, False, True, True]), np.array([False, True, False, True])

    found = evaluate(op, dtypes.bool, x, y)

    assert found.dtype == np.bool_
    assert found.tolist() == expected


# In float64 the sum, product or quotient of float32 numbers is rounded so finely (53 bits are at
# least 2 * 24 + 2) that rounding it again gives what one rounding would.
WIDE = {Op.ADD: np.add, Op.SUB: np.subtract, Op.MUL: np.multiply, Op.DIV: np.divide}
INTERESTING = [0.0, -0.0, 1.0, -1.5, 3.0, 1e-7, 65504.0, -2e38, INF, -INF, NAN]


@pytest.mark.parametrize("dtype", FLOATS[:3], ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("op", WIDE, ids=lambda op: op.name)
def test_float_arithmetic_rounds_once(op, dtype, seed):
    random = np.random.default_rng(seed).standard_normal(300) * 10.0 ** np.arange(-6, 6).repeat(25)
    values = evaluate(Op.CAST, dtype, np.array([*random, *INTERESTING]))
    x, y = values[:, None], values[None, :]

    found = evaluate(op, dtype, x, y)

    with np.errstate(all="ignore"):
        exact = WIDE[op](x.astype(np.float64), y.astype(np.float64))
        expected = nearest_bfloat16(exact) if dtype is dtypes.bfloat16 else exact.astype(x.dtype)
    assert is_same(found, expected)


def nearest_bfloat16(values):
    """Round float64 to bfloat16 by its spacing, on paths that share nothing with the package."""
    fraction, exponent = np.frexp(values)
    scale = np.exp2(np.maximum(exponent, -125) - 8.0)
    with np.errstate(all="ignore"):
        rounded = np.where(np.isfinite(values), np.rint(values / scale) * scale, values)
        largest = (2 - 2.0**-7) * 2.0**127
        rounded = np.where(np.abs(rounded) > largest, np.copysign(np.inf, values), rounded)
        return np.where(values == 0, values, rounded).astype(np.float32)


def test_a_float64_is_rounded_to_bfloat16_once():
    ties = 1 + np.arange(1, 256, 2) * 2.0**-8
    values = np.concatenate([ties, ties + 2.0**-40, ties - 2.0**-40, [1e39, -1e39, 1e-41, 1e-60]])

    found = evaluate(Op.CAST, dtypes.bfloat16, values)

    assert is_same(found, nearest_bfloat16(values))


def test_a_float64_is_rounded_to_float16_once():
    values = np.array([1 + 2.0**-11 + 2.0**-40, 65519.999, 65520.0, 2.0**-25 + 2.0**-60])

    found = evaluate(Op.CAST, dtypes.float16, values)

    assert found.tolist() == [1 + 2.0**-10, 65504.0, INF, 2.0**-24]


def test_a_cast_to_float16_and_back_is_no_identity():
    values = np.array([65504, 65519, 65520, 65536], np.float32)

    found = evaluate(Op.CAST, dtypes.float32, evaluate(Op.CAST, dtypes.float16, values))

    assert found.tolist() == [65504, 65504, INF, INF]


@pytest.mark.parametrize("dtype", INTS, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("source", [EVERY_FLOAT16, EVERY_BFLOAT16], ids=["float16", "bfloat16"])
def test_a_float_becomes_the_nearest_integer_toward_zero(source, dtype):
    found = evaluate(Op.CAST, dtype, source)

    def truncated(value):
        if math.isnan(value):
            return 0
        if math.isinf(value):
            return dtype.max if value > 0 else dtype.min
        return min(max(math.trunc(value), dtype.min), dtype.max)

    assert found.tolist() == [truncated(value) for value in source.tolist()]


@pytest.mark.parametrize("dtype", [dtypes.int64, dtypes.uint64], ids=str)
def test_a_float64_at_an_integer_s_end_saturates(dtype):
    end = float(dtype.max)  # rounds up: one above the greatest integer
    below = math.nextafter(end, 0.0)

    found = evaluate(Op.CAST, dtype, np.array([end, below, -INF]))

    assert found.tolist() == [dtype.max, int(below), dtype.min]


@pytest.mark.parametrize("dtype", INTS, ids=lambda dtype: dtype.name)
def test_an_integer_cast_wraps(dtype):
    values = [0, -1, 127, 128, 255, 256, 2**31, -(2**31) - 1, 2**63 - 1, -(2**63)]

    found = evaluate(Op.CAST, dtype, np.array(values, np.int64))

    assert found.tolist() == [wrapped(dtype, value) for value in values]


def test_everything_but_zero_is_true():
    values = np.array([0.0, -0.0, NAN, 1e-45, INF], np.float32)

    assert evaluate(Op.CAST, dtypes.bool, values).tolist() == [False, False, True, True, True]


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda dtype: dtype.name)
def test_maximum_and_minimum_order_zeros_and_keep_nan(dtype):
    x = np.array([-0.0, 0.0, NAN, 1.0, -0.0, -INF], dtype.value_numpy)
    y = np.array([0.0, -0.0, 1.0, NAN, -0.0, INF], dtype.value_numpy)

    greatest, least = evaluate(Op.MAX, dtype, x, y), evaluate(Op.MIN, dtype, x, y)

    assert is_same(greatest, np.array([0.0, 0.0, NAN, NAN, -0.0, INF], dtype.value_numpy))
    assert is_same(least, np.array([-0.0, -0.0, NAN, NAN, -0.0, -INF], dtype.value_numpy))


def test_a_float_modulo_has_the_divisor_s_sign():
    x = np.array([5, -5, 5, -5, -0.0, 1, -1, INF, 1, NAN], np.float32)
    y = np.array([3, 3, -3, -3, 1, INF, INF, 1, 0, 1], np.float32)

    found = evaluate(Op.MOD, dtypes.float32, x, y)

    assert is_same(found, np.array([2, 1, -1, -2, -0.0, 1, INF, NAN, NAN, NAN], np.float32))


def test_a_comparison_with_nan_is_false_but_for_inequality():
    x, y = np.array([NAN, NAN, 1.0]), np.array([NAN, 1.0, NAN])

    found = {op: evaluate(op, dtypes.bool, x, y).any() for op in (Op.LT, Op.LE, Op.EQ)}

    assert not any(found.values())
    assert evaluate(Op.NE, dtypes.bool, x, y).all()


def nearest(exact, dtype):
    """The float of the dtype nearest to a fraction, ties to even, chosen among neighbors."""
    first = dtype.type(float(exact))
    around = [np.nextafter(first, dtype.type(-INF)), first, np.nextafter(first, dtype.type(INF))]
    finite = [each for each in around if np.isfinite(each)]

    def rank(each):
        is_odd = int(each.view(f"u{dtype.itemsize}")) & 1
        return abs(Fraction(float(each)) - exact), is_odd

    return min(finite, key=rank)


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.float32, dtypes.float64], ids=str)
def test_a_multiply_add_rounds_once(dtype, seed):
    rng = np.random.default_rng(seed)
    kind = dtype.value_numpy
    x, y = (rng.standard_normal((2, 500)) + 1).astype(kind)
    z = (-x.astype(np.float64) * y * rng.choice([1, 1 + 1e-7, 2.0**-12, 2.0**12], 500)).astype(kind)

    found = evaluate(Op.FMA, dtype, x, y, z)

    exact = [
        Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
        for a, b, c in zip(x, y, z, strict=True)
    ]
    expected = [float(nearest(each, kind)) for each in exact]
    assert found.tolist() == expected


def test_a_multiply_add_sees_what_a_product_s_rounding_would_hide():
    # x * y is 1 - 2**-46, so the sum lies that much below the tie of 2**24 + 2 and 2**24 + 4.
    x, y, z = np.float32([1 + 2.0**-23, 1 - 2.0**-23, 2.0**24 + 2])

    found = evaluate(Op.FMA, dtypes.float32, np.array(x), np.array(y), np.array(z))

    assert float(found) == 2.0**24 + 2


@pytest.mark.parametrize(
    ("x", "y", "z", "expected"),
    [
        (1e300, 1e300, -INF, -INF),
        (1e300, 1e300, -1e308, INF),
        (-1e-200, 1e-200, 0.0, -0.0),
        (1.0, 0.0, -0.0, 0.0),
        (-1.0, 0.0, -0.0, -0.0),
        (INF, 0.0, 1.0, NAN),
    ],
)
def test_a_float64_multiply_add_at_its_edges(x, y, z, expected):
    found = evaluate(Op.FMA, dtypes.float64, np.array(x), np.array(y), np.array(z))

    assert is_same(found, np.float64(expected))


FUNCTIONS = {
    Op.EXP: math.exp,
    Op.LOG: math.log,
    Op.SIN: math.sin,
    Op.COS: math.cos,
    Op.TANH: math.tanh,
    Op.ERF: math.erf,
    Op.SQRT: math.sqrt,
}


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("op", FUNCTIONS, ids=lambda op: op.name)
def test_a_function_is_the_c_library_s_rounded(op, dtype):
    values = evaluate(Op.CAST, dtype, np.linspace(1e-3, 80, 777))

    found = evaluate(op, dtype, values).astype(np.float64)

    expected = np.array([FUNCTIONS[op](value) for value in values.tolist()])
    # Half an ulp, and where float64 itself decides, one: two libraries differ by that.
    ulps = 1.0 if dtype is dtypes.float64 else 0.51
    with np.errstate(all="ignore"):
        bound = ulps * np.maximum(np.abs(expected) * dtype.epsilon, smallest_step(dtype))
    overflows = np.isinf(found) & (expected > float(np.finfo(np.float32).max) / 2**112)
    assert np.all((np.abs(found - expected) <= bound) | overflows)


@pytest.mark.parametrize(
    ("op", "x", "expected"),
    [
        *((Op.EXP2_APPROX, x, y) for x, y in [(3, 8), (-126, 2.0**-126), (2.0**-149, 1)]),
        *((Op.EXP2_APPROX, x, y) for x, y in [(-126.5, 0), (-INF, 0), (128, INF), (NAN, NAN)]),
        *((Op.RECIPROCAL_APPROX, x, y) for x, y in [(4, 0.25), (-(2.0**126), -(2.0**-126))]),
        *((Op.RECIPROCAL_APPROX, x, y) for x, y in [(-0.0, -INF), (-(2.0**-127), -INF)]),
        *((Op.RECIPROCAL_APPROX, x, y) for x, y in [(-(2.0**127), -0.0), (NAN, NAN)]),
        *((Op.ABS, x, y) for x, y in [(-0.0, 0.0), (-1.5, 1.5), (-INF, INF), (NAN, NAN)]),
    ],
)
def test_what_a_gpu_computes_in_one_instruction(op, x, expected):
    assert is_same(evaluate(op, dtypes.float32, np.float32([x])), np.float32([expected]))


def smallest_step(dtype):
    return {"float16": 2.0**-24, "bfloat16": 2.0**-133, "float32": 2.0**-149}.get(dtype.name, 0.0)


def test_functions_at_their_edges():
    x = np.array([0.0, -0.0, INF, -INF, NAN, -1.0], np.float32)

    logarithm, sine = (evaluate(op, dtypes.float32, x) for op in (Op.LOG, Op.SIN))
    erf, root = (evaluate(op, dtypes.float32, x) for op in (Op.ERF, Op.SQRT))

    assert is_same(logarithm, np.float32([-INF, -INF, INF, NAN, NAN, NAN]))
    assert is_same(sine[:5], np.float32([0.0, -0.0, NAN, NAN, NAN]))
    assert is_same(erf[:5], np.float32([0.0, -0.0, 1.0, -1.0, NAN]))
    assert is_same(root, np.float32([0.0, -0.0, INF, NAN, NAN, NAN]))


def test_floor_and_truncation_keep_the_zero_s_sign():
    x = np.array([-0.5, -0.0, 1.5, -1.5, INF], np.float16)

    assert is_same(evaluate(Op.FLOOR, dtypes.float16, x), np.float16([-1, -0.0, 1, -2, INF]))
    assert is_same(evaluate(Op.TRUNC, dtypes.float16, x), np.float16([-0.0, -0.0, 1, -1, INF]))


@pytest.mark.parametrize(
    ("source", "target", "value", "expected"),
    [
        (dtypes.float32, dtypes.int32, 1.0, 0x3F800000),
        (dtypes.int32, dtypes.float32, -(2**31), -0.0),
        (dtypes.bfloat16, dtypes.uint16, -2.0, 0xC000),
        (dtypes.uint16, dtypes.bfloat16, 0x3FC0, 1.5),
        (dtypes.float16, dtypes.bfloat16, 1.0, 2.0**-7),  # 0x3C00
        (dtypes.float64, dtypes.uint64, -0.0, 2**63),
        (dtypes.int8, dtypes.uint8, -1, 255),
    ],
)
def test_a_bitcast_reads_the_same_bits(source, target, value, expected):
    found = evaluate(Op.BITCAST, target, np.array([value], source.value_numpy))

    assert found.dtype == target.value_numpy
    assert found.tolist() == [expected]


def test_every_bfloat16_survives_storage():
    stored = to_storage(EVERY_BFLOAT16, dtypes.bfloat16)

    assert np.array_equal(stored, np.arange(2**16, dtype=np.uint16))


@pytest.mark.parametrize(
    ("dtype", "bits"),
    [
        (dtypes.float32, 0x7FA00001),  # a signaling NaN with a payload
        (dtypes.float16, 0x8000),
        (dtypes.uint64, 2**64 - 1),
        (dtypes.int8, 0x80),
    ],
)
def test_a_constant_has_its_very_bits(dtype, bits):
    found = constant(UOp(Op.CONST, dtype, (), ConstAttrs(bits)))

    assert found.shape == ()
    assert found.dtype == dtype.value_numpy
    assert int(found.view(f"u{dtype.itemsize}")) == bits


def test_a_selection_takes_nothing_from_the_other_arm():
    cond = np.array([True, False])

    found = evaluate(Op.WHERE, dtypes.float32, cond, np.float32([1, NAN]), np.float32([NAN, -0.0]))

    assert is_same(found, np.float32([1, -0.0]))


def test_a_vector_s_dtype_means_its_scalar_s():
    x = np.array([250, 6, 0, 255], np.uint8)

    assert evaluate(Op.NEG, dtypes.uint8.vector(4), x).tolist() == [6, 250, 0, 1]
