"""Measures whether one graph starts many kernels faster: `python -m extra.bench.graphs`.

A network of twelve small kernels is launched by its jitted function, by the launches of its replay
alone, and by one graph of the same launches. The host's time and the time until all is done decide
whether programs of several kernels should be graphs. Every result is checked against float64 first.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec

import numpy as np

import extra.bench.one_thread  # noqa: F401 - before anything that imports NumPy
from extra.bench.calls import LAYERS, ROWS, WIDTH
from tinytensor import Device, Tensor, config, jit

CALLS = 200  # between two moments at which the device is idle: fewer than a queue holds
WINDOWS = 200


def times_us(call: Callable[[], object], wait: Callable[[], object]) -> tuple[float, float]:
    """Return the least times to start, one call after the other, and to start and wait for it."""
    enqueue = synchronous = float("inf")
    for _ in range(WINDOWS):
        wait()
        begin = time.perf_counter()
        for _ in range(CALLS):
            call()
        enqueue = min(enqueue, (time.perf_counter() - begin) / CALLS)
        wait()
        begin = time.perf_counter()
        call()
        wait()
        synchronous = min(synchronous, time.perf_counter() - begin)
    return enqueue * 1e6, synchronous * 1e6


def rows(device: str) -> Iterator[tuple[str, tuple[float, float]]]:
    """Give the name and times of each way to start the kernels."""
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((WIDTH, WIDTH)).astype(np.float32) / 8 for _ in range(LAYERS)]
    operand = rng.standard_normal((ROWS, WIDTH)).astype(np.float32)
    weights = [Tensor(each, device=device).realize() for each in arrays]
    x = Tensor(operand, device=device).realize()

    @jit
    def network(x: Tensor) -> Tensor:
        for weight in weights:
            x = (x @ weight).relu()
        return x

    wanted = operand.astype(np.float64)
    for array in arrays:
        wanted = np.maximum(wanted @ array, 0)
    for _ in range(3):
        error = np.abs(network(x).numpy() - wanted).max()
        if error > LAYERS * WIDTH * np.finfo(np.float32).eps * max(1, wanted.max()):
            raise ValueError("graphs: a result is wrong; it must be within the bound.")
    wait = Device[device].synchronize
    yield "jitted", times_us(lambda: network(x), wait)
    (entries,) = network._entries.values()
    starts, held = launches_of(entries[0].program, x, weights)
    print(f"{len(starts)} calls into the device start {LAYERS} layers")

    def start_all() -> None:
        for each in starts:
            each()

    yield "its launches alone", times_us(start_all, wait)
    graph = Device[device].join(starts)
    yield "one graph of them", times_us(graph, wait)
    del held
    if find_spec("torch") is not None and device == "CUDA":
        yield from torch_rows(arrays, operand)


def launches_of(
    program: object, x: Tensor, weights: list[Tensor]
) -> tuple[list[Callable[[], object]], list[object]]:
    """Return calls that start a program's kernels on memory that stays, and that memory."""
    run = program.in_place
    tensors = [each.find([x]) for each in program.sources]
    memories = [each.cell.memory for each in tensors]
    slots = [memories[program.slots[slot].number] for slot in run.slots]
    taken = [*[take() for take in run.replay.takers]]
    arena = run.replay.take_arena() if run.replay.take_arena is not None else None
    table = [each.address for each in (*slots, *taken)]
    table.append(arena.address if arena is not None else 0)
    table += [table[base] + offset for base, offset in run.replay._parts]
    starts: list[Callable[[], object]] = []
    for call in run.replay.calls:
        given = [*call.pick(table)]
        if call.start.launcher.workspace is not None:
            given.append(call.start.launcher.workspace())
        starts.append(partial(call.start.launcher.start, *given))
    return starts, [*taken, arena]


def torch_rows(
    arrays: list[np.ndarray], operand: np.ndarray
) -> Iterator[tuple[str, tuple[float, float]]]:
    """Give the same for PyTorch, with and without a graph."""
    torch = __import__("torch")
    weights = [torch.from_numpy(each).cuda() for each in arrays]
    x = torch.from_numpy(operand).cuda()

    def network() -> object:
        y = x
        for weight in weights:
            y = torch.relu(y @ weight)
        return y

    with torch.inference_mode():
        yield "torch", times_us(network, torch.cuda.synchronize)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            network()
        yield "torch, one graph", times_us(graph.replay, torch.cuda.synchronize)


def main() -> int:
    """Print all rows."""
    parser = argparse.ArgumentParser("python -m extra.bench.graphs", description=__doc__)
    parser.add_argument("--device", default="CUDA")
    device = parser.parse_args().device
    print(f"{os.cpu_count()} processors, {Device[device].model}")
    with config(device=device):
        for name, (enqueue, synchronous) in rows(device):
            print(
                f"{name:24} start {enqueue:8.2f} us  until done {synchronous:8.2f} us", flush=True
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
