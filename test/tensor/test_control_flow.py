"""Branches, loops and scans give what Python's own give, with gradients, also in programs."""

import gc
from dataclasses import dataclass

import numpy as np
import pytest

from tinytensor import (
    Device,
    Tensor,
    autograd,
    cond,
    config,
    dtypes,
    explain,
    jit,
    manual_seed,
    nn,
    no_grad,
    optim,
    scan,
    while_loop,
)
from tinytensor.control.run import Decided
from tinytensor.errors import IndexOutOfRange
from tinytensor.timing import watch

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


def leaf(values):
    return Tensor(values, requires_grad=True)


def whole(shape):
    """Small whole numbers, of which every order gives the same sum."""
    return RNG.integers(-3, 4, shape).astype(np.float64)


def python_scan(function, state, xs, reverse=False):
    """The oracle: a loop that is written out."""
    order = range(xs.shape[0])
    results = {}
    for place in reversed(order) if reverse else order:
        state, results[place] = function(state, xs[place])
    return state, [results[place] for place in order]


def interpreted(function):
    """What a function gives on the device that only interprets: nothing is compiled for it."""
    with config(device="PYTHON"):
        return function()


def decisions_of(function):
    """What the host decided while a function was called and its results were computed."""
    with watch() as watched:
        function()
    return [each.sentence for each in watched.notes if isinstance(each, Decided)]


# cond
@pytest.mark.parametrize(("value", "expected"), [(3.0, [30.0, 20.0]), (-3.0, [3.0, -2.0])])
def test_a_branch_is_taken_by_a_value(value, expected):
    x = Tensor([value, 2.0])

    assert cond(x[0] > 0, lambda x: x * 10, lambda x: -x, (x,)).tolist() == expected


@pytest.mark.parametrize("pred", [True, False])
def test_of_a_python_bool_one_function_is_called(pred):
    def refuse():
        raise AssertionError("it is not called")

    functions = (lambda: 7, refuse) if pred else (refuse, lambda: 7)

    assert cond(pred, *functions) == 7


@pytest.mark.parametrize("value", [[2], [[0.5]], True, [False], 0.0])
def test_a_predicate_of_any_dtype_holds_unless_it_is_zero(value):
    taken = cond(Tensor(value), lambda: Tensor(1), lambda: Tensor(2))

    assert taken.item() == (1 if np.any(value) else 2)


def test_the_other_branch_is_not_computed():
    place = Tensor([5])
    x = Tensor([1.0, 2.0])

    def choose(is_inside):
        return cond(Tensor(is_inside), lambda x: x[place % 2], lambda x: x[place], (x,))

    assert choose(True).tolist() == [2.0]
    with pytest.raises(IndexOutOfRange):
        choose(False).tolist()


@dataclass
class Pair:
    first: Tensor
    second: list


def test_results_are_nested_as_the_branches_nest_them():
    x = Tensor([1.0, 2.0])

    found = cond(
        x[0] > 0,
        lambda x: {"pair": Pair(x + 1, [x, x * 3]), "kind": "same"},
        lambda x: {"pair": Pair(x, [x, x]), "kind": "same"},
        (x,),
    )

    assert found["kind"] == "same"
    assert found["pair"].first.tolist() == [2.0, 3.0]
    assert [each.tolist() for each in found["pair"].second] == [[1.0, 2.0], [3.0, 6.0]]


@pytest.mark.parametrize("value", [2.0, -2.0])
def test_gradients_go_through_the_branch_that_was_taken(value):
    x, w, v = leaf([value, 3.0]), leaf([5.0, 7.0]), leaf([11.0, 13.0])

    y = cond(x[0] > 0, lambda x: x * w, lambda x: x * x * v, (x,))
    y.sum().backward()

    values, weights, others = x.detach().numpy(), w.detach().numpy(), v.detach().numpy()
    is_first = value > 0
    assert x.grad.tolist() == (weights if is_first else 2 * values * others).tolist()
    assert w.grad.tolist() == (values if is_first else 0 * values).tolist()
    assert v.grad.tolist() == (0 * values if is_first else values**2).tolist()


def test_the_gradient_of_a_branch_has_a_gradient():
    x = leaf([2.0])
    y = cond(x > 1, lambda x: x * x * x, lambda x: x, (x,))

    (first,) = autograd.grad(y.sum(), [x], create_graph=True)
    (second,) = autograd.grad(first.sum(), [x])

    assert (first.tolist(), second.tolist()) == ([12.0], [12.0])


def test_one_program_serves_both_branches():
    @jit
    def function(x):
        return cond(x.sum() > 0, lambda x: x * 2, lambda x: x - 1, (x,))

    found = [function(Tensor([value, 1.0])).tolist() for value in (1.0, -5.0, 3.0, -7.0)]

    assert found == [[2.0, 2.0], [-6.0, 0.0], [6.0, 2.0], [-8.0, 0.0]]
    assert len(function.programs()) == 1
    assert "cond" in function.programs()[0].kernels


def test_a_branch_that_gives_its_operand_gives_a_value_of_its_own():
    x = Tensor([1.0, 2.0])
    first, second = cond(x[0] > 0, lambda x: (x, x), lambda x: (-x, x), (x,))
    first.realize(second)

    first += 5
    x += 7

    assert (first.tolist(), second.tolist()) == ([6.0, 7.0], [1.0, 2.0])


def test_a_program_may_write_over_what_a_branch_passed_on():
    state = Tensor([1.0, 2.0])

    @jit
    def function(x):
        before = cond(x > 0, lambda: state, lambda: -state)
        state.add_(1)
        return before

    found = [function(Tensor(value)).tolist() for value in (1, -1, 1)]

    assert found == [[1.0, 2.0], [-2.0, -3.0], [3.0, 4.0]]
    assert state.tolist() == [4.0, 5.0]


# while_loop
def collatz(start):
    def halve_or_triple(n, steps):
        return (n // 2).where(n % 2 == 0, 3 * n + 1), steps + 1

    return while_loop(lambda n, steps: n > 1, halve_or_triple, (start, Tensor(0)))


@pytest.mark.parametrize(("start", "steps"), [(1, 0), (6, 8), (7, 16), (27, 111)])
def test_a_loop_runs_as_long_as_its_condition_holds(start, steps):
    assert [each.item() for each in collatz(Tensor(start))] == [1, steps]


def test_a_program_loops_as_often_as_its_arguments_say():
    function = jit(collatz)

    found = [function(Tensor(start))[1].item() for start in (6, 1, 27, 7)]

    assert found == [8, 0, 111, 16]
    assert len(function.programs()) == 1


def test_a_loop_computes_what_python_computes():
    def newton(x, before):
        return (x + 2 / x) / 2, x

    x = Tensor(2.0, dtype=dtypes.float64)
    found = while_loop(lambda x, before: (x - before).abs() > 1e-15, newton, (x, x * 0))

    root, before = 2.0, 0.0
    while abs(root - before) > 1e-15:
        root, before = newton(root, before)
    assert [each.item() for each in found] == [root, before]


def test_a_state_may_change_places():
    def swap(i, a, b):
        return i + 1, b, a

    start = (Tensor(0), Tensor([1.0]), Tensor([2.0]))
    swapped = while_loop(lambda i, a, b: i < 3, swap, start)
    idle = while_loop(lambda i, a, b: i < 0, swap, start)
    idle[1].realize(idle[2], *swapped)
    start[1].add_(9)

    assert [each.tolist() for each in swapped] == [3, [2.0], [1.0]]
    assert [each.tolist() for each in idle] == [0, [1.0], [2.0]]


def test_a_loop_reads_what_lies_outside():
    limit, step = Tensor(10), Tensor(np.arange(6.0).reshape(2, 3)).T[1:]

    _, total = while_loop(
        lambda i, total: i < limit,
        lambda i, total: (i + 3, total + step + Tensor([0.5, 0.25])),
        (Tensor(0), Tensor.zeros(2, 2, dtype=dtypes.float64)),
    )

    assert total.tolist() == [[4 * 1.5, 4 * 4.25], [4 * 2.5, 4 * 5.25]]


# scan
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


def recurrent(weight):
    """A step of a network whose state and result are one value."""
    return lambda state, x: ((state @ weight + x).tanh(),) * 2


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


# All of them.
def nested(state, x):
    _, doubled = while_loop(
        lambda i, v: i < x[0], lambda i, v: (i + 1, v * 2 + state), (x[0] * 0, x[1])
    )
    chosen = cond(doubled > 10, lambda v: v - 10 + state, lambda v: v * state, (doubled,))
    return scan(lambda a, b: (a + b * chosen, a), chosen, x)


def python_nested(state, x):
    doubled, i = x[1], 0
    while i < x[0]:
        doubled, i = doubled * 2 + state, i + 1
    chosen = doubled - 10 + state if doubled > 10 else doubled * state
    return python_scan(lambda a, b: (a + b * chosen, a), chosen, x)


@pytest.mark.parametrize("compile", [lambda function: function, jit], ids=["plain", "jit"])
def test_bodies_may_hold_others(compile):
    values = np.array([[2, 1.0], [0, 3.0], [3, 0.5]])
    function = compile(lambda xs: scan(nested, Tensor(1.0, dtype=dtypes.float64), xs))

    for sign in (1, 0, 1):
        last, results = function(Tensor(values * sign))
        state, expected = python_scan(python_nested, 1.0, values * sign)
        assert last.item() == state
        assert results.tolist() == expected


def test_a_gradient_passes_bodies_within_bodies():
    def gradients(how):
        xs, w = leaf(np.array([2.0, -1.0, 3.0])), leaf(np.array(0.5))

        def step(state, x):
            chosen = cond(x > 0, lambda s: s * x * w, lambda s: s + x, (state,))
            return chosen, chosen

        last, _ = how(step, Tensor(1.5, dtype=dtypes.float64), xs)
        last.backward()
        return xs.grad.tolist(), w.grad.tolist()

    assert gradients(scan) == interpreted(lambda: gradients(python_scan))


def test_a_body_may_be_jitted_and_computed_again():
    def gradient(how, keep, inner):
        w, xs = leaf(np.array([0.5, 2.0])), leaf(np.ones((3, 2)))

        def step(state, x):
            following = keep(lambda s: inner(s, w) + x, state)
            return following, following

        last, _ = keep(lambda xs: how(step, xs[0] * 0, xs), xs)
        last.sum().backward()
        return w.grad.numpy()

    def inner(s, w):
        return (s * w).sin()

    found = gradient(scan, autograd.checkpoint, jit(inner))

    expected = interpreted(lambda: gradient(python_scan, lambda f, *args: f(*args), inner))
    np.testing.assert_allclose(found, expected, rtol=1e-14)


# Random numbers.
def noisy(state, x):
    state = state + Tensor.rand(2) * x
    return state, state.dropout(0.5) * Tensor.randn(2)


def noises(function):
    """What three calls of a function give after one seed."""
    manual_seed(5)
    return [[each.tolist() for each in function()] for _ in range(3)]


def scanned_noise(reverse=False):
    xs = Tensor(np.arange(6.0).reshape(3, 2), dtype=dtypes.float32)
    return scan(noisy, Tensor.zeros(2), xs, reverse=reverse)


def looped_noise(reverse=False):
    xs = Tensor(np.arange(6.0).reshape(3, 2), dtype=dtypes.float32)
    last, results = python_scan(noisy, Tensor.zeros(2), xs, reverse)
    return last, Tensor.stack(results)


@pytest.mark.parametrize(
    ("compile", "reverse"),
    [(lambda function: function, True), (jit, False)],
    ids=["plain", "jit"],
)
def test_random_numbers_of_a_scan_are_those_of_a_loop(compile, reverse):
    function = compile(scanned_noise)

    found = noises(lambda: function(reverse))

    assert found == interpreted(lambda: noises(lambda: looped_noise(reverse)))


@pytest.mark.parametrize("compile", [lambda function: function, jit], ids=["plain", "jit"])
def test_random_numbers_of_scans_within_scans_are_those_of_loops(compile):
    xs = np.arange(8.0, dtype=np.float32).reshape(2, 2, 2)

    def loop():
        def step(state, x):
            last, results = python_scan(noisy, state, x)
            return last, Tensor.stack(results)

        last, results = python_scan(step, Tensor.zeros(2), Tensor(xs))
        return last, Tensor.stack(results)

    rows = Tensor(xs)
    function = compile(lambda: scan(lambda s, x: scan(noisy, s, x), Tensor.zeros(2), rows))

    assert noises(function) == interpreted(lambda: noises(loop))


def drawn(i, values, more):
    place = Tensor.arange(6) == i
    return i + 1, values + place * Tensor.rand(()), more + Tensor.rand(2)


def test_each_step_of_a_loop_draws_other_numbers():
    start = (Tensor(0), Tensor.zeros(6), Tensor.zeros(2))
    function = lambda: while_loop(lambda i, *_: i < 6, drawn, start)[1:]  # noqa: E731

    calls = noises(function)

    numbers = [number for values, _ in calls for number in values]
    assert len(set(numbers)) == 18
    assert all(0 < number < 1 for number in numbers)
    assert noises(jit(function)) == calls


def test_the_numbers_of_a_loop_in_a_loop_differ():
    def outer(i, values):
        _, inner = while_loop(
            lambda j, v: j < 3,
            lambda j, v: (j + 1, v + (Tensor.arange(9) == i * 3 + j) * Tensor.rand(())),
            (Tensor(0), values),
        )
        return i + 1, inner

    _, found = while_loop(lambda i, v: i < 3, outer, (Tensor(0), Tensor.zeros(9)))

    assert len(set(found.tolist())) == 9


def test_a_scan_that_draws_keeps_its_numbers_when_it_is_computed_again():
    xs = Tensor(np.ones((3, 2), np.float32))

    def step(state, x):
        return state + x, (w * x).dropout(0.5)

    def loss():
        w.grad = None
        kept = autograd.checkpoint(lambda w: scan(step, Tensor.zeros(2), xs * w)[1], w)
        kept.sum().backward()
        return kept.sum(0).detach(), w.grad

    w = leaf([1.0, 1.0])
    function = jit(loss)
    manual_seed(1)
    for _ in range(3):
        kept, gradient = function()
        assert gradient.tolist() == (2 * kept).tolist()
    assert "a loop that draws is computed again" in function.remarks[-1]


# Programs and training.
class Network(nn.Module):
    """A recurrent network whose steps are a scan or a loop."""

    def __init__(self, how):
        super().__init__()
        self.how = how
        self.cell = nn.Linear(4, 4)
        self.norm = nn.LayerNorm(4)

    def forward(self, xs):
        def step(state, x):
            state = (self.norm(self.cell(state)) + x).tanh()
            return state, state

        last, _ = self.how(step, xs[0] * 0, xs)
        return last


@pytest.mark.parametrize("compile", [lambda function: function, jit], ids=["plain", "jit"])
def test_training_through_a_scan_is_training_through_a_loop(compile):
    random = np.random.default_rng(0)
    arrays = [random.normal(size=shape).astype(np.float32) for shape in [(6, 5, 4), (5, 4)]]

    def losses(how, compile):
        manual_seed(0)
        xs, target = map(Tensor, arrays)
        network = Network(how)
        optimizer = optim.SGD(network.parameters(), lr=0.1)

        def train(xs, target):
            loss = ((network(xs) - target) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss.detach()

        train = compile(train)
        return [train(xs, target).item() for _ in range(5)]

    found = losses(scan, compile)

    expected = interpreted(lambda: losses(python_scan, lambda function: function))
    # Six steps of a few float32 sums each, in five updates.
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert found[-1] < 0.9 * found[0]


def test_a_program_trains_in_the_memory_of_its_parameters():
    w = leaf(np.eye(3))
    xs = Tensor(np.ones((4, 2, 3)) * 0.1)

    @jit
    def train():
        last, _ = scan(recurrent(w), xs[0] * 0, xs)
        last.sum().backward()
        with no_grad():
            w.sub_(0.1 * w.grad)
        w.grad = None

    train()
    train()
    before = w.cell.memory
    train()

    assert w.cell.memory is before


def test_a_program_sees_what_a_captured_tensor_holds_now():
    scale = Tensor(2.0)
    function = jit(lambda xs: scan(lambda s, x: (s + x * scale, s), Tensor(0.0), xs)[0])
    xs = Tensor([1.0, 2.0])

    before = function(xs).item()
    scale.mul_(5)

    assert (before, function(xs).item(), function(xs).item()) == (6.0, 30.0, 30.0)
    assert len(function.programs()) == 1


def test_a_scan_of_each_length_is_a_program_of_its_own():
    function = jit(lambda xs: scan(lambda s, x: (s + x, s), Tensor(0.0), xs)[0])

    found = [function(Tensor(np.ones(n, np.float32))).item() for n in (3, 5, 3, 7)]

    assert found == [3.0, 5.0, 3.0, 7.0]
    assert len(function.programs()) == 3


@pytest.mark.parametrize("n", [2, 3])
def test_an_int_that_varies_may_be_read_in_a_body(n):
    function = jit(lambda x, n: cond(x > 0, lambda: x * n, lambda: x - n))

    assert [function(Tensor(1), each).item() for each in (n, n + 1, n + 2)] == [n, n + 1, n + 2]


def test_nothing_is_recorded_without_gradients():
    w = leaf([2.0])

    with no_grad():
        last, results = scan(lambda s, x: (s * w, s), Tensor([1.0]), Tensor([[1.0], [2.0]]))
        chosen = cond(w > 0, lambda: w * 2, lambda: w)

    assert not (last.requires_grad or results.requires_grad or chosen.requires_grad)
    assert (last.tolist(), chosen.tolist()) == ([4.0], [4.0])


def test_results_of_one_loop_are_computed_once():
    last, results = scan(lambda s, x: (s + x, s), Tensor(0.0), Tensor([1.0, 2.0]))

    told = decisions_of(lambda: (last.item(), results.tolist()))

    assert told == ["scan: the host decides: the body ran 2 times."]


def test_what_the_host_decides_is_told(capsys):
    x = Tensor(3)

    with config(debug=2):
        while_loop(lambda i: i < 5, lambda i: (i + 1,), (x,))[0].item()
    found = explain(lambda: cond(x > 5, lambda: x + 1, lambda: x - 1))

    sentence = "while_loop: the host decides: the condition was read 3 times, the body ran 2 times."
    assert sentence in capsys.readouterr().err.splitlines()
    assert found.decided == (
        "cond: the host decides: the predicate is False, one of two bodies runs.",
    )
    assert found.decided[0] in str(found)


def test_memory_is_free_once_nobody_needs_it(default_device):
    device = Device[default_device or "CPU"]
    w, xs = leaf(np.eye(3)), Tensor(np.ones((4, 2, 3)))
    w.realize(xs)

    def run():
        last, results = scan(recurrent(w), xs[0], xs)
        (last.sum() + results.sum()).backward()
        w.grad.realize()
        w.grad = None

    run()
    gc.collect()
    gc.disable()
    try:
        before = device.memory().allocated
        run()
        after = device.memory().allocated
    finally:
        gc.enable()

    assert after == before


def test_the_interpreter_runs_bodies():
    x = Tensor(np.arange(6.0).reshape(3, 2), device="PYTHON")

    last, sums = scan(lambda s, x: (s + x, s * 2), x[0] * 0, x)

    assert (last.tolist(), sums.tolist()) == ([6.0, 9.0], [[0.0, 0.0], [0.0, 2.0], [4.0, 8.0]])
