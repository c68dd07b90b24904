"""Turns each function between layers into a module that holds its options."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import ClassVar, Final

from tinytensor.nn import functional
from tinytensor.nn.module import Argument, Module
from tinytensor.tensor.tensor import Tensor

REQUIRED = inspect.Parameter.empty  # an axis has no default: PyTorch warns of the one it takes


class Activation(Module):
    """A module that applies a function to all elements, or along one axis.

    With `inplace`, which some take, the input holds the result, too.
    Shapes: any, also the result's.
    DTypes: a float dtype, also the result's; halves compute in float32 and round once.
    """

    function: ClassVar[Callable[..., Tensor]]
    options: ClassVar[inspect.Signature]
    inplace = False

    def __init__(self, *args: Argument, **options: Argument) -> None:
        super().__init__()
        bound = self.options.bind(*args, **options)
        bound.apply_defaults()
        self.__dict__.update(bound.arguments)

    def forward(self, input: Tensor) -> Tensor:
        """Return the function of the input."""
        result = type(self).function(input, **self._given())
        return input.copy_(result) if self.inplace else result

    def _given(self) -> dict[str, Argument]:
        names = [name for name in self.options.parameters if name != "inplace"]
        return {name: getattr(self, name) for name in names}

    def extra_repr(self) -> str:
        """Return the options."""
        shown = {**self._given(), **({"inplace": True} if self.inplace else {})}
        return ", ".join(f"{name}={value!r}" for name, value in shown.items())


def make_activation(
    name: str, function: Callable[..., Tensor], **options: Argument
) -> type[Activation]:
    """Return the class of modules that apply a function with options of those defaults."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    listed = [inspect.Parameter(each, kind, default=value) for each, value in options.items()]
    members = {
        "__doc__": f"Apply {name.lower()}: {function.__doc__}",
        "__module__": __name__,
        "function": staticmethod(function),
        "options": inspect.Signature(listed),
    }
    return type(name, (Activation,), members)


CELU: Final = make_activation("CELU", functional.celu, alpha=1.0, inplace=False)
ELU: Final = make_activation("ELU", functional.elu, alpha=1.0, inplace=False)
GELU: Final = make_activation("GELU", functional.gelu, approximate="none")
Hardsigmoid: Final = make_activation("Hardsigmoid", functional.hardsigmoid, inplace=False)
Hardswish: Final = make_activation("Hardswish", functional.hardswish, inplace=False)
Hardtanh: Final = make_activation(
    "Hardtanh", functional.hardtanh, min_val=-1.0, max_val=1.0, inplace=False
)
LeakyReLU: Final = make_activation(
    "LeakyReLU", functional.leaky_relu, negative_slope=0.01, inplace=False
)
LogSigmoid: Final = make_activation("LogSigmoid", functional.logsigmoid)
LogSoftmax: Final = make_activation("LogSoftmax", functional.log_softmax, dim=REQUIRED)
Mish: Final = make_activation("Mish", functional.mish, inplace=False)
ReLU: Final = make_activation("ReLU", functional.relu, inplace=False)
ReLU6: Final = make_activation("ReLU6", functional.relu6, inplace=False)
SELU: Final = make_activation("SELU", functional.selu, inplace=False)
SiLU: Final = make_activation("SiLU", functional.silu, inplace=False)
Sigmoid: Final = make_activation("Sigmoid", functional.sigmoid)
Softmax: Final = make_activation("Softmax", functional.softmax, dim=REQUIRED)
Softplus: Final = make_activation("Softplus", functional.softplus, beta=1.0, threshold=20.0)
Softsign: Final = make_activation("Softsign", functional.softsign)
Tanh: Final = make_activation("Tanh", functional.tanh)
Tanhshrink: Final = make_activation("Tanhshrink", functional.tanhshrink)
