"""Chooses how a kernel runs: the first plan that takes it lowers it, and the others say why not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tinytensor.codegen.plans import contraction, loops, pointwise, reduction
from tinytensor.errors import InternalError
from tinytensor.ops.kernel import Decision, Kernel
from tinytensor.ops.linear import Linear
from tinytensor.target import Target


@dataclass(frozen=True, slots=True)
class Plan:
    """A way to run kernels.

    `facts` takes a kernel, gives the reason to decline it, or gives None when the kernel is of
    another kind, so that there is nothing to say.
    """

    name: str
    facts: Callable[[Kernel, Target], Any]  # each plan's own record, read by its `lower` alone
    lower: Callable[[Any, Target], Linear]
    describe: Callable[[Any, Target], str]


# Best first; the last one takes every kernel.
PLANS = (
    Plan("contraction", contraction.facts, contraction.lower, contraction.describe),
    Plan("reduction", reduction.facts, reduction.lower, reduction.describe),
    Plan("pointwise", pointwise.facts, pointwise.lower, pointwise.describe),
    Plan("loops", loops.facts, loops.lower, loops.describe),
)


@dataclass(frozen=True, slots=True)
class Choice:
    """The plan that was taken, what it made, and what it says of itself and others of theirs."""

    plan: str
    linear: Linear
    decisions: tuple[Decision, ...]


def choose(kernel: Kernel, target: Target) -> Choice:
    """Lower a kernel by the first plan that takes it."""
    declined: list[Decision] = []
    for plan in PLANS:
        facts = plan.facts(kernel, target)
        if facts is None:
            continue
        if not isinstance(facts, str):
            taken = Decision("plan", plan.name, plan.describe(facts, target))
            return Choice(plan.name, plan.lower(facts, target), (taken, *declined))
        declined.append(Decision("decline", plan.name, facts))
    raise InternalError(f"plan: no plan takes {kernel.name}: {declined}; the last one must.")
