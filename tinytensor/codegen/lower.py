"""Turns a kernel into a program: the pass list of code generation."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from tinytensor.codegen.emit_c import emit_c
from tinytensor.codegen.legalize import legalize
from tinytensor.codegen.plan import choose
from tinytensor.config import config
from tinytensor.ops.kernel import Decision, Kernel
from tinytensor.ops.linear import Linear
from tinytensor.ops.program import Program
from tinytensor.ops.verify import verify_indexed, verify_linear
from tinytensor.target import Target

Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class PassTime:
    """How long a pass took. Units: seconds."""

    name: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Lowered:
    """A kernel's program, the plan that made it and why, and what each pass cost."""

    kernel: Kernel
    program: Program
    plan: str
    decisions: tuple[Decision, ...]
    planned: Linear
    legal: Linear
    times: tuple[PassTime, ...]


def lower(kernel: Kernel, target: Target) -> Lowered:
    """Make a kernel's program: plan, legalize, emit. TT_VERIFY checks each form on the way."""
    clock = _Clock()
    if config.verify:
        verify_indexed(kernel)
    choice = clock.run("plan", lambda: choose(kernel, target))
    _verify(choice.linear)
    linear = clock.run("legalize", lambda: legalize(choice.linear, target))
    _verify(linear)
    program = clock.run("emit", lambda: emit_c(linear, target))
    planned = choice.linear
    times = tuple(clock.times)
    return Lowered(kernel, program, choice.plan, choice.decisions, planned, linear, times)


def _verify(linear: Linear) -> None:
    if config.verify:
        verify_linear(linear)


class _Clock:
    """Collects how long passes take."""

    def __init__(self) -> None:
        self.times: list[PassTime] = []

    def run(self, name: str, work: Callable[[], Made]) -> Made:
        """Run a pass and note its time."""
        begin = time.perf_counter()
        made = work()
        self.times.append(PassTime(name, time.perf_counter() - begin))
        return made
