"""Turns a schedule into a picture: kernels as boxes on levels, with an arrow from each to readers.

A kernel stands right above its first reader; one without readers, as high as what it reads allows.
Kernels of a level stand near what they read. The picture is SVG; its boxes lead
to `#k1`, `#k2` and so on, and an arrow's classes name its ends: `f1 t2`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import escape
from statistics import mean
from typing import TYPE_CHECKING

from tinytensor.explain.lines import module_words
from tinytensor.explain.table import micros
from tinytensor.records import dataclass

if TYPE_CHECKING:
    from tinytensor.explain.record import ExplainedKernel

# Units: pixels.
BOX_WIDTH, BOX_HEIGHT = 156, 54
GAP_X, GAP_Y = 16, 26
MARGIN = 12
BOW = 6  # how far to the left an arrow bows for each level that it passes
MOST_BOW = 96
MOST_LETTERS = 22  # of the second line in a box; half of them in the first, beside the time
HOTTEST = 65  # percent of the color of time in the box that takes longest


@dataclass(frozen=True, slots=True)
class Place:
    """Where a box is: its level, and its left upper corner."""

    level: int
    x: float
    y: float


def picture_of(kernels: Sequence[ExplainedKernel]) -> str:
    """Return the picture as an SVG element."""
    levels = levels_of(kernels)
    places = _places_of(levels)
    width = max([place.x for place in places.values()], default=0) + BOX_WIDTH + MARGIN
    height = len(levels) * (BOX_HEIGHT + GAP_Y) - GAP_Y + 2 * MARGIN
    longest = max([each.time_us for each in kernels], default=0) or 1.0
    arrows = [_arrow(maker, each.number, places) for each in kernels for maker in each.reads]
    boxes = [_box(each, places[each.number], HOTTEST * each.time_us / longest) for each in kernels]
    label = f"the schedule: {len(kernels)} kernels on {len(levels)} levels"
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    head = f'<svg {size} role="group" aria-label="{label}">'
    return "\n".join([head, *arrows, *boxes, "</svg>"])


def levels_of(kernels: Sequence[ExplainedKernel]) -> list[list[ExplainedKernel]]:
    """Return the kernels by level, each level in the order in which it is drawn."""
    level: dict[int, int] = {}
    for each in kernels:
        level[each.number] = 1 + max([level[maker] for maker in each.reads], default=-1)
    for each in reversed(kernels):
        if each.readers:
            level[each.number] = min([level[reader] for reader in each.readers]) - 1
    levels: list[list[ExplainedKernel]] = [[] for _ in range(max(level.values(), default=-1) + 1)]
    for each in kernels:
        levels[level[each.number]].append(each)
    position: dict[int, int] = {}
    for several in levels:
        several.sort(key=lambda each: mean([position[maker] for maker in each.reads] or [0.0]))
        position.update({each.number: n for n, each in enumerate(several)})
    return levels


def _places_of(levels: Sequence[Sequence[ExplainedKernel]]) -> dict[int, Place]:
    places: dict[int, Place] = {}
    for row, several in enumerate(levels):
        y = MARGIN + row * (BOX_HEIGHT + GAP_Y)
        for column, each in enumerate(several):
            x = MARGIN + MOST_BOW + column * (BOX_WIDTH + GAP_X)
            places[each.number] = Place(row, x, y)
    return places


def _box(each: ExplainedKernel, place: Place, heat: float) -> str:
    kind, dtype, space = each.kernel.name.rsplit("_", 2)
    title = escape(f"kernel {each.number}: {each.kernel.name}, {micros(each.time_us)}")
    head, below = f"{each.number} {kind}"[: MOST_LETTERS // 2 + 1], f"{dtype} {space}"
    shape = f'x="{place.x:.0f}" y="{place.y:.0f}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="6"'
    left, right = place.x + 8, place.x + BOX_WIDTH - 8
    return (
        f'<a class="b{each.number}" href="#k{each.number}" aria-label="{title}">'
        f'<title>{title}</title><rect {shape} style="--warm:{heat:.0f}%"/>'
        f'<text x="{left:.0f}" y="{place.y + 17:.0f}">{escape(head)}</text>'
        f'<text class="time" x="{right:.0f}" y="{place.y + 17:.0f}">{micros(each.time_us)}</text>'
        f'<text class="space" x="{left:.0f}" y="{place.y + 32:.0f}">'
        f"{escape(below[:MOST_LETTERS])}</text>"
        f'<text class="from" x="{left:.0f}" y="{place.y + 46:.0f}">{escape(_from(each))}</text></a>'
    )


def _from(each: ExplainedKernel) -> str:
    """Name the module that a kernel comes from, or the line where none ran: the end of the name."""
    for first in each.provenance[:1]:
        name = module_words(replace(first, is_gradient=False))
        room = MOST_LETTERS - 2 * first.is_gradient
        cut = name if len(name) <= room else f"..{name[2 - room :]}"
        return "\u2202 " * first.is_gradient + cut
    return ""


def _arrow(maker: int, reader: int, places: Mapping[int, Place]) -> str:
    """Draw an arrow down to the next level, or one that bows to the left around those between."""
    start, end = places[maker], places[reader]
    passed = end.level - start.level
    if passed == 1:
        x, y = start.x + BOX_WIDTH / 2, start.y + BOX_HEIGHT
        to_x, to_y = end.x + BOX_WIDTH / 2, end.y - 1
        bends, tip = (x, y + 14, to_x, to_y - 14), "m-3 -5l3 5l3 -5"
    else:
        x, y = start.x, start.y + BOX_HEIGHT / 2
        to_x, to_y = end.x - 1, end.y + BOX_HEIGHT / 2
        bow = min(x, to_x) - min(MOST_BOW, 14 + BOW * passed)
        bends, tip = (bow, y, bow, to_y), "m-5 -3l5 3l-5 3"
    curve = " ".join([f"{each:.0f}" for each in (*bends, to_x, to_y)])
    return f'<path class="f{maker} t{reader}" d="M{x:.0f} {y:.0f}C{curve}{tip}"/>'
