"""Writes in place: the twins, assignment, order, dtypes, gradients, and graphs that do not grow."""

import gc
import itertools
import weakref

import numpy as np
import pytest
from tensor.closeness import assert_bits

from tinytensor import Generator, Tensor, no_grad
from tinytensor.dtype import dtypes
from tinytensor.errors import DTypeError, GradientError, ShapeError, ValueOutOfRange
from tinytensor.ops.uop import walk
from tinytensor.tensor.inplace import Inplace

FLOATS = [0.5, -0.25, 0.75, 2.0]
TWINS = sorted(
    name for name in vars(Inplace) if name.endswith("_") and "<" not in name and name[0] != "_"
)
OWN = {"t_", "transpose_", "swapaxes_", "squeeze_", "unsqueeze_"}
ARGUMENTS = {
    **dict.fromkeys(["add", "sub", "mul", "multiply", "div", "true_divide", "floor_divide"], [2.0]),
    **dict.fromkeys(
        ["remainder", "fmod", "pow", "eq", "ne", "lt", "le", "gt", "ge", "clamp", "clip"], [2.0]
    ),
    **dict.fromkeys(["clamp_min", "clamp_max"], [0.5]),
    **dict.fromkeys(
        ["atan2", "copysign", "logical_and", "logical_or", "logical_xor"], [Tensor(FLOATS)]
    ),
    "lerp": [Tensor(FLOATS), 0.25],
    **dict.fromkeys(("addcmul", "addcdiv"), [Tensor(FLOATS), Tensor(FLOATS)]),
    **dict.fromkeys(("bitwise_and", "bitwise_or", "bitwise_xor"), [3]),
    **dict.fromkeys(("bitwise_left_shift", "bitwise_right_shift"), [1]),
    **dict.fromkeys(("cumsum", "cumprod"), [0]),
    "addmm": [Tensor([[1.0, 2.0], [3.0, 4.0]])] * 2,
    "baddbmm": [Tensor([[[1.0, 2.0], [3.0, 4.0]]])] * 2,
    **dict.fromkeys(("scatter", "scatter_add"), [0, Tensor([3, 0]), Tensor(FLOATS)]),
    "scatter_reduce": [0, Tensor([3, 0]), Tensor(FLOATS), "amax"],
    **dict.fromkeys(("index_add", "index_copy"), [0, Tensor([3, 0]), Tensor(FLOATS)[:2]]),
    "index_fill": [0, Tensor([3, 0]), 5],
    "index_put": [[Tensor([3, 0])], Tensor(FLOATS)[:2]],
    "put": [Tensor([3, 0]), Tensor(FLOATS)[:2]],
    "masked_fill": [Tensor(FLOATS) > 0.6, 5],
    "masked_scatter": [Tensor(FLOATS) > 0.6, Tensor(FLOATS)],
}
SHAPES = {"tril": (2, 2), "triu": (2, 2), "addmm": (2, 2), "baddbmm": (1, 2, 2)}


@pytest.mark.parametrize("name", [each for each in TWINS if each not in OWN])
def test_a_twin_writes_what_its_method_returns(name):
    method = name[:-1]
    dtype = dtypes.int64 if "bitwise" in method else dtypes.float32
    x = (Tensor(FLOATS) * 4).to(dtype).reshape(SHAPES.get(method, (4,)))
    seen, expected = x[:], getattr(x, method)(*ARGUMENTS.get(method, []))

    result = getattr(x, name)(*ARGUMENTS.get(method, []))

    assert getattr(Inplace, name).__name__ == name
    assert result is x
    assert_bits(seen, expected.to(dtype).numpy())


OPERATORS = {
    "+=": (lambda x: x.__iadd__(2), [9, -5]),
    "-=": (lambda x: x.__isub__(2), [5, -9]),
    "*=": (lambda x: x.__imul__(2), [14, -14]),
    "//=": (lambda x: x.__ifloordiv__(2), [3, -4]),
    "%=": (lambda x: x.__imod__(4), [3, 1]),
    "**=": (lambda x: x.__ipow__(2), [49, 49]),
    "&=": (lambda x: x.__iand__(3), [3, 1]),
    "|=": (lambda x: x.__ior__(8), [15, -7]),
    "^=": (lambda x: x.__ixor__(1), [6, -8]),
    "<<=": (lambda x: x.__ilshift__(1), [14, -14]),
    ">>=": (lambda x: x.__irshift__(1), [3, -4]),
}


@pytest.mark.parametrize(("write", "expected"), OPERATORS.values(), ids=OPERATORS)
def test_operators_write(write, expected):
    x = Tensor([7, -7])

    assert write(x) is x
    assert x.tolist() == expected


def test_a_division_of_floats_writes():
    x = y = Tensor([1.0, 3.0])

    x /= 2

    assert y.tolist() == [0.5, 1.5]


ORDERS = list(itertools.permutations(range(5)))


@pytest.mark.parametrize("order", ORDERS[:: len(ORDERS) // 12])
def test_a_read_written_before_an_update_keeps_what_it_read(order):
    x, y = Tensor(1.0), Tensor(2.0)
    e = x + 10
    x *= 2
    y += x
    z = y + e

    values = {0: (x, 2), 1: (y, 4), 2: (e, 11), 3: (z, 15), 4: (x + y, 6)}
    for number in order:
        result, expected = values[number]
        assert result.item() == expected


@pytest.mark.parametrize("count", [4, 2**20])
def test_the_right_side_is_read_before_the_write(count):
    values = np.arange(count)
    b = Tensor(values).realize()

    b[1:] = b[:-1]

    np.testing.assert_array_equal(b.numpy(), np.concatenate([values[:1], values[:-1]]))


@pytest.mark.parametrize("order", [*itertools.permutations(range(3))])
def test_pending_reads_of_a_tensor_that_is_written(order):
    a = Tensor([1.0, 2.0, 3.0])
    c = a.clone()
    d = c * 2
    c[:] = 5
    results = [(d, [2, 4, 6]), (c * a, [5, 10, 15]), (a, [1, 2, 3])]

    for number in order:
        result, expected = results[number]
        assert result.tolist() == expected


def test_a_running_mean_survives_unrelated_work():
    m, g = Tensor.zeros(3), Tensor.ones(3)

    m.lerp_(g, 0.05)
    used = (m * 4).realize()
    (g * 17).realize()

    assert m.tolist() == [np.float32(0.05)] * 3
    assert used.tolist() == [np.float32(0.05) * 4] * 3


def test_updates_by_the_thousand_are_one_value():
    x = Tensor([0, 1])
    for _ in range(10_000):
        x += 1

    assert x.tolist() == [10_000, 10_001]


def test_a_realized_update_leaves_no_graph_behind():
    w = Tensor(np.ones((3, 3), np.float32), requires_grad=True)
    seen = w.detach().view(-1)
    sizes = set()
    for _ in range(4):
        (w @ w).tanh().sum().backward()
        with no_grad():
            w -= 0.1 * w.grad
            w.grad = None
        w.realize()
        gc.collect()
        sizes.add((len(walk([w.uop])), len(walk([seen.uop]))))

    assert len(sizes) == 1


def test_an_overwritten_buffer_is_freed():
    x = Tensor(np.ones(1000, np.float32))
    x.realize()
    leaf = weakref.ref(x.cell.leaf)
    x += 1
    x.realize()

    assert leaf() is None


INDICES = [
    0,
    -1,
    (1, 2),
    slice(1, None),
    (slice(None), slice(None, None, 2)),
    (..., 1),
    (None, 1, slice(0, 2)),
    (),
    slice(2, 2),
    (1, slice(3, 1)),
]


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_assignment_to_a_part(index):
    values = np.arange(12).reshape(3, 4)
    x, expected = Tensor(values), values.copy()
    part = np.arange(100, 100 + expected[index].size).reshape(expected[index].shape)

    x[index] = Tensor(part)
    expected[index] = part
    np.testing.assert_array_equal(x.numpy(), expected)

    x[index] = -1
    expected[index] = -1
    np.testing.assert_array_equal(x.numpy(), expected)


def test_an_assigned_tensor_expands_and_is_cast():
    x = Tensor([[1, 2], [3, 4]])

    x[:, 1] = Tensor(7.9)
    x[0] = Tensor([[[-1.5]]])

    assert x.tolist() == [[-1, -1], [3, 7]]
    assert x.dtype is dtypes.int64


def test_a_part_is_updated_by_an_operator():
    x = Tensor([[1, 2], [3, 4]])

    x[0] += 10
    x[:, 1] *= -1

    assert x.tolist() == [[11, -12], [3, -4]]


def test_the_dtype_stays():
    x = Tensor([1.0, 2.0], dtype=dtypes.float16)
    y = Tensor([1, 2], dtype=dtypes.int8)

    x += Tensor([0.5, 2.0**-12])
    y *= Tensor([100, 100])

    assert (x.dtype, x.tolist()) == (dtypes.float16, [1.5, 2.0])
    assert (y.dtype, y.tolist()) == (dtypes.int8, [100, -56])
    assert Tensor([3.0, 0.0]).logical_not_().tolist() == [0.0, 1.0]


@pytest.mark.parametrize(
    ("dtype", "value"), [(dtypes.int64, 1.5), (dtypes.bool, 1), (dtypes.bool, 1.5)]
)
def test_a_kind_that_the_tensor_does_not_hold_is_refused(dtype, value):
    x = Tensor.zeros(2, dtype=dtype)

    with pytest.raises(DTypeError):
        x.add_(value)
    assert x.tolist() == [0, 0]


def test_the_written_tensor_is_not_broadcast():
    x = Tensor.zeros(3)

    with pytest.raises(ShapeError):
        x += Tensor.zeros(2, 3)
    with pytest.raises(ShapeError):
        x[:1] = Tensor.zeros(3)


def test_a_leaf_is_written_only_without_gradients():
    w = Tensor([1.0, 2.0], requires_grad=True)

    for write in (lambda: w.add_(1), lambda: w[0].fill_(3), lambda: w.view(2, 1).neg_()):
        with pytest.raises(GradientError):
            write()
    with no_grad():
        w[0].fill_(3)
        w.T.neg_()
    assert w.tolist() == [-3, -2]
    assert w.is_leaf
    assert w.requires_grad


def test_gradients_pass_through_a_write():
    w = Tensor([1.0, 2.0, 3.0], requires_grad=True)
    y = w * 2
    y[1:] *= w[:-1]
    y.sum().backward()

    # y = [2 w0, 2 w1 w0, 2 w2 w1]
    assert w.grad.tolist() == [2 + 4, 2 + 6, 4]


@pytest.mark.parametrize("write", [lambda y: y.zero_(), lambda y: y.fill_(2), lambda y: y.eq_(4)])
def test_a_tensor_overwritten_by_constants_has_gradients_of_zero(write):
    w = Tensor([1.0, 2.0], requires_grad=True)
    y = w * w

    write(y)

    assert y.requires_grad
    y.sum().backward()
    assert w.grad.tolist() == [0, 0]


def test_a_tensor_without_a_gradient_gets_one_by_a_write():
    w = Tensor([1.0, 2.0], requires_grad=True)
    x = Tensor.zeros(3)
    x[:2] = w * w

    assert x.requires_grad
    x.sum().backward()
    assert w.grad.tolist() == [2, 4]


def test_numbers_of_a_distribution_are_drawn_in_place():
    x = Tensor.zeros(2000)
    generator = Generator().manual_seed(3)

    def moments(tensor):
        values = tensor.numpy()
        return values.mean(), values.std()

    assert moments(x.normal_(3, 2, generator=generator)) == pytest.approx((3, 2), abs=0.2)
    assert moments(x.uniform_(-1, 3, generator=generator)) == pytest.approx((1, 1.155), abs=0.1)
    assert -1 <= x.numpy().min() <= x.numpy().max() < 3
    assert x.bernoulli_(0.25, generator=generator).numpy().mean() == pytest.approx(0.25, abs=0.04)
    assert x.bernoulli_(Tensor(1.0), generator=generator).numpy().min() == 1
    assert {*x.random_(2, 5, generator=generator).tolist()} == {2, 3, 4}
    assert {*Tensor.zeros(99, dtype=dtypes.bool).random_(generator=generator).tolist()} == {0, 1}
    assert Tensor.zeros(999, dtype=dtypes.uint8).random_(generator=generator).numpy().max() > 250
    assert Tensor.zeros(9, dtype=dtypes.int64).random_(2**40, None).numpy().min() >= 2**40


@pytest.mark.parametrize(
    "draw",
    [
        lambda x: x.normal_(0, -1),
        lambda x: x.uniform_(2, 1),
        lambda x: x.bernoulli_(1.5),
        lambda x: x.random_(3, 3),
    ],
)
def test_no_distribution(draw):
    with pytest.raises(ValueOutOfRange):
        draw(Tensor.zeros(2))
