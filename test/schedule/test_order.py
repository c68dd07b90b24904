"""Kernels run after those whose results they read; what nobody reads any more is released."""

import itertools
import random

import pytest

from tinytensor import dtypes
from tinytensor.ops.kernel import Kernel, Param
from tinytensor.ops.uop import buffer
from tinytensor.schedule.kernels import KernelCall
from tinytensor.schedule.lower_views import ZERO
from tinytensor.schedule.order import order_kernels, with_lifetimes

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
    found = names(order_kernels(given, None))

    assert found in (["a", "b", "c", "d"], ["a", "c", "b", "d"])


def test_ready_kernels_are_shuffled_under_stress():
    found = {tuple(names(order_kernels(DIAMOND, random.Random(seed)))) for seed in range(20)}

    assert found == {("a", "b", "c", "d"), ("a", "c", "b", "d")}


def test_kernels_that_wait_for_one_another_are_refused():
    circle = [call("a", [A], [B]), call("b", [B], [A])]

    with pytest.raises(AssertionError, match="^order: kernels wait for one another in a circle$"):
        order_kernels(circle, None)


def test_an_intermediate_dies_with_its_last_reader():
    steps = with_lifetimes(DIAMOND, frozenset([D]))

    assert [step.releases for step in steps] == [(), (), (A,), (B, C)]


def test_what_was_asked_for_and_what_came_from_outside_never_dies():
    steps = with_lifetimes(DIAMOND, frozenset([A, D]))

    assert [step.releases for step in steps] == [(), (), (), (B, C)]


def test_a_second_output_that_nobody_reads_dies_where_it_is_made():
    steps = with_lifetimes([call("two", [A, B], [X]), call("c", [C], [A])], frozenset([C]))

    assert [step.releases for step in steps] == [(B,), (A,)]
