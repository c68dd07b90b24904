"""Finds elements of a fold that the stores need again, to be kept instead of computed twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tinytensor.codegen.builder import Builder
from tinytensor.codegen.plans.accumulate import Fold
from tinytensor.ops.op import Mark
from tinytensor.ops.simplify_index import simplify_index
from tinytensor.ops.uop import UOp, substitute, walk
from tinytensor.target import Target


@dataclass(frozen=True, slots=True)
class Resident:
    """A fold's elements along `folded`, kept in scratch memory: `twin` is the same along `stored`.

    A softmax keeps its exponentials between the sum over a row and the division.
    """

    fold: UOp
    folded: UOp
    twin: UOp
    stored: UOp

    def workspace(self, b: Builder) -> UOp:
        """Reserve the scratch memory of one row."""
        return b.workspace(self.twin.dtype, self.folded.extent)


def find_resident(
    fold: Fold, stores: Sequence[UOp], apart: Sequence[UOp], target: Target
) -> Resident | None:
    """Return how a fold's elements are read again by the stores, if keeping them is a gain.

    That is when they hold a function such as EXP, and a row of them fits half the L2 cache.
    """
    is_costly = any(node.op.mark is Mark.TRANSCENDENTAL for node in walk((fold.element,)))
    folded = fold.ranges[0]
    row_bytes = folded.extent * fold.element.dtype.itemsize
    if not is_costly or len(fold.ranges) > 1 or 2 * row_bytes > target.l2_bytes:
        return None
    nodes = set(walk(stores))
    for stored in apart:
        twin = simplify_index(substitute(fold.element, {folded: stored}))
        if stored.extent == folded.extent and twin in nodes:
            return Resident(fold.node, folded, twin, stored)
    return None
