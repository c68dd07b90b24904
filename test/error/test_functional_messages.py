"""Mistakes with the functions of nn are refused in one sentence."""

import pytest

from tinytensor import Tensor, dtypes, optim
from tinytensor.errors import DTypeError, ShapeError, ValueOutOfRange
from tinytensor.nn import functional

zeros = Tensor.zeros


def attend(query, key=None, **options):
    key = query if key is None else key
    return functional.scaled_dot_product_attention(query, key, key, **options)


MISTAKES = [
    (
        ShapeError,
        lambda: attend(zeros(2, 3, 4), zeros(2, 3, 5)),
        "attention: inner sizes differ: a is (2, 3, 4), b is (2, 5, 3); a.shape[-1] must equal"
        " b.shape[-2].",
    ),
    (
        ShapeError,
        lambda: functional.layer_norm(zeros(2, 3), (3,), zeros(1, 3)),
        "layer_norm: a parameter does not fit: shape (1, 3); it must be (3,).",
    ),
    (
        ShapeError,
        lambda: functional.rms_norm(zeros(2, 3), (3,), zeros(1)),
        "rms_norm: a parameter does not fit: shape (1,); it must be (3,).",
    ),
    (
        ShapeError,
        lambda: functional.group_norm(zeros(2, 4), 2, None, zeros(1)),
        "group_norm: a parameter does not fit: shape (1,); it must be (4,).",
    ),
    (
        ShapeError,
        lambda: functional.batch_norm(zeros(2, 3), zeros(1), zeros(3)),
        "batch_norm: a parameter does not fit: shape (1,); it must be (3,).",
    ),
    (
        ShapeError,
        lambda: functional.conv2d(zeros(1, 1, 4, 4), zeros(4, 1, 3, 3), zeros(2, 2)),
        "conv2d: a parameter does not fit: shape (2, 2); it must be (4,).",
    ),
    (
        ShapeError,
        lambda: functional.cross_entropy(zeros(2, 3), Tensor([0, 1]), zeros(1)),
        "cross_entropy: a parameter does not fit: shape (1,); it must be (3,).",
    ),
    (
        DTypeError,
        lambda: functional.cross_entropy(zeros(2, 3), Tensor([0, 1]), Tensor([1, 2, 3])),
        "cross_entropy: dtypes differ: float32 and weight int64; they must be equal.",
    ),
    (
        ShapeError,
        lambda: functional.nll_loss(zeros(), Tensor(0)),
        "cross_entropy: shapes do not fit: () and (); the target's must be the input's without"
        " the classes.",
    ),
    (
        ShapeError,
        lambda: attend(zeros(2, 3, 4), attn_mask=zeros(3, 3), is_causal=True),
        "attention: both a mask and is_causal are given; there must be at most one.",
    ),
    (
        ShapeError,
        lambda: attend(zeros(1, 3, 2, 4), zeros(1, 2, 2, 4), enable_gqa=True),
        "attention: heads do not share: 3 of queries, 2 of keys; the first must be a multiple"
        " of the second.",
    ),
    (
        ShapeError,
        lambda: functional.conv2d(zeros(1, 1, 2, 2), zeros(1, 1, 3, 3)),
        "conv2d: the window is larger than its axis: 3 on 2; with dilation 1 at least one "
        "must fit.",
    ),
    (
        ShapeError,
        lambda: functional.conv2d(zeros(2, 2), zeros(1, 1, 3, 3)),
        "conv2d: axes do not fit: input (2, 2), weight (1, 1, 3, 3); ndim must be 4, of the "
        "input also 3.",
    ),
    (
        ShapeError,
        lambda: functional.conv2d(zeros(3, 4, 4), zeros(2, 2, 1, 1)),
        "conv2d: channels do not fit: input (3, 4, 4), weight (2, 2, 1, 1), groups 1; "
        "input.shape[-3] must be 1 times weight.shape[1].",
    ),
    (
        ShapeError,
        lambda: functional.conv1d(zeros(1, 3, 4), zeros(2, 2, 1), groups=2),
        "conv1d: channels do not fit: input (1, 3, 4), weight (2, 2, 1), groups 2; "
        "input.shape[-2] must be 2 times weight.shape[1].",
    ),
    (
        ValueError,
        lambda: functional.mse_loss(zeros(2), zeros(2), reduction="total"),
        "mse_loss: no such reduction: 'total'; it must be 'none', 'mean' or 'sum'.",
    ),
    (
        RuntimeError,
        lambda: functional.huber_loss(zeros(2), zeros(2), delta=0),
        "huber_loss: delta is not positive: 0; it must be above 0.",
    ),
    (
        ValueOutOfRange,
        lambda: functional.smooth_l1_loss(zeros(2), zeros(2), beta=-1),
        "smooth_l1_loss: beta is negative: -1; it must be 0 or more.",
    ),
    (
        ValueOutOfRange,
        lambda: functional.cross_entropy(
            zeros(2, 3), zeros(2, dtype=dtypes.int64), label_smoothing=2
        ),
        "cross_entropy: no such smoothing: 2; label_smoothing must be in 0 .. 1.",
    ),
    (
        ShapeError,
        lambda: functional.cross_entropy(zeros(2, 3), zeros(2)),
        "cross_entropy: shapes differ: (2, 3) and (2,); they must be equal.",
    ),
    (
        DTypeError,
        lambda: functional.nll_loss(zeros(2, 3), zeros(2)),
        "cross_entropy: the target holds no indices: float32; it must be an integer dtype, or"
        " float probabilities.",
    ),
    (
        ShapeError,
        lambda: functional.cross_entropy(zeros(2, 3), zeros(3, dtype=dtypes.int64)),
        "cross_entropy: shapes do not fit: (2, 3) and (3,); the target's must be the input's "
        "without the classes.",
    ),
    (
        ShapeError,
        lambda: functional.layer_norm(zeros(2, 3), (4,)),
        "layer_norm: the last axes are not those to fold: (2, 3) and (4,); the shape must end"
        " with all of normalized_shape.",
    ),
    (
        ShapeError,
        lambda: functional.group_norm(zeros(2, 3), 2),
        "group_norm: channels do not form groups: (2, 3) in 2; shape[1] must be a multiple of"
        " the number of groups.",
    ),
    (
        ShapeError,
        lambda: functional.batch_norm(zeros(1, 3), zeros(3), zeros(3), training=True),
        "batch_norm: one value a channel has no variance: shape (1, 3); training needs 2 or more.",
    ),
    (
        ShapeError,
        lambda: functional.max_pool2d(zeros(1, 1, 4, 4), 2, padding=2),
        "max_pool2d: the padding is more than half of the window: 2 of 2; each window must "
        "hold an element.",
    ),
    (
        DTypeError,
        lambda: functional.linear(zeros(2, 3), zeros(4, 3, dtype=dtypes.float64)),
        "linear: dtypes do not multiply: a is float32, b is float64; they must be equal and "
        "not bool.",
    ),
    (
        ShapeError,
        lambda: functional.linear(zeros(2, 3), zeros(4, 3), zeros(2, 2, 4)),
        "linear: the bias does not expand: (2, 2, 4) to (2, 4); aligned at the end, its sizes"
        " must be equal or 1.",
    ),
    (
        DTypeError,
        lambda: attend(zeros(2, 3), zeros(2, 3, dtype=dtypes.float64)),
        "attention: dtypes are not those of one computation: float32, float64, float64; they "
        "must be equal and float.",
    ),
    (
        ShapeError,
        lambda: attend(zeros(3)),
        "attention: a tensor has no rows: (3,), (3,), (3,); ndim must be 2 or more.",
    ),
    (
        TypeError,
        lambda: optim.lr_scheduler.StepLR(3, 1),
        "StepLR: no Optimizer: int; it must be one.",
    ),
]


@pytest.mark.parametrize(("error", "mistake", "sentence"), MISTAKES)
def test_a_mistake_with_a_function_of_nn_is_refused(error, mistake, sentence):
    with pytest.raises(error) as caught:
        mistake()

    assert type(caught.value) is error
    assert str(caught.value) == sentence
