"""Operators composed of others, against NumPy in float64 or values written by hand."""

import math

import numpy as np
import pytest
from tensor.closeness import assert_bits, assert_within

import tinytensor
from tinytensor.dtype import dtypes
from tinytensor.errors import IndexOutOfRange, ShapeError
from tinytensor.nn import functional
from tinytensor.tensor.tensor import Tensor

DEVICES = ["CPU", "PYTHON"]
# The largest errors measured, in ulp (docs/numerics.md), rounded up.
FUNCTIONS = {
    "exp2": (np.exp2, 1),
    "expm1": (np.expm1, 3),
    "log2": (np.log2, 1),
    "log10": (np.log10, 1),
    "log1p": (np.log1p, 2),
    "tan": (np.tan, 4),
    "asin": (np.arcsin, 1),
    "acos": (np.arccos, 1),
    "atan": (np.arctan, 1),
    "sinh": (np.sinh, 4),
    "cosh": (np.cosh, 3),
}


def points(name):
    """Numbers of many sizes, at which a function is a number."""
    rng = np.random.default_rng(7)
    spread = np.exp2(rng.uniform(-30, 6, 500)) * rng.choice([-1, 1], 500)
    if name in ("asin", "acos"):
        spread = np.tanh(spread)
    elif name.startswith("log"):
        spread = np.abs(spread)
    return spread.astype(np.float32)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_keep_their_bounds(name, device):
    function, ulp = FUNCTIONS[name]
    x = points(name)

    result = getattr(Tensor(x, device=device), name)()

    assert_within(result, function(x.astype(np.float64)), roundings=ulp)


@pytest.mark.parametrize("device", DEVICES)
def test_whole_logarithms_and_powers_of_two_are_exact(device):
    twos = Tensor.arange(-149, 128, device=device).exp2()
    tens = Tensor([10.0**n for n in range(11)], device=device)

    assert_bits(twos, np.exp2(np.arange(-149, 128.0)).astype(np.float32))
    assert_bits(twos.log2(), np.arange(-149, 128, dtype=np.float32))
    assert_bits(tens.log10(), np.arange(11, dtype=np.float32))


@pytest.mark.parametrize("device", DEVICES)
def test_a_power_is_the_nearest_float(device):
    rng = np.random.default_rng(8)
    x, y = rng.uniform(0, 9, 500), rng.uniform(-30, 30, 500)
    x, y = x.astype(np.float32), y.astype(np.float32)

    result = Tensor(x, device=device) ** Tensor(y, device=device)

    wide = x.astype(np.float64) ** y.astype(np.float64)
    assert_bits(result, wide.astype(np.float32))


SPECIAL = [0.0, -0.0, 1.0, -1.0, 2.0, -3.0, 0.5, -0.5, math.inf, -math.inf, math.nan]


@pytest.mark.parametrize("device", DEVICES)
def test_special_powers_and_angles_are_those_of_ieee_754(device):
    x, y = (each.ravel() for each in np.meshgrid(np.array(SPECIAL), np.array(SPECIAL)))
    with np.errstate(all="ignore"):
        powers = np.power(x, y)
    angles = np.arctan2(x, y)
    left, right = Tensor(x, device=device), Tensor(y, device=device)

    for result, expected in ((left**right, powers), (left.atan2(right), angles)):
        assert_within(result, expected, roundings=3)
        signs = np.signbit(result.numpy()) == np.signbit(expected)
        assert (signs | np.isnan(expected)).all()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["int8", "int32", "int64"])
def test_integer_powers_wrap(name, device):
    x, y = (each.ravel() for each in np.meshgrid([-7, -1, 0, 1, 2, 10], [0, 1, 2, 5, 63, -1, -2]))
    bits = np.dtype(name).itemsize * 8
    wrapped = [pow(int(a), max(int(b), 0), 2**bits) for a, b in zip(x, y, strict=True)]
    expected = np.array(wrapped, np.uint64).astype(name)
    expected = np.where(y < 0, np.where(np.abs(x) == 1, x ** np.abs(y), 0), expected)

    result = Tensor(x.astype(name), device=device) ** Tensor(y.astype(name), device=device)

    assert_bits(result, expected.astype(name))


@pytest.mark.parametrize("device", DEVICES)
def test_activations_do_not_overflow(device):
    x = np.array([-200, -90, -3, -0.5, 0, 0.5, 3, 90, 200], np.float32)
    wide = x.astype(np.float64)
    soft = np.log1p(np.exp(wide))
    tensor = Tensor(x, device=device)

    tiny = 2.0**-125  # the least float is an epsilon of it
    assert_within(functional.softplus(tensor), soft, roundings=8, scale=tiny)
    assert_within(functional.logsigmoid(tensor), -np.log1p(np.exp(-wide)), roundings=8, scale=tiny)
    assert_within(functional.mish(tensor), wide * np.tanh(soft), roundings=16, scale=256 * tiny)
    assert_within(
        functional.elu(tensor, 2.0), np.where(wide > 0, wide, 2 * np.expm1(wide)), roundings=8
    )


@pytest.mark.parametrize("device", DEVICES)
def test_a_remainder_of_fmod_is_exact_and_has_the_sign_of_x(device):
    x = np.array([7.5, -7.5, 1e30, -0.0, 3.0, math.inf, math.nan], np.float32)
    y = np.array([2.0, -2.0, 0.7, 3.0, math.inf, 2.0, 1.0], np.float32)

    result = Tensor(x, device=device).fmod(Tensor(y, device=device))

    with np.errstate(invalid="ignore"):
        assert_bits(result, np.fmod(x, y))


@pytest.mark.parametrize("device", DEVICES)
def test_views_of_parts(device):
    values = np.arange(24).reshape(2, 3, 4)
    x = Tensor(values, device=device)

    assert_bits(x.roll((1, 2), (0, 2)), np.roll(values, (1, 2), (0, 2)))
    assert_bits(x.diagonal(1, 1, 2), np.diagonal(values, 1, 1, 2))
    assert_bits(x.tile(2, 1, 2), np.tile(values, (2, 1, 2)))
    assert_bits(x.repeat_interleave(2, 1), np.repeat(values, 2, 1))
    counts = Tensor([2, 0, 1], device=device)
    assert_bits(x.repeat_interleave(counts, 1), np.repeat(values, [2, 0, 1], 1))
    assert_bits(x.rot90(1, (0, 2)), np.rot90(values, 1, (0, 2)))
    assert_bits(x.movedim((0, 1), (2, 0)), np.moveaxis(values, (0, 1), (2, 0)))
    assert_bits(x.unfold(2, 2, 1), np.lib.stride_tricks.sliding_window_view(values, 2, 2))
    assert_bits(x.triu(1), np.triu(values, 1))
    for mode, name in (("reflect", "reflect"), ("replicate", "edge"), ("circular", "wrap")):
        assert_bits(x.pad((2, 1), mode), np.pad(values, [(0, 0), (0, 0), (2, 1)], name))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("equation", ["ij,jk->ik", "bij,bjk->bki", "ij,jk,kl->li", "iij,jk->ik"])
def test_einsum(equation, device):
    operands = [np.arange(4.0 ** len(part)) for part in equation.split("->")[0].split(",")]
    operands = [x.reshape((4,) * round(math.log(x.size, 4))) for x in operands]

    result = tinytensor.einsum(equation, *[Tensor(each, device=device) for each in operands])

    assert_bits(result, np.einsum(equation, *operands))


@pytest.mark.parametrize("device", DEVICES)
def test_products_over_axes(device):
    x, y = np.arange(24.0).reshape(2, 3, 4), np.arange(60.0).reshape(4, 3, 5)
    a, b = Tensor(x, device=device), Tensor(y, device=device)

    assert_bits(tinytensor.tensordot(a, b, ([1, 2], [1, 0])), np.tensordot(x, y, ([1, 2], [1, 0])))
    assert_bits(a[0].kron(b[0]), np.kron(x[0], y[0]))
    assert_bits(a[0, 0].outer(b[0, 0]), np.outer(x[0, 0], y[0, 0]))
    assert_bits(a[0].addmm(a[0], b[0, 0, :4].diag(), beta=2), 2 * x[0] + x[0] * y[0, 0, :4])


def test_questions_give_python_bools():
    x = Tensor([1.0, math.nan])

    assert x.allclose(x, equal_nan=True) is True
    assert x.allclose(x) is False
    assert x.equal(x) is False
    assert Tensor([1, 2]).equal(Tensor([1.0, 2.0])) is True


def test_the_package_carries_functions_and_dtypes():
    x = tinytensor.tensor([[1.0, 2.0], [3.0, 4.0]])

    assert tinytensor.matmul(x, x).tolist() == [[7.0, 10.0], [15.0, 22.0]]
    assert tinytensor.where(x > 2, x, 0.0).tolist() == [[0.0, 0.0], [3.0, 4.0]]
    assert tinytensor.cat([x, x]).shape == (4, 2)
    assert tinytensor.zeros(2, dtype=tinytensor.int32).dtype is dtypes.int32
    with pytest.raises(AttributeError, match="no such name: 'nothing'"):
        tinytensor.nothing  # noqa: B018 - the access is what fails


MISTAKES = [
    (ShapeError, lambda x: x.split(0), "split: the size is too small: 0 for extent 2"),
    (ShapeError, lambda x: x.narrow(0, 1, 2), "narrow: not within the axis: 2 from 1 of extent 2"),
    (IndexOutOfRange, lambda x: x.select(1, 3), "select: out of range: 3 on axis 1 of extent 3"),
    (ShapeError, lambda x: x.roll((1, 2)), "roll: shifts and dims do not pair: (1, 2) and ()"),
    (ShapeError, lambda x: x.repeat(2), "repeat: fewer repeats than axes: (2,) for shape (2, 3)"),
    (ShapeError, lambda x: x.outer(x), "outer: not two vectors: shapes (2, 3) and (2, 3)"),
    (
        ShapeError,
        lambda x: tinytensor.einsum("ij->k", x),
        "einsum: the result's subscripts are not clear: 'k' in 'ij->k'",
    ),
]


@pytest.mark.parametrize(("kind", "mistake", "sentence"), MISTAKES, ids=[m[2] for m in MISTAKES])
def test_a_mistake_is_told_with_its_values(kind, mistake, sentence):
    with pytest.raises(kind) as caught:
        mistake(Tensor.zeros(2, 3))

    assert str(caught.value).startswith(sentence + "; ")
