"""Takes a GPU's memory from the driver, and frees it only when no work can still use it."""

from __future__ import annotations

from tinytensor.runtime.cuda.driver import Context, Driver, Handle
from tinytensor.runtime.slabs import SlabMemory

GRANULARITY_BYTES = 512  # what the driver aligns its own allocations to


class CudaMemory(SlabMemory):
    """Blocks of a GPU's memory.

    A block that comes back may be handed out at once: all work is ordered by the one stream.
    """

    def __init__(self, driver: Driver, context: Context, stream: Handle) -> None:
        super().__init__(GRANULARITY_BYTES)
        self._driver = driver
        self._context = context
        self._stream = stream

    def take(self, nbytes: int) -> int | None:
        """Allocate; return the address, or None when the GPU has no more."""
        api = self._driver.api
        with self._context:
            status, address = api.cuMemAlloc(nbytes)
        if status == api.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
            return None
        self._driver.check("cuMemAlloc", status)
        return int(address)

    def give_back(self, address: int, nbytes: int) -> None:
        """Free, after the work that may still use the memory."""
        with self._context:
            self._driver.call("cuStreamSynchronize", self._stream)
            self._driver.call("cuMemFree", address)
