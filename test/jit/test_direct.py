"""Calls that the host's C checks and makes whole give what the function gives, or hand on."""

import gc
import threading
import weakref
from types import BuiltinFunctionType

import numpy as np
import pytest

from tinytensor import Device, Tensor, config, jit, no_grad
from tinytensor.errors import DeviceError
from tinytensor.runtime.buffer import Shelf

N = 7


def on_cpu(values):
    return Tensor(np.asarray(values, np.float32), device="CPU").realize()


def numbers(seed, *shape):
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float32)


def armed(function, *arguments):
    """The jitted function, whose calls with arguments of this kind C makes from now on."""
    jitted = jit(function)
    for _ in range(2):
        jitted(*arguments)
    assert isinstance(jitted.__call__, BuiltinFunctionType)
    return jitted


def calls_of(jitted):
    return [each.calls for each in jitted.programs()]


def test_the_result_is_a_tensor_like_any_other(seed):
    x = numbers(seed, N, N)
    jitted = armed(lambda x: (x @ x.T + 1).relu(), on_cpu(x))

    found = jitted(on_cpu(x))

    assert np.array_equal(found.numpy(), np.maximum(x @ x.T + 1, 0))
    assert (found.shape, found.device, found.requires_grad) == ((N, N), "CPU", False)
    assert np.array_equal((found.T * 2).numpy(), 2 * np.maximum(x @ x.T + 1, 0))
    assert calls_of(jitted) == [2]


def test_several_results_come_in_their_nest(seed):
    x, y = numbers(seed, 3, N), numbers(seed + 1, 3, N)

    def pieces(x, y):
        total = x + y
        return {"total": total, "pair": (x * y, total.T)}

    jitted = armed(pieces, on_cpu(x), on_cpu(y))

    found = jitted(on_cpu(x), on_cpu(2 * y))

    product, turned = found["pair"]
    assert np.array_equal(found["total"].numpy(), x + 2 * y)
    assert np.array_equal(product.numpy(), x * 2 * y)
    assert np.array_equal(turned.numpy(), (x + 2 * y).T)
    found["total"] += 1
    assert np.array_equal(turned.numpy(), (x + 2 * y).T + 1)


def test_results_that_are_kept_have_memory_of_their_own(seed):
    x = numbers(seed, N)
    jitted = armed(lambda x: x + 1, on_cpu(x))

    kept = [jitted(on_cpu(x * each)) for each in range(50)]

    assert [each.tolist() for each in kept] == [(x * each + 1).tolist() for each in range(50)]


def test_what_is_dropped_is_given_back_and_counted(seed):
    x = on_cpu(numbers(seed, N))
    jitted = armed(lambda x: (x + 1, x * 2), x)
    gc.collect()
    device = Device["CPU"]
    device.reset_peak()
    before = device.memory()

    held = jitted(x)
    during = device.memory()
    addresses = {each.cell.memory.address for each in held}
    del held
    after = device.memory()
    again = {each.cell.memory.address for each in jitted(x)}

    assert during.allocated == before.allocated + 2 * 64
    assert (after.allocated, after.peak) == (before.allocated, during.allocated)
    assert again == addresses


def with_setting(call, x):
    with config(fuse=0):
        return call(x)


OTHER_CALLS = {
    "another dtype": lambda call, x: call(Tensor([1, 2], device="CPU")),
    "another shape": lambda call, x: call(on_cpu([1.0, 2.0, 3.0])),
    "a view": lambda call, x: call(on_cpu([[1.0, 5.0], [2.0, 6.0]])[:, 0]),
    "a name": lambda call, x: call(x=x),
    "no gradients": lambda call, x: no_grad()(call)(x),
    "a setting": lambda call, x: with_setting(call, x),
    "a leaf with a gradient": lambda call, x: call(Tensor([1.0, 2.0], requires_grad=True)),
    "no tensor": lambda call, x: call(1.0),
}


def plain(found):
    return found.detach().numpy() if isinstance(found, Tensor) else found


@pytest.mark.parametrize("other", OTHER_CALLS)
def test_another_call_is_handed_on(other):
    def shifted(x):
        return x + 1

    x = on_cpu([1.0, 2.0])
    jitted = armed(shifted, x)

    found = OTHER_CALLS[other](jitted, x)

    expected = OTHER_CALLS[other](shifted, x)
    assert calls_of(jitted)[0] == 1
    assert type(found) is type(expected)
    assert np.array_equal(plain(found), plain(expected))
    assert jitted(x).tolist() == [2.0, 3.0]


def test_an_expression_is_computed_first():
    x = on_cpu([1.0, 2.0])
    jitted = armed(lambda x: x + 1, x)

    assert jitted(x * 2).tolist() == [3.0, 5.0]
    assert calls_of(jitted) == [2]


def test_wrong_arguments_are_the_functions_to_refuse():
    x = on_cpu([1.0])
    jitted = armed(lambda x: x + 1, x)

    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        jitted()
    with pytest.raises(TypeError, match="takes 1 positional argument but 2 were given"):
        jitted(x, x)


def test_one_tensor_for_two_is_another_call(seed):
    x, y = on_cpu(numbers(seed, N)), on_cpu(numbers(seed + 1, N))
    jitted = armed(lambda x, y: x * y, x, y)

    assert np.array_equal(jitted(x, x).numpy(), x.numpy() ** 2)
    assert calls_of(jitted)[0] == 1


def test_two_programs_take_turns(seed):
    x, y = on_cpu(numbers(seed, 3)), on_cpu(numbers(seed, 4))
    jitted = jit(lambda x: x + 1, dynamic=False)
    for _ in range(2):
        jitted(x)
        jitted(y)

    found = [jitted(each).tolist() for each in (x, y, x, y)]

    assert found == 2 * [(x.numpy() + 1).tolist(), (y.numpy() + 1).tolist()]
    assert calls_of(jitted) == [3, 3]


def test_scratch_memory_is_each_threads_own(seed):
    x = numbers(seed, 200, 200)
    jitted = armed(lambda x: (x @ x).relu(), on_cpu(x))
    found = {}

    def work(number):
        found[number] = [jitted(on_cpu(x * number)) for _ in range(5)]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()

    for number in range(4):
        expected = np.maximum((x * number) @ (x * number), 0)
        assert all(np.array_equal(each.numpy(), expected) for each in found[number])


def test_too_little_memory_is_told_as_ever(monkeypatch, seed):
    x = on_cpu(numbers(seed, N, 1000))
    jitted = armed(lambda x: x + 1, x)
    kept = [jitted(x)]
    allocator = Device["CPU"].allocator
    monkeypatch.setattr(allocator.source, "reserve", lambda block_bytes: None)

    with pytest.raises(DeviceError, match=r"^cpu: out of memory: 28000 bytes asked for, .*\nasked"):
        kept += [jitted(x) for _ in range(1000)]


def test_a_jitted_function_goes_when_nobody_holds_it():
    jitted = armed(lambda x: x + 1, on_cpu([1.0]))
    gone = weakref.ref(jitted)
    gc.collect()
    gc.disable()
    try:
        del jitted
        assert gone() is None
    finally:
        gc.enable()


def test_a_shelf_is_found_by_its_bytes():
    shelf = Device["CPU"].allocator.shelf(64)

    assert np.frombuffer(shelf, np.uint64).tolist() == [id(shelf.blocks), id(shelf.use), 64]
    assert isinstance(shelf, Shelf)
