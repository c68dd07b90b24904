"""Chooses how a kernel runs: the first plan that takes it lowers it, and the others say why not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tinytensor.codegen.plans import (
    contraction,
    cuda_contraction,
    cuda_ffma,
    cuda_folding,
    cuda_hopper,
    cuda_loops,
    cuda_pointwise,
    cuda_reduction,
    cuda_turning,
    loops,
    pointwise,
    reduction,
)
from tinytensor.dtype import dtypes
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
    lower: Callable[[Any, Target], Linear | tuple[Linear, ...]]  # several: launches in order
    describe: Callable[[Any, Target], str] = lambda facts, target: "takes it."
    takes_open: bool = False  # whether indices and extents may be known only at launch


# Best first; the last one takes every kernel.
PLANS = (
    Plan(
        "contraction", contraction.facts, contraction.lower, contraction.describe, takes_open=True
    ),
    Plan("reduction", reduction.facts, reduction.lower, reduction.describe, takes_open=True),
    Plan("pointwise", pointwise.facts, pointwise.lower, pointwise.describe, takes_open=True),
    Plan("loops", loops.facts, loops.lower, loops.describe, takes_open=True),
)
CUDA_PLANS = (
    Plan("hopper", cuda_hopper.facts, cuda_hopper.lower, cuda_hopper.describe),
    Plan("contraction", cuda_contraction.facts, cuda_contraction.lower, cuda_contraction.describe),
    Plan("multiply-add", cuda_ffma.facts, cuda_ffma.lower, cuda_ffma.describe),
    Plan("reduction", cuda_reduction.facts, cuda_folding.lower, cuda_reduction.describe),
    Plan("turning", cuda_turning.facts, cuda_turning.lower, cuda_turning.describe),
    Plan("pointwise", cuda_pointwise.facts, cuda_pointwise.lower, cuda_pointwise.describe),
    Plan("loops", cuda_loops.facts, cuda_loops.lower, cuda_loops.describe),
)
PLANS_BY_KIND = {"c": PLANS, "cuda": CUDA_PLANS}


@dataclass(frozen=True, slots=True)
class Choice:
    """The plan that was taken, what it made, and what it says of itself and others of theirs."""

    plan: str
    linears: tuple[Linear, ...]
    decisions: tuple[Decision, ...]


def choose(kernel: Kernel, target: Target) -> Choice:
    """Lower a kernel by the first plan that takes it."""
    declined: list[Decision] = []
    is_open = any(each.dtype is dtypes.index for each in kernel.variables)
    for plan in PLANS_BY_KIND[target.kind]:
        facts = plan.facts(kernel, target)
        if facts is None:
            continue
        if is_open and not plan.takes_open:
            facts = "some indices or extents are known only at launch; it fixes them in the code."
        if not isinstance(facts, str):
            taken = Decision("plan", plan.name, plan.describe(facts, target))
            made = plan.lower(facts, target)
            linears = (made,) if isinstance(made, Linear) else made
            return Choice(plan.name, linears, (taken, *declined))
        declined.append(Decision("decline", plan.name, facts))
    raise InternalError(f"plan: no plan takes {kernel.name}: {declined}; the last one must.")
