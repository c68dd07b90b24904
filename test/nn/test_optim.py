"""Optimizers change parameters by their formulas, in one schedule a step that never grows."""

import math

import numpy as np
import pytest

from tinytensor import Tensor, dtypes, manual_seed, nn, optim
from tinytensor.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, StepLR
from tinytensor.report import capture

STEPS = 4
EPSILON = 2.0**-23
STARTS = np.array([1.0, -2.0, 0.5])
SLOPES = np.random.default_rng(7).standard_normal((STEPS, 3))


def parameter(values=STARTS, dtype=dtypes.float32):
    return Tensor(list(values), dtype=dtype, requires_grad=True)


def trained(make, dtype=dtypes.float32):
    """The values after some steps with the gradients SLOPES."""
    x = parameter(dtype=dtype)
    optimizer = make([x])
    for slopes in SLOPES:
        optimizer.zero_grad()
        (x * Tensor(list(slopes), dtype=dtype)).sum().backward()
        optimizer.step()
    return x.detach().numpy()


def sgd(lr, momentum=0, dampening=0, weight_decay=0, nesterov=False):
    x, buffer = STARTS.copy(), None
    for slopes in SLOPES:
        change = slopes + weight_decay * x
        if momentum:
            share = 1 - dampening
            buffer = change if buffer is None else momentum * buffer + share * change
            change = change + momentum * buffer if nesterov else buffer
        x = x - lr * change
    return x


def adam(lr, betas, eps, weight_decay=0, decoupled=False, amsgrad=False):
    x, mean, squares, most = STARTS.copy(), np.zeros(3), np.zeros(3), np.zeros(3)
    for count, slopes in enumerate(SLOPES, start=1):
        change = slopes if decoupled else slopes + weight_decay * x
        x = x * (1 - lr * weight_decay) if decoupled else x
        mean = betas[0] * mean + (1 - betas[0]) * change
        squares = betas[1] * squares + (1 - betas[1]) * change**2
        most = np.maximum(most, squares)
        second = (most if amsgrad else squares) / (1 - betas[1] ** count)
        x = x - lr * mean / (1 - betas[0] ** count) / (np.sqrt(second) + eps)
    return x


def close(result, expected):
    """A step of size up to 2 rounds some 16 times; no error grows by more than one step's size."""
    bound = STEPS * 16 * 4 * EPSILON
    np.testing.assert_allclose(result, expected, rtol=0, atol=bound)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"weight_decay": 0.1},
        {"momentum": 0.9},
        {"momentum": 0.9, "dampening": 0.3},
        {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
    ],
    ids=str,
)
def test_sgd(options):
    close(trained(lambda x: optim.SGD(x, lr=0.1, **options)), sgd(0.1, **options))


@pytest.mark.parametrize("amsgrad", [False, True])
@pytest.mark.parametrize("weight_decay", [0, 0.1])
def test_adam(amsgrad, weight_decay):
    options = {"betas": (0.8, 0.9), "eps": 1e-3, "weight_decay": weight_decay, "amsgrad": amsgrad}

    close(trained(lambda x: optim.Adam(x, lr=0.1, **options)), adam(0.1, **options))
    decoupled = adam(0.1, **options, decoupled=True)
    close(trained(lambda x: optim.AdamW(x, lr=0.1, **options)), decoupled)


def test_the_defaults_are_those_of_pytorch():
    x = [parameter()]

    assert optim.SGD(x).param_groups[0]["lr"] == 1e-3
    assert optim.Adam(x).defaults["betas"] == (0.9, 0.999)
    assert (optim.Adam(x).defaults["eps"], optim.Adam(x).defaults["weight_decay"]) == (1e-8, 0)
    assert optim.AdamW(x).defaults["weight_decay"] == 1e-2


def test_maximizing_goes_the_other_way():
    up = trained(lambda x: optim.SGD(x, lr=0.1, maximize=True))

    close(up, 2 * STARTS - sgd(0.1))


def test_halves_compute_in_float32_and_round_once():
    x = Tensor([1.0], dtype=dtypes.bfloat16, requires_grad=True)
    optimizer = optim.SGD([x], lr=2.0**-8)
    (x * 1.5).sum().backward()

    optimizer.step()

    # 1 - 1.5 / 256 lies between 1 - 2 / 256 and 1 - 1 / 256: a tie, which goes to the even one.
    assert x.tolist() == [1 - 2 / 256]
    assert x.dtype is dtypes.bfloat16


def test_a_parameter_without_a_gradient_stays():
    used, unused = parameter(), parameter()
    optimizer = optim.Adam([used, unused], lr=0.1)
    used.sum().backward()

    optimizer.step()

    assert unused.tolist() == STARTS.tolist()
    assert unused not in optimizer.state


def test_groups_have_rates_of_their_own():
    slow, fast = parameter(), parameter()
    optimizer = optim.SGD([{"params": [slow]}, {"params": fast, "lr": 0.5}], lr=0.25)
    late = parameter()
    optimizer.add_param_group({"params": [late], "lr": 1.0})
    (slow + fast + late).sum().backward()

    optimizer.step()

    assert slow.tolist() == (STARTS - 0.25).tolist()
    assert fast.tolist() == (STARTS - 0.5).tolist()
    assert late.tolist() == (STARTS - 1.0).tolist()


def test_gradients_are_forgotten_or_become_zeros():
    x = parameter()
    optimizer = optim.SGD([x], lr=0.1)
    x.sum().backward()
    optimizer.zero_grad(set_to_none=False)
    zeros = x.grad.tolist()
    optimizer.zero_grad()

    assert zeros == [0.0, 0.0, 0.0]
    assert x.grad is None


def test_a_closure_finds_the_loss_itself():
    x = parameter([3.0])
    optimizer = optim.SGD([x], lr=0.25)

    def closure():
        optimizer.zero_grad()
        loss = (x * x).sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() == 9.0
    assert x.tolist() == [1.5]


# What a step costs.
def network_and_optimizer():
    manual_seed(1)
    network = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))
    return network, optim.Adam(network.parameters(), lr=1e-2)


def take_step(network, optimizer, x):
    loss = network(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


def test_every_step_is_the_same_program():
    network, optimizer = network_and_optimizer()
    scheduler = LambdaLR(optimizer, lambda epoch: 1 / (epoch + 1))
    kernels = []

    for _ in range(4):
        x = Tensor.rand(16, 4).realize()
        with capture() as found:
            take_step(network, optimizer, x)
        kernels.append([each.kernel.sink for each in found])
        was_compiled = all(each.was_compiled for each in found)
        scheduler.step()

    assert kernels[1] == kernels[2] == kernels[3]
    assert was_compiled


def test_the_first_step_is_already_the_program_of_all_others():
    sizes = [nn.LayerNorm(4) for _ in range(2)]  # with equal first weights, and equal biases
    network = nn.Sequential(sizes[0], nn.Linear(4, 4), sizes[1])
    optimizer = optim.Adam(network.parameters(), lr=1e-2)
    kernels = []

    for _ in range(2):
        with capture() as found:
            take_step(network, optimizer, Tensor.rand(16, 4).realize())
        kernels.append([each.kernel.sink for each in found])

    assert kernels[0] == kernels[1]


def test_the_loss_and_the_running_statistics_come_with_the_step():
    network, optimizer = network_and_optimizer()
    x = Tensor.rand(16, 4).realize()
    loss = take_step(network, optimizer, x)

    with capture() as found:
        loss.item()
        network[1].running_mean.tolist()
        network[1].running_var.tolist()
        network[1].num_batches_tracked.item()
        [each.tolist() for each in network.parameters()]

    assert found == []


def test_running_statistics_do_not_pile_up_without_steps():
    layer = nn.BatchNorm1d(3)
    counts = []

    for _ in range(4):
        with capture() as found:
            layer(Tensor.rand(8, 3).realize())
            layer.running_mean.realize()
        counts.append(len(found))

    assert counts[1] == counts[2] == counts[3]


# State.
@pytest.mark.parametrize("kind", [optim.SGD, optim.Adam])
def test_training_goes_on_from_a_saved_state(kind):
    options = {"momentum": 0.9} if kind is optim.SGD else {"amsgrad": True}
    whole = parameter()
    optimizer = kind([whole], lr=0.1, **options)
    descend(whole, optimizer)
    resumed = parameter(whole.tolist())
    other = kind([resumed], lr=0.7)

    other.load_state_dict(optimizer.state_dict())
    descend(whole, optimizer)
    descend(resumed, other)

    assert resumed.tolist() == whole.tolist()


def descend(x, optimizer):
    for _ in range(2):
        optimizer.zero_grad()
        (x * x).sum().backward()
        optimizer.step()


def test_a_state_has_the_structure_of_pytorch():
    x, y = parameter(), parameter([1.0])
    optimizer = optim.Adam([{"params": [x]}, {"params": [y], "lr": 0.5}])
    y.sum().backward()
    optimizer.step()

    saved = optimizer.state_dict()

    assert [group["params"] for group in saved["param_groups"]] == [[0], [1]]
    assert [group["lr"] for group in saved["param_groups"]] == [1e-3, 0.5]
    assert list(saved["state"]) == [1]
    assert list(saved["state"][1]) == ["step", "exp_avg", "exp_avg_sq"]
    step = saved["state"][1]["step"]
    assert (step.item(), step.dtype) == (1.0, dtypes.float32)


def test_an_optimizer_shows_its_groups():
    text = repr(optim.SGD([parameter()], lr=0.1))

    assert text == "\n".join(
        [
            "SGD (",
            "Parameter Group 0",
            "    dampening: 0",
            "    lr: 0.1",
            "    maximize: False",
            "    momentum: 0",
            "    nesterov: False",
            "    weight_decay: 0",
            ")",
        ]
    )


# Learning rates.
def rates(make, epochs):
    optimizer = optim.SGD([parameter()], lr=0.5)
    scheduler = make(optimizer)
    found = []
    for _ in range(epochs):
        found += scheduler.get_last_lr()
        scheduler.step()
    return found


def test_a_rate_falls_in_steps():
    assert rates(lambda o: StepLR(o, 2, gamma=0.5), 5) == [0.5, 0.5, 0.25, 0.25, 0.125]


def test_a_rate_follows_a_cosine_down_and_up():
    expected = [0.1 + 0.2 * (1 + math.cos(math.pi * each / 3)) for each in range(7)]

    np.testing.assert_allclose(rates(lambda o: CosineAnnealingLR(o, 3, 0.1), 7), expected, 1e-14)


def test_a_rate_follows_a_function():
    assert rates(lambda o: LambdaLR(o, lambda epoch: 2.0**-epoch), 3) == [0.5, 0.25, 0.125]


def test_a_scheduler_goes_on_from_a_saved_state():
    optimizer = optim.SGD([parameter()], lr=0.5)
    scheduler = CosineAnnealingLR(optimizer, 4)
    scheduler.step()
    other = CosineAnnealingLR(optim.SGD([parameter()], lr=0.5), 9)

    other.load_state_dict(scheduler.state_dict())
    other.step()
    scheduler.step()

    assert other.get_last_lr() == scheduler.get_last_lr()
