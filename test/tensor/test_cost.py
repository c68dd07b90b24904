"""What building a graph costs, counted in nodes and in calls, which no machine makes slower."""

import sys

import pytest

from tinytensor.ops.uop import walk
from tinytensor.tensor.tensor import Tensor

X, Y = Tensor([[1.0, 2.0]]), Tensor([[3.0, 4.0]])


def python_calls(build):
    """Count the Python functions entered while something is built."""
    calls = 0

    def count(frame, event, argument):
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        kept = build()
    finally:
        sys.setprofile(None)
    assert kept is not None
    return calls


def nodes_built(result, *sources):
    """Count the nodes of a result that its sources do not have."""
    return len(set(walk([result.uop])) - set(walk([each.uop for each in sources])))


@pytest.mark.parametrize("build", [lambda: X + Y, lambda: X * Y, lambda: X < Y], ids="+*<")
def test_a_simple_operator_takes_few_calls(build):
    assert python_calls(build) <= 25


@pytest.mark.parametrize(
    ("build", "most"),
    [
        (lambda: X + Y, 1),
        (lambda: X + 1.5, 4),
        (lambda: X.exp(), 1),
        (lambda: X.relu(), 5),
        (lambda: X.sigmoid(), 7),
        (lambda: X.sum(1), 2),
        (lambda: X.sum(1, keepdim=True), 1),
        (lambda: X.mean(1), 6),
        (lambda: X.softmax(1), 7),
        (lambda: X.half().softmax(1), 10),
        (lambda: X @ Y.T, 8),
        (lambda: Tensor.zeros(2, 3), 3),
        (lambda: Tensor.cat([X, Y]), 12),
    ],
)
def test_few_nodes_are_built(build, most):
    assert nodes_built(build(), X, Y) <= most


@pytest.mark.parametrize(
    "build",
    [
        lambda: X.reshape(1, 2),
        lambda: X.expand(-1, 2),
        lambda: X.permute(0, 1),
        lambda: X.float(),
        lambda: X[:],
        lambda: X.pad((0, 0)),
        lambda: X.transpose(0, 0),
        lambda: X.reshape(2, 1).reshape(1, 2),
    ],
)
def test_what_changes_nothing_builds_nothing(build):
    assert build().uop is X.uop
