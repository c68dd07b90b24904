"""States are taken over by name, all or nothing; safetensors files keep every bit."""

import numpy as np
import pytest

from tinytensor import Tensor, dtypes, nn
from tinytensor.interop.safetensors import load_file, save_file

VALUES = {"weight": [[1.0, 2.0]], "bias": [3.0]}


def tensors(**values):
    return {name: Tensor(value) for name, value in values.items()}


def test_a_state_is_taken_over():
    layer = nn.Linear(2, 1)
    weight = layer.weight

    keys = layer.load_state_dict(tensors(**VALUES))

    assert keys == ([], [])
    assert layer.weight is weight
    assert weight.is_leaf
    assert {name: each.tolist() for name, each in layer.state_dict().items()} == VALUES


def test_values_take_the_dtype_that_is_there():
    layer = nn.Linear(2, 1, dtype=dtypes.bfloat16)

    layer.load_state_dict(tensors(weight=[[1.0, 1 + 2.0**-9]], bias=[3.0]))

    assert layer.weight.dtype is dtypes.bfloat16
    assert layer.weight.tolist() == [[1.0, 1.0]]


def test_differences_of_names_are_told_when_not_strict():
    layer = nn.Linear(2, 1)

    missing, unexpected = layer.load_state_dict(tensors(bias=[3.0], other=[1.0]), strict=False)

    assert (missing, unexpected) == (["weight"], ["other"])
    assert layer.bias.tolist() == [3.0]


def test_a_state_that_does_not_fit_changes_nothing():
    layer = nn.Linear(2, 1)
    known = layer.bias.tolist()

    with pytest.raises(RuntimeError):
        layer.load_state_dict(tensors(weight=[[1.0, 2.0]], bias=[3.0, 4.0]))

    assert layer.bias.tolist() == known


def test_tensors_of_a_state_become_the_parameters():
    network = nn.Sequential(nn.Linear(2, 1), nn.BatchNorm1d(1))
    network[0].weight.requires_grad_(False)
    state = {name: each.double() for name, each in network.state_dict().items()}

    network.load_state_dict(state, assign=True)

    assert [each.dtype for each in network.parameters()] == [dtypes.float64] * 4
    assert [each.requires_grad for each in network.parameters()] == [False, True, True, True]
    assert network[1].running_mean is state["1.running_mean"]


def test_shared_parameters_are_loaded():
    network = nn.Sequential(nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False))
    network[1].weight = network[0].weight

    network.load_state_dict({"0.weight": Tensor([[5.0]]), "1.weight": Tensor([[5.0]])})

    assert network[1].weight.tolist() == [[5.0]]


def test_a_network_is_saved_and_read(tmp_path):
    pytest.importorskip("safetensors")
    network = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)).bfloat16()
    other = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)).bfloat16()
    x = Tensor.rand(4, 3).bfloat16()

    save_file(network.state_dict(), tmp_path / "network.safetensors", {"of": "a test"})
    other.load_state_dict(load_file(tmp_path / "network.safetensors"))

    assert other(x).tolist() == network(x).tolist()


# Bits of each dtype that tell it from its neighbors.
SAMPLES = [
    *(Tensor([1.5, -0.0]).to(dtype) for dtype in (dtypes.float16, dtypes.bfloat16)),
    *(Tensor([1.1, np.inf], dtype=dtype) for dtype in (dtypes.float32, dtypes.float64)),
    *(Tensor([-128, 127], dtype=dtype) for dtype in (dtypes.int8, dtypes.int16)),
    *(Tensor([-(2**31), 7], dtype=dtype) for dtype in (dtypes.int32, dtypes.int64)),
    *(Tensor([255, 0], dtype=dtype) for dtype in (dtypes.uint8, dtypes.uint16)),
    *(Tensor([2**32 - 1, 0], dtype=dtype) for dtype in (dtypes.uint32, dtypes.uint64)),
    Tensor([True, False]),
    Tensor(2.5),
    Tensor.zeros(0, 3),
    Tensor([[1.0, 2.0], [3.0, 4.0]]).T,
]


@pytest.mark.parametrize("device", ["CPU", "PYTHON"])
def test_files_keep_dtypes_shapes_and_values(tmp_path, device):
    pytest.importorskip("safetensors")
    path = tmp_path / "samples.safetensors"
    save_file({str(place): each for place, each in enumerate(SAMPLES)}, path)

    loaded = load_file(path, device=device)

    assert len(loaded) == len(SAMPLES)
    for place, sample in enumerate(SAMPLES):
        found = loaded[str(place)]
        assert (found.dtype, found.shape, found.device) == (sample.dtype, sample.shape, device)
        assert repr(found.tolist()) == repr(sample.tolist())


def test_no_tensors_make_a_file_too(tmp_path):
    pytest.importorskip("safetensors")
    save_file({}, tmp_path / "nothing.safetensors")

    assert load_file(tmp_path / "nothing.safetensors") == {}


def test_another_reader_finds_the_same_bits(tmp_path):
    library = pytest.importorskip("safetensors.numpy")
    save_file({"x": Tensor([[1.5], [2.5]])}, tmp_path / "x.safetensors")
    library.save_file({"y": np.array([1, 2], np.int16)}, tmp_path / "y.safetensors")

    np.testing.assert_array_equal(
        library.load_file(tmp_path / "x.safetensors")["x"], np.array([[1.5], [2.5]], np.float32)
    )
    found = load_file(tmp_path / "y.safetensors")["y"]
    assert (found.dtype, found.tolist()) == (dtypes.int16, [1, 2])
