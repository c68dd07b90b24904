"""Runs bodies: launches whose choice and number the host decides as it goes."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import field, replace
from functools import cached_property
from typing import ClassVar

from tinytensor.config import config
from tinytensor.control.legs import Legs, prepare
from tinytensor.dtype import DType, dtypes
from tinytensor.ops.attrs import RunAttrs
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp, buffer, walk
from tinytensor.realize import Probe, contents_of, expect, probes_below, to_host
from tinytensor.records import dataclass
from tinytensor.replay import NOTHING_GIVEN, Given, Replay
from tinytensor.runtime.buffer import Buffer, BufferPart
from tinytensor.runtime.device import Device
from tinytensor.tensor.nodes import order_attrs
from tinytensor.timing import note


@dataclass(frozen=True, slots=True)
class Spec:
    """The dtype and shape of a result."""

    dtype: DType
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ControlAttrs(RunAttrs):
    """RUN: what the host runs, and which of its results this is."""

    control: Control


@dataclass(frozen=True, slots=True)
class Decided:
    """What the host has decided, for who watches."""

    sentence: str


def copied(node: UOp) -> UOp:
    """Return a view that moves nothing, so that a value is stored in memory of its own."""
    return UOp(Op.PERMUTE, node.dtype, (node,), order_attrs(tuple(range(len(node.shape)))))


@dataclass(frozen=True, slots=True)
class _Ready:
    replay: Replay | Legs
    slots: tuple[int, ...]
    probes: Sequence[Probe]


class Body:
    """A graph over placeholders: launched again and again, each time on other memory."""

    def __init__(self, device: str, leaves: Sequence[UOp], roots: Sequence[UOp]) -> None:
        self._device = device
        self.results = len(roots)
        self._slots = {leaf: number for number, leaf in enumerate(leaves)}
        self._contents = [contents_of(each) for each in roots]
        computed = [each for each in self._contents if each.op is not Op.BUFFER]
        self._computed = {each: number for number, each in enumerate(dict.fromkeys(computed))}

    @cached_property
    def ready(self) -> _Ready:
        """The launches, with their kernels compiled."""
        roots = list(self._computed)
        probes = probes_below(roots, walk(roots), [])
        replay, order = prepare([*roots, *[each.node for each in probes]], {}, self._device)
        return _Ready(replay, tuple([self._slots[order[n]] for n in replay.leaves]), probes)

    def run(self, memories: Sequence[Buffer], given: Given = NOTHING_GIVEN) -> list[Buffer]:
        """Launch it on the memory of its placeholders; return that of the results.

        What is `given`, by number, is where to put a result; a root that is a placeholder gives
        the memory of that.
        """
        ready = self.ready
        places = {self._computed[self._contents[n]]: memory for n, memory in given.items()}
        results = ready.replay.run([memories[slot] for slot in ready.slots], places)
        for probe, memory in zip(ready.probes, results[len(self._computed) :], strict=True):
            leaf = buffer(probe.node.dtype, probe.node.shape, self._device)
            leaf.memory = memory
            expect([replace(probe, node=leaf)])
        return [
            memories[self._slots[each]] if each.op is Op.BUFFER else results[self._computed[each]]
            for each in self._contents
        ]


@dataclass(eq=False)
class Control:
    """What the host runs in place of a node: `kept` are results by operands and number.

    They live as long as a node that may be asked for them.
    """

    device: str
    specs: Sequence[Spec]
    bodies: Sequence[Body]
    kept: dict[tuple[tuple[UOp, ...], int], UOp] = field(default_factory=dict, init=False)
    who: ClassVar[str]

    def nodes(self, operands: Sequence[UOp]) -> list[UOp]:
        """Return the node of each result."""
        given = tuple(operands)
        return [
            UOp(Op.RUN, spec.dtype, given, ControlAttrs(number, spec.shape, self))
            for number, spec in enumerate(self.specs)
        ]

    def run(self, memories: Sequence[Buffer], numbers: Sequence[int]) -> dict[int, Buffer]:
        """Return the memory of results, of those asked for at least, given that of the operands."""
        raise NotImplementedError

    def _holds(self, memory: Buffer) -> bool:
        """Read a condition, which waits for the device."""
        leaf = buffer(dtypes.bool, (), self.device)
        leaf.memory = memory
        return bool(to_host(leaf))

    def _tell(self, what: str) -> None:
        sentence = f"{self.who}: the host decides: {what}."
        note(Decided(sentence))
        if config.debug >= 2:
            print(sentence, file=sys.stderr)

    def _own(self, states: Sequence[Buffer], memories: Sequence[Buffer]) -> dict[int, Buffer]:
        """Return the last state of a loop in memory that is nobody else's."""
        found = []
        for number, state in enumerate(states):
            is_own = type(state) is not BufferPart and state not in memories
            found.append(state if is_own else self._copies[number].run([state])[0])
        return dict(enumerate(_told_apart(found)))

    @cached_property
    def _copies(self) -> list[Body]:
        leaves = [buffer(each.dtype, each.shape, self.device) for each in self.specs]
        return [Body(self.device, [leaf], [copied(leaf)]) for leaf in leaves]


class Choice(Control):
    """One of two bodies, as a condition says that the host reads."""

    who = "cond"

    def run(self, memories: Sequence[Buffer], numbers: Sequence[int]) -> dict[int, Buffer]:
        """Read the first operand, and run a body on the others."""
        is_true = self._holds(memories[0])
        self._tell(f"the predicate is {is_true}, one of two bodies runs")
        results = self.bodies[0 if is_true else 1].run(memories[1:])
        return dict(enumerate(_told_apart(results)))


class While(Control):
    """A condition, which the host reads before each step, and a body that runs while it holds."""

    who = "while_loop"

    def run(self, memories: Sequence[Buffer], numbers: Sequence[int]) -> dict[int, Buffer]:
        """Run the body on the state, which the first operands are, and on the others."""
        count = len(self.specs)
        states, captured = list(memories[:count]), memories[count:]
        condition, body = self.bodies
        times = 0
        while self._holds(condition.run([*states, *captured])[0]):
            states = body.run([*states, *captured])
            times += 1
        self._tell(f"the condition was read {times + 1} times, the body ran {times} times")
        return self._own(states, memories)


@dataclass(eq=False)
class Scan(Control):
    """A body that runs once for each row of stacked operands, in an order.

    Operands are the state, the stacked ones and what is captured. Results are the last state, what
    the steps give, stacked, and the stacked states, which are stored only if somebody asks: the
    first body gives the former two, the second all of them.
    """

    order: range
    states: int
    stacked: int
    who = "scan"

    def run(self, memories: Sequence[Buffer], numbers: Sequence[int]) -> dict[int, Buffer]:
        """Run the body on the state, on a row of each stacked operand, and on the others."""
        count, last, n = self.states, self.states + self.stacked, len(self.order)
        body = self.bodies[max(numbers) >= len(self.specs) - count]
        states, captured = list(memories[:count]), memories[last:]
        wholes = {number: self._allocate(number) for number in range(count, body.results)}
        for step in self.order:
            rows = [_row(each, step, n) for each in memories[count:last]]
            given = {number: _row(each, step, n) for number, each in wholes.items()}
            states = body.run([*states, *rows, *captured], given)[:count]
        self._tell(f"the body ran {n} times")
        return {**self._own(states, [*memories, *wholes.values()]), **wholes}

    def _allocate(self, number: int) -> Buffer:
        spec = self.specs[number]
        return Device[self.device].allocate(math.prod(spec.shape) * spec.dtype.itemsize)


def _row(memory: Buffer, step: int, count: int) -> Buffer:
    nbytes = memory.nbytes // count
    return memory.part(step * nbytes, nbytes)


def _told_apart(memories: list[Buffer]) -> list[Buffer]:
    """Mark memory in which several values lie."""
    for each in memories:
        each.is_shared = each.is_shared or memories.count(each) > 1
    return memories
