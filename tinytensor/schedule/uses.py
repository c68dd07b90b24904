"""Counts how often a value would be computed if it were not stored.

A kernel computes a value once for each element and each *place* it reads it at. A place is a kernel
and the views on the way: `y * y` reads y at one place, `x + x.T` reads x at two.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tinytensor.ops.uop import UOp

Evaluations = Mapping[int, int]  # by place


@dataclass(slots=True)
class Reading:
    """What one kernel would compute of a value: all evaluations, and at how many places.

    `slower` is what a product takes longer for not finding a factor as it lies. Units: seconds.
    """

    evaluations: int = 0
    places: int = 0
    slower: float = 0.0

    def add(self, other: Reading) -> None:
        """Take in another way to the same value."""
        self.evaluations += other.evaluations
        self.places += other.places
        self.slower += other.slower


class Uses:
    """What the users of each value have told, and the numbers of places."""

    def __init__(self) -> None:
        self.slower: dict[int, float] = {}  # by place, of factors that nothing is computed for yet
        self._uses: dict[UOp, dict[int, int]] = {}
        self._numbers: dict[tuple[int, UOp], int] = {}
        self._kernels: list[UOp] = []

    def __contains__(self, node: object) -> bool:
        return node in self._uses

    def of(self, node: UOp) -> Evaluations:
        """Return the uses of a node told so far."""
        return self._uses.get(node, {})

    def kernel(self, place: int) -> UOp:
        """Return the anchor of the kernel that a place is in."""
        return self._kernels[place]

    def by_kernel(self, use: Evaluations) -> dict[UOp, Reading]:
        """Return what each kernel would compute of a value, by anchor, in order of places."""
        found: dict[UOp, Reading] = {}
        for place in sorted(use):
            reading = Reading(use[place], 1, self.slower.get(place, 0.0))
            found.setdefault(self._kernels[place], Reading()).add(reading)
        return found

    def kernel_place(self, anchor: UOp) -> int:
        """Return the place of what a kernel computes at its own position."""
        return self._place(-1, anchor, anchor)

    def through(self, place: int, view: UOp) -> int:
        """Return the place that lies behind a view (or a fold) read at a place."""
        return self._place(place, view, self._kernels[place])

    def tell(self, node: UOp, evaluations: Evaluations) -> None:
        """Note that a node is computed at some places; two readers at one place compute it once."""
        known = self._uses.setdefault(node, {})
        for place, count in evaluations.items():
            known[place] = max(known.get(place, 0), count)

    def _place(self, outer: int, through: UOp, kernel: UOp) -> int:
        number = self._numbers.setdefault((outer, through), len(self._kernels))
        if number == len(self._kernels):
            self._kernels.append(kernel)
        return number
