"""Gradients, optimizers, schedulers and modules inside a jitted function."""

import numpy as np
import pytest

import tinytensor as tt
from tinytensor import Tensor, jit, nn, no_grad, optim

STEPS = 6


def network():
    tt.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Dropout(0.3), nn.Linear(5, 2))


def batches(seed):
    rng = np.random.default_rng(seed)
    shapes = ((4, 3), (4, 2))
    return [[Tensor(rng.random(shape, np.float32)) for shape in shapes] for _ in range(STEPS)]


OPTIMIZERS = {
    "sgd": lambda parameters: optim.SGD(parameters, lr=0.1),
    "momentum": lambda parameters: optim.SGD(parameters, lr=0.1, momentum=0.9, nesterov=True),
    "adam": lambda parameters: optim.Adam(parameters, lr=0.1),
    "adamw": lambda parameters: optim.AdamW(parameters, lr=0.1, amsgrad=True),
}


def trained(make, is_jitted, seed):
    """The losses and parameters after some steps, and the step's function."""
    model = network()
    optimizer = make(model.parameters())
    scheduler = optim.lr_scheduler.StepLR(optimizer, 2)

    def step(x, y):
        loss = ((model(x) - y) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        return loss

    run = jit(step) if is_jitted else step
    losses = [run(x, y).item() for x, y in batches(seed)]
    return losses, [each.tolist() for each in model.parameters()], run


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_step_is_the_same_step(name, seed):
    expected = trained(OPTIMIZERS[name], False, seed)
    losses, parameters, run = trained(OPTIMIZERS[name], True, seed)

    assert losses == expected[0]
    assert parameters == expected[1]
    assert sum(each.calls for each in run.programs()) >= STEPS - 3


def test_gradients_are_left_behind():
    weight = nn.Parameter(Tensor([2.0, 3.0]))

    @jit
    def differentiate(x):
        loss = (weight * x).sum()
        loss.backward()
        return loss

    found = []
    for value in (1.0, 2.0, 3.0, 4.0):
        differentiate(Tensor([value, 10.0]))
        found.append(weight.grad.tolist())

    assert found == [[1.0, 10.0], [3.0, 20.0], [6.0, 30.0], [10.0, 40.0]]


def test_the_gradient_of_an_argument_is_that_argument_s():
    @jit
    def differentiate(x):
        (x * x).sum().backward()

    for value in (1.0, 2.0, 3.0):
        x = Tensor([value], requires_grad=True)
        differentiate(x)
        assert x.grad.item() == 2 * value


def test_a_gradient_that_is_returned_is_fresh():
    slope = jit(lambda x: tt.autograd.grad((x * x * x).sum(), x)[0])

    found = [slope(Tensor([value], requires_grad=True)) for value in (1.0, 2.0)]

    assert [each.item() for each in found] == [3.0, 12.0]


def test_modules_are_watched():
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5))
    jitted = jit(model)
    x = Tensor.ones(3, 2)
    with no_grad():
        jitted(x)
        model.eval()
        found = jitted(x)

    expected = x.numpy() @ model[0].weight.detach().numpy().T + model[0].bias.detach().numpy()
    assert np.allclose(found.numpy(), expected, rtol=0, atol=4 * np.finfo(np.float32).eps)


def test_a_parameter_that_is_exchanged_is_noticed():
    model = nn.Linear(1, 1, bias=False)
    jitted = jit(lambda x: model(x))
    found = []
    with no_grad():
        for value in (2.0, 3.0):
            model.weight = nn.Parameter(Tensor([[value]]))
            found.append(jitted(Tensor([[5.0]])).item())
        model.load_state_dict({"weight": Tensor([[4.0]])})
        found.append(jitted(Tensor([[5.0]])).item())

    assert found == [10.0, 15.0, 20.0]


def test_running_statistics_are_written():
    def run(is_jitted):
        model = nn.BatchNorm1d(2)
        call = jit(model) if is_jitted else model
        with no_grad():
            for value in (1.0, 2.0, 3.0):
                call(Tensor([[value, 0.0], [value + 2, 4.0]]))
        return model.running_mean.tolist(), model.running_var.tolist()

    assert run(True) == run(False)


def test_a_learning_rate_that_changes_needs_no_new_program():
    weight = nn.Parameter(Tensor([1.0]))
    optimizer = optim.SGD([weight], lr=1.0)

    @jit
    def step():
        optimizer.zero_grad()
        (weight * 1).sum().backward()
        optimizer.step()

    found = []
    for rate in (1.0, 0.5, 0.25):
        optimizer.param_groups[0]["lr"] = rate
        step()
        found.append(weight.item())

    assert found == [0.0, -0.5, -0.75]
    assert len(step.programs()) <= 2


def test_an_option_that_is_a_constant_makes_a_new_program():
    weight = nn.Parameter(Tensor([1.0]))
    optimizer = optim.SGD([weight], lr=1.0, weight_decay=1.0)

    @jit
    def step():
        optimizer.zero_grad()
        (weight * 0).sum().backward()
        optimizer.step()

    step()
    step()
    weight.data = Tensor([8.0])
    optimizer.param_groups[0]["weight_decay"] = 0.5
    step()

    assert weight.item() == 4.0
