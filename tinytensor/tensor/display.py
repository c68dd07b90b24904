"""Turns a Tensor into the text that shows its values."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from typing import Any

import numpy as np
import numpy.typing as npt

from tinytensor.ops.uop import Number
from tinytensor.tensor.autograd import Autograd

SUMMARY_ELEMENTS = 1000
EDGE_ELEMENTS = 3
DIGITS = 4
PREFIX = "Tensor("


def shown_part(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the values that a summary shows: the edges of each axis."""
    if values.size <= SUMMARY_ELEMENTS:
        return values
    for axis, extent in enumerate(values.shape):
        if extent > 2 * EDGE_ELEMENTS:
            edges = [*range(EDGE_ELEMENTS), *range(extent - EDGE_ELEMENTS, extent)]
            values = values.take(edges, axis)
    return values


def float_format(values: npt.NDArray[Any]) -> str:
    """Return how to write floats: whole ones as `1.`, others with 4 digits, or with an exponent."""
    finite = np.abs(values[np.isfinite(values) & (values != 0)])
    if finite.size == 0:
        return "whole"
    whole = bool(np.all(finite == np.floor(finite)))
    least, greatest = float(finite.min()), float(finite.max())
    if greatest >= 1e8 or (not whole and (greatest / least > 1e3 or least < 1e-4)):
        return f".{DIGITS}e"
    return "whole" if whole else f".{DIGITS}f"


def element_writer(values: npt.NDArray[Any]) -> Callable[[Any], str]:
    """Return the function that writes each of the values, all to one width."""
    spec = float_format(values) if values.dtype.kind == "f" else ""

    def write(value: Number) -> str:
        if spec == "whole":
            return f"{value:.0f}." if isfinite(value) else str(value)
        return format(value, spec)

    width = max((len(write(value)) for value in values.ravel().tolist()), default=0)
    return lambda value: write(value.item()).rjust(width)


def describe_values(values: npt.NDArray[Any]) -> str:
    """Return the values as nested lists, summarized when there are many."""
    if values.size == 0:
        return "[]"
    return np.array2string(
        values,
        separator=", ",
        prefix=PREFIX,
        max_line_width=80,
        threshold=SUMMARY_ELEMENTS,
        edgeitems=EDGE_ELEMENTS,
        formatter={"all": element_writer(shown_part(values))},
    )


class Display(Autograd):
    """How a Tensor shows itself."""

    __slots__ = ()

    def __format__(self, spec: str) -> str:
        """Write a 0-d tensor as its number, others as `repr` does."""
        return format(self.item(), spec) if self.ndim == 0 else format(repr(self), spec)

    def __repr__(self) -> str:
        """Compute the tensor and show its values."""
        values = describe_values(self._values())
        size = f"size={self.shape}, " if 0 in self.shape and self.ndim != 1 else ""
        facts = f"{size}dtype={self.dtype.name}, device={self.device!r}"
        gradient = ", requires_grad=True" if self.requires_grad else ""
        return f"{PREFIX}{values}, {facts}{gradient})"
