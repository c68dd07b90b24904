"""Chooses how a kernel runs: the first plan that takes it lowers it, and the others say why not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tinytensor.codegen.plans import contraction, loops, pointwise, reduction
from tinytensor.ops.kernel import Decision, Kernel
from tinytensor.ops.linear import Linear
from tinytensor.target import Target


@dataclass(frozen=True, slots=True)
class Plan:
    """A way to run kernels: `facts` takes a kernel or gives the reason to decline it."""

    name: str
    facts: Callable[[Kernel, Target], Any]  # each plan's own record, read by its `lower` alone
    lower: Callable[[Any, Target], Linear]


# Best first; the last one takes every kernel.
PLANS = (
    Plan("contraction", contraction.facts, contraction.lower),
    Plan("reduction", reduction.facts, reduction.lower),
    Plan("pointwise", pointwise.facts, pointwise.lower),
    Plan("loops", loops.facts, loops.lower),
)


@dataclass(frozen=True, slots=True)
class Choice:
    """The plan that was taken, what it made, and why better ones declined."""

    plan: str
    linear: Linear
    decisions: tuple[Decision, ...]


def choose(kernel: Kernel, target: Target) -> Choice:
    """Lower a kernel by the first plan that takes it."""
    declined: list[Decision] = []
    for plan in PLANS[:-1]:
        facts = plan.facts(kernel, target)
        if not isinstance(facts, str):
            return Choice(plan.name, plan.lower(facts, target), tuple(declined))
        declined.append(Decision("decline", plan.name, facts))
    last = PLANS[-1]
    return Choice(last.name, last.lower(kernel, target), tuple(declined))
