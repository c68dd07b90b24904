"""Collects statements again after a pass changed them: each value stands where it is needed."""

from __future__ import annotations

from tinytensor.codegen.emit import CLOSERS, OPENERS
from tinytensor.ops.linear import is_pure
from tinytensor.ops.uop import UOp


class Placement:
    """Collects statements; a pure value stands where it is first needed in its block."""

    def __init__(self) -> None:
        self.statements: list[UOp] = []
        self._scopes: list[set[UOp]] = [set()]

    def add(self, node: UOp) -> None:
        """Append a statement after the values it needs, and follow its blocks."""
        if node.op in CLOSERS:
            self._scopes.pop()
        self._place(node)
        if node.op in OPENERS:
            self._scopes.append(set())

    def _place(self, root: UOp) -> None:
        pending = [root]
        while pending:
            node = pending[-1]
            missing = [] if self._is_visible(node) else self._missing(node)
            pending.extend(missing)
            if missing:
                continue
            pending.pop()
            if not self._is_visible(node):
                self.statements.append(node)
                self._scopes[-1].add(node)

    def _missing(self, node: UOp) -> list[UOp]:
        return [each for each in node.operands if not self._is_visible(each)]

    def _is_visible(self, node: UOp) -> bool:
        return any(node in scope for scope in self._scopes)


def drop_unused(statements: list[UOp]) -> tuple[UOp, ...]:
    """Leave out the values that no later statement reads."""
    read: set[UOp] = set()
    kept: list[UOp] = []
    for node in reversed(statements):
        if node in read or not is_pure(node):
            kept.append(node)
            read.update(node.operands)
    return tuple(reversed(kept))
