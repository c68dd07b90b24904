"""Carves a device's memory: small blocks from slabs that stay, large ones each on its own."""

from __future__ import annotations

from abc import ABC, abstractmethod

from tinytensor.runtime.lock import ForkSafeLock

SLAB_BYTES = 16 << 20
LARGEST_CARVED_BYTES = 2 << 20


class SlabMemory(ABC):
    """A source of blocks over a system that gives memory in large pieces only.

    Units: `granularity_bytes`, the alignment of a carved block.
    """

    def __init__(self, granularity_bytes: int) -> None:
        self.reserved_bytes = 0
        self.granularity_bytes = granularity_bytes
        self._slab_begin = 0
        self._slab_end = 0
        self._lock = ForkSafeLock()

    @abstractmethod
    def take(self, nbytes: int) -> int | None:
        """Take memory from the system; return its address, or None when there is no more."""

    @abstractmethod
    def give_back(self, address: int, nbytes: int) -> None:
        """Return to the system what `take` gave."""

    def reserve(self, block_bytes: int) -> int | None:
        """Take one block; return its address, or None when the system has no more."""
        with self._lock:
            if self.can_release(block_bytes):
                return self._count(self.take(block_bytes), block_bytes)
            carved_bytes = -(-block_bytes // self.granularity_bytes) * self.granularity_bytes
            if self._slab_begin + carved_bytes > self._slab_end:
                slab = self._count(self.take(SLAB_BYTES), SLAB_BYTES)
                if slab is None:
                    return None
                self._slab_begin = slab
                self._slab_end = slab + SLAB_BYTES
            address = self._slab_begin
            self._slab_begin += carved_bytes
            return address

    def can_release(self, block_bytes: int) -> bool:
        """Say whether a block of this size was taken from the system on its own."""
        return block_bytes > LARGEST_CARVED_BYTES

    def release(self, address: int, block_bytes: int) -> None:
        """Give one block back to the system."""
        with self._lock:
            self.give_back(address, block_bytes)
            self.reserved_bytes -= block_bytes

    def _count(self, address: int | None, nbytes: int) -> int | None:
        if address is not None:
            self.reserved_bytes += nbytes
        return address
