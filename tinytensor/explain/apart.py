"""Says of two kernels of a schedule why they are not one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tinytensor.explain.record import ExplainedKernel

SIDE_BY_SIDE = (
    "kernels side by side are one where they fold the same rows, or give elements of one shape "
    "that read the same elements."
)


def why_apart(kernels: Sequence[ExplainedKernel], maker: int, reader: int) -> str:
    """Say why two kernels, by their numbers in either order, are not one."""
    for number in (maker, reader):
        if not 1 <= number <= len(kernels) or maker == reader:
            sentence = f"why_apart: these are no two kernels: {maker} and {reader}"
            raise ValueError(f"{sentence}; there are those from 1 to {len(kernels)}.")
    first, second = (kernels[number - 1] for number in sorted((maker, reader)))
    if first.number in second.reads:
        return second.why_apart_from(first.number)
    between = _way(kernels, first, second)
    if not between:
        return f"neither needs what the other makes; {SIDE_BY_SIDE}"
    way = ", then ".join([f"kernel {each}" for each in between])
    return f"kernel {second.number} needs the result of {way}, which needs kernel {first.number}."


def _way(
    kernels: Sequence[ExplainedKernel], first: ExplainedKernel, second: ExplainedKernel
) -> list[int]:
    """Return the kernels between two on a shortest way of values, the last one first."""
    waiting = [[each] for each in second.reads]
    seen: set[int] = set()
    for way in waiting:  # grows
        if way[-1] in seen:
            continue
        seen.add(way[-1])
        reads = kernels[way[-1] - 1].reads
        if first.number in reads:
            return way
        waiting += [[*way, each] for each in reads]
    return []
