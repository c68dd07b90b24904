"""Compares the peak memory of tinytensor and PyTorch: `python -m extra.bench.memory [NAME ...]`.

Both count what lies in memory at once, operands included: ours as its allocator does, PyTorch's by
following every storage that an operation returns. What a library uses inside an operation is not
seen of PyTorch; of ours it is, but for the scratch memory of contractions, which stays.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

import tinytensor
from extra.bench.memory_works import WORKS, Array, Asked, Functions, Work
from tinytensor import Device, Tensor, autograd
from tinytensor.lazy import lazy_import
from tinytensor.linalg.einsum import einsum
from tinytensor.nn import functional

STEP_LENGTH = 0.01

HostArray = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Measured:
    """The most that lay in memory at once, and the results. Units: bytes."""

    peak: int
    results: list[HostArray]


class Named:
    """Functions by name: those given, and those of a module."""

    def __init__(self, module: ModuleType, **functions: Callable[..., Array]) -> None:
        self._module = module
        self._functions = functions

    def __getattr__(self, name: str) -> Callable[..., Array]:
        return self._functions.get(name) or getattr(self._module, name)


OURS = Named(
    functional,
    cat=Tensor.cat,
    einsum=einsum,
    checkpoint=autograd.checkpoint,
    no_grad=tinytensor.no_grad,
)


def main(names: Sequence[str]) -> int:
    """Print both peaks of each work; give 1 when one of ours is above PyTorch's."""
    print(f"{'MB':24}{'tinytensor':>12}{'torch':>12}{'ratio':>8}")
    is_good = True
    for work in [each for each in WORKS if not names or each.name in names]:
        ours, theirs = measure_ours(work), measure_torch(work)
        ratio = ours.peak / theirs.peak
        is_good &= ours.peak <= theirs.peak
        peaks = f"{ours.peak / 1e6:12.2f}{theirs.peak / 1e6:12.2f}{ratio:8.3f}"
        print(f"{work.name:24}{peaks}", flush=True)
    return 0 if is_good else 1


def operands_of(work: Work) -> list[HostArray]:
    """Make operands from the normal distribution; the last holds no negative ones, or classes."""
    random = np.random.default_rng(0)
    arrays = [random.standard_normal(shape).astype(np.float32) for shape in work.shapes]
    arrays[-1] = np.abs(arrays[-1])
    if work.classes:
        arrays[-1] = random.integers(0, work.classes, work.shapes[-1])
    return arrays


def has_gradient(work: Work, number: int, array: HostArray) -> bool:
    """Whether a gradient with respect to an operand is asked for."""
    return work.asked is not Asked.RESULTS and number > 0 and array.dtype == np.float32


def results_of(work: Work, functions: Functions, operands: Sequence[Array]) -> list[Array]:
    """Compute what a work asks for, in either library."""
    found = work.formula(functions, *operands)
    if work.asked is Asked.RESULTS:
        return list(found) if isinstance(found, list) else [found]
    (found * found).mean().backward()
    moved = [each for each in operands if each.requires_grad]
    if work.asked is Asked.GRADIENTS:
        return [each.grad for each in moved]
    with functions.no_grad():
        for each in moved:
            each -= each.grad * STEP_LENGTH
            each.grad = None
    return [each.detach() for each in moved]


def build_ours(work: Work) -> list[Tensor]:
    """Build the results of a work, on the CPU, and compute none."""
    operands = [
        Tensor(each, device="CPU", requires_grad=has_gradient(work, number, each))
        for number, each in enumerate(operands_of(work))
    ]
    return results_of(work, OURS, operands)


def measure_ours(work: Work) -> Measured:
    """Run a work twice on the CPU, the second time with the scratch memory there, and measure."""
    run_ours(work)
    return run_ours(work)


def run_ours(work: Work) -> Measured:
    """Run a work once on the CPU and measure."""
    device = Device["CPU"]
    gc.collect()
    before = device.memory().allocated
    device.reset_peak()
    found = build_ours(work)
    found[0].realize(*found[1:])
    return Measured(device.memory().peak - before, [each.numpy() for each in found])


def measure_torch(work: Work) -> Measured:
    """Run a work in PyTorch and measure."""
    torch = lazy_import("torch", None, "bench")
    functions = Named(
        torch.nn.functional,
        cat=torch.cat,
        einsum=torch.einsum,
        no_grad=torch.no_grad,
        checkpoint=lambda *each: lazy_import("torch.utils.checkpoint", None, "bench").checkpoint(
            *each, use_reentrant=False
        ),
    )
    operands = [
        torch.tensor(each, requires_grad=has_gradient(work, number, each))
        for number, each in enumerate(operands_of(work))
    ]
    tracker = lazy_import("extra.bench.memory_of_torch", None, "bench").StorageTracker()
    for each in operands:
        tracker.see(each)
    with tracker:
        found = results_of(work, functions, operands)
    return Measured(tracker.peak, [each.detach().numpy() for each in found])


if __name__ == "__main__":
    tinytensor.config.device = "CPU"
    sys.exit(main(sys.argv[1:]))
