"""A step over a hundred parameters of many shapes is a few launches, and right for each of them."""

import functools

import numpy as np
import pytest

from tinytensor import Tensor, nn, optim
from tinytensor.runtime.device import default_device

COUNT = 100
SHAPES = [(3, 4), (70,), (), (2, 3, 5), (64, 33), (1, 1), (257,)]
EPSILON = 2.0**-23
STEPS = 3
MOST_LAUNCHES = 4


def arrays(seed):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(SHAPES[each % len(SHAPES)]) for each in range(COUNT)]


def parameters():
    return [Tensor(each.astype(np.float32), requires_grad=True) for each in arrays(0)]


def set_gradients(tensors, seed):
    for each, slopes in zip(tensors, arrays(seed), strict=True):
        each.grad = Tensor(slopes.astype(np.float32)).realize()


def sgd(x, state, slopes, count):
    state["buffer"] = 0.9 * state["buffer"] + slopes if count > 1 else slopes
    return x - 0.1 * state["buffer"]


def adam(x, state, slopes, count, decay=0.0):
    x = x * (1 - 1e-3 * decay)
    state["mean"] = 0.9 * state.get("mean", 0.0) + 0.1 * slopes
    state["squares"] = 0.999 * state.get("squares", 0.0) + 0.001 * slopes**2
    second = np.sqrt(state["squares"] / (1 - 0.999**count)) + 1e-8
    return x - 1e-3 * state["mean"] / (1 - 0.9**count) / second


OPTIMIZERS = {
    "SGD": (functools.partial(optim.SGD, lr=0.1, momentum=0.9), sgd),
    "Adam": (optim.Adam, adam),
    "AdamW": (optim.AdamW, functools.partial(adam, decay=1e-2)),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_step_over_a_hundred_parameters_is_a_few_launches(name, launches):
    make, formula = OPTIMIZERS[name]
    tensors, expected = parameters(), arrays(0)
    states = [{} for _ in tensors]
    optimizer = make(tensors)

    counts = []
    for count in range(1, STEPS + 1):
        set_gradients(tensors, count)
        launches.count = 0
        optimizer.step()
        counts.append(launches.count)
        slopes = arrays(count)
        for number, state in enumerate(states):
            expected[number] = formula(expected[number], state, slopes[number], count)

    assert max(counts) <= MOST_LAUNCHES
    for found, wanted in zip(tensors, expected, strict=True):
        # A step rounds some 16 times, and no error grows by more than a step's size.
        bound = STEPS * 16 * EPSILON * (np.abs(wanted) + 1)
        assert (np.abs(found.detach().numpy() - wanted) <= bound).all()


def test_a_step_stays_in_the_memory_of_parameters_and_state(launches):
    tensors = parameters()
    optimizer = optim.AdamW(tensors)
    set_gradients(tensors, 1)
    optimizer.step()
    device = default_device()
    set_gradients(tensors, 2)
    device.reset_peak()
    before = device.memory().peak

    optimizer.step()

    numbers = 64 * 8  # what is uploaded: a few numbers that change from step to step
    assert device.memory().peak - before <= numbers


def test_scaling_all_gradients_is_a_launch_for_numbers_and_one_for_arrays(launches):
    tensors = parameters()
    set_gradients(tensors, 1)
    gradients = [each.grad for each in tensors]
    norm = nn.clip_grad_norm_(tensors, 1.0).realize()
    launches.count = 0

    gradients[0].realize(*gradients[1:])

    assert launches.count <= 2
    total = np.sqrt(sum((each**2).sum() for each in arrays(1)))
    assert norm.item() > 1.0
    for found, slopes in zip(gradients, arrays(1), strict=True):
        # The norm is a sum of some 16,000 squares in parts, then a root, a quotient, a product.
        bound = 64 * EPSILON * np.abs(slopes / total)
        assert (np.abs(found.numpy() - slopes / total) <= bound).all()
