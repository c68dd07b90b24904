"""Turns what runs inside a block into times: of kernels on their devices, of stages on the host.

>>> from tinytensor import Tensor, profile
>>> x = Tensor([1.0, 2.0])
>>> with profile() as found:
...     y = (x + 1.0).tolist()
>>> [each.kernel.name for each in found.kernels]
['pointwise_f32_2']
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, field
from typing import Any

from tinytensor.captures import Launched, watch_launches
from tinytensor.lazy import lazy_import
from tinytensor.ops.kernel import Kernel
from tinytensor.ops.uop import UOp
from tinytensor.records import dataclass
from tinytensor.runtime.device import AnyDevice
from tinytensor.timing import Stage, own_seconds, stage, watch

BUILD = "compile: build"  # one program each; side by side, so their times do not add up
LAUNCH, KERNELS, REST = "launch", "kernels on the host", "the program itself"
CACHES = {"guards": ("guards hold", "guards miss"), "plans": ("plans found", "plans made")}
HOST, DEVICE = 1, 2  # as processes of a trace file
PROCESSES = {HOST: "host", DEVICE: "devices"}
MICRO = 1e6

TraceEvent = dict[str, Any]  # an object of the trace file: its fields differ from kind to kind


@dataclass(frozen=True, slots=True)
class KernelTime:
    """One launch of a kernel, which itself is absent where its plan was read from the disk.

    Units: `begin` in seconds of `time.perf_counter`, `time_us` in µs.
    """

    name: str
    kernel: Kernel | None
    device: str
    begin: float
    time_us: float

    @property
    def sink(self) -> UOp | None:
        """What it computes, if that is known."""
        return self.kernel.sink if self.kernel is not None else None

    @property
    def work(self) -> dict[str, int]:
        """Its operations and bytes, if they are known: `flops` and `bytes_moved`."""
        if self.kernel is None:
            return {}
        return asdict(lazy_import("tinytensor.report", None, "profile").work_of(self.kernel))


@dataclass(frozen=True, slots=True)
class Total:
    """Launches of equal kernels, or host stages of one name, taken together. Units: µs."""

    name: str
    count: int
    time_us: float


@dataclass(slots=True)
class Profile:
    """What ran inside a block; complete when the block has ended.

    `hits` tells for each cache how often it was asked in vain and how often not. Units: `begin`
    and `seconds` in seconds of `time.perf_counter`.
    """

    begin: float = 0.0
    seconds: float = 0.0
    kernels: list[KernelTime] = field(default_factory=list)
    stages: list[Stage] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def device_us(self) -> float:
        """How long all kernels ran on their devices. Units: µs."""
        return sum(each.time_us for each in self.kernels)

    @property
    def compiled(self) -> list[Stage]:
        """The programs that were compiled, with the time that each took."""
        return [each for each in self.stages if each.name == BUILD]

    def hit_rate(self, cache: str) -> float | None:
        """Return the part of questions to a cache that found something; None if nobody asked.

        `cache` is "plans" (schedules by the structure of their graph) or "guards" (of `jit`).
        """
        hits, misses = [self.counts.get(each, 0) for each in CACHES[cache]]
        return hits / (hits + misses) if hits + misses else None

    def cache_line(self, cache: str) -> str:
        """Say how often a cache was asked, and how often not in vain."""
        hits, misses = [self.counts.get(each, 0) for each in CACHES[cache]]
        return f"{cache}: {hits} of {hits + misses} found"

    def by_kernel(self) -> list[Total]:
        """Return the times by kernel, the longest first."""
        names = [each.name for each in self.kernels]
        return _totals(names, [each.time_us for each in self.kernels])

    def by_stage(self) -> list[Total]:
        """Return the host's times by stage, each without the stages within it, longest first.

        The host runs the kernels of its own devices, which is no part of the launch. What no stage
        accounts for is the program's own: it builds graphs there.
        """
        stages = [each for each in self.stages if each.name != BUILD]
        found = own_seconds(stages)
        counts = Counter(each.name for each in stages)
        on_host = [each.time_us for each in self.kernels if each.device != "CUDA"]
        if on_host:
            found[LAUNCH] -= sum(on_host) / MICRO
            found[KERNELS], counts[KERNELS] = sum(on_host) / MICRO, len(on_host)
        found[REST], counts[REST] = max(0.0, self.seconds - sum(found.values())), 1
        made = [Total(name, counts[name], seconds * MICRO) for name, seconds in found.items()]
        return sorted(made, key=lambda each: -each.time_us)

    def __str__(self) -> str:
        return "\n".join(_lines(self))

    def save(self, path: str) -> None:
        """Write a trace file for Perfetto or chrome://tracing."""
        with open(path, "w", encoding="utf-8") as file:
            json.dump(trace_of(self), file)


@contextmanager
def profile() -> Iterator[Profile]:
    """Take the times of all that runs inside the block, by any thread.

    Cost: two events a launch; outside of such blocks one truth test a launch.
    """
    found = Profile(begin=time.perf_counter())
    with watch() as watched, watch_launches() as launched:
        try:
            yield found
        finally:
            moments = {each: _Moment(each) for each in {launch.device for launch in launched}}
            found.seconds = time.perf_counter() - found.begin
            found.stages, found.counts = watched.stages, dict(watched.counts)
            found.kernels = [_kernel_time(each, moments[each.device]) for each in launched]


class _Moment:
    """A moment by the clocks of the host and of a device, when the device has nothing to do."""

    def __init__(self, device: AnyDevice) -> None:
        with stage("wait"):
            device.synchronize()
        self.event = device.event_record()
        self.seconds = time.perf_counter()


def _kernel_time(launched: Launched, moment: _Moment) -> KernelTime:
    device = launched.device
    ago = device.elapsed_us(launched.start, moment.event) / MICRO
    time_us = device.elapsed_us(launched.start, launched.end)
    return KernelTime(launched.name, launched.kernel, device.name, moment.seconds - ago, time_us)


def _totals(names: Sequence[str], times: Sequence[float]) -> list[Total]:
    found: dict[str, list[float]] = {}
    for name, each in zip(names, times, strict=True):
        found.setdefault(name, []).append(each)
    made = [Total(name, len(several), sum(several)) for name, several in found.items()]
    return sorted(made, key=lambda each: -each.time_us)


# The table.
def _lines(found: Profile) -> list[str]:
    total_us = found.seconds * MICRO
    lines = [
        f"{total_us / 1e3:.3f} ms; {len(found.kernels)} launches, "
        f"{found.device_us / 1e3:.3f} ms on their devices"
    ]
    works = {each.name: each.work for each in found.kernels}
    lines.append(f"{'kernel':44}{'count':>6}{'us':>12}{'share':>9}{'GFLOP/s':>10}{'GB/s':>9}")
    for each in found.by_kernel():
        mean_us = max(each.time_us / each.count, 0.001)
        rates = [works[each.name].get(what, 0) / mean_us / 1e3 for what in ("flops", "bytes_moved")]
        lines.append(f"{_row(each, found.device_us)}{rates[0]:10.2f}{rates[1]:9.2f}")
    lines.append(f"{'host stage':44}{'count':>6}{'us':>12}{'share':>9}")
    lines += [_row(each, total_us) for each in found.by_stage()]
    lines += [f"compiled {each.detail} {each.seconds * 1e3:.1f} ms" for each in found.compiled]
    return lines + [found.cache_line(each) for each in CACHES if found.hit_rate(each) is not None]


def _row(each: Total, whole_us: float) -> str:
    share = 100 * each.time_us / whole_us if whole_us else 0.0
    return f"{each.name[:43]:44}{each.count:6}{each.time_us:12.1f}{share:7.1f} %"


# The trace file.
# Source: "Trace Event Format", the document that chrome://tracing links to.
def trace_of(found: Profile) -> dict[str, Any]:  # Any: a JSON object
    """Return the trace file: complete events (X), names (M), and arrows from launch to kernel."""
    rows = {
        HOST: list(dict.fromkeys(str(each.thread) for each in found.stages)),
        DEVICE: list(dict.fromkeys(each.device for each in found.kernels)),
    }
    names = [_name("process_name", process, 0, name) for process, name in PROCESSES.items()]
    for process, row in rows.items():
        names += [_name("thread_name", process, n, name) for n, name in enumerate(row)]
    stages = [
        _ran(each.name, HOST, rows[HOST].index(str(each.thread)), each.begin - found.begin)
        | {"dur": each.seconds * MICRO, "args": {"of": each.detail}}
        for each in sorted(found.stages, key=lambda each: each.begin)
    ]
    kernels = [
        _ran(each.name, DEVICE, rows[DEVICE].index(each.device), each.begin - found.begin)
        | {"dur": each.time_us, "args": each.work}
        for each in found.kernels
    ]
    launches = [event for event in stages if event["name"] == LAUNCH]
    pairs = zip(launches, kernels, strict=False)  # a launch that failed has no kernel
    arrows = [_arrow(n, *pair) for n, pair in enumerate(pairs, start=1)]
    events = [*names, *stages, *kernels, *[each for pair in arrows for each in pair]]
    return {"traceEvents": events, "displayTimeUnit": "ns", "otherData": found.counts}


def _name(kind: str, process: int, thread: int, name: str) -> TraceEvent:
    return {"name": kind, "ph": "M", "pid": process, "tid": thread, "args": {"name": name}}


def _ran(name: str, process: int, thread: int, begin: float) -> TraceEvent:
    where = {"pid": process, "tid": thread, "ts": max(0.0, begin * MICRO)}
    return {"name": name, "cat": PROCESSES[process], "ph": "X", **where}


def _arrow(number: int, launch: TraceEvent, kernel: TraceEvent) -> tuple[TraceEvent, TraceEvent]:
    ends = [{key: event[key] for key in ("pid", "tid", "ts")} for event in (launch, kernel)]
    named = {"name": "starts", "cat": "launch", "id": number}
    return {**named, **ends[0], "ph": "s"}, {**named, **ends[1], "ph": "f", "bp": "e"}
