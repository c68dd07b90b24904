"""A scan gives what the loop gives that is written out, and its gradients."""

import numpy as np
import pytest
from tensor.bodies import interpreted, leaf, python_scan, recurrent

from tinytensor import Tensor, autograd, dtypes, scan
from tinytensor.errors import IndexOutOfRange

RNG = np.random.default_rng(11)
# Rows of 1, 3, 6 and 16 elements, some of which end where the next one may begin; one row; halves,
# integers and bools.
SCANS = [
    ((4,), "float64", False),
    ((5, 3), "float16", True),
    ((1, 2, 3), "int32", False),
    ((3, 4, 4), "float64", True),
    ((2, 3), "bool", False),
]


def whole(shape):
    """Small whole numbers, of which every order gives the same sum."""
    return RNG.integers(-3, 4, shape).astype(np.float64)


@pytest.mark.parametrize(("shape", "dtype", "reverse"), SCANS)
def test_a_scan_is_a_loop(shape, dtype, reverse):
    values = whole(shape).astype(dtype)
    init = np.zeros_like(values[0])

    def step(state, x):
        return state + x, (state * x, x)

    last, (products, same) = scan(step, Tensor(init), Tensor(values), reverse=reverse)

    state, results = python_scan(step, init, values, reverse)
    np.testing.assert_array_equal(last.numpy(), state)
    np.testing.assert_array_equal(products.numpy(), [each[0] for each in results])
    np.testing.assert_array_equal(same.numpy(), values)
    assert (last.dtype.name, products.dtype.name) == (dtype, dtype)


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_a_scan_walks_along_any_axis(dim):
    values = whole((3, 4, 5))
    rows = np.moveaxis(values, dim, 0)

    last, sums = scan(lambda s, x: (s + x, s + x), Tensor(rows[0] * 0), Tensor(values), dim=dim)

    np.testing.assert_array_equal(sums.numpy(), np.cumsum(values, dim))
    np.testing.assert_array_equal(last.numpy(), rows.sum(0))


def test_a_scan_of_nothing_gives_its_first_state():
    init = leaf([3.0])

    last, sums = scan(lambda s, x: (s + x, (s * x, x > 0)), init, Tensor.zeros(0, 1))
    last.sum().backward()

    assert last.tolist() == [3.0]
    assert [(each.shape, each.dtype.name) for each in sums] == [
        ((0, 1), "float32"),
        ((0, 1), "bool"),
    ]
    assert init.grad.tolist() == [1.0]


def test_states_and_slices_are_nests():
    xs = {"a": Tensor([1.0, 2.0, 3.0]), "b": [Tensor([[1, 2], [3, 4], [5, 6]])]}

    def step(state, x):
        total, (count, same) = state
        return (total + x["a"], (count + x["b"][0], same)), [total, (x["b"][0], count)]

    init = (Tensor(0.0), (Tensor([0, 0]), Tensor(7)))
    (total, (count, same)), [totals, (given, counts)] = scan(step, init, xs)

    assert (total.item(), count.tolist(), same.item()) == (6.0, [9, 12], 7)
    assert totals.tolist() == [0.0, 1.0, 3.0]
    assert given.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert counts.tolist() == [[0, 0], [1, 2], [4, 6]]


def network_gradients(how, reverse=False, steps=5):
    """The loss of a recurrent network, its gradients, and those of a sum of their squares."""
    random = np.random.default_rng(steps)
    weight, xs, init = (leaf(random.normal(size=s)) for s in [(3, 3), (steps, 2, 3), (2, 3)])
    last, results = how(recurrent(weight), init, xs, reverse=reverse)
    results = results if isinstance(results, Tensor) else Tensor.stack(results)
    loss = (results * results).sum() + last.sum()
    first = autograd.grad(loss, [weight, xs, init], create_graph=True)
    second = autograd.grad(sum((each * each).sum() for each in first), [weight, xs, init])
    return [each.detach().numpy() for each in (loss, *first, *second)]


@pytest.mark.parametrize(("reverse", "steps"), [(False, 5), (True, 3), (True, 1)])
def test_gradients_of_a_scan_are_those_of_a_loop(reverse, steps):
    found = network_gradients(scan, reverse, steps)

    expected = interpreted(lambda: network_gradients(python_scan, reverse, steps))
    # The order of sums differs: some roundings at the size of what a gradient of gradients sums.
    for each, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(each, other, rtol=1e-12, atol=1e-12 * np.abs(other).max())


def test_a_gradient_of_a_scan_is_what_differences_tell():
    random = np.random.default_rng(4)
    weight, xs, init = (random.normal(size=shape) for shape in [(2, 2), (3, 1, 2), (1, 2)])

    def loss(weight):
        last, _ = scan(recurrent(weight), Tensor(init), Tensor(xs))
        return (last * last).sum()

    w = leaf(weight)
    loss(w).backward()

    step = 1e-5
    moves = np.eye(4).reshape(4, 2, 2) * step
    ends = [[loss(Tensor(weight + sign * move)).item() for sign in (1, -1)] for move in moves]
    slopes = [(above - below) / (2 * step) for above, below in ends]
    # The error of a central difference: step ** 2 of the third derivative, epsilon / step rounded.
    np.testing.assert_allclose(w.grad.numpy().reshape(-1), slopes, rtol=1e-7, atol=1e-8)


def test_a_scan_is_differentiated_forward():
    def function(xs):
        return scan(lambda s, x: (s * x.sin(), s), xs[0], xs)[0]

    xs, move = Tensor(np.array([0.5, 1.5])), Tensor(np.array([2.0, -3.0]))

    value, slope = autograd.jvp(function, (xs,), (move,))

    a, b = 0.5, 1.5
    by_a = np.sin(a) * np.sin(b) + a * np.cos(a) * np.sin(b)
    by_b = a * np.sin(a) * np.cos(b)
    np.testing.assert_allclose(value.numpy(), a * np.sin(a) * np.sin(b), rtol=1e-14)
    np.testing.assert_allclose(slope.numpy(), 2 * by_a - 3 * by_b, rtol=1e-14)


def test_a_gradient_passes_states_that_are_no_floats():
    values = leaf([2.0, 3.0, 5.0])

    def step(state, x):
        count, total = state
        return (count + 1, total + x * count), count

    (count, total), counts = scan(step, (Tensor(1), Tensor(0.0)), values)
    total.backward()

    assert (count.item(), counts.tolist()) == (4, [1, 2, 3])
    assert values.grad.tolist() == [1.0, 2.0, 3.0]


def test_the_gradient_of_what_is_captured_is_summed_in_float32():
    scale = Tensor(1.0, dtype=dtypes.float16, requires_grad=True)
    xs = Tensor.ones(4096, dtype=dtypes.float16)

    _, results = scan(lambda s, x: (s, x * scale), Tensor(0.0), xs)
    results.sum().backward()

    assert scale.grad.item() == 4096.0  # one after the other in halves it would stop at 2048


def test_a_forward_that_was_read_is_run_again_for_its_states():
    values = leaf([1.0, 2.0, 3.0])
    last, _ = scan(lambda s, x: (s * x, s), Tensor(2.0), values)

    assert last.item() == 12.0
    last.backward()

    assert values.grad.tolist() == [12.0, 6.0, 4.0]


def test_a_step_that_reads_outside_of_an_axis_is_told():
    table = Tensor([[1.0], [2.0]])

    def total(places):
        return scan(lambda s, place: (s + table[place], s), Tensor([0.0]), Tensor(places))[0]

    assert total([0, 1, 1]).tolist() == [5.0]
    with pytest.raises(IndexOutOfRange):
        total([0, 2, 1]).tolist()
