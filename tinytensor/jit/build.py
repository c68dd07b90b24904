"""Turns a trace into a program, or into the reason why there is none."""

from __future__ import annotations

import functools
import gc
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from tinytensor.control.legs import prepare
from tinytensor.grad import requires_gradient
from tinytensor.jit.program import (
    Effects,
    Finder,
    GradientChange,
    Origin,
    Output,
    Program,
    Reader,
    Run,
    Slot,
    Source,
    Value,
    Write,
    spec_of,
)
from tinytensor.jit.structure import Nest, builder_of, tensors_in
from tinytensor.ops.op import Op
from tinytensor.ops.size import now
from tinytensor.ops.uop import UOp, buffer, nbytes_of, walk
from tinytensor.realize import contents_of, default_device_name, probes_below, storage_of
from tinytensor.structure import rooted_on
from tinytensor.tensor.base import Cell, TensorBase
from tinytensor.tensor.grad_mode import MODE
from tinytensor.tensor.view import View
from tinytensor.tracing import Feed, TensorState, Trace


class Obstacle(Exception):
    """Why a call cannot be made again without running the function."""


def build_program(trace: Trace, arguments: Sequence[TensorBase], returned: Nest) -> Program:
    """Return the program of a traced call.

    Raises: Obstacle with the reason if there is none.
    """
    if trace.obstacle:
        raise Obstacle(trace.obstacle)
    outside = Outside(trace, arguments)
    changed = outside.changed_gradients()
    given = {id(each): each for each in tensors_in(returned)}
    found = [owner._grad for owner in changed if owner._grad is not None]
    given.update({id(each): each for each in found})
    check_leaks(trace, given)
    values = _Values(trace)
    outputs = [_output_of(each, outside, values) for each in given.values()]
    writes = [Write(number, values.add(cell)) for number, cell in outside.written()]
    graph = _graph_of(trace, values)
    replaceable = graph.replaceable(writes)
    in_place = graph.prepare(replaceable)
    places = {key: number for number, key in enumerate(given)}
    gradients = [
        GradientChange(outside.find(owner), places.get(id(owner._grad))) for owner in changed
    ]
    effects = Effects(
        writes=tuple(writes),
        outputs=tuple(outputs),
        gradients=tuple(gradients),
        probes=tuple(graph.probes),
        build=builder_of(returned, places),
        is_single=isinstance(returned, TensorBase),
    )
    return Program(
        readers=tuple(outside.readers()),
        sources=tuple(outside.sources()),
        slots=tuple(graph.slots.values()),
        actions=tuple(trace.actions),
        watches=tuple(trace.watches.values()),
        kept=tuple(trace.kept),
        in_place=in_place,
        aside=functools.cache(functools.partial(graph.prepare, {})),
        replaced=tuple(graph.replaced_by(in_place)),
        values=tuple(graph.values()),
        effects=effects,
    )


def check_leaks(trace: Trace, given: dict[int, TensorBase]) -> None:
    """Refuse a call that leaves behind tensors in places which a program does not know of."""
    for _ in range(2):
        living = [each() for each in trace.made]
        leaked = [each for each in living if each is not None and id(each) not in given]
        if not leaked:
            return
        site = leaked[0].site
        del living, leaked
        gc.collect()  # cycles keep tensors for a while that nobody can find
    line = f", made at {site.describe()}" if site is not None else ""
    raise Obstacle(f"a tensor that it makes is kept outside of it{line}")


class Outside:
    """The tensors that were there before the call, and how a program finds them again."""

    def __init__(self, trace: Trace, arguments: Sequence[TensorBase]) -> None:
        self._trace = trace
        self._finders: dict[int, Finder] = {}
        for place, argument in enumerate(arguments):
            self._finders.setdefault(id(argument), Finder(place, None))
        self._arguments = set(self._finders)
        made = {id(each()) for each in trace.made}
        self._tensors: dict[int, TensorBase] = {}
        self._states: dict[int, TensorState] = {}
        for key, state in trace.tensors.items():
            tensor: TensorBase | None = state.tensor()
            if tensor is None or state.cell not in trace.cells or key in made:
                continue
            if tensor.cell is not state.cell or tensor._view is not state.view:
                raise Obstacle("a tensor from outside is made to hold or to require something else")
            self._tensors[key], self._states[key] = tensor, state
        for key, state in self._states.items():
            if state.gradient is not None:
                find = self.find(self._tensors[key])
                self._finders[id(state.gradient)] = replace(find, is_gradient=True)
        self._numbers = {cell: number for number, cell in enumerate(trace.cells)}
        if MODE.get() and any(requires_gradient(each.uop) for each in trace.cells.values()):
            raise Obstacle("a gradient would go on to what was computed before the call")

    def find(self, tensor: TensorBase) -> Finder:
        """Return what finds a tensor at each call."""
        return self._finders.get(id(tensor)) or Finder(None, tensor)

    def find_known(self, tensor: TensorBase) -> Finder | None:
        """Return what finds a tensor at each call, if it was there before."""
        return self.find(tensor) if id(tensor) in self._states else None

    def number(self, cell: Cell) -> int | None:
        """Return the number of a cell that was there before."""
        return self._numbers.get(cell)

    def changed_gradients(self) -> list[TensorBase]:
        """Return the tensors whose gradient is another one than before."""
        pairs = [(self._tensors[key], state.gradient) for key, state in self._states.items()]
        return [tensor for tensor, gradient in pairs if tensor._grad is not gradient]

    def written(self) -> Iterator[tuple[int, Cell]]:
        """Give the cells that hold another value than before, and their numbers."""
        for number, (cell, state) in enumerate(self._trace.cells.items()):
            if cell.lifted != state.lifted:
                raise Obstacle("a value with a gradient is written through a cut")
            if cell.uop is state.uop:
                continue
            if requires_gradient(cell.uop):
                raise Obstacle("a value that requires a gradient is written outside of it")
            yield number, cell

    def readers(self) -> Iterator[Reader]:
        """Give what is known of each tensor."""
        captured = {id(each) for each in self._trace.kept}
        for key, state in self._states.items():
            tensor, number = self._tensors[key], self._numbers[state.cell]
            seen = (number, state.view, state.gradient is not None)
            is_argument = key in self._arguments
            yield Reader(self.find(tensor), *seen, is_argument)
            if is_argument and key in captured:  # it has to be the same one again
                yield Reader(Finder(None, tensor), *seen, False)

    def sources(self) -> Iterator[Source]:
        """Give what is known of each cell."""
        first = {each.cell: each for each in reversed(self._tensors.values())}
        for cell, state in self._trace.cells.items():
            leaf = state.leaf
            carries_gradient = requires_gradient(state.uop)
            spec = spec_of(leaf.dtype, leaf.shape, leaf.attrs.device, carries_gradient)
            tensor = first.get(cell)
            yield Source(self.find(state.tensor if tensor is None else tensor), spec)


class _Values:
    """The cells whose values a program gives, each once, with a tensor that tells where."""

    def __init__(self, trace: Trace) -> None:
        self.cells: dict[Cell, int] = {}
        self.devices: list[str] = []

    def add(self, cell: Cell) -> int:
        """Return the number of a cell's value."""
        return self.cells.setdefault(cell, len(self.cells))


def _output_of(tensor: TensorBase, outside: Outside, values: _Values) -> Output:
    known = outside.find_known(tensor)
    number = outside.number(tensor.cell)
    view = tensor._view
    value = 0
    if known is None:
        if requires_gradient(tensor.uop) and tensor.uop not in outside._trace.differentiated:
            raise Obstacle("a result requires a gradient")
        if number is None:
            value = values.add(tensor.cell)
            values.devices.append(tensor.device)
            view = _without_marks(view)
    return Output(known, number, value, view, type(tensor), tensor.device, tensor.site)


def _without_marks(view: View | None) -> View | None:
    if view is None:
        return None
    bare = view.marked(0)
    return None if bare.is_plain else bare


class ProgramGraph:
    """The values of a program over leaves that hold no memory of their own, which are its slots.

    Raises: Obstacle when they are on several devices.
    """

    def __init__(self, values: Sequence[UOp], slots: dict[UOp, Slot], device: str) -> None:
        self.slots = slots
        self._contents = [contents_of(each) for each in values]
        self._values = values
        roots = [each for each in dict.fromkeys(self._contents) if each.op is not Op.BUFFER]
        order = walk(roots)
        devices = {each.attrs.device for each in slots}
        if len(devices) > 1 or any(each.op is Op.COPY for each in order):
            raise Obstacle("values move between devices")
        self.device = next(iter(devices), device or default_device_name())
        self.probes = probes_below(roots, order, [])
        self.roots = [*roots, *[each.node for each in self.probes]]

    def replaceable(self, writes: Sequence[Write]) -> dict[UOp, UOp]:
        """Return the leaves in whose memory the values that go to their cells may be computed."""
        counts = Counter(self._contents)
        pairs = [(slot, leaf) for leaf, slot in self.slots.items()]
        leaves = {slot.number: leaf for slot, leaf in pairs if slot.origin is Origin.SOURCE}
        found = {}
        for write in writes:
            content = self._contents[write.value]
            leaf = leaves.get(write.source)
            if leaf is None or content.op is Op.BUFFER or counts[content] > 1:
                continue
            if leaf in counts:  # some value is what lies there now
                continue
            if nbytes_of(leaf) == nbytes_of(content):
                found[content] = leaf
        return found

    def prepare(self, replaceable: dict[UOp, UOp]) -> Run:
        """Return the launches that compute all values; they hold no user's memory."""
        numbers = {leaf: number for number, leaf in enumerate(self.slots)}
        replay, order = prepare(self.roots, replaceable, self.device)
        return Run(replay, tuple([numbers[order[each]] for each in replay.leaves]))

    def replaced_by(self, run: Run) -> Iterator[int]:
        """Give the sources whose memory some launches write to, by number."""
        slots = list(self.slots.values())
        taken = dict(zip(run.replay.leaves, run.slots, strict=True))
        for result in run.replay.results:
            if result.replaced is not None:
                yield slots[taken[result.replaced]].number

    def values(self) -> Iterator[Value]:
        """Give where each value is found."""
        numbers = {leaf: number for number, leaf in enumerate(self.slots)}
        results = {root: number for number, root in enumerate(self.roots)}
        counts = Counter(self._contents)
        for uop, content in zip(self._values, self._contents, strict=True):
            spec = spec_of(uop.dtype, tuple(map(now, uop.shape)), self.device, False)
            is_leaf = content.op is Op.BUFFER
            result = None if is_leaf else results[content]
            slot = numbers[content] if is_leaf else None
            yield Value(spec, result, slot, is_leaf or counts[content] > 1, None)


def _graph_of(trace: Trace, values: _Values) -> ProgramGraph:
    """Return the graph of the values that a traced call leaves in some cells."""
    states = list(trace.cells.values())
    known = {state.uop: state.leaf for state in states}
    placeholders = _Placeholders(trace)
    bare = placeholders.bare([cell.uop for cell in values.cells], known)
    found = [*[each.leaf.attrs.device for each in states[:1]], *values.devices]
    return ProgramGraph(bare, placeholders.slots, next(iter(found), ""))


class _Placeholders:
    """What stands for each leaf that a traced call reads, without its memory."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self.slots: dict[UOp, Slot] = {}
        self._leaves: dict[UOp, UOp] = {}

    def bare(self, roots: Sequence[UOp], known: dict[UOp, UOp]) -> list[UOp]:
        """Return a graph over placeholders in which gradients end nowhere."""
        nodes = walk(roots, stop=known.keys())
        leaves = {node: known.get(node, node) for node in nodes}
        buffers = [node for node, leaf in leaves.items() if leaf.op is Op.BUFFER]
        return rooted_on(roots, {node: self._placeholder(leaves[node]) for node in buffers})

    def _placeholder(self, leaf: UOp) -> UOp:
        found = self._leaves.get(leaf)
        if found is None:
            slot = self._slot_of(leaf)
            found = self._leaves[leaf] = buffer(leaf.dtype, leaf.shape, leaf.attrs.device)
            self.slots[found] = slot
        return found

    def _slot_of(self, leaf: UOp) -> Slot:
        for number, state in enumerate(self._trace.cells.values()):
            if state.leaf is leaf:
                return Slot(Origin.SOURCE, number, None)
        for number, action in enumerate(self._trace.actions):
            if isinstance(action, Feed) and action.leaf is leaf:
                return Slot(Origin.FEED, number, None)
        if leaf.attrs.serial > self._trace.first_serial and leaf.memory is not None:
            return Slot(Origin.CONSTANT, 0, storage_of(leaf))
        raise Obstacle("it reads what was computed before the call")
