"""Turns `x[...]` into slices and gathers: which elements of each axis, and which axes stay."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import index as as_int
from types import EllipsisType
from typing import Any, Self, SupportsIndex, Union

import numpy as np
import numpy.typing as npt

from tinytensor.dtype import dtypes
from tinytensor.errors import IndexOutOfRange, ShapeError
from tinytensor.ops.uop import Number, UOp
from tinytensor.tensor import nodes
from tinytensor.tensor.axes import Shape, broadcast_shapes
from tinytensor.tensor.base import TensorBase
from tinytensor.tensor.creation import Creation
from tinytensor.tensor.filling import Filling
from tinytensor.tensor.gathering import along, from_either_end, gather_at, places_of
from tinytensor.tensor.view import View

Plain = SupportsIndex | slice | None
Index = Plain | EllipsisType
Written = Union[Plain, "Choice"]
Entry = Index | TensorBase | list[Any] | npt.NDArray[Any]  # lists nest as deep as they like
ACCEPTED = "an int, a slice, ... or None"


@dataclass(frozen=True, slots=True)
class Selection:
    """What an index selects: a range of each axis, and the shape and strides of the result."""

    ranges: list[range] = field(default_factory=list)
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
            selection.shape.append(len(selection.ranges[-1]))
            selection.strides.append(selection.ranges[-1].step * stride)
        else:
            position = _position(each, axis, extent)
            selection.ranges.append(range(position, position + 1))
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


def _slice_range(wanted: slice, extent: int) -> range:
    if wanted.step is not None and wanted.step <= 0:
        sentence = f"index: the step of a slice is not positive: {wanted.step}"
        raise ShapeError(f"{sentence}; it must be 1 or more. Use flip.")
    return range(*wanted.indices(extent))


def _position(wanted: SupportsIndex, axis: int, extent: int) -> int:
    if isinstance(wanted, (bool, TensorBase)) or not hasattr(wanted, "__index__"):
        sentence = f"index: does not take a {type(wanted).__name__}"
        raise TypeError(f"{sentence}; it must be {ACCEPTED}, a tensor, or a tuple of them.")
    position = as_int(wanted)
    if not -extent <= position < extent:
        sentence = f"index: out of range: {position} on axis {axis} of extent {extent}"
        raise IndexOutOfRange(f"{sentence}; it must be in {-extent} .. {extent - 1}.")
    return position % extent


@dataclass(frozen=True, slots=True)
class Choice:
    """Indices along one axis as an entry of an index; a mask's also know its extent there."""

    places: UOp
    mask_extent: int | None = None


def choices_of(entry: object, device: str) -> list[Choice]:
    """Return what a list, array or tensor chooses: a mask, which is realized, of several axes.

    Raises: IndexOutOfRange when it is neither of integers nor a mask.
    """
    if isinstance(entry, (list, np.ndarray)):
        entry = Creation(entry, dtypes.int64 if len(entry) == 0 else None, device)
    assert isinstance(entry, TensorBase), "the caller has looked"
    dtype, shape = entry.dtype, entry.shape
    if dtype in (dtypes.int32, dtypes.int64):
        return [Choice(entry.uop)]
    if dtype not in (dtypes.bool, dtypes.uint8) or not shape:
        sentence = f"index: does not take a tensor of {dtype.name} {shape}"
        raise IndexOutOfRange(f"{sentence}; it must be int32, int64, or bool with axes.")
    pairs = zip(places_of(entry), shape, strict=True)
    return [Choice(places, extent) for places, extent in pairs]


def choose_single(x: UOp, chosen: dict[int, UOp]) -> UOp:
    """Return x at one index along some axes, without these axes."""
    shape = tuple([1 if axis in chosen else n for axis, n in enumerate(x.shape)])
    indices = [nodes.broadcast(each, shape) for each in chosen.values()]
    kept = tuple([n for axis, n in enumerate(x.shape) if axis not in chosen])
    return nodes.reshape(gather_at(x, tuple(chosen), indices), kept)


def choose_many(x: UOp, chosen: dict[int, UOp]) -> UOp:
    """Return x at indices that broadcast with one another, along some axes.

    The indices' axes stand in the place of the chosen ones if these are neighbors, else in front.
    """
    axes = tuple(chosen)
    try:
        shape = broadcast_shapes("index", [each.shape for each in chosen.values()])
    except ShapeError as error:
        raise IndexOutOfRange(str(error)) from None
    rest = tuple([axis for axis in range(len(x.shape)) if axis not in chosen])
    moved = nodes.permute(x, axes + rest)
    extents = moved.shape[len(axes) :]
    whole = (math.prod(shape), *[1] * (len(axes) - 1), *extents)
    flat = [nodes.reshape(nodes.broadcast(each, shape), whole[:1]) for each in chosen.values()]
    indices = [along(each, 0, whole) for each in flat]
    gathered = gather_at(moved, tuple(range(len(axes))), indices)
    front = nodes.reshape(gathered, shape + extents)
    if axes[-1] - axes[0] >= len(axes):
        return front
    before = range(len(shape), len(shape) + axes[0])
    after = range(len(shape) + axes[0], len(front.shape))
    return nodes.permute(front, (*before, *range(len(shape)), *after))


class Indexing(Filling):
    """Parts of a tensor: views of them, unless places are chosen by tensors."""

    __slots__ = ()

    def __getitem__(self, index: Entry | tuple[Entry, ...]) -> Self:
        part, chosen = self._part_at(index)
        return self._wrap(_choose(part.uop, chosen)) if chosen else part

    def __setitem__(self, index: Entry | tuple[Entry, ...], value: TensorBase | Number) -> None:
        part, chosen = self._part_at(index)
        if chosen:
            sentence = "setitem: writes at chosen places: an index holds a tensor or a list"
            raise NotImplementedError(f"{sentence}; it must be {ACCEPTED}.")
        part._assign("setitem", value)

    def _part_at(self, index: Entry | tuple[Entry, ...]) -> tuple[Self, dict[int, UOp]]:
        """Return the part that numbers and slices select, and what is chosen from its axes."""
        entries = index if isinstance(index, tuple) else (index,)
        listed: list[Index | Choice] = []
        for each in entries:
            if isinstance(each, (TensorBase, list, np.ndarray)):
                listed.extend(choices_of(each, self.device))
            else:
                listed.append(each)
        written = _without_ellipsis(listed, self.shape)
        plain = [slice(None) if isinstance(each, Choice) else each for each in written]
        layout = self._layout()
        part = self._seen(select_elements(plain, layout).seen(layout))
        return part, _checked_choices(written, self.shape)


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


def _choose(x: UOp, chosen: dict[int, UOp]) -> UOp:
    single = {axis: each for axis, each in chosen.items() if not each.shape}
    if single:
        x = choose_single(x, single)
    several = {
        axis - sum(other < axis for other in single): each
        for axis, each in chosen.items()
        if each.shape
    }
    return choose_many(x, several) if several else x
