"""Turns launches of tinytensor's driver into graphs that are replayed and timed on the device."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tinytensor.config import config
from tinytensor.ops.program import LaunchShape, Program
from tinytensor.runtime.buffer import Buffer
from tinytensor.runtime.device import POISON

COPY_THREADS = 256
VECTOR_BYTES = 16

Cuda = Any  # a CudaDevice, known only where there is one
Handle = Any


@dataclass(frozen=True, slots=True)
class Launch:
    """Some work, the buffers it runs on, the extents of its instances, and its scalars."""

    work: Any  # a CudaExecutable
    buffers: tuple[Buffer, ...]
    extents: tuple[int, ...] = ()
    scalars: tuple[float, ...] = ()

    def run(self, device: Cuda) -> None:
        """Start it."""
        device.run(self.work, self.buffers, self.scalars, extents=self.extents)


@contextmanager
def recorded(device: Cuda) -> Iterator[list[Launch]]:
    """Collect what a device runs inside the block, and keep its buffers apart."""
    found: list[Launch] = []
    run = device.run

    def run_and_record(
        work: Any,  # noqa: ANN401 - see Launch
        buffers: Sequence[Buffer],
        scalars: Sequence[float] = (),
        *,
        extents: Sequence[int] = (),
    ) -> None:
        found.append(Launch(work, tuple(buffers), tuple(extents), tuple(scalars)))
        run(work, buffers, scalars, extents=extents)

    device.run = run_and_record
    config.note_change()
    try:
        yield found
    finally:
        del device.run  # the method of the class shows again
        config.note_change()


def run_all(device: Cuda, launches: Sequence[Launch]) -> None:
    """Start launches in order."""
    for each in launches:
        each.run(device)


def poison(device: Cuda, buffers: Sequence[Buffer]) -> None:
    """Fill buffers with NaN, so that an element that is not written shows."""
    with device.context:
        for each in buffers:
            arguments = (each.address, POISON, each.nbytes, device.stream)
            device.driver.call("cuMemsetD8Async", *arguments)


def copy_bytes(device: Cuda, destination: int, source: int, nbytes: int) -> None:
    """Copy within the device's memory, in the order of its stream."""
    with device.context:
        call = device.driver.call
        call("cuMemcpyDtoDAsync", destination, source, nbytes, device.stream)
        call("cuStreamSynchronize", device.stream)


class Timed:
    """Calls that were captured into a CUDA graph, timed by events around one replay."""

    def __init__(self, device: Cuda, sets: Sequence[Sequence[Launch]], calls: int) -> None:
        self.device = device
        self.calls = calls
        self._graph = capture(device, [sets[number % len(sets)] for number in range(calls)])

    def device_us(self) -> float:
        """Replay once; return the time of one call. Units: µs."""
        device = self.device
        start = device.event_record()
        with device.context:
            device.driver.call("cuGraphLaunch", self._graph, device.stream)
        return float(device.elapsed_us(start, device.event_record())) / self.calls


def capture(device: Cuda, calls: Sequence[Sequence[Launch]]) -> Handle:
    """Make an executable graph of launches that ran before, so that nothing is allocated."""
    driver = device.driver
    mode = driver.constant("CUstreamCaptureMode", "CU_STREAM_CAPTURE_MODE_THREAD_LOCAL")
    with device.context:
        driver.call("cuStreamBeginCapture", device.stream, mode)
        for launches in calls:
            run_all(device, launches)
        graph = driver.call("cuStreamEndCapture", device.stream)
        made = driver.call("cuGraphInstantiate", graph, 0)
        driver.call("cuGraphDestroy", graph)
    return made


def copy_launch(device: Cuda, nbytes: int) -> Launch:
    """Make a plain copy that reads and writes `nbytes` together: the roof of what moves memory."""
    vectors = max(1, nbytes // (2 * VECTOR_BYTES))
    source = f"""extern "C" __global__ void copy(uint4 *out, const uint4 *x) {{
  const unsigned i = blockIdx.x * {COPY_THREADS}u + threadIdx.x;
  if (i < {vectors}u) out[i] = x[i];
}}
"""
    blocks = -(-vectors // COPY_THREADS)
    shape = LaunchShape("copy", (blocks, 1, 1), COPY_THREADS, 0)
    (work,) = device.compile([Program("copy", source, 2, 0, launches=(shape,))])
    buffers = tuple([device.allocate(vectors * VECTOR_BYTES) for _ in range(2)])
    return Launch(work, buffers)


def wall_us(calls: Sequence[Callable[[], object]], wait: Callable[[object], None]) -> float:
    """Start calls one after another, wait for the last; return the time of one. Units: µs."""
    start = time.perf_counter_ns()
    made: object = None
    for call in calls:
        made = call()
    wait(made)
    return (time.perf_counter_ns() - start) / 1e3 / len(calls)
