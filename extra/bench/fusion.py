"""Compares kernels that share rows with ones that do not: `python -m extra.bench.fusion CPU`.

The same graphs are scheduled at TT_FUSE=2 and at TT_FUSE=1, and the launches of each are run again
and again, in turns, without what the host does before them: on the CPU, or on CUDA.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from extra.bench.gpu.launches import Launch, Timed, recorded, run_all
from tinytensor import Tensor, config
from tinytensor.nn import functional as F
from tinytensor.nn.parameter import Parameter
from tinytensor.optim import AdamW
from tinytensor.runtime.device import AnyDevice, Device

FUSED, UNFUSED = 2, 1  # levels of TT_FUSE
ROUNDS = 15
ROUND_SECONDS = 5e-3
MOST_CALLS = 256
SLOWER = 1.02  # times that differ by less are the same
CLOSE = 1e-3  # of the greatest value: sums of another order

Call = Callable[[], Sequence[Tensor]]
HostArray = npt.NDArray[Any]


class Clocked(Protocol):
    """Calls whose time can be taken again and again. Units: µs a call."""

    def device_us(self) -> float:
        """Run a batch; return the time of one call."""


@dataclass(frozen=True, slots=True)
class Size:
    """How large the operands are; `hidden` is the inner width of a perceptron."""

    rows: int
    columns: int
    hidden: int


@dataclass(frozen=True, slots=True)
class TimedOnHost:
    """Launches on the CPU, timed by what the process spends on them."""

    device: AnyDevice
    launches: Sequence[Launch]
    calls: int

    def device_us(self) -> float:
        """Run all calls; return the time of one."""
        start = time.process_time_ns()
        for _ in range(self.calls):
            run_all(self.device, self.launches)
        return (time.process_time_ns() - start) / 1e3 / self.calls


# The works: each makes operands and gives what a call computes from them.
def drawn(*shape: int) -> Tensor:
    """Make an operand from the normal distribution, in memory."""
    random = np.random.default_rng(len(shape))
    return Tensor(random.standard_normal(shape).astype(np.float32)).realize()


def differentiated(f: Callable[..., Tensor], upstream: Tensor, *operands: Tensor) -> Call:
    """Give the gradients of a function by its operands."""
    leaves = [each.requires_grad_() for each in operands]

    def call() -> Sequence[Tensor]:
        for each in leaves:
            each.grad = None
        f(*leaves).backward(upstream)
        return [each.grad for each in leaves if each.grad is not None]

    return call


def softmax(size: Size) -> Call:
    """Take the softmax of each row."""
    x = drawn(size.rows, size.columns)
    return lambda: [x.softmax(-1)]


def residual_norm(size: Size) -> Call:
    """Add, normalize each row, clip."""
    x, y = drawn(size.rows, size.columns), drawn(size.rows, size.columns)
    width, weight, bias = (size.columns,), drawn(size.columns), drawn(size.columns)
    return lambda: [F.layer_norm(x + y * 0.5, width, weight, bias).relu()]


def cross_entropy(size: Size) -> Call:
    """Take the cross entropy of class indices."""
    x = drawn(size.rows, size.columns)
    classes = Tensor(np.arange(size.rows) % size.columns).realize()
    return lambda: [F.cross_entropy(x, classes)]


def norm_gradients(size: Size) -> Call:
    """Differentiate the normalization of each row."""
    upstream, x = drawn(size.rows, size.columns) * 0.5, drawn(size.rows, size.columns)
    width, weight, bias = (size.columns,), drawn(size.columns), drawn(size.columns)
    return differentiated(
        lambda *each: F.layer_norm(each[0], width, *each[1:]), upstream.realize(), x, weight, bias
    )


def softmax_gradient(size: Size) -> Call:
    """Differentiate the softmax of each row."""
    upstream, x = drawn(size.rows, size.columns) * 0.5, drawn(size.rows, size.columns)
    return differentiated(lambda x: x.softmax(-1), upstream.realize(), x)


def perceptron(size: Size) -> Call:
    """Normalize, widen, narrow, beside what it came from: half a transformer's block."""
    rows, width = size.rows // 4, size.columns // 4
    x, up, down = drawn(rows, width), drawn(size.hidden, width), drawn(width, size.hidden)
    weight, bias = drawn(width), drawn(width)

    def call() -> Sequence[Tensor]:
        normal = F.layer_norm(x, (width,), weight, bias)
        return [x + F.linear(F.gelu(F.linear(normal, up)), down)]

    return call


def adamw(size: Size) -> Call:
    """Move weights as AdamW does."""
    weights = [Parameter(drawn(size.rows, size.columns // 4)) for _ in range(4)]
    gradients = [drawn(*each.shape) * 0.5 for each in weights]
    gradients[0].realize(*gradients[1:])
    optimizer = AdamW(weights, lr=1e-3)

    def call() -> Sequence[Tensor]:
        for weight, gradient in zip(weights, gradients, strict=True):
            weight.grad = gradient
        optimizer.step()
        return []

    return call


WORKS: dict[str, Callable[[Size], Call]] = {
    "softmax": softmax,
    "layer_norm+residual+relu": residual_norm,
    "cross_entropy": cross_entropy,
    "layer_norm backward": norm_gradients,
    "softmax backward": softmax_gradient,
    "MLP block": perceptron,
    "AdamW step": adamw,
}
SIZES = {"CPU": Size(1024, 1024, 1024), "CUDA": Size(8192, 4096, 4096)}


def main(name: str = "CPU", *works: str) -> int:
    """Print both times of each work; give 1 when a fused one is slower, or another value."""
    config.device = name
    device, size = Device[name], SIZES[name]
    head = f"µs on {name}"
    print(f"{head:26}{'fused':>10}{'unfused':>10}{'unfused / fused':>17}{'launches':>12}")
    is_good = True
    for work in works or WORKS:
        line, is_fine = compare(work, WORKS[work](size), device)
        print(line, flush=True)
        is_good &= is_fine
    return 0 if is_good else 1


def compare(name: str, call: Call, device: AnyDevice) -> tuple[str, bool]:
    """Measure a work at both levels; return its line of the table, and whether fusing is right."""
    fused, unfused = (launches_of(call, device, level) for level in (FUSED, UNFUSED))
    is_same = all(map(is_close, fused.values, unfused.values))
    clocks = [clocked(device, each.launches) for each in (fused, unfused)]
    rounds = [[each.device_us() for each in clocks] for _ in range(ROUNDS)]
    first, second = (median(times) for times in zip(*rounds, strict=True))
    ratio = median(each[1] / each[0] for each in rounds)
    counts = f"{len(fused.launches)} / {len(unfused.launches)}"
    verdict = "" if is_same else "  wrong"
    if ratio * SLOWER < 1:
        verdict += "  slower"
    line = f"{name:26}{first:10.1f}{second:10.1f}{ratio:17.2f}{counts:>12}{verdict}"
    return line, not verdict


@dataclass(frozen=True, slots=True)
class Recorded:
    """What a call launched, and what it gave."""

    launches: list[Launch]
    values: list[HostArray]


def launches_of(call: Call, device: AnyDevice, level: int) -> Recorded:
    """Run a call at a level of TT_FUSE, compiled before, and record it."""
    with config(fuse=level):
        _realized(call())
        with recorded(device) as launches:
            found = _realized(call())
        kept = list(launches)
        return Recorded(kept, [each.detach().numpy() for each in found])


def _realized(tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    if tensors:
        tensors[0].realize(*tensors[1:])
    return tensors


def is_close(x: HostArray, y: HostArray) -> bool:
    """Whether two results are the same but for the order of their sums."""
    return bool(np.abs(x - y).max() <= CLOSE * np.abs(y).max())


def clocked(device: AnyDevice, launches: Sequence[Launch]) -> Clocked:
    """Make a batch of calls that takes a while."""
    once = TimedOnHost(device, launches, 1)
    if device.name == "CPU":
        calls = round(ROUND_SECONDS * 1e6 / max(once.device_us(), once.device_us(), 1.0))
        return TimedOnHost(device, launches, min(max(calls, 1), MOST_CALLS))
    return Timed(device, [launches], 16)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
