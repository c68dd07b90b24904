"""Measures what one graph of many launches spares: `python -m extra.bench.graphs`.

A network of twelve small kernels, and a training step of a small network with AdamW, are started as
their jitted functions start them, launch by launch, and by PyTorch. For each the host's time is
told, and the time until all is done. Results are checked against float64 first.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec

import numpy as np
import numpy.typing as npt

import extra.bench.one_thread  # noqa: F401 - before anything that imports NumPy
from extra.bench.calls import LAYERS, ROWS, WIDTH
from tinytensor import Device, Tensor, config, jit, nn, optim, realize
from tinytensor.jit.function import Jitted
from tinytensor.runtime.cuda import device as cuda_device
from tinytensor.runtime.cuda import graph

WINDOWS = 100
ROUNDS = 32  # calls after which launches have become a graph
KEPT = 64  # results that still live, so that a call gets other memory than the calls before
BATCH, BATCHES, DEPTH, FEATURES = 64, 8, 6, 256
STEPS = 4
RATE, BETAS, EPSILON, DECAY = 1e-3, (0.9, 0.999), 1e-8, 1e-2

Array = npt.NDArray[np.floating]
Times = tuple[float, float]
Row = tuple[str, Times]


def times_us(call: Callable[[], object], wait: Callable[[], object], calls: int = 100) -> Times:
    """Return the least times to start, one call after the other, and to start and wait for it."""
    enqueue = synchronous = float("inf")
    for _ in range(WINDOWS):
        wait()
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        enqueue = min(enqueue, (time.perf_counter() - begin) / calls)
        wait()
        begin = time.perf_counter()
        call()
        wait()
        synchronous = min(synchronous, time.perf_counter() - begin)
    return enqueue * 1e6, synchronous * 1e6


@contextmanager
def launch_by_launch(most_sent_bytes: int = cuda_device.MOST_SENT_BYTES) -> Iterator[None]:
    """Make no graphs of schedules that are made inside, and send so many bytes with commands."""
    before = graph.runs_before, cuda_device.MOST_SENT_BYTES
    realize._SCHEDULES.clear()
    graph.runs_before = lambda launches: sys.maxsize
    cuda_device.MOST_SENT_BYTES = most_sent_bytes
    try:
        yield
    finally:
        graph.runs_before, cuda_device.MOST_SENT_BYTES = before
        realize._SCHEDULES.clear()


@contextmanager
def by_python_alone() -> Iterator[None]:
    """Make graphs inside as where there is no C compiler."""
    realize._SCHEDULES.clear()
    before, cuda_device.CudaDevice.runner = cuda_device.CudaDevice.runner, None
    try:
        yield
    finally:
        cuda_device.CudaDevice.runner = before
        realize._SCHEDULES.clear()


def network_rows(device: str) -> Iterator[Row]:
    """Give the times of each way to start twelve kernels."""
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((WIDTH, WIDTH)).astype(np.float32) / 8 for _ in range(LAYERS)]
    operand = rng.standard_normal((ROWS, WIDTH)).astype(np.float32)
    weights = [Tensor(each, device=device).realize() for each in arrays]
    x = Tensor(operand, device=device).realize()
    wait = Device[device].synchronize

    def network(x: Tensor) -> Tensor:
        for weight in weights:
            x = (x @ weight).relu()
        return x

    wanted = operand.astype(np.float64)
    for array in arrays:
        wanted = np.maximum(wanted @ array, 0)

    def checked() -> Jitted[[Tensor], Tensor]:
        call = jit(network)
        for _ in range(ROUNDS):
            error = np.abs(call(x).numpy() - wanted).max()
            if error > LAYERS * WIDTH * np.finfo(np.float32).eps * max(1, wanted.max()):
                raise ValueError("graphs: a result is wrong; it must be within the bound.")
        return call

    kept: deque[Tensor] = deque(maxlen=KEPT)
    for name, way in (("launch by launch", launch_by_launch), ("no C compiler", by_python_alone)):
        with way():
            other = checked()
            yield name, times_us(lambda other=other: other(x), wait)
            words = f"{name}, {KEPT} results kept"
            yield words, times_us(lambda other=other: kept.append(other(x)), wait)
    call = checked()
    print(f"{LAYERS} layers: {call.programs()[0].launched}")
    yield "jitted", times_us(lambda: call(x), wait)
    yield f"jitted, {KEPT} results kept", times_us(lambda: kept.append(call(x)), wait)
    if has_torch(device):
        yield from torch_network_rows(arrays, operand)


def has_torch(device: str) -> bool:
    """Whether PyTorch is there for a device."""
    return device == "CUDA" and find_spec("torch") is not None


def torch_network_rows(arrays: Sequence[Array], operand: Array) -> Iterator[Row]:
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
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            network()
        yield "torch, one graph", times_us(captured.replay, torch.cuda.synchronize)


def training_arrays() -> tuple[list[Array], list[tuple[Array, Array]]]:
    """Return the weights of a network without biases, and batches."""
    rng = np.random.default_rng(0)
    shape = (FEATURES, FEATURES)
    weights = [rng.standard_normal(shape) * (2 / FEATURES) ** 0.5 for _ in range(DEPTH)]
    sizes = [(rng.standard_normal((BATCH, FEATURES)) for _ in range(2)) for _ in range(BATCHES)]
    single = [np.asarray(each, np.float32) for each in weights]
    return single, [(x.astype(np.float32), y.astype(np.float32)) for x, y in sizes]


def expected_losses(arrays: Sequence[Array], batches: Sequence[tuple[Array, Array]]) -> list[float]:
    """Return the losses of steps of AdamW in float64, with gradients written out."""
    weights = [each.astype(np.float64) for each in arrays]
    means, squares = [[np.zeros_like(each) for each in weights] for _ in range(2)]
    losses = []
    for step, (x, y) in enumerate(batches, 1):
        values = [x.astype(np.float64)]
        for weight in weights:
            values.append(np.maximum(values[-1] @ weight.T, 0))
        difference = values[-1] - y
        losses.append(float(np.mean(difference**2)))
        gradient = 2 * difference / difference.size
        for at in reversed(range(DEPTH)):
            gradient = gradient * (values[at + 1] > 0)
            own, gradient = gradient.T @ values[at], gradient @ weights[at]
            means[at] = BETAS[0] * means[at] + (1 - BETAS[0]) * own
            squares[at] = BETAS[1] * squares[at] + (1 - BETAS[1]) * own**2
            mean, square = means[at] / (1 - BETAS[0] ** step), squares[at] / (1 - BETAS[1] ** step)
            weights[at] -= RATE * (DECAY * weights[at] + mean / (np.sqrt(square) + EPSILON))
    return losses


def check_losses(found: Sequence[float], wanted: Sequence[float]) -> None:
    """Raise ValueError where losses are further from float64's than some steps in float32 are."""
    if not np.allclose(found, wanted, rtol=DEPTH * FEATURES * np.finfo(np.float32).eps):
        raise ValueError(f"graphs: losses are wrong: {found}; they must be near {wanted}.")


def training_rows(device: str) -> Iterator[Row]:
    """Give the times of each way to make a training step."""
    arrays, host = training_arrays()
    wanted = expected_losses(arrays, host[:STEPS])
    batches = [[Tensor(each, device=device).realize() for each in pair] for pair in host]
    wait = Device[device].synchronize

    def made() -> Callable[[], Tensor]:
        layers = [nn.Linear(FEATURES, FEATURES, bias=False, device=device) for _ in range(DEPTH)]
        for layer, array in zip(layers, arrays, strict=True):
            layer.weight.data = Tensor(array, device=device)
        parameters = [each.weight for each in layers]
        options = {"lr": RATE, "betas": BETAS, "eps": EPSILON, "weight_decay": DECAY}
        optimizer = optim.AdamW(parameters, **options)

        @jit
        def step(x: Tensor, y: Tensor) -> Tensor:
            value = x
            for layer in layers:
                value = layer(value).relu()
            loss = (value - y).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss

        check_losses([step(*batches[n]).item() for n in range(STEPS)], wanted)
        for _ in range(ROUNDS // BATCHES):
            for each in batches:
                step(*each)
        (*_, program) = step.programs()
        print(
            f"a training step: {len(program.kernels)} kernels, {program.launched or 'one by one'}"
        )
        turns = iter(turned(batches))
        return lambda: step(*next(turns))

    for name, sent in (("", cuda_device.MOST_SENT_BYTES), (", numbers waited for", 0)):
        with launch_by_launch(sent):
            yield f"step, launch by launch{name}", times_us(made(), wait, 10)
    yield "step, jitted", times_us(made(), wait, 10)
    if has_torch(device):
        yield from torch_training_rows(arrays, host, wanted)


def turned(batches: Sequence[Sequence[object]]) -> Iterator[Sequence[object]]:
    """Give batches again and again."""
    while True:
        yield from batches


def torch_training_rows(
    arrays: Sequence[Array], host: Sequence[tuple[Array, Array]], wanted: Sequence[float]
) -> Iterator[Row]:
    """Give the same for PyTorch."""
    torch = __import__("torch")
    batches = [[torch.from_numpy(each).cuda() for each in pair] for pair in host]
    options = {"lr": RATE, "betas": BETAS, "eps": EPSILON, "weight_decay": DECAY}

    def made(**more: bool) -> Callable[..., object]:
        weights = [torch.from_numpy(each).cuda().requires_grad_() for each in arrays]
        optimizer = torch.optim.AdamW(weights, **options, **more)

        def step(x: object, y: object) -> object:
            value = x
            for weight in weights:
                value = torch.relu(value @ weight.T)
            loss = (value - y).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss

        check_losses([step(*batches[n]).item() for n in range(STEPS)], wanted)
        return step

    wait = torch.cuda.synchronize
    for name, more in (("torch, step", {}), ("torch, step, fused", {"fused": True})):
        turns = iter(turned(batches))
        step = made(**more)
        yield name, times_us(lambda step=step, turns=turns: step(*next(turns)), wait, 10)
    step = made(fused=True, capturable=True)
    apart = torch.cuda.Stream()
    apart.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(apart):
        for _ in range(3):
            step(*batches[0])
    torch.cuda.current_stream().wait_stream(apart)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        step(*batches[0])
    yield "torch, step, one graph", times_us(captured.replay, wait, 10)


def main() -> int:
    """Print all rows."""
    parser = argparse.ArgumentParser("python -m extra.bench.graphs", description=__doc__)
    parser.add_argument("--device", default="CUDA")
    device = parser.parse_args().device
    print(f"{os.cpu_count()} processors, {Device[device].model}")
    with config(device=device):
        for rows in (network_rows, training_rows):
            for name, (enqueue, synchronous) in rows(device):
                words = f"start {enqueue:8.2f} us  until done {synchronous:8.2f} us"
                print(f"{name:40} {words}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
