"""Runs what a traced call did on other arguments."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import Enum, auto

import numpy as np

from tinytensor.control.legs import Legs
from tinytensor.dtype import dtypes
from tinytensor.errors import Site
from tinytensor.grad import requires_gradient
from tinytensor.jit.structure import Builder, Nest
from tinytensor.jit.words import kinds, seen, watched
from tinytensor.ops.uop import UOp, buffer
from tinytensor.realize import Probe, expect, storage_of
from tinytensor.records import dataclass
from tinytensor.replay import Replay
from tinytensor.runtime.buffer import Buffer
from tinytensor.runtime.device import Device
from tinytensor.runtime.interrupts import uninterrupted
from tinytensor.tensor.base import NO_PARTS, Cell, FilledCell, Spec, TensorBase
from tinytensor.tensor.view import View
from tinytensor.timing import timed
from tinytensor.tracing import Feed, Watch

Arguments = Sequence[TensorBase]
spec_of = functools.lru_cache(maxsize=4096)(Spec)


class Miss:
    """What stands for a result where the guards of a program do not hold."""


MISS = Miss()


@dataclass(frozen=True, slots=True)
class Finder:
    """How a tensor is found at each call: as an argument, as it is, or as the gradient of that."""

    place: int | None
    tensor: TensorBase | None
    is_gradient: bool = False

    def __call__(self, arguments: Arguments) -> TensorBase:
        """Return the tensor."""
        found = self.tensor if self.place is None else arguments[self.place]
        if self.is_gradient and found is not None:
            found = found._grad
        assert found is not None, "a guard sees to it that there is one"
        return found


@dataclass(frozen=True, slots=True)
class Reader:
    """A tensor from outside that a program reads or writes: by number, whose source's cell.

    What it must be like when it is no argument: those are looked up by what they are like.
    """

    find: Finder
    source: int
    view: View | None
    has_gradient: bool
    is_argument: bool


@dataclass(frozen=True, slots=True)
class Source:
    """A cell that a program reads or writes: how it is found at each call, and what it holds."""

    find: Finder
    spec: Spec


class Origin(Enum):
    """Where the memory of a leaf comes from."""

    SOURCE = auto()
    FEED = auto()
    CONSTANT = auto()


@dataclass(frozen=True, slots=True)
class Slot:
    """A leaf of a program: the number of its source or feed, or memory that the program holds."""

    origin: Origin
    number: int
    memory: Buffer | None


@dataclass(frozen=True, slots=True)
class Value:
    """Something that a program gives: the number of a result, or of a slot that holds it already.

    `is_shared` with another value, or with what holds it already.
    """

    spec: Spec
    result: int | None
    slot: int | None
    is_shared: bool
    site: Site | None


@dataclass(frozen=True, slots=True)
class Write:
    """A value, by number, that goes to the cell of a source."""

    source: int
    value: int


@dataclass(frozen=True, slots=True)
class Output:
    """A tensor that a program returns: one that was there, or one that sees a cell.

    The cell is that of a source, or a fresh one with a value; both by number.
    """

    known: Finder | None
    source: int | None
    value: int
    view: View | None
    kind: type[TensorBase]
    device: str
    site: Site | None


@dataclass(frozen=True, slots=True)
class GradientChange:
    """A gradient that a call leaves behind: the number of an output, or None."""

    owner: Finder
    output: int | None


@dataclass(frozen=True, slots=True)
class Run:
    """Launches, and the numbers of the slots whose memory they read."""

    replay: Replay | Legs
    slots: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Effects:
    """What a call does besides computing."""

    writes: tuple[Write, ...]
    outputs: tuple[Output, ...]
    gradients: tuple[GradientChange, ...]
    probes: tuple[Probe, ...]
    build: Builder
    is_single: bool


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """A traced call, ready to be made again.

    `in_place` writes results to the memory of the `replaced` sources, by number; `aside` does not,
    for calls in which somebody can still read what is there.
    """

    readers: tuple[Reader, ...]
    sources: tuple[Source, ...]
    slots: tuple[Slot, ...]
    actions: tuple[Feed | Callable[[], object], ...]
    watches: tuple[Watch, ...]
    kept: tuple[object, ...]
    in_place: Run
    aside: Callable[[], Run]
    replaced: tuple[int, ...]
    values: tuple[Value, ...]
    effects: Effects

    def cells(self, arguments: Arguments) -> list[Cell]:
        """Return the cells that a call reads and writes, each with its value in memory."""
        return [filled(each.find(arguments)) for each in self.sources]

    @timed("guards")
    def complaint(self, arguments: Arguments, cells: Sequence[Cell]) -> str:
        """Say what is not as it was, besides the arguments' kinds; nothing if all is."""
        for watch in self.watches:
            now = watch.read()
            if now != watch.known:
                return watched(watch.name, watch.known, now)
        if len({*map(id, cells)}) < len(cells):
            return "tensors that had memory of their own share it"
        for cell, source in zip(cells, self.sources, strict=True):
            assert cell.spec is not None, "a cell that is filled knows what it holds"
            if cell.spec != source.spec:
                return kinds(source.spec, cell.spec)
        for reader in self.readers:
            tensor = reader.find(arguments)
            if tensor.cell is not cells[reader.source]:
                return "tensors that shared memory have some of their own"
            if reader.is_argument:
                continue
            if tensor._view is not reader.view and tensor._view != reader.view:
                return seen(reader.view, tensor._view)
            if (tensor._grad is not None) is not reader.has_gradient:
                return "the gradient of a tensor from outside came or went"
        return ""

    def run_first(self, arguments: Arguments) -> Nest:
        """Finish the call that was traced: what the host does has been done."""
        fed = [each.leaf if isinstance(each, Feed) else None for each in self.actions]
        done = [None if each is None else storage_of(each) for each in fed]
        return self.run(arguments, self.cells(arguments), done)

    @timed("replay")
    def run(
        self,
        arguments: Arguments,
        cells: Sequence[Cell],
        done: Sequence[Buffer | None] | None = None,
    ) -> Nest:
        """Compute all that the call gives, write what it writes, and build what it returns."""
        if done is None:
            done = [_act(each) for each in self.actions]
        memories = [self._memory_in(each, cells, done) for each in self.slots]
        is_free = all(is_unread(cells[number]) for number in self.replaced)
        chosen = self.in_place if is_free else self.aside()
        with uninterrupted(is_free and bool(self.replaced)):
            results = chosen.replay.run([memories[slot] for slot in chosen.slots])
            held = [_held(each, results, memories) for each in self.values]
            for write in self.effects.writes:
                refill(cells[write.source], held[write.value])
            if self.effects.probes:
                expect_all(self.effects.probes, results[-len(self.effects.probes) :])
            return self._finish(arguments, cells, held)

    def _finish(self, arguments: Arguments, cells: Sequence[Cell], held: Sequence[Buffer]) -> Nest:
        effects = self.effects
        fresh: dict[int, Cell] = {}
        outputs: list[TensorBase] = []
        for each in effects.outputs:
            if each.known is not None:
                outputs.append(each.known(arguments))
                continue
            if each.source is not None:
                cell = cells[each.source]
            else:
                known = fresh.get(each.value)
                spec = self.values[each.value].spec
                cell = fresh[each.value] = known or fresh_cell(held[each.value], spec)
            outputs.append(seeing(cell, each))
        for change in effects.gradients:
            owner = change.owner(arguments)
            owner._grad = None if change.output is None else outputs[change.output]
        return effects.build(outputs)

    @staticmethod
    def _memory_in(slot: Slot, cells: Sequence[Cell], done: Sequence[Buffer | None]) -> Buffer:
        if slot.origin is Origin.SOURCE:
            memory = cells[slot.number].memory
        elif slot.origin is Origin.FEED:
            memory = done[slot.number]
        else:
            memory = slot.memory
        assert memory is not None, "program: every slot has memory when it runs"
        return memory


def filled(tensor: TensorBase) -> Cell:
    """Return a tensor's cell with its value in memory, and what there is to know of it."""
    cell = tensor.cell
    if cell.memory is None:
        tensor._settle(())
        leaf = cell.leaf
        assert leaf is not None, "settling computes the value"
        cell.memory = storage_of(leaf)
        carries_gradient = requires_gradient(cell.uop)
        cell.spec = spec_of(leaf.dtype, leaf.shape, leaf.attrs.device, carries_gradient)
    return cell


def is_unread(cell: Cell) -> bool:
    """Tell whether nobody but this cell can read its value."""
    memory = cell.memory
    if memory is None or memory.is_shared:
        return False
    if type(cell) is FilledCell:  # nobody has asked for a leaf yet
        return True
    return _references(cell) == OWN_REFERENCES


def _references(cell: Cell) -> int:
    leaf = cell.leaf
    return sys.getrefcount(leaf) - (cell.uop is leaf)


# How many references a leaf has that only its cell holds; the count itself adds some.
OWN_REFERENCES = _references(Cell(buffer(dtypes.bool, (), "")))


def refill(cell: Cell, memory: Buffer) -> None:
    """Replace the value of a cell by one in memory."""
    cell.leave_parts()
    cell.replaced = None
    if type(cell) is not FilledCell:
        cell.__class__ = FilledCell  # it makes its leaf when asked for
        del cell.uop, cell.leaf
    cell.memory = memory


def fresh_cell(memory: Buffer, spec: Spec) -> Cell:
    """Return a cell with a value in memory."""
    cell: FilledCell = FilledCell()
    cell.memory, cell.spec = memory, spec
    cell.lifted, cell.parts, cell.replaced = frozenset(), NO_PARTS, None
    return cell


def seeing(cell: Cell, output: Output) -> TensorBase:
    """Return a tensor that sees a cell as an output of the traced call did."""
    tensor = output.kind.__new__(output.kind)
    tensor.cell, tensor.device, tensor.site = cell, output.device, output.site
    tensor._view = output.view
    tensor._current = tensor._grad = None
    return tensor


def _act(action: Feed | Callable[[], object]) -> Buffer | None:
    """Do what the host does at each call; a feed gives memory that holds its numbers."""
    if not isinstance(action, Feed):
        action()
        return None
    numbers = np.asarray(action.numbers(), action.dtype.storage_numpy)
    device = Device[action.device]
    memory = device.allocate(numbers.nbytes)
    device.copy_in(memory, numbers)
    return memory


def _held(value: Value, results: Sequence[Buffer], memories: Sequence[Buffer]) -> Buffer:
    """Return the memory of a value."""
    if value.result is None:
        assert value.slot is not None, "program: a value is computed or there"
        memory = memories[value.slot]
    else:
        memory = results[value.result]
        memory.site = value.site
    if value.is_shared:
        memory.is_shared = True
    return memory


def expect_all(probes: Sequence[Probe], memories: Sequence[Buffer]) -> None:
    """Let whoever reads next look at what probes give, which lies in memories."""
    found = []
    for probe, memory in zip(probes, memories, strict=True):
        leaf: UOp = buffer(probe.node.dtype, probe.node.shape, memory.device.name)
        leaf.memory = memory
        found.append(replace(probe, node=leaf))
    expect(found)
