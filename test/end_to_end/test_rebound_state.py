"""State that is rebound in each step and read in part is computed once a step, not once a read."""

import numpy as np
import pytest

from tinytensor import Tensor, config, nn, no_grad, optim, report
from tinytensor import planning as planning_module
from tinytensor.ops.uop import living_leaves

STEPS = 24
WARM = 14  # of them; a value that is still held may be made of 16 lost ops
START = np.arange(12).reshape(3, 4)
WEIGHTS = np.arange(16).reshape(4, 4) % 5


def rebound(make, start, weights):
    """A running value, of which a sum is read."""
    state = start
    for _ in range(STEPS):
        state = (state * 3 + 1) % 101
        yield state.sum()


def read_in_part(make, start, weights):
    """A recurrence of which one row is read, and not in each step."""
    state = start
    for step in range(STEPS * 2):
        state = (state @ weights) % 7
        if step % 2:
            yield state[0].sum()


def compared(make, start, weights):
    """An iteration that compares its step with the one before."""
    state = start
    for _ in range(STEPS):
        after = (state * 5 + 3) % 101
        yield abs(after - state).max()
        state = after


def read_behind(make, start, weights):
    """A state that is moved on before what it was is read."""
    state = start
    for _ in range(STEPS):
        before, state = state, (state * 3 + 1) % 101
        yield before.sum()


def crossed(make, start, weights):
    """Two states, each made of both."""
    one, other = start, start + 1
    for _ in range(STEPS):
        one, other = other, (one + other) % 101
        yield one.sum()


def at_once(make, start, weights):
    """Two states, each made of both as they were, of which one is read."""
    one, other = start, start + 1
    for _ in range(STEPS):
        one, other = (one * 3 + other) % 101, (other * 2 + one) % 101
        yield one.sum()


def three_at_once(make, start, weights):
    """Three states, each made of two as they were, of which one is read."""
    one, two, three = start, start + 1, start + 2
    for _ in range(STEPS):
        one, two, three = (one + two) % 101, (two + three) % 101, (three + one) % 101
        yield one.sum()


def rolled(make, start, weights):
    """The last rows that were seen, joined anew."""
    rows = start
    for _ in range(STEPS):
        rows = make([rows[1:], (rows[:1] + 1) % 101])
        yield rows.sum()


LOOPS = [rebound, read_in_part, compared, read_behind, crossed, at_once, three_at_once, rolled]


def joined(parts):
    return Tensor.cat(parts) if isinstance(parts[0], Tensor) else np.concatenate(parts)


def tensors(requires_grad=False):
    return Tensor(START.astype(np.float32)), Tensor(
        WEIGHTS.astype(np.float32), requires_grad=requires_grad
    )


@pytest.fixture
def plans(monkeypatch):
    """The nodes of each graph that a plan is made for."""
    made, make = [], planning_module.make_plan

    def noted(graph, *others):
        made.append(len(graph.order))
        return make(graph, *others)

    monkeypatch.setattr(planning_module, "make_plan", noted)
    return made


@pytest.mark.parametrize("fuse", [0, 3])
@pytest.mark.parametrize("loop", LOOPS, ids=lambda loop: loop.__name__)
def test_what_is_read_of_rebound_state_is_right(loop, fuse):
    expected = [int(each) for each in loop(joined, START, WEIGHTS)]

    with config(fuse=fuse):
        found = [each.item() for each in loop(joined, *tensors())]

    assert found == expected  # whole numbers below 2**24


@pytest.mark.parametrize("mode", ["plain", "no_grad", "grad"])
@pytest.mark.parametrize("loop", LOOPS, ids=lambda loop: loop.__name__)
def test_graphs_of_rebound_state_do_not_grow(loop, mode, plans):
    counts, leaves = [], []
    with no_grad() if mode == "no_grad" else config():
        for value in loop(joined, *tensors(requires_grad=mode != "plain")):
            value.item()
            counts.append(len(plans))
            leaves.append(len(living_leaves()))

    assert counts[-1] == counts[WARM]  # each graph is one that was seen before
    if mode != "grad":  # there the states are kept for a gradient, as PyTorch keeps them
        assert max(leaves[WARM:]) <= max(leaves[:WARM])


def test_a_graph_that_came_before_is_computed_as_it_was(plans):
    """What each step makes of the same constants, such as a mask, is no state that grows."""
    for step in range(3):
        scores = Tensor(START.astype(np.float32) + step) * (Tensor.ones(3, 4).tril() * 2 - 1)

        expected = (START + step) * (np.tril(np.ones((3, 4))) * 2 - 1)
        assert scores.sum().item() == expected.sum()

    assert len(plans) <= 1


def test_the_gradient_through_state_that_was_read_is_the_same():
    def slope(is_read):
        start, weights = tensors(requires_grad=True)
        for value in read_in_part(joined, start, weights):
            if is_read:
                value.item()
        value.backward()
        return weights.grad.numpy()

    assert slope(True).tobytes() == slope(False).tobytes()


def test_a_costly_value_that_is_held_is_stored_when_it_is_read_again():
    x = Tensor(np.eye(512, dtype=np.float32))
    held = x @ x

    held.sum().item()
    first = held.cell.leaf
    held.max().item()

    assert first is None
    assert held.cell.leaf is not None


def test_a_cheap_value_that_is_held_is_computed_by_whoever_reads_it():
    held = Tensor(np.ones(1 << 16, np.float32)) * 2

    for _ in range(3):
        held.sum().item()

    assert held.cell.leaf is None


def test_a_value_that_is_stored_in_this_way_says_why():
    state = Tensor(np.ones((64, 64), np.float32)) * 3
    state.sum().item()
    state = state + 1

    with report.capture() as planned:
        state.sum().item()

    found = [each.reason for each in planned[0].kernel.decisions if each.kind == "store"]
    held, asked = found
    assert held.startswith(
        "a tensor holds it, made of 1 op that an earlier graph computed and nobody kept; storing "
    )
    assert held.endswith(", and 50 ms to compile a graph that grew.")
    assert asked == "its value was asked for."


@pytest.mark.parametrize("reads", [1, 2])
def test_a_step_starts_no_more_kernels_for_a_loss_that_was_read_before(reads, launches):
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    optimizer = optim.SGD(model.parameters(), lr=0.5)
    x = Tensor(START.astype(np.float32))

    def step(reads):
        loss = (model(x) ** 2).mean()
        for _ in range(reads):
            loss.item()
        optimizer.zero_grad()
        loss.backward()
        started = launches.count
        optimizer.step()
        return launches.count - started

    step(0)

    assert step(reads) <= step(0)
