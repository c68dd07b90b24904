"""Turns `x[...]` into slices: which elements of each axis, and which axes stay."""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import index as as_int
from types import EllipsisType
from typing import Self, SupportsIndex

from tinytensor.errors import IndexOutOfRange, ShapeError
from tinytensor.tensor import nodes
from tinytensor.tensor.axes import Shape
from tinytensor.tensor.base import TensorBase

Index = SupportsIndex | slice | EllipsisType | None
ACCEPTED = "an int, a slice, ... or None"


@dataclass(frozen=True, slots=True)
class Selection:
    """What an index selects: a range of each axis, and the shape of the result."""

    ranges: list[range] = field(default_factory=list)
    shape: list[int] = field(default_factory=list)


def select_elements(index: tuple[Index, ...], shape: Shape) -> Selection:
    """Return what an index selects from a shape.

    Raises: IndexOutOfRange, ShapeError, TypeError.
    """
    selection = Selection()
    for each in _without_ellipsis(index, shape):
        if each is None:
            selection.shape.append(1)
            continue
        extent = shape[len(selection.ranges)]
        if isinstance(each, slice):
            selection.ranges.append(_slice_range(each, extent))
            selection.shape.append(len(selection.ranges[-1]))
        else:
            position = _position(each, len(selection.ranges), extent)
            selection.ranges.append(range(position, position + 1))
    return selection


def _without_ellipsis(index: tuple[Index, ...], shape: Shape) -> list[SupportsIndex | slice | None]:
    """Return the index with `...` written out, one entry for each axis and each None."""
    used = [each for each in index if each is not None and each is not Ellipsis]
    missing = len(shape) - len(used)
    if missing < 0:
        sentence = f"index: more indices than axes: {len(used)} for shape {shape}"
        raise IndexOutOfRange(f"{sentence}; there must be at most {len(shape)}.")
    whole: list[SupportsIndex | slice | None] = [slice(None)] * missing
    written: list[SupportsIndex | slice | None] = []
    for each in index:
        if isinstance(each, EllipsisType):
            written += whole
            whole = []
        else:
            written.append(each)
    return written + whole


def _slice_range(wanted: slice, extent: int) -> range:
    if wanted.step is not None and wanted.step <= 0:
        sentence = f"index: the step of a slice is not positive: {wanted.step}"
        raise ShapeError(f"{sentence}; it must be 1 or more. Use flip.")
    return range(*wanted.indices(extent))


def _position(wanted: SupportsIndex, axis: int, extent: int) -> int:
    if isinstance(wanted, (bool, TensorBase)) or not hasattr(wanted, "__index__"):
        sentence = f"index: does not take a {type(wanted).__name__}"
        raise TypeError(f"{sentence}; it must be {ACCEPTED}, or a tuple of them.")
    position = as_int(wanted)
    if not -extent <= position < extent:
        sentence = f"index: out of range: {position} on axis {axis} of extent {extent}"
        raise IndexOutOfRange(f"{sentence}; it must be in {-extent} .. {extent - 1}.")
    return position % extent


class Indexing(TensorBase):
    """Reading parts of a tensor."""

    __slots__ = ()

    def __getitem__(self, index: Index | tuple[Index, ...]) -> Self:
        entries = index if isinstance(index, tuple) else (index,)
        selection = select_elements(entries, self.shape)
        taken = nodes.take_slices(self.uop, selection.ranges)
        return self._wrap(nodes.reshape(taken, tuple(selection.shape)))
