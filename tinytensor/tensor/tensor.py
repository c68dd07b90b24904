"""Joins the subjects into the one class that users see."""

from __future__ import annotations

from tinytensor.tensor.assignment import Assignment
from tinytensor.tensor.autograd import Autograd
from tinytensor.tensor.blending import Blending
from tinytensor.tensor.borders import Borders
from tinytensor.tensor.casting import Casting
from tinytensor.tensor.creation import Creation
from tinytensor.tensor.display import Display
from tinytensor.tensor.gathering import Gathering
from tinytensor.tensor.inplace import Inplace
from tinytensor.tensor.joining import Joining
from tinytensor.tensor.logic import Logic
from tinytensor.tensor.operands import Operand
from tinytensor.tensor.products import Products
from tinytensor.tensor.random import Random
from tinytensor.tensor.sampling import Sampling
from tinytensor.tensor.scattering import Scattering
from tinytensor.tensor.signatures import explain_methods
from tinytensor.tensor.softmax import Softmax
from tinytensor.tensor.sorting import Sorting
from tinytensor.tensor.statistics import Statistics
from tinytensor.tensor.transcendental import Transcendental


class Tensor(
    Creation,
    Casting,
    Transcendental,
    Blending,
    Logic,
    Softmax,
    Assignment,
    Gathering,
    Scattering,
    Joining,
    Borders,
    Products,
    Statistics,
    Sorting,
    Random,
    Inplace,
    Sampling,
    Display,
    Autograd,
):
    """A lazy array with PyTorch's names: nothing is computed until a value is needed.

    >>> from tinytensor.tensor.tensor import Tensor
    >>> (Tensor([1.0, 2.0]) * 2 + 1).tolist()
    [3.0, 5.0]
    """

    __slots__ = ()

    def __contains__(self, element: Operand) -> bool:
        return bool(self.eq(element).any())


explain_methods(Tensor, Tensor.__mro__[::-1])
