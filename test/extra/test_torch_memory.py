"""No program of the list needs more memory than PyTorch runs it in, but where it says how much."""

import math

import numpy as np
import pytest
from tolerance import FUNCTION_ULP

from extra.bench.memory import build_ours, measure_ours, measure_torch
from extra.bench.memory_works import WORKS
from tinytensor.dtype import dtypes
from tinytensor.ops.attrs import Combine
from tinytensor.ops.op import ELEMENTWISE, Mark, Op
from tinytensor.ops.uop import walk


def roundings(roots):
    """The most roundings on a way through a graph; those of a sum of k, as random ones: sqrt(k)."""
    longest = {}
    for node in walk(roots):
        own = 0.0
        if node.op is Op.REDUCE and node.attrs.combine is Combine.ADD:
            own = math.sqrt(math.prod(node.operands[0].shape) / math.prod(node.shape))
        elif node.op in ELEMENTWISE:
            own = 2 * FUNCTION_ULP if node.op.mark is Mark.TRANSCENDENTAL else 1.0
        longest[node] = own + max([longest[each] for each in node.operands], default=0.0)
    return max(longest[root] for root in roots)


@pytest.mark.parametrize("work", WORKS, ids=lambda work: work.name)
def test_the_peak_is_not_above_that_of_torch(work):
    pytest.importorskip("torch")

    ours, theirs = measure_ours(work), measure_torch(work)

    assert ours.peak <= theirs.peak
    each_side = roundings([each.uop for each in build_ours(work)]) * dtypes.float32.epsilon
    for x, y in zip(ours.results, theirs.results, strict=True):
        np.testing.assert_allclose(x, y, rtol=0, atol=2 * each_side * np.abs(y).max())


def test_the_list_is_long_enough():
    assert len({work.name for work in WORKS}) == len(WORKS) >= 20
