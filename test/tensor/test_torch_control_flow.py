"""Branches, loops and scans give PyTorch's values and gradients."""

import numpy as np
import pytest

import tinytensor
from tinytensor import Tensor

torch = pytest.importorskip("torch", "2.13")  # earlier ones stack a scan's results elsewhere
higher_order = pytest.importorskip("torch._higher_order_ops")

ROWS = np.arange(12.0).reshape(2, 3, 2) / 8


@pytest.fixture
def uncompiled():
    with torch.compiler.set_stance("force_eager"):
        yield


@pytest.mark.parametrize("value", [1.5, -2.5])
def test_a_branch(value):
    ours = Tensor([value, 2.0], requires_grad=True)
    theirs = torch.tensor([value, 2.0], requires_grad=True)

    y = tinytensor.cond(ours.sum() > 0, lambda x: x * x, lambda x: x.exp(), (ours,))
    expected = torch.cond(theirs.sum() > 0, lambda x: x * x, lambda x: x.exp(), (theirs,))
    y.sum().backward()
    expected.sum().backward()

    # exp is within 2 ulp on both sides.
    np.testing.assert_allclose(y.detach().numpy(), expected.detach().numpy(), rtol=5e-7)
    np.testing.assert_allclose(ours.grad.numpy(), theirs.grad.numpy(), rtol=5e-7)


@pytest.mark.usefixtures("uncompiled")
def test_a_loop():
    def step(i, x):
        return i + 1, x * 2

    ours = tinytensor.while_loop(lambda i, x: i < 5, step, (Tensor(0), Tensor([1.0, 3.0])))
    theirs = (torch.tensor(0), torch.tensor([1.0, 3.0]))
    expected = higher_order.while_loop(lambda i, x: i < 5, step, theirs)

    assert [each.tolist() for each in ours] == [each.tolist() for each in expected]


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize(("dim", "reverse"), [(0, False), (1, True), (-1, False)])
def test_a_scan(dim, reverse):
    def step(state, x):
        following = state * 0.5 + x
        return following, following * x

    init = np.moveaxis(ROWS, dim, 0)[0]
    ours = [Tensor(each, requires_grad=True) for each in (init, ROWS)]
    theirs = [torch.tensor(each, requires_grad=True) for each in (init, ROWS)]

    last, results = tinytensor.scan(step, *ours, dim=dim, reverse=reverse)
    expected = higher_order.scan(step, *theirs, dim=dim, reverse=reverse)
    (last.sum() + (results * results).sum()).backward()
    (expected[0].sum() + (expected[1] * expected[1]).sum()).backward()

    pairs = [(last.detach(), expected[0].detach()), (results.detach(), expected[1].detach())]
    pairs += [(each.grad, other.grad) for each, other in zip(ours, theirs, strict=True)]
    for each, other in pairs:
        np.testing.assert_allclose(each.numpy(), other.numpy(), rtol=1e-14)
