"""What a function reads outside of its arguments is compared at each call, in C too."""

import random
import sys
import threading
from functools import partial
from types import BuiltinFunctionType

import numpy as np
import pytest

from tinytensor import Tensor, jit, nn, no_grad

N = 4


def on_cpu(values):
    return Tensor(np.asarray(values, np.float32), device="CPU").realize()


def numbers(seed, *shape):
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float32)


class Holder:
    """An object of the user's."""


def in_a_variable(weight):
    def function(x):
        return x * weight + 1

    def replace(other):
        nonlocal weight
        weight = other

    def delete():
        nonlocal weight
        del weight

    return function, replace, delete


def in_a_list(weight):
    held = [weight]
    return lambda x: x * held[0] + 1, lambda other: held.__setitem__(0, other), held.clear


def in_a_dict(weight):
    held = {"w": weight}
    return lambda x: x * held["w"] + 1, lambda other: held.update(w=other), held.clear


def in_lists_of_lists(weight):
    held = [[{"w": weight}]]
    inner = held[0][0]
    return (
        lambda x: x * held[0][0]["w"] + 1,
        lambda other: inner.update(w=other),
        lambda: held[0].pop(),
    )


def in_a_long_list(weight):
    held = [weight] + [None] * 300
    return lambda x: x * held[0] + 1, lambda other: held.__setitem__(0, other), held.clear


def in_an_attribute(weight):
    held = Holder()
    held.w = weight
    return (
        lambda x: x * held.w + 1,
        lambda other: setattr(held, "w", other),
        lambda: delattr(held, "w"),
    )


def in_a_method(weight):
    class Scaler:
        def __init__(self):
            self.w = weight

        def scale(self, x):
            return x * self.w + 1

    scaler = Scaler()
    return (
        scaler.scale,
        lambda other: setattr(scaler, "w", other),
        lambda: delattr(scaler, "w"),
    )


def in_a_global(weight):
    space = {"w": weight}
    exec("def function(x): return x * w + 1", space)
    return space["function"], lambda other: space.update(w=other), lambda: space.pop("w")


def in_a_module(weight):
    module = nn.Module()
    module.register_buffer("w", weight)
    module.forward = lambda x: x * module.w + 1
    return (
        lambda x: module(x),
        lambda other: setattr(module, "w", other),
        lambda: delattr(module, "w"),
    )


def in_a_part_of_a_call(weight):
    held = [weight]
    return (
        partial(lambda held, x: x * held[0] + 1, held),
        lambda other: held.__setitem__(0, other),
        held.clear,
    )


def in_a_callable(weight):
    class Scaler:
        def __call__(self, x):
            return x * self.w + 1

    scaler = Scaler()
    scaler.w = weight
    return scaler, lambda other: setattr(scaler, "w", other), lambda: delattr(scaler, "w")


def in_a_forward(weight):
    class Scaled(nn.Module):
        def forward(self, x):
            return x * self.w + 1

    module = Scaled()
    module.w = weight
    return module.forward, lambda other: setattr(module, "w", other), lambda: delattr(module, "w")


def in_a_module_that_does_not_run(weight):
    module = nn.Module()
    module.w = weight
    return (
        lambda x: x * module.w + 1,
        lambda other: setattr(module, "w", other),
        lambda: delattr(module, "w"),
    )


PLACES = (
    *(in_a_variable, in_a_list, in_a_dict, in_lists_of_lists, in_a_long_list, in_an_attribute),
    *(in_a_method, in_a_global, in_a_module, in_a_part_of_a_call, in_a_callable, in_a_forward),
    in_a_module_that_does_not_run,
)


def armed(function, *arguments):
    """The jitted function, whose calls with arguments of this kind C makes from now on."""
    jitted = jit(function)
    for _ in range(2):
        jitted(*arguments)
    assert isinstance(jitted.__call__, BuiltinFunctionType)
    return jitted


def is_made_in_c(jitted, *arguments):
    """Whether a call changes nothing but the count of the calls of one program."""
    ways, before = jitted.__call__, [each.calls for each in jitted.programs()]
    looked_up = []
    jitted._call, call = lambda *args: looked_up.append(1) or call(*args), jitted._call
    jitted(*arguments)
    jitted._call = call
    after = [each.calls for each in jitted.programs()]
    return not looked_up and jitted.__call__ is ways and sum(after) == sum(before) + 1


@pytest.mark.parametrize("place", PLACES)
def test_calls_with_captured_tensors_are_made_in_c(place, seed):
    x, weight = numbers(seed, N), numbers(seed + 1, N)
    function, _, _ = place(on_cpu(weight))
    jitted = armed(function, on_cpu(x))

    found = jitted(on_cpu(2 * x))

    assert found.tolist() == (2 * x * weight + 1).tolist()
    assert is_made_in_c(jitted, on_cpu(x))


@pytest.mark.parametrize("place", PLACES)
def test_a_captured_tensor_that_is_replaced_is_noticed(place, seed):
    x, weight, other = (numbers(seed + each, N) for each in range(3))
    first, second = on_cpu(weight), on_cpu(other)
    function, replace, _ = place(first)
    jitted = armed(function, on_cpu(x))

    found = []
    for each in (second, first, second, second):
        replace(each)
        found.append(jitted(on_cpu(x)).tolist())

    wanted = [(x * each + 1).tolist() for each in (other, weight, other, other)]
    assert found == wanted


@pytest.mark.parametrize("place", PLACES)
def test_a_captured_tensor_that_is_deleted_is_missed_as_by_the_function(place, seed):
    x = on_cpu(numbers(seed, N))
    function, _, delete = place(on_cpu(numbers(seed + 1, N)))
    jitted = armed(function, x)
    delete()

    with pytest.raises((NameError, IndexError, KeyError, AttributeError)) as expected:
        function(x)
    with pytest.raises(expected.type):
        jitted(x)


def add_in_place(weight):
    weight.add_(1)


def write_a_part(weight):
    weight[1:] = 7.0


def write_twice(weight):
    weight.mul_(2)
    weight[0] = 1.0


def give_other_memory(weight):
    weight.data = on_cpu(np.arange(N))


def give_a_view(weight):
    weight.data = on_cpu(np.arange(2 * N))[::2]


def give_one_value(weight):
    weight.data = on_cpu([3.0])


def give_another_dtype(weight):
    weight.data = Tensor(np.arange(N), device="CPU")


def give_an_expression(weight):
    weight.data = weight * 3


def require_a_gradient(weight):
    weight.requires_grad_()


def give_a_gradient(weight):
    weight.requires_grad_()
    weight.grad = on_cpu(np.ones(weight.shape))


CHANGES = (
    *(add_in_place, write_a_part, write_twice, give_other_memory, give_a_view, give_one_value),
    *(give_another_dtype, give_an_expression, require_a_gradient, give_a_gradient),
)


@pytest.mark.parametrize("change", CHANGES)
def test_a_captured_tensor_is_read_as_it_is_now(change, seed):
    weight = on_cpu(numbers(seed, N))

    def function(x):
        return x * weight + (weight.grad is None)

    x = on_cpu(numbers(seed + 1, N))
    jitted = armed(function, x)

    for _ in range(3):
        change(weight)
        expected = function(x)
        for _ in range(3):
            found = jitted(x)
            assert found.tolist() == expected.tolist()
            assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
            assert found.requires_grad == expected.requires_grad


def change_at_random(rng, held, spare):
    """Do something to weights in a list that a function reads."""
    weight = rng.choice(held)
    place = rng.randrange(len(held))
    with no_grad():
        return rng.choice(
            [
                lambda: weight.add_(1),
                lambda: weight.__setitem__(0, 2.0),
                lambda: setattr(weight, "data", on_cpu(np.full(N, rng.randrange(5)))),
                lambda: setattr(weight, "data", rng.choice(held)),
                lambda: setattr(weight, "data", on_cpu(np.arange(2 * N))[::2]),
                lambda: setattr(weight, "data", weight * 1),
                lambda: weight.requires_grad_(weight.is_leaf and not weight.requires_grad),
                lambda: setattr(weight, "grad", rng.choice([None, on_cpu(np.ones(N))])),
                lambda: held.__setitem__(place, rng.choice(spare)),
                lambda: held.__setitem__(place, rng.choice(held)),
                lambda: held.__setitem__(place, held[place].detach()),
                lambda: held.append(rng.choice(spare)) if len(held) < 5 else held.pop(),
                lambda: held.reverse(),
                lambda: None,
            ]
        )()


def test_whatever_happens_to_captured_tensors_the_result_is_the_functions(seed):
    rng = random.Random(seed)
    spare = [on_cpu(numbers(seed + each, N)) for each in range(4)]
    held = [on_cpu(numbers(seed + each, N)) for each in range(4, 7)]

    def function(x):
        total = x * len(held)
        for number, weight in enumerate(held):
            total = total * 2 + weight * (number + 1) + (weight.grad is not None)
        return total

    jitted = jit(function)
    with no_grad():
        for step in range(40):
            change_at_random(rng, held, spare)
            x = on_cpu(np.full(N, step % 5)) if rng.random() < 0.9 else rng.choice(held)
            expected = function(x).tolist()
            assert [jitted(x).tolist() for _ in range(rng.randrange(1, 4))] in (
                [expected],
                [expected] * 2,
                [expected] * 3,
            )


def test_layers_whose_parameters_a_step_changes_are_called_in_c(seed):
    model = nn.Sequential(nn.Linear(N, N), nn.ReLU(), nn.Linear(N, 2)).to("CPU")
    x = on_cpu(numbers(seed, 3, N))
    with no_grad():
        jitted = armed(model, x)
        assert is_made_in_c(jitted, x)

        for each in model.parameters():
            each.add_(0.5)
        found = [jitted(x).tolist() for _ in range(3)]

        assert found == [model(x).tolist()] * 3
        assert is_made_in_c(jitted, x)


def test_a_layer_that_is_exchanged_or_trains_is_noticed(seed):
    model = nn.Sequential(nn.Linear(N, N), nn.Dropout(0.5)).to("CPU").eval()
    x = on_cpu(numbers(seed, 3, N))
    with no_grad():
        jitted = armed(lambda x: model(x), x)
        model[0] = nn.Linear(N, N).to("CPU")
        assert jitted(x).tolist() == model(x).tolist()
        model.train()
        assert (jitted(x) == 0).any().item()
        model.eval()
        assert [jitted(x).tolist() for _ in range(3)] == [model(x).tolist()] * 3


def test_an_attribute_that_is_set_to_what_it_was_costs_one_look(seed):
    model = nn.Linear(N, N).to("CPU")
    x = on_cpu(numbers(seed, 3, N))
    with no_grad():
        jitted = armed(lambda x: model(x), x)
        model.eval()
        model.train()
        jitted(x)

        assert is_made_in_c(jitted, x)
    assert len(jitted.programs()) == 1


def test_equal_numbers_are_other_objects_and_no_other_call():
    held = {"by": float("2.5"), "name": "a" * 3, "count": 10**20}
    x = on_cpu([1.0, 2.0])
    jitted = armed(lambda x: x * held["by"], x)

    held.update(by=float("2.5"), name="".join(["a"] * 3), count=int("1" + "0" * 20))

    assert is_made_in_c(jitted, x)
    held["by"] = -0.0
    assert np.signbit(jitted(x).numpy()).all()
    held["by"] = 0.0
    assert not np.signbit(jitted(x).numpy()).any()


def test_a_global_that_is_called_like_a_builtin_is_noticed(monkeypatch):
    monkeypatch.setitem(globals(), "input", 2.0)
    x = on_cpu([1.0, 2.0])
    jitted = armed(lambda x: x * input, x)

    monkeypatch.setitem(globals(), "input", 3.0)

    assert jitted(x).tolist() == [3.0, 6.0]


def test_an_attribute_of_another_name_is_noticed():
    held = Holder()
    held.scale, held.shift = 2.0, 1.0
    x = on_cpu([1.0, 2.0])
    jitted = armed(lambda x: x * held.scale + held.shift, x)

    held.__dict__ = {"shift": 2.0, "scale": 1.0}

    assert jitted(x).tolist() == [3.0, 4.0]


def test_what_a_default_holds_is_noticed():
    x = on_cpu([1.0, 2.0])

    def function(x, weights=[2.0], *, shift={"by": 1.0}):  # noqa: B006 - it is looked into
        return x * weights[0] + shift["by"]

    jitted = armed(function, x)
    function.__defaults__[0][0] = 3.0
    assert jitted(x).tolist() == [4.0, 7.0]
    function.__kwdefaults__["shift"]["by"] = 0.0
    assert jitted(x).tolist() == [3.0, 6.0]


def test_a_cell_that_is_empty_at_first_is_noticed_when_it_is_filled():
    def make():
        def function(x):
            try:
                return x * later
            except NameError:
                return x + 1

        yield function
        later = on_cpu([5.0])
        yield later

    made = make()
    jitted = armed(next(made), on_cpu([2.0]))
    assert is_made_in_c(jitted, on_cpu([2.0]))

    later = next(made)

    assert jitted(on_cpu([2.0])).item() == 10.0
    assert later.item() == 5.0


class Odd:
    """An object whose variables are not where they usually are."""

    asked = 0

    def __init__(self, **held):
        object.__setattr__(self, "held", held)

    @property
    def __dict__(self):
        type(self).asked += 1
        return object.__getattribute__(self, "held")


def test_an_object_is_asked_for_its_variables():
    odd, x = Odd(by=2.0), on_cpu([1.0, 2.0])
    jitted = armed(lambda x: x * odd.held["by"], x)
    before = Odd.asked

    assert is_made_in_c(jitted, x)
    assert Odd.asked > before
    odd.held["by"] = 3.0
    assert jitted(x).tolist() == [3.0, 6.0]


def test_an_error_of_what_is_read_is_told():
    class Broken(Odd):
        @property
        def __dict__(self):
            if self.held["broken"]:
                raise ValueError("mine")
            return self.held

    odd, x = Broken(broken=False), on_cpu([1.0, 2.0])
    jitted = armed(lambda x: x * (2.0 + odd.held["broken"]), x)
    odd.held["broken"] = True

    with pytest.raises(ValueError, match="mine"):
        jitted(x)
    odd.held["broken"] = False
    assert jitted(x).tolist() == [2.0, 4.0]


def test_a_list_that_becomes_shorter_while_it_is_looked_at_is_noticed():
    held, x = [], on_cpu([1.0, 2.0])

    class Shortening(Odd):
        most = 3

        @property
        def __dict__(self):
            del held[self.most :]
            return {}

    held += [Shortening(), 1.0, 2.0]
    jitted = armed(lambda x: x * len(held), x)
    Shortening.most = 1

    assert jitted(x).tolist() == [1.0, 2.0]


def test_threads_that_exchange_what_is_captured_harm_nothing(seed):
    values = [np.full(1000, each, np.float32) for each in range(4)]
    held = [on_cpu(values[0])]
    weight = on_cpu(values[0])
    x = on_cpu(np.ones(1000))
    jitted = armed(lambda x: x * held[0] + weight * 10, x)
    is_over, wrong = threading.Event(), []

    def exchange():
        rng = random.Random(seed)
        while not is_over.is_set():
            held[0] = on_cpu(rng.choice(values))
            weight.data = on_cpu(rng.choice(values))

    threads = [threading.Thread(target=exchange) for _ in range(2)]
    for each in threads:
        each.start()
    for _ in range(300):
        found = np.unique(jitted(x).numpy())
        if len(found) != 1 or found[0] % 10 > 3:
            wrong.append(found)
    is_over.set()
    for each in threads:
        each.join()

    assert wrong == []


def test_what_a_trace_only_reads_keeps_its_memory():
    weight, x = on_cpu([2.0]), on_cpu([1.0])
    armed(lambda x: x * weight, x)
    memory = weight.cell.memory
    assert memory is not None

    jit(lambda x: x * weight + 1)(x)

    assert weight.cell.memory is memory


def test_threads_that_call_kinds_in_turn_make_no_ring_of_ways(seed):
    jitted = jit(lambda x: x + 1)
    calls = [on_cpu(np.zeros(size)) for size in range(1, 31)]
    for x in 3 * calls:
        jitted(x)
    wrong = []

    def work(number):
        rng = random.Random(seed + number)
        try:
            for _ in range(4000):
                jitted(rng.choice(calls))
        except RecursionError as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    finally:
        sys.setswitchinterval(interval)

    assert wrong == []


def rows(count):
    return on_cpu(np.arange(2 * count).reshape(count, 2) % 7)


def test_sizes_that_come_back_are_called_in_c(seed):
    weight = on_cpu(numbers(seed, 2, 2))
    jitted = jit(lambda x: x @ weight + 1)
    for count in (3, 5, 7, 3, 5, 7, 5, 7):
        jitted(rows(count))

    assert [is_made_in_c(jitted, rows(count)) for count in (3, 5, 7)] == [True] * 3
    for count in (5, 9, 7, 3):
        assert jitted(rows(count)).tolist() == (rows(count) @ weight + 1).tolist()


def see_another_view(weight):
    weight.data = on_cpu([[1.0, 2.0], [3.0, 4.0]]).T


@pytest.mark.parametrize(
    "change",
    [see_another_view, add_in_place, give_an_expression, require_a_gradient, give_a_gradient],
)
def test_a_captured_tensor_of_a_program_for_all_sizes_is_read_as_it_is_now(change, seed):
    weight = on_cpu(numbers(seed, 2, 2))
    jitted = jit(lambda x: x @ weight + (weight.grad is None))
    for count in (3, 5, 7) * 3:
        jitted(rows(count))

    for count in (3, 5, 9) * 2:
        change(weight)
        found = [jitted(rows(count)).tolist() for _ in range(3)]

        assert found == [(rows(count) @ weight + (weight.grad is None)).tolist()] * 3


def test_tensors_of_a_program_for_all_sizes_may_stop_to_share_memory(seed):
    first = on_cpu(numbers(seed, 2, 2))
    second = first.view(2, 2)
    jitted = jit(lambda x: x @ first @ second)
    for count in (3, 5, 7) * 3:
        jitted(rows(count))

    second.data = on_cpu(numbers(seed + 1, 2, 2))

    found = [jitted(rows(count)).tolist() for count in (3, 5, 9)]
    assert found == [(rows(count) @ first @ second).tolist() for count in (3, 5, 9)]
