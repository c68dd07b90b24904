"""Turns an axis into two views of it: the windows that slide along it, and the places in them."""

from __future__ import annotations

from tinytensor.ops.uop import UOp
from tinytensor.tensor.nodes import (
    broadcast,
    pad_axis,
    permute,
    replace_axis,
    reshape,
    take_part,
)


def slide(
    x: UOp,
    axis: int,
    extent: int,
    step: int = 1,
    dilation: int = 1,
) -> UOp:
    """Return element [.., j, t, ..] = x[.., j * dilation + t * step, ..] for every full window.

    Shapes: x (.., n, ..) -> (.., extent, windows, ..), at least one window.

    The axis is written again and again, and cut into rows that are `dilation` longer than it: so
    each row begins `dilation` later. Indices of such a view simplify to the sum above.
    """
    shape, n = x.shape, x.shape[axis]
    span = dilation * (extent - 1)
    last = n - 1 - span
    row = n + dilation
    copies = -(-extent * row // n)
    apart = reshape(x, replace_axis(shape, axis, 1, n))
    repeated = broadcast(apart, replace_axis(shape, axis, copies, n))
    flat = reshape(repeated, replace_axis(shape, axis, copies * n))
    cut = take_part(flat, axis, range(extent * row))
    rows = reshape(cut, replace_axis(shape, axis, extent, row))
    return take_part(rows, axis + 1, range(0, last + 1, step))


def divide(x: UOp, axis: int, extent: int, step: int) -> UOp:
    """Return the same windows as slide where they do not overlap: step >= extent.

    No element is repeated, so each may be written.
    """
    shape, n = x.shape, x.shape[axis]
    windows = (n - extent) // step + 1
    span = windows * step
    filled = pad_axis(x, axis, 0, max(span - n, 0), 0)
    whole = take_part(filled, axis, range(span))
    rows = reshape(whole, replace_axis(shape, axis, windows, step))
    places = take_part(rows, axis + 1, range(extent))
    order = (*range(axis), axis + 1, axis, *range(axis + 2, len(shape) + 1))
    return permute(places, order)
