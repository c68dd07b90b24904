"""No program of the list needs more memory than PyTorch runs it in, but where it says how much."""

import numpy as np
import pytest

from extra.bench.memory import measure_ours, measure_torch
from extra.bench.memory_works import WORKS


@pytest.mark.parametrize("work", WORKS, ids=lambda work: work.name)
def test_the_peak_is_not_above_that_of_torch(work):
    pytest.importorskip("torch")

    ours, theirs = measure_ours(work), measure_torch(work)

    assert ours.peak <= work.allowed * theirs.peak
    for x, y in zip(ours.results, theirs.results, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-4 * np.abs(y).max())


def test_what_needs_more_than_torch_says_why():
    assert [work.name for work in WORKS if (work.allowed > 1) != bool(work.reason)] == []


def test_the_list_is_long_enough():
    assert len({work.name for work in WORKS}) == len(WORKS) >= 20


def test_most_programs_and_a_transformer_need_no_more_than_torch():
    within = [work.name for work in WORKS if work.allowed <= 1]

    assert len(within) >= 20
    assert "transformer step" in within
