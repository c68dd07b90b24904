"""Turns a user's function into a body: a graph over places, and what it reads from outside."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

from tinytensor.control.run import Body, copied
from tinytensor.dtype import dtypes
from tinytensor.errors import DeviceError, DTypeError, ShapeError, TraceError
from tinytensor.grad import gradients, make_place
from tinytensor.jit.structure import Nest, parts_of, with_tensors
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp, buffer, cast, walk
from tinytensor.realize import contents_of
from tinytensor.records import dataclass
from tinytensor.structure import rooted_on, variables_of
from tinytensor.tensor.base import TensorBase
from tinytensor.tensor.nodes import full_like, reshape
from tinytensor.tensor.operands import check_devices
from tinytensor.tensor.tensor import Tensor
from tinytensor.tracing import ACTIVE, Cell, CellState, Feed, TensorState, Trace, paused, tracing

Function = Callable[..., Any]  # takes and gives nests of Tensors
SHOWN = (Op.RESHAPE, Op.PERMUTE, Op.EXPAND)


@dataclass(frozen=True, slots=True, eq=False)
class Traced:
    """A body as a graph: the places of its inputs, the nodes it captures, and what it gives.

    `outside` are the nodes that its function read, which gradients may still need.
    """

    inputs: tuple[UOp, ...]
    captured: tuple[UOp, ...]
    roots: tuple[UOp, ...]
    outside: tuple[UOp, ...]

    def pulled(
        self, numbers: Sequence[int], weights: Sequence[UOp], by: Sequence[UOp]
    ) -> list[UOp]:
        """Return the gradients of weighted roots by some inputs or captured nodes."""
        ends = frozenset([*self.inputs, *self.captured])
        found = gradients([self.roots[n] for n in numbers], weights, by, ends)
        return [each or full_like(node, 0) for each, node in zip(found, by, strict=True)]

    def stored(self, node: UOp) -> UOp:
        """Return a root that has memory of its own, even where the body passes a value on."""
        content = contents_of(node)
        is_passed = content.op is Op.BUFFER or content in self.captured
        return copied(content) if is_passed else node

    def reads(self, place: UOp) -> bool:
        """Whether anything that the body gives depends on an input."""
        stop = {*self.inputs, *self.captured}
        return not {place, under(place)}.isdisjoint(walk(self.roots, stop=stop))

    def lowered(self, device: str, roots: Sequence[UOp], captured: Sequence[UOp]) -> Body:
        """Return the launches that give some roots, for memory of the inputs and the captured."""
        sources = [*self.inputs, *captured]
        shapes = [tuple(map(int, each.shape)) for each in sources]
        pairs = zip(sources, shapes, strict=True)
        leaves = [buffer(each.dtype, shape, device) for each, shape in pairs]
        mapped = dict(zip(sources, leaves, strict=True))
        mapped.update({under(each): mapped[each] for each in self.inputs})
        return Body(device, leaves, rooted_on(roots, mapped))


def traced(inputs: Sequence[UOp], roots: Sequence[UOp], outside: Sequence[UOp]) -> Traced:
    """Return a body; what it captures are nodes from outside, and any other leaf in memory."""
    own = {*inputs, *map(under, inputs)}
    known = {*outside} - own
    reached = walk(roots, stop=own | known)
    captured = [each for each in reached if each in known or each.op is Op.BUFFER]
    captured = [each for each in captured if each not in own]
    return Traced(tuple(inputs), tuple(captured), tuple(roots), tuple(outside))


def place_like(node: UOp, device: str) -> UOp:
    """Return an input of a body: a leaf without memory, by which one can differentiate."""
    leaf = buffer(node.dtype, tuple(map(int, node.shape)), device)
    return make_place(leaf) if leaf.dtype.is_float else leaf


def under(place: UOp) -> UOp:
    """Return the leaf of a place."""
    return place.operands[0] if place.op is Op.DETACH else place


class BodyTrace(Trace):
    """What a body does besides building expressions; a trace around it is told as well.

    What a body draws that `is_repeated` is drawn anew in each step, so its leaf serves no other.
    """

    def __init__(self, who: str, is_repeated: bool) -> None:
        super().__init__()
        self.who = who
        self.around = ACTIVE.trace
        self.read: dict[UOp, None] = {}
        if self.around is not None:
            self.watches, self.kept = self.around.watches, self.around.kept
            self.modules = self.around.modules
            self.draws = {} if is_repeated else self.around.draws

    def note(self, tensor: TensorBase) -> None:
        """Take note of a tensor before it is read or written; compute nothing."""
        cell: Cell = tensor.cell
        if cell in self.own_cells:
            return
        if self.around is not None:
            self.around.note(tensor)
        if cell not in self.cells:
            self.cells[cell] = CellState(tensor, cell.uop, cell.leaf, cell.lifted)
        if id(tensor) not in self.tensors:
            state = TensorState(weakref.ref(tensor), cell, tensor._view, tensor._grad)
            self.tensors[id(tensor)] = state
        with paused():
            node = tensor.uop
        while node.op in SHOWN:  # what lies in memory is read as it lies there
            node = node.operands[0]
        if node.op is not Op.CONST:
            self.read[node] = None

    def make(self, tensor: TensorBase, has_own_cell: bool) -> None:
        """Take note of a tensor that the body makes."""
        super().make(tensor, has_own_cell)
        if self.around is not None:
            self.around.make(tensor, has_own_cell)

    def begin_effect(self) -> None:
        """Ask the trace around whether the host may do what it does once a call."""
        if self.around is not None:
            self.around.begin_effect()

    def refuse(self, reason: str) -> None:
        """Let there be no program around, for a reason."""
        if self.around is not None:
            self.around.refuse(reason)

    def hand_over(self) -> list[Feed]:
        """Tell the trace around what the host did; return what it was asked for."""
        feeds = [each for each in self.actions if isinstance(each, Feed)]
        around = self.around
        if around is None:
            return feeds
        around.actions += [each for each in self.actions if not isinstance(each, Feed)]
        if self.draws is not around.draws:
            if not self.draws.keys().isdisjoint(around.draws):
                around.refuse("a loop that draws is computed again")
            around.draws.update(self.draws)
        return feeds

    def check_effects(self) -> None:
        """Refuse a body that changes what lies outside of it, which is then as it was before."""
        for each in self.tensors.values():
            tensor, state = each.tensor(), self.cells[each.cell]
            if tensor is None:
                continue
            if each.cell.uop is not state.uop or tensor._grad is not each.gradient:
                self.restore()
                sentence = f"{self.who}: a body changes a tensor from outside: shape {tensor.shape}"
                raise TraceError(f"{sentence}; it must return the value instead.")


@dataclass(frozen=True, slots=True, eq=False)
class Called:
    """A function that was called on places: its body, what it returned, and what it is fed."""

    body: Traced
    returned: Nest
    feeds: list[Feed]


def call(
    who: str, function: Function, given: Nest, places: Sequence[UOp], like: TensorBase
) -> Called:
    """Call a function on places in the place of the tensors in its arguments.

    Raises: TraceError when it does more than give tensors; DeviceError when it leaves the device.
    """
    trace = BodyTrace(who, is_repeated=who != "cond")
    with tracing(trace):
        tensors = iter([Tensor._made(place, like.device) for place in places])
        returned = function(*with_tensors(given, tensors))
        del tensors
        roots = [each.uop for each in listed(returned)]
    trace.check_effects()
    read = [state.tensor for state in trace.cells.values()]
    check_devices(who, [like, *read, *listed(returned)])
    body = traced(places, roots, list(trace.read))
    order = walk(roots, stop={*places, *body.captured})
    if Op.COPY in [each.op for each in order]:
        sentence = f"{who}: a body moves values between devices: it runs on {like.device}"
        raise DeviceError(f"{sentence}; it must stay there.")
    if variables_of(order):
        trace.refuse("a body depends on a size that varies")
    return Called(body, returned, trace.hand_over())


def pass_on(feeds: Sequence[Feed]) -> None:
    """Let the trace around ask the host for numbers at each call of its program."""
    if ACTIVE.trace is not None:
        ACTIVE.trace.actions += feeds


def condition_of(who: str, what: str, value: TensorBase) -> UOp:
    """Return a condition of one element as a bool.

    Raises: ShapeError.
    """
    if value.numel() != 1:
        sentence = f"{who}: {what} has several elements or none: shape {value.shape}"
        raise ShapeError(f"{sentence}; it must have one. Use any() or all().")
    return cast(reshape(value.uop, ()), dtypes.bool)


def listed(value: Nest) -> list[TensorBase]:
    """Return the tensors of a nest, in order, as often as they occur."""
    if isinstance(value, TensorBase):
        return [value]
    return [each for part in parts_of(value) or [] for each in listed(part)]


def check_tensors(who: str, what: str, value: Nest) -> list[TensorBase]:
    """Return the tensors of a nest that must hold one at least.

    Raises: TypeError.
    """
    found = listed(value)
    if not found:
        sentence = f"{who}: {what} holds no Tensor: {described(value)}"
        raise TypeError(f"{sentence}; there must be one at least.")
    return found


def described(value: Nest, is_full: bool = True) -> str:
    """Write what a nest is made of; unless full, without dtypes."""
    if isinstance(value, TensorBase):
        return f"{value.dtype.name} {value.shape}" if is_full else f"{value.shape}"
    parts = parts_of(value)
    if parts is None:
        return repr(value)
    kind = "" if type(value) is tuple else type(value).__name__
    names = [f"{key!r}: " for key in value] if type(value) is dict else [""] * len(parts)
    pairs = zip(names, parts, strict=True)
    return f"{kind}({', '.join([name + described(part, is_full) for name, part in pairs])})"


def check_alike(who: str, what: str, first: Nest, name: str, second: Nest) -> None:
    """Raise unless two nests are of one structure, with equal shapes and dtypes.

    Raises: DTypeError where only dtypes differ, else ShapeError.
    """
    if described(first) == described(second):
        return
    is_of_dtypes = described(first, False) == described(second, False)
    kind = DTypeError if is_of_dtypes else ShapeError
    sentence = f"{who}: {what} {described(first)}, {name} gives {described(second)}"
    raise kind(f"{sentence}; structures, shapes and dtypes must be equal.")
