"""Indexing by tensors, and the methods around it, give PyTorch's results and refusals."""

import random

import pytest

from tinytensor import Tensor

torch = pytest.importorskip("torch")

X = torch.arange(24.0).reshape(2, 3, 4)


def ours(x):
    return Tensor(x.numpy())


def index(*values, dtype=torch.int64):
    return torch.tensor(*values, dtype=dtype)


CALLS = {
    "gather": lambda x, to: x.gather(2, to(index([[[0, 3]], [[1, 1]]]))),
    "gather-longer": lambda x, to: x.gather(1, to(index([[[0], [2], [1], [1]]]))),
    "gather-int32": lambda x, to: x.gather(-1, to(index([[[2]]], dtype=torch.int32))),
    "gather-0d": lambda x, to: x[0, 0, 1].gather(0, to(index([0, 0]))),
    "gather-empty": lambda x, to: x.gather(1, to(torch.zeros(0, 0, dtype=torch.int64))),
    "gather-too-long": lambda x, to: x.gather(2, to(torch.zeros(3, 3, 4, dtype=torch.int64))),
    "gather-ndim": lambda x, to: x.gather(2, to(index([0]))),
    "gather-bool": lambda x, to: x.gather(2, to(torch.zeros(2, 3, 4, dtype=torch.bool))),
    "select": lambda x, to: x.index_select(1, to(index([2, 0, 2]))),
    "select-0d": lambda x, to: x.index_select(2, to(index(3))),
    "select-of-0d": lambda x, to: x[0, 0, 1].index_select(0, to(index([0]))),
    "select-of-0d-twice": lambda x, to: x[0, 0, 1].index_select(0, to(index([0, 0]))),
    "select-2d": lambda x, to: x.index_select(0, to(index([[0]]))),
    "take": lambda x, to: x.take(to(index([[-1, 5], [0, 23]]))),
    "along": lambda x, to: x.take_along_dim(to(index([[[1]], [[0]]])), 2),
    "along-broadcast": lambda x, to: x.take_along_dim(to(index([[[1, -1]]])), -1),
    "along-flat": lambda x, to: x.take_along_dim(to(index([[3, 20]]))),
    "along-ndim": lambda x, to: x.take_along_dim(to(index([0])), 1),
    "masked": lambda x, to: x.masked_select(to(torch.tensor([True, False, False, True]))),
    "nonzero": lambda x, to: (x > 20).nonzero(),
    "uint8": lambda x, to: x[to(torch.tensor([1, 0], dtype=torch.uint8))],
    "float": lambda x, to: x[to(torch.tensor([1.0]))],
    "int16": lambda x, to: x[to(index([1], dtype=torch.int16))],
    "mask-extent": lambda x, to: x[:, to(torch.tensor([True, False]))],
    "no-broadcast": lambda x, to: x[to(index([0, 1])), to(index([0, 1, 2]))],
    "too-many": lambda x, to: x[to(index([0])), 0, 0, to(index([0]))],
}


@pytest.mark.filterwarnings("ignore:indexing with dtype torch.uint8")
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_call(call):
    try:
        expected = call(X, lambda x: x)
    except (RuntimeError, IndexError) as error:
        with pytest.raises(IndexError if isinstance(error, IndexError) else RuntimeError):
            call(ours(X), ours)
        return

    found = call(ours(X), ours)

    assert found.shape == tuple(expected.shape)
    assert found.tolist() == expected.tolist()


@pytest.mark.parametrize("device", ["PYTHON", "CPU"])
def test_random_indices(device, seed):
    rng = random.Random(seed)
    torch.manual_seed(seed)
    for _ in range(60 if device == "PYTHON" else 15):
        shape = [rng.randint(1, 4) for _ in range(rng.randint(1, 4))]
        x = torch.randint(0, 100, shape)
        entries = random_entries(rng, shape)

        found = Tensor(x.numpy(), device=device)[tuple([as_ours(each, device) for each in entries])]

        expected = x[tuple(entries)]
        print(shape, entries)
        assert found.shape == tuple(expected.shape)
        assert found.tolist() == expected.tolist()


def as_ours(entry, device):
    return Tensor(entry.numpy(), device=device) if isinstance(entry, torch.Tensor) else entry


def random_entries(rng, shape):
    """An index of the kinds that PyTorch takes, for some of a shape's axes."""
    shared = [rng.randint(1, 3) for _ in range(rng.randint(0, 2))]
    entries, axis = [], 0
    while axis < len(shape):
        kind, extent = rng.randrange(6), shape[axis]
        width = min(2, len(shape) - axis) if kind == 4 else int(kind != 0)
        if kind == 0:
            entries.append(None)
        elif kind == 1:
            entries.append(rng.randrange(-extent, extent))
        elif kind == 2:
            entries.append(slice(rng.randint(0, extent), None, rng.randint(1, 2)))
        elif kind == 4:
            entries.append(torch.rand(shape[axis : axis + width]) < 0.5)
        else:
            sizes = [n if rng.random() < 0.8 else 1 for n in shared]
            entries.append(torch.randint(-extent, extent, sizes))
        axis += width
        if rng.random() < 0.2:
            break
    for mask in entries:
        if isinstance(mask, torch.Tensor) and mask.dtype == torch.bool:
            # Of one element, so that it broadcasts with the other indices.
            mask.copy_(torch.arange(mask.numel()).reshape(mask.shape) == 0)
    return entries
