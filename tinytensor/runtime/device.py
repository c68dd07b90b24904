"""Turns a device's name into the device: what each device can do, and which are usable here."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from tinytensor.config import config
from tinytensor.errors import DeviceError
from tinytensor.lazy import lazy_import
from tinytensor.ops.program import Program
from tinytensor.records import dataclass
from tinytensor.runtime.buffer import Buffer, BufferPart, CachingAllocator, MemoryUse
from tinytensor.runtime.lock import ForkSafeLock
from tinytensor.target import Target

HostBytes = bytes | bytearray | memoryview | npt.NDArray[np.generic]
Work = TypeVar("Work")
POISON = 0xFF  # as every byte: NaN as a float of any size, -1 as an integer


class AbsentDevice(DeviceError):
    """A device whose hardware or driver is not here, which is normal: nobody needs to be told."""


class Event:
    """A moment in a device's work, to measure between; each device has its own kind."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Launcher:
    """What starts some work when it is called with the addresses of its params.

    If there is a `workspace`, the address that it returns comes last. `told` says in a phrase how
    several kernels start.
    """

    start: Callable[..., object]
    workspace: Callable[[], int] | None
    told: Callable[[], str] | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One of the works that a schedule starts: each param is at an offset from a base, by number.

    Units: offsets and `sizes`, which are the params', in bytes.
    """

    work: Any  # each device runs its own kind of work
    places: tuple[tuple[int, int], ...]
    sizes: tuple[int, ...]
    scalars: tuple[float, ...]
    extents: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Start:
    """A launcher, and where the addresses that it takes are: each at an offset from a base."""

    launcher: Launcher
    places: tuple[tuple[int, int], ...]


class DeviceBase(ABC, Generic[Work]):
    """A place that holds buffers and runs work: an executable, or a kernel where none is needed."""

    allocator: CachingAllocator

    def __init__(self, name: str, target: Target) -> None:
        self.name = name
        self.target = target

    def __repr__(self) -> str:
        return f"Device[{self.name!r}]"

    @property
    def model(self) -> str:
        """What the hardware is called: measured times belong to it."""
        return self.target.name

    def allocate(self, nbytes: int) -> Buffer:
        """Get a buffer of `nbytes` uninitialized bytes; under TT_STRESS every float in it is NaN.

        Raises: DeviceError when the memory does not suffice.
        """
        buffer = self.allocator.allocate(nbytes)
        if config.stress:
            self.poison(buffer)
        return buffer

    def taker(self, nbytes: int) -> Callable[[], Buffer]:
        """Return what gets a buffer of `nbytes` each time, as `allocate` does."""
        if config.stress:
            return lambda: self.allocate(nbytes)
        return self.allocator.taker(nbytes)

    def poison(self, buffer: Buffer) -> None:
        """Fill a buffer so that every float in it is NaN."""
        self.fill(buffer, POISON)

    def reserve_workspace(self, works: Sequence[Work]) -> None:
        """Make the scratch memory large enough for some work; a device may need none.

        Raises: DeviceError when the memory does not suffice.
        """

    def memory(self) -> MemoryUse:
        """Tell the bytes allocated, reserved, and allocated at the peak."""
        return self.allocator.memory()

    def reset_peak(self) -> None:
        """Forget the peak: it starts again from what is allocated now."""
        self.allocator.reset_peak()

    def see_host_bytes(self, buffer: Buffer, host: HostBytes) -> npt.NDArray[np.uint8]:
        """See host memory as an array of as many bytes as a buffer has.

        Raises: DeviceError when it has not as many.
        """
        seen = np.frombuffer(host, np.uint8)
        if seen.size != buffer.nbytes:
            raise DeviceError(
                f"{self.name.lower()}: copy sizes differ: the buffer holds {buffer.nbytes} bytes, "
                f"the host memory {seen.size}; they must be equal."
            )
        return seen

    @abstractmethod
    def fill(self, buffer: Buffer, byte: int) -> None:
        """Set all bytes of a buffer to one value."""

    @abstractmethod
    def copy_in(self, buffer: Buffer, source: HostBytes) -> None:
        """Fill a buffer from C-contiguous host memory of the same size."""

    @abstractmethod
    def copy_out(self, buffer: Buffer, destination: HostBytes) -> None:
        """Write a buffer's bytes to writable C-contiguous host memory of the same size."""

    def compile(self, programs: Iterable[Program]) -> list[Work]:
        """Turn programs into what `run` takes; a device that runs kernels compiles nothing.

        The first ones are compiled while the others are still being made.
        """
        raise NotImplementedError(f"{self.name} runs kernels; there is nothing to compile.")

    @abstractmethod
    def run(
        self,
        work: Work,
        buffers: Sequence[Buffer],
        scalars: Sequence[float] = (),
        *,
        extents: Sequence[int] = (),
    ) -> None:
        """Start the work on buffers, in the order of its params, and its scalars.

        Instanced work takes the buffers of all instances, one after the other, and their extents.
        """

    def launcher(
        self, work: Work, sizes: Sequence[int], scalars: Sequence[float], extents: Sequence[int]
    ) -> Launcher:
        """Return what starts the work on addresses. Units: `sizes` are the params' bytes."""

        def start(*addresses: int) -> None:
            pairs = zip(addresses, sizes, strict=True)
            buffers = [BufferPart(self, nbytes, address, None) for address, nbytes in pairs]
            self.run(work, buffers, scalars, extents=extents)

        return Launcher(start, None)

    def starts(self, steps: Sequence[Step]) -> list[Start]:
        """Return what starts works one after the other, in as few calls as the device needs."""
        given = [(each.work, each.sizes, each.scalars, each.extents) for each in steps]
        launchers = [self.launcher(*facts) for facts in given]
        return [Start(*pair) for pair in zip(launchers, [s.places for s in steps], strict=True)]

    def join(self, calls: Sequence[Callable[[], None]]) -> Callable[[], None]:
        """Make one call of many that ran before, which starts them without pauses between."""

        def run_all() -> None:
            for call in calls:
                call()

        return run_all

    def disassemble(self, work: Work) -> str:
        """Give the machine code of some work as text; a device without any says so."""
        return f"{self.name} runs no machine code of its own."

    @abstractmethod
    def synchronize(self) -> None:
        """Wait until all started work is done."""

    @abstractmethod
    def event_record(self) -> Event:
        """Mark this moment in the device's work."""

    @abstractmethod
    def elapsed_us(self, start: Event, end: Event) -> float:
        """Measure the time between two events; waits for the second. Units: µs."""


AnyDevice = DeviceBase[Any]  # Any: a device found by name runs its own kind of work


@dataclass(frozen=True, slots=True)
class DeviceModule:
    """A device's name, and the module whose `open_device()` gives it or says why it is missing."""

    name: str
    module: str


DEVICE_MODULES = (
    DeviceModule("CUDA", "tinytensor.runtime.cuda.device"),
    DeviceModule("CPU", "tinytensor.runtime.cpu"),
    DeviceModule("PYTHON", "tinytensor.runtime.python"),
)


class DeviceRegistry:
    """The devices by name, each opened when first asked for: `Device["CPU"]`, any case."""

    def __init__(self, modules: Sequence[DeviceModule]) -> None:
        self._modules = {each.name: each.module for each in modules}
        self._opened: dict[str, AnyDevice] = {}
        self._missing: dict[str, str] = {}
        self._absent: set[str] = set()
        self._lock = ForkSafeLock()

    def __getitem__(self, name: str) -> AnyDevice:
        found = self._opened.get(name)
        return found if found is not None else self._require(name)

    def default(self) -> AnyDevice:
        """Give the device named by TT_DEVICE, else the first usable one of the list.

        A device that is passed over leaves one line on stderr, once, unless it is merely absent.
        """
        if config.device:
            return self[config.device]
        for name in self._modules:
            told = name in self._missing
            device = self._open(name)
            if device is not None:
                return device
            if not told and name not in self._absent:
                sentence = f"tinytensor: {name} is passed over: {self._missing[name]}."
                print(sentence, file=sys.stderr)
        raise DeviceError(f"device: none is usable: {self._missing}; one must be.")

    def missing(self) -> dict[str, str]:
        """List the devices that cannot be used here, each with the reason."""
        for name in self._modules:
            self._open(name)
        return dict(self._missing)

    def _require(self, name: str) -> AnyDevice:
        known = name.upper()
        if known not in self._modules:
            names = ", ".join(self._modules)
            raise DeviceError(f"device: no such device: {name!r}; must be one of {names}.")
        device = self._open(known)
        if device is None:
            missing = self.missing()
            usable = ", ".join(each for each in self._modules if each not in missing)
            raise DeviceError(f"device: {known} is missing: {missing[known]}; usable: {usable}.")
        return device

    def _open(self, name: str) -> AnyDevice | None:
        with self._lock:
            if name in self._opened or name in self._missing:
                return self._opened.get(name)
            module = lazy_import(self._modules[name], None, "device")
            try:
                device: AnyDevice = module.open_device()
            except DeviceError as error:
                self._missing[name] = str(error).rstrip(".")
                if isinstance(error, AbsentDevice):
                    self._absent.add(name)
                return None
            self._opened[name] = device
            return device


Device = DeviceRegistry(DEVICE_MODULES)


def default_device() -> AnyDevice:
    """Give the device named by TT_DEVICE, else the best one usable here."""
    return Device.default()


def missing_devices() -> dict[str, str]:
    """List the devices that cannot be used here, each with the reason."""
    return Device.missing()
