"""Turns several Tensors into one: side by side, or stacked along an axis of their own."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Self, TypeVar

from tinytensor.dtype import promote
from tinytensor.errors import ShapeError, ValueOutOfRange
from tinytensor.ops.uop import UOp, cast
from tinytensor.tensor.arranging import Arranging
from tinytensor.tensor.axes import check_axis
from tinytensor.tensor.base import TensorBase
from tinytensor.tensor.formulas import is_less
from tinytensor.tensor.nodes import broadcast, iota, pad, reshape, select
from tinytensor.tensor.operands import check_devices

M = TypeVar("M", bound=Arranging)
GROUP_PARTS = 16  # an element is chosen among so many at once


def join(parts: list[UOp], axis: int) -> UOp:
    """Return parts of one dtype side by side along an axis; many parts in groups of groups.

    Each part is padded to the whole and chosen where it lies: adding them would lose -0.0 and NaN.
    """
    while len(parts) > GROUP_PARTS:
        begins = range(0, len(parts), GROUP_PARTS)
        parts = [join(parts[begin : begin + GROUP_PARTS], axis) for begin in begins]
    ends = [0]
    for part in parts:
        ends.append(ends[-1] + part.shape[axis])
    first = parts[0]
    shape = (*first.shape[:axis], ends[-1], *first.shape[axis + 1 :])
    aligned = [1] * len(shape)
    aligned[axis] = ends[-1]
    position = broadcast(reshape(iota(ends[-1]), tuple(aligned)), shape)
    joined: UOp | None = None
    for number in reversed(range(len(parts))):
        before, after = [0] * len(shape), [0] * len(shape)
        before[axis], after[axis] = ends[number], ends[-1] - ends[number + 1]
        padded = pad(parts[number], tuple(before), tuple(after), 0)
        if joined is None:
            joined = padded
        else:
            joined = select(is_less(position, ends[number + 1]), padded, joined)
    assert joined is not None, "there is at least one part"
    return joined


class Joining(TensorBase):
    """Class methods that join tensors."""

    __slots__ = ()

    @classmethod
    def cat(cls, tensors: Sequence[TensorBase], dim: int = 0) -> Self:
        """Join tensors along an axis that they have; 1-d tensors without elements are left out."""
        kept = _check_parts("cat", tensors)
        real = [each for each in kept if each.shape != (0,)] or list(kept[:1])
        shape = real[0].shape
        if not shape:
            sentence = "cat: a 0-d tensor has no axis to join: shape ()"
            raise ShapeError(f"{sentence}; ndim must be 1 or more. Use stack.")
        axis = check_axis("cat", dim, len(shape))
        for each in real[1:]:
            rest = (*each.shape[:axis], *shape[axis : axis + 1], *each.shape[axis + 1 :])
            if each.ndim != len(shape) or rest != shape:
                sentence = f"cat: shapes differ beyond axis {axis}: {shape} and {each.shape}"
                raise ShapeError(f"{sentence}; all other axes must be equal.")
        return cls._joined(kept, [each.uop for each in real], axis)

    @classmethod
    def stack(cls, tensors: Sequence[TensorBase], dim: int = 0) -> Self:
        """Join tensors of one shape along an axis of their own."""
        kept = _check_parts("stack", tensors)
        shape = kept[0].shape
        axis = check_axis("stack", dim, len(shape) + 1)
        for each in kept:
            if each.shape != shape:
                sentence = f"stack: shapes differ: {shape} and {each.shape}"
                raise ShapeError(f"{sentence}; all must be equal.")
        single = (*shape[:axis], 1, *shape[axis:])
        return cls._joined(kept, [reshape(each.uop, single) for each in kept], axis)

    @classmethod
    def vstack(cls, tensors: Sequence[Arranging]) -> Self:
        """Join tensors, vectors as rows, along the first axis."""
        return cls.cat([each.atleast_2d() for each in tensors], 0)

    @classmethod
    def hstack(cls, tensors: Sequence[Arranging]) -> Self:
        """Join tensors along the second axis, vectors along the first."""
        parts = [each.atleast_1d() for each in tensors]
        return cls.cat(parts, 1 if parts and parts[0].ndim > 1 else 0)

    @classmethod
    def dstack(cls, tensors: Sequence[Arranging]) -> Self:
        """Join tensors, matrices as layers, along the third axis."""
        return cls.cat([each.atleast_3d() for each in tensors], 2)

    @classmethod
    def meshgrid(cls, *tensors: M, indexing: str = "ij") -> tuple[M, ...]:
        """Return each vector expanded over the grid of all; with 'xy' the first two exchanged."""
        if indexing not in ("ij", "xy"):
            sentence = f"meshgrid: no such indexing: {indexing!r}"
            raise ValueOutOfRange(f"{sentence}; it must be 'ij' or 'xy'.")
        if max([each.ndim for each in tensors], default=2) > 1:
            shapes = [each.shape for each in tensors]
            raise ShapeError(f"meshgrid: not all are vectors: {shapes}; ndim must be 1 or less.")
        check_devices("meshgrid", list(tensors))
        shape = tuple([each.numel() for each in tensors])
        grids = []
        for axis, each in enumerate(tensors):
            aligned = each.view((each.numel(), *[1] * (len(shape) - axis - 1)))
            grid = aligned.expand(shape)
            exchanged = indexing == "xy" and len(shape) > 1
            grids.append(grid.transpose(0, 1) if exchanged else grid)
        return tuple(grids)

    @classmethod
    def _joined(cls, tensors: Sequence[TensorBase], parts: list[UOp], axis: int) -> Self:
        dtype = reduce(promote, [each.dtype for each in tensors])
        filled = [cast(part, dtype) for part in parts if part.shape[axis]]
        joined = join(filled, axis) if filled else cast(parts[0], dtype)
        return tensors[0]._wrap(joined)  # type: ignore[return-value]  # what is joined is alike


def _check_parts(who: str, tensors: Sequence[TensorBase]) -> Sequence[TensorBase]:
    if len(tensors) == 0:
        raise ShapeError(f"{who}: no tensors are given: 0; there must be 1 or more.")
    check_devices(who, list(tensors))
    return tensors
