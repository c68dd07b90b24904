"""A checkpointed function gives the function's values and gradients, and keeps its arguments."""

import numpy as np
import pytest

from tinytensor import Tensor, autograd, manual_seed, no_grad
from tinytensor.ops.op import Op
from tinytensor.ops.uop import walk

RNG = np.random.default_rng(3)
POINTS = RNG.uniform(0.5, 2, (4, 3))
WEIGHT = RNG.uniform(0.5, 2, (3, 3))


def leaf(values):
    return Tensor(values, requires_grad=True)


def layer(x, w):
    return (x @ w).exp().tanh() + x


def gradients_of(apply):
    x, w = leaf(POINTS), leaf(WEIGHT)
    hidden = x * 2
    (apply(layer, hidden, w) * hidden).sum().backward()
    return x.grad.numpy(), w.grad.numpy()


def plain(function, *args):
    return function(*args)


def test_the_gradients_are_those_of_the_function():
    for found, expected in zip(gradients_of(autograd.checkpoint), gradients_of(plain), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-14)


def test_what_a_closure_uses_gets_its_gradient_too():
    x, w = leaf(POINTS), leaf(WEIGHT)

    autograd.checkpoint(lambda x: layer(x, w), x).sum().backward()

    expected = gradients_without_checkpoint(x, w)
    np.testing.assert_allclose(x.grad.numpy(), expected[0], rtol=1e-14)
    np.testing.assert_allclose(w.grad.numpy(), expected[1], rtol=1e-14)


def gradients_without_checkpoint(x, w):
    first, second = autograd.grad(layer(x, w).sum(), (x, w))
    return first.numpy(), second.numpy()


def test_a_leaf_that_is_argument_and_captured_gets_both_parts():
    x = leaf([3.0])

    autograd.checkpoint(lambda y: y * y * x, x).backward()

    assert x.grad.tolist() == [27.0]


def test_second_derivatives_pass_through():
    x = leaf([3.0])

    (first,) = autograd.grad(autograd.checkpoint(lambda y: y * y * y, x), x, create_graph=True)
    (second,) = autograd.grad(first, x)

    assert second.tolist() == [18.0]


def test_dropout_drops_the_same_elements_again():
    manual_seed(5)
    x = leaf(np.ones(64))

    y = autograd.checkpoint(lambda x: x.dropout(0.5), x)
    y.sum().backward()

    assert x.grad.tolist() == y.tolist()
    assert set(y.tolist()) == {0.0, 2.0}


def test_the_draws_after_it_are_those_without_it():
    found = []
    for apply in (autograd.checkpoint, plain):
        manual_seed(5)
        y = apply(lambda x: x.dropout(0.5), leaf(np.ones(8)))
        y.sum().backward()
        found.append(Tensor.rand(4).tolist())

    assert found[0] == found[1]


def test_checkpoints_nest():
    x = leaf([3.0])

    def outer(x):
        return autograd.checkpoint(lambda y: y * y, x) * x

    autograd.checkpoint(outer, x).backward()

    assert x.grad.tolist() == [27.0]


def test_several_results_and_what_is_no_tensor_pass():
    x = leaf([3.0])

    first, second, name = autograd.checkpoint(lambda x, n: (x * 2, x.detach(), n), x, "n")
    first.backward()

    assert (x.grad.tolist(), second.requires_grad, name) == ([2.0], False, "n")


def test_without_gradients_it_is_the_function():
    x = leaf([3.0])

    with no_grad():
        y = autograd.checkpoint(lambda x: x * 2, x)

    assert not y.requires_grad


@pytest.mark.parametrize(("apply", "count"), [(autograd.checkpoint, 2), (plain, 1)])
def test_the_backward_computes_again_what_was_not_kept(apply, count):
    x, w = leaf(POINTS), leaf(WEIGHT)
    y = apply(layer, x, w)
    (slope,) = autograd.grad(y.sum(), x)

    nodes = walk((y.uop, slope.uop))

    assert sum(node.op is Op.EXP for node in nodes) == count
