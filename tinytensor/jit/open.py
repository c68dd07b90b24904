"""Turns a traced call into one for all sizes: ints and extents of arguments become variables.

It is for functions that compute, and write to tensors; without gradients, draws or views among what
they return. What a call of another size gives is rebuilt from the graph, not from the function.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tinytensor.grad import requires_gradient
from tinytensor.jit.build import Obstacle, check_leaks
from tinytensor.jit.facts import ASPECTS, MODES, watch_modules, watch_objects, watch_outside
from tinytensor.jit.structure import Builder, Fact, Flat, Nest, builder_of, tensors_in, with_ints
from tinytensor.jit.words import watched
from tinytensor.ops.extents import index_at
from tinytensor.ops.op import Op
from tinytensor.ops.size import bind, now, recorded_claims, size_of
from tinytensor.ops.uop import UOp, buffer
from tinytensor.realize import realize
from tinytensor.structure import rebound
from tinytensor.tensor.base import Cell, TensorBase
from tinytensor.tracing import Trace, Watch, tracing

Key = tuple[Fact, ...]
LEAST_MOST = 4096  # of a variable, however small the values seen are
OTHERS = "more than sizes is other"
ROOM = 4  # times the greatest value seen


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


@dataclass(frozen=True, slots=True)
class OpenSource:
    """A cell that is read: an argument's by place, or that of a tensor from outside.

    `leaf` stands for its value in the graph.
    """

    place: int | None
    tensor: TensorBase | None
    leaf: UOp

    def find(self, tensors: Sequence[TensorBase]) -> TensorBase:
        """Return the tensor of the cell at a call, whose value is then in memory."""
        found = self.tensor if self.place is None else tensors[self.place]
        assert found is not None, "a source is an argument, or a tensor from outside"
        found._settle(())
        return found


@dataclass(frozen=True, slots=True)
class OpenResult:
    """A tensor that is returned: its class and its device."""

    kind: type[TensorBase]
    device: str


@dataclass(slots=True, eq=False)
class OpenProgram:
    """The graph of a call, with variables, and what must hold for another call to be of it."""

    opening: Opening
    key: Key
    variables: tuple[UOp, ...]
    claims: tuple[UOp, ...]
    sources: tuple[OpenSource, ...]
    watches: tuple[Watch, ...]
    kept: tuple[object, ...]
    nodes: tuple[UOp, ...]
    results: tuple[OpenResult, ...]
    written: tuple[int, ...]
    build: Builder
    calls: int = 0
    bound: dict[tuple[int, int], UOp] = field(default_factory=dict)

    def values(self, key: Key) -> list[int] | None:
        """Return the values of the variables in a call, if it is one of this program."""
        return None if self.complaint(key) else self.opening.values(key)

    def complaint(self, key: Key) -> str:
        """Say why a call is none of this program; nothing if it is."""
        if self.opening.closed(key) != self.key:
            return OTHERS
        values = self.opening.values(key)
        if values is None:
            return "sizes that were equal differ"
        known = dict(zip(self.variables, values, strict=True))
        for each, value in known.items():
            if not each.attrs.least <= value <= each.attrs.most:
                return f"{value} is not from {each.attrs.least} to {each.attrs.most}"
        if not all(index_at(claim, known) for claim in self.claims):
            return "the function does something else for these sizes"
        for watch in self.watches:
            now = watch.read()
            if now != watch.known:
                return watched(watch.name, watch.known, now)
        return ""

    def run(self, values: Sequence[int], tensors: Sequence[TensorBase]) -> Nest:
        """Make a call; None when a tensor from outside has another shape or dtype."""
        self.calls += 1
        made, cells = self._graph(values, tensors)
        roots = [cell.root(each.device, None) for cell, each in cells]
        for (cell, _), leaf in zip(cells, realize(roots), strict=True):
            cell.keep(leaf)
        closed: dict[UOp, UOp] = {}
        for tensor in made:
            _close(tensor.cell, closed)
        return self.build(made)

    def fits(self, tensors: Sequence[TensorBase]) -> bool:
        """Whether the tensors from outside are of the shapes and dtypes that were traced."""
        for each in self.sources:
            if each.place is None:
                leaf = each.find(tensors).cell.leaf
                assert leaf is not None, "settling computes the value"
                if leaf.shape != each.leaf.shape or leaf.dtype is not each.leaf.dtype:
                    return False
        return True

    def _graph(
        self, values: Sequence[int], tensors: Sequence[TensorBase]
    ) -> tuple[list[TensorBase], list[tuple[Cell, TensorBase]]]:
        """Put this call's values into the graph; return results, and what is to be computed.

        Nothing here outlives it that holds a leaf: what is written may be computed in its place.
        """
        places = dict(zip(self.variables, self._bind(values), strict=True))
        owners = [each.find(tensors) for each in self.sources]
        for each, owner in zip(self.sources, owners, strict=True):
            places[each.leaf] = _leaf_like(each.leaf, owner.cell.leaf, places)
        nodes = rebound(self.nodes, places)
        count = len(self.results)
        made = [
            each.kind._made(node, each.device)
            for each, node in zip(self.results, nodes[:count], strict=True)
        ]
        for number, node in zip(self.written, nodes[count:], strict=True):
            owners[number].cell.write(node)
        cells = [(each.cell, each) for each in made]
        return made, [*cells, *[(owners[n].cell, owners[n]) for n in self.written]]

    def _bind(self, values: Sequence[int]) -> Iterator[UOp]:
        for number, (variable, value) in enumerate(zip(self.variables, values, strict=True)):
            known = self.bound.get((number, value))
            if known is None:
                known = bind(variable.attrs.least, variable.attrs.most, value)
                self.bound[number, value] = known
            yield known


def _leaf_like(traced: UOp, leaf: UOp | None, places: dict[UOp, UOp]) -> UOp:
    """Return the leaf of a value under the shape that a graph reads it with."""
    assert leaf is not None, "settling computes the value"
    (shown,) = rebound([traced], places)
    if shown is traced:
        return leaf
    seen = buffer(leaf.dtype, shown.shape, leaf.attrs.device)
    seen.memory = leaf.memory
    return seen


def _close(cell: Cell, closed: dict[UOp, UOp]) -> None:
    """Let a result have plain ints as its shape."""
    leaf = cell.leaf
    assert leaf is not None, "it was computed"
    if leaf not in closed:
        closed[leaf] = buffer(leaf.dtype, tuple(map(now, leaf.shape)), leaf.attrs.device)
        closed[leaf].memory = leaf.memory
    cell.uop = cell.leaf = closed[leaf]


def trace_open(
    function: Callable[..., Any],
    opening: Opening,
    key: Key,
    flat: Flat,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> OpenProgram:
    """Run a function with variables in its arguments, and take down what it computes.

    Raises: Obstacle when a call of another size needs the function.
    """
    trace = Trace()
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
            returned = function(*given, **named)
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
    stands: dict[UOp, UOp] = {}
    sources: list[OpenSource] = []
    written: list[int] = []
    places = {tensor.cell: place for place, tensor in reversed(list(enumerate(flat.tensors)))}
    for cell, state in trace.cells.items():
        shown = leaves.get(cell, state.leaf)
        if cell.uop is not leaves.get(cell, state.uop):
            written.append(len(sources))
        leaf = leaves.get(cell) or buffer(shown.dtype, shown.shape, shown.attrs.device)
        stands[shown] = leaf
        place = places.get(cell)
        sources.append(OpenSource(place, state.tensor if place is None else None, leaf))
    cells = list(trace.cells)
    nodes = [*[each.uop for each in results], *[cells[number].uop for number in written]]
    numbers = {id(each): number for number, each in enumerate(results)}
    return OpenProgram(
        opening=opening,
        key=opening.closed(key),
        variables=tuple(variables),
        claims=tuple(claims),
        sources=tuple(sources),
        watches=tuple(trace.watches.values()),
        kept=tuple([*trace.kept, *flat.objects]),
        nodes=tuple(rebound(nodes, stands)),
        results=tuple([OpenResult(type(each), each.device) for each in results]),
        written=tuple(written),
        build=builder_of(returned, numbers),
    )


def _check_effects(trace: Trace, results: Sequence[TensorBase]) -> None:
    """Refuse what a graph alone does not tell.

    Raises: Obstacle.
    """
    if trace.obstacle:
        raise Obstacle(trace.obstacle)
    if trace.actions or trace.differentiated:
        raise Obstacle("it draws, asks the host for numbers, or differentiates")
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
