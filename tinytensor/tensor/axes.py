"""Turns a user's dims, sizes and shapes into checked axes and shapes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import index

from tinytensor.errors import IndexOutOfRange, ShapeError
from tinytensor.ops.size import Size, are_same, is_one, is_same

Shape = tuple[int, ...]
Dims = int | Sequence[int] | None


def check_axis(who: str, dim: int, ndim: int) -> int:
    """Return a dim as an axis 0 .. ndim - 1; a 0-d tensor has the dims 0 and -1.

    Raises: IndexOutOfRange.
    """
    axes = max(ndim, 1)
    if not -axes <= dim < axes:
        sentence = f"{who}: dim is out of range: {dim} for a tensor with ndim {ndim}"
        raise IndexOutOfRange(f"{sentence}; it must be in {-axes} .. {axes - 1}.")
    return index(dim) % axes


def check_axes(who: str, dim: Dims, ndim: int) -> Shape:
    """Return dims as ascending axes; None and () mean every axis (of a 0-d tensor: 0).

    Raises: IndexOutOfRange, or ShapeError when an axis occurs twice.
    """
    if dim is None:
        return tuple(range(max(ndim, 1)))
    if not isinstance(dim, Sequence):
        return (check_axis(who, dim, ndim),)
    if len(dim) == 0:
        return tuple(range(max(ndim, 1)))
    axes = [check_axis(who, each, ndim) for each in dim]
    if len(set(axes)) < len(axes):
        raise ShapeError(f"{who}: a dim is given twice: {tuple(dim)}; each must occur once.")
    return tuple(sorted(axes))


def flat_sizes(sizes: Sequence[int | Sequence[int]]) -> Shape:
    """Return the ints of `f(2, 3)` and of `f((2, 3))` alike."""
    first = sizes[0] if len(sizes) == 1 else sizes
    listed = first if isinstance(first, Sequence) else (first,)
    return tuple([_as_size(each) for each in listed])


def _as_size(extent: object) -> int:
    """Return an extent as an int; what is known only at launch stays so."""
    return extent if isinstance(extent, Size) else index(extent)  # type: ignore[arg-type]  # checks


def check_shape(who: str, sizes: Sequence[int | Sequence[int]]) -> Shape:
    """Return the shape that was asked for.

    Raises: ShapeError for a negative extent.
    """
    shape = flat_sizes(sizes)
    if any(each < 0 for each in shape):
        raise ShapeError(f"{who}: a size is negative: {shape}; all must be 0 or more.")
    return shape


def infer_shape(who: str, source: Shape, sizes: Shape) -> Shape:
    """Return sizes with a -1 replaced, so that they hold as many elements as source.

    Raises: ShapeError when they do not, or when -1 is ambiguous.
    """
    if sizes.count(-1) > 1 or any(each < -1 for each in sizes):
        raise ShapeError(f"{who}: sizes are not clear: {sizes}; at most one may be -1.")
    count = math.prod(source)
    shape = sizes
    if -1 in sizes:
        known = math.prod(each for each in sizes if each != -1)
        if known == 0:
            sentence = f"{who}: -1 could be any size: {sizes} for shape {source}"
            raise ShapeError(f"{sentence}; no other size may be 0.")
        shape = tuple([count // known if each == -1 else each for each in sizes])
    if math.prod(shape) != count:
        sentence = f"{who}: numbers of elements differ: shape {source} holds {count}"
        raise ShapeError(f"{sentence}, sizes are {sizes}; they must hold as many.")
    return shape


def broadcast_shapes(who: str, shapes: Sequence[Shape]) -> Shape:
    """Return the shape that all shapes expand to.

    Raises: ShapeError when two extents differ and neither is 1.
    """
    if len(shapes) == 2 and are_same(shapes[0], shapes[1]):
        return shapes[0]
    extents = [1] * max(map(len, shapes))
    for shape in shapes:
        offset = len(extents) - len(shape)
        for axis, extent in enumerate(shape, offset):
            if is_one(extent) or is_same(extents[axis], extent):
                continue
            if is_one(extents[axis]) or extents[axis] == 1:
                extents[axis] = extent
            elif extents[axis] != extent and extent != 1:
                listed = " and ".join(map(str, shapes))
                sentence = f"{who}: shapes do not broadcast: {listed}"
                raise ShapeError(f"{sentence}; aligned at the end, sizes must be equal or 1.")
    return tuple(extents)
