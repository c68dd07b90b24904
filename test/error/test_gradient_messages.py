"""Gradients that do not exist are refused in one sentence, with the class PyTorch raises."""

import copy

import pytest

from tinytensor import Tensor, autograd, dtypes
from tinytensor.errors import DeviceError, DTypeError, GradientError, ShapeError

X = Tensor([1.0, 2.0], requires_grad=True)
Y = Tensor([1.0, 2.0])


class Broken(autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        return x * y

    @staticmethod
    def backward(ctx, upstream):
        return upstream


class Misshapen(Broken):
    @staticmethod
    def backward(ctx, upstream):
        return upstream.sum(), None


def assign(gradient):
    X.grad = gradient


MISTAKES = [
    (
        lambda: (X * 2).backward(),
        GradientError,
        "backward: only one element has an implied gradient: shape (2,); "
        "pass the gradient of each element.",
    ),
    (
        lambda: Y.sum().backward(),
        GradientError,
        "backward: the tensor requires no gradient: shape (); "
        "a leaf with requires_grad=True must go into it.",
    ),
    (
        lambda: (X * 2).backward(Tensor([1.0])),
        ShapeError,
        "backward: shapes differ: gradient (1,), tensor (2,); they must be equal.",
    ),
    (
        lambda: (X * 2).backward(Tensor([1.0, 1.0], device="PYTHON")),
        DeviceError,
        "backward: operands are on several devices: PYTHON, CPU; they must share one. "
        "Use to(device).",
    ),
    (
        lambda: X.sum().backward(1.0),
        TypeError,
        "backward: gradient cannot be this: float 1.0; it must be a Tensor or None.",
    ),
    (
        lambda: X.sum().backward(inputs=[]),
        GradientError,
        "backward: inputs is empty: (); there must be 1 or more.",
    ),
    (
        lambda: autograd.grad(X.sum(), [X, Y]),
        GradientError,
        "grad: an input requires no gradient: number 1; each must. Use requires_grad_().",
    ),
    (
        lambda: autograd.grad(X.sum(), Tensor([1.0], requires_grad=True)),
        GradientError,
        "grad: no output depends on an input: number 0; each must be used. Pass allow_unused=True.",
    ),
    (
        lambda: (X * 2).requires_grad_(False),
        GradientError,
        "requires_grad_: a computed tensor requires what its operands do: shape (2,); "
        "it must be a leaf. Use detach().",
    ),
    (
        lambda: copy.deepcopy(X * 2),
        GradientError,
        "deepcopy: the tensor was computed: shape (2,); it must be a leaf. Use clone().",
    ),
    (
        lambda: Tensor([1]).requires_grad_(),
        DTypeError,
        "tensor: only floats can require a gradient: dtype is int64; it must be a float dtype.",
    ),
    (
        lambda: X.numpy(),
        GradientError,
        "numpy: an array carries no gradient: the tensor requires one; it must not. Use detach().",
    ),
    (
        lambda: assign(Tensor([1.0])),
        ShapeError,
        "grad: shapes differ: gradient (1,), tensor (2,); they must be equal.",
    ),
    (
        lambda: assign(Tensor([1, 2])),
        DTypeError,
        "grad: dtypes differ: int64 for float32; they must be equal.",
    ),
    (
        lambda: autograd.vjp(lambda x: x, Tensor([1])),
        DTypeError,
        "grad: only floats have a gradient: dtype is int64; it must be a float dtype.",
    ),
    (
        lambda: autograd.value_and_grad(lambda x: x)(Y),
        GradientError,
        "value_and_grad: only one element has an implied gradient: shape (2,); "
        "pass the gradient of each element.",
    ),
    (
        lambda: Broken.apply(X, Y).sum().backward(),
        GradientError,
        "backward: number of gradients: 1 for 2 arguments; "
        "each argument of forward must get one, or None.",
    ),
    (
        lambda: Misshapen.apply(X, Y).sum().backward(),
        ShapeError,
        "backward: shapes differ: gradient (), argument 0 (2,); they must be equal.",
    ),
    (
        lambda: autograd.Function.apply(X),
        NotImplementedError,
        "function: forward is missing; a subclass must define it.",
    ),
]


@pytest.mark.parametrize(("mistake", "kind", "message"), MISTAKES, ids=[m[2] for m in MISTAKES])
def test_mistakes_with_gradients(mistake, kind, message):
    with pytest.raises(kind) as caught:
        mistake()

    assert str(caught.value) == message


@pytest.mark.parametrize("kind", [GradientError, ShapeError, DTypeError])
def test_the_classes_are_those_of_pytorch(kind):
    assert issubclass(kind, RuntimeError)


def test_a_function_without_backward_says_so_when_it_is_needed():
    class Half(autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 0.5

    y = Half.apply(X)
    assert y.dtype is dtypes.float32

    with pytest.raises(NotImplementedError, match="function: backward is missing"):
        y.sum().backward()
