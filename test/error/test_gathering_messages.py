"""Mistakes with index tensors are refused in one sentence with the values."""

import pytest

from tinytensor import Tensor, dtypes
from tinytensor.errors import DTypeError, IndexOutOfRange, InternalError, ShapeError
from tinytensor.ops.attrs import GatherAttrs
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp

X = Tensor.zeros(2, 3)
ROWS = Tensor([0, 1])
HALVES = Tensor([0.5])

MISTAKES = [
    (
        lambda: X.gather(0, ROWS),
        ShapeError,
        "gather: the index does not fit: (2,) for shape (2, 3); "
        "there must be as many axes, and none but axis 0 longer.",
    ),
    (
        lambda: X.gather(0, HALVES),
        DTypeError,
        "gather: cannot be an index: dtype is float32; it must be int32 or int64.",
    ),
    (
        lambda: X.index_select(0, Tensor([[0]])),
        IndexOutOfRange,
        "index_select: the index has several axes: shape (1, 1); it must be 1-d.",
    ),
    (
        lambda: Tensor(1.0).index_select(0, ROWS),
        ShapeError,
        "index_select: a 0-d tensor has one element: index of 2; it must hold exactly 1.",
    ),
    (
        lambda: X.take_along_dim(ROWS, 0),
        ShapeError,
        "take_along_dim: ndim differs: (2, 3) and indices (2,); they must have as many axes.",
    ),
    (
        lambda: X.masked_select(ROWS),
        DTypeError,
        "masked_select: the mask is no bool: dtype is int64; it must be bool.",
    ),
    (
        lambda: HALVES.one_hot(),
        DTypeError,
        "one_hot: the classes are not int64: dtype is float32; it must be int64.",
    ),
    (
        lambda: Tensor.zeros(0, dtype=dtypes.int64).one_hot(),
        ShapeError,
        "one_hot: no class shows their number: shape (0,); num_classes must be given.",
    ),
    (
        lambda: X[HALVES],
        IndexOutOfRange,
        "index: does not take a tensor of float32 (1,); "
        "it must be int32, int64, or bool with axes.",
    ),
    (
        lambda: X[:, Tensor([True, False])],
        IndexOutOfRange,
        "index: a mask does not fit: 2 on axis 1 of extent 3; they must be equal.",
    ),
    (
        lambda: X[ROWS, Tensor([0, 1, 2])],
        IndexOutOfRange,
        "index: shapes do not broadcast: (2,) and (3,); "
        "aligned at the end, sizes must be equal or 1.",
    ),
    (
        lambda: Tensor.zeros(0, 3)[ROWS],
        IndexOutOfRange,
        "index: there is no index: axis 0 has extent 0; the indices must be empty.",
    ),
    (
        lambda: UOp(Op.GATHER, dtypes.float32, (X.uop, ROWS.uop), GatherAttrs((0,))),
        InternalError,
        "gather: number of axes differs: dtype float32, operands (float32(2, 3), int64(2,)), "
        "attrs GatherAttrs(axes=(0,)).",
    ),
    (
        lambda: UOp(Op.GATHER, dtypes.float32, (X.uop, X.uop), GatherAttrs((0,))),
        InternalError,
        "gather: indices differ or are no ints: dtype float32, operands "
        "(float32(2, 3), float32(2, 3)), attrs GatherAttrs(axes=(0,)).",
    ),
]


@pytest.mark.parametrize(
    ("mistake", "error", "sentence"), MISTAKES, ids=[each[2].split(";")[0] for each in MISTAKES]
)
def test_a_mistake_is_named(mistake, error, sentence):
    with pytest.raises(error) as caught:
        mistake()

    assert str(caught.value) == sentence


def test_an_index_out_of_range_is_named_with_the_line():
    found = X.index_select(1, Tensor([0, 7]))

    with pytest.raises(IndexOutOfRange) as caught:
        found.tolist()

    sentence, line = str(caught.value).split("\n")
    assert sentence == (
        "index_select: an index is out of range: 7 on axis 1 of extent 3; it must be in 0 .. 2."
    )
    assert line.startswith("while computing the value made at ")
    assert line.endswith("found = X.index_select(1, Tensor([0, 7]))")
