"""Claims about the CUDA device that only a GPU can confirm."""

import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from meta.tree import ROOT
from runtime.cuda.programs import (
    BOX_COLUMNS,
    BOX_ROWS,
    COLUMNS,
    ELEMENTS,
    ROWS,
    STACK_INTS,
    STRIDE,
    THREADS,
    add_program,
    bulk_program,
    instanced_program,
    shared_program,
    stack_program,
    tensor_map,
    two_launch_program,
)

from tinytensor.config import config
from tinytensor.errors import CompileError, DeviceError
from tinytensor.ops.program import LaunchShape, Program
from tinytensor.runtime.device import Device

pytestmark = pytest.mark.gpu

X = np.arange(ELEMENTS, dtype=np.float32)


@pytest.fixture
def device(tmp_path):
    with config(cache_dir=str(tmp_path / "cache")):
        yield Device["CUDA"]


def from_host(device, array):
    buffer = device.allocate(array.nbytes)
    device.copy_in(buffer, array)
    return buffer


def to_host(device, buffer, dtype=np.float32):
    array = np.empty(buffer.nbytes // np.dtype(dtype).itemsize, dtype)
    device.copy_out(buffer, array)
    return array


def run(device, program, x=X, out_nbytes=X.nbytes, dtype=np.float32):
    out = device.allocate(out_nbytes)
    device.run(device.compile([program])[0], [out, from_host(device, x)])
    return to_host(device, out, dtype)


@pytest.mark.parametrize("nbytes", [0, 1, 1000, (3 << 20) + 1, 100 << 20])
def test_bytes_come_back_as_they_went_in(device, nbytes):
    sent = np.random.default_rng(nbytes).integers(0, 256, nbytes, np.uint8)

    received = to_host(device, from_host(device, sent), np.uint8)

    assert (received == sent).all()


def test_a_program_runs(device):
    assert (run(device, add_program(3)) == X + 3).all()


def test_several_programs_come_back_in_order(device):
    numbers = [5, 2, 9, 2, 7]

    executables = device.compile([add_program(number) for number in numbers])

    x, out = from_host(device, X), device.allocate(X.nbytes)
    for number, executable in zip(numbers, executables, strict=True):
        device.run(executable, [out, x])
        assert (to_host(device, out) == X + number).all()


def test_launches_of_a_program_follow_each_other_through_the_workspace(device):
    assert (run(device, two_launch_program()) == 2 * X[::-1]).all()


def test_every_instance_of_every_table_runs(device):
    extents = [1 + 6 * number for number in range(150)]
    operands = [from_host(device, X[:extent]) for extent in extents]
    results = [device.allocate(each.nbytes) for each in operands]
    buffers = [each for pair in zip(results, operands, strict=True) for each in pair]

    device.run(device.compile([instanced_program()])[0], buffers, extents=extents)

    for number, (extent, result) in enumerate(zip(extents, results, strict=True)):
        assert (to_host(device, result) == X[:extent] + number % 127).all()


@pytest.mark.parametrize("shared_bytes", [1 << 10, 48 << 10, 100 << 10, 163 << 10])
def test_dynamic_shared_memory_is_granted(device, shared_bytes):
    x = np.arange(THREADS, dtype=np.float32)

    assert (run(device, shared_program(shared_bytes), x, x.nbytes) == x[::-1]).all()


def test_less_shared_memory_after_more_leaves_more_granted(device):
    large, small = device.compile([shared_program(100 << 10), shared_program(32 << 10)])
    x = from_host(device, np.arange(THREADS, dtype=np.float32))
    out = device.allocate(4 * THREADS)

    for executable in (large, small, large):
        device.run(executable, [out, x])
    device.synchronize()

    assert (to_host(device, out) == np.arange(THREADS)[::-1]).all()


def test_more_shared_memory_than_a_block_has_is_refused(device):
    with pytest.raises(DeviceError, match="cuFuncSetAttribute failed: CUDA_ERROR_INVALID_VALUE"):
        device.compile([shared_program(1 << 20)])


def test_a_launch_that_cannot_start_names_its_entry(device):
    shape = LaunchShape("add", (1, 1, 1), 2048, 0)
    program = Program("add", add_program(1).source, 2, 0, launches=(shape,))
    buffers = [device.allocate(4 * ELEMENTS) for _ in range(2)]

    with pytest.raises(DeviceError, match="the launch of add failed: CUDA_ERROR_INVALID_VALUE"):
        device.run(device.compile([program])[0], buffers)


def test_a_stack_frame_is_noted(device):
    stack, plain = device.compile([stack_program(), add_program(1)])
    x = np.arange(STACK_INTS, dtype=np.int32)

    result = run(device, stack_program(), x, 4 * 32, np.int32)

    assert (result == np.arange(32) ** 2).all()
    assert stack.local_bytes >= 4 * STACK_INTS
    assert plain.local_bytes == 0


def test_a_tensor_map_shows_a_box_with_zeros_outside(device):
    if "bulk" not in device.target.features:
        pytest.skip("the GPU has no bulk copy engine")
    program = bulk_program(tensor_map(0))
    x = np.arange(1, ROWS * STRIDE + 1, dtype=np.float32).reshape(ROWS, STRIDE)
    expected = np.zeros((BOX_ROWS, BOX_COLUMNS), np.float32)
    expected[: ROWS - 1, : COLUMNS - 4] = x[1:, 4:COLUMNS]

    result = run(device, program, x, expected.nbytes)

    assert (result.reshape(expected.shape) == expected).all()


def test_a_program_that_does_not_compile_is_explained(device):
    program = Program("bad", "line one\n", 0, 0)

    with pytest.raises(CompileError, match="kernel 'bad' does not compile for sm_"):
        device.compile([program])


def test_events_measure_the_work_between_them(device):
    executable = device.compile([add_program(1)])[0]
    buffers = [device.allocate(X.nbytes), from_host(device, X)]
    device.synchronize()

    begin = time.perf_counter_ns()
    start = device.event_record()
    for _ in range(100):
        device.run(executable, buffers)
    measured_us = device.elapsed_us(start, device.event_record())
    waited_us = (time.perf_counter_ns() - begin) / 1000

    assert 50 < measured_us <= waited_us


def test_a_dropped_block_is_used_again(device):
    first = device.allocate(5 << 20)
    address, reserved = first.address, device.memory().reserved
    del first

    second = device.allocate(5 << 20)

    assert second.address == address
    assert device.memory().reserved == reserved


def test_more_than_the_gpu_has_is_refused_and_the_rest_still_works(device):
    with pytest.raises(DeviceError, match="^cuda: out of memory: "):
        device.allocate(device.gpu.memory_bytes + 1)

    assert (run(device, add_program(3)) == X + 3).all()


def test_unused_blocks_are_given_back_for_a_larger_one(device):
    half = device.gpu.memory_bytes * 5 // 8
    first = device.allocate(half)
    del first

    second = device.allocate(half + (half >> 3))  # another size class

    assert second.nbytes > half
    del second
    device.allocator.release_cached()


def test_two_threads_get_their_own_answers(device):
    wrong = []

    def repeat(number):
        executable = device.compile([two_launch_program(), add_program(number)])
        x = from_host(device, X + number)
        turned, out = device.allocate(X.nbytes), device.allocate(X.nbytes)
        for _ in range(200):
            device.run(executable[0], [turned, x])
            device.run(executable[1], [out, turned])
        if not (to_host(device, out) == 2 * (X + number)[::-1] + number).all():
            wrong.append(number)

    threads = [threading.Thread(target=repeat, args=(number,)) for number in (1, 2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()

    assert wrong == []


def test_the_machine_code_names_the_entry(device):
    listing = device.disassemble(device.compile([add_program(1)])[0])

    assert "add" in listing or listing.startswith("nvdisasm is not found")


ONLY_HERE = 4096  # this process must compile the program here, into the cache of the test

SECOND_PROCESS = f"""
import sys
import numpy as np
from runtime.cuda.programs import ELEMENTS, add_program
from tinytensor.runtime.device import Device

device = Device["CUDA"]
executable = device.compile([add_program({ONLY_HERE})])[0]
x, out = device.allocate(4 * ELEMENTS), device.allocate(4 * ELEMENTS)
device.copy_in(x, np.arange(ELEMENTS, dtype=np.float32))
device.run(executable, [out, x])
result = np.empty(ELEMENTS, np.float32)
device.copy_out(out, result)
print(executable.was_cached, "cuda.bindings.nvrtc" in sys.modules, int(result.sum()))
"""


def test_a_second_process_neither_compiles_nor_loads_nvrtc(device, tmp_path, monkeypatch):
    device.compile([add_program(ONLY_HERE)])
    monkeypatch.setenv("TT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{ROOT / 'test'}")

    done = subprocess.run([sys.executable, "-c", SECOND_PROCESS], capture_output=True, text=True)

    total = ELEMENTS * (ELEMENTS - 1) // 2 + ELEMENTS * ONLY_HERE
    assert done.stdout == f"True False {total}\n", done.stderr


CRASH = """
from runtime.cuda.programs import add_program
from tinytensor.errors import DeviceError
from tinytensor.runtime.buffer import Buffer
from tinytensor.runtime.device import Device

device = Device["CUDA"]
nowhere = Buffer(device, 4096, 64, device.allocator.shelf(64))
device.run(device.compile([add_program(1)])[0], [nowhere, nowhere])
try:
    device.synchronize()
except DeviceError as error:
    print(error)
"""


def test_a_wrong_address_is_explained(tmp_path, monkeypatch):
    monkeypatch.setenv("TT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{ROOT / 'test'}")

    done = subprocess.run([sys.executable, "-c", CRASH], capture_output=True, text=True)

    assert done.stdout == (
        "cuda: cuStreamSynchronize failed: CUDA_ERROR_ILLEGAL_ADDRESS (an illegal memory access "
        "was encountered); the process must be started again, its GPU state is lost.\n"
    ), done.stderr
