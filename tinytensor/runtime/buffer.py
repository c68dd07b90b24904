"""Buffers, and the allocator that hands their memory out again instead of giving it back."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Protocol

from tinytensor.errors import DeviceError, Site
from tinytensor.records import dataclass

if TYPE_CHECKING:
    from tinytensor.runtime.device import AnyDevice

ALIGNMENT_BYTES = 64
LARGEST_COARSE_BYTES = 2 << 20


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """How much memory a device uses.

    Units: bytes. `allocated` is held by live buffers, rounded up to whole blocks; `reserved` was
    taken from the system; `peak` is the largest `allocated` so far.
    """

    allocated: int
    reserved: int
    peak: int


class MemorySource(Protocol):
    """Where an allocator gets its blocks from."""

    reserved_bytes: int

    def reserve(self, block_bytes: int) -> int | None:
        """Take one block; return its address, or None when the system has no more."""

    def can_release(self, block_bytes: int) -> bool:
        """Say whether blocks of this size can be given back one by one."""

    def release(self, address: int, block_bytes: int) -> None:
        """Give one block back to the system."""


@functools.lru_cache(maxsize=4096)
def block_size(nbytes: int) -> int:
    """Round a size up to its size class: a multiple of 64 bytes with four significant bits.

    At most an eighth is added (or 63 bytes), so that nearby sizes share blocks; above 2 MiB it is
    a thirty-second, since there memory weighs more than what sharing spares.

    >>> block_size(0), block_size(65), block_size(1025), block_size((2 << 20) + 1)
    (64, 128, 1152, 2162688)
    """
    if nbytes <= ALIGNMENT_BYTES:
        return ALIGNMENT_BYTES
    significant = 4 if nbytes <= LARGEST_COARSE_BYTES else 6
    shift = max((nbytes - 1).bit_length() - significant, 6)
    return ((nbytes - 1 >> shift) + 1) << shift


class Buffer:
    """A piece of a device's memory that returns to the allocator when nobody holds the buffer.

    `is_shared` when several values lie in it, so that none may be replaced; `site` is the line that
    made the value.
    Units: `address` and `nbytes` in bytes; `address` is 64-byte aligned and never 0.
    """

    __slots__ = ("__weakref__", "address", "block_bytes", "device", "is_shared", "nbytes", "site")

    def __init__(self, device: AnyDevice, nbytes: int, address: int, block_bytes: int) -> None:
        self.is_shared = False
        self.site: Site | None = None
        self.device = device
        self.nbytes = nbytes
        self.address = address
        self.block_bytes = block_bytes

    def __del__(self) -> None:
        # The collector may run this anywhere, even inside `allocate` or while the interpreter
        # shuts down: so it takes no lock and reads no module global.
        allocator = self.device.allocator
        block_bytes = self.block_bytes
        allocator.allocated_bytes -= block_bytes
        allocator.free_blocks[block_bytes].append(self.address)

    def part(self, offset: int, nbytes: int) -> Buffer:
        """Return some of its bytes as a buffer, which must not outlive it."""
        if nbytes == self.nbytes:
            return self
        return BufferPart(self.device, nbytes, self.address + offset, 0)

    def __repr__(self) -> str:
        return f"Buffer({self.device.name}, {self.nbytes} bytes at {self.address:#x})"


class Block(Buffer):
    """A buffer whose maker fills in what it has: where a call of Python's would be felt."""

    __slots__ = ()
    __init__ = object.__init__  # takes nothing


class BufferPart(Buffer):
    """Some bytes of a buffer."""

    __slots__ = ()

    def __del__(self) -> None:
        """Leave the memory to the buffer it is part of."""


class CachingAllocator:
    """Hand out blocks, those that came back first: page faults cost more than most kernels.

    Threads may allocate and drop buffers at any time: each step on a free list is one atomic call.
    """

    def __init__(self, device: AnyDevice, source: MemorySource) -> None:
        self.device = device
        self.source = source
        self.free_blocks: dict[int, list[int]] = {}
        self.allocated_bytes = 0
        self.peak_bytes = 0

    def allocate(self, nbytes: int) -> Buffer:
        """Get `nbytes` of uninitialized memory.

        Raises: DeviceError when the system has no more, even after `release_cached`.
        """
        block_bytes = block_size(nbytes)
        try:
            address = self.free_blocks[block_bytes].pop()
        except (KeyError, IndexError):
            address = self._reserve(nbytes, block_bytes)
        self.allocated_bytes += block_bytes
        if self.allocated_bytes > self.peak_bytes:
            self.peak_bytes = self.allocated_bytes
        return Buffer(self.device, nbytes, address, block_bytes)

    def taker(self, nbytes: int) -> Taker:
        """Return what allocates `nbytes` again and again: what follows from the size is known."""
        block_bytes = block_size(nbytes)
        blocks = self.free_blocks.setdefault(block_bytes, [])
        return Taker(self, nbytes, block_bytes, blocks)

    def release_cached(self) -> None:
        """Give every unused block that the source can take back to the system."""
        for block_bytes, blocks in list(self.free_blocks.items()):
            if not self.source.can_release(block_bytes):
                continue
            while blocks:
                try:
                    address = blocks.pop()
                except IndexError:  # another thread took the last one
                    break
                self.source.release(address, block_bytes)

    def memory(self) -> MemoryUse:
        """Tell the bytes allocated, reserved, and allocated at the peak."""
        return MemoryUse(self.allocated_bytes, self.source.reserved_bytes, self.peak_bytes)

    def reset_peak(self) -> None:
        """Forget the peak: it starts again from what is allocated now."""
        self.peak_bytes = self.allocated_bytes

    def _reserve(self, nbytes: int, block_bytes: int) -> int:
        self.free_blocks.setdefault(block_bytes, [])
        address = self.source.reserve(block_bytes)
        if address is None:
            self.release_cached()
            address = self.source.reserve(block_bytes)
        if address is None:
            raise DeviceError(
                f"{self.device.name.lower()}: out of memory: {nbytes} bytes asked for, "
                f"{self.allocated_bytes} held by live tensors; the sum must fit the device."
            )
        return address


@dataclass(frozen=True, slots=True)
class Taker:
    """What allocates one size; a written-out call takes a block from the free ones itself."""

    allocator: CachingAllocator
    nbytes: int
    block_bytes: int
    blocks: list[int]

    def __call__(self) -> Buffer:
        """Get a buffer."""
        return self.allocator.allocate(self.nbytes)
