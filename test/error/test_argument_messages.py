"""An argument of a kind that a signature does not name is told in one sentence."""

import numpy as np
import pytest

import tinytensor as tt
from tinytensor import Tensor, nn
from tinytensor.nn import functional

TABLE = Tensor.zeros(4, 3)


def zeros(*shape):
    return Tensor.zeros(*shape)


NO_TENSOR = [
    (lambda: zeros(2, 3).matmul(3), "matmul: other cannot be this: int 3; it must be a Tensor."),
    (lambda: zeros(2, 3) @ None, "matmul: other cannot be this: None; it must be a Tensor."),
    (
        lambda: zeros(2, 3).gather(0, [[1]]),
        "gather: index cannot be this: list [list [1]]; it must be a Tensor.",
    ),
    (
        lambda: zeros(2).masked_select([True, False]),
        "masked_select: mask cannot be this: list [True, False]; it must be a Tensor.",
    ),
    (
        lambda: zeros(2).logical_and(0),
        "logical_and: other cannot be this: int 0; it must be a Tensor.",
    ),
    (lambda: zeros(2).equal("a"), "equal: other cannot be this: str 'a'; it must be a Tensor."),
    (
        lambda: zeros(2).lerp(zeros(2), "a"),
        "lerp: weight cannot be this: str 'a'; it must be a Tensor or a number.",
    ),
    (
        lambda: zeros(2).addcmul(zeros(2), 3),
        "addcmul: tensor2 cannot be this: int 3; it must be a Tensor.",
    ),
    (lambda: tt.cat(3), "cat: tensors cannot be this: int 3; it must be a sequence of Tensors."),
    (
        lambda: tt.stack([zeros(2, 3), 1]),
        "stack: tensors cannot be this: list [Tensor (2, 3), 1]; it must be a sequence of Tensors.",
    ),
    (lambda: tt.pow(2, 3), "pow: input cannot be this: int 2; it must be a Tensor."),
    (lambda: tt.fmod(2, zeros(2)), "fmod: input cannot be this: int 2; it must be a Tensor."),
    (
        lambda: tt.where(True, zeros(2), 1),
        "where: condition cannot be this: bool True; it must be a Tensor.",
    ),
    (
        lambda: tt.einsum("i->", 3),
        "einsum: operands cannot be this: int 3; it must be a Tensor or a sequence of Tensors.",
    ),
    (
        lambda: functional.embedding(3, TABLE),
        "embedding: input cannot be this: int 3; it must be a Tensor.",
    ),
    (
        lambda: functional.linear(3, TABLE),
        "linear: input cannot be this: int 3; it must be a Tensor.",
    ),
    (
        lambda: functional.cross_entropy(TABLE, [1]),
        "cross_entropy: target cannot be this: list [1]; it must be a Tensor.",
    ),
    (
        lambda: nn.init.uniform_([1.0]),
        "uniform_: tensor cannot be this: list [1.0]; it must be a Tensor.",
    ),
    (
        lambda: nn.Linear(3, 4)(np.ones(3, np.float32)),
        "Linear: input cannot be this: ndarray (3,); it must be a Tensor.",
    ),
    (
        lambda: nn.Sequential(nn.ReLU(), nn.Linear(3, 4))([1.0]),
        "ReLU: input cannot be this: list [1.0]; it must be a Tensor.",
    ),
    (
        lambda: nn.CrossEntropyLoss()(TABLE, 3),
        "CrossEntropyLoss: target cannot be this: int 3; it must be a Tensor.",
    ),
]

NO_NUMBER = [
    (
        lambda: tt.ones(np.array([1, 2])),
        "ones: size cannot be this: ndarray (2,); it must be an integer or a sequence of integers.",
    ),
    (
        lambda: zeros(2).sum("rows"),
        "sum: dim cannot be this: str 'rows'; "
        "it must be an integer, a sequence of integers or None.",
    ),
    (
        lambda: zeros(2).softmax(1.5),
        "softmax: dim cannot be this: float 1.5; it must be an integer.",
    ),
    (
        lambda: zeros(2, 3).argmax([0, 1]),
        "argmax: dim cannot be this: list [0, 1]; it must be an integer or None.",
    ),
    (lambda: zeros(2).topk(None), "topk: k cannot be this: None; it must be an integer."),
    (
        lambda: zeros(2).clamp({}),
        "clamp: min cannot be this: dict; it must be a Tensor, a number or None.",
    ),
    (
        lambda: zeros(2).add(1, alpha=b"a"),
        "add: alpha cannot be this: bytes b'a'; it must be a number.",
    ),
    (
        lambda: zeros(2, 2).tril(zeros(2)),
        "tril: diagonal cannot be this: Tensor (2,); it must be an integer.",
    ),
    (
        lambda: nn.MaxPool2d("a")(zeros(1, 4, 4)),
        "max_pool2d: kernel_size cannot be this: str 'a'; "
        "it must be an integer or a sequence of integers.",
    ),
    (
        lambda: tt.tensordot(zeros(2), zeros(2), dims=None),
        "tensordot: dims cannot be this: None; it must be an integer, a sequence of integers or "
        "a sequence of sequences.",
    ),
    (
        lambda: nn.Linear("a", 4),
        "Linear: in_features cannot be this: str 'a'; it must be an integer.",
    ),
    (
        lambda: zeros(2).div(2, rounding_mode=3),
        "div: rounding_mode cannot be this: int 3; it must be a string or None.",
    ),
]

NO_FIT = [
    (
        lambda: zeros(2).sum(dimm=0),
        "sum: the arguments do not fit: got an unexpected keyword argument 'dimm'; "
        "they must be dim, keepdim, dtype.",
    ),
    (
        lambda: zeros(2).tril(1, 2),
        "tril: the arguments do not fit: too many positional arguments; they must be diagonal.",
    ),
    (
        lambda: nn.Linear(3),
        "Linear: the arguments do not fit: missing a required argument: 'out_features'; "
        "they must be in_features, out_features, bias, device, dtype.",
    ),
]


@pytest.mark.parametrize(("mistake", "sentence"), [*NO_TENSOR, *NO_NUMBER, *NO_FIT])
def test_an_argument_of_another_kind_is_named(mistake, sentence):
    with pytest.raises(TypeError) as caught:
        mistake()

    assert str(caught.value) == sentence


def test_what_is_eq_to_no_tensor_and_no_number_is_refused():
    with pytest.raises(TypeError) as caught:
        zeros(2).eq("a")

    required = "it must be one of them. Use Tensor(...)."
    assert str(caught.value) == f"eq: an operand is neither a Tensor nor a number: str; {required}"
    assert (zeros(2) == "a") is False


def test_an_error_of_well_kept_kinds_stays_what_it_is():
    with pytest.raises(IndexError, match=r"^sum: dim is out of range: 3"):
        zeros(2).sum(3)


def test_what_a_module_of_the_user_raises_stays_what_it_is():
    class Picky(nn.Module):
        def forward(self, input: Tensor) -> Tensor:
            raise TypeError("only on Sundays")

    with pytest.raises(TypeError, match="^only on Sundays$"):
        Picky()(3)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: zeros(2, 3).sum(dim=0, axis=1), "axis"),
        (lambda: zeros(2, 3).sum(0, keepdim=True, keepdims=False), "keepdims"),
        (lambda: zeros(2, 3).flip(axis=0), "axis"),
        (lambda: nn.functional.dropout(zeros(2, 3), axis=1), "axis"),
    ],
)
def test_a_name_of_numpys_stands_for_no_option_that_is_given_or_missing(call, name):
    with pytest.raises(TypeError, match=f"unexpected keyword argument '{name}'"):
        call()


def test_a_type_that_is_no_dtype_is_named():
    with pytest.raises(TypeError, match="^zeros: dtype cannot be this: type float32; it must be"):
        tt.zeros(2, dtype=np.float32)


@pytest.mark.parametrize(("kind", "dtype"), [(float, tt.float64), (int, tt.int64), (bool, tt.bool)])
def test_what_python_calls_so_is_a_dtype(kind, dtype):
    x = Tensor([1.5, 0.0])

    found = [x.to(kind), x.sum(dtype=kind), tt.zeros(2, dtype=kind), Tensor([1], kind)]

    assert [each.dtype for each in found] == [dtype] * 4
    assert x.to(kind).tolist() == [kind(1.5), kind(0.0)]
