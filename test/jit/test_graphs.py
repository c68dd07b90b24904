"""Claims about programs of several kernels, which a GPU gets as one graph when they come back."""

import threading

import numpy as np
import pytest

import tinytensor as tt
from tinytensor import Tensor, config, jit, nn, optim, profile, realize
from tinytensor.runtime.cuda import graph

CALLS = 12
WIDTH = 16

# Values are small integers: then every order of a sum gives the same bits, NumPy's as well.


@pytest.fixture(autouse=True)
def graphs_from_the_third_run_on(monkeypatch):
    monkeypatch.setattr(graph, "runs_before", lambda launches: 2)
    realize._SCHEDULES.clear()  # another test may have run the same launches


def integers(seed, *shape):
    return np.random.default_rng(seed).integers(-2, 3, shape).astype(np.float32)


def chain(weights):
    """Three kernels, one after the other."""

    def run(x):
        for weight in weights:
            x = (x @ weight).relu()
        return x

    return run


def made(seed):
    """The jitted chain, and the same in NumPy."""
    arrays = [integers(seed + number, WIDTH, WIDTH) for number in range(3)]
    held = [Tensor(each).realize() for each in arrays]

    def expected(x):
        for each in arrays:
            x = np.maximum(x @ each, 0)
        return x

    return jit(chain(held)), expected


def test_results_that_are_kept_stay_as_they_were(seed):
    call, expected = made(seed)
    inputs = [integers(seed + number, 4, WIDTH) for number in range(CALLS)]

    found = [call(Tensor(each)) for each in inputs]

    for x, result in zip(inputs, found, strict=True):
        assert result.tolist() == expected(x).tolist()


def test_memory_that_comes_back_holds_the_result_of_its_call(seed):
    call, expected = made(seed)
    held = [Tensor(integers(seed + number, 4, WIDTH)).realize() for number in range(3)]

    for number in range(3 * CALLS):
        x = held[number % 3 if number % 7 else 0]
        result = call(x)
        assert result.tolist() == expected(x.numpy()).tolist()


def test_a_result_may_be_the_next_argument(seed):
    turn = np.eye(WIDTH, dtype=np.float32)[np.random.default_rng(seed).permutation(WIDTH)]
    weight = Tensor(turn).realize()
    call = jit(lambda x: ((x @ weight + 1) @ weight) * 1)
    x, wanted = Tensor(integers(seed, 4, WIDTH)), integers(seed, 4, WIDTH)

    for _ in range(CALLS):
        x, wanted = call(x), (wanted @ turn + 1) @ turn

    assert x.tolist() == wanted.tolist()


def test_two_results_may_change_places(seed):
    weight = integers(seed, WIDTH, WIDTH) % 2
    held = Tensor(weight).realize()
    call = jit(lambda x, y: ((x @ held) % 7, (y @ held) % 5))
    x, y = [integers(seed + number, 4, WIDTH) for number in range(2)]
    first, second = Tensor(x), Tensor(y)

    for _ in range(CALLS):
        second, first = call(first, second)
        y, x = (x @ weight) % 7, (y @ weight) % 5

    assert first.tolist() == x.tolist()
    assert second.tolist() == y.tolist()


def test_threads_do_not_get_each_others_results(seed):
    call, expected = made(seed)
    inputs = [integers(seed + number, 4, WIDTH) for number in range(4)]
    for each in inputs[:3]:
        call(Tensor(each))
    found = {}

    def work(number):
        x = Tensor(inputs[number])
        found[number] = [call(x) for _ in range(CALLS)]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()

    for number, results in found.items():
        assert [each.tolist() for each in results] == [expected(inputs[number]).tolist()] * CALLS


def test_an_index_outside_is_told_after_many_calls_and_ends_none(seed):
    table = integers(seed, 5, WIDTH)
    held, weight = Tensor(table).realize(), integers(seed + 1, WIDTH, WIDTH)
    other = Tensor(weight).realize()
    call = jit(lambda index: (held[index] @ other).relu())
    wanted = np.maximum(table[[1, 4]] @ weight, 0)

    for _ in range(2):
        for _ in range(4):
            assert call(Tensor([1, 4])).tolist() == wanted.tolist()
        with pytest.raises(IndexError, match="5"):
            call(Tensor([1, 5])).tolist()


def test_draws_go_on_as_without_jit(seed):
    weight = Tensor(integers(seed, WIDTH, WIDTH)).realize()

    def drawn(x):
        return ((x @ weight) * (tt.rand(4, WIDTH) < 0.5)) @ weight

    x = Tensor(integers(seed + 1, 4, WIDTH)).realize()
    tt.manual_seed(seed)
    wanted = [drawn(x).tolist() for _ in range(CALLS)]
    tt.manual_seed(seed)
    call = jit(drawn)

    found = [call(x) for _ in range(CALLS)]

    assert [each.tolist() for each in found] == wanted
    assert wanted[0] != wanted[1]


def test_sizes_that_come_back_have_their_own_launches(seed):
    call, expected = made(seed)
    inputs = {rows: integers(seed + rows, rows, WIDTH) for rows in (3, 5, 6, 7)}

    for _ in range(5):
        for rows, x in inputs.items():
            assert call(Tensor(x)).tolist() == expected(x).tolist(), rows


def losses(make_step, seed):
    tt.manual_seed(seed)
    model = nn.Sequential(nn.Linear(WIDTH, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU())
    optimizer = optim.AdamW(model.parameters(), lr=0.01)

    def step(x, y):
        loss = ((model(x) - y) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    run = make_step(step)
    batches = [[Tensor(integers(seed + n, 4, size)) for size in (WIDTH, 8)] for n in range(CALLS)]
    found = [run(*each) for each in batches]
    return [each.item() for each in found], [each.tolist() for each in model.parameters()]


def test_training_gives_the_same_bits_as_without_jit(seed):
    assert losses(jit, seed) == losses(lambda step: step, seed)


def test_every_launch_is_seen_by_who_profiles(seed):
    call, expected = made(seed)
    x = integers(seed, 4, WIDTH)
    for _ in range(4):
        call(Tensor(x))

    with profile() as found:
        result = call(Tensor(x))

    (record,) = call.programs()
    assert [each.name for each in found.kernels] == list(record.kernels)
    assert result.tolist() == expected(x).tolist()


def test_who_asks_is_told_how_kernels_start(seed, default_device):
    call, _ = made(seed)
    told = []
    for _ in range(3):
        call(Tensor(integers(seed, 4, WIDTH)))
        told.append(call.programs()[0].launched)

    plain, graph = ("3 launches", "3 launches, as one CUDA graph")
    assert told == ([plain, plain, graph] if default_device == "CUDA" else ["", "", ""])


def test_settings_that_show_launches_take_them_apart(seed, capsys):
    call, expected = made(seed)
    x = integers(seed, 4, WIDTH)
    for _ in range(4):
        call(Tensor(x))

    with config(debug=1):
        result = call(Tensor(x))
    shown = capsys.readouterr()

    (record, *_) = call.programs()
    assert all(name in shown.err + shown.out for name in record.kernels)
    assert result.tolist() == expected(x).tolist()
