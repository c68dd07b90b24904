"""Chooses how a kernel runs: the first plan that takes it lowers it, and the others say why not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tinytensor.codegen.plans import (
    contraction,
    cuda_contraction,
    cuda_ffma,
    cuda_folding,
    cuda_hopper,
    cuda_instances,
    cuda_loops,
    cuda_pointwise,
    cuda_reduction,
    cuda_turning,
    instances,
    loops,
    pointwise,
    reduction,
)
from tinytensor.dtype import dtypes
from tinytensor.errors import InternalError
from tinytensor.ops.kernel import Decision, Kernel, Winner
from tinytensor.ops.linear import Linear
from tinytensor.target import Target


class Candidate(Protocol):
    """One of several ways in which a plan can run a kernel, known by its name."""

    @property
    def name(self) -> str:
        """What the tuning cache and decisions call it."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A way to run kernels.

    `facts` takes a kernel, gives the reason to decline it, or gives None when the kernel is of
    another kind, so that there is nothing to say. A plan with `candidates` lists those that are
    legal, by estimate the best first; `lower` and `describe` take one of them, or the first. A
    `version` that is raised forgets the winners found before.
    """

    name: str
    facts: Callable[[Kernel, Target], Any]  # each plan's own record, read by its `lower` alone
    lower: Callable[..., Linear | tuple[Linear, ...]]  # several: launches in order
    describe: Callable[..., str] = lambda facts, target: "takes it."
    takes_open: bool = False  # whether indices and extents may be known only at launch
    candidates: Callable[[Any, Target], Sequence[Candidate]] = lambda facts, target: ()
    version: int = 1


# Best first; the last one takes every kernel.
PLANS = (
    Plan("instances", instances.facts, instances.lower, instances.describe),
    Plan(
        "contraction",
        contraction.facts,
        contraction.lower,
        contraction.describe,
        takes_open=True,
        candidates=contraction.candidates,
    ),
    Plan("reduction", reduction.facts, reduction.lower, reduction.describe, takes_open=True),
    Plan("pointwise", pointwise.facts, pointwise.lower, pointwise.describe, takes_open=True),
    Plan("loops", loops.facts, loops.lower, loops.describe, takes_open=True),
)
CUDA_PLANS = (
    Plan("instances", cuda_instances.facts, cuda_instances.lower, cuda_instances.describe),
    Plan(
        "hopper",
        cuda_hopper.facts,
        cuda_hopper.lower,
        cuda_hopper.describe,
        takes_open=True,
        candidates=cuda_hopper.candidates,
        version=2,
    ),
    Plan(
        "contraction",
        cuda_contraction.facts,
        cuda_contraction.lower,
        cuda_contraction.describe,
        takes_open=True,
        candidates=cuda_contraction.candidates,
    ),
    Plan(
        "multiply-add",
        cuda_ffma.facts,
        cuda_ffma.lower,
        cuda_ffma.describe,
        takes_open=True,
        candidates=cuda_ffma.candidates,
        version=2,
    ),
    Plan("reduction", cuda_reduction.facts, cuda_folding.lower, cuda_reduction.describe, True),
    Plan("turning", cuda_turning.facts, cuda_turning.lower, cuda_turning.describe),
    Plan("pointwise", cuda_pointwise.facts, cuda_pointwise.lower, cuda_pointwise.describe, True),
    Plan("loops", cuda_loops.facts, cuda_loops.lower, cuda_loops.describe, True),
)
PLANS_BY_KIND = {"c": PLANS, "cuda": CUDA_PLANS}


@dataclass(frozen=True, slots=True)
class Taken:
    """The first plan that takes a kernel, what it found, and what the others say."""

    plan: Plan
    facts: Any  # the plan's own
    declined: tuple[Decision, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """The plan that was taken, what it made, and what it says of itself and others of theirs."""

    plan: str
    linears: tuple[Linear, ...]
    decisions: tuple[Decision, ...]


def choose(kernel: Kernel, target: Target, winner: Winner | None = None) -> Choice:
    """Lower a kernel by the first plan that takes it; as the winner says, if it is of that plan."""
    taken = take(kernel, target)
    plan, facts = taken.plan, taken.facts
    given: list[Candidate] = []
    if winner is not None and (winner.plan, winner.version) == (plan.name, plan.version):
        given = [each for each in plan.candidates(facts, target) if each.name == winner.candidate]
    decisions = [Decision("plan", plan.name, plan.describe(facts, target, *given[:1]))]
    if winner is not None and given:
        decisions.append(Decision("tune", winner.candidate, winner.reason))
    made = plan.lower(facts, target, *given[:1])
    linears = (made,) if isinstance(made, Linear) else made
    return Choice(plan.name, linears, (*decisions, *taken.declined))


def take(kernel: Kernel, target: Target) -> Taken:
    """Find the first plan that takes a kernel."""
    declined: list[Decision] = []
    is_open = any(each.dtype is dtypes.index for each in kernel.variables)
    for plan in PLANS_BY_KIND[target.kind]:
        facts = plan.facts(kernel, target)
        if facts is None:
            continue
        if is_open and not plan.takes_open:
            facts = "some indices or extents are known only at launch; it fixes them in the code."
        if not isinstance(facts, str):
            return Taken(plan, facts, tuple(declined))
        declined.append(Decision("decline", plan.name, facts))
    raise InternalError(f"plan: no plan takes {kernel.name}: {declined}; the last one must.")
