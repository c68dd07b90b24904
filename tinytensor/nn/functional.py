"""Gathers the functions that layers apply, under PyTorch's names."""

from __future__ import annotations

from typing import Final

from tinytensor.functions import make_function
from tinytensor.nn.activation import (
    celu,
    elu,
    hardsigmoid,
    hardswish,
    hardtanh,
    leaky_relu,
    logsigmoid,
    mish,
    relu6,
    selu,
    softplus,
    softsign,
    tanhshrink,
)
from tinytensor.nn.attention import scaled_dot_product_attention
from tinytensor.nn.convolution import conv1d, conv2d, conv3d
from tinytensor.nn.embedding import embedding
from tinytensor.nn.losses import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    cross_entropy,
    huber_loss,
    kl_div,
    l1_loss,
    mse_loss,
    nll_loss,
    smooth_l1_loss,
)
from tinytensor.nn.normalization import batch_norm, group_norm, layer_norm, normalize, rms_norm
from tinytensor.nn.pooling import avg_pool1d, avg_pool2d, max_pool1d, max_pool2d
from tinytensor.tensor.signatures import explain_functions

dropout: Final = make_function("dropout")
gelu: Final = make_function("gelu")
linear: Final = make_function("linear")
log_softmax: Final = make_function("log_softmax")
one_hot: Final = make_function("one_hot")
pad: Final = make_function("pad")
relu: Final = make_function("relu")
sigmoid: Final = make_function("sigmoid")
silu: Final = make_function("silu")
softmax: Final = make_function("softmax")
tanh: Final = make_function("tanh")

__all__ = [
    "avg_pool1d",
    "avg_pool2d",
    "batch_norm",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "celu",
    "conv1d",
    "conv2d",
    "conv3d",
    "cross_entropy",
    "dropout",
    "elu",
    "embedding",
    "gelu",
    "group_norm",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "huber_loss",
    "kl_div",
    "l1_loss",
    "layer_norm",
    "leaky_relu",
    "linear",
    "log_softmax",
    "logsigmoid",
    "max_pool1d",
    "max_pool2d",
    "mish",
    "mse_loss",
    "nll_loss",
    "normalize",
    "one_hot",
    "pad",
    "relu",
    "relu6",
    "rms_norm",
    "scaled_dot_product_attention",
    "selu",
    "sigmoid",
    "silu",
    "smooth_l1_loss",
    "softmax",
    "softplus",
    "softsign",
    "tanh",
    "tanhshrink",
]

explain_functions(globals(), __all__)
