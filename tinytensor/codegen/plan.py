"""Chooses how a kernel runs: the first plan that takes it lowers it, and the others say why not."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any, Protocol

from tinytensor.codegen.plans import (
    contraction,
    cuda_contraction,
    cuda_ffma,
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
from tinytensor.records import dataclass
from tinytensor.target import Target


class Candidate(Protocol):
    """One of several ways in which a plan can run a kernel, known by its name."""

    @property
    def name(self) -> str:
        """What the tuning cache and decisions call it."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A way to run kernels: the module that says what it takes, and lowers that.

    Its `facts` takes a kernel, gives the reason to decline it, or gives None when the kernel is of
    another kind, so that there is nothing to say. Its `candidates`, if it has any, lists those that
    are legal, by estimate the best first; `lower` and `describe` take one of them, or the first.
    `lower` gives one launch or several in order. A `version` that is raised forgets the winners
    found before.
    """

    name: str
    module: ModuleType
    takes_open: bool = True  # whether indices and extents may be known only at launch
    version: int = 1

    # Any: each plan's facts are a record of its own.
    def candidates(self, facts: Any, target: Target) -> Sequence[Candidate]:  # noqa: ANN401
        """List the ways in which the plan can run what it found; none where there is but one."""
        found: Sequence[Candidate] = ()
        if hasattr(self.module, "candidates"):
            found = self.module.candidates(facts, target)
        return found


# Best first; the last one takes every kernel.
PLANS = (
    Plan("instances", instances, takes_open=False),
    Plan("contraction", contraction),
    Plan("reduction", reduction),
    Plan("pointwise", pointwise),
    Plan("loops", loops),
)
CUDA_PLANS = (
    Plan("instances", cuda_instances, takes_open=False),
    Plan("hopper", cuda_hopper, version=2),
    Plan("contraction", cuda_contraction),
    Plan("multiply-add", cuda_ffma, version=3),
    Plan("reduction", cuda_reduction),
    Plan("turning", cuda_turning, takes_open=False),
    Plan("pointwise", cuda_pointwise),
    Plan("loops", cuda_loops),
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
    decisions = [Decision("plan", plan.name, plan.module.describe(facts, target, *given[:1]))]
    if winner is not None and given:
        decisions.append(Decision("tune", winner.candidate, winner.reason))
    made = plan.module.lower(facts, target, *given[:1])
    linears = (made,) if isinstance(made, Linear) else made
    return Choice(plan.name, linears, (*decisions, *taken.declined))


def take(kernel: Kernel, target: Target) -> Taken:
    """Find the first plan that takes a kernel."""
    declined: list[Decision] = []
    is_open = any(each.dtype is dtypes.index for each in kernel.variables)
    for plan in PLANS_BY_KIND[target.kind]:
        facts = plan.module.facts(kernel, target)
        if facts is None:
            continue
        if is_open and not plan.takes_open:
            facts = "some indices or extents are known only at launch; it fixes them in the code."
        if not isinstance(facts, str):
            return Taken(plan, facts, tuple(declined))
        declined.append(Decision("decline", plan.name, facts))
    raise InternalError(f"plan: no plan takes {kernel.name}: {declined}; the last one must.")
