"""Chooses patches so that one box of a factor that is read in windows serves several taps."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

from tinytensor.codegen.plans.block_axes import Axis
from tinytensor.codegen.plans.block_patches import SHORT_PIECE
from tinytensor.ops.infer_blocks import BOX_LIMIT
from tinytensor.ops.uop import UOp
from tinytensor.records import dataclass

Slides = Mapping[UOp, Mapping[UOp, int]]  # by range, how far each tap moves its places

SWIZZLED_ROWS = 8  # after which the swizzle of a tile repeats
SLOW_ROWS = 2  # that 64 others are multiplied by while one row of a box comes: by their rates


@dataclass(frozen=True, slots=True)
class Reach:
    """A patch of which one box serves several taps: each takes as many rows, from some row on.

    The box takes `halo` more places of the first range in `blocks`. A range within keeps its
    places: its taps run on into those beyond its end, whose results nobody stores. `taps` says how
    many rows further on the next place of each is. Units: rows of the box, one for each value.
    """

    blocks: Mapping[UOp, int]
    halo: int
    taps: Mapping[UOp, int]

    @property
    def patch(self) -> int:
        """Values of the patch."""
        return math.prod(self.blocks.values())

    @property
    def steps(self) -> int:
        """How many taps a box serves."""
        return math.prod([each.extent for each in self.taps])

    @property
    def box_rows(self) -> int:
        """Rows that the engine brings."""
        return self.patch + self.halo * math.prod(list(self.blocks.values())[1:])

    @property
    def rows(self) -> int:
        """Rows that taps read: the last ones may go on beyond the box. A multiple of 8."""
        last = sum([(each.extent - 1) * rows for each, rows in self.taps.items()])
        return math.ceil((self.patch + last) / SWIZZLED_ROWS) * SWIZZLED_ROWS


def choose_reach(
    axes: Sequence[Axis], ranges: Sequence[UOp], k: Sequence[UOp], patch: int
) -> Reach | None:
    """Choose a patch of so many values of some ranges; None if none of k moves them along an axis.

    Few values are to be lost, pieces of results long, and boxes small.
    """
    slides = dict(_slides(axes, ranges, k))
    found = list(_reaches(slides, ranges, patch))
    return min(found, key=lambda each: _cost(each, ranges[-1]), default=None)


def _slides(
    axes: Sequence[Axis], ranges: Sequence[UOp], k: Sequence[UOp]
) -> Iterator[tuple[UOp, dict[UOp, int]]]:
    """Yield each range that steps through an axis one by one, beside taps alone."""
    for axis in axes:
        mine = [each for each in axis.steps if each in ranges]
        taps = {each: step for each, step in axis.steps.items() if each in k}
        is_alone = len(mine) == 1 and len(taps) == len(axis.steps) - 1
        if taps and is_alone and axis.steps[mine[0]] == 1:
            yield mine[0], taps


def _reaches(slides: Slides, ranges: Sequence[UOp], patch: int) -> Iterator[Reach]:
    """Yield patches: of powers of two, with any range that slides as the outermost."""
    powers = [1 << number for number in range(patch.bit_length())]
    for sizes in itertools.product(powers, repeat=len(ranges)):
        if math.prod(sizes) != patch:
            continue
        blocks = dict(zip(ranges, sizes, strict=True))
        for lead in slides:
            reach = _reach({lead: blocks[lead], **blocks}, slides)
            if reach.blocks[lead] + reach.halo <= BOX_LIMIT:
                yield reach


def _reach(blocks: Mapping[UOp, int], slides: Slides) -> Reach:
    """Let a box take more places of its outermost range; others slide if they have room."""
    halos = {
        each: sum([(tap.extent - 1) * step for tap, step in taps.items()])
        for each, taps in slides.items()
    }
    lead, *_ = blocks
    rows = math.prod(blocks.values())
    taps: dict[UOp, int] = {}
    for each, block in blocks.items():
        rows //= block
        has_room = each is lead or block >= each.extent + halos.get(each, 0)
        for tap, step in slides.get(each, {}).items() if has_room else ():
            taps[tap] = step * rows
    return Reach(blocks, halos[lead], taps)


def _cost(reach: Reach, last: UOp) -> tuple[float, float]:
    """Weigh what is multiplied, and how much is brought; results lie along the `last` range."""
    walked = math.prod([math.ceil(x.extent / n) * n for x, n in reach.blocks.items()])
    innermost = list(reach.blocks)[-1]
    piece = reach.blocks[last] if innermost is last else 1
    arriving = reach.box_rows / reach.steps
    slowly = max(1, SLOW_ROWS * arriving / reach.patch)
    return walked * (1 + SHORT_PIECE / piece) * slowly, arriving
