"""Claims about the CUDA device that need no GPU: what it asks a stand-in of the driver for."""

import functools
import multiprocessing
from dataclasses import replace

import numpy as np
import pytest
from runtime.cuda.fake_driver import (
    NO_CONTEXT,
    OTHER_CONTEXT,
    PRIMARY_CONTEXT,
    FakeDriver,
    Result,
)
from runtime.cuda.programs import (
    GRID,
    THREADS,
    add_program,
    bulk_program,
    instanced_program,
    shared_program,
    stack_program,
    tensor_map,
    two_launch_program,
)
from runtime.test_device import assert_fills

from tinytensor.errors import DeviceError
from tinytensor.ops.text import show, word_of
from tinytensor.ops.uop import index_const, make_variable
from tinytensor.runtime.cuda import device as cuda_device
from tinytensor.runtime.slabs import LARGEST_CARVED_BYTES, SLAB_BYTES

BIG = LARGEST_CARVED_BYTES + 1


def run(device, program, nbytes=4096):
    buffers = [device.allocate(nbytes) for _ in range(program.params)]
    device.run(device.compile([program])[0], buffers)
    return [buffer.address for buffer in buffers]


def test_the_target_is_what_the_driver_tells(device):
    target = device.target

    assert (target.name, target.multiprocessors) == ("sm_90a", 132)
    assert (target.shared_bytes, target.l2_bytes) == (227 << 10, 60 << 20)
    assert "wgmma" in target.features


@pytest.mark.parametrize(
    ("capability", "name"), [((8, 0), "sm_80"), ((8, 9), "sm_89"), ((10, 0), "sm_100")]
)
def test_other_gpus_are_programmed_as_portable_ones(fake, capability, name):
    fake.capability = capability

    target = cuda_device.open_device().target

    assert target.name == name
    assert target.features == {"mma", "cp.async"}


def test_a_launch_gets_its_shape_and_the_addresses(device, fake):
    addresses = run(device, add_program(1))

    assert [launch.values for launch in fake.launches] == [addresses]
    assert fake.launches[0].grid == GRID
    assert fake.launches[0].threads == THREADS
    assert fake.launches[0].function[1] == b"add"


def test_every_run_gets_its_own_addresses(device, fake):
    executable = device.compile([add_program(1)])[0]
    first, second, third = (device.allocate(64) for _ in range(3))

    device.run(executable, [first, second])
    device.run(executable, [third, first])

    assert [launch.values for launch in fake.launches] == [
        [first.address, second.address],
        [third.address, first.address],
    ]


def test_scalars_come_after_the_addresses_as_64_bits_each(device, fake):
    launch = replace(add_program(1).launches[0], entry="scaled")
    program = replace(add_program(1), launches=(launch,), scalars="qd")
    buffers = [device.allocate(4096) for _ in range(2)]

    device.run(device.compile([program])[0], buffers, (-1, 2.0))

    minus_one, two = 2**64 - 1, 0x4000000000000000
    addresses = [each.address for each in buffers]
    assert [launch.values for launch in fake.launches] == [[*addresses, minus_one, two]]


def test_a_grid_that_scalars_decide_is_counted_at_each_launch(device, fake):
    blocks = show((make_variable(0, 0, 1000) + 7) // 8)
    launch = replace(add_program(1).launches[0], across=blocks)
    program = replace(add_program(1), launches=(launch,), scalars="q")
    work = device.compile([program])[0]
    buffers = [device.allocate(4096) for _ in range(2)]

    for count in (0, 1, 17, 1000):
        device.run(work, buffers, (count,))

    assert [launch.grid for launch in fake.launches] == [(n, 1, 1) for n in (1, 1, 3, 125)]


def test_the_launches_of_a_program_share_one_workspace(device, fake):
    addresses = run(device, two_launch_program())

    twice, backwards = fake.launches
    assert (twice.function[1], backwards.function[1]) == (b"twice", b"backwards")
    assert twice.values[:2] == addresses
    assert twice.values == backwards.values
    assert twice.values[2] not in addresses


def test_instances_are_tables_of_as_many_rows_as_fit(device, fake):
    extents = [1 + 40 * number for number in range(150)]
    buffers = [device.allocate(4 * extent) for extent in extents for _ in range(2)]
    blocks = [-(-extent // THREADS) for extent in extents]

    device.run(device.compile([instanced_program()])[0], buffers, extents=extents)

    first, second = fake.launches
    assert [first.values[0], second.values[0]] == [127, 23]
    assert [first.grid[0], second.grid[0]] == [sum(blocks[:127]), sum(blocks[127:])]
    begins = [sum(blocks[:number]) for number in range(127)]
    addresses = [each.address for each in buffers]
    assert first.values[1:509] == [
        word
        for number in range(127)
        for word in (begins[number], extents[number], *addresses[2 * number : 2 * number + 2])
    ]
    assert second.values[1:5] == [0, extents[127], *addresses[254:256]]


def test_more_shared_memory_than_the_default_is_asked_for_once(device, fake):
    small, large = shared_program(32 << 10), shared_program(100 << 10)
    sizes = [each.launches[0].shared_bytes for each in (small, large)]

    executables = device.compile([small, large])
    for executable in executables:
        device.run(executable, [device.allocate(4 * THREADS) for _ in range(2)])

    assert list(fake.shared_limits.values()) == [100 << 10]
    assert [launch.shared_bytes for launch in fake.launches] == sizes


def test_a_stack_frame_is_noted(device):
    executables = device.compile([stack_program(), add_program(1)])

    assert [each.local_bytes for each in executables] == [16, 0]


def test_a_tensor_map_is_encoded_once_an_address_and_passed_by_value(device, fake):
    executable = device.compile([bulk_program(tensor_map(64))])[0]
    out, x = device.allocate(4096), device.allocate(4096)

    for source in (x, x, out):
        device.run(executable, [out, source])

    first, second = fake.tensor_maps
    assert first[0] is FakeDriver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_UINT32
    assert first[1:7] == (2, x.address, [12, 5], [80], [16, 8], [1, 1])
    assert first[8] is FakeDriver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_64B
    assert second[2] == out.address
    assert [launch.values[2] for launch in fake.launches] == [1, 1, 2]


def test_a_tensor_map_of_an_open_shape_is_encoded_once_a_shape(device, fake):
    rows = make_variable(0, 1, 5)
    described = replace(tensor_map(64), extents=(word_of(index_const(12)), word_of(rows)))
    program = replace(bulk_program(described), scalars="q")
    executable = device.compile([program])[0]
    out, x = device.allocate(4096), device.allocate(4096)

    shown = []
    for count in (3, 3, 4, 3):
        device.run(executable, [out, x], scalars=(count,))
        shown.append(executable.launches[0].placed[0].encoded[0])

    assert [each[3] for each in fake.tensor_maps] == [[12, 3], [12, 4]]
    assert shown == [1, 1, 2, 1]


def test_equal_sources_share_one_binary(device, fake):
    one = add_program(1)
    other = type(one)("add", one.source, 2, 64, launches=one.launches)

    executables = device.compile([one, other, one])

    assert executables[0] is executables[2]
    assert executables[0] is not executables[1]
    assert len(fake.modules) == 1


def test_a_second_device_loads_what_the_first_compiled(device):
    first = device.compile([add_program(1)])[0]

    second = cuda_device.open_device().compile([add_program(1)])[0]

    assert not first.was_cached
    assert second.was_cached
    assert second.binary.cubin == first.binary.cubin


@pytest.mark.parametrize("nbytes", [0, 1, 64, BIG])
def test_bytes_come_back_as_they_went_in(device, nbytes):
    sent = np.arange(nbytes, dtype=np.uint8)
    buffer = device.allocate(nbytes)
    result = np.zeros_like(sent)

    device.copy_in(buffer, sent)
    device.copy_out(buffer, result)

    assert (result == sent).all()


@pytest.mark.parametrize("nbytes", [4, 8, 32])
def test_a_few_words_go_in_without_waiting(device, fake, nbytes):
    sent = np.arange(1, 1 + nbytes, dtype=np.uint8)
    buffer = device.allocate(nbytes + 4)
    fake.failures["cuStreamSynchronize"] = Result.CUDA_ERROR_UNKNOWN

    device.copy_in(buffer.part(0, nbytes), sent)

    fake.failures.clear()
    result = np.zeros(nbytes + 4, np.uint8)
    device.copy_out(buffer, result)
    assert result.tolist() == [*sent.tolist(), 0, 0, 0, 0]


@pytest.mark.parametrize("byte", [0, 171])
@pytest.mark.parametrize("nbytes", [0, 1, 64, BIG])
def test_all_bytes_are_filled(device, nbytes, byte):
    assert_fills(device, nbytes, byte)


def test_small_blocks_are_carved_on_the_drivers_boundaries(device, fake):
    buffers = [device.allocate(nbytes) for nbytes in (1, 700, 64)]

    assert {buffer.address % 512 for buffer in buffers} == {0}
    assert len(fake.allocations) == 1
    assert device.memory().reserved == SLAB_BYTES


def test_a_full_gpu_gives_unused_blocks_back_first(device, fake):
    fake.memory_bytes = 7 << 20  # two of the small blocks, or one and the larger
    kept = device.allocate(BIG)
    unused = device.allocate(BIG)
    del unused

    larger = device.allocate(2 * BIG - 1)

    assert sorted(fake.allocations) == sorted([kept.address, larger.address])


def test_events_measure_in_microseconds_and_are_used_again(device, fake):
    start, end = device.event_record(), device.event_record()
    measured = device.elapsed_us(start, end)
    handles = {start.handle, end.handle}
    del start, end

    again = device.event_record()

    assert measured == 2500
    assert again.handle in handles


def test_another_librarys_context_is_current_again(device, fake):
    run(device, two_launch_program())
    device.synchronize()
    device.elapsed_us(device.event_record(), device.event_record())
    with pytest.raises(DeviceError):
        fake.failures["cuStreamSynchronize"] = Result.CUDA_ERROR_UNKNOWN
        device.synchronize()

    assert fake.contexts == [OTHER_CONTEXT]


@pytest.mark.parametrize(
    ("current", "afterwards", "changes"),
    [
        (OTHER_CONTEXT, OTHER_CONTEXT, 2),
        (NO_CONTEXT, PRIMARY_CONTEXT, 1),
        (PRIMARY_CONTEXT, PRIMARY_CONTEXT, 0),
    ],
)
def test_a_launch_changes_the_context_only_where_it_must(
    device, fake, current, afterwards, changes
):
    executable = device.compile([add_program(1)])[0]
    buffers = [device.allocate(64) for _ in range(2)]
    fake.contexts, fake.context_changes = [current], 0

    device.run(executable, buffers)
    device.run(executable, buffers)

    assert fake.contexts == [afterwards]
    assert fake.context_changes == changes
    assert len(fake.launches) == 2


def test_a_launch_leaves_another_librarys_context_after_an_error(device, fake):
    fake.failures["cuLaunchKernel"] = Result.CUDA_ERROR_INVALID_VALUE
    executable = device.compile([add_program(1)])[0]
    buffers = [device.allocate(64) for _ in range(2)]

    with pytest.raises(DeviceError, match="the launch of add failed: CUDA_ERROR_INVALID_VALUE"):
        device.run(executable, buffers)

    assert fake.contexts == [OTHER_CONTEXT]


def ask_in_child(device, launch, answers):
    for use in (device.synchronize, launch):
        try:
            use()
            answers.put("no error")
        except DeviceError as error:
            answers.put(str(error))


def test_a_forked_process_is_told_to_spawn(device, fake):
    buffers = [device.allocate(64) for _ in range(2)]
    launch = functools.partial(device.run, device.compile([add_program(1)])[0], buffers)
    fake.contexts = [NO_CONTEXT]
    fork = multiprocessing.get_context("fork")
    answers = fork.SimpleQueue()
    child = fork.Process(target=ask_in_child, args=(device, launch, answers))

    child.start()
    child.join(60)

    expected = (
        "cuda: a forked process cannot use its parent's GPU: forked from process "
        f"{multiprocessing.current_process().pid}; it must be started by spawn, as by "
        "multiprocessing.get_context('spawn')."
    )
    assert [answers.get(), answers.get()] == [expected, expected]
    device.synchronize()
