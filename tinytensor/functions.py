"""Turns the methods of Tensor into functions of the package, under PyTorch's names."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from tinytensor.dtype import USER_DTYPES, DType, dtypes
from tinytensor.linalg.einsum import einsum, tensordot
from tinytensor.ops.uop import Number
from tinytensor.tensor.axes import broadcast_shapes
from tinytensor.tensor.creation import Content
from tinytensor.tensor.operands import is_number, result_dtype
from tinytensor.tensor.searching import bucketize, searchsorted
from tinytensor.tensor.signatures import described, explained
from tinytensor.tensor.tensor import Tensor

# Functions that make or join tensors: class methods of Tensor.
MAKERS: Final = """
    arange cat dstack empty eye full hstack meshgrid ones rand randint randn randperm stack
    vstack zeros
"""
# Functions whose first argument is a tensor: methods of Tensor.
METHODS: Final = """
    abs acos add addcdiv addcmul addmm all allclose amax amin aminmax any argmax argmin argsort
    asin atan atan2 atleast_1d atleast_2d atleast_3d baddbmm bernoulli bitwise_and
    bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor bmm broadcast_to
    ceil chunk clamp clamp_max clamp_min clip clone copysign cos cosh count_nonzero cummax
    cummin cumprod cumsum deg2rad diag diagonal div dot dropout eq equal erf exp exp2 expm1
    flatten flip floor floor_divide fmod frac full_like gather ge gt index_add index_copy
    index_fill index_put index_select inner isclose isfinite isinf isnan kron kthvalue le lerp
    log log10 log1p log2 log_softmax logical_and logical_not logical_or logical_xor logit
    logsumexp lt masked_fill masked_scatter masked_select matmul max maximum mean median min
    minimum mm movedim msort mul multinomial multiply mv nan_to_num nansum narrow ne neg nonzero
    norm numel ones_like outer permute pow prod put rad2deg rand_like randint_like randn_like
    ravel reciprocal relu remainder repeat_interleave reshape roll rot90 round rsqrt scatter
    scatter_add scatter_reduce select sigmoid sign signbit sin sinh softmax sort split sqrt
    square squeeze std std_mean sub sum swapaxes t take take_along_dim tan tanh tile topk trace
    transpose tril triu true_divide trunc unbind unflatten unsqueeze var var_mean zeros_like
"""
# Functions of two operands of which the first may be a number, and the second one not.
NUMBER_FIRST: Final = """
    add bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor div floor_divide
    mul multiply pow remainder sub true_divide
"""


def number_before(name: str, number: Number, operands: Sequence[Any]) -> Tensor:
    """Return a number before a tensor as one of the dtype that the two have together.

    Raises: TypeError where there must be a tensor.
    """
    other = next((each for each in operands if isinstance(each, Tensor)), None)
    if other is None or name not in NUMBER_FIRST.split() or not is_number(number):
        sentence = f"{name}: input cannot be this: {described(number)}"
        raise TypeError(f"{sentence}; it must be a Tensor.")
    return Tensor(number, result_dtype(name, number, other), other.device)


def make_function(name: str) -> Callable[..., Any]:  # Any: the method's own result
    """Return the function that calls a method of its first argument."""
    method = getattr(Tensor, name)

    def function(input: Tensor, *args: Any, **options: Any) -> Any:  # noqa: ANN401 - as the method
        if not isinstance(input, Tensor):
            input = number_before(name, input, (*args, *options.values()))
        return method(input, *args, **options)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = method.__doc__
    return function


def tensor(
    data: Content,
    *,
    dtype: DType | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Make a tensor of a number, nested lists, an array or another tensor."""
    return Tensor(data, dtype, device, requires_grad)


def from_numpy(ndarray: np.ndarray) -> Tensor:
    """Make a tensor of a copy of an array."""
    return Tensor(ndarray)


def is_tensor(obj: object) -> bool:
    """Tell whether an object is a Tensor."""
    return isinstance(obj, Tensor)


def where(condition: Tensor, input: Tensor | Number, other: Tensor | Number) -> Tensor:
    """Return input's elements where the condition holds, else the other's.

    Both are computed, whatever the condition says; `cond` computes one of two functions.
    """
    if isinstance(input, Tensor):
        return input.where(condition, other)
    if isinstance(other, Tensor):
        return other.where(condition.logical_not(), input)
    return Tensor(input, device=condition.device).where(condition, other)


def broadcast_tensors(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Return tensors expanded to their common shape."""
    shape = broadcast_shapes("broadcast_tensors", [each.shape for each in tensors])
    return tuple([each.expand(shape) for each in tensors])


def meshgrid(*tensors: Tensor | Sequence[Tensor], indexing: str = "ij") -> tuple[Tensor, ...]:
    """Return vectors, given one by one or as a list, expanded over the grid of all."""
    listed: list[Tensor] = []
    for each in tensors:
        listed += [each] if isinstance(each, Tensor) else each
    return Tensor.meshgrid(*listed, indexing=indexing)


WRITTEN: Final = (
    *(einsum, tensordot, from_numpy, is_tensor, where, broadcast_tensors, meshgrid),
    *(bucketize, searchsorted),
)
ALIASES: Final = {
    **{"concat": "cat", "concatenate": "cat", "arctan": "atan", "arcsin": "asin", "arccos": "acos"},
    **{"arctan2": "atan2", "absolute": "abs", "negative": "neg", "divide": "div"},
    **{"subtract": "sub", "moveaxis": "movedim", "greater": "gt"},
    **{"greater_equal": "ge", "less": "lt", "less_equal": "le", "not_equal": "ne"},
}
CONSTANTS: Final = {"inf": math.inf, "nan": math.nan, "pi": math.pi, "e": math.e}
DTYPES: Final = {
    name: dtype
    for name, dtype in vars(dtypes).items()
    if isinstance(dtype, DType) and dtype in USER_DTYPES
}


def collect_names() -> dict[str, Any]:  # Any: functions, dtypes and numbers
    """Return everything that the package offers by name besides its classes."""
    found: dict[str, Any] = {**CONSTANTS, **DTYPES}
    found |= {name: make_function(name) for name in METHODS.split()}
    found |= {name: getattr(Tensor, name) for name in MAKERS.split()}
    found |= {function.__name__: explained(function) for function in WRITTEN}
    found |= {alias: found[name] for alias, name in ALIASES.items()}
    return found


NAMES: Final = collect_names()
