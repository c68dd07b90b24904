"""Modules are PyTorch's: text, keys, values, gradients, and training from the same weights."""

import numpy as np
import pytest

from tinytensor import Tensor, nn
from tinytensor.config import config

torch = pytest.importorskip("torch")

ORACLE = "2.13."  # elsewhere a module may lack an argument
EPSILON = 2.0**-23
RNG = np.random.default_rng(5)


@pytest.fixture(autouse=True)
def _python_device():
    with config(device="PYTHON"):
        yield


def floats(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def both(make):
    """Our module with PyTorch's weights, and PyTorch's module."""
    try:
        theirs = make(torch.nn)
    except TypeError as error:
        if torch.__version__.startswith(ORACLE):
            raise
        pytest.skip(f"not the PyTorch that the tests are written for: {error}")
    ours = make(nn)
    ours.load_state_dict({name: Tensor(each.numpy()) for name, each in theirs.state_dict().items()})
    return ours, theirs


def close(ours, theirs):
    """Sums of at most 200 terms of size up to 10, each rounded a few times in any order."""
    bound = 256 * EPSILON
    np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), bound, 4 * bound)


PLAIN = [
    *("ReLU", "ReLU6", "SELU", "GELU", "SiLU", "Mish", "Tanh", "Tanhshrink", "Softsign"),
    *("Sigmoid", "LogSigmoid", "Hardswish", "Hardsigmoid"),
]
LAYERS = [
    (lambda m: m.Linear(5, 3), (4, 5)),
    (lambda m: m.Linear(5, 3, bias=False), (5,)),
    (lambda m: m.Conv1d(4, 6, 3, stride=2, padding=1, groups=2), (2, 4, 9)),
    (lambda m: m.Conv1d(2, 3, 3, padding="same", padding_mode="reflect"), (2, 2, 9)),
    (lambda m: m.Conv2d(3, 4, (3, 2), padding=(1, 0), dilation=2, bias=False), (2, 3, 7, 8)),
    (lambda m: m.Conv2d(2, 4, 3, padding=1, padding_mode="circular"), (2, 5, 5)),
    (lambda m: m.Conv2d(2, 4, 3, padding="valid", padding_mode="replicate"), (2, 2, 5, 5)),
    (lambda m: m.LayerNorm(5), (3, 4, 5)),
    (lambda m: m.LayerNorm([4, 5], eps=1e-3, bias=False), (3, 4, 5)),
    (lambda m: m.LayerNorm((5,), elementwise_affine=False), (3, 5)),
    (lambda m: m.RMSNorm(5), (3, 4, 5)),
    (lambda m: m.RMSNorm((4, 5), eps=1e-3, elementwise_affine=False), (3, 4, 5)),
    (lambda m: m.GroupNorm(2, 6), (3, 6, 4)),
    (lambda m: m.GroupNorm(3, 6, affine=False), (3, 6)),
    (lambda m: m.BatchNorm1d(3), (6, 3)),
    (lambda m: m.BatchNorm1d(3, momentum=0.3, affine=False), (4, 3, 5)),
    (lambda m: m.BatchNorm2d(3, momentum=None, bias=False), (4, 3, 2, 5)),
    (lambda m: m.BatchNorm2d(3, track_running_stats=False), (4, 3, 2, 5)),
    (lambda m: m.MaxPool2d(2), (2, 3, 6, 6)),
    (lambda m: m.MaxPool2d((3, 2), 1, padding=1, ceil_mode=True), (3, 6, 6)),
    (lambda m: m.AvgPool2d(2), (2, 3, 6, 6)),
    (lambda m: m.AvgPool2d(3, 2, 1, count_include_pad=False), (2, 3, 6, 6)),
    (lambda m: m.Flatten(), (2, 3, 4)),
    (lambda m: m.Flatten(0, 1), (2, 3, 4)),
    (lambda m: m.Identity(), (2, 3)),
    (lambda m: m.Dropout(0.0), (2, 3)),
    (lambda m: m.Softmax(dim=-1), (3, 4)),
    (lambda m: m.LogSoftmax(1), (3, 4)),
    (lambda m: m.GELU("tanh"), (3, 4)),
    (lambda m: m.LeakyReLU(0.2), (3, 4)),
    (lambda m: m.ELU(0.5), (3, 4)),
    (lambda m: m.CELU(alpha=0.5), (3, 4)),
    (lambda m: m.Sequential(m.Linear(4, 4), m.LeakyReLU(0.2, inplace=True)), (3, 4)),
    (lambda m: m.Sequential(m.Linear(4, 4), m.ReLU(True), m.Dropout(0.0, True)), (3, 4)),
    (lambda m: m.Hardtanh(-0.5, 0.7), (3, 4)),
    (lambda m: m.Softplus(2.0, 1.0), (3, 4)),
    *[(lambda m, name=name: getattr(m, name)(), (3, 4)) for name in PLAIN],
]
SHOWN = [repr(make(nn)) for make, _ in LAYERS]


@pytest.mark.parametrize(("make", "shape"), LAYERS, ids=SHOWN)
def test_a_layer_gives_the_same_values_gradients_and_text(make, shape):
    ours, theirs = both(make)
    x = floats(*shape)
    given = Tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)

    results = ours(given[0]), theirs(given[1])
    for result in results:
        (result * result).sum().backward()

    assert repr(ours) == repr(theirs)
    close(*results)
    close(given[0].grad, given[1].grad)
    for parameter, expected in zip(ours.parameters(), theirs.parameters(), strict=True):
        close(parameter.grad, expected.grad)
    check_states(ours, theirs)
    close(ours.eval()(given[0]), theirs.eval()(given[1]))


def check_states(ours, theirs):
    """Names, order, shapes, dtypes and values of all parameters and buffers are the same."""
    own, expected = ours.state_dict(), theirs.state_dict()
    assert list(own) == list(expected)
    for name, tensor in own.items():
        assert tensor.dtype.name == str(expected[name].dtype)[6:]
        close(tensor, expected[name])


def test_an_embedding_gives_the_same_rows_and_gradients():
    ours, theirs = both(lambda m: m.Embedding(5, 3, padding_idx=-2))
    indices = np.array([[0, 3, 4], [4, 4, 1]])

    results = ours(Tensor(indices)), theirs(torch.tensor(indices))
    for result in results:
        (result * result).sum().backward()

    assert repr(ours) == repr(theirs)
    close(*results)
    close(ours.weight.grad, theirs.weight.grad)


WEIGHT = np.abs(floats(5))
LOSSES = [
    (lambda m, t: m.CrossEntropyLoss(), "classes"),
    (lambda m, t: m.CrossEntropyLoss(t(WEIGHT), ignore_index=2, label_smoothing=0.1), "classes"),
    (lambda m, t: m.NLLLoss(t(WEIGHT), reduction="sum"), "classes"),
    (lambda m, t: m.MSELoss(), "values"),
    (lambda m, t: m.L1Loss(reduction="none"), "values"),
    (lambda m, t: m.BCEWithLogitsLoss(pos_weight=t(WEIGHT)), "shares"),
]
TARGETS = {
    "classes": np.array([0, 4, 2, 1]),
    "values": floats(4, 5),
    "shares": RNG.random((4, 5)).astype(np.float32),
}


@pytest.mark.parametrize(("make", "kind"), LOSSES, ids=range(len(LOSSES)))
def test_a_loss_is_the_same(make, kind):
    ours, theirs = make(nn, Tensor), make(torch.nn, torch.tensor)
    x, target = floats(4, 5), TARGETS[kind]

    close(ours(Tensor(x), Tensor(target)), theirs(torch.tensor(x), torch.tensor(target)))
    assert repr(ours) == repr(theirs)
    assert list(ours.state_dict()) == list(theirs.state_dict())


def test_containers_show_and_name_the_same():
    def make(m):
        rows = m.ModuleList([m.Linear(2, 2), m.Linear(2, 2), m.ReLU(), m.Linear(2, 2)])
        inner = m.ModuleDict({"a": m.Linear(2, 3), "b": m.Sequential()})
        return m.Sequential(rows, inner, m.ModuleList(), m.BatchNorm1d(3))

    ours, theirs = both(make)

    assert repr(ours) == repr(theirs)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert [n for n, _ in ours.named_modules()] == [n for n, _ in theirs.named_modules()]
    assert [n for n, _ in ours.named_buffers()] == [n for n, _ in theirs.named_buffers()]


FILLS = {
    "kaiming_uniform_": {"a": 5**0.5},
    "kaiming_normal_": {"mode": "fan_out", "nonlinearity": "relu"},
    "xavier_uniform_": {"gain": 5 / 3},
    "xavier_normal_": {},
    "uniform_": {"a": -2.0, "b": 1.0},
    "normal_": {"mean": 1.0, "std": 0.1},
}


@pytest.mark.parametrize("name", FILLS)
def test_first_values_are_distributed_the_same(name):
    shape, count = (40, 10, 5, 5), 10_000
    ours = getattr(nn.init, name)(Tensor.zeros(shape), **FILLS[name]).numpy()
    theirs = getattr(torch.nn.init, name)(torch.zeros(shape), **FILLS[name]).numpy()

    gaps = np.abs(
        np.searchsorted(np.sort(theirs, None), np.sort(ours, None)) / count
        - np.arange(count) / count
    )

    # Kolmogorov and Smirnov: two samples of one distribution differ by more with chance 1e-6.
    assert gaps.max() < np.sqrt(-np.log(1e-6 / 2) / 2) * np.sqrt(2 / count)


GAINS = ["linear", "sigmoid", "tanh", "relu", "leaky_relu", "selu", "conv2d"]


@pytest.mark.parametrize("name", GAINS)
def test_gains_are_the_same(name):
    assert nn.init.calculate_gain(name) == torch.nn.init.calculate_gain(name)


def test_clipping_is_the_same():
    gradients = [floats(3, 4), floats(5) * 10]
    for norm_type in (1.0, 2.0, float("inf")):
        totals, clipped = [], []
        for make, module in ((Tensor, nn), (torch.tensor, torch.nn)):
            parameters = [module.Parameter(make(each)) for each in gradients]
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = make(gradient)
            totals.append(module.utils.clip_grad_norm_(parameters, 2.0, norm_type))
            clipped.append([parameter.grad for parameter in parameters])

        close(*totals)
        for ours, theirs in zip(*clipped, strict=True):
            close(ours, theirs)
