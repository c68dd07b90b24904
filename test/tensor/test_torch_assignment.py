"""`x[index] = value` writes what PyTorch writes, through views and with gradients."""

import math
import random

import pytest
from tensor.test_torch_gathering import as_ours, random_entries

from tinytensor import Tensor

torch = pytest.importorskip("torch")

X = torch.arange(12.0).reshape(3, 4)


def ours(x):
    return Tensor(x.numpy())


def index(*values, dtype=torch.int64):
    return torch.tensor(*values, dtype=dtype)


def truths(*values):
    return torch.tensor(*values)


SOME = truths([True, False, True])
WRITES = {
    "rows": (lambda to: to(index([2, 0])), X[:2] + 50),
    "rows-number": (lambda to: to(index([2, -1])), 7),
    "rows-0d": (lambda to: to(index([2, 0])), torch.tensor(7.0)),
    "rows-front-axes": (lambda to: to(index([2, 0])), X[None, None, :2] + 50),
    "list": (lambda to: [1, 0], X[:2] + 50),
    "pairs": (lambda to: (to(index([2, 0])), to(index([1, 3]))), X[0, :2] + 50),
    "grid": (lambda to: (to(index([[2], [0]])), to(index([1, 3]))), X[:2, :2] + 50),
    "column": (lambda to: (slice(None), to(index([3, 1]))), X[:, :2] + 50),
    "stepped": (lambda to: (slice(None, None, 2), to(index([3, 1]))), X[:2, :2] + 50),
    "int-and-indices": (lambda to: (1, to(index([3, 1]))), X[0, :2] + 50),
    "0d-and-indices": (lambda to: (to(index(1)), to(index([3, 1]))), X[0, :2] + 50),
    "0d": (lambda to: to(index(1)), X[0] + 50),
    "none-and-indices": (lambda to: (None, to(index([1, 0]))), X[None, :2] + 50),
    "ellipsis": (lambda to: (..., to(index([1, 0]))), X[:, :2] + 50),
    "nothing": (lambda to: to(index([])), 5),
    "mask": (lambda to: to(X > 6), 9),
    "mask-0d": (lambda to: to(X > 6), torch.tensor(9.0)),
    "mask-0d-int": (lambda to: to(X > 6), torch.tensor(9)),
    "mask-one": (lambda to: to(X > 6), torch.tensor([9.0])),
    "mask-of-rows": (lambda to: to(SOME), X[1] + 50),
    "mask-of-rows-column": (lambda to: to(SOME), X[:1, :1] + 50),
    "mask-of-rows-values": (lambda to: to(SOME), X[:2] + 50),
    "mask-of-columns": (lambda to: (slice(1), to(X[0] > 1)), 3.5),
    "mask-of-columns-value": (lambda to: (..., to(X[0] > 1)), X[:, :1] + 50),
    "mask-of-columns-row": (lambda to: (..., to(X[0] > 1)), X[0, :2] + 50),
    "mask-none": (lambda to: (None, to(SOME), None), 3.5),
    "mask-int": (lambda to: (to(SOME), 2), X[0, :2] + 50),
    "mask-values": (lambda to: to(X > 6), X.reshape(-1)[:5] + 50),
    "mask-too-few": (lambda to: to(X > 6), X.reshape(-1)[:4] + 50),
    "mask-and-indices": (lambda to: (to(SOME), to(index([1, 0]))), X[0, :2] + 50),
    "mask-empty": (lambda to: to(X > 99), 5),
    "mask-extent": (lambda to: to(truths([True, False])), 5),
    "dtype": (lambda to: to(index([0])), index([[1, 2, 3, 4]])),
    "shape": (lambda to: to(index([0])), X[:2]),
    "beyond": (lambda to: to(index([3])), 5),
    "too-many": (lambda to: (to(index([0])), 0, 0), 5),
}


@pytest.mark.parametrize("name", WRITES)
def test_a_write(name):
    at, value = WRITES[name]
    expected, found = X.clone(), ours(X)
    try:
        expected[at(lambda x: x)] = value
    except (RuntimeError, IndexError) as error:
        with pytest.raises(IndexError if isinstance(error, IndexError) else RuntimeError):
            write(found, at(ours), value).tolist()
        return

    write(found, at(ours), value)

    assert found.tolist() == expected.tolist()


def write(x, at, value):
    x[at] = ours(value) if isinstance(value, torch.Tensor) else value
    return x


@pytest.mark.parametrize("device", ["PYTHON", "CPU"])
def test_random_writes(device, seed):
    rng = random.Random(seed)
    torch.manual_seed(seed)
    for _ in range(40 if device == "PYTHON" else 10):
        shape = [rng.randint(1, 4) for _ in range(rng.randint(1, 4))]
        expected = torch.randint(0, 100, shape)
        entries = tuple(random_entries(rng, shape))
        # What is chosen twice gets the same value each time: which of two wins is undefined.
        places = torch.arange(math.prod(shape)).reshape(shape)[entries]
        found = Tensor(expected.numpy(), device=device)

        found[tuple([as_ours(each, device) for each in entries])] = as_ours(places * 3, device)

        expected[entries] = places * 3
        print(shape, entries)
        assert found.tolist() == expected.tolist()


def test_a_write_through_a_view_is_seen_by_the_base():
    expected, found = X.clone(), ours(X)
    expected.T[1:][index([0, 2])] = 50 + X[:2, :3]
    expected[1][X[1] > 5] = -1

    found.T[1:][[0, 2]] = ours(50 + X[:2, :3])
    found[1][ours(X[1] > 5)] = -1

    assert found.tolist() == expected.tolist()


@pytest.mark.parametrize(
    "at", [lambda to: to(index([2, 0])), lambda to: to(SOME)], ids=["rows", "mask"]
)
def test_gradients_of_a_write(at):
    theirs = [X.clone().requires_grad_(), (X[:2] + 50).requires_grad_()]
    y = theirs[0] * 2
    y[at(lambda x: x)] = theirs[1] * 3
    (y * y).sum().backward()

    leaves = [ours(each.detach()).requires_grad_() for each in theirs]
    z = leaves[0] * 2
    z[at(ours)] = leaves[1] * 3
    (z * z).sum().backward()

    for leaf, expected in zip(leaves, theirs, strict=True):
        assert leaf.grad.tolist() == expected.grad.tolist()


TWINS = {
    "scatter_": lambda x, to: x.scatter_(1, to(index([[3, 0]])), to(X[:1, :2] + 50)),
    "scatter_add_": lambda x, to: x.scatter_add_(1, to(index([[3, 3]])), to(X[:1, :2] + 50)),
    "scatter_reduce_": lambda x, to: x.scatter_reduce_(0, to(index([[1, 2]])), to(X), "amax"),
    "index_add_": lambda x, to: x.index_add_(0, to(index([1, 1])), to(X[:2]), alpha=2),
    "index_copy_": lambda x, to: x.index_copy_(1, to(index([1])), to(X[:, :1] + 50)),
    "index_fill_": lambda x, to: x.index_fill_(1, to(index([1])), 3),
    "index_put_": lambda x, to: x.index_put_((to(index([1, 0])),), to(X[2]), accumulate=True),
    "put_": lambda x, to: x.put_(to(index([-1])), to(X[0, 1])),
    "masked_fill_": lambda x, to: x.masked_fill_(to(X > 3), 3),
    "masked_scatter_": lambda x, to: x.masked_scatter_(to(X > 3), to(X + 50)),
}


@pytest.mark.parametrize("name", TWINS)
def test_a_method_in_place(name):
    expected, found = X.clone(), ours(X)
    view = found[1:].T
    TWINS[name](expected, lambda x: x)

    result = TWINS[name](found, ours)

    assert result is found
    assert found.tolist() == expected.tolist()
    assert view.tolist() == expected[1:].T.tolist()
