"""Branches, loops and scans draw numbers, are programs and train as Python's own do."""

import gc

import numpy as np
import pytest
from tensor.bodies import interpreted, leaf, python_scan, recurrent

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
from tinytensor.timing import watch


def decisions_of(function):
    """What the host decided while a function was called and its results were computed."""
    with watch() as watched:
        function()
    return [each.sentence for each in watched.notes if isinstance(each, Decided)]


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
