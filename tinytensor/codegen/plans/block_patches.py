"""Turns several ranges of one class into one that walks their space in patches, box by box."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from functools import reduce

from tinytensor.ops.simplify_index import simplify_index
from tinytensor.ops.uop import UOp, make_range
from tinytensor.records import dataclass

PATCH = 64  # values of a class: a box of some of each range
BEYOND = 1 << 30  # above any walk
SHORT_PIECE = (
    2  # results that could be computed while one piece of adjacent ones is stored: a guess
)


@dataclass(frozen=True, slots=True)
class Walk:
    """A range over patches: `blocks` says how many values of each range a patch takes.

    `places` are the ranges at a value of the walk. `origins` are those where its patch begins, from
    a `start` that may lie beyond the walk, where the outermost range goes on. `inside` claims that
    a place is one, which some at the end of ragged ranges are not.
    """

    flat: UOp
    blocks: Mapping[UOp, int]
    places: Mapping[UOp, UOp]
    start: UOp
    origins: Mapping[UOp, UOp]
    inside: UOp | None

    @property
    def boxed(self) -> list[UOp]:
        """The ranges of which a patch takes several values, innermost first."""
        return [each for each, block in self.blocks.items() if block > 1][::-1]


def walk_in_patches(blocks: Mapping[UOp, int], number: int) -> Walk:
    """Walk ranges, outermost first, in patches of so many values of each."""
    if len(blocks) == 1:
        (only,) = blocks
        return Walk(only, blocks, {}, only, {}, None)
    counts = {each: math.ceil(each.extent / block) for each, block in blocks.items()}
    flat = make_range(number, math.prod(counts.values()) * PATCH)
    start = make_range(number, BEYOND)
    origins = _origins(start, blocks, counts)
    places, within = {}, 1
    for each, begin in _origins(flat, blocks, counts).items():
        places[each] = simplify_index(begin + flat // within % blocks[each])
        within *= blocks[each]
    ragged = [each for each, block in blocks.items() if each.extent % block]
    claims = [places[each] < each.extent for each in ragged]
    inside = reduce(UOp.__and__, claims) if claims else None
    return Walk(flat, blocks, places, start, origins, inside)


def _origins(flat: UOp, blocks: Mapping[UOp, int], counts: Mapping[UOp, int]) -> dict[UOp, UOp]:
    """Return where the patch of a value begins along each range, innermost first."""
    patch = flat // PATCH
    origins = {}
    for number, each in enumerate(reversed(list(blocks)), 1):
        here = patch if number == len(blocks) else patch % counts[each]
        origins[each] = simplify_index(here * blocks[each])
        patch = patch // counts[each]
    return origins


def choose_blocks(
    ranges: Sequence[UOp], inner: UOp | None, whole: Sequence[UOp] = ()
) -> dict[UOp, int] | None:
    """Say how many values of each range a patch takes: of `inner` all, else so that few are lost.

    Short pieces of the last range, along which results lie, count as losses too. Ranges in `whole`
    are to be divided; None if nothing does.
    """
    if inner is not None:
        blocks = {each: 1 for each in ranges if each is not inner}
        return {**blocks, inner: PATCH}
    powers = [1 << number for number in range(PATCH.bit_length())]
    legal = []
    for sizes in itertools.product(powers, repeat=len(ranges)):
        pairs = list(zip(ranges, sizes, strict=True))
        divides = not any(each.extent % size for each, size in pairs if each in whole)
        if math.prod(sizes) == PATCH and divides:
            walked = math.prod([math.ceil(each.extent / size) * size for each, size in pairs])
            cost = walked * (1 + SHORT_PIECE / sizes[-1])
            legal.append((cost, [-size for size in reversed(sizes)], dict(pairs)))
    return min(legal, key=lambda each: each[:2])[2] if legal else None
