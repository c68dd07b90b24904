"""Gradients of reads at computed places are PyTorch's: what was read twice is summed."""

import numpy as np
import pytest

from tinytensor import Tensor
from tinytensor.tensor import autograd

torch = pytest.importorskip("torch")

X = np.arange(24.0).reshape(2, 3, 4) % 5  # so small that all sums are exact
CALLS = {
    "rows": lambda x, to: x[to([1, 0, 1])],
    "negative": lambda x, to: x[:, to([[-1, 0], [0, 2]])],
    "two axes": lambda x, to: x[:, to([0, 2, 0]), to([3, 1, 3])],
    "apart": lambda x, to: x[to([1, 1]), :, to([0, 2])],
    "gather": lambda x, to: x.gather(2, to([[[0, 3, 3]], [[1, 1, 1]]])),
    "select": lambda x, to: x.index_select(1, to([2, 2])),
    "take": lambda x, to: x.take(to([[5, -1], [5, 5]])),
    "of a product": lambda x, to: (x * x)[to([1, 0])] * x,
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_first_and_second_gradients(call):
    found = gradients_of(call, Tensor(X, requires_grad=True), Tensor)
    x = torch.tensor(X, requires_grad=True)

    expected = gradients_of(call, x, torch.tensor)

    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(ours.detach().numpy(), theirs.detach().numpy())


def gradients_of(call, x, to):
    """The gradient of a sum of cubes, and the gradient of the sum of its squares."""
    out = call(x, to)
    grad = torch.autograd.grad if isinstance(x, torch.Tensor) else autograd.grad
    (first,) = grad((out * out * out).sum(), x, create_graph=True)
    (second,) = grad((first * first).sum(), x)
    return first, second


def test_what_nobody_read_has_a_gradient_of_zeros():
    x = Tensor(X, requires_grad=True)

    (found,) = autograd.grad(x[[]].sum(), x)

    assert found.tolist() == np.zeros_like(X).tolist()
