"""Writes at computed places give PyTorch's values, gradients and refusals."""

import pytest

from tinytensor import Tensor, autograd, dtypes

torch = pytest.importorskip("torch")

X = torch.arange(12.0).reshape(3, 4) - 5


def ours(x):
    if x.dtype == torch.bfloat16:
        return Tensor(x.float().numpy()).bfloat16()
    return Tensor(x.numpy())


def index(*values, dtype=torch.int64):
    return torch.tensor(*values, dtype=dtype)


def zeros(*shape, dtype=torch.float32):
    return torch.zeros(*shape, dtype=dtype)


def truths(*values):
    return torch.tensor(*values)


I64 = torch.int64
CALLS = {
    "scatter": lambda x, to: x.scatter(1, to(index([[3, 0], [1, 2]])), to(X * 2)),
    "scatter-int32": lambda x, to: x.scatter(0, to(index([[2, 0]], dtype=torch.int32)), to(X)),
    "scatter-value": lambda x, to: x.scatter(1, to(index([[0], [0], [3]])), 2.5),
    "scatter-keyword": lambda x, to: x.scatter(dim=1, index=to(index([[0]])), value=1),
    "scatter-long": lambda x, to: x[:2].scatter(0, to(index([[0], [1], [1]])), 1.0),
    "scatter-into-ints": lambda x, to: to(zeros(3, dtype=I64)).scatter(0, to(index([1])), 2.5),
    "scatter-0d": lambda x, to: x[0, 0].scatter(0, to(index(0)), to(X[1, 1])),
    "scatter-empty": lambda x, to: x.scatter(0, to(zeros(0, 4, dtype=I64)), to(X)),
    "scatter-empty-1d": lambda x, to: x.scatter(0, to(zeros(0, dtype=I64)), to(X)),
    "scatter-add": lambda x, to: x.scatter(0, to(index([[0, 2]])), 2.0, reduce="add"),
    "scatter-multiply": lambda x, to: x.scatter(0, to(index([[0], [0]])), 3.0, reduce="multiply"),
    "scatter-reduce-name": lambda x, to: x.scatter(0, to(index([[0]])), 3.0, reduce="sum"),
    "scatter-dtype": lambda x, to: x.scatter(0, to(index([[0]])), to(index([[1]]))),
    "scatter-ndim": lambda x, to: x.scatter(0, to(index([0])), to(X)),
    "scatter-short-source": lambda x, to: x.scatter(1, to(index([[0, 1]])), to(X[:, :1])),
    "scatter-wide": lambda x, to: x.scatter(0, to(zeros(1, 5, dtype=I64)), 1.0),
    "scatter-int16": lambda x, to: x.scatter(0, to(index([[0]], dtype=torch.int16)), 1.0),
    "scatter-nothing": lambda x, to: x.scatter(0, to(index([[0]]))),
    "scatter_add": lambda x, to: x.scatter_add(1, to(index([[3, 3, 3], [1, 2, 1]])), to(X * 2)),
    "scatter_add-wraps": lambda x, to: to(zeros(2, dtype=torch.uint8)).scatter_add(
        0, to(index([1, 1])), to(index([200, 100], dtype=torch.uint8))
    ),
    "scatter_add-bool": lambda x, to: to(truths([False, True])).scatter_add(
        0, to(index([0, 0])), to(truths([True, True]))
    ),
    "scatter_reduce-name": lambda x, to: x.scatter_reduce(0, to(index([[0]])), to(X), "add"),
    "index_add": lambda x, to: x.index_add(1, to(index([3, 0, 3])), to(X[:, :3])),
    "index_add-alpha": lambda x, to: x.index_add(0, to(index([1, 1])), to(X[:2]), alpha=-2),
    "index_add-int-alpha": lambda x, to: to(index([5, 6])).index_add(
        0, to(index([1, 1])), to(index([1, 2])), alpha=2.5
    ),
    "index_add-bool": lambda x, to: to(truths([False, False])).index_add(
        0, to(index([1, 1])), to(truths([True, True]))
    ),
    "index_add-0d": lambda x, to: x.index_add(0, to(index(1)), to(X[:1])),
    "index_add-dtype": lambda x, to: x.index_add(0, to(index([1])), to(index([[1, 2, 3, 4]]))),
    "index_add-shape": lambda x, to: x.index_add(0, to(index([1])), to(X[:1, :2])),
    "index_add-count": lambda x, to: x.index_add(0, to(index([1, 2])), to(X[:1])),
    "index_add-ndim": lambda x, to: x.index_add(0, to(index([1])), to(X[0])),
    "index_add-2d": lambda x, to: x.index_add(0, to(index([[1]])), to(X[:1])),
    "index_copy": lambda x, to: x.index_copy(1, to(index([3, 0])), to(X[:, 1:3])),
    "index_copy-scalar": lambda x, to: x[0].index_copy(0, to(index([3])), to(X[2, 2])),
    "index_copy-dtype": lambda x, to: x.index_copy(0, to(index([1])), to(index([[1, 2, 3, 4]]))),
    "index_copy-shape": lambda x, to: x.index_copy(0, to(index([1])), to(X[:1, :2])),
    "index_copy-count": lambda x, to: x.index_copy(0, to(index([1, 2])), to(X[:1])),
    "index_copy-ndim": lambda x, to: x.index_copy(0, to(index([1])), to(X[0])),
    "index_copy-2d": lambda x, to: x.index_copy(0, to(index([[1]])), to(X[:1])),
    "index_fill": lambda x, to: x.index_fill(1, to(index([-1, 1])), 9),
    "index_fill-0d": lambda x, to: x[0, 0].index_fill(0, to(index([0])), 9),
    "index_fill-tensor": lambda x, to: x.index_fill(0, to(index(2)), to(index(7))),
    "index_fill-1d": lambda x, to: x.index_fill(0, to(index([2])), to(index([7]))),
    "put": lambda x, to: x.put(to(index([[0, -1]])), to(X[1, :2])),
    "put-accumulate": lambda x, to: x.put(to(index([5, 5])), to(X[1, :2]), True),
    "put-count": lambda x, to: x.put(to(index([5, 5])), to(X[1, :1])),
    "put-dtype": lambda x, to: x.put(to(index([5])), to(index([5]))),
    "index_put": lambda x, to: x.index_put((to(index([2, 0])),), to(X[0])),
    "index_put-0d": lambda x, to: x.index_put((to(index(2)), to(index([1, 2]))), to(X[0, 0])),
    "index_put-two": lambda x, to: x.index_put(
        (to(index([[2], [0]])), to(index([-1, 2]))), to(X[0, :2])
    ),
    "index_put-add": lambda x, to: x.index_put(
        (to(index([2, 2, 0])), to(index([3, 3, 3]))), to(X[0, :3]), accumulate=True
    ),
    "index_put-mask": lambda x, to: x.index_put((to(X > 4),), to(X[0, :2])),
    "index_put-dtype": lambda x, to: x.index_put((to(index([2])),), to(index(1))),
    "index_put-shape": lambda x, to: x.index_put((to(index([2])),), to(X[:2])),
    "index_put-longer": lambda x, to: x.index_put((to(index([2])),), to(X[:1, None])),
    "index_put-many": lambda x, to: x.index_put((to(index([2])),) * 3, to(X[0, 0])),
    "masked_fill": lambda x, to: x.masked_fill(to(truths([True, False, False, True])), 2),
    "masked_fill-broadcasts": lambda x, to: x[0].masked_fill(to(truths([[True], [False]])), 2),
    "masked_fill-0d": lambda x, to: x.masked_fill(to(X > 0), to(index(4))),
    "masked_fill-into-ints": lambda x, to: to(index([1, 2])).masked_fill(to(truths(True)), 2.5),
    "masked_fill-beyond": lambda x, to: to(index([1], dtype=torch.uint8)).masked_fill(
        to(truths(True)), 300
    ),
    "masked_fill-1d": lambda x, to: x.masked_fill(to(X > 0), to(index([4]))),
    "masked_fill-uint8": lambda x, to: x.masked_fill(to(index([1], dtype=torch.uint8)), 4),
    "masked_scatter": lambda x, to: x.masked_scatter(to(X > 0), to(X)),
    "masked_scatter-broadcasts": lambda x, to: x.masked_scatter(to(X[:, :1] > -3), to(X)),
    "masked_scatter-dtype": lambda x, to: x.masked_scatter(to(X > 0), to(index([4]))),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_call(call):
    try:
        expected = call(X, lambda x: x)
    except (RuntimeError, IndexError, TypeError) as error:
        kinds = [kind for kind in (IndexError, TypeError, RuntimeError) if isinstance(error, kind)]
        with pytest.raises(kinds[0]):
            call(ours(X), ours)
        return

    found = call(ours(X), ours)

    assert found.dtype.name == str(expected.dtype).removeprefix("torch.")
    assert found.shape == tuple(expected.shape)
    assert found.tolist() == expected.tolist()


# Folds, with duplicates.
ROWS = index([[0, 3, 0, 1, 3, 3], [2, 2, 2, 2, 2, 0]])
VALUES = torch.tensor([[2.0, 0, -3, 4, 5, 5], [0.0, 2, 0, 1, 1, 7]])
START = torch.tensor([[2.0, -1, 3, 5], [7.0, 1, 0, -2]])
DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int8, torch.bool]
KINDS = ["sum", "prod", "mean", "amax", "amin"]


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_scatter_reduce(dtype, kind, include_self):
    x, values = START.to(dtype), VALUES.to(dtype)
    if kind == "mean" and dtype is torch.bool:
        pytest.skip("bools have no mean in PyTorch either")

    found = ours(x).scatter_reduce(1, ours(ROWS), ours(values), kind, include_self=include_self)

    # PyTorch rounds halves after each step: the reference computes in float32 and rounds once.
    widened = torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
    wide = x.to(widened).scatter_reduce(
        1, ROWS, values.to(widened), kind, include_self=include_self
    )
    assert found.tolist() == wide.to(dtype).tolist()


GRADIENTS = {
    "put": lambda x, v, at: x.scatter(1, at(index([[2, 0, 3], [1, 0, 2]])), v[:, :3]),
    "put-some-rows": lambda x, v, at: x.scatter(1, at(index([[2, 0, 3]])), v[:1, :3]),
    "value": lambda x, v, at: x.scatter(1, at(index([[2], [1]])), 3.0),
    "add": lambda x, v, at: x.scatter_add(1, at(ROWS), v),
    "add-some-rows": lambda x, v, at: x.scatter_add(1, at(ROWS[:1]), v[:1]),
    "index_add": lambda x, v, at: x.index_add(0, at(index([1, 1])), v[:, :4], alpha=3),
    "index_copy": lambda x, v, at: x.index_copy(1, at(index([3, 1])), v[:, :2]),
    "index_fill": lambda x, v, at: x.index_fill(1, at(index([3, 1])), 2.0),
    "put-flat": lambda x, v, at: x.put(at(index([3, 1, -1])), v[0, :3]),
    "put-flat-add": lambda x, v, at: x.put(at(index([3, 3, -1])), v[0, :3], True),
    "index_put": lambda x, v, at: x.index_put((at(index([0, 1])), at(index([2, 2]))), v[:, 0]),
    "index_put-spread": lambda x, v, at: x.index_put((at(index([0, 1])),), v[0, :4]),
    "index_put-0d": lambda x, v, at: x.index_put((at(index(1)), at(index([2, 3]))), v[0, :2]),
    "index_put-add": lambda x, v, at: x.index_put(
        (at(index([1, 1])), at(index([2, 2]))), v[:, 0], accumulate=True
    ),
    "masked_fill": lambda x, v, at: x.masked_fill(at(START > 2), 3.0),
    "masked_fill-0d": lambda x, v, at: x.masked_fill(at(START > 2), v[0, 0]),
    "masked_scatter": lambda x, v, at: x.masked_scatter(at(START > 2), v),
    **{
        f"{kind}-{include_self}": lambda x, v, at, kind=kind, own=include_self: x.scatter_reduce(
            1, at(ROWS), v, kind, include_self=own
        )
        for kind in KINDS
        for include_self in (True, False)
    },
}
# PyTorch counts the element of self among those that share the extreme even where it is not
# included, and refuses the gradient of a product of several zeros.
TIES_DIFFER = {"amax-False": (1, 2), "amin-False": (0, 0)}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16], ids=str)
@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(name, dtype):
    call = GRADIENTS[name]
    values = VALUES + 8 * (VALUES == 0) if name.startswith("prod") else VALUES
    start = START + 16 if name in TIES_DIFFER else START
    scale = torch.tensor([1.0, 2, 4, 8])
    theirs = [each.to(torch.float64).requires_grad_() for each in (start, values)]
    (call(*theirs, lambda i: i) * scale).sum().backward()

    leaves = [ours(each.to(dtype)).requires_grad_() for each in (start, values)]
    (call(*leaves, ours) * ours(scale.to(dtype))).sum().backward()

    for leaf, expected in zip(leaves, theirs, strict=True):
        gradient = expected.grad
        if gradient is None:
            assert leaf.grad is None
            continue
        # Small integers, thirds and sevenths: two roundings at the most, one of float64's own.
        allowed = 2 * leaf.dtype.epsilon * gradient.abs().max().item()
        assert leaf.grad.dtype is leaf.dtype
        assert abs(leaf.grad.double().numpy() - gradient.numpy()).max() <= allowed


def test_a_product_with_zeros_has_a_gradient():
    x, values = START.double(), VALUES.double().requires_grad_()
    single = torch.tensor([[2.0, 0, -3, 4, 5, 5], [4.0, 2, 0, 1, 1, 7]]).double().requires_grad_()
    x.scatter_reduce(1, ROWS, single, "prod").sum().backward()

    leaf = ours(single.detach()).requires_grad_()
    ours(x).scatter_reduce(1, ours(ROWS), leaf, "prod").sum().backward()

    assert leaf.grad.tolist() == single.grad.tolist()
    assert dtypes.float64 is leaf.grad.dtype
    assert values.grad is None


def test_second_gradients():
    def bent(x, v, at):
        return (x.scatter_add(1, at(ROWS), v * v) * x).sum()

    theirs = [each.double().requires_grad_() for each in (START, VALUES)]
    first = torch.autograd.grad(bent(*theirs, lambda i: i), theirs, create_graph=True)
    sum((each * each).sum() for each in first).backward()

    leaves = [ours(each.detach()).requires_grad_() for each in theirs]
    ours_first = autograd.grad(bent(*leaves, ours), leaves, create_graph=True)
    sum((each * each).sum() for each in ours_first).backward()

    for leaf, expected in zip(leaves, theirs, strict=True):
        assert leaf.grad.tolist() == expected.grad.tolist()
