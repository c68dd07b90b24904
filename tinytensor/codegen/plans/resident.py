"""Finds costly elements of a row that several of its folds or stores need: kept, computed once."""

from __future__ import annotations

from collections.abc import Sequence

from tinytensor.codegen.builder import Builder
from tinytensor.codegen.plans.accumulate import Fold, fold_levels
from tinytensor.ops.op import Mark, Op
from tinytensor.ops.ranges import dependencies
from tinytensor.ops.simplify_index import simplify_index
from tinytensor.ops.uop import UOp, exact_extent, substitute, walk
from tinytensor.records import dataclass
from tinytensor.target import Target


@dataclass(frozen=True, slots=True)
class Resident:
    """A value along `folded`, kept in scratch memory; `twin` is the same along the range `stored`.

    A softmax keeps its exponentials between the sum over a row and the division.
    """

    value: UOp
    folded: UOp
    twin: UOp
    stored: UOp

    def workspace(self, b: Builder) -> UOp:
        """Reserve the scratch memory of one row."""
        return b.workspace(self.value.dtype, self.folded.extent)


def find_residents(
    folds: Sequence[Fold], stores: Sequence[UOp], apart: Sequence[UOp], target: Target
) -> tuple[Resident, ...]:
    """Return the values worth keeping between folds, inner ones first, and the stores.

    Those are functions such as EXP that two levels need, as long as rows of them fit half the L2
    cache. What only a function that is kept needs is not kept itself.
    """
    numbers = fold_levels(folds)
    folds = [fold for fold in folds if len(fold.ranges) == 1]
    nodes = walk([fold.element for fold in folds])
    varies = dependencies(nodes)
    every = frozenset([fold.ranges[0] for fold in folds])
    costly = {node for node in nodes if _is_costly(node) and varies[node] & every}
    levels: dict[UOp, set[int]] = {node: set() for node in costly}
    folded: dict[UOp, UOp] = {}
    inner = {fold.node: fold.node for fold in folds}  # what is below belongs to other levels
    for fold in folds:
        for node in costly.intersection(walk([fold.element], stop=costly | inner.keys())):
            levels[node].add(numbers[fold.node])
            folded[node] = fold.ranges[0]
    below = set(walk(stores, stop=inner))
    found: list[Resident] = []
    room = target.l2_bytes // 2
    for node, range_ in folded.items():
        extent = exact_extent(range_)
        stored = next((each for each in apart if exact_extent(each) is extent), range_)
        twin = simplify_index(substitute(node, {range_: stored, **inner}))
        room -= range_.extent * node.dtype.itemsize
        if len(levels[node]) + (twin in below) > 1 and room >= 0:
            found.append(Resident(node, range_, twin, stored))
    return tuple(found)


def _is_costly(node: UOp) -> bool:
    return node.op.mark is Mark.TRANSCENDENTAL or node.op is Op.PHILOX
