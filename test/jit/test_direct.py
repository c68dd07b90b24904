"""Calls that the host's C checks and makes whole give what the function gives, or hand on."""

import dataclasses
import gc
import threading
import weakref
from collections import namedtuple
from types import BuiltinFunctionType

import numpy as np
import pytest

from tinytensor import Device, Tensor, config, jit, nn, no_grad
from tinytensor.errors import DeviceError
from tinytensor.jit import direct
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


Pair = namedtuple("Pair", "first second")


@dataclasses.dataclass
class Point:
    x: Tensor
    y: Tensor


def combined(x, y, by=1.0, *, name="sum", others=()):
    total = x * by + y if name == "sum" else x * by - y
    return sum(others, total) if not isinstance(others, dict) else total * others["w"]


ARGUMENTS = {
    "a number": lambda x, y: ((x, y, 2.5), {}),
    "a name": lambda x, y: ((x, y), {"name": "difference"}),
    "names in an order": lambda x, y: ((), {"y": x, "x": y, "by": 3}),
    "a list": lambda x, y: ((x, y, True), {"others": [on_cpu(numbers(9, N))]}),
    "a tuple": lambda x, y: ((x, y, 1), {"others": (on_cpu(numbers(9, N)),)}),
    "a dict": lambda x, y: ((x, y), {"others": {"w": on_cpu(numbers(9, N)), "n": [1, "a"]}}),
    "a named tuple": lambda x, y: ((x, y), {"others": Pair(*map(on_cpu, numbers(9, 2, N)))}),
}


@pytest.mark.parametrize("arguments", ARGUMENTS)
def test_arguments_may_be_nested_numbers_and_named(arguments, seed):
    x, y = on_cpu(numbers(seed, N)), on_cpu(numbers(seed + 1, N))
    args, named = ARGUMENTS[arguments](x, y)
    jitted = jit(combined)
    for _ in range(2):
        jitted(*args, **named)
    assert isinstance(jitted.__call__, BuiltinFunctionType)
    args, named = ARGUMENTS[arguments](on_cpu(numbers(seed + 2, N)), y)

    found = jitted(*args, **named)

    assert found.tolist() == combined(*args, **named).tolist()
    assert calls_of(jitted) == [2]


CHANGED_ARGUMENTS = {
    "another number": lambda x: ((x, x + 1, 2.0), {"others": [x + 2]}),
    "a number of another kind": lambda x: ((x, x + 1, True), {"others": [x + 2]}),
    "a longer list": lambda x: ((x, x + 1, 1), {"others": [x + 2, x + 3]}),
    "a tuple": lambda x: ((x, x + 1, 1), {"others": (x + 2,)}),
    "a tensor twice": lambda x: ((x, x, 1), {"others": [x + 2]}),
    "a tensor twice in depth": lambda x: ((x, x + 1, 1), {"others": [x]}),
    "another name": lambda x: ((x, x + 1), {"by": 1, "others": [x + 2]}),
    "one more name": lambda x: ((x, x + 1, 1), {"name": "sum", "others": [x + 2]}),
    "a number in the list": lambda x: ((x, x + 1, 1), {"others": [2.0]}),
    "a view": lambda x: ((x, (x + 1).detach(), 1), {"others": [x + 2]}),
}


@pytest.mark.parametrize("change", CHANGED_ARGUMENTS)
def test_other_nests_are_handed_on(change, seed):
    x = on_cpu(numbers(seed, N))
    first = (x, on_cpu(numbers(seed + 1, N)), 1), {"others": [on_cpu(numbers(seed + 2, N))]}
    jitted = jit(combined, dynamic=False)
    for _ in range(3):
        jitted(*first[0], **first[1])
    args, named = CHANGED_ARGUMENTS[change](x)

    found = [jitted(*args, **named).tolist() for _ in range(3)]

    assert found == [combined(*args, **named).tolist()] * 3
    assert calls_of(jitted)[0] == 2
    assert jitted(*first[0], **first[1]).tolist() == combined(*first[0], **first[1]).tolist()


def test_dataclasses_among_arguments_are_looked_up(seed):
    x, y = on_cpu(numbers(seed, N)), on_cpu(numbers(seed + 1, N))
    jitted = jit(lambda point: point.x * point.y)

    found = [jitted(Point(x, y)).tolist() for _ in range(3)]

    assert found == [(x.numpy() * y.numpy()).tolist()] * 3
    assert not isinstance(jitted.__call__, BuiltinFunctionType)


def test_a_nest_that_the_function_changes_is_known_as_it_was(seed):
    x = on_cpu(numbers(seed, N))

    def last(held):
        return x * held.pop()

    jitted = jit(last)
    for _ in range(3):
        jitted([1.0, 2.0])

    assert jitted([1.0]).tolist() == x.tolist()
    assert jitted([1.0, 2.0]).tolist() == (x.numpy() * 2).tolist()


def test_what_was_there_and_views_of_it_are_returned(seed):
    weight, x = on_cpu(numbers(seed, 2, N)), on_cpu(numbers(seed + 1, 2, N))
    jitted = armed(
        lambda x: [x, x.T, weight, weight[1:], x + weight, Tensor([2.0], device="CPU") * x], x
    )
    other = on_cpu(numbers(seed + 2, 2, N))

    found = jitted(other)

    assert found[0] is other
    assert found[2] is weight
    assert calls_of(jitted) == [2]
    other += 1
    weight += 1
    expected = [other.numpy(), other.numpy().T, weight.numpy(), weight.numpy()[1:]]
    assert [each.tolist() for each in found[:4]] == [each.tolist() for each in expected]
    assert found[4].tolist() == (other.numpy() + weight.numpy() - 2).tolist()
    assert found[5].tolist() == (2 * (other.numpy() - 1)).tolist()


def test_a_view_that_is_given_again_is_the_same_call(seed):
    leaf = Tensor(numbers(seed, N), device="CPU", requires_grad=True)
    x = on_cpu(numbers(seed + 1, N, 2))[:, 1]
    with no_grad():
        jitted = armed(lambda w, x: w * x, leaf, x)
        leaf += 1

        found = [jitted(leaf, x).tolist() for _ in range(3)]

        assert found == [(leaf * x).tolist()] * 3
        assert isinstance(jitted.__call__, BuiltinFunctionType)
        assert len(calls_of(jitted)) == 1


def test_kernels_of_another_device_are_started_through_python(monkeypatch, seed):
    weight = Tensor(numbers(seed, N, N), device="PYTHON").realize()
    x = Tensor(numbers(seed + 1, N, N), device="PYTHON").realize()
    jitted = armed(lambda x: ((x @ weight).softmax(1), x + 1), x)
    device = Device["PYTHON"]
    before = device.memory().allocated

    def fail(*given, **options):
        raise DeviceError("mine")

    monkeypatch.setattr(device, "run", fail)
    with pytest.raises(DeviceError, match="mine"):
        jitted(x)
    monkeypatch.undo()

    assert device.memory().allocated == before
    expected = ((x @ weight).softmax(1), x + 1)
    assert [each.tolist() for each in jitted(x)] == [each.tolist() for each in expected]
    assert calls_of(jitted) == [2]


class Missing:
    def __getitem__(self, name):
        raise DeviceError("mine")


def test_without_a_compiler_of_c_programs_are_looked_up(monkeypatch, seed):
    monkeypatch.setattr(direct, "Device", Missing())
    x = on_cpu(numbers(seed, N))
    jitted = jit(lambda x: x + 1)

    found = [jitted(x).tolist() for _ in range(3)]

    assert found == [(x.numpy() + 1).tolist()] * 3
    assert calls_of(jitted) == [2]
    assert not isinstance(jitted.__call__, BuiltinFunctionType)


def test_a_fresh_tensor_is_no_other_call(seed):
    jitted = armed(lambda x: x + 1, on_cpu([1.0, 2.0]))
    ways = jitted.__call__

    found = [jitted(on_cpu([each, 2.0])).tolist() for each in (3.0, 4.0)]

    assert found == [[4.0, 3.0], [5.0, 3.0]]
    assert jitted.__call__ is ways
    assert calls_of(jitted) == [3]


def test_what_is_written_in_place_is_written_in_c(monkeypatch, seed):
    x, step = on_cpu(numbers(seed, N)), on_cpu(numbers(seed + 1, N))
    total = on_cpu(np.zeros(N))

    def add(x):
        total.add_(x)
        step.mul_(-1)
        return total[1:], step * 2

    jitted = jit(add)
    for _ in range(2):
        jitted(x)
    memory, kept = total.cell.memory, step.numpy()
    jitted(x)  # a leaf of the step was made, to be looked at
    monkeypatch.setattr(jitted, "_call", None)

    rest, doubled = jitted(x)

    assert total.cell.memory is memory
    assert calls_of(jitted) == [3]
    assert total.tolist() == (4 * x.numpy()).tolist()
    assert rest.tolist() == (4 * x.numpy())[1:].tolist()
    assert doubled.tolist() == (2 * kept).tolist()


READERS = {
    "the leaf": lambda x: x.uop,
    "an expression": lambda x: x * 10,
    "a copy": lambda x: x.clone(),
    "a value": lambda x: x.numpy(),
    "a realized view": lambda x: x[1:].realize(),
    "a shared result": lambda x: x.detach(),
}


@pytest.mark.parametrize("reader", READERS)
def test_what_somebody_reads_is_not_written_over_in_c(reader, seed):
    x = numbers(seed, N)
    mine, its = on_cpu(x), on_cpu(x)

    def bump(x):
        x.add_(1)

    jitted = jit(bump)
    held, expected = [], []
    for step in range(8):
        if step % 3 == 2:
            held.append(READERS[reader](its))
            expected.append(READERS[reader](mine))
        jitted(its)
        bump(mine)

    assert its.tolist() == mine.tolist()
    for found, wanted in zip(held, expected, strict=True):
        if isinstance(found, Tensor):
            assert found.tolist() == wanted.tolist()


def test_a_cache_that_grows_is_written_in_c(seed):
    cache = on_cpu(np.zeros((N, 3)))

    @jit
    def write(row, place):
        cache[place] = row
        return (cache * 1.0).sum(0)

    for number in range(3 * N):
        row = numbers(seed + number, 3)
        expected = cache.numpy()
        expected[number % N] = row

        found = write(on_cpu(row), number % N)

        assert found.tolist() == expected.sum(0).tolist()
        assert cache.tolist() == expected.tolist()


def test_indices_are_checked_in_calls_that_c_makes(seed):
    table = nn.Embedding(N, 3).to("CPU")
    good, bad = (Tensor(each, device="CPU").realize() for each in ([1, 2], [1, N]))
    with no_grad():
        jitted = armed(lambda index: (table(index), index + 1), good)

        for _ in range(2):
            rows, following = jitted(good)
            assert rows.tolist() == table.weight.detach().numpy()[[1, 2]].tolist()
            assert following.tolist() == [2, 3]
            rows, _ = jitted(bad)
            with pytest.raises(IndexError, match=f"an index is out of range: {N}"):
                rows.tolist()
    assert calls_of(jitted) == [5]
    assert isinstance(jitted.__call__, BuiltinFunctionType)
