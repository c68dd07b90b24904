"""Writes that cannot be done are refused before anything is written, in one sentence."""

import pytest

from tinytensor import Tensor
from tinytensor.dtype import dtypes
from tinytensor.errors import DTypeError, GradientError, ShapeError, ValueOutOfRange


def zeros(*shape, dtype=dtypes.float32):
    return Tensor.zeros(*shape, dtype=dtype)


LEAF = Tensor([1.0, 2.0], requires_grad=True)

MISTAKES = [
    (
        GradientError,
        lambda: LEAF.add_(1),
        "add_: a leaf that requires a gradient is written: shape (2,); "
        "gradients must be off. Use no_grad().",
    ),
    (
        GradientError,
        lambda: LEAF.__setitem__(0, 1),
        "setitem: a leaf that requires a gradient is written: shape (); "
        "gradients must be off. Use no_grad().",
    ),
    (
        GradientError,
        lambda: LEAF.unsqueeze_(0),
        "unsqueeze_: a leaf that requires a gradient changes shape: (2,); "
        "it must not be one. Use the method without _.",
    ),
    (
        ShapeError,
        lambda: zeros(3).expand(2, 3).add_(1),
        "add_: elements share memory: shape (2, 3), strides (0, 1); "
        "each must have a place of its own. Use clone() first.",
    ),
    (
        ShapeError,
        lambda: zeros(4).unfold(0, 2, 1).zero_().add_(1),
        "add_: elements share memory: shape (3, 2), strides (1, 1); "
        "each must have a place of its own. Use clone() first.",
    ),
    (
        ShapeError,
        lambda: zeros(3).mul_(zeros(2, 3)),
        "mul_: the result has another shape: (2, 3) for (3,); "
        "a tensor that is written is not broadcast.",
    ),
    (
        ShapeError,
        lambda: zeros(3).copy_(zeros(1, 3)),
        "copy_: the values do not fit: shape (1, 3) into (3,); "
        "a tensor that is written is not broadcast.",
    ),
    (
        ShapeError,
        lambda: zeros(3).__setitem__(slice(2), zeros(3)),
        "setitem: shapes do not broadcast: (2,) and (3,); "
        "aligned at the end, sizes must be equal or 1.",
    ),
    (
        ShapeError,
        lambda: zeros(3).fill_(zeros(1)),
        "fill_: the value has axes: shape (1,); it must be a number or 0-d. Use copy_.",
    ),
    (
        ShapeError,
        lambda: zeros(2, 3).T.view(6),
        "view: no strides give (6,): shape (3, 2), (1, 3); "
        "they must give the elements in order. Use reshape.",
    ),
    (
        DTypeError,
        lambda: zeros(2, dtype=dtypes.int32).mul_(1.5),
        "mul_: a result of float32 is no int32; it must be of a kind that the tensor holds.",
    ),
    (
        DTypeError,
        lambda: zeros(2, dtype=dtypes.bool).add_(1),
        "add_: a result of int64 is no bool; it must be of a kind that the tensor holds.",
    ),
    (
        DTypeError,
        lambda: zeros(2, dtype=dtypes.int8).fill_(300),
        "fill_: the value does not fit the dtype: 300 in int8; it must be in -128 .. 127.",
    ),
    (
        DTypeError,
        lambda: zeros(2, dtype=dtypes.int64).normal_(),
        "normal_: does not take int64; it must be a float dtype. Use float() first.",
    ),
    (
        TypeError,
        lambda: zeros(2).__setitem__(0, [1.0]),
        "setitem: value cannot be this: list [1.0]; it must be a Tensor or a number.",
    ),
    (
        ValueOutOfRange,
        lambda: zeros(2).normal_(0, -1),
        "normal_: the standard deviation is negative: -1; it must be 0 or more.",
    ),
    (
        ValueOutOfRange,
        lambda: zeros(2).uniform_(2, 1),
        "uniform_: there is no number to choose: 2 .. 1; "
        "the first bound must not be above the second.",
    ),
    (
        ValueOutOfRange,
        lambda: zeros(2).bernoulli_(2),
        "bernoulli_: p is no probability: 2; it must be in 0 .. 1.",
    ),
    (
        ValueOutOfRange,
        lambda: zeros(2).random_(3, 3),
        "random_: there is no integer to choose: 3 .. 2; the first bound must be below the second.",
    ),
]


@pytest.mark.parametrize(("error", "mistake", "sentence"), MISTAKES)
def test_the_sentence_names_the_values(error, mistake, sentence):
    with pytest.raises(error) as caught:
        mistake()

    assert str(caught.value) == sentence
