"""Mistakes in branches, loops and scans are told in one sentence, with the class PyTorch raises."""

import numpy as np
import pytest

from tinytensor import Tensor, cond, manual_seed, nn, scan, while_loop
from tinytensor.errors import DeviceError, DTypeError, GradientError, ShapeError, TraceError

X = Tensor([1.0, 2.0])
TRUE = Tensor(True)
STATE = Tensor(0.0)
KEPT = []
W = Tensor([1.0, 2.0], requires_grad=True)


def add_up(state, x):
    return state + x, state


def writing(x):
    STATE.add_(1)
    return x


def differentiating(x):
    (x * W).sum().backward()
    return x


def normalize():
    norm = nn.BatchNorm1d(2)
    scan(lambda state, x: (state, norm(x)), STATE, Tensor(np.ones((3, 4, 2), np.float32)))


def keep(state, x):
    KEPT.append(state)
    return state, x


def read_what_was_kept():
    scan(keep, STATE, X)
    return KEPT[-1].tolist()


def differentiate_a_loop():
    (total,) = while_loop(lambda x: x < 9, lambda x: (x * 2,), (W[1],))
    total.backward()


MISTAKES = [
    (
        lambda: cond(X > 0, lambda: X, lambda: X),
        ShapeError,
        "cond: the predicate has several elements or none: shape (2,); it must have one. "
        "Use any() or all().",
    ),
    (
        lambda: cond(TRUE, lambda x: x, lambda x: x.sum(), (X,)),
        ShapeError,
        "cond: the branches differ: true_fn gives float32 (2,), false_fn gives float32 (); "
        "structures, shapes and dtypes must be equal.",
    ),
    (
        lambda: cond(TRUE, lambda x: x, lambda x: x > 0, (X,)),
        DTypeError,
        "cond: the branches differ: true_fn gives float32 (2,), false_fn gives bool (2,); "
        "structures, shapes and dtypes must be equal.",
    ),
    (
        lambda: cond(TRUE, lambda: [X, {"a": X}, 1], lambda: (X, X)),
        ShapeError,
        "cond: the branches differ: true_fn gives list(float32 (2,), dict('a': float32 (2,)), 1), "
        "false_fn gives (float32 (2,), float32 (2,)); structures, shapes and dtypes must be equal.",
    ),
    (
        lambda: cond(TRUE, lambda x: x, lambda x: -x, (Tensor([1.0], device="PYTHON"),)),
        DeviceError,
        "cond: operands are on several devices: CPU, PYTHON; they must share one. Use to(device).",
    ),
    (
        lambda: cond(TRUE, lambda x: x.to("PYTHON").to("CPU"), lambda x: x, (X,)),
        DeviceError,
        "cond: a body moves values between devices: it runs on CPU; it must stay there.",
    ),
    (
        lambda: cond(TRUE, lambda x: Tensor(x.sum().item()), lambda x: x.sum(), (X,)),
        TraceError,
        "cond: a value is read while the function is traced: shape (); only results may be read. "
        "Return it, or choose with where() or cond().",
    ),
    (
        lambda: cond(TRUE, writing, lambda x: x, (X,)),
        TraceError,
        "cond: a body changes a tensor from outside: shape (); it must return the value instead.",
    ),
    (
        lambda: cond(TRUE, differentiating, lambda x: x, (X,)),
        TraceError,
        "cond: a body changes a tensor from outside: shape (2,); it must return the value instead.",
    ),
    (
        normalize,
        TraceError,
        "scan: a body changes a tensor from outside: shape (); it must return the value instead.",
    ),
    (
        read_what_was_kept,
        TraceError,
        "realize: a value of a traced body is read outside of it: shape (); "
        "the body must return it.",
    ),
    (
        lambda: while_loop(lambda: TRUE, lambda: (), ()),
        TypeError,
        "while_loop: carried_inputs holds no Tensor: (); there must be one at least.",
    ),
    (
        lambda: while_loop(lambda x: True, lambda x: (x,), (X,)),
        TypeError,
        "while_loop: cond_fn gives no Tensor: True; it must give one of one element.",
    ),
    (
        lambda: while_loop(lambda x: x > 0, lambda x: (x,), (X,)),
        ShapeError,
        "while_loop: the condition has several elements or none: shape (2,); it must have one. "
        "Use any() or all().",
    ),
    (
        lambda: while_loop(lambda x: x.sum() > 0, lambda x: (x[:1],), (X,)),
        ShapeError,
        "while_loop: the state is (float32 (2,)), body_fn gives (float32 (1,)); "
        "structures, shapes and dtypes must be equal.",
    ),
    (
        differentiate_a_loop,
        GradientError,
        "while_loop: a gradient needs to know how often the body runs: a condition decides; "
        "it must be a number. Use scan.",
    ),
    (
        lambda: scan(add_up, STATE, []),
        TypeError,
        "scan: xs holds no Tensor: list(); there must be one at least.",
    ),
    (
        lambda: scan(add_up, STATE, (X, Tensor([1.0]))),
        ShapeError,
        "scan: lengths along dim 0 differ: 2, 1; all of xs must have one.",
    ),
    (
        lambda: scan(add_up, STATE, X, dim=1),
        IndexError,
        "scan: dim is out of range: 1 for a tensor with ndim 1; it must be in -1 .. 0.",
    ),
    (
        lambda: scan(lambda s, x: s + x, STATE, X),
        TypeError,
        "scan: combine_fn gives no pair: float32 (); "
        "it must give a tuple of the next state and a result.",
    ),
    (
        lambda: scan(lambda s, x: ((s, x), x), STATE, X),
        ShapeError,
        "scan: the state is float32 (), combine_fn gives (float32 (), float32 ()); "
        "structures, shapes and dtypes must be equal.",
    ),
    (
        lambda: scan(lambda s, x: (s > x, x), STATE, X),
        DTypeError,
        "scan: the state is float32 (), combine_fn gives bool (); "
        "structures, shapes and dtypes must be equal.",
    ),
]


@pytest.mark.parametrize(("mistake", "kind", "sentence"), MISTAKES)
def test_a_mistake_is_told_in_one_sentence(mistake, kind, sentence):
    manual_seed(0)

    with pytest.raises(kind) as caught:
        mistake()

    assert str(caught.value).splitlines()[0] == sentence


def test_a_refused_body_leaves_everything_as_it_was():
    state = Tensor([1.0])

    def write(x):
        state.add_(1)
        return x

    with pytest.raises(TraceError):
        cond(TRUE, write, lambda x: x, (X,))

    assert state.tolist() == [1.0]
    assert W.grad is None
