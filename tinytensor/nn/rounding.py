"""Says in which dtype a function of several steps computes, and rounds its result once."""

from __future__ import annotations

from tinytensor.dtype import DType
from tinytensor.errors import DTypeError
from tinytensor.tensor.tensor import Tensor


def check_float(who: str, *tensors: Tensor | None) -> DType:
    """Return the float dtype that all given tensors share with the first.

    Raises: DTypeError.
    """
    names = [each.dtype.name for each in tensors if each is not None]
    first = tensors[0]
    assert first is not None, "the first tensor is the input"
    if not first.dtype.is_float or names.count(names[0]) < len(names):
        sentence = f"{who}: dtypes are not those of one computation: {', '.join(names)}"
        raise DTypeError(f"{sentence}; they must be equal and float.")
    return first.dtype


def widened(x: Tensor) -> Tensor:
    """Return halves in float32, others as they are."""
    return x.float() if x.dtype.is_narrow else x
