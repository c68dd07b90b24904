"""Keeps the kernels of a schedule for all graphs of its structure, at all values of variables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from tinytensor.ops.extents import index_at
from tinytensor.ops.size import numbered_variables
from tinytensor.ops.uop import UOp, substitute_all
from tinytensor.records import dataclass
from tinytensor.schedule.kernels import KernelCall


@dataclass(frozen=True, slots=True)
class Call:
    """A kernel's call, with numbers for what it touches: in the walk, and among the variables."""

    bare: KernelCall
    nodes: tuple[int, ...]
    variables: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Family:
    """The kernels of one schedule, for all graphs of a structure in which some claims hold.

    `variables` are those of the claims, in the order of the graph's.
    """

    calls: tuple[Call, ...]
    variables: tuple[UOp, ...]
    claims: tuple[UOp, ...]

    def holds(self, values: Sequence[int]) -> bool:
        """Whether the schedule is right where the graph's variables have some values."""
        known = dict(zip(self.variables, values, strict=True))
        return all(index_at(claim, known) for claim in self.claims)

    def calls_in(self, order: Sequence[UOp], variables: Sequence[UOp]) -> list[KernelCall]:
        """Return the kernels' calls in a graph of the structure."""
        return [
            replace(
                each.bare,
                nodes=tuple([order[number] for number in each.nodes]),
                variables=tuple([variables[number] for number in each.variables]),
            )
            for each in self.calls
        ]


def family_of(
    calls: Sequence[KernelCall],
    order: Sequence[UOp],
    variables: Sequence[UOp],
    claims: Iterable[UOp],
) -> Family:
    """Return what the schedule of a graph is for all graphs of its structure."""
    numbers = {node: number for number, node in enumerate((*order, *variables))}
    known = numbered_variables(variables)
    kept = [
        Call(
            replace(each, nodes=(), variables=()),
            tuple([numbers[node] for node in each.nodes]),
            tuple([variables.index(node) for node in each.variables]),
        )
        for each in calls
    ]
    return Family(tuple(kept), tuple(known.values()), substitute_all(tuple(claims), known))
