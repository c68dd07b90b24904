"""Mistakes with modules, states and optimizers are refused in one sentence."""

import json
import sys

import pytest

from tinytensor import Tensor, dtypes, nn, optim
from tinytensor.errors import DTypeError, IndexOutOfRange, ShapeError, ValueOutOfRange
from tinytensor.interop import safetensors
from tinytensor.optim.lr_scheduler import LambdaLR, LRScheduler


class Unset(nn.Module):
    def __init__(self):
        self.layer = nn.ReLU()


def leaf():
    return Tensor([1.0, 2.0], requires_grad=True)


def clip_infinite():
    x = leaf()
    x.grad = Tensor([float("inf"), 0.0])
    nn.clip_grad_norm_(x, 1.0, error_if_nonfinite=True)


def load_other_counts():
    state = optim.SGD([leaf(), leaf()]).state_dict()
    optim.SGD([leaf()]).load_state_dict(state)


def step_without_update():
    x = leaf()
    x.sum().backward()
    optim.Optimizer([x], {"maximize": False}).step()


STATE = {"weight": Tensor([[1.0]]), "other": Tensor([1.0])}

MISTAKES = [
    (
        lambda: nn.Module()(1),
        NotImplementedError,
        "forward: the module computes nothing: Module; the class must define forward.",
    ),
    (
        lambda: nn.ReLU().weight,
        AttributeError,
        "ReLU: no such attribute: 'weight'; it must be set before it is read.",
    ),
    (
        Unset,
        AttributeError,
        "Unset: the module is not set up: '_modules' is used; "
        "super().__init__() must be called first.",
    ),
    (
        lambda: setattr(nn.Linear(1, 1), "weight", Tensor([1.0])),
        TypeError,
        "Linear: weight cannot become this: Tensor; "
        "what is registered must stay of its kind, or be None.",
    ),
    (
        lambda: nn.Module().register_parameter("x", Tensor([1.0])),
        TypeError,
        "register_parameter: no Parameter: Tensor; it must be one, or None.",
    ),
    (
        lambda: nn.Sequential(3),
        TypeError,
        "register_module: no Module: int; it must be one, or None.",
    ),
    (
        lambda: nn.Module().register_buffer("a.b", None),
        KeyError,
        "register_buffer: no such name: 'a.b'; it must be a word without dots.",
    ),
    (
        lambda: nn.Linear(1, 1).register_buffer("weight", None),
        KeyError,
        "register_buffer: the name is taken: 'weight'; it must be no attribute yet.",
    ),
    (
        lambda: nn.Sequential(nn.ReLU()).get_submodule("0.x"),
        AttributeError,
        "get_submodule: ReLU has no such module: 'x'; it must be one of named_modules().",
    ),
    (
        lambda: nn.Linear(2, 2).load_state_dict(STATE),
        RuntimeError,
        "load_state_dict: not the state of this Linear: missing bias, unexpected other, "
        "weight has shape (1, 1) for (2, 2); names and shapes must be equal.",
    ),
    (
        lambda: nn.Linear(1, 1).to(dtypes.int32),
        DTypeError,
        "to: parameters are floats: dtype is int32; it must be a float dtype.",
    ),
    (
        lambda: nn.ModuleList([nn.ReLU()])[1],
        IndexOutOfRange,
        "ModuleList: no such module: 1 of 1; the index must be in -1 .. 0.",
    ),
    (
        lambda: nn.Conv2d(3, 4, 3, groups=2),
        ValueError,
        "Conv2d: channels do not form groups: (3, 4) in 2; both must be multiples of groups.",
    ),
    (
        lambda: nn.Conv1d(3, 4, 3, padding_mode="mirror"),
        ValueError,
        "Conv1d: no such padding_mode: 'mirror'; "
        "it must be one of zeros, reflect, replicate, circular.",
    ),
    (
        lambda: nn.Conv1d(3, 4, 3, padding="some"),
        ValueError,
        "Conv1d: no such padding: 'some' with stride (1,); "
        "it must be numbers, 'valid', or 'same' with stride 1.",
    ),
    (
        lambda: nn.GroupNorm(3, 4),
        ValueError,
        "GroupNorm: channels do not form groups: 4 in 3; they must be a multiple of num_groups.",
    ),
    (
        lambda: nn.BatchNorm1d(2)(Tensor.zeros(2, 2, 2, 2)),
        ShapeError,
        "BatchNorm1d: axes do not fit: shape (2, 2, 2, 2); ndim must be 2 or 3.",
    ),
    (
        lambda: nn.Embedding(3, 4, padding_idx=3),
        ValueError,
        "Embedding: no row for the padding: 3 of 3; it must be in -3 .. 2.",
    ),
    (
        lambda: nn.Dropout(2),
        ValueError,
        "Dropout: p is no probability: 2; it must be in 0 .. 1.",
    ),
    (lambda: nn.Softmax(), TypeError, "missing a required argument: 'dim'"),
    (
        lambda: nn.nothing,
        AttributeError,
        "nn: no such name: 'nothing'; it must be one of nn.__all__.",
    ),
    (
        lambda: nn.init.kaiming_normal_(Tensor.zeros(3)),
        ShapeError,
        "init: no inputs and outputs: shape (3,); ndim must be 2 or more.",
    ),
    (
        lambda: nn.init.kaiming_normal_(Tensor.zeros(3, 3), mode="fan"),
        ValueError,
        "init: no such mode: 'fan'; it must be 'fan_in' or 'fan_out'.",
    ),
    (
        lambda: nn.init.calculate_gain("step"),
        ValueError,
        "calculate_gain: no such nonlinearity: 'step'; "
        "it must be leaky_relu, tanh, relu, selu, linear, sigmoid, conv1d, conv2d, conv3d.",
    ),
    (
        lambda: nn.init.eye_(Tensor.zeros(3)),
        ShapeError,
        "eye_: no matrix: shape (3,); ndim must be 2.",
    ),
    (
        clip_infinite,
        ValueOutOfRange,
        "clip_grad_norm_: the norm of order 2.0 is inf; it must be finite.",
    ),
    (
        lambda: optim.SGD(leaf()),
        TypeError,
        "SGD: params is one Tensor: shape (2,); it must be several, as in [weight].",
    ),
    (
        lambda: optim.SGD([]),
        ValueError,
        "SGD: there is nothing to optimize: params is empty; it must hold 1 or more.",
    ),
    (
        lambda: optim.SGD([3]),
        TypeError,
        "SGD: a parameter is no Tensor: int; each must be one.",
    ),
    (
        lambda: optim.SGD([leaf() * 2]),
        ValueError,
        "SGD: a parameter was computed: shape (2,); each must be a leaf.",
    ),
    (
        lambda: optim.SGD([leaf()] * 2),
        ValueError,
        "SGD: a parameter is there twice: shape (2,); each must be in one group.",
    ),
    (
        lambda: optim.SGD([leaf()], lr=-1),
        ValueError,
        "SGD: lr is negative: -1; it must be 0 or more.",
    ),
    (
        lambda: optim.SGD([leaf()], nesterov=True),
        ValueError,
        "SGD: nesterov does not go with momentum=0 and dampening=0; "
        "momentum must be above 0 and dampening 0.",
    ),
    (
        lambda: optim.AdamW([leaf()], betas=(0.9, 1)),
        ValueError,
        "AdamW: betas[1] is no share: 1; it must be 0 or more, and below 1.",
    ),
    (
        load_other_counts,
        ValueError,
        "load_state_dict: groups differ: [2] and [1] parameters; they must be equal.",
    ),
    (
        step_without_update,
        NotImplementedError,
        "update: Optimizer has none; it must define it.",
    ),
    (
        lambda: LRScheduler(optim.SGD([leaf()])),
        NotImplementedError,
        "get_lr: LRScheduler has none; it must define it.",
    ),
    (
        lambda: LambdaLR(optim.SGD([leaf()]), []),
        ValueError,
        "LambdaLR: 0 functions are given for 1 groups; there must be one a group, or one.",
    ),
]


@pytest.mark.parametrize(("mistake", "error", "sentence"), MISTAKES, ids=range(len(MISTAKES)))
def test_a_mistake_is_named(mistake, error, sentence):
    with pytest.raises(error) as caught:
        mistake()

    assert caught.value.args[0] == sentence


def test_a_dtype_that_no_tensor_has_is_named(tmp_path):
    pytest.importorskip("safetensors")
    header = json.dumps({"x": {"dtype": "F8_E5M2", "shape": [1], "data_offsets": [0, 1]}}).encode()
    path = tmp_path / "odd.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))

    with pytest.raises(DTypeError) as caught:
        safetensors.load_file(path)

    assert str(caught.value) == (
        "load_file: no tensor has the dtype of x: C64; it must be one of "
        "BOOL, U8, U16, U32, U64, I8, I16, I32, I64, F8_E4M3, F8_E5M2, F16, BF16, F32, F64."
    )


def test_a_missing_library_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "safetensors", None)

    with pytest.raises(ImportError) as caught:
        safetensors.save_file({}, tmp_path / "x.safetensors")

    assert str(caught.value) == (
        "save_file: a module cannot be imported: safetensors "
        "(import of safetensors halted; None in sys.modules); "
        "it must be installed: pip install tinytensor[safetensors]."
    )
