"""Small programs that write where others read, each on every device, fused and unfused."""

import itertools

import numpy as np
import pytest

from tinytensor import Tensor


@pytest.mark.parametrize("asked", [*itertools.permutations("xyez")][::5], ids="".join)
def test_a_read_before_a_write_keeps_what_it_read(asked, device):
    x, y = Tensor([1.0], device=device), Tensor([2.0], device=device)
    e = x + 10
    x *= 2
    y += x
    tensors = {"x": x, "y": y, "e": e, "z": y + e}

    results = {name: tensors[name].item() for name in asked}

    assert results == {"x": 2.0, "y": 4.0, "e": 11.0, "z": 15.0}


@pytest.mark.parametrize("count", [5, 2**20])
@pytest.mark.parametrize("is_realized", [True, False])
def test_an_overlapping_update_reads_all_before_it_writes(count, is_realized, device):
    values = np.arange(count) % 1000
    b = Tensor(values, device=device)
    b = b.realize() if is_realized else b

    b[1:] = b[:-1]

    np.testing.assert_array_equal(b.numpy(), np.concatenate([values[:1], values[:-1]]))


def test_a_write_through_an_expanded_view_reaches_all_its_elements(device):
    x = Tensor([1.0, 2.0], device=device)
    a = x[1].expand(2)

    a[-1] = 3

    assert a.tolist() == [3.0, 3.0]
    assert x.tolist() == [1.0, 3.0]


def test_an_update_of_all_of_an_expanded_view_is_refused(device):
    x = Tensor([1.0, 2.0], device=device)

    with pytest.raises(RuntimeError, match="elements share memory"):
        x[1].expand(2).add_(1)

    assert x.tolist() == [1.0, 2.0]


def test_a_state_that_is_read_and_returned_keeps_its_memory(device):
    m, g = Tensor([0.0] * 4, device=device), Tensor([1.0] * 4, device=device)

    m.lerp_(g, 0.05)
    used = (m * 2).sum()
    unrelated = (Tensor([7.0] * 4, device=device) + 1).realize()

    np.testing.assert_array_equal(m.numpy(), np.full(4, 0.05, np.float32))
    assert used.item() == np.float32(0.05) * 8
    assert unrelated.tolist() == [8.0] * 4


def test_the_users_array_is_not_shared(device):
    array = np.array([1.0, 2.0], np.float32)
    tensor = Tensor(array, device=device)
    shown = tensor.realize().numpy()

    array[0] = 7.0
    shown[1] = 8.0

    assert tensor.tolist() == [1.0, 2.0]


def test_a_clone_that_is_written_leaves_tensor_and_array_alone(device):
    array = np.array([1.0, 2.0], np.float32)
    tensor = Tensor(array, device=device)
    clone = tensor.clone().realize()

    clone[0] = 7.0

    assert clone.tolist() == [7.0, 2.0]
    assert tensor.tolist() == array.tolist() == [1.0, 2.0]


@pytest.mark.parametrize("order", [*itertools.permutations(range(4))][::5])
def test_pending_reads_of_what_is_written(order, device):
    a = Tensor([1.0, 2.0, 3.0], device=device)
    c = a.clone()
    d = c * 2
    c[:] = 5
    results = [
        (d, [2.0, 4.0, 6.0]),
        (c * a, [5.0, 10.0, 15.0]),
        (a, [1.0, 2.0, 3.0]),
        (c, [5.0] * 3),
    ]

    for number in order:
        result, expected = results[number]
        assert result.tolist() == expected
