"""Turns a traced call into one for all sizes: ints and extents of arguments become variables.

It is for functions that compute, and write to tensors; without gradients, draws or views among what
they return. What a call of another size gives is rebuilt from the graph, not from the function.
"""

from __future__ import annotations

import functools
import itertools
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from typing import Any

from tinytensor.grad import requires_gradient
from tinytensor.jit.build import Obstacle, Outside, ProgramGraph, check_leaks
from tinytensor.jit.direct import Tally, Way
from tinytensor.jit.facts import ASPECTS, MODES, watch_modules, watch_objects, watch_outside
from tinytensor.jit.program import (
    Effects,
    Origin,
    Output,
    Program,
    Reader,
    Run,
    Slot,
    Source,
    Write,
    spec_of,
)
from tinytensor.jit.structure import Builder, Fact, Flat, Nest, builder_of, tensors_in, with_ints
from tinytensor.ops.extents import index_at
from tinytensor.ops.op import Op
from tinytensor.ops.size import bind, bind_again, now, recorded_claims, size_of, value_of
from tinytensor.ops.uop import UOp, buffer, substitute_all, walk
from tinytensor.realize import Probe, storage_of
from tinytensor.records import dataclass
from tinytensor.runtime.lock import ForkSafeLock
from tinytensor.structure import rebound
from tinytensor.tensor.base import Cell, TensorBase
from tinytensor.tracing import Trace, Watch, tracing

Key = tuple[Fact, ...]
LEAST_MOST = 4096  # of a variable, however small the values seen are
OTHERS = "more than sizes is other"
ROOM = 4  # times the greatest value seen
MOST_BOUND = 1024


@dataclass(frozen=True, slots=True)
class Opening:
    """Which facts of a key are variables: an int by its place, an extent by its shape's and axis.

    `seen` are the values of each variable at two calls; equal pairs are one variable. `names` are
    those of all facts.
    """

    seen: tuple[tuple[int, int], ...]
    ints: dict[int, int]
    extents: dict[tuple[int, int], int]
    names: tuple[str, ...]

    def values(self, key: Key) -> list[int] | None:
        """Return the variables' values in another key; None where two of one variable differ."""
        found: dict[int, int] = {}
        places = [(number, key[at][1]) for at, number in self.ints.items()]
        places += [(number, key[at][axis]) for (at, axis), number in self.extents.items()]
        for number, value in places:
            if found.setdefault(number, value) != value:
                return None
        return [found[number] for number in range(len(self.seen))]

    def closed(self, key: Key) -> Key:
        """Return a key without what varies."""
        open_axes: dict[int, set[int]] = {}
        for at, axis in self.extents:
            open_axes.setdefault(at, set()).add(axis)
        facts = list(key)
        for at in self.ints:
            facts[at] = int
        for at, axes in open_axes.items():
            facts[at] = tuple([None if i in axes else n for i, n in enumerate(key[at])])
        return tuple(facts)


def find_opening(names: Sequence[str], was: Key, key: Key) -> Opening | None:
    """Return what to open so that two keys become one; None where more than sizes differ.

    Of a key and itself every size above 1 is opened.
    """
    is_all = was is key
    pairs: dict[tuple[int, int], int] = {}
    ints: dict[int, int] = {}
    extents: dict[tuple[int, int], int] = {}
    for at, (name, before, after) in enumerate(zip(names, was, key, strict=True)):
        if at < len(MODES) or (before == after and not is_all):
            if before != after:
                return None
        elif name.endswith(".shape") and len(before) == len(after) and 0 not in before + after:
            for axis, pair in _varying(before, after, is_all):
                extents[at, axis] = pairs.setdefault(pair, len(pairs))
        elif _is_int(before) and _is_int(after) and min(before[1], after[1]) >= 0:
            for _, pair in _varying(before[1:], after[1:], is_all):
                ints[at] = pairs.setdefault(pair, len(pairs))
        elif before != after:
            return None
    return Opening(tuple(pairs), ints, extents, tuple(names)) if pairs else None


def _varying(
    before: Sequence[int], after: Sequence[int], is_all: bool
) -> list[tuple[int, tuple[int, int]]]:
    """Return the pairs of numbers that are to be variables, with their places."""
    pairs = enumerate(zip(before, after, strict=True))
    return [(at, pair) for at, pair in pairs if pair[0] != pair[1] or (is_all and pair[0] > 1)]


def _is_int(fact: Fact) -> bool:
    return isinstance(fact, tuple) and len(fact) == 2 and fact[0] is int


@dataclass(slots=True, eq=False)
class OpenProgram:
    """The graph of a call, with variables, and what must hold for another call to be of it.

    The variables are its own. For each set of their values it is bound to one more program.
    """

    opening: Opening
    key: Key
    variables: tuple[UOp, ...]
    claims: tuple[UOp, ...]
    sources: tuple[Source, ...]
    readers: tuple[Reader, ...]
    watches: tuple[Watch, ...]
    kept: tuple[object, ...]
    graph: ProgramGraph
    writes: tuple[Write, ...]
    outputs: tuple[Output, ...]
    build: Builder
    is_single: bool
    bound: OrderedDict[tuple[int, ...], Way] = field(default_factory=OrderedDict)
    lock: ForkSafeLock = field(default_factory=ForkSafeLock)

    def complaint(self, key: Key, tensors: Sequence[TensorBase]) -> str:
        """Say why a call is none of this program; nothing if it is."""
        if self.opening.closed(key) != self.key:
            return OTHERS
        values = self.opening.values(key)
        if values is None:
            return "sizes that were equal differ"
        if tuple(values) not in self.bound:
            known = dict(zip(self.variables, values, strict=True))
            for each, value in known.items():
                if not each.attrs.least <= value <= each.attrs.most:
                    return f"{value} is not from {each.attrs.least} to {each.attrs.most}"
            if not all(index_at(claim, known) for claim in self.claims):
                return "the function does something else for these sizes"
        program = self.way(key).program
        return program.complaint(tensors, program.cells(tensors))

    def way(self, key: Key) -> Way:
        """Return the program for the values of a call: the kernels on memory of other sizes."""
        values = tuple(self.opening.values(key) or ())
        with self.lock:
            found = self.bound.get(values)
            if found is None:
                found = self.bound[values] = Way(self._bind(values), Tally(), None)
                if len(self.bound) > MOST_BOUND:
                    self.bound.popitem(last=False)
            return found

    def _bind(self, values: tuple[int, ...]) -> Program:
        graph = self.graph
        bind_again(dict(zip(self.variables, values, strict=True)))
        in_place = graph.prepare(graph.replaceable(self.writes))
        probes = tuple([_closed_probe(each) for each in graph.probes])
        leaves = [each for each, slot in graph.slots.items() if slot.origin is Origin.SOURCE]
        specs = [spec_of(each.dtype, _closed(each), each.attrs.device, False) for each in leaves]
        finders = [each.find for each in self.sources]

        def aside() -> Run:
            with self.lock:
                bind_again(dict(zip(self.variables, values, strict=True)))
                return graph.prepare({})

        return Program(
            readers=self.readers,
            sources=tuple([Source(*pair) for pair in zip(finders, specs, strict=True)]),
            slots=tuple(graph.slots.values()),
            actions=(),
            watches=self.watches,
            kept=self.kept,
            in_place=in_place,
            aside=functools.cache(aside),
            replaced=tuple(graph.replaced_by(in_place)),
            values=tuple(graph.values()),
            effects=Effects(self.writes, self.outputs, (), probes, self.build, self.is_single),
        )


def _closed(node: UOp) -> tuple[int, ...]:
    return tuple(map(now, node.shape))


def _closed_probe(probe: Probe) -> Probe:
    attrs = probe.attrs
    return replace(probe, attrs=replace(attrs, least=now(attrs.least), end=now(attrs.end)))


class OpenTrace(Trace):
    """A trace that gives up before the host draws or counts: the call is made once more then."""

    def begin_effect(self) -> None:
        """Raise Obstacle: a graph alone does not tell what the host does."""
        self.refuse("it draws, asks the host for numbers, or differentiates")
        raise Obstacle(self.obstacle)


class Failure(Exception):
    """The function raises an error: called as it is, it does so after what it does until then."""


def trace_open(
    function: Callable[..., Any],
    opening: Opening,
    key: Key,
    flat: Flat,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> OpenProgram:
    """Run a function with variables in its arguments, and take down what it computes.

    Raises: Obstacle when a call of another size needs the function; Failure when it raises.
    """
    trace = OpenTrace()
    values = opening.values(key)
    assert values is not None, "the opening was found for this key"
    variables = [
        bind(1 if min(seen) > 0 else 0, _most(max(seen)), value)
        for seen, value in zip(opening.seen, values, strict=True)
    ]
    sizes = [size_of(each, {each: n}) for each, n in zip(variables, values, strict=True)]
    try:
        with tracing(trace), recorded_claims() as claims:
            watch_outside(function, trace)
            watch_objects(trace, flat.objects)
            leaves = _open_arguments(trace, opening, sizes, flat)
            ints = {at - len(MODES): sizes[number] for at, number in opening.ints.items()}
            facts = itertools.count()
            given, named = [with_ints(each, ints, facts) for each in (args, kwargs)]
            try:
                returned = function(*given, **named)
            except Obstacle:
                raise
            except Exception as error:
                raise Failure from error
        watch_modules(trace, flat.objects)
        return _taken_down(trace, opening, key, variables, claims, leaves, flat, returned)
    finally:
        trace.restore()


def _most(seen: int) -> int:
    """Return the greatest value that a variable may have, once some were seen."""
    return max(LEAST_MOST, 1 << (ROOM * seen - 1).bit_length())


def _open_arguments(
    trace: Trace, opening: Opening, sizes: Sequence[int], flat: Flat
) -> dict[Cell, UOp]:
    """Let the arguments whose extents vary hold leaves of open shapes; return them by cell."""
    leaves: dict[Cell, UOp] = {}
    for tensor in flat.tensors:
        trace.note(tensor)
    first = len(MODES) + len(flat.facts)
    for number, tensor in enumerate(flat.tensors):
        at = first + number * len(ASPECTS)
        axes = {axis: sizes[each] for (place, axis), each in opening.extents.items() if place == at}
        if not axes:
            continue
        if tensor._view is not None:
            raise Obstacle("an argument whose size varies is a view, or requires a gradient")
        leaf = trace.cells[tensor.cell].leaf
        shape = tuple([axes.get(axis, extent) for axis, extent in enumerate(leaf.shape)])
        leaves[tensor.cell] = buffer(leaf.dtype, shape, leaf.attrs.device)
    for cell, leaf in leaves.items():
        cell.write(leaf)
    return leaves


def _taken_down(
    trace: Trace,
    opening: Opening,
    key: Key,
    variables: Sequence[UOp],
    claims: dict[UOp, None],
    leaves: dict[Cell, UOp],
    flat: Flat,
    returned: Nest,
) -> OpenProgram:
    if any(claim.op is Op.EQ for claim in claims):
        raise Obstacle("Python needs the plain number of what varies")
    results = tensors_in(returned)
    check_leaks(trace, {id(each): each for each in results})
    _check_effects(trace, results)
    # What else was made of the traced variables keeps their values of now.
    own = {each: bind(each.attrs.least, each.attrs.most, value_of(each)) for each in variables}
    stands: dict[UOp, UOp] = {}
    nodes = [each.uop for each in results]
    writes: list[Write] = []
    outside = Outside(trace, flat.tensors)
    for number, (cell, state) in enumerate(trace.cells.items()):
        shown = leaves.get(cell, state.leaf)
        if cell.uop is not leaves.get(cell, state.uop):
            writes.append(Write(number, len(nodes)))
            nodes.append(cell.uop)
        (like,) = rebound([shown], own)
        stands[shown] = buffer(like.dtype, like.shape, like.attrs.device)
    values = rebound(nodes, {**stands, **own})
    slots = _slots_of(list(stands.values()), values)
    numbers = {id(each): number for number, each in enumerate(results)}
    seen = enumerate(results)
    return OpenProgram(
        opening=opening,
        key=opening.closed(key),
        variables=tuple(own.values()),
        claims=substitute_all(tuple(claims), own),
        sources=tuple(outside.sources()),
        readers=tuple(outside.readers()),
        watches=tuple(trace.watches.values()),
        kept=tuple([*trace.kept, *flat.objects]),
        graph=ProgramGraph(values, slots, results[0].device if results else ""),
        writes=tuple(writes),
        outputs=tuple([Output(None, None, at, None, type(x), x.device, x.site) for at, x in seen]),
        build=builder_of(returned, numbers),
        is_single=isinstance(returned, TensorBase),
    )


def _slots_of(sources: Sequence[UOp], values: Sequence[UOp]) -> dict[UOp, Slot]:
    """Return where the memory of each leaf comes from; what the function itself made is held."""
    slots = {leaf: Slot(Origin.SOURCE, number, None) for number, leaf in enumerate(sources)}
    constants = [each for each in walk(values) if each.op is Op.BUFFER and each not in slots]
    return {**slots, **{each: Slot(Origin.CONSTANT, 0, storage_of(each)) for each in constants}}


def _check_effects(trace: Trace, results: Sequence[TensorBase]) -> None:
    """Refuse what a graph alone does not tell.

    Raises: Obstacle.
    """
    if trace.obstacle:
        raise Obstacle(trace.obstacle)
    for state in trace.tensors.values():
        tensor = state.tensor()
        if tensor is not None and tensor._grad is not state.gradient:
            raise Obstacle("a gradient changes")
    for cell, known in trace.cells.items():
        if known.uop is not known.leaf or cell.lifted != known.lifted:
            raise Obstacle("a tensor from outside carries a gradient")
        if requires_gradient(cell.uop):
            raise Obstacle("a value that requires a gradient is written outside of it")
    own = [each.cell for each in results]
    if len(set(own)) < len(own) or not trace.own_cells.issuperset(own):
        raise Obstacle("results share memory, or are tensors that were there before")
    if any(requires_gradient(each.uop) for each in results):
        raise Obstacle("a result requires a gradient")
