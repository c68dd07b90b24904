"""Turns `x[...]` into slices and gathers: which elements of each axis, and which axes stay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from operator import index as as_int
from types import EllipsisType
from typing import Any, Self, SupportsIndex, Union

import numpy as np
import numpy.typing as npt

from tinytensor.dtype import dtypes
from tinytensor.errors import IndexOutOfRange, ShapeError
from tinytensor.ops.size import Size
from tinytensor.ops.uop import UOp
from tinytensor.records import dataclass
from tinytensor.tensor.axes import Shape
from tinytensor.tensor.base import TensorBase
from tinytensor.tensor.creation import Creation
from tinytensor.tensor.filling import Filling
from tinytensor.tensor.gathering import from_either_end, places_of
from tinytensor.tensor.nodes import Indices, count_of, stretch
from tinytensor.tensor.routes import Route, read_along, routes_to
from tinytensor.tensor.view import View

Plain = SupportsIndex | slice | None
Index = Plain | EllipsisType
Written = Union[Plain, "Choice"]
Entry = Index | TensorBase | list[Any] | npt.NDArray[Any]  # lists nest as deep as they like
ACCEPTED = "an int, a slice, ... or None"


@dataclass(frozen=True, slots=True)
class Selection:
    """What an index selects: a range of each axis, and the shape and strides of the result."""

    ranges: list[Indices] = field(default_factory=list)
    shape: list[int] = field(default_factory=list)
    strides: list[int] = field(default_factory=list)

    def seen(self, layout: View) -> View:
        """Return how the selected elements are seen."""
        return layout.sliced(self.ranges).with_axes(tuple(self.shape), tuple(self.strides))


def select_elements(written: Sequence[Plain], layout: View) -> Selection:
    """Return what an index without `...` selects from a view.

    Raises: IndexOutOfRange, ShapeError, TypeError.
    """
    selection = Selection()
    for each in written:
        axis = len(selection.ranges)
        extent, stride = (*layout.shape, 1)[axis], (*layout.strides, 1)[axis]
        if each is None:
            selection.shape.append(1)
            selection.strides.append(extent * stride)
        elif isinstance(each, slice):
            selection.ranges.append(_slice_range(each, extent))
            selection.shape.append(count_of(selection.ranges[-1]))
            selection.strides.append(selection.ranges[-1].step * stride)
        else:
            position = _position(each, axis, extent)
            selection.ranges.append(stretch(position, 1))
    return selection


def _without_ellipsis(index: Sequence[Index | Choice], shape: Shape) -> list[Written]:
    """Return the index with `...` written out, one entry for each axis and each None."""
    used = [each for each in index if each is not None and each is not Ellipsis]
    missing = len(shape) - len(used)
    if missing < 0:
        sentence = f"index: more indices than axes: {len(used)} for shape {shape}"
        raise IndexOutOfRange(f"{sentence}; there must be at most {len(shape)}.")
    whole: list[Written] = [slice(None)] * missing
    written: list[Written] = []
    for each in index:
        if isinstance(each, EllipsisType):
            written += whole
            whole = []
        else:
            written.append(each)
    return written + whole


def _slice_range(wanted: slice, extent: int) -> Indices:
    if wanted.step is not None and wanted.step <= 0:
        sentence = f"index: the step of a slice is not positive: {wanted.step}"
        raise ShapeError(f"{sentence}; it must be 1 or more. Use flip.")
    if any(isinstance(each, Size) for each in (wanted.start, wanted.stop, extent)):
        return _open_range(wanted, extent)
    return range(*wanted.indices(extent))


def _open_range(wanted: slice, extent: int) -> Indices:
    """Return what a slice takes, some of whose numbers are known only at launch."""
    begin = 0 if wanted.start is None else _end_of_slice(wanted.start, extent)
    end = extent if wanted.stop is None else _end_of_slice(wanted.stop, extent)
    step = 1 if wanted.step is None else as_int(wanted.step)
    count = -(-(end - begin) // step) if begin <= end else 0
    return stretch(begin, count, step)


def _end_of_slice(end: int, extent: int) -> int:
    counted = end + extent if end < 0 else end
    return 0 if counted < 0 else extent if counted > extent else counted


def _position(wanted: SupportsIndex, axis: int, extent: int) -> int:
    if isinstance(wanted, (bool, TensorBase)) or not hasattr(wanted, "__index__"):
        error = IndexOutOfRange if isinstance(wanted, float) else TypeError
        sentence = f"index: does not take a {type(wanted).__name__}"
        raise error(f"{sentence}; it must be {ACCEPTED}, a tensor, or a tuple of them.")
    position = wanted if isinstance(wanted, Size) else as_int(wanted)
    if not -extent <= position < extent:
        sentence = f"index: out of range: {position} on axis {axis} of extent {extent}"
        raise IndexOutOfRange(f"{sentence}; it must be in {-extent} .. {extent - 1}.")
    return position if position >= 0 else position + extent


@dataclass(frozen=True, slots=True)
class Choice:
    """Indices along one axis as an entry of an index; a mask's also know its extent there."""

    places: UOp
    mask_extent: int | None = None


def as_index(entry: TensorBase | list[Any] | npt.NDArray[Any], device: str) -> TensorBase:
    """Return a list, array or tensor of an index as a tensor."""
    if isinstance(entry, TensorBase):
        return entry
    count = len(entry) if isinstance(entry, list) else entry.size
    return Creation(entry, None if count else dtypes.int64, device)


def choices_of(entry: TensorBase) -> list[Choice]:
    """Return what a tensor chooses: a mask, which is realized, of several axes.

    Raises: IndexOutOfRange when it is neither of integers nor a mask.
    """
    dtype, shape = entry.dtype, entry.shape
    if dtype in (dtypes.int32, dtypes.int64):
        return [Choice(entry.uop)]
    if dtype not in (dtypes.bool, dtypes.uint8) or not shape:
        sentence = f"index: does not take a tensor of {dtype.name} {shape}"
        raise IndexOutOfRange(f"{sentence}; it must be int32, int64, or bool with axes.")
    pairs = zip(places_of(entry), shape, strict=True)
    return [Choice(places, extent) for places, extent in pairs]


class Indexing(Filling):
    """Parts of a tensor: views of them, unless places are chosen by tensors."""

    __slots__ = ()

    def __getitem__(self, index: Entry | tuple[Entry, ...]) -> Self:
        part, routes = self._part_at(entries_of(index))
        return self._wrap(read_along(routes, part.uop)) if routes else part

    def _part_at(self, entries: Sequence[Entry]) -> tuple[Self, list[Route]]:
        """Return the part that numbers and slices select, and the ways to what tensors choose."""
        listed: list[Index | Choice] = []
        for each in entries:
            if isinstance(each, (TensorBase, list, np.ndarray)):
                listed.extend(choices_of(as_index(each, self.device)))
            else:
                listed.append(each)
        written = _without_ellipsis(listed, self.shape)
        plain = [slice(None) if isinstance(each, Choice) else each for each in written]
        layout = self._layout()
        part = self._seen(select_elements(plain, layout).seen(layout))
        return part, routes_to(part.shape, _checked_choices(written, self.shape))


def entries_of(index: Entry | tuple[Entry, ...]) -> tuple[Entry, ...]:
    """Return what is written between the brackets, one by one."""
    return index if isinstance(index, tuple) else (index,)


def _checked_choices(written: Sequence[Written], shape: Shape) -> dict[int, UOp]:
    """Return the checked indices along each axis of the sliced tensor that is chosen from."""
    chosen: dict[int, UOp] = {}
    axis = place = 0
    for each in written:
        if isinstance(each, Choice):
            chosen[place] = _inside(each, axis, shape[axis])
        place += isinstance(each, (slice, Choice)) or each is None
        axis += each is not None
    return chosen


def _inside(choice: Choice, axis: int, extent: int) -> UOp:
    if choice.mask_extent is None:
        return from_either_end("index", choice.places, axis, extent)
    if choice.mask_extent != extent:
        sentence = f"index: a mask does not fit: {choice.mask_extent} on axis {axis}"
        raise IndexOutOfRange(f"{sentence} of extent {extent}; they must be equal.")
    return choice.places
