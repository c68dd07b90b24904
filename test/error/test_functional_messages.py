"""What a function refuses because of a dtype or a rank, in one sentence with the values."""

import pytest

from tinytensor.dtype import dtypes
from tinytensor.errors import DTypeError, IndexOutOfRange, ShapeError
from tinytensor.nn import functional
from tinytensor.tensor.tensor import Tensor

HALF = dtypes.float16


def zeros(*shape, dtype=dtypes.float32):
    return Tensor.zeros(*shape, dtype=dtype)


WHOLE, TRUTH = zeros(2, dtype=dtypes.int64), zeros(2, dtype=dtypes.bool)
ACTIVATIONS = """softplus logsigmoid elu celu selu leaky_relu hardsigmoid hardswish mish gelu
    silu"""
FLOAT = "it must be a float dtype. Use float() first."
NUMBER = "it must be an integer or float dtype."
DTYPE_MISTAKES = [
    *(
        (f"{name}: does not take int64; {FLOAT}", getattr(functional, name), (WHOLE,))
        for name in ACTIVATIONS.split()
    ),
    *(
        (f"{name}: does not take bool; {NUMBER}", getattr(functional, name), (TRUTH,))
        for name in ("softsign", "tanhshrink")
    ),
    *(
        (f"{name}: does not take bool; {NUMBER}", getattr(Tensor, name), (TRUTH,))
        for name in ("floor", "ceil", "trunc", "round", "argmax", "argmin")
    ),
    *(
        (f"{name}: does not take int64; {FLOAT}", getattr(functional, name), (WHOLE, WHOLE))
        for name in (
            "mse_loss",
            "smooth_l1_loss",
            "huber_loss",
            "kl_div",
            "cross_entropy",
            "nll_loss",
            "binary_cross_entropy",
            "binary_cross_entropy_with_logits",
        )
    ),
    (f"frac: does not take int64; {FLOAT}", Tensor.frac, (WHOLE,)),
    (f"addcmul: does not take bool; {NUMBER}", Tensor.addcmul, (TRUTH, TRUTH, TRUTH)),
    *(
        (
            f"{name}: an operand is no Tensor: float; it must be one. Use Tensor(...), or clamp.",
            getattr(Tensor, name),
            (zeros(2), 1.0),
        )
        for name in ("maximum", "minimum")
    ),
    (
        "linear: dtypes differ: float32, and float16 of the bias; they must be equal.",
        functional.linear,
        (zeros(2, 3), zeros(4, 3), zeros(4, dtype=HALF)),
    ),
]
SHAPE_MISTAKES = [
    (
        "linear: the bias does not expand: (2, 4) to (4,); "
        "aligned at the end, its sizes must be equal or 1.",
        functional.linear,
        (zeros(3), zeros(4, 3), zeros(2, 4)),
    ),
    (
        "attention: a tensor has no rows: (3,), (2, 3), (2, 3); ndim must be 2 or more.",
        functional.scaled_dot_product_attention,
        (zeros(3), zeros(2, 3), zeros(2, 3)),
    ),
    (
        "permute: not an order of all axes: (0, 1, 2) for shape (2, 3); "
        "each of the 2 axes must occur once.",
        Tensor.permute,
        (zeros(2, 3), 0, 1, 2),
    ),
    (
        "amax: nothing to choose from: axes (0,) of shape (0,); they must hold 1 element or more.",
        Tensor.amax,
        (zeros(0),),
    ),
]


@pytest.mark.parametrize(
    ("sentence", "function", "operands"), DTYPE_MISTAKES, ids=[each[0] for each in DTYPE_MISTAKES]
)
def test_a_dtype_is_refused(sentence, function, operands):
    with pytest.raises(DTypeError) as caught:
        function(*operands)

    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    ("sentence", "function", "operands"), SHAPE_MISTAKES, ids=[each[0] for each in SHAPE_MISTAKES]
)
def test_a_shape_is_refused(sentence, function, operands):
    with pytest.raises(ShapeError) as caught:
        function(*operands)

    assert str(caught.value) == sentence


def test_an_extreme_along_an_empty_axis_is_an_index_error():
    with pytest.raises(IndexOutOfRange):
        zeros(2, 0).amax(1)
