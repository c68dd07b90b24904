"""Random programs of views, writes and gradients show what PyTorch shows, read in any order."""

import pytest
from fuzz.alias_programs import Grower, Run, show, shrink
from fuzz.test_aliasing import difference, look

import tinytensor
from tinytensor import config

torch = pytest.importorskip("torch")

IN_THE_SUITE = 300
ALL = 5000
# What only one of both refuses, in the words of its errors: see docs/numerics.md.
LICENSES = (
    "modified by an inplace operation",  # gradients see the values that their forward read
    "is a view and is being modified inplace",  # a view made without gradients
    "or bool with axes",  # masks without axes are refused here
    "not implemented for",  # PyTorch lacks a kernel
    "Autograd not support dtype",  # of integers that floats were written to
    "returned an invalid gradient",  # that of a scatter's source which is larger than its index
)


def look_at_torch(x, how):
    if how == "grad":
        x = torch.tensor([]) if x.grad is None else x.grad
    layout = (tuple(x.stride()), x.storage_offset(), x.is_contiguous())
    facts = (tuple(x.shape), str(x.dtype).removeprefix("torch."), *layout)
    return (*facts, x.requires_grad, x.is_leaf), x.detach().clone().numpy()


def look_at_ours(x, how):
    if how == "grad":
        x = tinytensor.tensor([]) if x.grad is None else x.grad
    facts, values = look(x, how)
    return (*facts, x.requires_grad, x.is_leaf), values


def in_rows(kind, x):
    """A fresh result in row-major order, which is the order that this package gives all."""
    return x.clone(memory_format=torch.contiguous_format) if kind == "fresh" else x


def fault_of(steps, device, fuse):
    expected = Run(torch, look_at_torch, in_rows).take_all(steps)
    with config(device=device, fuse=fuse):
        return difference(Run(tinytensor, look_at_ours).take_all(steps), expected, 7, LICENSES)


def check(seed, device, fuse):
    steps = Grower(seed, with_grads=seed % 2 == 1).steps
    if fault_of(steps, device, fuse):
        steps = shrink(steps, lambda each: fault_of(each, device, fuse))
        pytest.fail(f"seed {seed}\n{show(steps)}\n{fault_of(steps, device, fuse)}")


@pytest.mark.parametrize("first", range(0, IN_THE_SUITE, 20))
def test_programs_that_write_agree_with_torch(first):
    for seed in range(first, first + 20):
        check(seed, "PYTHON", seed // 2 % 4)


def test_programs_that_write_agree_with_torch_when_compiled(default_device):
    for seed in range(6):
        check(seed, default_device, seed // 2 % 4)


@pytest.mark.fuzz
@pytest.mark.parametrize("first", range(IN_THE_SUITE, ALL, 100))
def test_many_programs_that_write_agree_with_torch(first):
    for seed in range(first, first + 100):
        check(seed, "PYTHON", seed // 2 % 4)
