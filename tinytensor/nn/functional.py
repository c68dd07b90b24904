"""Gathers the functions that layers apply, under PyTorch's names."""

from __future__ import annotations

from typing import Final

from tinytensor import functions
from tinytensor.nn.activation import celu as celu
from tinytensor.nn.activation import elu as elu
from tinytensor.nn.activation import hardsigmoid as hardsigmoid
from tinytensor.nn.activation import hardswish as hardswish
from tinytensor.nn.activation import hardtanh as hardtanh
from tinytensor.nn.activation import leaky_relu as leaky_relu
from tinytensor.nn.activation import logsigmoid as logsigmoid
from tinytensor.nn.activation import mish as mish
from tinytensor.nn.activation import relu6 as relu6
from tinytensor.nn.activation import selu as selu
from tinytensor.nn.activation import softplus as softplus
from tinytensor.nn.activation import softsign as softsign
from tinytensor.nn.activation import tanhshrink as tanhshrink
from tinytensor.nn.attention import scaled_dot_product_attention as scaled_dot_product_attention
from tinytensor.nn.convolution import conv1d as conv1d
from tinytensor.nn.convolution import conv2d as conv2d
from tinytensor.nn.convolution import conv3d as conv3d
from tinytensor.nn.embedding import embedding as embedding
from tinytensor.nn.losses import binary_cross_entropy as binary_cross_entropy
from tinytensor.nn.losses import (
    binary_cross_entropy_with_logits as binary_cross_entropy_with_logits,
)
from tinytensor.nn.losses import cross_entropy as cross_entropy
from tinytensor.nn.losses import huber_loss as huber_loss
from tinytensor.nn.losses import kl_div as kl_div
from tinytensor.nn.losses import l1_loss as l1_loss
from tinytensor.nn.losses import mse_loss as mse_loss
from tinytensor.nn.losses import nll_loss as nll_loss
from tinytensor.nn.losses import smooth_l1_loss as smooth_l1_loss
from tinytensor.nn.normalization import batch_norm as batch_norm
from tinytensor.nn.normalization import group_norm as group_norm
from tinytensor.nn.normalization import layer_norm as layer_norm
from tinytensor.nn.normalization import normalize as normalize
from tinytensor.nn.normalization import rms_norm as rms_norm
from tinytensor.nn.pooling import avg_pool1d as avg_pool1d
from tinytensor.nn.pooling import avg_pool2d as avg_pool2d
from tinytensor.nn.pooling import max_pool1d as max_pool1d
from tinytensor.nn.pooling import max_pool2d as max_pool2d
from tinytensor.tensor.signatures import explain_functions

dropout: Final = functions.make_function("dropout")
gelu: Final = functions.make_function("gelu")
linear: Final = functions.make_function("linear")
log_softmax: Final = functions.make_function("log_softmax")
one_hot: Final = functions.make_function("one_hot")
pad: Final = functions.make_function("pad")
relu: Final = functions.make_function("relu")
sigmoid: Final = functions.make_function("sigmoid")
silu: Final = functions.make_function("silu")
softmax: Final = functions.make_function("softmax")
tanh: Final = functions.make_function("tanh")

__all__ = explain_functions(globals())
