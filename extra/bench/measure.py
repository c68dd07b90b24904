"""Turns a work and engines into checked and timed results.

The clock is the CPU time of the whole process, user and system: on a machine that others use too
it repeats within a few percent where the time on the wall does not, and it charges an engine for
every thread it starts.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from extra.bench.engines import Call, Engine, HostArray
from extra.bench.works import Work
from tinytensor.selfcheck import Reference

CLOCK = "process CPU time"
SEED = 1234
ROUND_SECONDS = 2e-3  # short calls are repeated to fill this, far above the clock's resolution
ENGINE_SECONDS = 4.0  # an engine that has used this much of a work drops out of further rounds
LEAST_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one engine did on one work: its median time, or the problem that kept it from it.

    `error` is the largest error as a part of what is allowed. Units: µs a call.
    """

    work: Work
    engine: Engine
    median_us: float = math.nan
    rounds: int = 0
    error: float = math.nan
    problem: str = ""


@dataclass(slots=True)
class Runner:
    """A checked engine in the middle of being timed."""

    engine: Engine
    call: Call
    error: float
    repeats: int = 1
    times_us: list[float] = field(default_factory=list)
    seconds: float = 0.0

    def time_round(self) -> None:
        """Time one round of calls; each drops its result."""
        call = self.call
        start = time.process_time_ns()
        for _ in range(self.repeats):
            call()
        spent = time.process_time_ns() - start
        self.times_us.append(spent / self.repeats / 1e3)
        self.seconds += spent / 1e9

    def calibrate(self) -> None:
        """Warm up, and choose how many calls fill a round."""
        self.time_round()
        self.time_round()
        self.repeats = max(1, math.ceil(ROUND_SECONDS * 1e6 / max(self.times_us[-1], 0.1)))
        self.times_us.clear()

    @property
    def is_spent(self) -> bool:
        """Whether it has used its time and has enough rounds."""
        return self.seconds > ENGINE_SECONDS and len(self.times_us) >= LEAST_ROUNDS


def measure(work: Work, engines: Sequence[Engine], rounds: int) -> list[Outcome]:
    """Check every engine on a work, then time those that are right, in interleaved rounds."""
    inputs = work.inputs(SEED)
    reference = work.reference(inputs)
    started = [start(work, engine, inputs, reference) for engine in engines]
    runners = [each for each in started if isinstance(each, Runner)]
    for runner in runners:
        runner.calibrate()
    for number in range(rounds):
        first = number % max(len(runners), 1)  # nobody always follows the same engine
        for runner in runners[first:] + runners[:first]:
            if not runner.is_spent:
                runner.time_round()
    return [each if isinstance(each, Outcome) else finish(work, each) for each in started]


def start(
    work: Work, engine: Engine, inputs: Sequence[HostArray], reference: Reference
) -> Runner | Outcome:
    """Prepare an engine and check its first result; give the problem if there is one."""
    try:
        call = engine.bind(work.formula, [engine.hold(each) for each in inputs])
        result = engine.fetch(call())
    except Exception as failure:  # an engine may raise anything, and the others should still run
        return Outcome(work, engine, problem=f"{type(failure).__name__}: {failure}")
    error = reference.largest_error(result)
    if not error <= 1:
        return Outcome(work, engine, error=error, problem=f"wrong: {error:.3g} times the bound")
    return Runner(engine, call, error)


def finish(work: Work, runner: Runner) -> Outcome:
    """Sum up a runner's rounds."""
    times_us = runner.times_us
    return Outcome(work, runner.engine, median(times_us), len(times_us), runner.error)
