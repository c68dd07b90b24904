"""Host stages: who is told of them, and how times of stages within others are taken apart."""

import pytest

from tinytensor.timing import WATCHES, Stage, count, own_seconds, stage, timed, watch


@timed("outer")
def outer(x, fail=False):
    with stage("inner", "of x"):
        if fail:
            raise ValueError(x)
    return x + 1


def test_a_timed_function_gives_its_result_and_its_stages():
    with watch() as found:
        result = outer(1)

    assert result == 2
    assert [(each.name, each.detail) for each in found.stages] == [("inner", "of x"), ("outer", "")]
    inner, whole = found.stages
    assert whole.begin <= inner.begin
    assert inner.begin + inner.seconds <= whole.begin + whole.seconds


def test_a_stage_that_fails_is_told_too():
    with watch() as found, pytest.raises(ValueError, match="^1$"):
        outer(1, fail=True)

    assert [each.name for each in found.stages] == ["inner", "outer"]


def test_nobody_is_told_after_a_watch():
    with watch() as found:
        pass
    outer(1)
    count("seen")

    assert (found.stages, found.counts, WATCHES) == ([], {}, [])


def test_watches_may_be_nested():
    with watch() as first:
        with watch() as second:
            outer(1)
        count("seen")

    assert [len(first.stages), len(second.stages)] == [2, 2]
    assert (first.counts, second.counts) == ({"seen": 1}, {})


def test_own_time_leaves_out_the_stages_within():
    stages = [
        *(Stage("c", 2.0, 1.0, 1), Stage("b", 1.0, 3.0, 1), Stage("b", 5.0, 1.0, 1)),
        *(Stage("a", 0.0, 10.0, 1), Stage("c", 4.0, 0.5, 2), Stage("a", 20.0, 1.0, 1)),
    ]

    # a: 10 - 3 - 1, and 1 later; b: 3 - 1, and 1; c: 1, and 0.5 in a thread of its own.
    assert own_seconds(stages) == {"a": 7.0, "b": 3.0, "c": 1.5}


def test_the_time_in_which_a_thread_ran_is_taken_apart_in_the_same_way():
    stages = [Stage("a", 0.0, 5.0, 1, "", 4.0), Stage("b", 1.0, 3.0, 1, "", 0.5)]

    assert own_seconds(stages, lambda each: each.cpu_seconds) == {"a": 3.5, "b": 0.5}


def test_a_stage_that_begins_at_once_lies_in_the_longer_one():
    assert own_seconds([Stage("in", 0.0, 1.0, 1), Stage("out", 0.0, 2.0, 1)]) == {
        "in": 1.0,
        "out": 1.0,
    }
