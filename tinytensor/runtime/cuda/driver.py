"""Turns calls on CUDA's driver into checked ones, and what it tells about a GPU into a record."""

from __future__ import annotations

import ctypes
import os
from types import TracebackType
from typing import Any

from tinytensor.errors import DeviceError
from tinytensor.lazy import lazy_import
from tinytensor.records import dataclass
from tinytensor.runtime.device import AbsentDevice

Handle = Any  # Any: the bindings are untyped

LIBRARY = "libcuda.so.1"
OLDEST_CAPABILITY = (8, 0)
OLDEST_DRIVER = 13000  # as cuDriverGetVersion counts: NVRTC 13's binaries load from there on
NAME_BYTES = 96

BLOCKING_STREAM = 0  # flags of a stream that orders with the legacy default stream
TIMING_EVENT = 0  # flags of an event that takes the time

REMEDIES = {
    "CUDA_ERROR_ILLEGAL_ADDRESS": "the process must be started again, its GPU state is lost",
    "CUDA_ERROR_MISALIGNED_ADDRESS": "the process must be started again, its GPU state is lost",
    "CUDA_ERROR_ILLEGAL_INSTRUCTION": "the process must be started again, its GPU state is lost",
    "CUDA_ERROR_LAUNCH_FAILED": "the process must be started again, its GPU state is lost",
    "CUDA_ERROR_OUT_OF_MEMORY": "other programs must leave it some memory",
    "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES": "the kernel must ask for fewer threads or registers",
    "CUDA_ERROR_NO_BINARY_FOR_GPU": "the driver must be as new as NVRTC",
}
DEFAULT_REMEDY = "the driver must accept the call, nvidia-smi shows its state"


class Driver:
    """The calls made on the driver, through cuda.bindings.

    Raises: AbsentDevice without a driver or GPU, DeviceError without the bindings.
    """

    def __init__(self) -> None:
        require_library()
        try:
            self.api = lazy_import("cuda.bindings.driver", "cuda", "cuda")
            status = self.api.cuInit(0)[0]
        except (ImportError, RuntimeError) as error:
            raise DeviceError(str(error)) from error
        if status == self.api.CUresult.CUDA_ERROR_NO_DEVICE:
            raise AbsentDevice("no NVIDIA GPU is visible to this process")
        self.check("cuInit", status)

    def call(self, function: str, *arguments: Handle) -> Handle:
        """Make one call; return its result, or None if it has none."""
        status, *results = getattr(self.api, function)(*arguments)
        self.check(function, status)
        return results[0] if results else None

    def check(self, what: str, status: Handle) -> None:
        """Raise what a call's status says.

        Raises: DeviceError with CUDA's name and words, unless all went well.
        """
        if not status:
            return
        name = self.api.cuGetErrorName(status)[1].decode()
        words = self.api.cuGetErrorString(status)[1].decode()
        remedy = REMEDIES.get(name, DEFAULT_REMEDY)
        raise DeviceError(f"cuda: {what} failed: {name} ({words}); {remedy}.")

    def entry(self, function: str) -> int:
        """Find where a function of the driver begins, for code that is not Python."""
        found = getattr(ctypes.CDLL(LIBRARY), function)
        return ctypes.cast(found, ctypes.c_void_p).value or 0

    def constant(self, enumeration: str, name: str) -> Handle:
        """Find one of the driver's named numbers."""
        return getattr(getattr(self.api, enumeration), name)

    def device_attribute(self, device: Handle, name: str) -> int:
        """Ask for one number of a GPU."""
        attribute = self.constant("CUdevice_attribute", f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(self.call("cuDeviceGetAttribute", attribute, device))

    def function_attribute(self, function: Handle, name: str) -> int:
        """Ask for one number of a loaded function."""
        attribute = self.constant("CUfunction_attribute", f"CU_FUNC_ATTRIBUTE_{name}")
        return int(self.call("cuFuncGetAttribute", attribute, function))


def require_library() -> None:
    """Check that the driver's library is there: tens of µs, where importing cuda takes 100 ms.

    Raises: AbsentDevice if it is not.
    """
    try:
        ctypes.CDLL(LIBRARY)
    except OSError as error:
        raise AbsentDevice(f"no NVIDIA driver: {LIBRARY} cannot be loaded") from error


@dataclass(frozen=True, slots=True)
class Gpu:
    """What the driver tells about one GPU. Units: bytes; `shared_bytes` of one block."""

    handle: Handle
    name: str
    capability: tuple[int, int]
    multiprocessors: int
    memory_bytes: int
    shared_bytes: int
    l2_bytes: int


def describe_gpu(driver: Driver) -> Gpu:
    """Ask the driver about the first GPU.

    Raises: DeviceError when the driver or the GPU is too old.
    """
    version = driver.call("cuDriverGetVersion")
    if version < OLDEST_DRIVER:
        raise DeviceError(
            f"the NVIDIA driver is for CUDA {_version_text(version)}, "
            f"it must be for {_version_text(OLDEST_DRIVER)} or later"
        )
    handle = driver.call("cuDeviceGet", 0)
    name = driver.call("cuDeviceGetName", NAME_BYTES, handle)
    major = driver.device_attribute(handle, "COMPUTE_CAPABILITY_MAJOR")
    minor = driver.device_attribute(handle, "COMPUTE_CAPABILITY_MINOR")
    gpu = Gpu(
        handle=handle,
        name=name.split(b"\0")[0].decode(),
        capability=(major, minor),
        multiprocessors=driver.device_attribute(handle, "MULTIPROCESSOR_COUNT"),
        memory_bytes=int(driver.call("cuDeviceTotalMem", handle)),
        shared_bytes=driver.device_attribute(handle, "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
        l2_bytes=driver.device_attribute(handle, "L2_CACHE_SIZE"),
    )
    if gpu.capability < OLDEST_CAPABILITY:
        raise DeviceError(
            f"the {gpu.name} has compute capability {major}.{minor}, it must have 8.0 or later"
        )
    return gpu


class Context:
    """A GPU's primary context, shared with other libraries and current inside a `with` block.

    The thread's own context is back afterwards, so a library that chose another GPU keeps it.
    """

    __slots__ = ("_address", "_driver", "_get", "_handle", "_pop", "_push", "forked_from")

    def __init__(self, driver: Driver, gpu: Gpu) -> None:
        self._driver = driver
        self._handle = driver.call("cuDevicePrimaryCtxRetain", gpu.handle)
        self._address = int(self._handle)
        self._get = driver.api.cuCtxGetCurrent
        self._push = driver.api.cuCtxPushCurrent
        self._pop = driver.api.cuCtxPopCurrent
        self.forked_from = 0
        os.register_at_fork(after_in_child=self._mark_forked)

    def is_current(self) -> bool:
        """Whether a `with` block would change nothing in this thread; half as long as entering one.

        A thread that has no context gets this one to keep, as CUDA's own runtime would give it.
        """
        current = int(self._get()[1])
        if not current and not self.forked_from:
            self._driver.call("cuCtxSetCurrent", self._handle)
            return True
        return current == self._address

    def __enter__(self) -> None:
        if self.forked_from:
            raise DeviceError(
                f"cuda: a forked process cannot use its parent's GPU: forked from process "
                f"{self.forked_from}; it must be started by spawn, as by "
                "multiprocessing.get_context('spawn')."
            )
        status = self._push(self._handle)[0]
        if status:
            self._driver.check("cuCtxPushCurrent", status)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        status = self._pop()[0]
        if status and error is None:
            self._driver.check("cuCtxPopCurrent", status)

    def _mark_forked(self) -> None:
        self.forked_from = os.getppid()


def _version_text(version: int) -> str:
    """Write the driver's version number as CUDA's.

    >>> _version_text(12040)
    '12.4'
    """
    return f"{version // 1000}.{version % 1000 // 10}"
