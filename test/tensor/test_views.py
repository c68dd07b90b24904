"""What is written to one tensor is read by all that see its memory, and by nobody else."""

import itertools

import numpy as np
import pytest

from tinytensor import Tensor, dtypes
from tinytensor.errors import ShapeError

CUBE = np.arange(24, dtype=np.float32).reshape(2, 3, 4)

# NumPy's views alias as ours do.
VIEWS = {
    "permute": (lambda x: x.permute(2, 0, 1), lambda a: a.transpose(2, 0, 1)),
    "part": (lambda x: x[1:, ::2, 1:3], lambda a: a[1:, ::2, 1:3]),
    "number": (lambda x: x[1, :, 2], lambda a: a[1, :, 2]),
    "element": (lambda x: x[1, 2, 3], lambda a: a[1, 2, 3, ...]),
    "reshape": (lambda x: x.reshape(3, 8), lambda a: a.reshape(3, 8)),
    "chain": (lambda x: x.T[1:3].reshape(2, 6), None),
    "twice": (lambda x: x[:, 1:][..., ::3].transpose(0, 1), lambda a: a[:, 1:, ::3].swapaxes(0, 1)),
    "windows": (lambda x: x.unfold(2, 1, 3)[..., 0], lambda a: a[..., ::3]),
    "gaps": (lambda x: x.unfold(1, 1, 2)[..., 0], lambda a: a[:, ::2]),
    "planes": (lambda x: x.flatten(0, 1), lambda a: a.reshape(6, 4)),
    "one of many": (lambda x: x[:1].expand(4, 3, 4)[2], lambda a: a[0]),
    "one column of many": (
        lambda x: x[..., :1].expand(2, 3, 5).unsqueeze(0)[..., 4],
        lambda a: a[..., 0][None],
    ),
}


@pytest.mark.parametrize(("view", "numpy_view"), VIEWS.values(), ids=VIEWS)
def test_a_write_through_a_view_reaches_its_base(view, numpy_view):
    x, expected = Tensor(CUBE), CUBE.copy()
    part = view(x)

    part += 100
    if numpy_view is None:
        assert np.array_equal(x.numpy(), expected)  # strides could not say it: a copy
        return
    numpy_part = numpy_view(expected)
    numpy_part += 100
    np.testing.assert_array_equal(part.numpy(), numpy_part)
    np.testing.assert_array_equal(x.numpy(), expected)


@pytest.mark.parametrize("order", [*itertools.permutations(range(4))])
def test_every_alias_reads_the_write_in_whichever_order_they_are_asked(order):
    x = Tensor(CUBE)
    seen = [x, x.T, x[1], x.view(-1)]
    before = x + 0
    seen[order[0]].realize()
    x[1, :, 1:] = -1.0

    expected = CUBE.copy()
    expected[1, :, 1:] = -1
    wanted = [expected, expected.T, expected[1], expected.reshape(-1)]
    for number in order:
        np.testing.assert_array_equal(seen[number].numpy(), wanted[number])
    np.testing.assert_array_equal(before.numpy(), CUBE)


def test_a_diagonal_is_written():
    x = Tensor.zeros(3, 4)

    x.diagonal(1)[:] = Tensor([1.0, 2.0, 3.0])

    assert x.tolist() == [[0, 1, 0, 0], [0, 0, 2, 0], [0, 0, 0, 3]]


def test_signs_of_zeros_and_nans_beside_a_write_stay():
    x = Tensor([-0.0, np.nan, 1.0, -np.inf])

    x[2:3] = -0.0

    assert str(x.tolist()) == "[-0.0, nan, -0.0, -inf]"


@pytest.mark.parametrize("value", [-0.0, np.nan, -np.inf])
def test_one_of_many_takes_any_value(value):
    x = Tensor([[1.0], [2.0]])

    x.expand(2, 3).unsqueeze(1)[..., 1] = value

    assert str(x.flatten().tolist()) == str([value, value])


def test_what_shares_memory_with_itself_is_not_written():
    x = Tensor([1.0, 2.0, 3.0])

    for repeated in (x.expand(2, 3), x.unfold(0, 2, 1), x[:1].expand(3)):
        with pytest.raises(ShapeError):
            repeated.add_(1)
    assert x.expand(2, 3).fill_(5).tolist() == [[5, 5, 5], [5, 5, 5]]
    assert x.tolist() == [5, 5, 5]


def test_an_expanded_view_of_which_one_is_written():
    x = Tensor([1.0, 2.0])
    a = x[1].expand(2)

    a[-1] = 3

    assert a.tolist() == [3, 3]
    assert x.tolist() == [1, 3]


COPIES = {
    "clone": lambda x: x.clone(),
    "flip": lambda x: x.flip(0),
    "roll": lambda x: x.roll(0, 0),
    "repeat": lambda x: x.repeat(1, 1, 1),
    "repeat_interleave": lambda x: x.repeat_interleave(1, 0),
    "cat": lambda x: Tensor.cat([x]),
    "pad": lambda x: x.pad((0, 0)),
    "chosen": lambda x: x[[0, 1]],
    "floor": lambda x: x.floor(),
    "sum with 0": lambda x: x + 0,
    "tensor": lambda x: Tensor(x),
    "copied reshape": lambda x: x.T.reshape(-1),
}


@pytest.mark.parametrize("copy", COPIES.values(), ids=COPIES)
def test_a_copy_is_apart(copy):
    x = Tensor(CUBE)
    y = copy(x)

    y.zero_()

    np.testing.assert_array_equal(x.numpy(), CUBE)


@pytest.mark.parametrize(
    "same",
    [
        lambda x: x.to(dtypes.float32),
        lambda x: x.float(),
        lambda x: x.contiguous(),
        lambda x: x.flatten(1, 1),
        lambda x: x.atleast_1d(),
    ],
)
def test_what_changes_nothing_returns_its_tensor(same):
    x = Tensor(CUBE)

    assert same(x) is x


def test_memory_of_the_host_is_copied():
    array = CUBE.copy()
    x = Tensor(array)
    x.realize()
    y = x.clone()
    y.realize()

    y.zero_()
    x += 1
    read = x.numpy()
    read[:] = 7

    np.testing.assert_array_equal(array, CUBE)
    np.testing.assert_array_equal(x.numpy(), CUBE + 1)


def test_a_realized_view_is_kept_until_its_memory_is_written():
    x = Tensor(CUBE).exp()
    part = x[0]
    kept = part.realize().uop
    x.realize()

    assert part.uop is kept
    x[1] = 0.0
    assert part.uop is not kept
    assert part.numpy().tolist() == x.numpy()[0].tolist()
