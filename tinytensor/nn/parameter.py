"""Turns a Tensor into one that a module trains, and changes what such a Tensor holds."""

from __future__ import annotations

from collections.abc import Iterable

from tinytensor.dtype import DType
from tinytensor.grad import serial_of_leaf
from tinytensor.ops.uop import UOp
from tinytensor.tensor.base import Cell
from tinytensor.tensor.grad_mode import no_grad
from tinytensor.tensor.tensor import Tensor


class Parameter(Tensor):
    """A Tensor that a Module counts among its parameters once it is an attribute.

    What is computed from it is a Tensor.
    """

    __slots__ = ()

    def __init__(self, data: Tensor | None = None, requires_grad: bool = True) -> None:
        given = Tensor.empty(0) if data is None else data
        super().__init__(given, requires_grad=requires_grad)

    @classmethod
    def _made(  # type: ignore[override]  # results are no parameters
        cls, uop: UOp, device: str, requires_grad: bool = False
    ) -> Tensor:
        return Tensor._made(uop, device, requires_grad)

    def __repr__(self) -> str:
        """Compute the parameter and show its values."""
        return f"Parameter containing:\n{super().__repr__()}"


def empty_parameter(*shape: int, device: str | None, dtype: DType | None) -> Parameter:
    """Return a parameter of that shape, to be given its first values later."""
    return Parameter(Tensor.empty(shape, device=device, dtype=dtype))


def write(tensor: Tensor, values: Tensor) -> Tensor:
    """Give a tensor other values, in its own dtype and place; it stays the leaf that it is."""
    with no_grad():
        node = values.to(tensor.dtype, tensor.device).detach().uop
    known = tensor.uop
    tensor.cell = Cell(known.replace((node,)) if serial_of_leaf(known) else node)
    return tensor


def exchange(parameter: Parameter, values: Tensor) -> None:
    """Make a parameter hold another tensor, of whatever dtype and place; its gradient follows."""
    gradient = parameter.grad
    if values is not parameter:
        parameter._fill(values.detach().uop, values.device, parameter.requires_grad)
        if gradient is not None:
            parameter.grad = gradient.to(values.dtype, values.device)


def clear_gradients(tensors: Iterable[Tensor], set_to_none: bool) -> None:
    """Forget gradients, or make them zeros."""
    for tensor in tensors:
        if tensor.grad is not None:
            tensor.grad = None if set_to_none else tensor.grad.zeros_like()
