"""Claims about buffers and the allocator that caches their blocks."""

import gc
import os
import random
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest

from tinytensor.errors import DeviceError
from tinytensor.runtime.buffer import CachingAllocator, block_size
from tinytensor.runtime.host import HUGE_PAGE_BYTES, HostDevice, view_bytes
from tinytensor.target import CPU_AVX2

MIB = 1 << 20


class PlainDevice(HostDevice):
    def run(self, work, buffers):
        raise NotImplementedError


@pytest.fixture
def device():
    return PlainDevice("PLAIN", CPU_AVX2)


class ScarceSource:
    """A source of numbered blocks that holds at most `limit_bytes`."""

    def __init__(self, limit_bytes):
        self.limit_bytes = limit_bytes
        self.reserved_bytes = 0
        self.released = []

    def reserve(self, block_bytes):
        if self.reserved_bytes + block_bytes > self.limit_bytes:
            return None
        self.reserved_bytes += block_bytes
        return 4096 * self.reserved_bytes

    def can_release(self, block_bytes):
        return True

    def release(self, address, block_bytes):
        self.released.append(address)
        self.reserved_bytes -= block_bytes


@pytest.mark.parametrize("nbytes", [0, 1, 63, 64, 65, 1000, 1024, 1025, 4097, MIB - 1, 5 * MIB + 1])
def test_a_block_is_aligned_and_wastes_little(nbytes):
    size = block_size(nbytes)

    assert size % 64 == 0
    assert 0 <= size - nbytes <= max(64, nbytes / 8)


def test_sizes_fall_into_few_classes():
    classes = {block_size(nbytes) for nbytes in range(1024, 1024 * 1024)}

    assert len(classes) <= 8 * 10 + 1  # eight a doubling


@pytest.mark.parametrize("nbytes", [0, 1, 64, 4096, 3 * MIB, 64 * MIB])
def test_a_buffer_is_aligned_and_writable_to_its_end(device, nbytes):
    buffer = device.allocate(nbytes)
    memory = view_bytes(buffer)

    memory[:] = 7

    assert buffer.address != 0
    assert buffer.address % 64 == 0
    assert memory.size == nbytes
    assert int(memory.sum(dtype=np.int64)) == 7 * nbytes


def test_a_large_block_begins_at_a_huge_page(device):
    buffer = device.allocate(HUGE_PAGE_BYTES + 1)

    assert buffer.address % HUGE_PAGE_BYTES == 0


@pytest.mark.parametrize("nbytes", [100, 8 * MIB])
def test_a_dropped_block_is_the_next_one_of_its_class(device, nbytes):
    address = device.allocate(nbytes).address

    again = device.allocate(nbytes - 1)

    assert again.address == address


def test_a_live_block_is_not_given_twice(device):
    first = device.allocate(256)
    second = device.allocate(256)

    assert abs(first.address - second.address) >= 256


def test_a_buffer_in_a_cycle_returns_when_collected(device):
    holder = [device.allocate(4096)]
    holder.append(holder)
    gc.collect()

    del holder
    gc.collect()

    assert device.memory().allocated == 0


def test_the_statistics_count_blocks(device):
    first = device.allocate(3 * MIB)
    second = device.allocate(5 * MIB)
    del second

    memory = device.memory()

    assert first.nbytes == 3 * MIB
    assert memory.allocated == 3 * MIB
    assert memory.reserved == 8 * MIB
    assert memory.peak == 8 * MIB


def test_release_cached_returns_large_blocks_only(device):
    small = device.allocate(1000)
    slab_bytes = device.memory().reserved
    large = device.allocate(32 * MIB)
    del large

    device.allocator.release_cached()

    assert small.nbytes == 1000
    assert device.memory().reserved == slab_bytes


def test_memory_short_of_room_is_released_and_asked_for_again(device):
    source = ScarceSource(limit_bytes=1024)
    device.allocator = CachingAllocator(device, source)
    dropped = device.allocate(1024).address

    buffer = device.allocate(512)

    assert source.released == [dropped]
    assert buffer.nbytes == 512


def test_a_refused_allocation_leaves_the_statistics_as_they_were(device):
    held = device.allocate(4096)
    before = device.memory()

    with pytest.raises(DeviceError):
        device.allocate(1 << 60)

    assert held.nbytes == 4096
    assert device.memory() == before


def churn(device, seed, faults):
    """Allocate, mark and drop buffers; a mark that changed means that two threads share a block."""
    choose = random.Random(seed)
    held = []
    for step in range(2000):
        buffer = device.allocate(choose.choice([64, 192, 4096]))
        mark = seed * 10_000 + step
        view_bytes(buffer)[:8].view(np.int64)[0] = mark
        held.append((buffer, mark))
        if len(held) > 10:
            dropped, expected = held.pop(choose.randrange(10))
            found = view_bytes(dropped)[:8].view(np.int64)[0]
            if found != expected:
                faults.append((found, expected))


def test_threads_never_share_a_block(device):
    faults = []
    threads = [threading.Thread(target=churn, args=(device, seed, faults)) for seed in range(1, 9)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)

    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sys.setswitchinterval(interval)

    assert faults == []
    assert device.memory().allocated == 0


def test_a_buffer_may_be_weakly_referenced(device):
    buffer = device.allocate(64)
    reference = weakref.ref(buffer)

    del buffer

    assert reference() is None


def test_a_child_allocates_while_a_thread_of_the_parent_holds_the_lock(device):
    source = device.allocator.source
    with source._lock:
        child = os.fork()
        if child == 0:
            thread = threading.Thread(target=device.allocate, args=(4 * MIB,), daemon=True)
            thread.start()
            thread.join(timeout=20)
            os._exit(thread.is_alive())
    _, status = os.waitpid(child, 0)

    assert os.waitstatus_to_exitcode(status) == 0


def test_buffers_alive_at_shutdown_are_silent():
    script = (
        "import tinytensor.runtime.cpu as cpu\n"
        "device = cpu.open_device()\n"
        "buffer = device.allocate(100)\n"
        "cycle = [device.allocate(100)]\n"
        "cycle.append(cycle)\n"
        "cpu.kept = buffer\n"
    )

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)

    assert (done.returncode, done.stderr) == (0, "")
