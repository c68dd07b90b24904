"""Collects statements, as a plan writes them or a pass changed them, each after what it needs."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import replace

from tinytensor.ops.linear import Linear, is_pure
from tinytensor.ops.op import CLOSERS, OPENERS
from tinytensor.ops.uop import UOp, require


class Placement:
    """Collects statements; a pure value stands where it is first needed in its block."""

    def __init__(self) -> None:
        self.statements: list[UOp] = []
        self._visible: set[UOp] = set()
        self._scopes: list[list[UOp]] = [[]]

    @property
    def is_inside_block(self) -> bool:
        """Whether a block was opened and not closed."""
        return len(self._scopes) > 1

    def add(self, node: UOp) -> UOp:
        """Append a statement after the values it needs, and follow its blocks; return it."""
        if node.op in CLOSERS:
            self._visible.difference_update(self._scopes.pop())
        for each in reversed(self._missing(node)):
            self.place(each)
        if node not in self._visible:
            self._append(node)
        if node.op in OPENERS:
            self._scopes.append([])
        return node

    def place(self, root: UOp) -> None:
        """Append a value, unless it is in sight.

        Raises: InternalError when it needs an effect that is out of sight.
        """
        pending = [root]
        while pending:
            node = pending[-1]
            missing = [] if node in self._visible else self._missing(node)
            pending.extend(missing)
            if missing:
                continue
            pending.pop()
            if node not in self._visible:
                require(is_pure(node), node, "is used outside its block")
                self._append(node)

    def _missing(self, node: UOp) -> list[UOp]:
        return [each for each in node.operands if each not in self._visible]

    def _append(self, node: UOp) -> None:
        self.statements.append(node)
        self._visible.add(node)
        self._scopes[-1].append(node)


def rebuilt(linear: Linear, statements: Iterable[UOp]) -> Linear:
    """Return a form that consists of other statements, each after the values it needs."""
    placement = Placement()
    for node in statements:
        placement.add(node)
    return replace(linear, statements=drop_unused(placement.statements))


def fresh_orders(linear: Linear) -> Iterator[int]:
    """Return the orders that no effect of a form has."""
    used = [node.attrs.order for node in linear.statements if not is_pure(node)]
    return itertools.count(max(used, default=0) + 1)


def drop_unused(statements: list[UOp]) -> tuple[UOp, ...]:
    """Leave out the values that no later statement reads."""
    read: set[UOp] = set()
    kept: list[UOp] = []
    for node in reversed(statements):
        if node in read or not is_pure(node):
            kept.append(node)
            read.update(node.operands)
    return tuple(reversed(kept))
