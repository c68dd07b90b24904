"""Mistakes with parts, products and sums of tensors are refused in one sentence."""

import math

import pytest

import tinytensor
from tinytensor import Tensor, dtypes
from tinytensor.errors import DTypeError, IndexOutOfRange, ShapeError, ValueOutOfRange

zeros = Tensor.zeros


MISTAKES = [
    (
        ShapeError,
        lambda: zeros(2, 2, 2).t(),
        "t: no matrix: shape (2, 2, 2); ndim must be 2 or less. Use transpose.",
    ),
    (
        ShapeError,
        lambda: zeros(2, 3).movedim((0, 1), (0,)),
        "movedim: dims do not pair: (0, 1) and (0,); there must be as many of each, none of "
        "them twice.",
    ),
    (
        ShapeError,
        lambda: zeros(2).rot90(),
        "rot90: no plane: dims (0, 1) of shape (2,); there must be two different axes.",
    ),
    (
        IndexOutOfRange,
        lambda: zeros().repeat_interleave(2, 0),
        "repeat_interleave: a 0-d tensor has no axes: dim is 0; leave it out.",
    ),
    (
        ShapeError,
        lambda: zeros(2, 3).rot90(1, (0, 0)),
        "rot90: no plane: dims (0, 0) of shape (2, 3); there must be two different axes.",
    ),
    (
        DTypeError,
        lambda: zeros(2).lerp(zeros(2, dtype=dtypes.float64), 0.5),
        "lerp: dtypes differ: float32 and float64; they must be equal.",
    ),
    (
        DTypeError,
        lambda: zeros(2, dtype=dtypes.int64).addcdiv(
            zeros(2, dtype=dtypes.int64), zeros(2, dtype=dtypes.int64)
        ),
        "addcdiv: does not divide int64 by int64; one must be a float. Use div with rounding_mode.",
    ),
    (
        ValueOutOfRange,
        lambda: zeros(2).div(zeros(2), rounding_mode="up"),
        "div: no such rounding mode: 'up'; it must be None, 'trunc' or 'floor'.",
    ),
    (
        ShapeError,
        lambda: zeros(2, 2, 2).diag(),
        "diag: neither a vector nor a matrix: shape (2, 2, 2); ndim must be 1 or 2.",
    ),
    (
        ShapeError,
        lambda: zeros(2).pad((3, 0), mode="reflect"),
        "pad: the border is wider than its source: (3, 0) of 2; 'reflect' reaches 1 elements.",
    ),
    (
        ValueOutOfRange,
        lambda: Tensor.meshgrid(zeros(2), indexing="ji"),
        "meshgrid: no such indexing: 'ji'; it must be 'ij' or 'xy'.",
    ),
    (
        ShapeError,
        lambda: Tensor.meshgrid(zeros(2, 2)),
        "meshgrid: not all are vectors: [(2, 2)]; ndim must be 1 or less.",
    ),
    (
        ShapeError,
        lambda: zeros(2).mm(zeros(2, 2)),
        "mm: ranks are not those of this product: a is (2,), b is (2, 2); they must have ndim"
        " 2 and 2.",
    ),
    (
        ShapeError,
        lambda: zeros(3, 5).addmm(zeros(2, 3), zeros(3, 4)),
        "addmm: shapes do not broadcast: (3, 5) and (2, 4); aligned at the end, sizes must be"
        " equal or 1.",
    ),
    (
        DTypeError,
        lambda: zeros(2).isclose(zeros(2, dtype=dtypes.float64)),
        "isclose: dtypes differ: float32 and float64; they must be equal.",
    ),
    (
        ShapeError,
        lambda: zeros(2).dot(zeros(2, 2)),
        "dot: ranks are not those of this product: a is (2,), b is (2, 2); they must have "
        "ndim 1 and 1.",
    ),
    (
        ShapeError,
        lambda: zeros(2).inner(zeros(3)),
        "inner: last sizes differ: (2,) and (3,); they must be equal.",
    ),
    (
        ShapeError,
        lambda: zeros(2).outer(zeros(2, 2)),
        "outer: not two vectors: shapes (2,) and (2, 2); both must have ndim 1.",
    ),
    (
        ShapeError,
        lambda: zeros(2).trace(),
        "trace: no matrix: shape (2,); ndim must be 2.",
    ),
    (
        ShapeError,
        lambda: zeros().narrow(0, 0, 1),
        "narrow: a 0-d tensor has no axis to take parts of: dim is 0; ndim must be 1 or more.",
    ),
    (
        ShapeError,
        lambda: zeros(3).narrow(0, 2, 2),
        "narrow: not within the axis: 2 from 2 of extent 3; all must be elements of it.",
    ),
    (
        ShapeError,
        lambda: zeros(3).split([1, 1]),
        "split: sizes do not fill the axis: (1, 1) for extent 3; their sum must be the extent.",
    ),
    (
        ShapeError,
        lambda: zeros(3).unfold(0, 4, 1),
        "unfold: no such window: size 4, step 1 on extent 3; 1 <= size <= extent, and the "
        "step must be 1 or more.",
    ),
    (
        ShapeError,
        lambda: zeros(2, 2).diagonal(0, 1, 1),
        "diagonal: both axes are the same: 1 and 1; they must be different.",
    ),
    (
        ValueOutOfRange,
        lambda: zeros(2, 2).norm("nuc"),
        "norm: no such norm: 'nuc'; it must be a number or 'fro'.",
    ),
    (
        ShapeError,
        lambda: zeros(0).norm(math.inf),
        "norm: nothing to choose from: axes (0,) of shape (0,); they must hold 1 element or more.",
    ),
    (
        ShapeError,
        lambda: zeros(2, 3).roll((1, 2), 0),
        "roll: shifts and dims do not pair: (1, 2) and (0,); there must be as many of each.",
    ),
    (
        ShapeError,
        lambda: zeros().index_add_(0, zeros(1, dtype=dtypes.int64), zeros(1)),
        "index_add: the source does not fit: (1,) for shape (); it must have this shape with "
        "1 slices along axis 0.",
    ),
    (
        AttributeError,
        lambda: zeros(2) == tinytensor.no_such_name,
        "tinytensor: no such name: 'no_such_name'; see tinytensor.functions.NAMES.",
    ),
    (
        ShapeError,
        lambda: zeros(2).addmm(zeros(2, 3), zeros(3)),
        "addmm: shapes are not those of this product: a is (2, 3), b is (3,); both must have "
        "ndim 2 and the same batch.",
    ),
    (
        ShapeError,
        lambda: zeros(2, 1, 4).addmm(zeros(2, 3), zeros(3, 4)),
        "addmm: does not expand to the product: (2, 1, 4) to (2, 4); aligned at the end, its "
        "sizes must be equal or 1.",
    ),
    (
        TypeError,
        lambda: zeros(2).maximum(3),
        "maximum: other cannot be this: int 3; it must be a Tensor.",
    ),
    (
        ShapeError,
        lambda: tinytensor.einsum("ij,jk->ik", zeros(2, 3)),
        "einsum: operands and subscripts differ: 1 and 2 in 'ij,jk->ik'; there must be as "
        "many of each.",
    ),
    (
        ShapeError,
        lambda: tinytensor.einsum("ij->ji", zeros(2, 3, 4)),
        "einsum: subscripts do not name the axes: 'ij' for ndim 3; there must be a letter for"
        " each axis, or '...' for several.",
    ),
    (
        ShapeError,
        lambda: tinytensor.tensordot(zeros(()), zeros(3, 2), dims=1),
        "tensordot: axes do not pair: [(-1,), (0,)] of shapes () and (3, 2); "
        "there must be as many of each.",
    ),
    (
        ShapeError,
        lambda: tinytensor.tensordot(zeros(2, 3), zeros(3, 2), dims=-1),
        "tensordot: a size is negative: (-1,); all must be 0 or more.",
    ),
    (
        ShapeError,
        lambda: Tensor([0, 1]).one_hot(-2),
        "one_hot: a size is negative: (-2,); all must be 0 or more.",
    ),
    (
        ShapeError,
        lambda: zeros(2, 3).rot90(1, [0]),
        "rot90: no plane: dims (0,) of shape (2, 3); there must be two different axes.",
    ),
    (
        ShapeError,
        lambda: zeros(2, 3).linear(zeros(2, 3, 1)),
        "t: no matrix: shape (2, 3, 1); ndim must be 2 or less. Use transpose.",
    ),
    (
        ShapeError,
        lambda: zeros(2, 3).bernoulli_(zeros(2)),
        "bernoulli_: shapes do not broadcast: (2, 3) and (2,); aligned at the end, sizes must be "
        "equal or 1.",
    ),
    (
        ShapeError,
        lambda: zeros(2, 3).bernoulli_(zeros(2, 2, 3)),
        "bernoulli_: the values do not fit: shape (2, 2, 3) into (2, 3); "
        "a tensor that is written is not broadcast.",
    ),
    (
        ValueOutOfRange,
        lambda: zeros(2).isclose(zeros(2), rtol=-1),
        "isclose: a tolerance is no distance: rtol -1, atol 1e-08; both must be 0 or more.",
    ),
    (
        ShapeError,
        lambda: zeros(2, 3).repeat_interleave(Tensor([1, 2, 3]), 0),
        "repeat_interleave: repeats do not fit: shape (3,) for 2 indices; "
        "there must be one for each, or one.",
    ),
    (
        ValueOutOfRange,
        lambda: zeros(2).repeat_interleave(Tensor([1, -2])),
        "repeat_interleave: a number of repeats is negative: -2; all must be 0 or more.",
    ),
    (
        DTypeError,
        lambda: zeros(2).repeat_interleave(zeros(2)),
        "repeat_interleave: repeats are no counts: dtype is float32; it must be int32 or int64.",
    ),
    (
        ValueOutOfRange,
        lambda: zeros(2).repeat_interleave(2, output_size=5),
        "repeat_interleave: output_size is not that of the result: 5; it must be 4.",
    ),
    (
        ShapeError,
        lambda: tinytensor.tensordot(zeros(2, 3), zeros(3, 2), dims=([0, 1], [0])),
        "tensordot: axes do not pair: [(0, 1), (0,)] of shapes (2, 3) and (3, 2); "
        "there must be as many of each.",
    ),
    (
        ShapeError,
        lambda: tinytensor.tensordot(zeros(2, 3), zeros(4, 2), dims=1),
        "tensordot: summed sizes differ: (2, 3) and (4, 2); axes 1 and 0 must have equal extents.",
    ),
]


@pytest.mark.parametrize(("error", "mistake", "sentence"), MISTAKES)
def test_a_mistake_with_a_tensor_is_refused(error, mistake, sentence):
    with pytest.raises(error) as caught:
        mistake()

    assert type(caught.value) is error
    assert str(caught.value) == sentence
