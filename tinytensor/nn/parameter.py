"""Turns a Tensor into one that a module trains, and exchanges what such a Tensor holds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Self

from tinytensor.dtype import DType
from tinytensor.errors import ShapeError
from tinytensor.ops.uop import UOp
from tinytensor.tensor.tensor import Tensor
from tinytensor.tracing import ACTIVE


class Parameter(Tensor):
    """A Tensor that a Module counts among its parameters once it is an attribute.

    It shares the memory of the tensor that it is made from. What is computed from it is a Tensor.
    """

    __slots__ = ()

    def __init__(self, data: Tensor | None = None, requires_grad: bool = True) -> None:
        seen = Tensor.empty(0) if data is None else data.detach()
        self.cell, self.device, self.site = seen.cell, seen.device, seen.site
        self._grad = None
        self._look(seen._view)
        if ACTIVE.trace is not None:
            ACTIVE.trace.make(self, has_own_cell=False)
        if requires_grad:
            self._become_leaf()

    @classmethod
    def _made(  # type: ignore[override]  # results are no parameters
        cls, uop: UOp, device: str, requires_grad: bool = False
    ) -> Tensor:
        return Tensor._made(uop, device, requires_grad)

    def _blank(self) -> Tensor:  # type: ignore[override]  # nor are views
        return Tensor.__new__(Tensor)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return a parameter with the same values in memory of its own, and no gradient yet."""
        copied = super().__deepcopy__(memo)
        copied._grad = None
        return copied

    def __repr__(self) -> str:
        """Compute the parameter and show its values."""
        return f"Parameter containing:\n{super().__repr__()}"


def check_parameters(who: str, shape: Sequence[int], *given: Tensor | None) -> None:
    """Raise ShapeError unless all that are given have a shape."""
    for each in given:
        if each is not None and each.shape != tuple(shape):
            sentence = f"{who}: a parameter does not fit: shape {each.shape}"
            raise ShapeError(f"{sentence}; it must be {tuple(shape)}.")


def empty_parameter(*shape: int, device: str | None, dtype: DType | None) -> Parameter:
    """Return a parameter of that shape, to be given its first values later."""
    return Parameter(Tensor.empty(shape, device=device, dtype=dtype))


def exchange(parameter: Parameter, values: Tensor) -> None:
    """Make a parameter hold another tensor, of whatever dtype and place; its gradient follows."""
    gradient = parameter.grad
    parameter.data = values
    if gradient is not None:
        parameter.grad = gradient.to(values.dtype, values.device)


def clear_gradients(tensors: Iterable[Tensor], set_to_none: bool) -> None:
    """Forget gradients, or make them zeros."""
    for tensor in tensors:
        if set_to_none:
            tensor.grad = None
        elif tensor.grad is not None:
            tensor.grad.detach_().zero_()
