"""Claims about many kernels that run in one call of the host."""

import ctypes
import gc
import inspect
import threading

import numpy as np
import pytest
from codegen.machine import device
from codegen.test_scalars import BEGIN, ELEMENTS, EXPECTED, SCALE, arrays, scaled_kernel
from runtime.c_programs import add_program

from tinytensor import Tensor, jit
from tinytensor.codegen.lower import lower
from tinytensor.runtime.buffer import Buffer
from tinytensor.runtime.device import Step
from tinytensor.runtime.steps import NOTHING, place_of, words_of
from tinytensor.target import CPU_AVX2

SHAPE = (40, 40)


def scaled_twice():
    """Return what runs the scaled kernel twice, on other memory and with other scalars."""
    (work,) = device().compile([lower(scaled_kernel(), CPU_AVX2).program])
    sizes = (8 * ELEMENTS, 4 * ELEMENTS)
    first = Step(work, ((0, 0), (1, 0)), sizes, (BEGIN, SCALE), ())
    second = Step(work, ((0, 4), (1, 4 * ELEMENTS)), sizes, (0, -2.0), ())
    (start,) = device().starts([first, second])
    return start


def test_kernels_run_in_one_call_each_with_its_scalars():
    start = scaled_twice()
    x, _ = arrays()
    out = np.zeros(2 * ELEMENTS, np.float32)

    start.launcher.start(x.ctypes.data, out.ctypes.data)

    assert start.places == ((0, 0), (1, 0))
    assert out[:ELEMENTS].tolist() == EXPECTED.tolist()
    assert out[ELEMENTS:].tolist() == (-2 * x[1 : 1 + ELEMENTS]).tolist()


def test_a_missing_address_is_refused():
    start = scaled_twice()

    with pytest.raises(TypeError, match=r"^cpu: wrong number of addresses\.$"):
        start.launcher.start(64)


def test_an_address_that_is_no_number_is_refused():
    start = scaled_twice()

    with pytest.raises(TypeError):
        start.launcher.start("64", 64)


def test_scalars_become_words_with_their_bits():
    found = words_of((-1, 0.5), "qd")

    assert found == [(NOTHING, 2**64 - 1), (NOTHING, 0x3FE0000000000000)]


def chain(x, weights):
    """Several kernels, some of which need scratch memory beyond the stack's."""
    for weight in weights:
        x = (x @ weight).softmax(1)
    return x


def expected_chain(x, weights):
    x = x.astype(np.float64)
    for weight in weights:
        powers = np.exp(x @ weight)
        x = powers / powers.sum(1, keepdims=True)
    return x


def test_a_schedule_of_several_kernels_is_one_call_and_threads_share_it(seed):
    rng = np.random.default_rng(seed)
    weights = [rng.standard_normal((200, 200)).astype(np.float32) / 20 for _ in range(3)]
    held = [Tensor(each, device="CPU").realize() for each in weights]
    inputs = [rng.standard_normal((8, 200)).astype(np.float32) for _ in range(4)]
    call = jit(lambda x: chain(x, held))
    found = {}
    for each in inputs[:3]:
        call(Tensor(each, device="CPU"))

    def work(number):
        x = Tensor(inputs[number], device="CPU")
        found[number] = [call(x).numpy() for _ in range(20)]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()

    (entries,) = call._entries.values()
    replay = entries[0].program.in_place.replay
    assert len(replay.launches) > 1
    assert len(replay.calls) == 1
    for number, values in found.items():
        wanted = expected_chain(inputs[number], weights)
        bound = 3 * 200 * np.finfo(np.float32).eps
        assert all(np.abs(each - wanted).max() <= bound for each in values)


def test_a_call_does_not_reach_results_of_calls_before(seed):
    rng = np.random.default_rng(seed)
    inputs = [rng.standard_normal(SHAPE).astype(np.float32) for _ in range(8)]
    call = jit(lambda x: (x * 2, (x @ x).relu()))
    tensors = [Tensor(each, device="CPU") for each in inputs]

    found = [call(each) for each in tensors]

    for x, (doubled, product) in zip(inputs, found, strict=True):
        wide = x.astype(np.float64)
        bound = 40 * np.finfo(np.float32).eps * (np.abs(wide) @ np.abs(wide))
        assert doubled.numpy().tolist() == (2 * x).tolist()
        assert (np.abs(product.numpy() - np.maximum(wide @ wide, 0)) <= bound).all()


def test_a_jitted_call_inside_a_trace_of_another_thread_stays_right():
    double = jit(lambda x: x * 2)
    x = Tensor(np.arange(4, dtype=np.float32), device="CPU")
    for _ in range(3):
        double(x)
    found, entered, left = [], threading.Event(), threading.Event()

    def outer(y):
        entered.set()
        left.wait(10)
        return double(y) + 1

    def trace():
        found.append(jit(outer)(x).numpy())

    thread = threading.Thread(target=trace)
    thread.start()
    entered.wait(10)
    during = [double(x).numpy() for _ in range(3)]
    left.set()
    thread.join()

    assert [each.tolist() for each in during] == [[0.0, 2.0, 4.0, 6.0]] * 3
    assert found[0].tolist() == [1.0, 3.0, 5.0, 7.0]


def is_mapped(path):
    with open("/proc/self/maps") as file:
        return path in file.read()


def test_code_that_nobody_holds_leaves_memory():
    (work,) = device().compile([add_program(7001)])
    path = work.library._name
    assert is_mapped(path)

    del work
    gc.collect()

    assert not is_mapped(path)


def test_what_runs_code_holds_it():
    (work,) = device().compile([add_program(7002)])
    path = work.library._name
    (start,) = device().starts([Step(work, ((0, 0), (1, 0)), (), (), ())])
    del work
    gc.collect()
    x, out = np.ones((2, 64), np.float32)

    start.launcher.start(out.ctypes.data, x.ctypes.data)

    assert out.tolist() == [7003.0] * 64
    assert is_mapped(path)


class Holder:
    __slots__ = ("second", "first")


@pytest.mark.parametrize("name", Holder.__slots__)
def test_a_slot_is_where_it_is_looked_for(name):
    holder, value = Holder(), object()
    setattr(holder, name, value)

    word = ctypes.c_size_t.from_address(id(holder) + 8 * (2 + place_of(Holder, name)))

    assert word.value == id(value)


def test_a_buffer_goes_back_to_its_shelf_through_c():
    scaled_twice()  # which loads the C
    buffer = device().allocate(100)
    address, blocks = buffer.address, buffer.shelf.blocks
    free = len(blocks)

    assert not inspect.isfunction(Buffer.__del__)
    del buffer

    assert (len(blocks), blocks[-1]) == (free + 1, address)
