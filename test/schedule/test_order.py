"""Kernels run after those whose results they read, in an order that keeps little in memory."""

import itertools
import random

import pytest

from tinytensor import dtypes
from tinytensor.ops.kernel import Kernel, Param
from tinytensor.ops.uop import buffer
from tinytensor.schedule.kernels import KernelCall
from tinytensor.schedule.lower_views import ZERO
from tinytensor.schedule.order import order_kernels

X, A, B, C, D = (buffer(dtypes.float32, (3,), "CPU") for _ in range(5))


def call(name, writes, reads):
    """A kernel that writes and reads some nodes; what it computes does not matter here."""
    written = [Param(dtypes.float32, 3, True)] * len(writes)
    read = [Param(dtypes.float32, 3, False)] * len(reads)
    params = (*written, *read)
    kernel = Kernel(name, ZERO, (), params, None, dtypes.int32)
    return KernelCall(kernel, (*writes, *reads))


# a -> b -> d, a -> c -> d
DIAMOND = [
    call("a", [A], [X]),
    call("b", [B], [A, X]),
    call("c", [C], [A]),
    call("d", [D], [B, C]),
]


def names(calls):
    return [each.kernel.name for each in calls]


@pytest.mark.parametrize("given", list(itertools.permutations(DIAMOND)))
def test_readers_run_after_writers_in_whatever_order_they_come(given):
    found = names(order_kernels(given, {D}, None))

    assert found in (["a", "b", "c", "d"], ["a", "c", "b", "d"])


def test_ready_kernels_are_shuffled_under_stress():
    found = {tuple(names(order_kernels(DIAMOND, {D}, random.Random(seed)))) for seed in range(20)}

    assert found == {("a", "b", "c", "d"), ("a", "c", "b", "d")}


def test_kernels_that_wait_for_one_another_are_refused():
    circle = [call("a", [A], [B]), call("b", [B], [A])]

    with pytest.raises(AssertionError, match="^order: kernels wait for one another in a circle$"):
        order_kernels(circle, set(), None)


def test_what_frees_more_than_it_makes_runs_at_once():
    large = [buffer(dtypes.float32, (100,), "CPU") for _ in range(2)]
    small = [buffer(dtypes.float32, (1,), "CPU") for _ in range(2)]
    given = [call(f"make{n}", [large[n]], [X]) for n in range(2)]
    given += [call(f"fold{n}", [small[n]], [large[n]]) for n in range(2)]

    found = names(order_kernels(given, set(small), None))

    assert found == ["make0", "fold0", "make1", "fold1"]


def test_what_is_computed_a_second_time_runs_just_before_its_reader():
    # a -> b -> c forwards; back over c and b, each with a value that is computed again from x
    forward = [buffer(dtypes.float32, (9,), "CPU") for _ in range(3)]
    again = [buffer(dtypes.float32, (9,), "CPU") for _ in range(2)]
    back = [buffer(dtypes.float32, (9,), "CPU") for _ in range(2)]
    given = [
        call("again0", [again[0]], [X]),
        call("again1", [again[1]], [X]),
        call("forward0", [forward[0]], [X]),
        call("forward1", [forward[1]], [forward[0]]),
        call("forward2", [forward[2]], [forward[1]]),
        call("back1", [back[1]], [forward[2], again[1]]),
        call("back0", [back[0]], [back[1], again[0]]),
    ]

    found = names(order_kernels(given, {back[0]}, None))

    assert found[:3] == ["forward0", "forward1", "forward2"]
    assert found[3:] == ["again1", "back1", "again0", "back0"]
