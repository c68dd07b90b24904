"""Branches and loops, and bodies within bodies, give what Python's own give, with gradients."""

from dataclasses import dataclass

import numpy as np
import pytest
from tensor.bodies import interpreted, leaf, python_scan

from tinytensor import Tensor, autograd, cond, dtypes, jit, scan, while_loop
from tinytensor.errors import IndexOutOfRange


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


# Bodies within bodies, of all kinds.
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
