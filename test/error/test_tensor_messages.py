"""Mistakes with tensors are refused at the door, in one sentence with the values."""

import math
import operator

import numpy as np
import pytest

from tinytensor import functions
from tinytensor.dtype import dtypes
from tinytensor.errors import DeviceError, DTypeError, IndexOutOfRange, ShapeError
from tinytensor.tensor.tensor import Tensor


def zeros(*shape, dtype=dtypes.float32, device="CPU"):
    return Tensor.zeros(*shape, dtype=dtype, device=device)


WHOLE, TRUTH = zeros(2, dtype=dtypes.int64), zeros(2, dtype=dtypes.bool)

SHAPE_MISTAKES = [
    (
        lambda: Tensor([[1, 2], [3]]),
        "tensor: nested lists are ragged: lengths differ at one depth; they must be equal.",
    ),
    (
        lambda: zeros(2, -1),
        "zeros: a size is negative: (2, -1); all must be 0 or more.",
    ),
    (
        lambda: zeros(2, 3) + zeros(2),
        "add: shapes do not broadcast: (2, 3) and (2,); "
        "aligned at the end, sizes must be equal or 1.",
    ),
    (
        lambda: zeros(2, 3).where(zeros(4, dtype=dtypes.bool), 0.0),
        "where: shapes do not broadcast: (4,) and (2, 3); "
        "aligned at the end, sizes must be equal or 1.",
    ),
    (
        lambda: zeros(2, 3).reshape(4, 2),
        "reshape: numbers of elements differ: shape (2, 3) holds 6, sizes are (4, 2); "
        "they must hold as many.",
    ),
    (
        lambda: zeros(2, 3).reshape(-1, -1),
        "reshape: sizes are not clear: (-1, -1); at most one may be -1.",
    ),
    (
        lambda: zeros(0).reshape(-1, 0),
        "reshape: -1 could be any size: (-1, 0) for shape (0,); no other size may be 0.",
    ),
    (
        lambda: zeros(2, 3).permute(0, 0),
        "permute: not an order of all axes: (0, 0) for shape (2, 3); "
        "each of the 2 axes must occur once.",
    ),
    (
        lambda: zeros(2).mT,
        "mT: no matrix: shape (2,); ndim must be 2 or more.",
    ),
    (
        lambda: zeros(2).expand(3),
        "expand: sizes do not fit: (3,) for shape (2,); "
        "aligned at the end, only axes of extent 1 may change.",
    ),
    (
        lambda: zeros(2).expand(-1, 2),
        "expand: sizes do not fit: (-1, 2) for shape (2,); "
        "aligned at the end, only axes of extent 1 may change.",
    ),
    (
        lambda: zeros(2, 3).flatten(1, 0),
        "flatten: the dims are in the wrong order: 1 and 0; start_dim must not come after end_dim.",
    ),
    (
        lambda: zeros(2).flip(0, -1),
        "flip: a dim is given twice: (0, -1); each must occur once.",
    ),
    (
        lambda: zeros(2, 3).sum((1, 1)),
        "sum: a dim is given twice: (1, 1); each must occur once.",
    ),
    (
        lambda: zeros(2).pad((1, 1, 1)),
        "pad: sizes do not pair with axes: (1, 1, 1) for shape (2,); "
        "there must be two an axis, for at most all axes.",
    ),
    (
        lambda: zeros(2).pad((-1, -2)),
        "pad: crops more than there is: -1 and -2 of 2; an axis must keep 0 elements or more.",
    ),
    (
        lambda: zeros(4)[::-1],
        "index: the step of a slice is not positive: -1; it must be 1 or more. Use flip.",
    ),
    (
        lambda: Tensor.cat([]),
        "cat: no tensors are given: 0; there must be 1 or more.",
    ),
    (
        lambda: Tensor.cat([zeros(), zeros()]),
        "cat: a 0-d tensor has no axis to join: shape (); ndim must be 1 or more. Use stack.",
    ),
    (
        lambda: Tensor.cat([zeros(1), zeros()]),
        "cat: shapes differ beyond axis 0: (1,) and (); all other axes must be equal.",
    ),
    (
        lambda: Tensor.cat([zeros(2, 3), zeros(2)], dim=1),
        "cat: shapes differ beyond axis 1: (2, 3) and (2,); all other axes must be equal.",
    ),
    (
        lambda: Tensor.cat([zeros(2, 3), zeros(2, 4)]),
        "cat: shapes differ beyond axis 0: (2, 3) and (2, 4); all other axes must be equal.",
    ),
    (
        lambda: Tensor.stack([zeros(2), zeros(3)]),
        "stack: shapes differ: (2,) and (3,); all must be equal.",
    ),
    (
        lambda: zeros(64, 128) @ zeros(96, 32),
        "matmul: inner sizes differ: a is (64, 128), b is (96, 32); "
        "a.shape[-1] must equal b.shape[-2].",
    ),
    (
        lambda: zeros(2, 3, 4) @ zeros(5, 4, 2),
        "matmul: shapes do not broadcast: (2,) and (5,); "
        "aligned at the end, sizes must be equal or 1.",
    ),
    (
        lambda: zeros() @ zeros(2),
        "matmul: an operand is 0-d: a is (), b is (2,); ndim must be 1 or more.",
    ),
    (
        lambda: zeros(2, 3).mm(zeros(3)),
        "mm: ranks are not those of this product: a is (2, 3), b is (3,); "
        "they must have ndim 2 and 2.",
    ),
    (
        lambda: zeros(1, 2, 3).bmm(zeros(4, 3, 2)),
        "bmm: batches differ: a is (1, 2, 3), b is (4, 3, 2); a.shape[0] must equal b.shape[0].",
    ),
    (
        lambda: Tensor.arange(5, 0),
        "arange: the step leads away from the end: 5 .. 0 by 1; "
        "its sign must be that of end - start.",
    ),
    (
        lambda: Tensor.arange(0, 5, 0),
        "arange: a bound or the step is unusable: 0 .. 5 by 0; "
        "all must be finite and the step not 0.",
    ),
    (
        lambda: bool(zeros(2)),
        "bool: the truth of several values is ambiguous: shape (2,); "
        "it must hold exactly 1. Use any() or all().",
    ),
    (
        lambda: zeros(2).item(),
        "item: the tensor has not one element: shape (2,); it must hold exactly 1.",
    ),
]

DTYPE_MISTAKES = [
    (
        lambda: zeros(1) + 10**400,
        f"add: the value does not fit the dtype: {10**400} in int64; "
        f"it must be in {-(2**63)} .. {2**63 - 1}.",
    ),
    (
        lambda: Tensor("text"),
        "tensor: cannot be made from this: str; "
        "it must be a number, lists, a NumPy array or a Tensor.",
    ),
    (
        lambda: Tensor([zeros(2), zeros(2)]),
        "tensor: an element of the list has axes: shape (2,); "
        "all must be numbers or 0-d. Use stack.",
    ),
    (
        lambda: Tensor([None]),
        "tensor: an element is no number: NumPy reads the lists as object; "
        "all must be bool, int or float. Use stack for tensors.",
    ),
    (
        lambda: Tensor([300], dtype=dtypes.uint8),
        "tensor: the value does not fit the dtype: 300 in uint8; it must be in 0 .. 255.",
    ),
    (
        lambda: Tensor.full((2,), math.nan, dtype=dtypes.int8),
        "full: the value does not fit the dtype: nan in int8; it must be in -128 .. 127.",
    ),
    (
        lambda: Tensor(np.zeros(2, complex)),
        "dtype: no type for NumPy's complex128; known are bool, uint8, uint16, uint32, uint64, "
        "int8, int16, int32, int64, float8_e4m3fn, float8_e5m2, float16, bfloat16, float32, "
        "float64.",
    ),
    (
        lambda: Tensor([1], requires_grad=True),
        "tensor: only floats can require a gradient: dtype is int64; it must be a float dtype.",
    ),
    (
        lambda: WHOLE + "text",
        "add: an operand is neither a Tensor nor a number: str; "
        "it must be one of them. Use Tensor(...).",
    ),
    (
        lambda: WHOLE + 2**63,
        "add: the value does not fit the dtype: 9223372036854775808 in int64; "
        "it must be in -9223372036854775808 .. 9223372036854775807.",
    ),
    (
        lambda: TRUTH - TRUTH,
        "sub: does not take bool; it must be an integer or float dtype.",
    ),
    (
        lambda: -TRUTH,
        "neg: does not take bool; it must be an integer or float dtype.",
    ),
    (
        lambda: zeros(2) & 1,
        "bitwise_and: does not take float32; it must be an integer dtype or bool.",
    ),
    (
        lambda: TRUTH << TRUTH,
        "lshift: does not take bool; it must be an integer dtype.",
    ),
    (
        lambda: WHOLE.cast(dtypes.uint64) + WHOLE,
        "promote: no integer type covers both: uint64 and int64; cast one of them first.",
    ),
    (
        lambda: Tensor([True]) ** Tensor([True]),
        "pow: does not take bool; it must be an integer or float dtype.",
    ),
    (
        lambda: WHOLE**-1,
        "pow: an integer has no negative power: int64 ** -1; the exponent must be 0 or more.",
    ),
    (
        lambda: WHOLE.mean(),
        "mean: does not take int64; it must be a float dtype. Use float() first.",
    ),
    (
        lambda: WHOLE.softmax(0),
        "softmax: does not take int64; it must be a float dtype. Use float() first.",
    ),
    (
        lambda: zeros(2).where(WHOLE, 0.0),
        "where: the condition is not bool: int64; it must be bool.",
    ),
    (
        lambda: zeros(2) @ WHOLE,
        "matmul: dtypes do not multiply: a is float32, b is int64; "
        "they must be equal and not bool.",
    ),
]

INDEX_MISTAKES = [
    (
        lambda: zeros(2, 3).sum(2),
        "sum: dim is out of range: 2 for a tensor with ndim 2; it must be in -2 .. 1.",
    ),
    (
        lambda: zeros().sum(1),
        "sum: dim is out of range: 1 for a tensor with ndim 0; it must be in -1 .. 0.",
    ),
    (
        lambda: zeros().size(0),
        "size: a 0-d tensor has no axes: dim is 0; leave it out.",
    ),
    (
        lambda: zeros(0, 2).max(0),
        "max: nothing to choose from: axes (0,) of shape (0, 2); they must hold 1 element or more.",
    ),
    (
        lambda: zeros(0, 2).argmax(),
        "argmax: nothing to choose from: axes (0, 1) of shape (0, 2); "
        "they must hold 1 element or more.",
    ),
    (
        lambda: zeros(2, 3)[0, 3],
        "index: out of range: 3 on axis 1 of extent 3; it must be in -3 .. 2.",
    ),
    (
        lambda: zeros(2)[0, 0],
        "index: more indices than axes: 2 for shape (2,); there must be at most 1.",
    ),
]

OTHER_MISTAKES = [
    (
        TypeError,
        lambda: zeros(2)["rows"],
        "index: does not take a str; it must be an int, a slice, ... or None, "
        "a tensor, or a tuple of them.",
    ),
    (
        IndexOutOfRange,
        lambda: zeros(2)[1.0],
        "index: does not take a float; it must be an int, a slice, ... or None, "
        "a tensor, or a tuple of them.",
    ),
    (
        TypeError,
        lambda: len(zeros()),
        "len: a 0-d tensor has no length: shape (); ndim must be 1 or more.",
    ),
    (
        ValueError,
        lambda: zeros(2).clamp(),
        "clamp: both bounds are None; min, max or both must be given.",
    ),
    (
        ValueError,
        lambda: zeros(2).gelu(approximate="sigmoid"),
        "gelu: no such approximation: 'sigmoid'; it must be 'none' or 'tanh'.",
    ),
    (
        ValueError,
        lambda: zeros(2).pad((1, 1), mode="mirror"),
        "pad: no such mode: 'mirror'; it must be one of constant, reflect, replicate, circular.",
    ),
    (
        TypeError,
        lambda: operator.index(zeros(2)),
        "index: not an integer of 0-d: float32 (2,); it must be one integer.",
    ),
    (
        DeviceError,
        lambda: zeros(2) + zeros(2, device="PYTHON"),
        "add: operands are on several devices: CPU, PYTHON; they must share one. Use to(device).",
    ),
    (
        DeviceError,
        lambda: zeros(2, 2) @ zeros(2, 2, device="PYTHON"),
        "matmul: operands are on several devices: CPU, PYTHON; "
        "they must share one. Use to(device).",
    ),
]

MISTAKES = [
    *((ShapeError, mistake, sentence) for mistake, sentence in SHAPE_MISTAKES),
    *((DTypeError, mistake, sentence) for mistake, sentence in DTYPE_MISTAKES),
    *((IndexOutOfRange, mistake, sentence) for mistake, sentence in INDEX_MISTAKES),
    *OTHER_MISTAKES,
]


@pytest.mark.parametrize(
    ("kind", "mistake", "sentence"), MISTAKES, ids=[each[2].partition(";")[0] for each in MISTAKES]
)
def test_a_mistake_is_told_in_one_sentence(kind, mistake, sentence):
    with pytest.raises(kind) as caught:
        mistake()

    assert str(caught.value) == sentence


KIND_MISTAKES = [
    (
        lambda: functions.NAMES["sin"](2.5),
        "sin: input cannot be this: float 2.5; it must be a Tensor.",
    ),
    (
        lambda: zeros(2).to(3),
        "to: target cannot be this: int 3; it must be a dtype, a string or a Tensor.",
    ),
    (
        lambda: zeros(2).view(dtypes.int32),
        "view: bits are not read as another dtype: dtypes.int32; "
        "sizes must be given. Use to(dtype) for its values.",
    ),
]


@pytest.mark.parametrize(("mistake", "message"), KIND_MISTAKES)
def test_arguments_of_another_kind(mistake, message):
    with pytest.raises(TypeError) as caught:
        mistake()

    assert str(caught.value) == message
