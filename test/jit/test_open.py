"""One program for all sizes: what a jitted function gives at each, and how often it runs."""

import gc
import io
import threading
import weakref
from collections import OrderedDict
from queue import SimpleQueue

import numpy as np
import pytest

from tinytensor import Tensor, jit, manual_seed, no_grad, optim, planning, realize
from tinytensor.errors import ShapeError
from tinytensor.realize import storage_of

FEATURES = 12


def rows(count):
    return (np.arange(count * FEATURES) % 7 - 3).reshape(count, FEATURES).astype(np.float32)


def counted(function, **options):
    """A jitted function, and a file that grows whenever the function itself runs."""
    runs = io.StringIO()  # a list would be watched

    def counting(*args, **kwargs):
        runs.write("x")
        return function(*args, **kwargs)

    return jit(counting, **options), runs


WEIGHT = (np.arange(FEATURES * 8) % 5 - 2).reshape(FEATURES, 8).astype(np.float32)


def layer(x, weight):
    return ((x @ weight).relu() @ weight.T).sum(0) + x.max(0)[0]


def expected_layer(x):
    return (np.maximum(x @ WEIGHT, 0) @ WEIGHT.T).sum(0) + x.max(0)


def test_two_hundred_sizes_take_two_traces_and_few_kernels(default_device):
    weight = Tensor(WEIGHT)
    jitted, runs = counted(lambda x: layer(x, weight))
    known = set(planning._COMPILED)
    for count in range(2, 202):
        result = jitted(Tensor(rows(count)))

        assert result.tolist() == expected_layer(rows(count)).tolist(), f"{count} rows"

    assert len(runs.getvalue()) == 2
    is_gpu = default_device == "CUDA"  # whose products are compiled for classes of sizes
    assert len(set(planning._COMPILED) - known) <= 6 + 6 * is_gpu
    assert list(jitted.remarks) == [
        "jit: counting: traced for all sizes: args[0].shape is (3, 12), was (2, 12)."
    ]


def test_results_have_plain_ints_as_their_shape():
    jitted, _ = counted(lambda x: [x * 2, (x.T, x.sum(1))])
    for count in (3, 5, 9):
        doubled, (turned, sums) = jitted(Tensor(rows(count)))

        assert [type(n) for n in (*doubled.shape, *turned.shape, *sums.shape)] == [int] * 5
        assert (doubled.shape, turned.shape) == ((count, FEATURES), (FEATURES, count))
        assert turned.tolist() == rows(count).T.tolist()
        assert (doubled + 1).tolist() == (rows(count) * 2 + 1).tolist()


def test_a_cache_is_written_at_each_place_where_it_lies():
    cache = Tensor.zeros(1, 200, 8).realize()

    def step(key, place):
        cache[:, place : place + 1] = key
        return cache[:, : place + 1].sum(1)

    jitted, runs = counted(step)
    wanted = np.zeros((1, 200, 8), np.float32)
    addresses = set()
    for place in range(200):
        wanted[:, place] = place + 1
        sums = jitted(Tensor(wanted[:, place : place + 1].copy()), place)

        assert sums.tolist() == wanted[:, : place + 1].sum(1).tolist(), f"place {place}"
        if place >= 2:  # while it traces, the value before is held
            addresses.add(storage_of(cache.cell.leaf).address)
    assert cache.tolist() == wanted.tolist()
    assert len(addresses) == 1
    assert len(runs.getvalue()) == 2


def test_a_branch_that_a_size_decides_has_a_program_for_each_side():
    jitted, runs = counted(lambda x: x * 2 if x.shape[0] < 10 else x * 3)
    for count in (3, 5, 20, 7, 30, 40, 4):
        factor = 2 if count < 10 else 3
        assert jitted(Tensor(rows(count))).tolist() == (rows(count) * factor).tolist()

    assert len(runs.getvalue()) == 3  # 3; 5 with the claim n < 10; 20 without


def test_a_number_that_python_needs_is_no_variable():
    def repeated(x, count):
        for _ in range(count):
            x = x + 1
        return x

    jitted, runs = counted(repeated)
    for count in (1, 2, 3, 2):
        assert jitted(Tensor([1.0]), count).tolist() == [1.0 + count]

    assert len(runs.getvalue()) == 4  # of them one that found it out
    assert jitted.remarks[0] == (
        "jit: counting: not traced for all sizes: Python needs the plain number of what varies."
    )


def test_sizes_that_are_equal_at_both_calls_are_one_variable():
    jitted, runs = counted(lambda a, b: a + b)
    for count in (3, 5, 8):
        assert jitted(Tensor(rows(count)), Tensor(rows(count))).tolist() == (
            (rows(count) * 2).tolist()
        )
    with pytest.raises(RuntimeError):
        jitted(Tensor(rows(3)), Tensor(rows(4)))

    assert len(runs.getvalue()) >= 3  # the last one, to complain


def test_everything_may_be_open_from_the_first_call():
    jitted, runs = counted(lambda a, b: a @ b.T, dynamic=True)
    for m, n in ((3, 5), (5, 3), (7, 2)):
        product = jitted(Tensor(rows(m)), Tensor(rows(n)))
        assert product.tolist() == (rows(m) @ rows(n).T).tolist()

    assert len(runs.getvalue()) == 1


def test_nothing_is_open_where_it_is_not_wanted():
    jitted, runs = counted(lambda x: x + 1, dynamic=False)
    for count in (3, 5, 8):
        jitted(Tensor(rows(count)))

    assert len(runs.getvalue()) == 3


def test_a_size_beyond_all_that_was_foreseen_is_traced_again():
    jitted, runs = counted(lambda x: x + 1)
    for count in (2, 3, 5000, 4):
        assert jitted(Tensor.ones(count)).tolist() == [2.0] * count

    assert len(runs.getvalue()) == 3


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x: x[0], "results share memory, or are tensors that were there before"),
        (lambda x: x + Tensor.rand(1), "it draws, asks the host for numbers, or differentiates"),
    ],
)
def test_what_a_graph_does_not_tell_is_traced_for_each_size(function, reason):
    jitted, _ = counted(function)
    for count in (2, 3):
        jitted(Tensor(rows(count)))

    assert f"jit: counting: not traced for all sizes: {reason}." in jitted.remarks


def test_another_weight_outside_of_another_shape_is_read():
    held = [Tensor(rows(4))]
    jitted, _ = counted(lambda x: x @ held[0].T)
    for count in (2, 3, 5):
        with no_grad():
            assert jitted(Tensor(rows(count))).tolist() == (rows(count) @ rows(4).T).tolist()
    held[0].copy_(Tensor(rows(4) + 1))

    assert jitted(Tensor(rows(6))).tolist() == (rows(6) @ (rows(4) + 1).T).tolist()


def test_a_program_for_all_sizes_keeps_no_argument():
    jitted, _ = counted(lambda x: x * 2)
    arguments = [Tensor(rows(count)) for count in (2, 3, 4)]
    memories = [weakref.ref(storage_of(each.cell.leaf)) for each in arguments]
    for each in arguments:
        jitted(each)
    del arguments, each
    gc.collect()

    assert [memory() for memory in memories] == [None] * 3


def test_what_is_not_traced_for_all_sizes_draws_and_counts_once():
    """The trace for all sizes ends before the host does anything, also where errors are caught."""

    def draw(x):
        try:
            return x + Tensor.rand(1)
        except RuntimeError:
            return x

    jitted = jit(draw)
    found = {}
    for function in (draw, jitted):
        manual_seed(3)
        found[function] = [function(Tensor.zeros(count)).tolist()[0] for count in (1, 2, 3, 2)]

    assert found[jitted] == found[draw]


@pytest.mark.parametrize("optimizer", [optim.SGD, optim.Adam])
def test_a_training_step_of_another_size_is_one_step(optimizer):
    weights = []
    for wrap in (lambda function: function, jit):
        weight = Tensor([1.0, 2.0], requires_grad=True)
        changes = optimizer([weight], lr=0.125)

        def step(x, weight=weight, changes=changes):
            changes.zero_grad()
            (x.sum(0) * weight).sum().backward()
            changes.step()

        stepped = wrap(step)
        for count in (1, 2, 3, 4, 3):
            stepped(Tensor.ones(count, 2))
        weights.append(weight.tolist())

    assert weights[1] == weights[0]


def test_a_size_that_comes_back_makes_no_plan(monkeypatch):
    weight = Tensor(WEIGHT)
    jitted, _ = counted(lambda x: layer(x, weight))
    for count in range(2, 8):
        jitted(Tensor(rows(count)))
    made = []
    monkeypatch.setattr(planning, "make_plan", lambda *args: made.append(args))
    monkeypatch.setattr(realize, "_SCHEDULES", OrderedDict())

    found = [jitted(Tensor(rows(count))).tolist() for count in (6, 5, 6)]

    assert found == [expected_layer(rows(count)).tolist() for count in (6, 5, 6)]
    assert made == []


def test_a_value_that_somebody_still_reads_is_not_written_over():
    cache = Tensor.zeros(1, 30, 8).realize()

    def step(key, place):
        cache[:, place : place + 1] = key
        return cache[:, : place + 1].sum(1)

    jitted, runs = counted(step)
    wanted = np.zeros((1, 30, 8), np.float32)
    for place in range(12):
        reader, before = cache + 1, wanted + 1
        wanted[:, place] = place + 1
        sums = jitted(Tensor(wanted[:, place : place + 1].copy()), place)

        assert sums.tolist() == wanted[:, : place + 1].sum(1).tolist(), f"place {place}"
        assert reader.tolist() == before.tolist(), f"place {place}"
    assert len(runs.getvalue()) == 2


def test_sizes_that_the_function_keeps_stay_what_they_were():
    kept = SimpleQueue()

    def double(x):
        kept.put(x.shape[0])
        return x * 2

    jitted = jit(double)
    for count in (3, 5, 8, 9):
        assert jitted(Tensor(rows(count))).tolist() == (rows(count) * 2).tolist()

    assert [int(kept.get()) for _ in range(kept.qsize())] == [3, 5]


def test_an_argument_that_is_read_from_outside_too_is_traced():
    weight = Tensor(rows(FEATURES))
    jitted, _ = counted(lambda x: x @ weight)
    for count in (2, 3, 5):
        jitted(Tensor(rows(count)))

    assert jitted(weight).tolist() == (rows(FEATURES) @ rows(FEATURES)).tolist()


def test_threads_share_one_program_for_all_sizes():
    weight = Tensor(WEIGHT)
    jitted, runs = counted(lambda x: layer(x, weight))
    for count in (2, 3):
        jitted(Tensor(rows(count)))
    found = {}

    def work(first):
        for count in range(first, 60, 4):
            found[count] = jitted(Tensor(rows(count))).tolist()

    threads = [threading.Thread(target=work, args=(first,)) for first in range(4, 8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()

    assert found == {count: expected_layer(rows(count)).tolist() for count in range(4, 60)}
    assert len(runs.getvalue()) == 2


def test_an_error_comes_after_what_was_done_until_then():
    """In a trace for all sizes too: the call that it ends is one as without `jit`."""

    def halve_two_rows(x):
        x.mul_(0.5)
        return x.view(2, 2)

    jitted = jit(halve_two_rows)
    assert jitted(Tensor(np.ones((4, 1)))).tolist() == [[0.5, 0.5], [0.5, 0.5]]

    for rows in (3, 3, 5):
        x = Tensor(np.ones((rows, 1)))
        with pytest.raises(ShapeError):
            jitted(x)
        assert x.tolist() == [[0.5]] * rows
    assert jitted(Tensor(np.ones((4, 1)))).tolist() == [[0.5, 0.5], [0.5, 0.5]]


@pytest.mark.parametrize("gives", [lambda n: Tensor.zeros(n), lambda n: None])
def test_a_number_alone_may_vary(gives):
    jitted = jit(gives, dynamic=True)

    found = [jitted(n) for n in (3, 4, 3)]

    assert [each if each is None else each.tolist() for each in found] == [
        None if gives(n) is None else [0.0] * n for n in (3, 4, 3)
    ]
