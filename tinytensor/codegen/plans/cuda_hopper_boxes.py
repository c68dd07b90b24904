"""Turns an access to global memory into what the bulk copy engine sees of it, if it can."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from tinytensor.codegen.block_builder import BlockBuilder
from tinytensor.codegen.plans.block_reach import Reach
from tinytensor.codegen.plans.pack_rows import Rows
from tinytensor.codegen.vectorize import Evaluator, guard_of
from tinytensor.ops.bounds import bounds_of
from tinytensor.ops.infer_blocks import RANKS
from tinytensor.ops.op import Op
from tinytensor.ops.sums import collect
from tinytensor.ops.uop import UOp, exact_extent
from tinytensor.records import dataclass

ENGINE_BYTES = 16  # divide the offset and every stride


@dataclass(frozen=True, slots=True)
class Boxes:
    """A buffer as an array, innermost axis first; adjacent along that one runs the range `inner`.

    `places` are where an element lies on each axis, index expressions over ranges. A box is a tile
    of the first two axes, or it takes `box` elements of each, `steps` apart, and its places are
    those of the `starts` of some ranges. With `rows` the buffer is scratch memory that they are
    written to before. With a `reach` one box serves several taps, at `shift` rows of it.

    Units: elements; `strides` are those of the axes after the first.
    """

    buffer: UOp
    inner: UOp
    places: tuple[UOp, ...]
    shape: tuple[UOp, ...]
    strides: tuple[int, ...]
    offset: int
    box: tuple[int, ...] = ()
    steps: tuple[int, ...] = ()
    rows: Rows | None = None
    starts: Mapping[UOp, UOp] = field(default_factory=dict)
    reach: Reach | None = None
    shift: UOp | None = None

    def begin_at_multiples(self, nbytes: int) -> bool:
        """Whether rows begin at multiples of so many bytes."""
        itemsize = self.buffer.dtype.itemsize
        return not any(each * itemsize % nbytes for each in (self.offset, *self.strides))

    def held_k(self, block: int, k: UOp) -> int:
        """Return how many of a block's values of k lie on the axis: beyond it, factors are 0."""
        is_patch = self.box and self.inner is k
        return min(block, int(bounds_of(self.shape[0])[1])) if is_patch else block

    def tensor_map(self, b: BlockBuilder, tile: UOp, rounds: bool = False) -> UOp:
        """Return it in boxes like a tile."""
        described = (self.shape, self.strides, tile, self.offset, rounds, self.box, self.steps)
        return b.tensor_map(self.buffer, *described)

    def begin(self, b: BlockBuilder, ranges: Mapping[UOp, UOp]) -> tuple[UOp, ...]:
        """Return where the box of some values of the ranges begins."""
        evaluator = self._evaluator(b, ranges)
        return tuple([evaluator.value(each) for each in self.places])

    def rows_ahead(self, b: BlockBuilder, ranges: Mapping[UOp, UOp]) -> UOp | int:
        """Return at which row of its box a tap begins."""
        return 0 if self.shift is None else self._evaluator(b, ranges).value(self.shift)

    def _evaluator(self, b: BlockBuilder, ranges: Mapping[UOp, UOp]) -> Evaluator:
        starts = {start: ranges[each] for each, start in self.starts.items() if each in ranges}
        return Evaluator(b, {**ranges, **starts})


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
    axes = (inner, outer, *around)
    shape = tuple([exact_extent(each) for each in axes])
    boxes = Boxes(buffer, inner, axes, shape, found, total.constant)
    if min(found) <= 0 or not boxes.begin_at_multiples(ENGINE_BYTES):
        return f"has strides or an offset that {ENGINE_BYTES} bytes do not divide"
    return boxes
