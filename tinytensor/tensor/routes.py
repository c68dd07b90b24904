"""Turns index tensors along some axes into the way to the elements that they choose, and back."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tinytensor.errors import IndexOutOfRange, ShapeError
from tinytensor.ops.uop import UOp
from tinytensor.records import dataclass
from tinytensor.tensor import nodes
from tinytensor.tensor.axes import Shape, broadcast_shapes
from tinytensor.tensor.gathering import along
from tinytensor.tensor.scattering import put_at


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
        end = count + self.place
        return (*range(count, end), *range(count), *range(end, ndim))

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
    rest = tuple([axis for axis in range(len(shape)) if axis not in chosen])
    extents = [shape[axis] for axis in rest]
    whole = (math.prod(together), *[1] * (len(axes) - 1), *extents)
    flat = [nodes.reshape(nodes.broadcast(each, together), whole[:1]) for each in chosen.values()]
    indices = tuple([along(each, 0, whole) for each in flat])
    is_apart = axes[-1] - axes[0] >= len(axes)
    place = 0 if is_apart else axes[0]
    return Route(axes + rest, indices, whole, together, place)


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
    return [route_to(*way) for way in ways if way[1]]


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
