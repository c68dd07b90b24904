"""Prints what DEBUG asks for: launches, schedules, forms, source, passes and machine code."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tinytensor.config import config
from tinytensor.errors import Site
from tinytensor.ops.kernel import Decision, Kernel
from tinytensor.ops.op import ELEMENTWISE, Op
from tinytensor.ops.ranges import dependencies, folded_ranges
from tinytensor.ops.text import show
from tinytensor.ops.uop import UOp, walk
from tinytensor.runtime.device import AnyDevice, Event
from tinytensor.schedule.kernels import KernelCall
from tinytensor.timing import stage

if TYPE_CHECKING:
    from tinytensor.codegen.lower import Lowered

MOST_LISTED = 5


@dataclass(frozen=True, slots=True)
class Work:
    """What one launch of a kernel does at least. Units: operations, bytes."""

    flops: int
    bytes_moved: int


@dataclass(frozen=True, slots=True)
class Planned:
    """A kernel of a schedule, what its plan decided, and whether it was compiled before.

    `call` tells the values it touches; what takes over an operand's memory is not yet merged there.
    """

    kernel: Kernel
    plan: Sequence[Decision]
    was_compiled: bool
    call: KernelCall | None = None
    lowered: Lowered | None = None


@dataclass(frozen=True, slots=True)
class Launched:
    """A launch that was watched: its kernel, and the events on its device around it."""

    kernel: Kernel
    device: AnyDevice
    start: Event
    end: Event


_CAPTURES: list[list[Planned]] = []
LAUNCHES: list[list[Launched]] = []


@contextmanager
def capture() -> Iterator[list[Planned]]:
    """Collect the kernels of every schedule made inside the block, by any thread."""
    found: list[Planned] = []
    _CAPTURES.append(found)
    try:
        yield found
    finally:
        _CAPTURES[:] = [each for each in _CAPTURES if each is not found]


@contextmanager
def watch_launches() -> Iterator[list[Launched]]:
    """Collect the launches that any thread makes inside the block."""
    found: list[Launched] = []
    LAUNCHES.append(found)
    try:
        yield found
    finally:
        LAUNCHES[:] = [each for each in LAUNCHES if each is not found]


def run_launch(kernel: Kernel, device: AnyDevice, run: Callable[[], None]) -> None:
    """Run a launch between two events; tell the watchers, and print it (DEBUG=1)."""
    with stage("launch", kernel.name):
        start = device.event_record()
        run()
        end = device.event_record()
    for found in LAUNCHES:
        found.append(Launched(kernel, device, start, end))
    if config.debug:
        print_launch(kernel, device.name, device.elapsed_us(start, end))


def wants_schedule() -> bool:
    """Tell whether somebody wants to see schedules: DEBUG=2 or a capture."""
    return config.debug >= 2 or bool(_CAPTURES)


def work_of(kernel: Kernel) -> Work:
    """Count a kernel's operations and the bytes of the buffers it touches.

    An op runs once for each value of the ranges it varies over or folds; a multiply-add of a
    contraction counts as two operations.
    """
    nodes = walk((kernel.sink,))
    varies = dependencies(nodes)
    flops = 0
    for node in nodes:
        ranges = (*varies[node], *folded_ranges(node))
        flops += _operations(node) * math.prod(each.extent for each in ranges)
    moved = sum(param.elements * param.dtype.itemsize for param in kernel.params)
    return Work(flops, moved)


def _operations(node: UOp) -> int:
    if node.op in (Op.CONTRACT, Op.REDUCE):
        return 2 if node.op is Op.CONTRACT else 1
    is_arithmetic = node.dtype.is_float and node.op in ELEMENTWISE
    return 1 if is_arithmetic and node.op not in (Op.CAST, Op.BITCAST, Op.WHERE) else 0


def launch_line(kernel: Kernel, device: str, time_us: float) -> str:
    """Return DEBUG=1's line: kernel, time, GFLOP/s and GB/s. Units: µs."""
    work = work_of(kernel)
    seconds = max(time_us, 0.01) * 1e-6
    gflops, gbytes = work.flops / seconds / 1e9, work.bytes_moved / seconds / 1e9
    return (
        f"{device:6} {kernel.name:40} {time_us:10.1f} us {gflops:9.2f} GFLOP/s {gbytes:8.2f} GB/s"
    )


def print_launch(kernel: Kernel, device: str, time_us: float) -> None:
    """Print one line about a launch (DEBUG=1)."""
    _print(launch_line(kernel, device, time_us))


def schedule_lines(planned: Sequence[Planned]) -> list[str]:
    """Return DEBUG=2's lines: each kernel, its buffers, and the reason for every decision."""
    lines: list[str] = []
    for number, each in enumerate(planned, start=1):
        kernel = each.kernel
        made = "compiled before" if each.was_compiled else "compiled now"
        moved = work_of(kernel).bytes_moved
        head = f"kernel {number}/{len(planned)}  {kernel.name}"
        count = len(kernel.params)
        buffers = "1 buffer" if count == 1 else f"{count} buffers"
        lines.append(f"{head}  {buffers}, {_size(moved)}, {made}")
        decisions = _merged((*kernel.decisions, *each.plan))
        lines.extend(f"  {each.kind:9} {each.subject}: {each.reason}" for each in decisions)
    return lines


def _merged(decisions: Sequence[Decision]) -> list[Decision]:
    """Say a reason once for several subjects of one kind."""
    subjects: dict[tuple[str, str], list[str]] = {}
    for each in decisions:
        subjects.setdefault((each.kind, each.reason), []).append(each.subject)
    return [
        Decision(kind, ", ".join(dict.fromkeys(found)), reason)
        for (kind, reason), found in subjects.items()
    ]


def _size(count: int) -> str:
    """Return a number of bytes in words.

    >>> _size(4_718_592)
    '4.7 MB'
    """
    if count < 1000:
        return f"{count} B"
    for unit, scale in (("kB", 1e3), ("MB", 1e6)):
        if count < scale * 1000:
            return f"{count / scale:.1f} {unit}"
    return f"{count / 1e9:.1f} GB"


def show_schedule(roots: Sequence[UOp], planned: Sequence[Planned]) -> None:
    """Give a schedule to the captures; print it (DEBUG=2) and its two graph forms (DEBUG=3)."""
    for found in _CAPTURES:
        found.extend(planned)
    if config.debug < 2:
        return
    if config.debug >= 3:
        _print("--- TENSOR\n" + show(roots))
    _print("\n".join(schedule_lines(planned)))
    if config.debug >= 3:
        for each in planned:
            _print(f"--- INDEXED {each.kernel.name}\n{show(each.kernel)}")


def print_code(lowered: Lowered, machine_code: str) -> None:
    """Print a kernel's LINEAR form (DEBUG=3), source (4), every pass (5) and machine code (6)."""
    name = lowered.kernel.name
    for each in lowered.planned:
        _print(f"--- LINEAR {name}, as planned\n{show(each)}")
    if config.debug >= 5:
        for each in lowered.legal:
            _print(f"--- LINEAR {name}, after legalize\n{show(each)}")
        for taken in lowered.times:
            _print(f"pass {taken.name:20} {taken.seconds * 1e3:8.2f} ms")
    if config.debug >= 4:
        _print(f"--- SOURCE {name}\n{lowered.program.source}")
    if config.debug >= 6:
        _print(f"--- MACHINE CODE {name}\n{machine_code}")


def largest(values: Mapping[UOp, Site | None]) -> str:
    """List the leaves that hold the most memory, each with the line that made it if one did."""
    by_size = sorted(values, key=lambda leaf: -math.prod(leaf.shape) * leaf.dtype.itemsize)
    lines = ["the largest live tensors:"]
    for leaf in by_size[:MOST_LISTED]:
        nbytes, site = math.prod(leaf.shape) * leaf.dtype.itemsize, values[leaf]
        made = f", made at {site.describe()}" if site is not None else ""
        lines.append(f"  {nbytes} bytes: {leaf.dtype.name} {leaf.shape}{made}")
    return "\n".join(lines)


def _print(text: str) -> None:
    print(text, file=sys.stderr)
