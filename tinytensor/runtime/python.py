"""The device that needs no compiler: it runs a kernel's INDEXED form with NumPy."""

from __future__ import annotations

from collections.abc import Sequence

from tinytensor.ops.interpret_indexed import run_kernel
from tinytensor.ops.kernel import Kernel
from tinytensor.runtime.buffer import Buffer
from tinytensor.runtime.host import HostDevice, view_bytes
from tinytensor.target import PYTHON


class PythonDevice(HostDevice[Kernel]):
    """The interpreter on host memory: slow, and right wherever NumPy runs."""

    def __init__(self) -> None:
        super().__init__("PYTHON", PYTHON)

    def run(self, work: Kernel, buffers: Sequence[Buffer], scalars: Sequence[float] = ()) -> None:
        """Run a kernel on buffers, in the order of its params, and its scalars."""
        arrays = []
        for param, buffer in zip(work.params, buffers, strict=True):
            stored = view_bytes(buffer).view(param.dtype.storage_numpy)
            arrays.append(stored[: param.elements])
        run_kernel(work, arrays, scalars)


def open_device() -> PythonDevice:
    """Give the device; it is never missing."""
    return PythonDevice()
