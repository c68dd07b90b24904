"""Tells which line of the user's program, in which module, a node of a graph comes from.

Nobody pays for it while nobody collects it: then each hook is one truth test.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

from tinytensor.errors import Site
from tinytensor.ops.uop import UOp, substitute_all, walk
from tinytensor.records import dataclass

Module = Any  # of nn, which lies above this


@dataclass(frozen=True, slots=True)
class Provenance:
    """The user's line, the path of the module that ran it, and whether it gives a gradient of it.

    A path begins below the outermost module, whose class stands for it where the path is empty.
    """

    site: Site | None
    module: str = ""
    is_gradient: bool = False


class Collector:
    """What nodes come from: collected as they are made, read as they are scheduled.

    `scheduled` has the nodes as schedules see them, with leaves in place of what is known.
    """

    def __init__(self) -> None:
        self.scheduled: WeakKeyDictionary[UOp, Provenance] = WeakKeyDictionary()
        self._made: WeakKeyDictionary[UOp, Provenance] = WeakKeyDictionary()
        self._names: dict[Module, str] = {}
        self._paths: list[str] = []

    def note(self, root: UOp, found: Provenance) -> None:
        """Take note of where a node comes from, and all below it that nobody has claimed."""
        for node in walk((root,), stop=self._made):
            self._made.setdefault(node, found)

    def note_line(self, root: UOp, site: Site | None) -> None:
        """Take note of what a line makes."""
        self.note(root, Provenance(site, self._paths[-1] if self._paths else ""))

    def note_gradients(self, node: UOp, passed: Iterable[UOp | None]) -> None:
        """Take note of the gradients that a node passes on."""
        found = self._made.get(node)
        if found is not None:
            for each in filter(None, passed):
                self.note(each, replace(found, is_gradient=True))

    def keep_scheduled(self, known: dict[UOp, UOp]) -> None:
        """Keep what is known of the nodes of a graph in which leaves stand for what is known."""
        pairs = list(self._made.items())
        nodes = substitute_all(tuple([node for node, _ in pairs]), known)
        for node, (_, found) in zip(nodes, pairs, strict=True):
            self.scheduled.setdefault(node, found)

    @contextmanager
    def inside(self, module: Module) -> Iterator[None]:
        """Let the lines inside the block be those of a module."""
        if not self._paths:
            self._names = {each: name for name, each in module.named_modules()}
        kind = type(module).__name__
        self._paths.append(self._names.get(module, kind) or kind)
        try:
            yield
        finally:
            self._paths.pop()


class _Collecting(threading.local):
    collector: Collector | None = None


COLLECTING = _Collecting()


@contextmanager
def collect_provenance() -> Iterator[Collector]:
    """Collect where the nodes come from that this thread makes inside the block."""
    before = COLLECTING.collector
    found = COLLECTING.collector = Collector()
    try:
        yield found
    finally:
        COLLECTING.collector = before
