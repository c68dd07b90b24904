"""Turns a tensor into one of whose axes the length is known only at launch."""

from __future__ import annotations

from typing import TypeVar

from tinytensor.errors import ShapeError
from tinytensor.realize import alias_of
from tinytensor.tensor.axes import check_axis
from tinytensor.tensor.base import TensorBase
from tinytensor.variable import Variable

T = TypeVar("T", bound=TensorBase)


def mark_dynamic(x: T, dim: int, variable: Variable) -> T:
    """Return a tensor of x's memory whose size along one axis is a variable's value.

    What is computed from it is one program for all values of the variable.

    Raises: ShapeError when x requires a gradient, ValueOutOfRange when no such value is one.
    """
    axis = check_axis("mark_dynamic", dim, x.ndim)
    if x.ndim == 0 or x._mark > 0:
        sentence = f"mark_dynamic: the tensor has no axis to be open: shape {x.shape}"
        raise ShapeError(f"{sentence}; it must have axes and require no gradient itself.")
    leaf = x.realize()._own_cell().leaf
    assert leaf is not None, "realize fills every cell"
    size = variable.bind(x.shape[axis])
    shape = (*x.shape[:axis], size, *x.shape[axis + 1 :])
    return x._made(alias_of(leaf, shape), x.device)
