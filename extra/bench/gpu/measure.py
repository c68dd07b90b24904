"""Turns a work and engines into checked times on a GPU, the engines interleaved in one process."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from extra.bench.gpu.engines import GRAPH_US, MOST_CALLS, Clocked, Engine, Prepared
from extra.bench.gpu.launches import Cuda, Timed, copy_launch
from extra.bench.gpu.works import Work
from tinytensor.runtime.device import Device

ROUNDS = 15
WALL_ROUNDS = 5
WALL_SECONDS = 0.02  # of one round
LANES_A_CLOCK = 256  # float32 operations of one multiprocessor
TIME_IS_UP = "the row's time was up before it began"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one engine did on one work, or the problem that kept it from it.

    `error` is the largest error as a part of what is allowed. Units: µs a call.
    """

    work: Work
    engine: str
    version: str
    device_us: float = math.nan
    device_clock: str = ""
    wall_us: float = math.nan
    rounds: int = 0
    kernels: int = 0
    error: float = math.nan
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Floor:
    """What the machine allows: a plain copy of as many bytes, and the products at its peak.

    Units: µs.
    """

    copy_us: float
    product_us: float

    @property
    def least_us(self) -> float:
        """The larger one."""
        return max(self.copy_us, self.product_us)


@dataclass(slots=True)
class Runner:
    """A checked engine in the middle of being timed."""

    engine: Engine
    prepared: Prepared
    error: float
    calls: int
    clocked: Clocked
    times_us: list[float] = field(default_factory=list)
    walls_us: list[float] = field(default_factory=list)


def measure(
    work: Work,
    engines: Sequence[Engine],
    torch: Any,  # noqa: ANN401 - a module
    deadline: float,
    place: str = "cuda",
) -> tuple[list[Outcome], Floor]:
    """Check every engine on a work, then time those that are right, in interleaved rounds."""
    sets = work.inputs(torch, place, work.sets)
    started = [start(work, engine, sets, torch, deadline) for engine in engines]
    runners = [each for each in started if isinstance(each, Runner)]
    copy = copy_clock(Device["CUDA"], work)
    copies: list[float] = []
    copy.device_us()
    for number in range(ROUNDS):
        if number > 2 and time.monotonic() > deadline:
            break
        copies.append(copy.device_us())
        first = number % max(len(runners), 1)  # nobody always follows the same engine
        for runner in runners[first:] + runners[:first]:
            runner.times_us.append(runner.clocked.device_us())
    for _ in range(WALL_ROUNDS):
        for runner in runners:
            runner.walls_us.append(runner.prepared.wall_us(runner.calls))
    floor = Floor(median(copies), product_us(Device["CUDA"], work))
    return [each if isinstance(each, Outcome) else finish(work, each) for each in started], floor


def start(
    work: Work,
    engine: Engine,
    sets: Sequence[Sequence[Any]],
    torch: Any,  # noqa: ANN401 - a module
    deadline: float,
) -> Runner | Outcome:
    """Prepare an engine and check its first result; give the problem if there is one."""
    if time.monotonic() > deadline:
        return Outcome(work, engine.name, engine.version, problem=TIME_IS_UP)
    try:
        prepared = engine.prepare(work.formula, sets)
        error = work.largest_error(torch, sets[0], prepared.result())
        if not error <= 1:
            words = f"wrong: {error:.3g} times the bound"
            return Outcome(work, engine.name, engine.version, error=error, problem=words)
        prepared.wall_us(len(sets))
        call_us = prepared.wall_us(len(sets))
        clocked = prepared.clocked(len(sets))
        clocked.device_us()
        # By the time on the device: starting a graph must weigh as little for every engine.
        calls = calls_of(len(sets), clocked.device_us(), GRAPH_US)
        clocked = prepared.clocked(calls)
        clocked.device_us()
        walls = calls_of(1, call_us, WALL_SECONDS * 1e6)
        return Runner(engine, prepared, error, walls, clocked)
    except Exception as failure:  # an engine may raise anything, and the others should still run
        words = f"{type(failure).__name__}: {failure}"
        return Outcome(work, engine.name, engine.version, problem=words)


def calls_of(sets: int, call_us: float, batch_us: float) -> int:
    """Choose how many calls make a batch: a multiple of the sets that fills the time."""
    turns = max(1, math.ceil(batch_us / max(call_us, 1) / sets))
    return sets * max(1, min(turns, MOST_CALLS // sets))


def copy_clock(device: Cuda, work: Work) -> Timed:
    """Prepare copies that move as many bytes as the work, over as many sets."""
    copies = [[copy_launch(device, work.bytes_moved)] for _ in range(work.sets)]
    for each in copies:
        each[0].run(device)
    return Timed(device, copies, calls_of(len(copies), work.bytes_moved / 4e6, GRAPH_US))


def product_us(device: Cuda, work: Work) -> float:
    """Return the time of the work's products at the machine's peak. Units: µs.

    float32 at the clock's peak; halves at the best rate of a vendor's library.
    """
    target = device.target
    if work.dtype != "float32":
        return work.flops / target.rates.half_flops * 1e6
    clock_hz = 1e3 * device.driver.device_attribute(device.gpu.handle, "CLOCK_RATE")
    return work.flops / (target.multiprocessors * LANES_A_CLOCK * clock_hz) * 1e6


def finish(work: Work, runner: Runner) -> Outcome:
    """Sum up a runner's rounds."""
    engine, prepared = runner.engine, runner.prepared
    return Outcome(
        work=work,
        engine=engine.name,
        version=engine.version,
        device_us=median(runner.times_us),
        device_clock=prepared.device_clock,
        wall_us=median(runner.walls_us),
        rounds=len(runner.times_us),
        kernels=getattr(prepared, "kernels", 0),
        error=runner.error,
    )
