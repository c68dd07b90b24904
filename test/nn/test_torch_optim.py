"""Training is PyTorch's: from the same weights, the same losses and weights after twenty steps."""

import numpy as np
import pytest

from tinytensor import Device, Tensor, nn, optim
from tinytensor.report import capture

torch = pytest.importorskip("torch")

STEPS = 20
RNG = np.random.default_rng(9)


def two_layers(m):
    """A network of features."""
    return m.Sequential(m.Linear(12, 16), m.BatchNorm1d(16), m.GELU(), m.Linear(16, 5))


def transformer(m, words=23, width=16, heads=2, length=8):
    """A network of one layer of causal attention: indices (n, length) -> scores (n, words, length).

    The class is the same text for both libraries.
    """

    class Transformer(m.Module):
        def __init__(self):
            super().__init__()
            self.words = m.Embedding(words, width)
            self.places = m.Parameter(m.Embedding(length, width).weight.detach())
            self.norms = m.ModuleList([m.LayerNorm(width), m.LayerNorm(width)])
            self.qkv = m.Linear(width, 3 * width)
            self.out = m.Linear(width, width)
            self.mlp = m.Sequential(m.Linear(width, 32), m.GELU(), m.Linear(32, width))
            self.last = m.LayerNorm(width)
            self.scores = m.Linear(width, words, bias=False)

        def attend(self, x):
            parts = self.qkv(x).reshape(*x.shape[:2], 3 * heads, width // heads).transpose(1, 2)
            q, k, v = (parts[:, first : first + heads] for first in range(0, 3 * heads, heads))
            mixed = m.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.out(mixed.transpose(1, 2).reshape(x.shape))

        def forward(self, indices):
            x = self.words(indices) + self.places
            x = x + self.attend(self.norms[0](x))
            x = x + self.mlp(self.norms[1](x))
            return self.scores(self.last(x)).transpose(1, 2)

    return Transformer()


FEATURES = (
    two_layers,
    RNG.standard_normal((STEPS, 24, 12)).astype(np.float32),
    RNG.integers(0, 5, (STEPS, 24)),
)
TEXT = (transformer, *[RNG.integers(0, 23, (STEPS, 4, 8)) for _ in range(2)])
METHODS = {
    "sgd": lambda o, x: o.SGD(x, lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-3),
    "adam": lambda o, x: o.Adam(x, lr=1e-2, eps=1e-4, amsgrad=True),
    "adamw": lambda o, x: o.AdamW(x, lr=1e-2, eps=1e-4, weight_decay=0.1),
}


def train(network, optimizer, make, m, inputs, targets, watch=None):
    """Take the steps, with clipped gradients; return the losses."""
    losses = []
    for x, y in zip(inputs, targets, strict=True):
        loss = m.functional.cross_entropy(network(make(x)), make(y))
        optimizer.zero_grad()
        loss.backward()
        m.utils.clip_grad_norm_(network.parameters(), 1.0)
        if watch and len(losses) == STEPS - 1:
            watch(optimizer.step)
        else:
            optimizer.step()
        losses.append(loss.item())
    return np.array(losses)


def train_torch(state, task, method, dtype):
    make_network, inputs, targets = task
    network = make_network(torch.nn).to(dtype)
    network.load_state_dict(state)
    optimizer = METHODS[method](torch.optim, network.parameters())

    def make(array):
        tensor = torch.tensor(array)
        return tensor.to(dtype) if tensor.is_floating_point() else tensor

    losses = train(network, optimizer, make, torch.nn, inputs, targets)
    return {"loss": losses, **{n: each.numpy() for n, each in network.state_dict().items()}}


def print_cost(step):
    """Take a step and print what it cost."""
    with capture() as found:
        step()
    memory = Device["CPU"].memory()
    kernels = len({each.kernel.sink for each in found})
    print(f"{len(found)} launches of {kernels} kernels; {memory.peak} bytes at most")
    assert all(each.was_compiled for each in found), "the last step is not like those before"


RUNS = {**{name: (FEATURES, name) for name in METHODS}, "transformer": (TEXT, "adamw")}


@pytest.mark.parametrize(("task", "method"), RUNS.values(), ids=RUNS)
def test_training_goes_the_same_way(task, method):
    """Losses, weights and buffers differ from float64's by no more than PyTorch's own do.

    Its errors are a sample of those that float32 gives, grown by the same steps. The largest of
    hundreds of errors of one distribution varies little: 8 times it is out of reach for ours.
    """
    make_network, inputs, targets = task
    torch.manual_seed(0)
    state = make_network(torch.nn).state_dict()
    network = make_network(nn)
    network.load_state_dict({name: Tensor(each.numpy()) for name, each in state.items()})
    optimizer = METHODS[method](optim, network.parameters())
    truth = train_torch(state, task, method, torch.float64)
    near = train_torch(state, task, method, torch.float32)

    losses = train(network, optimizer, Tensor, nn, inputs, targets, print_cost)

    ours = {"loss": losses, **{n: each.numpy() for n, each in network.state_dict().items()}}
    errors = {name: np.abs(truth[name] - ours[name]).max() for name in truth}
    known = max(np.abs(truth[name] - near[name]).max() for name in truth)
    print(f"errors: ours {max(errors.values()):.2e}, PyTorch's {known:.2e}")
    assert known < 1e-3, "the steps are too wild to be compared"
    assert {name: error for name, error in errors.items() if error > 8 * known} == {}


@pytest.mark.parametrize("method", METHODS)
def test_a_state_of_pytorch_goes_on_here(method):
    make_network, inputs, targets = FEATURES
    theirs = make_network(torch.nn)
    other = METHODS[method](torch.optim, theirs.parameters())
    train(theirs, other, torch.tensor, torch.nn, inputs[:3], targets[:3])
    ours = make_network(nn)
    ours.load_state_dict({n: Tensor(each.numpy()) for n, each in theirs.state_dict().items()})
    optimizer = METHODS[method](optim, ours.parameters())

    optimizer.load_state_dict(converted(other.state_dict()))
    results = [
        train(theirs, other, torch.tensor, torch.nn, inputs[3:6], targets[3:6]),
        train(ours, optimizer, Tensor, nn, inputs[3:6], targets[3:6]),
    ]

    # Three steps: a loss is a mean of sums of 16 terms, each rounded a few times.
    np.testing.assert_allclose(*results, rtol=3 * 64 * 2.0**-23)
    saved, expected = optimizer.state_dict(), other.state_dict()
    assert [list(each) for each in saved["state"].values()] == [
        list(each) for each in expected["state"].values()
    ]


def converted(saved):
    state = {
        number: {name: Tensor(each.numpy()) for name, each in held.items()}
        for number, held in saved["state"].items()
    }
    return {"state": state, "param_groups": saved["param_groups"]}


SCHEDULERS = {
    "step": lambda s, o: s.StepLR(o, 3, gamma=0.5),
    "cosine": lambda s, o: s.CosineAnnealingLR(o, 5, eta_min=0.01),
    "function": lambda s, o: s.LambdaLR(o, lambda epoch: 0.9**epoch),
}


@pytest.mark.parametrize("name", SCHEDULERS)
def test_rates_are_the_same(name):
    found = []
    for module, weight in ((optim, Tensor([1.0], requires_grad=True)), (torch.optim, None)):
        weight = torch.ones(1, requires_grad=True) if weight is None else weight
        optimizer = module.SGD([weight], lr=0.3)
        scheduler = SCHEDULERS[name](module.lr_scheduler, optimizer)
        rates = []
        for _ in range(12):
            rates += scheduler.get_last_lr()
            optimizer.step()
            scheduler.step()
        found.append(rates)

    # PyTorch's recurrence for the cosine rounds each step.
    np.testing.assert_allclose(*found, rtol=12 * 8 * 2.0**-52)
