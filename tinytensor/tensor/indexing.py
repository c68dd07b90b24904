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
from tinytensor.ops.uop import UOp
from tinytensor.tensor import nodes
from tinytensor.tensor.axes import Shape, broadcast_shapes
from tinytensor.tensor.base import TensorBase
from tinytensor.tensor.creation import Creation
from tinytensor.tensor.gathering import along, from_either_end, places_of
from tinytensor.tensor.scattering import check_source, put_at

Plain = SupportsIndex | slice | None
Index = Plain | EllipsisType
Written = Union[Plain, "Choice"]
Entry = Index | TensorBase | list[Any] | npt.NDArray[Any]  # lists nest as deep as they like
ACCEPTED = "an int, a slice, ... or None"


@dataclass(frozen=True, slots=True)
class Selection:
    """What an index selects: a range of each axis, and the shape of the result."""

    ranges: list[range] = field(default_factory=list)
    shape: list[int] = field(default_factory=list)


def select_elements(written: Sequence[Plain], shape: Shape) -> Selection:
    """Return what an index without `...` selects from a shape.

    Raises: IndexOutOfRange, ShapeError, TypeError.
    """
    selection = Selection()
    for each in written:
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


@dataclass(frozen=True, slots=True)
class Route:
    """How indices along some axes of a tensor lead to the elements that they choose.

    With its axes in `order`, the first ones are those chosen from, and `indices`, one for each of
    them, have the shape `whole`: what is chosen, its first axes as one and others of extent 1. The
    result has the axes of `shape`, which stand at `place` of it.
    """

    order: Shape
    indices: tuple[UOp, ...]
    whole: Shape
    shape: Shape
    place: int

    @property
    def axes(self) -> Shape:
        """The chosen axes, once they are in front."""
        return tuple(range(len(self.indices)))

    def result_order(self, ndim: int) -> Shape:
        """Return how the axes of a result lie in what is read: its first ones belong at place."""
        count = len(self.shape)
        before = range(count, count + self.place)
        return (*before, *range(count), *range(count + self.place, ndim))

    def read(self, x: UOp) -> UOp:
        """Return the chosen elements of x."""
        found = nodes.gather_at(nodes.permute(x, self.order), self.axes, self.indices)
        front = nodes.reshape(found, self.shape + self.whole[len(self.axes) :])
        return nodes.permute(front, self.result_order(len(front.shape)))

    def write(self, x: UOp, values: UOp, accumulate: bool) -> UOp:
        """Return x with values put at, or added to, the chosen elements."""
        front = nodes.permute(values, _inverse(self.result_order(len(values.shape))))
        moved = nodes.permute(x, self.order)
        shaped = nodes.reshape(front, self.whole)
        written = put_at(moved, self.axes, self.indices, shaped, accumulate)
        return nodes.permute(written, _inverse(self.order))


def _inverse(order: Shape) -> Shape:
    return tuple([order.index(axis) for axis in range(len(order))])


def route_to(shape: Shape, chosen: dict[int, UOp]) -> Route:
    """Return the way to the elements of a shape at indices that broadcast, along some axes.

    The indices' axes stand in the place of the chosen ones if these are neighbors, else in front.
    """
    axes = tuple(chosen)
    try:
        together = broadcast_shapes("index", [each.shape for each in chosen.values()])
    except ShapeError as error:
        raise IndexOutOfRange(str(error)) from None
    order = axes + tuple([axis for axis in range(len(shape)) if axis not in chosen])
    extents = [shape[axis] for axis in order[len(axes) :]]
    whole = (math.prod(together), *[1] * (len(axes) - 1), *extents)
    flat = [nodes.reshape(nodes.broadcast(each, together), whole[:1]) for each in chosen.values()]
    indices = tuple([along(each, 0, whole) for each in flat])
    is_apart = axes[-1] - axes[0] >= len(axes)
    return Route(order, indices, whole, together, 0 if is_apart else axes[0])


def routes_to(shape: Shape, chosen: dict[int, UOp]) -> list[Route]:
    """Return the ways to take one after the other: first that of the 0-d indices.

    These are like ints: their axes vanish, and have no say in where those of the others stand.
    """
    single = {axis: each for axis, each in chosen.items() if not each.shape}
    several = {
        axis - sum(other < axis for other in single): each
        for axis, each in chosen.items()
        if each.shape
    }
    left = tuple([extent for axis, extent in enumerate(shape) if axis not in single])
    ways = [(shape, single), (left, several)]
    return [route_to(extents, along_axes) for extents, along_axes in ways if along_axes]


def read_along(routes: Sequence[Route], x: UOp) -> UOp:
    """Return the elements of x that routes lead to."""
    for route in routes:
        x = route.read(x)
    return x


def write_along(routes: Sequence[Route], x: UOp, values: UOp, accumulate: bool) -> UOp:
    """Return x with values where routes lead, one or more; their mirror."""
    first, *others = routes
    if not others:
        return first.write(x, values, accumulate)
    part = write_along(others, first.read(x), values, accumulate)
    return first.write(x, part, False)


class Indexing(TensorBase):
    """Reading parts of a tensor."""

    __slots__ = ()

    def __getitem__(self, index: Entry | tuple[Entry, ...]) -> Self:
        written = self._written(index)
        plain = [slice(None) if isinstance(each, Choice) else each for each in written]
        selection = select_elements(plain, self.shape)
        taken = nodes.take_slices(self.uop, selection.ranges)
        part = nodes.reshape(taken, tuple(selection.shape))
        routes = routes_to(part.shape, _checked_choices(written, self.shape))
        return self._wrap(read_along(routes, part))

    def _written(self, index: Entry | tuple[Entry, ...]) -> list[Written]:
        """Return an index with all that is left out, and with its tensors as choices."""
        entries = index if isinstance(index, tuple) else (index,)
        listed: list[Index | Choice] = []
        for each in entries:
            if isinstance(each, (TensorBase, list, np.ndarray)):
                listed.extend(choices_of(each, self.device))
            else:
                listed.append(each)
        return _without_ellipsis(listed, self.shape)

    def index_put(
        self, indices: Sequence[TensorBase], values: TensorBase, accumulate: bool = False
    ) -> Self:
        """Return this tensor with values where index tensors say, or added there.

        Shapes: the values broadcast to those of `self[indices]`.

        >>> from tinytensor.tensor.tensor import Tensor
        >>> Tensor([0, 0, 0]).index_put((Tensor([2, 2]),), Tensor([3, 4]), True).tolist()
        [0, 0, 7]
        """
        check_source("index_put", self, values)
        routes = routes_to(self.shape, _checked_choices(self._written(tuple(indices)), self.shape))
        shape = read_along(routes, self.uop).shape
        spread = spread_over("index_put", values.uop, shape)
        return self._wrap(write_along(routes, self.uop, spread, accumulate))


def spread_over(who: str, values: UOp, shape: Shape) -> UOp:
    """Return values broadcast to the shape of what they replace.

    Raises: ShapeError when that is not the shape they broadcast to.
    """
    if broadcast_shapes(who, [values.shape, shape]) != shape:
        sentence = f"{who}: the values do not fit: {values.shape} for {shape}"
        raise ShapeError(f"{sentence}; they must broadcast to it.")
    return nodes.broadcast(values, shape)


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
