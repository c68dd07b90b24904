"""Sorts the ranges and folds of a kernel, as the plans of reductions look at them."""

from __future__ import annotations

from tinytensor.codegen.plans.accumulate import Fold, fold_of
from tinytensor.codegen.plans.lanes import accesses_of
from tinytensor.codegen.plans.merging import FOLDS
from tinytensor.ops.kernel import Kernel
from tinytensor.ops.ranges import dependencies
from tinytensor.ops.uop import UOp, walk
from tinytensor.target import Target


class FoldSpace:
    """The ranges and folds of one kernel."""

    def __init__(self, kernel: Kernel, target: Target) -> None:
        self._kernel = kernel
        self._target = target
        self._stores = kernel.sink.operands
        nodes = walk((kernel.sink,))
        self._depends = dependencies(nodes)
        self._folds = [fold_of(node) for node in nodes if node.op in FOLDS]
        self._free = frozenset[UOp]().union(*[self._depends[fold.node] for fold in self._folds])
        # The kept ranges that some fold depends on, and those that only the stores run over.
        self._shared = [each for each in kernel.ranges if each in self._free]
        self._apart = [each for each in kernel.ranges if each not in self._free]

    def _accesses(self, fold: Fold) -> list[UOp]:
        others = [each.node for each in self._folds if each is not fold]
        return accesses_of((fold.element,), stop=others)
