"""Tells which line of the user's program, in which module, a node of a graph comes from.

Nobody pays for it while nobody collects origins: then each hook is one truth test.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

from tinytensor.errors import Site
from tinytensor.ops.uop import UOp, substitute_all, walk

Module = Any  # of nn, which lies above this


@dataclass(frozen=True, slots=True)
class Origin:
    """The user's line, the path of the module that ran it, and whether it gives a gradient of it.

    A path begins below the outermost module, whose class stands for it where the path is empty.
    """

    site: Site | None
    module: str = ""
    is_gradient: bool = False


class Origins:
    """What nodes come from: collected as they are made, read as they are scheduled.

    `scheduled` has the nodes as schedules see them, with leaves in place of what is known.
    """

    def __init__(self) -> None:
        self.scheduled: dict[UOp, Origin] = {}
        self._made: WeakKeyDictionary[UOp, Origin] = WeakKeyDictionary()
        self._names: dict[Module, str] = {}
        self._paths: list[str] = []

    def note(self, root: UOp, origin: Origin) -> None:
        """Take note of where a node comes from, and all below it that nobody has claimed."""
        for node in walk((root,), stop=self._made):
            self._made.setdefault(node, origin)

    def note_line(self, root: UOp, site: Site | None) -> None:
        """Take note of what a line makes."""
        self.note(root, Origin(site, self._paths[-1] if self._paths else ""))

    def note_gradients(self, node: UOp, found: Iterable[UOp | None]) -> None:
        """Take note of the gradients that a node passes on."""
        origin = self._made.get(node)
        if origin is not None:
            for each in filter(None, found):
                self.note(each, replace(origin, is_gradient=True))

    def keep_scheduled(self, known: dict[UOp, UOp]) -> None:
        """Keep the origins of the nodes of a graph in which leaves stand for what is known."""
        pairs = list(self._made.items())
        nodes = substitute_all(tuple([node for node, _ in pairs]), known)
        for node, (_, origin) in zip(nodes, pairs, strict=True):
            self.scheduled.setdefault(node, origin)

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
    origins: Origins | None = None


COLLECTING = _Collecting()


@contextmanager
def collect_origins() -> Iterator[Origins]:
    """Collect where the nodes come from that this thread makes inside the block."""
    before = COLLECTING.origins
    found = COLLECTING.origins = Origins()
    try:
        yield found
    finally:
        COLLECTING.origins = before
