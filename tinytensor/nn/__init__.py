"""What networks are made of, under PyTorch's names."""

from typing import Any

from tinytensor.nn import clipping, functional, init
from tinytensor.nn.clipping import clip_grad_norm_, clip_grad_value_
from tinytensor.nn.containers import ModuleDict, ModuleList, Sequential
from tinytensor.nn.layers.activation import (
    CELU,
    ELU,
    GELU,
    SELU,
    Hardsigmoid,
    Hardswish,
    Hardtanh,
    LeakyReLU,
    LogSigmoid,
    LogSoftmax,
    Mish,
    ReLU,
    ReLU6,
    Sigmoid,
    SiLU,
    Softmax,
    Softplus,
    Softsign,
    Tanh,
    Tanhshrink,
)
from tinytensor.nn.layers.convolution import Conv1d, Conv2d
from tinytensor.nn.layers.linear import Embedding, Linear
from tinytensor.nn.layers.losses import (
    BCEWithLogitsLoss,
    CrossEntropyLoss,
    L1Loss,
    MSELoss,
    NLLLoss,
)
from tinytensor.nn.layers.normalization import (
    BatchNorm1d,
    BatchNorm2d,
    GroupNorm,
    LayerNorm,
    RMSNorm,
)
from tinytensor.nn.layers.pooling import AvgPool2d, MaxPool2d
from tinytensor.nn.layers.shaping import Dropout, Flatten, Identity
from tinytensor.nn.module import Module
from tinytensor.nn.parameter import Parameter

__all__ = [
    "CELU",
    "ELU",
    "GELU",
    "SELU",
    "AvgPool2d",
    "BCEWithLogitsLoss",
    "BatchNorm1d",
    "BatchNorm2d",
    "Conv1d",
    "Conv2d",
    "CrossEntropyLoss",
    "Dropout",
    "Embedding",
    "Flatten",
    "GroupNorm",
    "Hardsigmoid",
    "Hardswish",
    "Hardtanh",
    "Identity",
    "L1Loss",
    "LayerNorm",
    "LeakyReLU",
    "Linear",
    "LogSigmoid",
    "LogSoftmax",
    "MSELoss",
    "MaxPool2d",
    "Mish",
    "Module",
    "ModuleDict",
    "ModuleList",
    "NLLLoss",
    "Parameter",
    "RMSNorm",
    "ReLU",
    "ReLU6",
    "Sequential",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Softplus",
    "Softsign",
    "Tanh",
    "Tanhshrink",
    "clip_grad_norm_",
    "clip_grad_value_",
    "functional",
    "init",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - a module
    """Return what clips gradients under the name it has in PyTorch, `nn.utils`."""
    if name == "utils":
        return clipping
    raise AttributeError(f"nn: no such name: {name!r}; it must be one of nn.__all__.")
