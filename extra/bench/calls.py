"""Measures what a call costs besides its kernels: `python -m extra.bench.calls [--device CUDA]`.

relu(x @ x.T + 1) with n = 64 is called again and again, as it is and jitted; and fresh processes
import the package and give their first result. Every result is checked against float64 first.
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

import numpy as np

import extra.bench.one_thread  # noqa: F401 - before anything that imports NumPy
from tinytensor import Device, Tensor, config, jit

N = 64
OPS = 4  # T, @, + and relu
CALLS = 8  # between two looks at the clock: so few that no other process takes part
WINDOWS = 2000
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
    yield f"as it is ({OPS} ops: goal {40 + 5 * OPS})", best_us(lambda: line(x).realize())
    yield "jitted", best_us(lambda: jitted(x))
    yield "jitted, and waited for", best_us(lambda: (jitted(x), wait()))
    yield "numpy", best_us(lambda: np.maximum(operand @ operand.T + 1, 0))
    if find_spec("torch") is not None:
        yield from torch_rows(operand, device)


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
        for name, microseconds in warm_rows(device):
            print(f"{name:36} {microseconds:8.2f} us", flush=True)
    for name, (imported, opened, first) in fresh_rows(device):
        words = f"import {imported:6.1f} ms  device {opened:6.1f} ms  first result {first:6.1f} ms"
        print(f"{name:14} {words}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
