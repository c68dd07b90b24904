"""A loss of class indices starts few kernels, with the one that looks over the indices."""

import numpy as np
import pytest

from tinytensor import Tensor
from tinytensor.nn import functional

COUNT, CLASSES = 64, 40
IGNORED = -100
EPSILON = 2.0**-23
# The rows' maxima and sums are a kernel; another one reads the elements named, and the indices.
MOST_LAUNCHES = {"cross_entropy": 2, "nll_loss": 1}


def scores(*between):
    rng = np.random.default_rng(0)
    return rng.standard_normal((COUNT, CLASSES, *between)).astype(np.float32)


def targets(*between):
    found = np.arange(COUNT * np.prod(between, dtype=int)) % CLASSES
    found[3] = IGNORED
    return found.reshape(COUNT, *between)


def losses_of(name, x, target):
    """Each place's loss in float64, and whether it counts."""
    x = x.astype(np.float64)
    shares = x - np.log(np.exp(x).sum(1, keepdims=True)) if name == "cross_entropy" else x
    is_kept = target != IGNORED
    index = np.where(is_kept, target, 0)[:, None]
    return np.where(is_kept, -np.take_along_axis(shares, index, 1)[:, 0], 0.0), is_kept


@pytest.mark.parametrize("between", [(), (5,)], ids=["rows", "places"])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("name", MOST_LAUNCHES)
def test_a_loss_of_indices_takes_few_launches(name, reduction, between, launches):
    x, target = scores(*between), targets(*between)
    given = Tensor(x).realize(), Tensor(target).realize()
    losses, is_kept = losses_of(name, x, target)
    expected = {"none": losses, "sum": losses.sum(), "mean": losses.sum() / is_kept.sum()}
    started = launches.count

    result = getattr(functional, name)(*given, reduction=reduction).realize()

    assert launches.count - started <= MOST_LAUNCHES[name]
    # Sums of rows, a logarithm, and the sum of all: an epsilon of the terms for each halving.
    error = EPSILON * (8 + np.log2(target.size)) * (1 + np.abs(losses))
    bound = {"none": error, "sum": error.sum(), "mean": error.sum() / is_kept.sum()}
    assert (np.abs(result.numpy() - expected[reduction]) <= bound[reduction]).all()


@pytest.mark.parametrize("name", MOST_LAUNCHES)
def test_an_index_outside_is_still_seen(name):
    target = targets()
    target[5] = CLASSES

    loss = getattr(functional, name)(Tensor(scores()), Tensor(target)).realize()

    with pytest.raises(IndexError, match=f"an index is out of range: {CLASSES} on axis 1"):
        loss.numpy()
