"""Tells whoever watches what the host does and for how long; while nobody watches, next to nothing.

A host stage is a part of the way from graph to launch that has a name. Stages lie within others.
"""

from __future__ import annotations

import functools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

from tinytensor.records import dataclass

Given = ParamSpec("Given")
Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class Stage:
    """A host stage that ran, and what it worked on.

    Units: seconds of `time.perf_counter`; `cpu_seconds` those in which its thread ran.
    """

    name: str
    begin: float
    seconds: float
    thread: int
    detail: str = ""
    cpu_seconds: float = 0.0


class Watch:
    """What one watcher was told: stages in the order of their ends, counts, and records."""

    def __init__(self) -> None:
        self.stages: list[Stage] = []
        self.counts: Counter[str] = Counter()
        self.notes: list[object] = []


WATCHES: list[Watch] = []


@contextmanager
def watch() -> Iterator[Watch]:
    """Take note of the host stages of all threads inside the block."""
    found = Watch()
    WATCHES.append(found)
    try:
        yield found
    finally:
        WATCHES.remove(found)


@dataclass(frozen=True, slots=True)
class Moment:
    """When a stage begins. Units: seconds of `time.perf_counter`, and those the thread ran."""

    wall: float
    cpu: float


def now() -> Moment:
    """Return this moment."""
    return Moment(time.perf_counter(), time.thread_time())


def tell(name: str, begin: Moment, detail: str = "") -> None:
    """Tell every watcher of a stage that ends now; for where a call more would be felt."""
    end = now()
    seconds, cpu_seconds = end.wall - begin.wall, end.cpu - begin.cpu
    taken = Stage(name, begin.wall, seconds, threading.get_ident(), detail, cpu_seconds)
    for each in WATCHES:
        each.stages.append(taken)


@contextmanager
def stage(name: str, detail: str = "") -> Iterator[None]:
    """Tell every watcher how long the block takes."""
    begin = now()
    try:
        yield
    finally:
        tell(name, begin, detail)


def timed(name: str) -> Callable[[Callable[Given, Made]], Callable[Given, Made]]:
    """Make a function a host stage."""

    def wrap(function: Callable[Given, Made]) -> Callable[Given, Made]:
        @functools.wraps(function)
        def call(*args: Given.args, **kwargs: Given.kwargs) -> Made:
            if not WATCHES:
                return function(*args, **kwargs)
            with stage(name):
                return function(*args, **kwargs)

        return call

    return wrap


def count(name: str) -> None:
    """Tell every watcher that something happened once more."""
    for each in WATCHES:
        each.counts[name] += 1


def note(record: object) -> None:
    """Give every watcher a record of what happened."""
    for each in WATCHES:
        each.notes.append(record)


def own_seconds(
    stages: Sequence[Stage], clock: Callable[[Stage], float] = lambda each: each.seconds
) -> dict[str, float]:
    """Add up each stage's time by its name, without that of the stages within it.

    >>> outer, inner = Stage("a", 0.0, 5.0, 1), Stage("b", 1.0, 3.0, 1)
    >>> own_seconds([inner, outer])
    {'a': 2.0, 'b': 3.0}
    """
    found: dict[str, float] = {}
    around: list[Stage] = []
    for each in sorted(stages, key=lambda each: (each.thread, each.begin, -each.seconds)):
        while around and not _lies_in(each, around[-1]):
            around.pop()
        if around:
            found[around[-1].name] -= clock(each)
        found[each.name] = found.get(each.name, 0.0) + clock(each)
        around.append(each)
    return found


def _lies_in(inner: Stage, outer: Stage) -> bool:
    is_before_its_end = inner.begin < outer.begin + outer.seconds
    return inner.thread == outer.thread and is_before_its_end
