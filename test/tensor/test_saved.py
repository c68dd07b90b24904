"""What the forward keeps for the backward can be shown, with its bytes."""

import numpy as np

from tinytensor import Tensor, autograd

ROWS = np.ones((64, 32), np.float32)
WEIGHT = np.ones((16, 32), np.float32)


def hidden_and_loss(apply):
    x = Tensor(ROWS)
    w, v = (Tensor(WEIGHT, requires_grad=True) for _ in range(2))

    def layer(x):
        return ((x @ w.T).tanh() @ v).sum()

    return apply(layer, x * 1)


def test_an_intermediate_is_saved_with_its_bytes():
    loss = hidden_and_loss(lambda layer, x: layer(x))

    intermediates = [each for each in autograd.saved(loss) if not each.is_leaf]

    assert [(each.name, each.nbytes) for each in intermediates] == [
        ("tanh f32[64,16]", 64 * 16 * 4),
    ]


def test_leaves_are_marked():
    x = Tensor([1.0, 2.0, 3.0], requires_grad=True)

    kept = autograd.saved((x * x).sum())

    assert [(each.nbytes, each.is_leaf) for each in kept] == [(12, True)]


def test_a_checkpoint_saves_no_intermediate():
    loss = hidden_and_loss(autograd.checkpoint)

    names = [each.name for each in autograd.saved(loss) if not each.is_leaf]

    assert names == []


def test_nothing_is_saved_where_nothing_is_needed():
    x = Tensor([1.0, 2.0], requires_grad=True)

    assert autograd.saved((x * 2).sum()) == []
