"""Turns one factor of a contraction into a ring of tiles that the bulk copy engine fills."""

from __future__ import annotations

import math
from collections.abc import Mapping

from tinytensor.codegen.block_builder import BlockBuilder
from tinytensor.codegen.plans.cuda_hopper_boxes import Boxes
from tinytensor.codegen.plans.cuda_hopper_tiling import GROUP_ROWS, ROW_BYTES
from tinytensor.dtype import dtypes
from tinytensor.ops.tile import stage_bytes
from tinytensor.ops.uop import UOp


class Factor:
    """A factor's tiles: `extent` of m or n, its `free` range, and a block of k in each stage.

    Along k, a stage is one tile whose rows are m or n. Else its rows are k, and as many tiles lie
    one after another as it takes to hold the extent; of the last one a part may go unused. So do
    those of boxes of several axes. With a range `half` a stage has one half after the other.
    """

    def __init__(
        self,
        b: BlockBuilder,
        boxes: Boxes,
        ranges: tuple[UOp, UOp, UOp | None],
        extent: int,
        stages: int,
    ) -> None:
        self._b = b
        self._boxes = boxes
        self._free, self._k, self._half = ranges
        self._halves = 1 if self._half is None else 2
        self.is_k_major = boxes.inner is self._k
        dtype = boxes.buffer.dtype
        self.block_k = ROW_BYTES // dtype.itemsize
        is_whole = self.is_k_major and not boxes.box
        self._piece = extent if is_whole else self.block_k
        self._pieces = math.ceil(extent / self._piece)
        rows = self._piece if self.is_k_major else self.block_k
        self.tile = b.tile(dtype, rows, self.block_k, stages * self._halves * self._pieces)
        self._map = boxes.tensor_map(b, self.tile, rounds=dtype is dtypes.float32)

    @property
    def nbytes(self) -> int:
        """The bytes of one stage."""
        return self._halves * self._pieces * stage_bytes(self.tile)

    def load(
        self,
        stage: UOp,
        places: Mapping[UOp, UOp],
        first: UOp,
        first_k: UOp,
        full: UOp,
    ) -> None:
        """Begin to fill a stage, from a value of m or n and a value of k on."""
        b, count = self._b, self._halves * self._pieces
        for number in range(count):
            half, piece = divmod(number, self._pieces)
            along = first + piece * self._piece if piece else first
            ranges = {**places, self._free: along, self._k: first_k}
            if self._half is not None:
                ranges[self._half] = b.index(half)
            begin = self._boxes.begin(b, ranges)
            b.bulk_load(self.tile, stage * count + number, self._map, begin, full, stage)

    def index(self, stage: UOp, group: UOp | int = 0) -> UOp:
        """Return where the GROUP_ROWS rows number `group` of a stage begin."""
        start = stage * (self._halves * self._half_elements)
        index: UOp = start + group * (GROUP_ROWS * self.block_k)
        return index

    def ahead(self, groups: int, k: int, half: int) -> int:
        """Return how far ahead of such a place the block of a later group and k begins."""
        within = k if self.is_k_major else k * self.block_k
        return half * self._half_elements + groups * GROUP_ROWS * self.block_k + within

    @property
    def _half_elements(self) -> int:
        attrs = self.tile.attrs
        return self._pieces * int(attrs.rows) * int(attrs.columns)
