"""Composed operators are PyTorch's: values, dtypes, shapes and error classes.

The grids run on PYTHON, which compiles nothing; test_ops.py runs each family on the CPU too.
"""

import math

import numpy as np
import pytest

import tinytensor
from tinytensor.config import config
from tinytensor.dtype import dtypes
from tinytensor.nn import functional
from tinytensor.tensor.tensor import Tensor

torch = pytest.importorskip("torch")

FLOATS = ("float16", "bfloat16", "float32", "float64")
NAMES = ("bool", "uint8", "int8", "int16", "int32", "int64", *FLOATS)
SPECIAL = [0.0, -0.0, 1.0, -2.5, 3.25, math.inf, -math.inf, math.nan, 1e-3, -0.7, 0.5, 2.5]
WHOLE = [0, 1, 1, 2, 3, 5, 8, 13, 4, 9, 7, 6]


def both(name, shift=0):
    """The same twelve values as a Tensor and as PyTorch's, rotated."""
    values = torch.tensor(SPECIAL if name in FLOATS else WHOLE).roll(shift)
    values = values.to(getattr(torch, name))
    wide = values.float() if name == "bfloat16" else values
    return Tensor(wide.numpy(), dtype=getattr(dtypes, name)), values


@pytest.fixture(autouse=True)
def _python_device():
    with config(device="PYTHON"):
        yield


def outcome(call):
    """What a call gives: a result, or the error it raises."""
    try:
        return call()
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        return error


def assert_same(result, expected, ulp=8):
    """Same dtype, shape and values within some ulp; or an error of the same class.

    What PyTorch has no kernel for, or divides by the integer 0, may have a result here.
    """
    if isinstance(expected, NotImplementedError) or "ZeroDivision" in str(expected):
        return
    if isinstance(expected, Exception):
        assert isinstance(result, Exception)
        assert isinstance(result, type(expected)), repr(result)
        return
    if isinstance(expected, tuple):
        assert len(result) == len(expected)
        for ours, theirs in zip(result, expected, strict=True):
            assert_same(ours, theirs, ulp)
        return
    assert not isinstance(result, Exception), repr(result)
    name = str(expected.dtype).removeprefix("torch.")
    assert (result.dtype.name, result.shape) == (name, tuple(expected.shape))
    values, reference = result.numpy().astype(np.float64), expected.double().numpy()
    bound = ulp * result.dtype.epsilon
    np.testing.assert_allclose(values, reference, rtol=bound, atol=0)


UNARY = """exp2 expm1 log2 log10 log1p tan asin acos atan sinh cosh logit deg2rad rad2deg isfinite
    signbit frac nan_to_num logical_not"""


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("method", UNARY.split())
def test_functions(method, name):
    x, torch_x = both(name)

    assert_same(outcome(getattr(x, method)), outcome(getattr(torch_x, method)))


ACTIVATIONS = """softplus logsigmoid elu celu selu leaky_relu hardtanh relu6 hardsigmoid hardswish
    mish softsign tanhshrink"""


@pytest.mark.parametrize("name", NAMES[1:])
@pytest.mark.parametrize("method", ACTIVATIONS.split())
def test_activations(method, name):
    x, torch_x = both(name)
    function = getattr(torch.nn.functional, method)
    is_half = name in FLOATS[:2]  # which PyTorch rounds after each of some steps
    expected = outcome(lambda: function(torch_x.float() if is_half else torch_x))

    # tanhshrink cancels: near x = 1e-3 the result is x * 2**-21, and its error that of x.
    ulp = 2**21 if method == "tanhshrink" else 8
    result = outcome(lambda: getattr(functional, method)(x))
    assert_same(result, expected.to(torch_x.dtype) if is_half else expected, ulp)


BINARY = "fmod atan2 copysign logical_and logical_or logical_xor pow isclose"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("method", BINARY.split())
def test_functions_of_two(method, name):
    for other in NAMES:
        (x, torch_x), (y, torch_y) = both(name), both(other, 3)
        expected = outcome(lambda a=torch_x, b=torch_y: getattr(a, method)(b))

        # The float64 power may be off by an ulp for each power of two in its result.
        ulp = 64 if method == "pow" else 8
        assert_same(outcome(lambda a=x, b=y: getattr(a, method)(b)), expected, ulp)


OPTIONS = [
    *[("div", {"rounding_mode": mode}) for mode in (None, "trunc", "floor")],
    *[("add", {"alpha": 2}), ("sub", {"alpha": 3})],
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("method", "options"), OPTIONS, ids=str)
def test_arithmetic_with_options(method, options, name):
    for other in NAMES:
        (x, torch_x), (y, torch_y) = both(name), both(other, 3)
        expected = outcome(lambda a=torch_x, b=torch_y: getattr(a, method)(b, **options))

        assert_same(outcome(lambda a=x, b=y: getattr(a, method)(b, **options)), expected)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 7, 2.5, 0.5, -0.5, -1, -2, -3], ids=str)
def test_powers_of_tensors_and_of_numbers(exponent, name):
    x, torch_x = both(name)
    if abs(exponent) == 0.5 and name in FLOATS[:2]:
        torch_x = torch_x.float()  # whose root PyTorch takes; of halves it takes the power
        x = x.float()

    assert_same(outcome(lambda: x**exponent), outcome(lambda: torch_x**exponent))
    assert_same(outcome(lambda: exponent**x), outcome(lambda: exponent**torch_x))


@pytest.mark.parametrize("name", FLOATS)
def test_formulas_of_three(name):
    (x, torch_x), (y, torch_y), (z, torch_z) = both(name), both(name, 3), both(name, 5)

    assert_same(x.lerp(y, 0.25), torch_x.lerp(torch_y, 0.25), ulp=64)
    assert_same(x.addcmul(y, z, value=2), torch_x.addcmul(torch_y, torch_z, value=2), ulp=64)
    assert_same(x.addcdiv(y, z, value=2), torch_x.addcdiv(torch_y, torch_z, value=2), ulp=64)


SHAPES = {
    "matrix": (3, 4),
    "vector": (5,),
    "0-d": (),
    "three": (2, 3, 6),
    "empty": (0, 3),
    "square": (3, 3),
}
VIEWS = [
    *[("split", (0,)), ("split", ([1, 1], 1)), ("split", (3, 1)), ("split", (2,))],
    *[("chunk", (3, 1)), ("chunk", (0,)), ("chunk", (7,)), ("unbind", ()), ("unbind", (1,))],
    *[("narrow", (1, -2, 2)), ("narrow", (1, 3, 2)), ("narrow", (0, 0, 0))],
    *[("unflatten", (1, (2, -1))), ("unflatten", (0, (1, 3))), ("roll", (1,)), ("roll", (-2,))],
    *[("roll", ((1, 2), (0, 1))), ("roll", ((1, 2),)), ("roll", (1, 0)), ("roll", (5, -1))],
    *[("repeat", (2,)), ("repeat", (2, 1, 2)), ("tile", (2,)), ("tile", (2, 1, 2))],
    *[("repeat_interleave", (2,)), ("repeat_interleave", (2, -1)), ("repeat_interleave", (0, 0))],
    *[("diagonal", ()), ("diagonal", (1,)), ("diagonal", (-1,)), ("diagonal", (5,))],
    *[("diagonal", (1, -1, 0)), ("diagonal", (0, 1, 2)), ("diag", ()), ("diag", (1,))],
    *[("diag", (-2,)), ("rot90", ()), ("rot90", (2,)), ("rot90", (3, (1, 0))), ("rot90", (4,))],
    *[("unfold", (0, 2, 1)), ("unfold", (-1, 3, 2)), ("unfold", (0, 1, 1))],
    *[("unfold", (1, 2, 0)), ("unfold", (1, 9, 1)), ("tril", ()), ("tril", (1,))],
    *[("tril", (-1,)), ("triu", ()), ("triu", (2,)), ("triu", (-1,)), ("movedim", (0, 1))],
    *[("movedim", ((0, 1), (1, 2))), ("movedim", ((0, 1), (1,))), ("movedim", (-1, 0))],
    *[("swapaxes", (0, 1)), ("t", ()), ("select", (0, 1)), ("select", (0, 7)), ("ravel", ())],
    *[("cumsum", (0,)), ("cumsum", (-1,)), ("cumprod", (0,)), ("trace", ())],
]


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize(("method", "arguments"), VIEWS, ids=str)
def test_parts_and_places(method, arguments, name):
    if (method, name) == ("diagonal", "0-d"):
        pytest.skip("PyTorch complains of the equal dims first")
    count = math.prod(SHAPES[name])
    values = np.arange(count, dtype=np.int32).reshape(SHAPES[name])
    x, torch_x = Tensor(values), torch.tensor(values)
    expected = outcome(lambda: getattr(torch_x, method)(*arguments))

    assert_same(outcome(lambda: getattr(x, method)(*arguments)), expected)


@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
@pytest.mark.parametrize("shape", [(2, 4), (1, 3, 4, 5)], ids=str)
@pytest.mark.parametrize(
    "pad", [(1, 1), (2, 0), (0, 3), (-1, 2), (-1, -1), (5, 1), (1, 1, 1, 1), (2, 1, 0, 2)], ids=str
)
def test_borders(pad, shape, mode):
    values = np.arange(math.prod(shape), dtype=np.float32).reshape(shape)
    expected = outcome(lambda: torch.nn.functional.pad(torch.tensor(values), pad, mode=mode))

    assert_same(outcome(lambda: Tensor(values).pad(pad, mode=mode)), expected)


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
def test_borders_of_no_batch(mode):
    expected = torch.nn.functional.pad(torch.zeros(0, 2, 5), (1, 2), mode=mode)

    assert_same(Tensor.zeros(0, 2, 5).pad((1, 2), mode=mode), expected)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=str)
@pytest.mark.parametrize("function", ["vstack", "hstack", "dstack"])
def test_stacks(function, shape):
    values = np.arange(math.prod(shape)).reshape(shape)

    result = getattr(tinytensor, function)([Tensor(values)] * 3)

    assert_same(result, getattr(torch, function)([torch.tensor(values)] * 3))


@pytest.mark.parametrize("indexing", ["ij", "xy"])
@pytest.mark.parametrize("extents", [(2, 3), (4,), (2, 3, 4)], ids=str)
def test_meshgrid(extents, indexing):
    ours = [Tensor.arange(n) for n in extents]
    theirs = [torch.arange(n) for n in extents]

    expected = torch.meshgrid(*theirs, indexing=indexing)
    assert_same(tinytensor.meshgrid(ours, indexing=indexing), tuple(expected))


EQUATIONS = [
    *[
        ("ij,jk->ik", (2, 3), (3, 4)),
        ("ij,jk", (2, 3), (3, 4)),
        ("ij->i", (2, 3)),
        ("ij->", (2, 3)),
    ],
    *[("ii->i", (3, 3)), ("ii", (3, 3)), ("ij->ji", (2, 3)), ("i,j->ij", (3,), (4,))],
    *[("...ij,...jk->...ik", (2, 1, 3, 4), (5, 4, 2)), ("i,i", (3,), (3,))],
    *[("ij,ij->i", (2, 3), (2, 3)), ("bhid,bhjd->bhij", (2, 2, 3, 4), (2, 2, 5, 4))],
    *[("ij,jk,kl", (2, 3), (3, 4), (4, 5)), ("ij,j,i->", (2, 3), (3,), (2,))],
    *[("iij,jk->ik", (2, 2, 3), (3, 2)), ("...", (2, 3)), ("i...,...i", (3, 2), (2, 3))],
    *[("bA,Ab", (3, 2), (2, 3)), ("ij->ij...", (2, 3)), (" i j , j k -> i k ", (3, 2), (2, 3))],
    *[("bn,anm,bm->ba", (2, 5), (3, 5, 4), (2, 4)), ("ab,cd->acbd", (2, 3), (4, 5))],
    *[("ii->i", (2, 3)), ("ij->k", (2, 3)), ("ij,jk->ii", (2, 3), (3, 2)), ("ij,jk", (2, 3))],
    *[("i.j", (2, 3)), ("ijk", (2, 3)), ("ij,kj->ik", (3, 2), (4, 3)), ("i->iii", (3,))],
]


@pytest.mark.parametrize("dtype", [np.float32, np.int64])
@pytest.mark.parametrize("equation", EQUATIONS, ids=lambda each: each[0])
def test_einsum(equation, dtype):
    text, *shapes = equation
    operands = [np.arange(math.prod(shape), dtype=dtype).reshape(shape) for shape in shapes]
    theirs = [torch.tensor(each) for each in operands]
    expected = outcome(lambda: torch.einsum(text, *theirs))

    # Small whole numbers: every order of summation gives the same floats.
    ours = [Tensor(each) for each in operands]
    assert_same(outcome(lambda: tinytensor.einsum(text, *ours)), expected, ulp=0)


@pytest.mark.parametrize("p", ["fro", 1, 2, 0, math.inf, -math.inf, 2.5], ids=str)
@pytest.mark.parametrize("dim", [None, 0, -1], ids=str)
@pytest.mark.parametrize("shape", [(3, 4), (3, 0), ()], ids=str)
def test_norms(shape, dim, p):
    values = np.linspace(-2, 3, math.prod(shape), dtype=np.float32).reshape(shape)

    expected = outcome(lambda: torch.tensor(values).norm(p, dim))
    assert_same(outcome(lambda: Tensor(values).norm(p, dim)), expected, ulp=16)


@pytest.mark.parametrize("dim", [None, 0, -1], ids=str)
def test_counts_and_pairs(dim):
    values = np.array([[0, 1.5, math.nan], [-0.0, 2, -3]], np.float32)
    x, torch_x = Tensor(values), torch.tensor(values)

    assert_same(x.count_nonzero(dim), torch_x.count_nonzero(dim))
    assert_same(x.nansum(dim), torch_x.nansum(dim))
    assert_same(x.var_mean(dim), torch.var_mean(torch_x, dim))
    assert_same(x.std_mean(dim), torch.std_mean(torch_x, dim))
    assert_same(x.aminmax(dim=dim), tuple(torch_x.aminmax(dim=dim)))


def test_names_of_the_package_are_pytorchs():
    missing = [name for name in tinytensor.functions.NAMES if not hasattr(torch, name)]

    assert missing == []
