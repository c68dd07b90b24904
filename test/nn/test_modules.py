"""Modules know what they are made of, under PyTorch's names, and layers compute what they say."""

import copy

import numpy as np
import pytest

from tinytensor import Tensor, dtypes, manual_seed, nn, no_grad
from tinytensor.config import config

EPSILON = 2.0**-23


@pytest.fixture(autouse=True)
def _python_device():
    with config(device="PYTHON"):
        manual_seed(3)
        yield


class Block(nn.Module):
    """A module with something of every kind."""

    def __init__(self, tied=None):
        super().__init__()
        self.first = nn.Linear(2, 3)
        self.scale = nn.Parameter(Tensor([1.0, 2.0, 3.0]))
        self.register_buffer("offset", Tensor([4.0]))
        self.register_buffer("scratch", Tensor([5.0]), persistent=False)
        self.register_parameter("missing", None)
        self.second = self.first if tied else nn.Linear(3, 2, bias=False)
        self.note = "no tensor"

    def forward(self, x):
        return self.second(self.first(x) * self.scale + self.offset)


def names(pairs):
    return [name for name, _ in pairs]


# What a module is made of.
def test_the_state_lists_parameters_then_buffers_then_inner_modules():
    state = Block().state_dict()

    assert list(state) == ["scale", "offset", "first.weight", "first.bias", "second.weight"]
    assert not any(each.requires_grad for each in state.values())


def test_a_prefix_stands_before_every_name():
    block = Block()

    assert list(block.state_dict(prefix="net."))[0] == "net.scale"
    assert names(block.named_parameters("net"))[:2] == ["net.scale", "net.first.weight"]


def test_parameters_buffers_and_modules_are_walked_in_order():
    block = Block()

    assert names(block.named_parameters()) == [
        *("scale", "first.weight", "first.bias", "second.weight"),
    ]
    assert names(block.named_parameters(recurse=False)) == ["scale"]
    assert names(block.named_buffers()) == ["offset", "scratch"]
    assert names(block.named_modules()) == ["", "first", "second"]
    assert names(block.named_children()) == ["first", "second"]
    assert [each is block.first for each in block.children()] == [True, False]


def test_what_is_shared_is_walked_once_and_saved_under_both_names():
    block = Block(tied=True)

    assert names(block.named_parameters()) == ["scale", "first.weight", "first.bias"]
    assert names(block.named_modules()) == ["", "first"]
    assert names(block.named_modules(remove_duplicate=False)) == ["", "first", "second"]
    assert list(block.state_dict())[-1] == "second.bias"


def test_an_attribute_moves_to_the_registry_of_its_new_kind():
    block = Block()
    block.note = nn.Parameter(Tensor([1.0]))
    block.scale = None
    del block.first

    assert names(block.named_parameters()) == ["note", "second.weight"]
    assert block.scale is None
    assert not hasattr(block, "first")


def test_a_parameter_set_again_keeps_its_place():
    layer = nn.Linear(2, 3)
    layer.weight = nn.Parameter(Tensor.zeros(3, 2))

    assert list(layer.state_dict()) == ["weight", "bias"]


def test_what_is_computed_from_a_parameter_is_a_tensor():
    parameter = nn.Parameter(Tensor([1.0, 2.0]))
    (parameter * 2).sum().backward()

    assert parameter.is_leaf
    assert parameter.requires_grad
    assert [type(each) for each in (parameter * 2, parameter[0], parameter.detach())] == [
        Tensor
    ] * 3
    assert type(parameter.grad) is Tensor
    assert parameter.grad.tolist() == [2.0, 2.0]


def test_parameters_and_states_share_memory():
    x = Tensor([1.0, 2.0])
    layer = nn.Module()
    layer.x = nn.Parameter(x)

    x.fill_(3)
    layer.state_dict()["x"][0] = 4

    assert layer.x.tolist() == x.tolist() == [4.0, 3.0]
    assert layer.x.is_leaf
    assert not x.requires_grad


def test_a_copy_of_a_module_is_trained_apart():
    block = Block(tied=True)
    copied = copy.deepcopy(block)

    (copied.scale * 2).sum().backward()
    nn.init.zeros_(copied.first.weight)

    assert copied.second is copied.first
    assert isinstance(copied.scale, nn.Parameter)
    assert (block.scale.grad, copied.scale.grad.tolist()) == (None, [2.0, 2.0, 2.0])
    assert block.first.weight.tolist() != copied.first.weight.tolist()


def test_inner_modules_are_found_by_name():
    network = nn.Sequential(nn.Sequential(nn.ReLU(), Block()))

    assert network.get_submodule("0.1.second") is network[0][1].second
    assert network.get_submodule("") is network


def test_modes_reach_every_module():
    network = nn.Sequential(nn.Dropout(), Block())

    assert network.eval() is network
    assert {each.training for each in network.modules()} == {False}
    assert {each.training for each in network.train().modules()} == {True}


def test_apply_calls_inner_modules_first():
    called = []
    network = nn.Sequential(nn.ReLU(), nn.Sequential(nn.Tanh()))

    network.apply(lambda module: called.append(type(module).__name__))

    assert called == ["ReLU", "Tanh", "Sequential", "Sequential"]


def test_a_conversion_keeps_parameters_and_their_gradients():
    block = Block()
    block.register_buffer("count", Tensor(3))
    weight = block.first.weight
    block(Tensor.ones(1, 2)).sum().backward()
    known = weight.grad.numpy()

    block.half()

    assert block.first.weight is weight
    assert (weight.dtype, weight.grad.dtype) == (dtypes.float16, dtypes.float16)
    assert weight.is_leaf
    assert (block.offset.dtype, block.count.dtype) == (dtypes.float16, dtypes.int64)
    np.testing.assert_array_equal(weight.grad.numpy(), known.astype(np.float16))
    assert block.to(dtypes.bfloat16).scale.dtype is dtypes.bfloat16
    assert block.double().float().scale.dtype is dtypes.float32


def test_a_module_moves_to_another_device():
    block = Block().to("CPU")

    assert {each.device for each in block.state_dict().values()} == {"CPU"}
    assert block(Tensor.ones(1, 2, device="CPU")).device == "CPU"


def test_gradients_are_forgotten_or_become_zeros():
    layer = nn.Linear(2, 1)
    layer(Tensor.ones(1, 2)).sum().backward()
    layer.zero_grad(set_to_none=False)
    zeros = layer.weight.grad.tolist()
    layer.zero_grad()

    assert zeros == [[0.0, 0.0]]
    assert layer.weight.grad is None


def test_a_frozen_module_needs_no_gradient():
    layer = nn.Linear(2, 1).requires_grad_(False)

    assert not layer(Tensor.ones(1, 2)).requires_grad


# Containers.
def test_a_sequence_is_indexed_sliced_and_changed():
    relu, tanh, silu = nn.ReLU(), nn.Tanh(), nn.SiLU()
    layers = nn.Sequential(relu, tanh)
    layers.append(silu).insert(1, nn.GELU())
    del layers[0]
    layers[0] = relu

    assert (len(layers), layers[-1], list(layers)) == (3, silu, [relu, tanh, silu])
    assert names(layers.named_children()) == ["0", "1", "2"]
    assert names(layers[1:].named_children()) == ["1", "2"]


def test_a_sequence_has_names_when_given_them():
    layers = nn.Sequential({"one": nn.ReLU(), "two": nn.Linear(1, 2)})

    assert list(layers.state_dict()) == ["two.weight", "two.bias"]
    assert layers.one is layers[0]


def test_a_list_numbers_its_modules():
    layers = nn.ModuleList([nn.ReLU()])
    layers += [nn.Tanh(), nn.SiLU()]
    layers.insert(0, nn.GELU())

    assert names(layers.named_children()) == ["0", "1", "2", "3"]
    assert names(layers[2:].named_children()) == ["0", "1"]
    assert isinstance(layers[-1], nn.SiLU)


def test_a_dictionary_of_modules_is_one():
    layers = nn.ModuleDict({"b": nn.ReLU()})
    layers["a"] = nn.Linear(1, 1)
    taken = layers.pop("b")

    assert isinstance(taken, nn.ReLU)
    assert ("a" in layers, "b" in layers, len(layers)) == (True, False, 1)
    assert (list(layers), list(layers.keys())) == (["a"], ["a"])
    assert list(layers.state_dict()) == ["a.weight", "a.bias"]


def test_a_module_shows_what_it_holds():
    network = nn.Sequential(nn.ModuleList([nn.Linear(1, 2), nn.Linear(1, 2), nn.ReLU()]), Block())

    assert repr(network) == "\n".join(
        [
            "Sequential(",
            "  (0): ModuleList(",
            "    (0-1): 2 x Linear(in_features=1, out_features=2, bias=True)",
            "    (2): ReLU()",
            "  )",
            "  (1): Block(",
            "    (first): Linear(in_features=2, out_features=3, bias=True)",
            "    (second): Linear(in_features=3, out_features=2, bias=False)",
            "  )",
            ")",
        ]
    )


# Layers.
def close(result, expected, terms):
    """Sums of `terms` numbers of size 1, rounded in any order, and a few roundings more."""
    bound = (terms + 8) * EPSILON
    np.testing.assert_allclose(result.numpy(), expected, rtol=bound, atol=bound)


def standard(x, axes, correction=0):
    mean = x.mean(axes, keepdims=True)
    return (x - mean) / np.sqrt(x.var(axes, keepdims=True, ddof=correction) + 1e-5)


def test_linear():
    layer = nn.Linear(5, 3)
    x = np.random.default_rng(1).standard_normal((4, 5))

    state = {name: each.numpy().astype(np.float64) for name, each in layer.state_dict().items()}

    close(layer(Tensor(x.astype(np.float32))).detach(), x @ state["weight"].T + state["bias"], 20)


def test_an_embedding_takes_rows_and_leaves_the_padding_alone():
    layer = nn.Embedding(4, 2, padding_idx=-1)

    rows = layer(Tensor([[0, 3, 0]]))
    (rows * Tensor([[1.0], [10.0], [100.0]])).sum().backward()

    weight = layer.weight.detach().numpy()
    assert rows.tolist() == [[weight[0].tolist(), [0.0, 0.0], weight[0].tolist()]]
    assert layer.weight.grad.tolist() == [[101.0, 101.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]]
    assert layer.padding_idx == 3


def test_normalizations_of_layers_and_groups():
    x = np.random.default_rng(2).standard_normal((2, 4, 3))
    given = Tensor(x.astype(np.float32))
    groups = standard(x.reshape(2, 2, 6), 2).reshape(x.shape)
    mean_square = (x**2).mean(2, keepdims=True)

    close(nn.LayerNorm(3)(given).detach(), standard(x, 2), 20)
    close(nn.LayerNorm((4, 3), bias=False)(given).detach(), standard(x, (1, 2)), 20)
    close(nn.GroupNorm(2, 4)(given).detach(), groups, 20)
    close(nn.RMSNorm(3, eps=1e-3)(given).detach(), x / np.sqrt(mean_square + 1e-3), 20)


def test_a_batch_is_standardized_in_training_and_remembered():
    layer = nn.BatchNorm1d(3)
    batches = np.random.default_rng(4).standard_normal((2, 8, 3))
    mean, var = np.zeros(3), np.ones(3)

    for x in batches:
        close(layer(Tensor(x.astype(np.float32))).detach(), standard(x, 0), 20)
        mean, var = 0.9 * mean + 0.1 * x.mean(0), 0.9 * var + 0.1 * x.var(0, ddof=1)

    close(layer.running_mean, mean, 20)
    close(layer.running_var, var, 20)
    assert layer.num_batches_tracked.item() == 2
    used = (batches[0] - mean) / np.sqrt(var + 1e-5)
    close(layer.eval()(Tensor(batches[0].astype(np.float32))).detach(), used, 40)


def test_without_a_momentum_all_batches_count_alike():
    layer = nn.BatchNorm2d(2, momentum=None)
    batches = np.random.default_rng(5).standard_normal((3, 4, 2, 3, 3))

    for x in batches:
        layer(Tensor(x.astype(np.float32)))

    close(layer.running_mean, batches.mean((1, 3, 4)).mean(0), 60)
    close(layer.running_var, batches.var((1, 3, 4), ddof=1).mean(0), 60)


def test_without_running_statistics_the_batch_counts_in_use_too():
    layer = nn.BatchNorm1d(3, track_running_stats=False).eval()
    x = np.random.default_rng(6).standard_normal((8, 3))

    close(layer(Tensor(x.astype(np.float32))).detach(), standard(x, 0), 20)
    assert list(layer.state_dict()) == ["weight", "bias"]


def test_running_statistics_are_forgotten():
    layer = nn.BatchNorm1d(3)
    layer(Tensor.rand(4, 3))

    layer.reset_running_stats()

    assert layer.running_mean.tolist() == [0.0, 0.0, 0.0]
    assert (layer.running_var.tolist(), layer.num_batches_tracked.item()) == ([1.0, 1.0, 1.0], 0)


def test_dropout_acts_in_training_alone():
    layer, x = nn.Dropout(0.25), Tensor.ones(1000)

    values = layer(x).numpy()

    assert set(values.tolist()) == {0.0, float(np.float32(1 / 0.75))}
    # 250 holes are expected; the chance of a deviation of 6 sigma is below 1e-8.
    assert abs((values == 0).sum() - 250) < 6 * np.sqrt(1000 * 0.25 * 0.75)
    assert layer.eval()(x) is x


def test_a_function_in_place_changes_its_input():
    x = Tensor([-1.0, 2.0])

    result = nn.Sequential(nn.ReLU(inplace=True), nn.Dropout(0.0, inplace=True))(x)

    assert result is x
    assert x.tolist() == [0.0, 2.0]


def test_shapes_are_flattened_and_left():
    x = Tensor.zeros(2, 3, 4)

    assert nn.Flatten()(x).shape == (2, 12)
    assert nn.Flatten(0, 1)(x).shape == (6, 4)
    assert nn.Identity(3, any=4)(x) is x


# First values.
def spread(values):
    return float(values.std()), float(abs(values).max())


def test_first_values_have_the_spread_they_should():
    weight = Tensor.zeros(64, 8, 5, 5)
    fan_in, fan_out = 8 * 25, 64 * 25
    count = weight.numel()
    expected = {
        nn.init.kaiming_normal_: np.sqrt(2 / fan_in),
        nn.init.kaiming_uniform_: np.sqrt(2 / fan_in),
        nn.init.xavier_normal_: np.sqrt(2 / (fan_in + fan_out)),
        nn.init.xavier_uniform_: np.sqrt(2 / (fan_in + fan_out)),
        nn.init.normal_: 1.0,
        nn.init.uniform_: np.sqrt(1 / 12),
    }

    for fill, sigma in expected.items():
        deviation, most = spread(fill(weight).numpy())
        # The deviation of a normal sample varies by sigma / sqrt(2 n); this is 6 of that.
        assert abs(deviation - sigma) < 6 * sigma / np.sqrt(2 * count), fill.__name__
        if "uniform" in fill.__name__:
            assert most <= sigma * np.sqrt(12 if fill is nn.init.uniform_ else 3) * (1 + EPSILON)


def test_first_values_of_layers_lie_within_their_bounds():
    layer = nn.Conv2d(4, 16, 3, groups=2)

    for parameter in layer.parameters():
        _, most = spread(parameter.detach().numpy())
        assert 0.8 / np.sqrt(18) < most <= (1 + EPSILON) / np.sqrt(18)


def test_constants_fill_tensors():
    x = Tensor.zeros(2, 2)

    assert nn.init.constant_(x, 3) is x
    assert x.tolist() == [[3.0, 3.0], [3.0, 3.0]]
    assert nn.init.ones_(x).tolist() == [[1.0, 1.0], [1.0, 1.0]]
    assert nn.init.eye_(x).tolist() == [[1.0, 0.0], [0.0, 1.0]]
    assert nn.init.zeros_(x).tolist() == [[0.0, 0.0], [0.0, 0.0]]


def test_filling_a_parameter_keeps_it_a_leaf():
    parameter = nn.Parameter(Tensor.zeros(2))

    nn.init.ones_(parameter)
    (parameter * 3).sum().backward()

    assert parameter.is_leaf
    assert parameter.grad.tolist() == [3.0, 3.0]


# Clipping.
def with_gradients(*gradients):
    parameters = [nn.Parameter(Tensor.zeros(len(each))) for each in gradients]
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = Tensor(gradient)
    return parameters


def test_gradients_are_scaled_to_a_joint_norm():
    parameters = with_gradients([3.0, 0.0], [4.0])

    total = nn.clip_grad_norm_(parameters, 1.0)

    assert total.item() == 5.0
    factor = 1 / (5 + 1e-6)
    close(parameters[0].grad, [3 * factor, 0], 4)
    close(parameters[1].grad, [4 * factor], 4)


def test_small_gradients_are_not_scaled():
    parameters = with_gradients([0.5], [-0.25])

    assert nn.utils.clip_grad_norm_(parameters, 1.0, norm_type=float("inf")).item() == 0.5
    assert [each.grad.tolist() for each in parameters] == [[0.5], [-0.25]]
    assert nn.clip_grad_norm_([], 1.0).item() == 0.0


def test_elements_of_gradients_are_held():
    parameters = with_gradients([3.0, -0.25], [-4.0])

    nn.clip_grad_value_(parameters, 1.0)

    assert [each.grad.tolist() for each in parameters] == [[1.0, -0.25], [-1.0]]


def test_an_untrained_module_runs_without_gradients():
    with no_grad():
        result = Block()(Tensor.ones(1, 2))

    assert not result.requires_grad
