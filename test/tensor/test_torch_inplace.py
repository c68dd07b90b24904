"""Views and writes are PyTorch's: what aliases, under which strides, and what each alias reads."""

import random

import numpy as np
import pytest

import tinytensor
from tinytensor import Tensor
from tinytensor.config import config

torch = pytest.importorskip("torch")

REFUSALS = (RuntimeError, IndexError, TypeError, ValueError)
LAYOUTS = {
    "whole": lambda x: x,
    "transposed": lambda x: x.transpose(0, 2),
    "strided": lambda x: x[1:, ::2],
    "expanded": lambda x: x[:, :1].expand(-1, 3, -1),
    "thin": lambda x: x[:, 1:2, :],
    "row": lambda x: x[1, 2],
    "single": lambda x: x[1, 2, 3],
    "empty": lambda x: x[:, 2:2],
}
VIEWS = {
    **{f"reshape{s}": lambda x, s=s: x.reshape(s) for s in [(-1,), (4, 6), (2, 3, 2, 2), (1, -1)]},
    **{f"view{s}": lambda x, s=s: x.view(s) for s in [(-1,), (4, 6), (2, 1, 12), (1, -1, 1)]},
    "view_same": lambda x: x.view(x.shape),
    "view_as": lambda x: x.view_as(x),
    "reshape_as": lambda x: x.reshape_as(x),
    "flatten": lambda x: x.flatten(),
    "flatten_end": lambda x: x.flatten(-2),
    "flatten_one": lambda x: x.flatten(-1),
    "ravel": lambda x: x.ravel(),
    "squeeze": lambda x: x.squeeze(),
    "squeeze_one": lambda x: x.squeeze(-1),
    "unsqueeze": lambda x: x.unsqueeze(0),
    "unsqueeze_end": lambda x: x.unsqueeze(-1),
    "unsqueeze_in": lambda x: x.unsqueeze(1),
    "permute": lambda x: x.permute(*range(x.ndim)[::-1]),
    "transpose": lambda x: x.transpose(0, -1),
    "mT": lambda x: x.mT,
    "t": lambda x: x.t(),
    "swapaxes": lambda x: x.swapaxes(0, 1),
    "movedim": lambda x: x.movedim(0, -1),
    "unflatten": lambda x: x.unflatten(-1, (2, -1)),
    "unflatten_first": lambda x: x.unflatten(0, (1, -1)),
    "expand": lambda x: x.expand(2, *x.shape),
    "expand_1": lambda x: x.expand(1, *x.shape),
    "expand_as": lambda x: x.expand_as(x),
    "broadcast_to": lambda x: x.broadcast_to((1, 2, *x.shape)),
    "narrow": lambda x: x.narrow(0, 1, 1),
    "select": lambda x: x.select(-1, 1),
    "split": lambda x: x.split(1)[-1],
    "chunk": lambda x: x.chunk(2, -1)[-1],
    "unbind": lambda x: x.unbind(-1)[-1],
    "diagonal": lambda x: x.diagonal(),
    "diagonal_up": lambda x: x.diagonal(1, 0, -1),
    "diagonal_down": lambda x: x.diagonal(-1, -1, 0),
    "unfold_apart": lambda x: x.unfold(-1, 2, 2),
    "unfold_gaps": lambda x: x.unfold(0, 1, 2),
    "unfold_one": lambda x: x.unfold(0, 1, 1),
    "item": lambda x: x[0],
    "slices": lambda x: x[..., 1::2],
    "none": lambda x: x[None, 1:, None],
    "none_end": lambda x: x[0, ..., None],
    "beyond": lambda x: x[9:],
    "ellipsis": lambda x: x[...],
    "detach": lambda x: x.detach(),
    "data": lambda x: x.data,
    "contiguous": lambda x: x.contiguous(),
    "to": lambda x: x.to(x.dtype),
    "atleast": lambda x: x[0].unsqueeze(0),
}
COPIES = {
    "clone": lambda x: x.clone(),
    "flip": lambda x: x.flip(0),
    "roll": lambda x: x.roll(0, 0),
    "roll_flat": lambda x: x.roll(0),
    "roll_1": lambda x: x.roll(1, 0),
    "rot90": lambda x: x.rot90(0) if x.ndim > 1 else x.flip(0),
    "repeat": lambda x: x.repeat(*[1] * x.ndim),
    "tile": lambda x: x.tile((1,)),
    "interleave": lambda x: x.repeat_interleave(1, 0),
    "interleave_2": lambda x: x.repeat_interleave(2, -1),
    "add": lambda x: x + 0,
    "abs": lambda x: x.abs(),
    "floor": lambda x: x.floor(),
    "tril": lambda x: x.tril(9),
    "double": lambda x: x.double(),
}


NEED_AN_AXIS = {"permute", "mT", "unflatten_first", "repeat", "interleave", "interleave_2"}


def grid(functions):
    """Each function with each layout; a 0-d tensor only where PyTorch has no case of its own."""
    return [
        pytest.param(function, layout, id=f"{name}-{kind}")
        for name, function in functions.items()
        for kind, layout in LAYOUTS.items()
        if kind != "single" or name not in NEED_AN_AXIS
    ]


def both(shape=(2, 3, 4)):
    values = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    return Tensor(values), torch.from_numpy(values.copy())


def outcome(call, *arguments):
    try:
        return call(*arguments)
    except REFUSALS as error:
        return error


def facts(x):
    return (tuple(x.shape), tuple(x.stride()), x.storage_offset(), x.is_contiguous())


def alias_facts(base, seen):
    """Facts of a view, and whether a write to it reaches its base."""
    layout = facts(seen)
    if isinstance(outcome(seen.add_, 100.0), Exception):
        return layout, "refused", base.tolist()
    return layout, seen.tolist(), base.tolist()


@pytest.fixture(autouse=True)
def _python_device():
    with config(device="PYTHON"):
        yield


@pytest.mark.parametrize(("view", "layout"), grid(VIEWS))
def test_a_view_aliases_under_the_same_strides(view, layout):
    ours, theirs = both()
    mine, reference = outcome(view, layout(ours)), outcome(view, layout(theirs))
    if isinstance(reference, Exception):
        assert isinstance(mine, REFUSALS)
        return

    assert alias_facts(ours, mine) == alias_facts(theirs, reference)


@pytest.mark.parametrize(("copy", "layout"), grid(COPIES))
def test_a_copy_leaves_its_source_alone(copy, layout):
    ours, theirs = both()
    mine, reference = outcome(copy, layout(ours)), outcome(copy, layout(theirs))
    if isinstance(reference, Exception):
        assert isinstance(mine, REFUSALS)
        return

    mine += 100
    reference += 100
    assert (mine.tolist(), ours.tolist()) == (reference.tolist(), theirs.tolist())


def apart(x):
    """What PyTorch reads from memory that it writes must be copied before; here nothing need."""
    return x.clone() if isinstance(x, torch.Tensor) else x


WRITES = (
    lambda x, y: x.add_(3),
    lambda x, y: x.mul_(-2),
    lambda x, y: x.add_(y, alpha=2),
    lambda x, y: x.sub_(y),
    lambda x, y: x.mul_(y),
    lambda x, y: x.copy_(y),
    lambda x, y: x.copy_(apart(x.T if x.ndim == 2 and len({*x.shape}) == 1 else x)),
    lambda x, y: x.zero_(),
    lambda x, y: x.fill_(5),
    lambda x, y: x.neg_(),
    lambda x, y: x.clamp_(-3, 9),
    lambda x, y: x.gt_(y),
    lambda x, y: x.addcmul_(y, y),
    lambda x, y: x.__setitem__(0, y),
    lambda x, y: x.__setitem__((..., slice(1, None)), 7),
    lambda x, y: x.__setitem__(slice(None, None, 2), y),
    lambda x, y: x.__setitem__(slice(1, None), apart(x[:-1])),
    lambda x, y: x.__setitem__((..., 0), apart(x[..., -1])),
    lambda x, y: x.unsqueeze_(0),
    lambda x, y: x.transpose_(0, -1),
    lambda x, y: x.squeeze_(),
)
MAKERS = (
    *[lambda x, y, view=view: view(x) for name, view in VIEWS.items() if name not in NEED_AN_AXIS],
    *[lambda x, y: x + y, lambda x, y: x.clone(), lambda x, y: x.flip(-1)],
)


def run_program(seed):
    """Grow views of two tensors, write through them, and compare all that is alive."""
    chance = random.Random(seed)
    pairs = [both((2, 3, 4)), both((4, 4))]
    for _ in range(12):
        kind = chance.random()
        pair, (y, other) = chance.choice(pairs), chance.choice(pairs)
        if kind < 0.5:
            step(chance.choice(WRITES), pair, (y, apart(other)))
        else:
            step(chance.choice(MAKERS), pair, (y, other), pairs)
        if chance.random() < 0.2:
            mine, reference = chance.choice(pairs)
            assert mine.tolist() == reference.tolist()
    chance.shuffle(pairs)
    for mine, reference in pairs:
        assert facts(mine)[0] == facts(reference)[0]
        assert mine.tolist() == reference.tolist()


def step(function, pair, others, made=None):
    """Do the same with both; where PyTorch refuses, so must we."""
    ends = [outcome(function, *each) for each in zip(pair, others, strict=True)]
    assert isinstance(ends[0], REFUSALS) == isinstance(ends[1], REFUSALS), ends
    if isinstance(ends[1], REFUSALS):
        return
    if made is not None:
        made.append(tuple(ends))
    for each in pair if made is None else ():
        outcome(each.remainder_, 17)  # small whole numbers are exact in every order


@pytest.mark.parametrize("seed", range(100))
def test_all_aliases_read_what_was_written(seed):
    run_program(seed)


def leaf(values):
    arrays = np.array(values, np.float32)
    return Tensor(arrays, requires_grad=True), torch.tensor(arrays, requires_grad=True)


def grad_of_part(x):
    y = x * 2
    y[1:] *= x[:-1]
    return y


def grad_of_diagonal(x):
    y = x.outer(x)
    y.diagonal().mul_(3)
    y[0] = x
    return y


def grad_of_constant(x):
    y = x * 3
    y[0] = 5
    y.view(3).add_(x)
    return y


def grad_of_buffer(x):
    y = (x * 0).detach()
    y[1:] = x[1:] * x[1:]
    y += x
    return y


def grad_of_view(x):
    y = x * x
    part = y[1:]
    y.mul_(x)
    return part * part


def grad_of_base(x):
    y = x * x
    y[1:].sin_()
    y.view(-1, 1).squeeze(1).mul_(y[0].clone())
    return y


def grad_of_copy(x):
    y = x.clone()
    y.copy_(x.flip(0) * x)
    y.clamp_(0, 4).sqrt_()
    return y


GRADIENTS = [
    grad_of_part,
    grad_of_diagonal,
    grad_of_constant,
    grad_of_buffer,
    grad_of_view,
    grad_of_base,
    grad_of_copy,
]


@pytest.mark.parametrize("function", GRADIENTS)
def test_gradients_pass_through_writes(function):
    ours, theirs = leaf([1.0, 2.0, 0.5])
    ways = np.array([1.0, -2.0, 3.0], np.float32)
    mine, reference = function(ours), function(theirs)

    (mine * Tensor(ways)[-mine.shape[-1] :]).sum().backward()
    (reference * torch.tensor(ways)[-reference.shape[-1] :]).sum().backward()

    np.testing.assert_allclose(ours.grad.numpy(), theirs.grad.numpy(), rtol=2e-6)
    np.testing.assert_allclose(mine.detach().numpy(), reference.detach().numpy(), rtol=1e-6)


@pytest.mark.parametrize(
    "write",
    [
        lambda x: x.add_(1),
        lambda x: x[0].add_(1),
        lambda x: x.view(-1).mul_(2),
        lambda x: x.zero_(),
        lambda x: x.__setitem__(0, 1.0),
        lambda x: x.copy_(x * 2),
        lambda x: x.unsqueeze_(0),
        lambda x: x.expand(2, 3).add_(1),
        lambda x: (x * 1).expand(2, 3).add_(1),
        lambda x: (x * 1).add_(x.expand(2, 3)),
        lambda x: x.detach().int().add_(1.5),
        lambda x: x.detach().bool().add_(1),
        lambda x: x.detach().long().exp_(),
        lambda x: x.detach().add_(x),
        lambda x: x.detach().long().fill_(2.7),
        lambda x: x.detach().long().copy_(x.detach()),
        lambda x: x.detach().long().eq_(2),
        lambda x: x.detach().half().add_(x.detach().double()),
    ],
)
def test_what_is_refused_is_refused_here_too(write):
    ours, theirs = (outcome(write, each) for each in leaf([1.0, 2.0, 3.0]))

    assert isinstance(ours, REFUSALS) == isinstance(theirs, REFUSALS), (ours, theirs)
    if isinstance(theirs, torch.Tensor):
        assert str(ours.dtype.name) == str(theirs.dtype).removeprefix("torch.")
        assert ours.tolist() == theirs.tolist()
        assert (ours.requires_grad, ours.is_leaf) == (theirs.requires_grad, theirs.is_leaf)


def descend(x, package):
    """Three steps of a descent that updates in place, and what the leaf is afterwards."""
    for _ in range(3):
        (x * x * x).sum().backward()
        with package.no_grad():
            x -= 0.125 * x.grad
            x.grad.zero_()
    x.detach()[0] = 7
    x.data.view(3)[1:].mul_(2)
    return x


def test_a_leaf_that_is_updated_stays_one():
    ours, theirs = leaf([1.0, 0.5, -0.25])
    before = ours

    ours, theirs = descend(ours, tinytensor), descend(theirs, torch)

    assert ours is before
    assert ours.tolist() == theirs.tolist()
    assert ours.is_leaf
    assert ours.requires_grad
    (ours * 2).sum().backward()
    assert ours.grad.tolist() == [2.0, 2.0, 2.0]


def test_without_gradients_a_computed_tensor_keeps_its_gradient():
    ours, theirs = leaf([1.0, 2.0])
    ends = []
    for x, package in ((ours, tinytensor), (theirs, torch)):
        y = x * 3
        with package.no_grad():
            y[0] = 50
            y.mul_(2)
        y.sum().backward()
        ends.append((y.tolist(), x.grad.tolist()))

    assert ends[0] == ends[1] == ([100.0, 12.0], [3.0, 3.0])


def test_data_may_be_replaced():
    for x in leaf([1.0, 2.0]):
        other = (x * 5).detach()
        x.data = other
        other[0] = 9

        assert x.tolist() == [9.0, 10.0]
        assert x.is_leaf
        assert x.requires_grad
        (x * x).sum().backward()
        assert x.grad.tolist() == [18.0, 20.0]


def test_an_alias_of_a_leaf_may_require_a_gradient_of_its_own():
    for x in leaf([1.0, 2.0]):
        y = x.detach().requires_grad_()
        (y * x).sum().backward()
        y.detach().zero_()

        assert x.grad.tolist() == y.grad.tolist() == [1.0, 2.0]
        assert x.tolist() == [0.0, 0.0]
        y.requires_grad_(False)
        assert not y.requires_grad
        assert x.requires_grad


def test_a_gradient_is_added_to_in_place():
    for x in leaf([1.0, 2.0]):
        (x * x).sum().backward()
        grad = x.grad
        (x * 3).sum().backward()

        assert grad.tolist() == [5.0, 7.0]
