"""Says of two kernels of a schedule why they are not one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tinytensor.explain.record import ExplainedKernel

SIDE_BY_SIDE = (
    "kernels side by side are one where they fold the same rows, or give elements of one shape "
    "that read the same elements."
)


def why_apart(kernels: Sequence[ExplainedKernel], maker: int, reader: int) -> list[str]:
    """Say why two kernels, by their numbers in either order, are not one."""
    for number in (maker, reader):
        if not 1 <= number <= len(kernels) or maker == reader:
            sentence = f"why_apart: these are no two kernels: {maker} and {reader}"
            raise ValueError(f"{sentence}; there are those from 1 to {len(kernels)}.")
    first, second = (kernels[number - 1] for number in sorted((maker, reader)))
    if first.number in second.reads:
        return list(reasons_between(first, second))
    between = _way(kernels, first, second)
    if not between:
        told = "neither needs what the other makes"
        return [f"{told}; {SIDE_BY_SIDE}", *_declined(second, second)]
    way = ", then ".join([f"kernel {each}" for each in between])
    return [f"kernel {second.number} needs the result of {way}, which needs kernel {first.number}."]


def reasons_between(maker: ExplainedKernel, reader: ExplainedKernel) -> Iterator[str]:
    """Say why a kernel is not one with another that reads what it stores."""
    values = {each.value for each in reader.values_read if each.maker == maker.number}
    stored = {
        f"{each.subject} lies between them: {each.reason}"
        for each in maker.kernel.decisions
        if each.kind == "store" and each.subject in values
    }
    declined = list(dict.fromkeys([*_declined(maker, reader), *_declined(reader, reader)]))
    yield from sorted(stored)
    yield from declined
    if reader.kernel.contraction is not None:
        yield f"kernel {reader.number} is a product of matrices: no other fold shares its kernel."
    elif not declined and _folds(maker):
        others = "folds other rows" if _folds(reader) else "reads at other places"
        yield f"kernel {reader.number} {others} than kernel {maker.number} makes."


def _declined(owner: ExplainedKernel, reader: ExplainedKernel) -> Iterator[str]:
    """Give the reasons, noted in one kernel, why what another one computes is not there."""
    for each in owner.kernel.decisions:
        if each.kind == "decline" and each.subject in reader.computed:
            is_own = owner is reader
            place = "an earlier kernel" if is_own else f"kernel {owner.number}"
            yield f"{each.subject} of kernel {reader.number} is not in {place}: {each.reason}"


def _folds(kernel: ExplainedKernel) -> bool:
    return any(each.startswith("reduce[") for each in kernel.computed)


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
