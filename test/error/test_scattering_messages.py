"""Mistakes with writes at computed places are refused in one sentence with the values."""

import pytest

from tinytensor import Tensor
from tinytensor.errors import DTypeError, IndexOutOfRange, ShapeError, ValueOutOfRange
from tinytensor.nn import functional

X = Tensor.zeros(2, 3)
ROWS = Tensor([0, 1])
ONE = Tensor([[0]])
WHOLE = Tensor([[1, 2, 3]])

MISTAKES = [
    (
        lambda: X.scatter(0, ONE),
        TypeError,
        "scatter: nothing to write: None; src or value must be given.",
    ),
    (
        lambda: X.scatter(0, ONE, 1.0, reduce="sum"),
        ValueOutOfRange,
        "scatter: no such reduction: 'sum'; it must be 'add' or 'multiply'.",
    ),
    (
        lambda: X.scatter_reduce(0, ONE, X, "add"),
        ValueOutOfRange,
        "scatter_reduce: no such reduction: 'add'; "
        "it must be one of 'sum', 'prod', 'mean', 'amax', 'amin'.",
    ),
    (
        lambda: X.bool().scatter_reduce(0, ONE, X.bool(), "mean"),
        DTypeError,
        "scatter_reduce: bools have no mean: dtype is bool; it must be a number's.",
    ),
    (
        lambda: X.scatter(0, ONE, WHOLE),
        DTypeError,
        "scatter: dtypes differ: float32 and source int64; they must be equal.",
    ),
    (
        lambda: X.scatter_add(0, Tensor([[0, 0, 0, 0]]), Tensor.zeros(1, 4)),
        ShapeError,
        "scatter_add: the index does not fit: (1, 4) for shape (2, 3) and source (1, 4); "
        "it must have as many axes and be nowhere longer, but for the first along 0.",
    ),
    (
        lambda: X.scatter(0, X, 1.0),
        DTypeError,
        "scatter: cannot be an index: dtype is float32; it must be int32 or int64.",
    ),
    (
        lambda: X.index_add(0, ONE, X),
        IndexOutOfRange,
        "index_add: the index has several axes: shape (1, 1); it must be 1-d.",
    ),
    (
        lambda: X.index_add(0, ROWS, Tensor.zeros(1, 3)),
        ShapeError,
        "index_add: the source does not fit: (1, 3) for shape (2, 3); "
        "it must have this shape with 2 slices along axis 0.",
    ),
    (
        lambda: X.index_copy(0, ROWS, Tensor.zeros(1, 3)),
        IndexOutOfRange,
        "index_copy: the source does not fit: (1, 3) for shape (2, 3); "
        "it must have this shape with 2 slices along axis 0.",
    ),
    (
        lambda: X.index_fill(0, ROWS, Tensor([1.0])),
        ShapeError,
        "index_fill: the value has axes: shape (1,); it must be a number or 0-d.",
    ),
    (
        lambda: X.put(ROWS, Tensor([1.0])),
        IndexOutOfRange,
        "put: numbers of elements differ: (1,) and (2,); source and index must hold as many.",
    ),
    (
        lambda: X.index_put((ROWS,), Tensor.zeros(1, 2, 3)),
        ShapeError,
        "index_put: the values do not fit: (1, 2, 3) for (2, 3); they must broadcast to it.",
    ),
    (
        lambda: Tensor.zeros(2, 3).__setitem__(ROWS, Tensor(1)),
        DTypeError,
        "setitem: dtypes differ: float32 and source int64; they must be equal.",
    ),
    (
        lambda: Tensor.zeros(2, 3).__setitem__(ROWS, Tensor.zeros(2, 2, 3)),
        ShapeError,
        "setitem: the values do not fit: (2, 2, 3) for (2, 3); they must broadcast to it.",
    ),
    (
        lambda: Tensor.zeros(2, 3).__setitem__(ROWS, [1.0]),
        TypeError,
        "setitem: value cannot be this: list [1.0]; it must be a Tensor or a number.",
    ),
    (
        lambda: Tensor.zeros(2, 3).__setitem__(Tensor([True, False, True]), 1.0),
        IndexOutOfRange,
        "index: a mask does not fit: 3 on axis 0 of extent 2; they must be equal.",
    ),
    (
        lambda: Tensor.zeros(2, 3).masked_fill_(Tensor.zeros(4, 2, 3) > 0, 1.0),
        ShapeError,
        "masked_fill_: the result has another shape: (4, 2, 3) for (2, 3); "
        "a tensor that is written is not broadcast.",
    ),
    (
        lambda: X.masked_fill(ROWS, 1.0),
        DTypeError,
        "masked_fill: the mask is no bool: dtype is int64; it must be bool.",
    ),
    (
        lambda: WHOLE.masked_fill(WHOLE > 1, float("inf")),
        DTypeError,
        "masked_fill: the value does not fit the dtype: inf in int64; "
        "it must be in -9223372036854775808 .. 9223372036854775807.",
    ),
    (
        lambda: functional.embedding(ROWS, Tensor([1.0])),
        ShapeError,
        "embedding: the weight is no table: shape (1,); ndim must be 2.",
    ),
    (
        lambda: functional.embedding(ROWS, X, padding_idx=2),
        ValueError,
        "embedding: padding_idx is out of range: 2 for 2 rows; it must be in -2 .. 1.",
    ),
]


@pytest.mark.parametrize(("mistake", "error", "sentence"), MISTAKES)
def test_a_mistake(mistake, error, sentence):
    with pytest.raises(error) as caught:
        mistake()

    assert str(caught.value) == sentence
