"""tinytensor: a tiny lazy tensor framework with its own compiler.

>>> from tinytensor import Tensor
>>> x = Tensor([[1.0, 2.0], [3.0, 4.0]])
>>> (x @ x.T + 1.0).relu().tolist()
[[6.0, 12.0], [12.0, 26.0]]
"""

from typing import Any

from tinytensor import functions, nn, optim
from tinytensor.config import config
from tinytensor.control.cond import cond
from tinytensor.control.scan import scan
from tinytensor.control.while_loop import while_loop
from tinytensor.dtype import dtypes
from tinytensor.explain import explain
from tinytensor.functions import tensor
from tinytensor.jit import jit
from tinytensor.profile import profile
from tinytensor.runtime.device import Device
from tinytensor.tensor import autograd
from tinytensor.tensor.dynamic import mark_dynamic
from tinytensor.tensor.generator import Generator, initial_seed, manual_seed
from tinytensor.tensor.grad_mode import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    no_grad,
    set_grad_enabled,
)
from tinytensor.tensor.tensor import Tensor
from tinytensor.variable import Variable

__version__ = "0.1.0"
__all__ = [
    "Device",
    "Generator",
    "Tensor",
    "Variable",
    "autograd",
    "cond",
    "config",
    "dtypes",
    "enable_grad",
    "explain",
    "inference_mode",
    "initial_seed",
    "is_grad_enabled",
    "jit",
    "manual_seed",
    "mark_dynamic",
    "nn",
    "no_grad",
    "optim",
    "profile",
    "scan",
    "set_grad_enabled",
    "tensor",
    "while_loop",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - functions, dtypes and numbers
    """Return what the package offers besides its classes: `exp`, `float32`, `pi`."""
    if name in functions.NAMES:
        return functions.NAMES[name]
    raise AttributeError(f"tinytensor: no such name: {name!r}; see tinytensor.functions.NAMES.")


def __dir__() -> list[str]:
    return sorted([*__all__, *functions.NAMES])
