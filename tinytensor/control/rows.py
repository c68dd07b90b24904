"""Turns a body into a scan over stacked operands, and its gradient into one the other way."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tinytensor.control.run import Scan, Spec, copied
from tinytensor.control.trace import Traced, place_like, traced
from tinytensor.grad import Gradients, requires_gradient, route
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp, cast, walk
from tinytensor.realize import contents_of
from tinytensor.records import dataclass
from tinytensor.runtime.buffer import ALIGNMENT_BYTES
from tinytensor.tensor.formulas import add
from tinytensor.tensor.joining import join
from tinytensor.tensor.nodes import (
    Shape,
    full,
    full_like,
    pad_axis,
    reshape,
    take_part,
    widen,
)

Nodes = Sequence[UOp]


def walk_rows(device: str, body: Traced, init: Nodes, rows: Nodes, order: range) -> list[UOp]:
    """Return the last state, and what the steps give, stacked.

    The first roots of the body are the next state, its inputs the state and a row of each operand.
    """
    count, end = len(init), len(body.roots)
    if not order:
        results = body.roots[count:]
        return [*init, *[_empty(each) for each in results]]
    places = body.inputs[count:]
    rows = [row for row, each in zip(rows, places, strict=True) if body.reads(each)]
    inputs = [*body.inputs[:count], *filter(body.reads, places)]
    body = traced(inputs, body.roots, body.outside)
    nodes = _nodes(device, body, init, rows, order)
    sources = (*init, *rows, *body.captured)
    kept = tuple(nodes[end:])
    walked = _Walked(device, body, sources, order, kept)
    keys = [*range(count), *range(2 * count, count + end)]
    return [*walked.routed(nodes[:end], keys)]


def _nodes(device: str, body: Traced, init: Nodes, rows: Nodes, order: range) -> list[UOp]:
    """Return the last state, what the steps give and the states that they give, both stacked."""
    count = len(init)
    states = body.roots[:count]
    results = body.roots[count:]
    stacked = [*results, *states]
    stored = _apart(body, stacked)
    plain = [*states, *stored[: len(results)]]
    keeping = [*states, *stored]
    bodies = [
        body.lowered(device, plain, body.captured),
        body.lowered(device, keeping, body.captured),
    ]
    packed = [_packed(each) for each in rows]
    specs = [Spec(each.dtype, each.shape) for each in states]
    for each in stacked:
        pitch = _pitch_of(each)
        specs.append(Spec(each.dtype, (len(order), pitch)))
    scan = Scan(device, specs, bodies, order, count, len(rows))
    nodes = scan.nodes([*init, *packed, *body.captured])
    for number, each in enumerate(stacked, start=count):
        nodes[number] = _unpacked(nodes[number], each.shape)
    return nodes


@dataclass(frozen=True, slots=True, eq=False)
class _Walked:
    """A scan that was built: its gradient is one in the other direction.

    `sources` are the first state, the stacked operands and what is captured; `kept` are the states
    that the steps gave, stacked.
    """

    device: str
    body: Traced
    sources: tuple[UOp, ...]
    order: range
    kept: tuple[UOp, ...]

    def routed(self, values: Nodes, keys: Sequence[int]) -> Nodes:
        """Return values with their gradients.

        A key below the number of states is that of a last one; what lies above it is the number of
        the body's root whose values are stacked.
        """

        def rule(results: Nodes, upstreams: Gradients) -> Gradients:
            by_key = dict(zip(keys, upstreams, strict=True))
            return self._pulled(by_key)

        return route(values, self.sources, rule)

    def _pulled(self, by_key: dict[int, UOp | None]) -> Gradients:
        """Return the gradient of each source, None where there is none.

        The state of the scan that gives them is the gradient of the state, and the sum so far of
        the gradients of what is captured; halves are summed in float32.
        """
        body, count = self.body, len(self.kept)
        upstreams = {key: each for key, each in by_key.items() if each is not None}
        floats = [n for n in range(count) if body.roots[n].dtype.is_float]
        needed = [n for n, each in enumerate(self.sources) if requires_gradient(each)]
        rows = [n for n in needed if count <= n < len(body.inputs)]
        summed = [n for n in needed if n >= len(body.inputs)]
        stacked = [key for key in upstreams if key >= count]
        last = [upstreams.get(n) or full_like(body.roots[n], 0) for n in floats]
        zeros = [full_like(widen(self.sources[n]), 0) for n in summed]
        sums = [place_like(each, self.device) for each in zeros]
        numbers = [*floats, *[key - count for key in stacked]]
        weights = [place_like(body.roots[n], self.device) for n in numbers]
        sought = [*floats, *summed, *rows]
        places = [*body.inputs, *body.captured]
        roots = body.pulled(numbers, weights, [places[n] for n in sought])
        first = len(floats)
        for number, each in enumerate(sums, start=first):
            roots[number] = add(each, widen(roots[number]))
        inputs = [*weights[:first], *sums, *body.inputs]
        inputs += weights[first:]
        operands = self._before()
        operands += self.sources[count : len(body.inputs)]
        operands += [upstreams[key] for key in stacked]
        backward = traced(inputs, roots, body.outside)
        order = self.order[::-1]
        made = walk_rows(self.device, backward, last + zeros, operands, order)
        found: list[UOp | None] = [None] * len(self.sources)
        for n, each in zip(sought, made, strict=True):
            found[n] = cast(each, self.sources[n].dtype)
        return found

    def _before(self) -> list[UOp]:
        """Return the states that the steps read, stacked."""
        count, n = len(self.kept), len(self.order)
        routed = self.routed(self.kept, range(count, 2 * count))
        found = []
        for init, states in zip(self.sources, routed, strict=False):
            first = reshape(init, (1, *states.shape[1:]))
            if n == 1:
                found.append(first)
            elif self.order.step > 0:
                others = take_part(states, 0, range(n - 1))
                found.append(join([first, others], 0))
            else:
                others = take_part(states, 0, range(1, n))
                found.append(join([others, first], 0))
        return found


def _empty(row: UOp) -> UOp:
    """Return no rows."""
    return full(row.dtype, 0, (0, *row.shape))


def _pitch_of(row: UOp) -> int:
    """Return how far apart rows lie, so that each begins where kernels may. Units: elements."""
    multiple = ALIGNMENT_BYTES // row.dtype.itemsize
    return -(-math.prod(row.shape) // multiple) * multiple


def _packed(rows: UOp) -> UOp:
    """Return rows as vectors that begin where kernels may begin."""
    n, *shape = rows.shape
    elements = math.prod(shape)
    row = full(rows.dtype, 0, tuple(shape))
    pitch = _pitch_of(row)
    flat = reshape(rows, (n, elements))
    return pad_axis(flat, 1, 0, pitch - elements, 0)


def _unpacked(rows: UOp, shape: Shape) -> UOp:
    """Return packed rows in a shape of their own."""
    flat = take_part(rows, 1, range(math.prod(shape)))
    return reshape(flat, (rows.shape[0], *shape))


def _apart(body: Traced, roots: Nodes) -> list[UOp]:
    """Return roots each of which a kernel stores for its own sake, wherever it is told to."""
    nodes = walk(roots, stop={*body.inputs, *body.captured})
    runs = [node for node in nodes if node.op is Op.RUN]
    taken = {contents_of(each) for node in runs for each in node.operands}
    found = []
    for each in roots:
        node = contents_of(body.stored(each))
        while node in taken or node.op is Op.RUN:
            node = copied(node)
        taken.add(node)
        found.append(node)
    return found
