"""A jitted function gives what the function gives, call after call, whatever changes between."""

import dataclasses
import gc
import threading
from collections import namedtuple

import numpy as np
import pytest

import tinytensor as tt
from tinytensor import Tensor, jit, no_grad
from tinytensor.jit.function import MOST_PROGRAMS, MOST_REFUSALS


def test_a_function_runs_once_for_calls_of_one_kind():
    jitted = jit(lambda x: (x @ x.T + 1).relu())

    found = [jitted(Tensor([[1.0, value], [0.0, 1.0]])).tolist() for value in (2.0, -5.0, 3.0)]

    assert found == [[[6.0, 3.0], [3.0, 2.0]], [[27.0, 0.0], [0.0, 2.0]], [[11.0, 4.0], [4.0, 2.0]]]
    (record,) = jitted.programs()
    assert record.calls == 2


def test_what_a_function_does_to_a_list_it_does_at_each_call():
    seen = []

    @jit
    def note(x):
        seen.append(len(seen))
        return x + 1

    assert [note(Tensor([value])).item() for value in (1.0, 2.0, 3.0)] == [2.0, 3.0, 4.0]
    assert seen == [0, 1, 2]


def test_results_are_never_overwritten_by_a_later_call():
    jitted = jit(lambda x: x + 1)

    results = [jitted(Tensor([value])) for value in (1.1, 1.2, 1.3)]

    expected = [np.float32(value) + np.float32(1) for value in (1.1, 1.2, 1.3)]
    assert [each.item() for each in results] == expected


def test_each_length_gives_a_result_of_its_length():
    jitted = jit(lambda t: t + 1)

    assert [jitted(Tensor.zeros(n)).tolist() for n in (1, 2, 3, 2)] == [
        [1.0] * n for n in (1, 2, 3, 2)
    ]
    assert len(jitted.programs()) == 2  # one for 1, one for all


def test_python_numbers_are_part_of_the_kind():
    jitted = jit(lambda x, by: x * by)

    found = [jitted(Tensor([3.0]), by).item() for by in (2.0, 3.0, 2.0, 2, True, -0.0)]

    assert found == [6.0, 9.0, 6.0, 6.0, 3.0, 0.0]
    assert np.signbit(jitted(Tensor([3.0]), -0.0).item())
    assert not np.signbit(jitted(Tensor([3.0]), 0.0).item())


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.reshape(3, 2),
        lambda x: x[1:],
        lambda x: x.T,
        lambda x: x.detach(),
        lambda x: x,
        lambda x: x.float(),
        lambda x: x.roll(1, 0),
        lambda x: x.clone(),
    ],
)
def test_what_shares_memory_with_an_argument_does_so_from_a_program(view):
    jitted = jit(view)
    for start in range(4):
        values = np.arange(start, start + 6, dtype=np.float32).reshape(2, 3)
        mine, its = Tensor(values), Tensor(values)

        expected, found = view(mine), jitted(its)
        mine.add_(10)
        its.add_(10)

        assert found.tolist() == expected.tolist()
        assert found.stride() == expected.stride()
        found.mul_(2)
        expected.mul_(2)
        assert its.tolist() == mine.tolist()


def test_an_argument_is_written_in_place():
    def accumulate(total, x):
        total += x
        return total

    jitted, total = jit(accumulate), Tensor.zeros(2)

    seen = [jitted(total, Tensor([1.0, 2.0])) for _ in range(3)]

    assert all(each is total for each in seen)
    assert total.tolist() == [3.0, 6.0]


def test_what_others_still_read_is_not_written_over():
    def bump(x):
        x.add_(1)

    jitted, x = jit(bump), Tensor([1.0])
    jitted(x)
    kept, pending = x.clone(), x * 10

    jitted(x)

    assert [kept.item(), pending.item(), x.item()] == [2.0, 20.0, 3.0]


def test_a_write_in_place_takes_no_memory():
    def bump(x):
        x.add_(1)

    jitted, x = jit(bump), Tensor.zeros(1000)
    jitted(x)
    jitted(x)
    before = x.cell.memory.address

    jitted(x)

    assert x.cell.memory.address == before
    assert x.tolist() == [3.0] * 1000


def test_aliases_among_arguments_are_part_of_the_kind():
    def write_then_read(a, b):
        a.add_(1)
        return b * 1

    jitted = jit(write_then_read)
    x, y = Tensor([1.0, 2.0]), Tensor([5.0, 6.0])

    assert jitted(x, y).tolist() == [5.0, 6.0]
    assert jitted(x, x).tolist() == [3.0, 4.0]
    assert jitted(x[:1], x[1:]).tolist() == [4.0]
    assert x.tolist() == [4.0, 4.0]


def test_an_argument_that_is_also_read_from_outside_is_noticed():
    shared = Tensor([1.0])

    @jit
    def write_then_read(a):
        a.add_(1)
        return shared * 1

    other = Tensor([5.0])
    assert write_then_read(other).item() == 1.0
    assert write_then_read(shared).item() == 2.0
    assert write_then_read(other).item() == 2.0
    assert other.item() == 7.0


@pytest.mark.parametrize("dynamic", [None, True])
def test_a_tensor_from_outside_is_read_though_it_was_given_at_first(dynamic):
    shared, other = Tensor([2.0, 3.0]), Tensor([5.0, 7.0])
    jitted = jit(lambda x: x * shared, dynamic=dynamic)

    found = [jitted(each).tolist() for each in (*3 * [shared], other, shared)]

    assert found == [*3 * [[4.0, 9.0]], [10.0, 21.0], [4.0, 9.0]]


def test_a_parameter_is_the_modules_though_it_was_given_at_first():
    layer = tt.nn.Linear(2, 2, bias=False)
    other = tt.nn.Parameter(Tensor([[5.0, 7.0], [1.0, 2.0]]))
    with no_grad():
        layer.weight.copy_(Tensor([[1.0, 2.0], [3.0, 4.0]]))
        jitted = jit(lambda x: layer(x))

        found = [jitted(each).tolist() for each in (layer.weight, layer.weight, other)]

    assert found == [*2 * [[[5.0, 11.0], [11.0, 25.0]]], [[19.0, 43.0], [5.0, 11.0]]]


def test_an_optimizer_changes_its_own_though_it_was_given_at_first():
    weight, other = Tensor([2.0], requires_grad=True), Tensor([5.0], requires_grad=True)
    optimizer = tt.optim.SGD([weight], lr=1.0)

    @jit
    def step(x):
        (x * x).sum().backward()
        optimizer.step()
        x.grad = None

    for each in (weight, weight, other):
        step(each)

    assert (weight.item(), other.item()) == (2.0, 5.0)


def test_a_tensor_given_twice_is_not_two():
    x, y = (Tensor([float(each)]) for each in (3, 4))
    jitted = jit(lambda x, y: x * y)

    found = [jitted(*each).item() for each in ((x, x), (x, x), (x, x), (x, y), (y, y))]

    assert found == [9.0, 9.0, 9.0, 12.0, 16.0]


def test_a_tensor_from_outside_is_read_as_it_is_now():
    weight = Tensor([2.0])
    jitted = jit(lambda x: x * weight)

    found = [jitted(Tensor([3.0])).item()]
    weight.add_(1)
    found.append(jitted(Tensor([3.0])).item())
    weight.data = Tensor([10.0])
    found.append(jitted(Tensor([3.0])).item())

    assert found == [6.0, 9.0, 30.0]


def test_a_variable_of_an_outer_function_is_watched():
    scale = 2.0
    jitted = jit(lambda x: x * scale)

    first = jitted(Tensor([3.0])).item()
    scale = 5.0

    assert (first, jitted(Tensor([3.0])).item()) == (6.0, 15.0)
    assert "jit: <lambda>: traced anew: scale is 5.0, was 2.0." in jitted.remarks


def test_what_a_container_outside_holds_is_watched():
    weights = {"w": Tensor([2.0])}
    jitted = jit(lambda x: x * weights["w"])

    found = [jitted(Tensor([3.0])).item()]
    weights["w"] = Tensor([5.0])
    found.append(jitted(Tensor([3.0])).item())

    assert found == [6.0, 15.0]


def test_nests_go_in_and_come_out():
    Pair = namedtuple("Pair", "first second")

    @dataclasses.dataclass
    class Point:
        x: Tensor
        label: str

    def swap(pair, named, *, extra):
        return {
            "pair": Pair(pair[1] + 1, pair[0]),
            "list": [named["a"], 7],
            "point": Point(extra.x * 2, extra.label),
        }

    jitted = jit(swap)
    for value in (1.0, 2.0):
        given = Tensor([value])
        found = jitted((given, Tensor([3.0])), {"a": given}, extra=Point(given, "p"))

        assert found["pair"].first.item() == 4.0
        assert found["pair"].second is given
        assert found["list"][0] is given
        assert found["list"][1] == 7
        assert (found["point"].x.item(), found["point"].label) == (2 * value, "p")


def test_random_numbers_are_those_of_the_function():
    def noisy(x):
        return x + Tensor.rand(3) * Tensor.randn(3)

    tt.manual_seed(5)
    expected = [noisy(Tensor.zeros(3)).tolist() for _ in range(4)]
    tt.manual_seed(5)
    jitted = jit(noisy)
    found = [jitted(Tensor.zeros(3)).tolist() for _ in range(4)]

    assert found == expected
    assert len({tuple(each) for each in found}) == 4


def test_a_seed_set_inside_is_set_in_each_call():
    @jit
    def seeded():
        tt.manual_seed(3)
        return Tensor.rand(2)

    assert seeded().tolist() == seeded().tolist() == seeded().tolist()


def test_gradients_mode_is_part_of_the_kind():
    x = Tensor([2.0], requires_grad=True)
    jitted = jit(lambda x: x * x)

    with no_grad():
        assert not jitted(x).requires_grad
    result = jitted(x)
    result.backward()

    assert result.requires_grad
    assert x.grad.item() == 4.0


def test_settings_are_part_of_the_kind():
    jitted = jit(lambda x: x + 1)
    for fuse in (0, 3):
        with tt.config(fuse=fuse):
            assert jitted(Tensor([1.0])).item() == 2.0

    assert len(jitted.programs()) == 2


def test_the_oldest_of_many_programs_goes():
    jitted = jit(lambda x, by: x * by, dynamic=False)

    for by in range(MOST_PROGRAMS + 2):
        assert jitted(Tensor([2.0]), by).item() == 2.0 * by

    assert len(jitted.programs()) == MOST_PROGRAMS
    assert jitted.remarks[-1] == f"jit: <lambda>: the oldest of {MOST_PROGRAMS} programs goes."


def test_the_reason_of_a_new_trace_is_told():
    jitted = jit(lambda x: x + 1, dynamic=False)

    jitted(Tensor.zeros(2))
    jitted(Tensor.zeros(3))
    jitted(Tensor.zeros(3, dtype=tt.dtypes.int32))

    assert list(jitted.remarks) == [
        "jit: <lambda>: traced anew: x.shape is (3,), was (2,).",
        "jit: <lambda>: traced anew: x.dtype is dtypes.int32, was dtypes.float32.",
    ]


def test_a_program_tells_its_guards_kernels_and_calls():
    jitted = jit(lambda x, n: (x + n).sum())
    for _ in range(3):
        jitted(Tensor.zeros(2), 4)

    (record,) = jitted.programs()

    assert {"x.shape is (2,)", "n is 4", "gradients is True"} <= set(record.guards)
    assert len(record.kernels) == 1
    assert record.calls == 2


def test_a_tensor_that_is_kept_outside_makes_the_function_run_each_time():
    kept = []

    @jit
    def remember(x):
        kept.append(x * 2)
        return x + 1

    found = [remember(Tensor([value])).item() for value in (1.0, 2.0, 3.0, 4.0, 5.0)]

    assert found == [2.0, 3.0, 4.0, 5.0, 6.0]
    assert [each.item() for each in kept] == [2.0, 4.0, 6.0, 8.0, 10.0]
    assert "is kept outside of it" in remember.remarks[0]
    assert len([each for each in remember.remarks if "is kept" in each]) == MOST_REFUSALS


def test_constants_made_inside_stay_as_they_are():
    @jit
    def shift(x):
        table = Tensor([1.0, 2.0])
        table += x
        return table

    assert [shift(Tensor([1.0])).tolist() for _ in range(3)] == [[2.0, 3.0]] * 3


def test_a_jitted_function_inside_another_is_part_of_it():
    inner = jit(lambda x: x * 2)
    outer = jit(lambda x: inner(x) + 1)

    assert [outer(Tensor([value])).item() for value in (1.0, 2.0)] == [3.0, 5.0]
    assert inner.programs() == []


def test_a_method_is_jitted_for_each_object():
    class Scaler:
        def __init__(self, by):
            self.by = by

        @jit
        def scale(self, x):
            return x * self.by

    two, three = Scaler(2.0), Scaler(3.0)

    assert [each.scale(Tensor([1.0])).item() for each in (two, three, two)] == [2.0, 3.0, 2.0]
    two.by = 7.0
    assert two.scale(Tensor([1.0])).item() == 7.0


def test_an_index_outside_is_told_at_the_next_read():
    jitted = jit(lambda x, index: x.gather(0, index))
    x = Tensor([1.0, 2.0])
    assert jitted(x, Tensor([1])).item() == 2.0

    for _ in range(3):
        assert jitted(x, Tensor([0])).item() == 1.0
        result = jitted(x, Tensor([5]))

        with pytest.raises(IndexError, match="an index is out of range: 5"):
            result.tolist()


def test_a_program_keeps_no_argument_alive():
    jitted = jit(lambda x: x + 1)
    x = Tensor.zeros(3).realize()
    jitted(x)
    jitted(x)
    leaf = x.uop
    memory = leaf.memory
    del x, leaf
    gc.collect()

    assert len(gc.get_referrers(memory)) <= 1


def test_threads_share_a_jitted_function():
    jitted = jit(lambda x: (x @ x.T + 1).relu())
    wrong = []

    def work(size):
        for value in range(10):
            matrix = np.full((size, 2), value, np.float32)
            if jitted(Tensor(matrix)).tolist() != (matrix @ matrix.T + 1).tolist():
                wrong.append((size, value))

    threads = [threading.Thread(target=work, args=(size,)) for size in (2, 3, 2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()

    assert wrong == []


def test_an_error_inside_leaves_no_trace():
    @jit
    def fail(x):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        fail(Tensor([1.0]))

    assert Tensor([1.0]).item() == 1.0


def test_a_copy_taken_before_a_write_keeps_what_it_saw():
    def copy_then_write(x):
        copied = x.clone()
        x.add_(1)
        return copied

    jitted, x = jit(copy_then_write), Tensor([1.0])

    assert [jitted(x).item() for _ in range(3)] == [1.0, 2.0, 3.0]
    assert x.item() == 4.0


@pytest.mark.parametrize("expected", [5, None, [0, 2, 4, 6]])
def test_a_function_may_read_no_tensor(expected):
    made = jit(lambda: Tensor.arange(4) * 2 if type(expected) is list else expected)

    found = [made() for _ in range(3)]

    values = [each.tolist() if isinstance(each, Tensor) else each for each in found]
    assert values == [expected] * 3
