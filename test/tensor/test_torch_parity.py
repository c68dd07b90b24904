"""Dtypes, shapes and values are PyTorch's, method by method, on values that hurt."""

import itertools
import math

import numpy as np
import pytest

from tinytensor.dtype import dtypes
from tinytensor.tensor.tensor import Tensor

torch = pytest.importorskip("torch")

NAMES = [
    *("bool", "uint8", "int8", "int16", "int32", "int64"),
    *("float16", "bfloat16", "float32", "float64"),
]
FLOATS = NAMES[-4:]
DTYPE_PAIRS = list(itertools.product(NAMES, NAMES))
SPECIAL = [0.0, -0.0, 1.0, -2.5, 3.25, math.inf, -math.inf, math.nan]
WHOLE = [0, 1, 1, 2, 3, 5, 8, 13]


def both(name, shape=(8,)):
    """The same values as a Tensor and as PyTorch's."""
    values = torch.tensor(SPECIAL if name in FLOATS else WHOLE, dtype=getattr(torch, name))
    values = values[: math.prod(shape)].reshape(shape)
    wide = values.float() if name == "bfloat16" else values
    return Tensor(wide.numpy(), dtype=getattr(dtypes, name)), values


def assert_same(result, expected):
    """Same dtype and shape; same values, within the roundings of one function where inexact."""
    name = str(expected.dtype).removeprefix("torch.")
    assert (result.dtype.name, result.shape) == (name, tuple(expected.shape))
    wide = expected.double() if expected.dtype.is_floating_point else expected
    epsilon = result.dtype.epsilon  # both sides are within 2 ulp of the truth
    np.testing.assert_allclose(
        result.numpy().astype(wide.numpy().dtype), wide.numpy(), rtol=4 * epsilon, atol=0
    )


BINARY = {
    "add": lambda x, y: x + y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
    "eq": lambda x, y: x == y,
    "lt": lambda x, y: x < y,
    "ge": lambda x, y: x >= y,
    "maximum": lambda x, y: x.maximum(y),
    "minimum": lambda x, y: x.minimum(y),
}


@pytest.mark.parametrize("names", DTYPE_PAIRS, ids="-".join)
@pytest.mark.parametrize("op", BINARY)
def test_pairs_of_dtypes(op, names):
    (x, torch_x), (y, torch_y) = both(names[0], (8, 1)), both(names[1])

    assert_same(BINARY[op](x, y), BINARY[op](torch_x, torch_y))


@pytest.mark.parametrize("names", DTYPE_PAIRS, ids="-".join)
def test_0d_tensors_yield_to_axes_of_their_category(names):
    (x, torch_x), (y, torch_y) = both(names[0]), both(names[1], ())

    assert_same(x + y, torch_x + torch_y)


@pytest.mark.parametrize("number", [True, 2, 2.5, -1], ids=str)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("op", ["add", "mul", "div", "eq", "lt"])
def test_numbers_are_weak(op, name, number):
    if (name, number, op) == ("uint8", -1, "lt"):
        pytest.skip("PyTorch wraps -1 to 255, where this package compares by value")
    x, torch_x = both(name)

    assert_same(BINARY[op](x, number), BINARY[op](torch_x, number))


UNARY = (
    *("exp", "log", "sin", "cos", "tanh", "erf", "sqrt", "rsqrt", "reciprocal", "sigmoid"),
    *("square", "sign", "isnan", "isinf", "logical_not"),
)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("method", UNARY)
def test_functions(method, name):
    x, torch_x = both(name)

    assert_same(getattr(x, method)(), getattr(torch_x, method)())


@pytest.mark.parametrize("name", NAMES[1:])
@pytest.mark.parametrize("method", ["abs", "neg", "relu", "floor", "ceil", "trunc", "round"])
def test_functions_of_numbers(method, name):
    x, torch_x = both(name)

    assert_same(getattr(x, method)(), getattr(torch_x, method)())


REDUCTIONS = ("sum", "prod", "amax", "amin", "any", "all")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dim", [0, 1, (0, 1)], ids=str)
@pytest.mark.parametrize("method", REDUCTIONS)
def test_reductions(method, dim, name):
    if method == "prod" and dim == (0, 1):
        pytest.skip("PyTorch multiplies along one axis")
    x, torch_x = both(name, (2, 4))

    assert_same(getattr(x, method)(dim), getattr(torch_x, method)(dim))


@pytest.mark.parametrize("name", NAMES[1:])
@pytest.mark.parametrize("method", ["argmax", "argmin"])
@pytest.mark.parametrize("dim", [None, 0, 1], ids=str)
def test_positions(method, dim, name):
    x, torch_x = both(name, (2, 4))

    assert_same(getattr(x, method)(dim), getattr(torch_x, method)(dim))


@pytest.mark.parametrize("name", NAMES[1:])
@pytest.mark.parametrize("method", ["max", "min"])
def test_extremes_with_positions(method, name):
    x, torch_x = both(name, (4, 2))

    found, expected = getattr(x, method)(0), getattr(torch_x, method)(0)

    assert_same(found.values, expected.values)
    assert_same(found.indices, expected.indices)


@pytest.mark.parametrize("shape", [(0, 2), (2, 0)], ids=str)
@pytest.mark.parametrize("method", ["sum", "prod", "mean", "any", "all", "var", "std"])
def test_reductions_of_nothing(method, shape):
    x, torch_x = Tensor.zeros(*shape), torch.zeros(shape)

    assert_same(getattr(x, method)(dim=0), getattr(torch_x, method)(dim=0))


@pytest.mark.parametrize("names", DTYPE_PAIRS, ids="-".join)
def test_casts(names):
    x, torch_x = both(names[0])
    if names[0] in FLOATS and names[1] not in FLOATS:
        x, torch_x = x[2:5], torch_x[2:5]  # beyond the integers PyTorch's result is undefined
    if names[0] in FLOATS and names[1] == "uint8":
        x, torch_x = abs(x), abs(torch_x)  # so is uint8 of a negative float

    assert_same(x.to(getattr(dtypes, names[1])), torch_x.to(getattr(torch, names[1])))


@pytest.mark.parametrize("name", NAMES[1:])
def test_floor_division_and_remainder_of_finite_numbers(name):
    x, torch_x = both(name)
    count = 5 if name in FLOATS else 8

    assert_same((x // 2)[:count], (torch_x // 2)[:count])
    assert_same((x % 3)[:count], (torch_x % 3)[:count])


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("part", [slice(0, 4), slice(3, 5), slice(4, 7), slice(8)], ids=str)
@pytest.mark.parametrize("method", ["softmax", "log_softmax", "logsumexp"])
def test_softmax_and_its_kin(method, part, name):
    x, torch_x = both(name)
    computing = torch_x.double() if name == "float64" else torch_x.float()

    found = getattr(x[part], method)(0)

    assert_same(found, getattr(computing[part], method)(0).to(torch_x.dtype))


@pytest.mark.parametrize("names", DTYPE_PAIRS, ids="-".join)
def test_cat_promotes(names):
    (x, torch_x), (y, torch_y) = both(names[0]), both(names[1])

    assert_same(Tensor.cat([x, y]), torch.cat([torch_x, torch_y]))


@pytest.mark.parametrize(
    "bounds", [(5,), (2, 9), (9, 2, -3), (0, 1, 0.1), (1.5, -2, -0.5), (5.0,)], ids=str
)
def test_arange(bounds):
    assert_same(Tensor.arange(*bounds), torch.arange(*bounds))


@pytest.mark.parametrize(
    "index",
    [(0,), (slice(1, None), -1), (None, slice(None, None, 2)), (..., None), (slice(3, 1),)],
    ids=str,
)
def test_index(index):
    x, torch_x = both("float32", (2, 4))

    assert_same(x[index], torch_x[index])


@pytest.mark.parametrize(
    "shapes",
    [((4,), (4,)), ((2, 4), (4,)), ((4,), (4, 2)), ((3, 2, 4), (4, 5)), ((2, 1, 2, 4), (3, 4, 1))],
    ids=str,
)
def test_matmul_shapes(shapes):
    a, b = (torch.arange(math.prod(shape)).reshape(shape) % 5 for shape in shapes)

    assert_same(Tensor(a.numpy()) @ Tensor(b.numpy()), a @ b)
