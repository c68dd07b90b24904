"""Arguments that PyTorch takes in more than one form mean the same here."""

import numpy as np
import pytest

import tinytensor as tt
from tinytensor import Tensor, nn
from tinytensor.errors import TinyTensorError

torch = pytest.importorskip("torch")

ROWS = [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
FIRST = [
    *("add", "sub", "mul", "multiply", "subtract", "div", "divide", "true_divide"),
    *("floor_divide", "pow", "remainder"),
]
BITS = ["bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift"]
DTYPES = ["uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"]


def assert_same(result, expected):
    name = str(expected.dtype).removeprefix("torch.")
    assert (result.dtype.name, result.shape) == (name, tuple(expected.shape))
    wide = expected.double().numpy()
    epsilon = result.dtype.epsilon if result.dtype.is_float else 0
    found = result.numpy().astype(np.float64)
    np.testing.assert_allclose(found, wide, rtol=4 * epsilon, atol=0)


def operands(values, dtype):
    return Tensor(values, getattr(tt, dtype)), torch.tensor(values, dtype=getattr(torch, dtype))


@pytest.mark.parametrize("dtype", ["int64", "float32"])
@pytest.mark.parametrize("number", [2, 2.5], ids=str)
@pytest.mark.parametrize("name", FIRST)
def test_a_number_may_come_first(name, number, dtype):
    x, y = operands([1, 2, 3], dtype)

    assert_same(getattr(tt, name)(number, x), getattr(torch, name)(number, y))


@pytest.mark.parametrize("values", [[1, 2], 3], ids=["axes", "0-d"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("number", [2, 2.5, np.int64(3), np.float32(0.5)], ids=str)
def test_a_number_that_comes_first_is_weak(number, dtype, values):
    x, y = operands(values, dtype)

    for name in FIRST:
        result, expected = getattr(tt, name)(number, x), getattr(torch, name)(number, y)
        assert str(expected.dtype) == f"torch.{result.dtype.name}"


@pytest.mark.parametrize("dtype", ["uint8", "int64"])
@pytest.mark.parametrize("name", BITS)
def test_an_integer_may_come_first(name, dtype):
    x, y = operands([1, 2, 3], dtype)

    assert_same(getattr(tt, name)(6, x), getattr(torch, name)(6, y))


def test_options_come_after_a_number_as_well():
    x, y = Tensor([2.0, -3.0]), torch.tensor([2.0, -3.0])

    assert_same(tt.div(7, x, rounding_mode="floor"), torch.div(7, y, rounding_mode="floor"))
    assert_same(tt.sub(7, other=x, alpha=2), torch.sub(7, other=y, alpha=2))


def test_the_gradient_goes_through_what_follows_a_number():
    x, y = Tensor([1.5, 2.0], requires_grad=True), torch.tensor([1.5, 2.0], requires_grad=True)

    tt.pow(2, x).sum().backward()
    torch.pow(2, y).sum().backward()

    assert_same(x.grad, y.grad)


REPEATS = [
    *[([1, 2], 0), ([0, 0], 0), ([2], 0), (2, 0), ([3, 0, 1], 1), ([3, 0, 1], -1)],
    *[([1, 2, 0, 1, 1, 1], None), ([2], None), (1, None)],
]


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize(("repeats", "dim"), REPEATS, ids=str)
def test_elements_repeated_by_a_tensor(repeats, dim, dtype):
    counts = Tensor(repeats, getattr(tt, dtype))
    expected = torch.tensor(ROWS).repeat_interleave(
        torch.tensor(repeats, dtype=getattr(torch, dtype)), dim
    )
    extent = expected.shape[dim or 0]

    assert_same(Tensor(ROWS).repeat_interleave(counts, dim), expected)
    assert_same(Tensor(ROWS).repeat_interleave(counts, dim, output_size=extent), expected)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_indices_repeated_by_what_says_how_often(dtype):
    counts = Tensor([1, 2, 0, 3], getattr(tt, dtype))

    expected = torch.repeat_interleave(torch.tensor([1, 2, 0, 3], dtype=getattr(torch, dtype)))

    assert_same(tt.repeat_interleave(counts), expected)
    assert_same(tt.repeat_interleave(counts, output_size=6), expected)


@pytest.mark.parametrize(("shape", "counts"), [((0, 3), []), ((0, 3), [1]), ((2, 0), [1, 2])])
def test_nothing_is_repeated(shape, counts):
    result = Tensor.zeros(shape).repeat_interleave(Tensor(counts, tt.int64), 0)

    expected = torch.zeros(shape).repeat_interleave(torch.tensor(counts, dtype=torch.int64), 0)

    assert_same(result, expected)


@pytest.mark.parametrize("size", [2, 4])
def test_a_wrong_sum_of_repeats_raises_when_it_is_read(size):
    with pytest.raises(RuntimeError):
        torch.tensor(ROWS).repeat_interleave(torch.tensor([1, 2]), 0, output_size=size)

    result = Tensor(ROWS).repeat_interleave(Tensor([1, 2]), 0, output_size=size)

    with pytest.raises(TinyTensorError, match="^repeat_interleave: an index is out of range"):
        result.numpy()


def test_the_gradient_of_repeated_elements_is_summed():
    x, y = Tensor(ROWS, requires_grad=True), torch.tensor(ROWS, requires_grad=True)
    weights = np.arange(12.0, dtype=np.float32).reshape(4, 3)

    (x.repeat_interleave(Tensor([1, 3]), 0) * Tensor(weights)).sum().backward()
    (y.repeat_interleave(torch.tensor([1, 3]), 0) * torch.tensor(weights)).sum().backward()

    assert_same(x.grad, y.grad)


X, Y = Tensor(ROWS), torch.tensor(ROWS)
MASK = [[True, False, True], [False, True, True]]
FORMS = {
    "split by a 0-d tensor": (lambda: X.split(Tensor(1)), lambda: Y.split(torch.tensor(1))),
    "chunk by a 0-d tensor": (lambda: X.chunk(Tensor(2)), lambda: Y.chunk(torch.tensor(2))),
    "chunk by NumPy": (lambda: X.chunk(np.int64(2)), lambda: Y.chunk(np.int64(2))),
    "flip by a 0-d tensor": (lambda: [X.flip(Tensor(1))], lambda: [Y.flip(torch.tensor(1))]),
    "tile by a 0-d tensor": (lambda: [X.tile(Tensor(2))], lambda: [Y.tile(torch.tensor(2))]),
    "roll without dims": (lambda: [X.roll(1, None)], lambda: [Y.roll(1, None)]),
    "topk of a 0-d tensor": (lambda: X.topk(Tensor(2)), lambda: Y.topk(torch.tensor(2))),
    "squeeze by NumPy": (lambda: [X.squeeze(np.int64(0))], lambda: [Y.squeeze(np.int64(0))]),
    "index by NumPy": (lambda: [X[np.array(1)]], lambda: [Y[np.array(1)]]),
    "var": (lambda: [X.var(correction=None)], lambda: [Y.var(correction=None)]),
    "NumPy's names": (
        lambda: [X.sum(axis=1, keepdims=True), tt.softmax(X, axis=0)],
        lambda: [Y.sum(axis=1, keepdims=True), torch.softmax(Y, axis=0)],
    ),
    "norm": (lambda: [X.norm(np.float32(1))], lambda: [Y.norm(np.float32(1))]),
    "nan_to_num": (lambda: [X.nan_to_num(None)], lambda: [Y.nan_to_num(None)]),
    "full of NumPy": (
        lambda: [tt.full((2,), np.int64(3))],
        lambda: [torch.full((2,), np.int64(3))],
    ),
    "arange of NumPy": (lambda: [tt.arange(np.int64(3))], lambda: [torch.arange(np.int64(3))]),
    "loss of bools": (
        lambda: [nn.functional.mse_loss(X, Tensor(MASK))],
        lambda: [torch.nn.functional.mse_loss(Y, torch.tensor(MASK))],
    ),
    "dropout of integers in use": (
        lambda: [nn.functional.dropout(Tensor([1, 2]), training=False)],
        lambda: [torch.nn.functional.dropout(torch.tensor([1, 2]), training=False)],
    ),
    "window of NumPy": (
        lambda: [nn.functional.avg_pool1d(X, np.int64(2))],
        lambda: [torch.nn.functional.avg_pool1d(Y, np.int64(2))],
    ),
    "randperm of the usual dtype": (
        lambda: [tt.randperm(1, dtype=None)],
        lambda: [torch.randperm(1, dtype=None)],
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_another_form_of_an_argument(form):
    own, theirs = FORMS[form]

    for result, expected in zip(own(), theirs(), strict=True):
        assert_same(result, expected)


def test_an_empty_weight_starts_as_it_is():
    assert nn.init.kaiming_uniform_(Tensor.zeros(3, 0)).shape == (3, 0)
    assert nn.init.xavier_normal_(Tensor.zeros(0, 0)).shape == (0, 0)
