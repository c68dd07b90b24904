"""Turns an access to global memory into what the bulk copy engine sees of it, if it can."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tinytensor.codegen.block_builder import BlockBuilder
from tinytensor.codegen.vectorize import guard_of
from tinytensor.ops.infer_blocks import RANKS
from tinytensor.ops.op import Op
from tinytensor.ops.sums import collect
from tinytensor.ops.uop import UOp, exact_extent

ENGINE_BYTES = 16  # divide the offset and every stride


@dataclass(frozen=True, slots=True)
class Boxes:
    """A buffer as an array over `axes`, innermost first, adjacent along the first one.

    Units: elements; `strides` are those of the axes after the first.
    """

    buffer: UOp
    axes: tuple[UOp, ...]
    strides: tuple[int, ...]
    offset: int

    def begin_at_multiples(self, nbytes: int) -> bool:
        """Whether rows begin at multiples of so many bytes."""
        itemsize = self.buffer.dtype.itemsize
        return not any(each * itemsize % nbytes for each in (self.offset, *self.strides))

    def tensor_map(self, b: BlockBuilder, tile: UOp, rounds: bool = False) -> UOp:
        """Return it in boxes like a tile."""
        shape = [exact_extent(each) for each in self.axes]
        return b.tensor_map(self.buffer, shape, self.strides, tile, self.offset, rounds)


def see_in_boxes(access: UOp, inner: UOp, outer: UOp, batch: Sequence[UOp]) -> Boxes | str:
    """Return the array that a LOAD or STORE walks, or why the engine cannot."""
    if access.op not in (Op.LOAD, Op.STORE):
        return "is computed"
    if guard_of(access) is not None:
        return "is guarded"
    buffer, index = access.operands[:2]
    total = collect(index)
    strides = dict(total.coefficients)
    if strides.pop(inner, 0) != 1:
        return "has no adjacent elements along a range"
    pitch = strides.pop(outer, 0)
    around = [each for each in batch if each in strides]
    if len(around) < len(strides) or len(around) + 2 not in RANKS:
        return "is no array of rows, for each of a few ranges"
    found = (pitch, *[strides[each] for each in around])
    boxes = Boxes(buffer, (inner, outer, *around), found, total.constant)
    if min(found) <= 0 or not boxes.begin_at_multiples(ENGINE_BYTES):
        return f"has strides or an offset that {ENGINE_BYTES} bytes do not divide"
    return boxes
