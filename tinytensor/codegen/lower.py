"""Turns a kernel into a program: the pass list of code generation."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

from tinytensor.codegen.emit_c import emit_c
from tinytensor.codegen.emit_cuda import emit_cuda
from tinytensor.codegen.legalize import legalize
from tinytensor.codegen.legalize_lanes import split_lanes
from tinytensor.codegen.legalize_tiles import legalize_tiles
from tinytensor.codegen.plan import choose
from tinytensor.codegen.simplify_linear import simplify_linear
from tinytensor.config import config
from tinytensor.ops.kernel import Decision, Kernel, Winner
from tinytensor.ops.linear import Linear
from tinytensor.ops.program import Program
from tinytensor.ops.verify import verify_indexed, verify_linear
from tinytensor.records import dataclass
from tinytensor.target import Target
from tinytensor.timing import Stage, timed, watch


@dataclass(frozen=True, slots=True)
class Lowered:
    """A kernel's program, the plan that made it and why, and what each pass cost."""

    kernel: Kernel
    program: Program
    plan: str
    decisions: tuple[Decision, ...]
    planned: tuple[Linear, ...]
    legal: tuple[Linear, ...]
    times: tuple[Stage, ...]


Pass = Callable[[Linear, Target], Linear]


@dataclass(frozen=True, slots=True)
class Dialect:
    """What follows the plan: passes in order, and how the launches they leave become source."""

    passes: tuple[Pass, ...]
    emit: Callable[[Sequence[Linear], str, Target], Program]


def _emit_one(linears: Sequence[Linear], name: str, target: Target) -> Program:
    (linear,) = linears  # a CPU's kernel is one function
    return emit_c(linear, target)


DIALECTS = {
    "c": Dialect((legalize,), _emit_one),
    "cuda": Dialect((legalize_tiles, simplify_linear, split_lanes, legalize), emit_cuda),
}


def lower(kernel: Kernel, target: Target, winner: Winner | None = None) -> Lowered:
    """Make a kernel's program: plan, legalize, emit. TT_VERIFY checks each form on the way."""
    if config.verify:
        verify_indexed(kernel)
    dialect = DIALECTS[target.kind]
    with watch() as taken:
        choice = timed("lower: plan")(choose)(kernel, target, winner)
        planned = tuple([replace(each, scalars=kernel.scalars) for each in choice.linears])
        legal = tuple([_run_passes(dialect.passes, each, target) for each in planned])
        program = timed("lower: emit")(dialect.emit)(legal, kernel.name, target)
    own = threading.get_ident()  # while compilers run in other threads
    times = tuple([each for each in taken.stages if each.thread == own])
    return Lowered(kernel, program, choice.plan, choice.decisions, planned, legal, times)


def _run_passes(passes: Sequence[Pass], linear: Linear, target: Target) -> Linear:
    _verify(linear)
    for each in passes:
        linear = timed(f"lower: {each.__name__}")(each)(linear, target)
        _verify(linear)
    return linear


def _verify(linear: Linear) -> None:
    if config.verify:
        verify_linear(linear)
