"""Buffers, and the allocator that hands their memory out again instead of giving it back."""

from __future__ import annotations

import functools
import struct
from typing import TYPE_CHECKING, Any

from tinytensor.errors import DeviceError, Site
from tinytensor.records import dataclass

if TYPE_CHECKING:
    from tinytensor.runtime.device import AnyDevice
    from tinytensor.runtime.slabs import SlabMemory

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


class Shelf(bytes):
    """The free `blocks` of one size, and the `use` of their allocator; its bytes tell C of them.

    `use` are the bytes allocated, and the most there were of them.
    """

    blocks: list[int]
    use: list[int]
    block_bytes: int


def make_shelf(use: list[int], block_bytes: int) -> Shelf:
    """Return a shelf without blocks."""
    blocks: list[int] = []
    shelf = Shelf(struct.pack("=3Q", id(blocks), id(use), block_bytes))
    shelf.blocks, shelf.use, shelf.block_bytes = blocks, use, block_bytes
    return shelf


class Buffer:
    """A piece of a device's memory that returns to the allocator when nobody holds the buffer.

    `is_shared` when several values lie in it, so that none may be replaced; `site` is the line that
    made the value.
    Units: `address` and `nbytes` in bytes; `address` is 64-byte aligned and never 0.
    """

    __slots__ = ("__weakref__", "address", "device", "is_shared", "nbytes", "shelf", "site")

    def __init__(self, device: AnyDevice, nbytes: int, address: int, shelf: Shelf | None) -> None:
        self.is_shared = False
        self.site: Site | None = None
        self.device = device
        self.nbytes = nbytes
        self.address = address
        self.shelf = shelf

    def __del__(self) -> None:
        # The collector may run this anywhere, even inside `allocate` or while the interpreter
        # shuts down: so it takes no lock and reads no module global.
        shelf: Any = self.shelf  # Any: only a part has none
        shelf.use[0] -= shelf.block_bytes
        shelf.blocks.append(self.address)

    def part(self, offset: int, nbytes: int) -> Buffer:
        """Return some of its bytes as a buffer, which must not outlive it."""
        if nbytes == self.nbytes:
            return self
        return BufferPart(self.device, nbytes, self.address + offset, None)

    def __repr__(self) -> str:
        return f"Buffer({self.device.name}, {self.nbytes} bytes at {self.address:#x})"


class BufferPart(Buffer):
    """Some bytes of a buffer."""

    __slots__ = ()

    def __del__(self) -> None:
        """Leave the memory to the buffer it is part of."""


class CachingAllocator:
    """Hand out blocks, those that came back first: page faults cost more than most kernels.

    Threads may allocate and drop buffers at any time: each step on a free list is one atomic call.
    """

    def __init__(self, device: AnyDevice, source: SlabMemory) -> None:
        self.device = device
        self.source = source
        self.shelves: dict[int, Shelf] = {}
        self.use = [0, 0]

    def allocate(self, nbytes: int) -> Buffer:
        """Get `nbytes` of uninitialized memory.

        Raises: DeviceError when the system has no more, even after `release_cached`.
        """
        shelf = self.shelf(block_size(nbytes))
        try:
            address = shelf.blocks.pop()
        except IndexError:
            address = self._reserve(nbytes, shelf.block_bytes)
        use = self.use
        use[0] += shelf.block_bytes
        if use[0] > use[1]:
            use[1] = use[0]
        return Buffer(self.device, nbytes, address, shelf)

    def shelf(self, block_bytes: int) -> Shelf:
        """Return the shelf of blocks of a size."""
        found = self.shelves.get(block_bytes)
        return found or self.shelves.setdefault(block_bytes, make_shelf(self.use, block_bytes))

    def taker(self, nbytes: int) -> Taker:
        """Return what allocates `nbytes` again and again: what follows from the size is known."""
        return Taker(self, nbytes, self.shelf(block_size(nbytes)))

    def release_cached(self) -> None:
        """Give every unused block that the source can take back to the system."""
        for block_bytes, shelf in list(self.shelves.items()):
            if not self.source.can_release(block_bytes):
                continue
            while shelf.blocks:
                try:
                    address = shelf.blocks.pop()
                except IndexError:  # another thread took the last one
                    break
                self.source.release(address, block_bytes)

    def memory(self) -> MemoryUse:
        """Tell the bytes allocated, reserved, and allocated at the peak."""
        return MemoryUse(self.use[0], self.source.reserved_bytes, self.use[1])

    def reset_peak(self) -> None:
        """Forget the peak: it starts again from what is allocated now."""
        self.use[1] = self.use[0]

    def _reserve(self, nbytes: int, block_bytes: int) -> int:
        address = self.source.reserve(block_bytes)
        if address is None:
            self.release_cached()
            address = self.source.reserve(block_bytes)
        if address is None:
            raise DeviceError(
                f"{self.device.name.lower()}: out of memory: {nbytes} bytes asked for, "
                f"{self.use[0]} held by live tensors; the sum must fit the device."
            )
        return address


@dataclass(frozen=True, slots=True)
class Taker:
    """What allocates one size; where C makes a call it takes a block off the shelf itself."""

    allocator: CachingAllocator
    nbytes: int
    shelf: Shelf

    def __call__(self) -> Buffer:
        """Get a buffer."""
        return self.allocator.allocate(self.nbytes)
