"""Turns functions of the package into timed ones: how long each section of a computation takes."""

from __future__ import annotations

import functools
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

from tinytensor.lazy import lazy_import

Given = ParamSpec("Given")
Made = TypeVar("Made")

# What each section calls, where it is looked up when it is called.
CALLED = {
    "schedule: walk and key": (
        "tinytensor.realize._resolve_copies",
        "tinytensor.realize._structure_of",
        "tinytensor.realize.probes_below",
        "tinytensor.realize._unread_leaves",
    ),
    "schedule: contractions": ("tinytensor.schedule.schedule.classify_sums",),
    "schedule: materialize": ("tinytensor.schedule.schedule.materialize",),
    "schedule: spare outputs": ("tinytensor.schedule.schedule.spare_outputs",),
    "schedule: join rows": ("tinytensor.schedule.schedule.join_rows",),
    "schedule: build kernels": ("tinytensor.schedule.schedule.build_kernel",),
    "schedule: order": ("tinytensor.schedule.schedule.order_kernels",),
    "schedule: memory": ("tinytensor.planning.assign_memory",),
    "lower: key and record": ("tinytensor.program_cache.make_program",),
    "lower: plan": ("tinytensor.codegen.lower.choose",),
    "lower: passes": ("tinytensor.codegen.lower._run_passes",),
    "lower: emit": ("tinytensor.codegen.lower.emit_c", "tinytensor.codegen.lower.emit_cuda"),
    "compile": ("tinytensor.planning._lower_all",),
    "load": ("tinytensor.runtime.cpu._load",),
    "allocate": ("tinytensor.realize.from_host",),
    "run": ("tinytensor.replay._launch_all",),
}


@dataclass(slots=True)
class Section:
    """What a section took. Units: seconds, without those of sections called by it."""

    wall: float = 0.0
    cpu: float = 0.0
    calls: int = 0


class Sections:
    """Times of sections; one that calls another stops meanwhile."""

    def __init__(self) -> None:
        self.times: dict[str, Section] = {}
        self._open: list[str] = []
        self._since = _clocks()

    @contextmanager
    def section(self, name: str) -> Iterator[None]:
        """Time what runs inside under a name."""
        self._charge()
        self.times.setdefault(name, Section()).calls += 1
        self._open.append(name)
        try:
            yield
        finally:
            self._charge()
            self._open.pop()

    @contextmanager
    def watch_package(self) -> Iterator[None]:
        """Time the package's own sections while this is open."""
        places = [
            (section, path.rpartition(".")) for section, paths in CALLED.items() for path in paths
        ]
        found = [
            (section, lazy_import(at, None, "sections"), name) for section, (at, _, name) in places
        ]
        plain = [(module, name, getattr(module, name)) for _, module, name in found]
        for (section, module, name), (*_, function) in zip(found, plain, strict=True):
            setattr(module, name, self._timed(section, function))
        try:
            yield
        finally:
            for module, name, function in plain:
                setattr(module, name, function)

    def _timed(self, section: str, function: Callable[Given, Made]) -> Callable[Given, Made]:
        @functools.wraps(function)
        def call(*args: Given.args, **kwargs: Given.kwargs) -> Made:
            with self.section(section):
                return function(*args, **kwargs)

        return call

    def _charge(self) -> None:
        now = _clocks()
        if self._open:
            section = self.times[self._open[-1]]
            section.wall += now[0] - self._since[0]
            section.cpu += now[1] - self._since[1]
        self._since = now


def child_seconds() -> float:
    """Return the processor time of all processes that were started and have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _clocks() -> tuple[float, float]:
    return time.perf_counter(), time.thread_time()
