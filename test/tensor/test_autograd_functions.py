"""Functions that differentiate, and functions that bring gradients of their own."""

import gc
import math

import numpy as np
import pytest

from tinytensor import Tensor, autograd, dtypes, no_grad

RNG = np.random.default_rng(11)


def leaf(values, dtype=dtypes.float64, device="PYTHON"):
    return Tensor(values, dtype=dtype, device=device, requires_grad=True)


# Functions that differentiate.
def test_grad_gives_gradients_and_leaves_none_behind():
    x, y = leaf([1.0, 2.0]), leaf([3.0, 4.0])

    by_x, by_y = autograd.grad((x * y * y).sum(), [x, y])

    assert (by_x.tolist(), by_y.tolist()) == ([9.0, 16.0], [6.0, 16.0])
    assert (x.grad, by_x.requires_grad) == (None, False)


def test_grad_by_what_is_between():
    x = leaf([2.0])
    y = x * x

    assert autograd.grad(y * y, y)[0].tolist() == [8.0]
    assert (y * y).gradient(x, y)[0].tolist() == [32.0]


def test_grad_of_several_outputs_with_weights():
    x = leaf([1.0, 2.0])
    weights = [None, Tensor([1.0, 10.0], dtype=dtypes.float64, device="PYTHON")]

    (found,) = autograd.grad([x.sum(), x * x], x, weights)

    assert found.tolist() == [3.0, 41.0]


def test_inputs_that_are_not_used():
    x, y = leaf([1.0]), leaf([1.0, 2.0])

    assert autograd.grad(x * 2, y, allow_unused=True) == (None,)
    (zeros,) = autograd.grad(x * 2, y, materialize_grads=True)
    assert zeros.tolist() == [0.0, 0.0]


def test_backward_of_chosen_inputs():
    x, y = leaf([1.0]), leaf([2.0])
    z = x * y

    (z * z).backward(inputs=[y, z])

    assert (x.grad, y.grad.item(), z.grad.item()) == (None, 4.0, 4.0)


def test_higher_derivatives():
    x = leaf([2.0])
    y = x**4
    found = []
    for _ in range(5):
        (y,) = autograd.grad(y, x, create_graph=True, materialize_grads=True)
        found.append(y.item())

    assert found == [32.0, 48.0, 48.0, 24.0, 0.0]


def test_vjp_pulls_back_through_the_transposed_jacobian():
    matrix = RNG.standard_normal((3, 4))
    x, u = Tensor(RNG.standard_normal(4)), Tensor(RNG.standard_normal(3))

    value, pull_back = autograd.vjp(lambda x: Tensor(matrix) @ x, x)
    (pulled,) = pull_back(u)

    np.testing.assert_allclose(pulled.numpy(), matrix.T @ u.numpy(), rtol=1e-14, atol=1e-15)
    assert not (value.requires_grad or pulled.requires_grad)


def test_jvp_pushes_forward_through_the_jacobian():
    x, move = RNG.uniform(1, 2, (2, 5))

    value, pushed = autograd.jvp(
        lambda x: {0: (x.log(), x.floor())}[0], [Tensor(x)], [Tensor(move)]
    )

    np.testing.assert_allclose(value[0].numpy(), np.log(x), rtol=1e-15)
    np.testing.assert_allclose(pushed[0].numpy(), move / x, rtol=1e-14)
    assert pushed[1].tolist() == [0.0] * 5


def test_detach_holds_inside_what_is_differentiated():
    value, slope = autograd.value_and_grad(lambda x: x.detach() * x)(Tensor([3.0]))

    assert (value.item(), slope.item()) == (9.0, 3.0)


def test_differentiated_functions_nest():
    def cubed(x):
        return x * x * x

    def slope(x):
        return autograd.value_and_grad(cubed)(x)[1]

    assert autograd.value_and_grad(slope)(Tensor([2.0]))[1].item() == 12.0
    x = leaf([2.0])
    slope(x).backward()
    assert x.grad.item() == 12.0


def test_value_and_grad_by_chosen_arguments():
    def function(x, scale, y):
        return (x * y * scale).sum()

    value, (by_x, by_y) = autograd.value_and_grad(function, (0, 2))(Tensor([2.0]), 3, Tensor([5.0]))

    assert (value.item(), by_x.item(), by_y.item()) == (30.0, 15.0, 6.0)


# Functions with gradients of their own.
class Exponential(autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, upstream):
        (y,) = ctx.saved_tensors
        return upstream * y


class Both(autograd.Function):
    @staticmethod
    def forward(x, scale, y):
        return x * y * scale, x + y

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.scale = inputs[1]
        ctx.save_for_backward(inputs[0], inputs[2])

    @staticmethod
    def backward(ctx, product, total):
        x, y = ctx.saved_tensors
        return product * y * ctx.scale + total, None, product * x * ctx.scale + total


def test_a_function_is_differentiated_twice_through_what_it_saved():
    x = leaf([0.5])
    (first,) = autograd.grad(Exponential.apply(x), x, create_graph=True)
    (second,) = autograd.grad(first, x)

    assert first.item() == second.item() == pytest.approx(math.exp(0.5), rel=1e-15)


@pytest.mark.parametrize("used", [(0,), (1,), (0, 1)], ids=str)
def test_a_function_of_several(used):
    x, y = leaf([2.0]), leaf([3.0])
    outputs = Both.apply(x, 10.0, y)

    sum(outputs[number] for number in used).backward()

    expected = [(30.0, 20.0), (1.0, 1.0)]
    assert x.grad.item() == sum(expected[number][0] for number in used)
    assert y.grad.item() == sum(expected[number][1] for number in used)


def test_a_backward_runs_once_for_all_results():
    calls = []

    class Counted(Both):
        @staticmethod
        def backward(ctx, product, total):
            calls.append((product.item(), total.item()))
            return Both.backward(ctx, product, total)

    x, y = leaf([2.0]), leaf([3.0])
    product, total = Counted.apply(x, 1.0, y)
    (product * total).backward()

    assert calls == [(5.0, 6.0)]
    assert x.grad.item() == 3 * 5 + 6


def test_a_function_without_gradients_computes_as_it_is_written():
    x = Tensor([1.0])

    assert Exponential.apply(x).uop is x.exp().uop
    with no_grad():
        assert not Exponential.apply(leaf([1.0])).requires_grad


def test_a_result_may_have_no_gradient():
    class Parts(autograd.Function):
        @staticmethod
        def forward(ctx, x):
            whole = x.floor()
            ctx.mark_non_differentiable(whole)
            ctx.set_materialize_grads(False)
            return whole, x - whole

        @staticmethod
        def backward(ctx, whole, rest):
            assert whole is None
            return rest * 2

    x = leaf([1.5])
    whole, rest = Parts.apply(x)
    rest.backward()

    assert (whole.requires_grad, rest.requires_grad, x.grad.item()) == (False, True, 2.0)


def test_calls_are_forgotten_with_their_results():
    x = leaf([1.0])
    y = Exponential.apply(x)
    (y * y).backward()
    call = y.uop.attrs.call
    node = y.uop
    del y
    x.grad = None
    gc.collect()

    assert call.results[0]() is node
    del node
    gc.collect()
    assert call.results[0]() is None
