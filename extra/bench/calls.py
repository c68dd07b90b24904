"""Measures what a call costs besides its kernels: `python -m extra.bench.calls [--device CUDA]`.

relu(x @ x.T + 1) with n = 64 is called again and again, as it is and jitted; so are chains of sums
and products, two layers with their gradients, and a program of twelve kernels; a jitted function is
called with many sizes; and fresh processes import the package and give their first result. Every
result is checked against float64 first.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import TypeVar

import numpy as np

import extra.bench.one_thread  # noqa: F401 - before anything that imports NumPy
from tinytensor import Device, Tensor, config, jit
from tinytensor.jit.function import Jitted

N = 64
OPS = 4  # T, @, + and relu
CALLS = 8  # between two looks at the clock: so few that no other process takes part
WINDOWS = 2000
CHAINS = (1, 4, 10, 40)
TRAINED_OPS = 11  # two products, relu, square and mean; and for two gradients three products more
LAYERS = 12
ROWS, WIDTH = 8, 64
Chained = TypeVar("Chained", Tensor, np.ndarray)
SIZES = range(2, 202)
FRESH = """
import time
start = time.perf_counter()
import numpy as np
numpy_there = time.perf_counter()
from tinytensor import Device, Tensor
imported = time.perf_counter()
Device[{device!r}]
opened = time.perf_counter()
x = Tensor(np.ones((64, 64), np.float32), device={device!r})
(x @ x.T + 1).relu().numpy()
done = time.perf_counter()
print((imported - numpy_there) * 1e3, (opened - imported) * 1e3, (done - opened) * 1e3)
"""


def line(x: Tensor) -> Tensor:
    """Return the value that is computed."""
    return (x @ x.T + 1).relu()


def best_us(call: Callable[[], object]) -> float:
    """Return the least time of a call in many short windows. Units: us."""
    best = float("inf")
    for _ in range(WINDOWS):
        start = time.perf_counter()
        for _ in range(CALLS):
            call()
        best = min(best, time.perf_counter() - start)
    return best / CALLS * 1e6


def check(values: np.ndarray, operand: np.ndarray) -> None:
    """Raise ValueError where values are further from float64's than rounding explains."""
    wide = operand.astype(np.float64)
    expected = np.maximum(wide @ wide.T + 1, 0)
    bound = N * np.finfo(np.float32).eps * (np.abs(wide) @ np.abs(wide).T + 1)
    if not np.all(np.abs(values - expected) <= bound):
        raise ValueError("calls: a result is wrong; it must be within the bound.")


def warm_rows(device: str) -> Iterator[tuple[str, float]]:
    """Give the name and time of each way to call, in this process."""
    operand = np.random.default_rng(0).standard_normal((N, N)).astype(np.float32)
    x = Tensor(operand, device=device).realize()
    jitted = jit(line)
    for values in (line(x), jitted(x), jitted(x)):
        check(values.numpy(), operand)
    wait = Device[device].synchronize
    yield "graph alone", best_us(lambda: line(x))
    yield f"as it is {goal(OPS)}", best_us(lambda: line(x).realize())
    yield "jitted", best_us(lambda: jitted(x))
    yield "jitted, and waited for", best_us(lambda: (jitted(x), wait()))
    yield "its kernel alone", kernel_us(jitted, x)
    yield "numpy", best_us(lambda: np.maximum(operand @ operand.T + 1, 0))
    if find_spec("torch") is not None:
        yield from torch_rows(operand, device)


def goal(ops: int) -> str:
    """Say how many ops are called as they are, and how long that may take."""
    return f"({ops} ops: goal {40 + 5 * ops})"


def chain_rows(device: str) -> Iterator[tuple[str, float]]:
    """Give the time of so many sums and products of two matrices, as they are."""
    rng = np.random.default_rng(0)
    operands = [rng.standard_normal((ROWS, ROWS)).astype(np.float32) / 2 for _ in range(2)]
    x, y = (Tensor(each, device=device).realize() for each in operands)

    def chain(x: Chained, y: Chained, ops: int) -> Chained:
        for number in range(ops):
            x = x * y if number % 2 else x + y
        return x

    for ops in CHAINS:
        values = chain(x, y, ops).numpy()
        wide, steps = (each.astype(np.float64) for each in operands)
        bound = ops * np.finfo(np.float32).eps * chain(abs(wide), abs(steps), ops)
        if not np.all(abs(values - chain(wide, steps, ops)) <= bound):
            raise ValueError("calls: a result is wrong; it must be within the bound.")
        yield (
            f"chain, as it is {goal(ops)}",
            best_us(lambda ops=ops: chain(x, y, ops).realize()),
        )


def trained_rows(device: str) -> Iterator[tuple[str, float]]:
    """Give the time of two layers, a loss and their gradients, as they are."""
    rng = np.random.default_rng(0)
    x, a, b = (rng.standard_normal((N, N)).astype(np.float32) / 8 for _ in range(3))
    operand = Tensor(x, device=device).realize()
    weights = [Tensor(each, device=device, requires_grad=True).realize() for each in (a, b)]

    def train() -> Tensor:
        for each in weights:
            each.grad = None
        loss = ((operand @ weights[0]).relu() @ weights[1]).square().mean()
        loss.backward()
        return loss.realize(*[each.grad for each in weights])

    train()
    x, a, b = (each.astype(np.float64) for each in (x, a, b))
    hidden = np.maximum(x @ a, 0)
    upstream = 2 * (hidden @ b) / N**2
    for weight, wanted in zip(
        weights, (x.T @ (upstream @ b.T * (hidden > 0)), hidden.T @ upstream), strict=True
    ):
        error = np.abs(weight.grad.numpy() - wanted).max()
        if error > 4 * N * np.finfo(np.float32).eps * np.abs(wanted).max():
            raise ValueError("calls: a gradient is wrong; it must be within the bound.")
    yield f"two layers and gradients {goal(TRAINED_OPS)}", best_us(train)


def kernel_us(jitted: Jitted, x: Tensor) -> float:
    """Return what the one call into the device takes, with all that Python does left out."""
    (entries,) = jitted._entries.values()
    replay = entries[0].program.in_place.replay
    (call,) = replay.calls
    memory = x.cell.memory
    held = [take() for take in replay.takers]
    given = call.pick([memory.address, *[each.address for each in held], 0])
    if call.start.launcher.workspace is not None:
        given = (*given, call.start.launcher.workspace())
    start = call.start.launcher.start
    return best_us(lambda: start(*given))


def layers_rows(device: str) -> Iterator[tuple[str, float]]:
    """Give the time of a program of twelve small kernels, as it is and jitted, and of others'."""
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((WIDTH, WIDTH)).astype(np.float32) / 8 for _ in range(LAYERS)]
    operand = rng.standard_normal((ROWS, WIDTH)).astype(np.float32)
    weights = [Tensor(each, device=device).realize() for each in arrays]

    def network(x: Tensor) -> Tensor:
        for weight in weights:
            x = (x @ weight).relu()
        return x

    def expected(x: np.ndarray) -> np.ndarray:
        for array in arrays:
            x = np.maximum(x @ array, 0)
        return x

    x, jitted = Tensor(operand, device=device).realize(), jit(network)
    wanted = expected(operand.astype(np.float64))
    for values in (network(x), jitted(x), jitted(x), jitted(x)):
        error = np.abs(values.numpy() - wanted).max()
        if error > LAYERS * WIDTH * np.finfo(np.float32).eps * max(1, np.abs(wanted).max()):
            raise ValueError("calls: a result is wrong; it must be within the bound.")
    wait = Device[device].synchronize
    name = f"{LAYERS} kernels"
    yield f"{name}, as it is", best_us(lambda: network(x).realize())
    yield f"{name}, jitted", best_us(lambda: jitted(x))
    yield f"{name}, jitted, and waited for", best_us(lambda: (jitted(x), wait()))
    yield f"{name}, numpy", best_us(lambda: expected(operand))


def sizes_rows(device: str) -> Iterator[tuple[str, float]]:
    """Give the median time of a call with a size that was never there, and with one that was."""
    rng = np.random.default_rng(0)
    weight = Tensor(rng.standard_normal((N, N)).astype(np.float32), device=device).realize()
    arrays = {n: rng.standard_normal((n, N)).astype(np.float32) for n in SIZES}
    tensors = {n: Tensor(array, device=device).realize() for n, array in arrays.items()}

    @jit
    def call(x: Tensor) -> Tensor:
        return (x @ weight + 1).relu().sum(1)

    for n in (3, 5, 7):
        call(tensors[n])
    for visit in ("first", "second", "third"):
        taken = []
        for n in SIZES:
            start = time.perf_counter()
            call(tensors[n])
            taken.append((time.perf_counter() - start) * 1e6)
        yield f"another size, its {visit} call", float(np.median(taken))


def torch_rows(operand: np.ndarray, device: str) -> Iterator[tuple[str, float]]:
    """Give the same for PyTorch."""
    torch = __import__("torch")
    torch.set_num_threads(1)
    t = torch.from_numpy(operand).to("cuda" if device == "CUDA" else "cpu")
    wait = torch.cuda.synchronize if device == "CUDA" else lambda: None

    def eager(x: object) -> object:
        return torch.relu(x @ x.T + 1)

    for name, call in (("torch", eager), ("torch.compile", torch.compile(eager))):
        try:
            check(call(t).cpu().numpy(), operand)
        except Exception as error:
            print(f"{name}: left out: {type(error).__name__}")
            continue
        yield name, best_us(lambda call=call: call(t))
        yield f"{name}, and waited for", best_us(lambda call=call: (call(t), wait()))


def fresh_rows(device: str) -> Iterator[tuple[str, list[float]]]:
    """Give, of fresh processes, the ms to import, to open the device and to the first result."""
    with tempfile.TemporaryDirectory() as directory:
        environment = {**os.environ, "TT_CACHE_DIR": directory}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # else all is compiled by Python, too
        for name in ("no disk cache", *["disk cache"] * 4):
            command = [sys.executable, "-c", FRESH.format(device=device)]
            done = subprocess.run(command, env=environment, capture_output=True, text=True)
            if done.returncode:
                raise ValueError(done.stderr)
            yield name, [float(each) for each in done.stdout.split()]


def main() -> int:
    """Print all rows."""
    parser = argparse.ArgumentParser("python -m extra.bench.calls", description=__doc__)
    parser.add_argument("--device", default="CPU")
    device = parser.parse_args().device
    with config(device=device):
        for rows in (warm_rows, chain_rows, trained_rows, layers_rows, sizes_rows):
            for name, microseconds in rows(device):
                print(f"{name:46} {microseconds:8.2f} us", flush=True)
    for name, (imported, opened, first) in fresh_rows(device):
        words = f"import {imported:6.1f} ms  device {opened:6.1f} ms  first result {first:6.1f} ms"
        print(f"{name:14} {words}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
