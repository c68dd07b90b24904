"""An NVIDIA GPU as a device: one stream, on which copies, launches and freed memory are ordered."""

from __future__ import annotations

import functools
import hashlib
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, cast

import numpy as np

from tinytensor.errors import CompileError, DeviceError
from tinytensor.lazy import lazy_import
from tinytensor.ops.program import Program
from tinytensor.runtime.buffer import Buffer, CachingAllocator
from tinytensor.runtime.build import build_all, find_program
from tinytensor.runtime.cache import open_cache
from tinytensor.runtime.cuda.driver import (
    BLOCKING_STREAM,
    TIMING_EVENT,
    Context,
    Driver,
    Gpu,
    Handle,
    describe_gpu,
)
from tinytensor.runtime.cuda.graph import SOURCE, Series
from tinytensor.runtime.cuda.launch import Binary, CudaExecutable
from tinytensor.runtime.cuda.memory import CudaMemory
from tinytensor.runtime.cuda.nvrtc import FLAGS, TOOLKIT, compile_cubin, find_library, identity
from tinytensor.runtime.device import Device, DeviceBase, Event, HostBytes, Launcher, Start, Step
from tinytensor.runtime.steps import read_runner
from tinytensor.target import cuda_target
from tinytensor.timing import timed

if TYPE_CHECKING:
    from tinytensor.runtime.cpu import Executable

US_PER_MS = 1000
WORD_BYTES = 4
MOST_SENT_BYTES = 32  # 2 us a word, a copy and the wait for it at least 10 (H200)


class CudaEvent(Event):
    """A mark on the stream; its handle goes to the next event when nobody holds this one."""

    __slots__ = ("_pool", "handle")

    def __init__(self, handle: Handle, pool: list[Handle]) -> None:
        self.handle = handle
        self._pool = pool

    def __del__(self) -> None:
        self._pool.append(self.handle)


class CudaDevice(DeviceBase[CudaExecutable]):
    """A GPU, driven by binaries that NVRTC made for exactly its architecture."""

    def __init__(self, driver: Driver, gpu: Gpu) -> None:
        target = cuda_target(
            gpu.capability, gpu.name, gpu.multiprocessors, gpu.shared_bytes, gpu.l2_bytes
        )
        super().__init__("CUDA", target)
        self.driver = driver
        self.gpu = gpu
        self.context = Context(driver, gpu)
        with self.context:
            self.stream = driver.call("cuStreamCreate", BLOCKING_STREAM)
        memory = CudaMemory(driver, self.context, self.stream)
        self.allocator = CachingAllocator(self, memory)
        self._executables: dict[Program, CudaExecutable] = {}
        self._binaries: dict[str, Binary] = {}
        self._events: list[Handle] = []
        self._workspace: Buffer | None = None
        self.launch_lock = threading.Lock()
        self._compile_lock = threading.Lock()

    @property
    def model(self) -> str:
        """Return what the GPU is called."""
        return self.gpu.name

    def compile(self, programs: Iterable[Program]) -> list[CudaExecutable]:
        """Compile programs, or load what an earlier process compiled; in the programs' order.

        Programs of equal source share one binary, whatever their launches.

        Raises: CompileError for the first program that does not compile; the others are cached.
        """
        with self.context, self._compile_lock:
            listed: list[Program] = []
            for program, key in self._load_binaries(programs, listed).items():
                binary = self._binaries[key]
                executable = CudaExecutable(self.driver, self.stream, program, binary)
                self._executables[program] = executable
            return [self._executables[program] for program in listed]

    def launcher(
        self,
        work: CudaExecutable,
        sizes: Sequence[int],
        scalars: Sequence[float],
        extents: Sequence[int],
    ) -> Launcher:
        """Return what starts an executable's launches on the addresses of its params."""
        return Launcher(
            lambda *addresses: self._start_here(work, [*addresses], scalars, extents), None
        )

    def run(
        self,
        work: CudaExecutable,
        buffers: Sequence[Buffer],
        scalars: Sequence[float] = (),
        *,
        extents: Sequence[int] = (),
    ) -> None:
        """Start the launches on buffers, in the order of the params, and on scalars."""
        self._start_here(work, [buffer.address for buffer in buffers], scalars, extents)

    def _start_here(
        self,
        work: CudaExecutable,
        addresses: list[int],
        scalars: Sequence[float],
        extents: Sequence[int],
    ) -> None:
        if self.context.is_current():
            self._start(work, addresses, scalars, extents)
        else:
            with self.context:
                self._start(work, addresses, scalars, extents)

    def _start(
        self,
        work: CudaExecutable,
        addresses: list[int],
        scalars: Sequence[float],
        extents: Sequence[int],
    ) -> None:
        with self.launch_lock:
            if work.workspace_bytes:
                addresses.append(self.workspace_address(work.workspace_bytes))
            self.launch(work, addresses, scalars, extents)

    def launch(
        self,
        work: CudaExecutable,
        addresses: Sequence[int],
        scalars: Sequence[float],
        extents: Sequence[int],
    ) -> None:
        """Start the launches in the current context, for who holds the lock."""
        for part, some in work.parts(addresses, extents) if extents else [(addresses, extents)]:
            work.place(part, scalars, some)
            for each in work.launches:
                status = each.start()[0]
                if status:
                    self.driver.check(f"the launch of {each.shape.entry}", status)

    def starts(self, steps: Sequence[Step]) -> list[Start]:
        """Return what starts launches one after the other, and as a graph when they come often.

        A single launch that has tensor maps is better off alone: Python has to encode them.
        """
        launches = [each for step in steps for each in step.work.launches]
        if len(launches) < 2 and all(each.shape.tensor_maps for each in launches):
            return super().starts(steps)
        series = Series(self, steps)
        return [Start(Launcher(series.start, None, series.told), series.places)]

    @functools.cached_property
    def runner(self) -> Executable | None:
        """What starts graphs without Python; None where there is no C compiler."""
        try:
            (found,) = Device["CPU"].compile([read_runner(SOURCE)])
        except (DeviceError, CompileError):
            return None
        return cast("Executable", found)  # a device found by name runs its own kind of work

    def fill(self, buffer: Buffer, byte: int) -> None:
        """Set all bytes of a buffer to one value, when the work started before is done."""
        if buffer.nbytes:
            with self.context:
                place = buffer.address, byte, buffer.nbytes
                self.driver.call("cuMemsetD8Async", *place, self.stream)

    def copy_in(self, buffer: Buffer, source: HostBytes) -> None:
        """Fill a buffer from C-contiguous host memory of the same size.

        A few words go with the commands themselves, and the host waits for nothing: each step of
        an optimizer and each draw brings some.
        """
        host = self.see_host_bytes(buffer, source)
        if host.size <= MOST_SENT_BYTES and host.size % WORD_BYTES == 0:
            places = range(buffer.address, buffer.address + host.size, WORD_BYTES)
            with self.context:
                for place, word in zip(places, host.view(np.uint32).tolist(), strict=True):
                    self.driver.call("cuMemsetD32Async", place, word, 1, self.stream)
        elif host.size:
            self._copy("cuMemcpyHtoDAsync", buffer.address, host.ctypes.data, buffer.nbytes)

    def copy_out(self, buffer: Buffer, destination: HostBytes) -> None:
        """Write a buffer's bytes to writable C-contiguous host memory of the same size."""
        host = self.see_host_bytes(buffer, destination)
        if host.size:
            self._copy("cuMemcpyDtoHAsync", host.ctypes.data, buffer.address, buffer.nbytes)

    def reserve_workspace(self, works: Sequence[CudaExecutable]) -> None:
        """Make the scratch memory large enough for some executables."""
        self.workspace_address(max([work.workspace_bytes for work in works], default=0))

    def join(self, calls: Sequence[Callable[[], None]]) -> Callable[[], None]:
        """Capture calls, which start work on the stream and allocate nothing, into one graph."""
        call = self.driver.call
        mode = self.driver.constant("CUstreamCaptureMode", "CU_STREAM_CAPTURE_MODE_THREAD_LOCAL")
        with self.context:
            call("cuStreamBeginCapture", self.stream, mode)
            try:
                super().join(calls)()
            finally:
                captured = call("cuStreamEndCapture", self.stream)
            graph = call("cuGraphInstantiate", captured, 0)
            call("cuGraphDestroy", captured)
        replay = partial(self._replay, graph)
        weakref.finalize(replay, call, "cuGraphExecDestroy", graph).atexit = False
        return replay

    def _replay(self, graph: Handle) -> None:
        with self.context:
            self.driver.call("cuGraphLaunch", graph, self.stream)

    def disassemble(self, work: CudaExecutable) -> str:
        """Give an executable's machine code, by the toolkit's nvdisasm."""
        tool = find_program("nvdisasm", [os.path.join(TOOLKIT, "bin")])
        if tool is None:
            return "nvdisasm is not found; install the CUDA toolkit to see machine code."
        subprocess = lazy_import("subprocess", None, "cuda")
        with lazy_import("tempfile", None, "cuda").NamedTemporaryFile(suffix=".cubin") as file:
            file.write(work.binary.cubin)
            file.flush()
            command = [tool, "-c", file.name]
            done = subprocess.run(command, capture_output=True, text=True)
        return str(done.stdout or done.stderr)

    @timed("wait")
    def synchronize(self) -> None:
        """Wait until all started work is done.

        Raises: DeviceError when a kernel failed, which shows only here.
        """
        with self.context:
            self.driver.call("cuStreamSynchronize", self.stream)

    def event_record(self) -> CudaEvent:
        """Mark this moment in the stream."""
        with self.context:
            handle = self._get_event()
            self.driver.call("cuEventRecord", handle, self.stream)
        return CudaEvent(handle, self._events)

    def elapsed_us(self, start: Event, end: Event) -> float:
        """Measure the time between two events; waits for the second. Units: µs."""
        assert isinstance(start, CudaEvent), "the event is of another device"
        assert isinstance(end, CudaEvent), "the event is of another device"
        with self.context:
            self.driver.call("cuEventSynchronize", end.handle)
            time_ms = self.driver.call("cuEventElapsedTime", start.handle, end.handle)
        return float(time_ms) * US_PER_MS

    def _copy(self, function: str, destination: int, source: int, nbytes: int) -> None:
        """Copy and wait: host memory belongs to the caller again when this returns."""
        with self.context:
            self.driver.call(function, destination, source, nbytes, self.stream)
            self.driver.call("cuStreamSynchronize", self.stream)

    def _get_event(self) -> Handle:
        """Take an event that nobody holds any more, or make one."""
        try:
            return self._events.pop()
        except IndexError:
            return self.driver.call("cuEventCreate", TIMING_EVENT)

    def workspace_address(self, nbytes: int) -> int:
        """Return the address of the scratch memory that launches use one after another."""
        if self._workspace is None or self._workspace.nbytes < nbytes:
            self._workspace = None
            self._workspace = self.allocate(nbytes)
        return self._workspace.address

    def _make_key(self, program: Program) -> str:
        parts = (program.name, program.source, *FLAGS, self.target.name, identity())
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    def _load_binaries(
        self, programs: Iterable[Program], listed: list[Program]
    ) -> dict[Program, str]:
        """Load binaries from the disk cache, or compile them; list all programs.

        Returns the keys of those programs that have no executable yet.
        """
        cache = open_cache()
        keys: dict[Program, str] = {}
        missing: dict[str, Program] = {}

        def choose_missing() -> Iterator[Program]:
            for program in programs:
                listed.append(program)
                if program in self._executables or program in keys:
                    continue
                key = keys[program] = self._make_key(program)
                cubin = None if key in self._binaries else cache.get(f"{key}.cubin")
                if cubin is not None:
                    self._binaries[key] = self._load(cubin, was_cached=True)
                elif key not in self._binaries and key not in missing:
                    missing[key] = program
                    yield program

        errors: list[CompileError] = []
        compiled = build_all(self._compile_one, choose_missing())
        for key, made in zip(missing, compiled, strict=True):
            if isinstance(made, CompileError):
                errors.append(made)
                continue
            cache.keep(f"{key}.cubin", made)
            self._binaries[key] = self._load(made, was_cached=False)
        if errors:
            raise errors[0]
        return keys

    def _compile_one(self, program: Program) -> bytes:
        return compile_cubin(program.source, self.target.name, program.name)

    def _load(self, cubin: bytes, was_cached: bool) -> Binary:
        module = self.driver.call("cuModuleLoadData", cubin)
        return Binary(cubin, module, was_cached)


def open_device() -> CudaDevice:
    """Give the first GPU the process sees, if it, its driver and NVRTC are there.

    Raises: AbsentDevice without driver or GPU, DeviceError when something else is missing.
    """
    driver = Driver()
    gpu = describe_gpu(driver)
    find_library()
    return CudaDevice(driver, gpu)
