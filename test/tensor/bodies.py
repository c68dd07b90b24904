"""What the tests of branches, loops and scans are made of: leaves, oracles, one network."""

from tinytensor import Tensor, config


def leaf(values):
    return Tensor(values, requires_grad=True)


def python_scan(function, state, xs, reverse=False):
    """The oracle: a loop that is written out."""
    order = range(xs.shape[0])
    results = {}
    for place in reversed(order) if reverse else order:
        state, results[place] = function(state, xs[place])
    return state, [results[place] for place in order]


def interpreted(function):
    """What a function gives on the device that only interprets: nothing is compiled for it."""
    with config(device="PYTHON"):
        return function()


def recurrent(weight):
    """A step of a network whose state and result are one value."""
    return lambda state, x: ((state @ weight + x).tanh(),) * 2
