"""Joins the subjects into the one class that users see."""

from __future__ import annotations

from tinytensor.tensor.casting import Casting
from tinytensor.tensor.creation import Creation
from tinytensor.tensor.display import Display
from tinytensor.tensor.elementwise import Elementwise
from tinytensor.tensor.indexing import Indexing
from tinytensor.tensor.joining import Joining
from tinytensor.tensor.linalg import LinearAlgebra
from tinytensor.tensor.softmax import Softmax


class Tensor(
    Creation,
    Casting,
    Elementwise,
    LinearAlgebra,
    Softmax,
    Indexing,
    Joining,
    Display,
):
    """A lazy array with PyTorch's names: nothing is computed until a value is needed.

    >>> from tinytensor.tensor.tensor import Tensor
    >>> (Tensor([1.0, 2.0]) * 2 + 1).tolist()
    [3.0, 5.0]
    """

    __slots__ = ()
