"""Knows who wants to see schedules and launches, and takes note of what they are told."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar

from tinytensor.config import config
from tinytensor.ops.kernel import Kernel
from tinytensor.ops.uop import UOp, substitute_all
from tinytensor.provenance import COLLECTING
from tinytensor.records import dataclass
from tinytensor.runtime.device import AnyDevice, Event
from tinytensor.timing import WATCHES

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Launched:
    """A launch that was watched, and the events on its device around it.

    There is no kernel where its plan was read from the disk.
    """

    name: str
    kernel: Kernel | None
    device: AnyDevice
    start: Event
    end: Event


@dataclass(frozen=True, slots=True)
class Differentiated:
    """The nodes of a forward that was differentiated; watching must not keep them alive."""

    nodes: weakref.WeakSet[UOp]


@dataclass(frozen=True, slots=True)
class Forward:
    """The same nodes, as a schedule has them."""

    nodes: frozenset[UOp]


# Lists that collect the kernels of every schedule, each while its `report.capture` is open.
CAPTURES: list[list[Any]] = []  # Any: report.Planned, which is not loaded for this
LAUNCHES: list[list[Launched]] = []


def wants_schedule() -> bool:
    """Tell whether somebody wants to see schedules: DEBUG=2 or a capture."""
    return config.debug >= 2 or bool(CAPTURES)


@contextmanager
def collect(lists: list[list[T]]) -> Iterator[list[T]]:
    """Collect what any thread adds to all of some lists inside the block."""
    found: list[T] = []
    lists.append(found)
    config.note_change()  # so that no jitted function makes calls that tell nobody
    try:
        yield found
    finally:
        lists[:] = [each for each in lists if each is not found]


def watch_launches() -> AbstractContextManager[list[Launched]]:
    """Collect the launches that any thread makes inside the block."""
    return collect(LAUNCHES)


def note_forward(known: dict[UOp, UOp]) -> None:
    """Tell watchers what has been differentiated, with leaves in place of what is known."""
    if COLLECTING.collector is not None:
        COLLECTING.collector.keep_scheduled(known)
    for each in WATCHES:
        found = [record for record in each.notes if isinstance(record, Differentiated)]
        nodes = [node for record in found for node in record.nodes]
        each.notes.append(Forward(frozenset(substitute_all(tuple(nodes), known))))
