"""Takes note of what a function that is traced reads, draws and makes.

While a thread traces, nothing is computed for it: the function only builds expressions. What it
reads from outside is noted by cell, because a program reads the same cells again at each call.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import CellType
from typing import Any

import numpy as np

from tinytensor.config import config
from tinytensor.dtype import DType, dtypes
from tinytensor.errors import TraceError, caller_site
from tinytensor.ops.uop import UOp, buffer
from tinytensor.realize import from_host
from tinytensor.records import dataclass

# This lies below tensors, modules and optimizers, and only remembers them.
Tensor = Any
Cell = Any
Fact = Any  # whatever a guard compares
Numbers = Sequence[Any]  # nested where a loop asks for them several times
HostNumbers = Callable[[], Numbers]


@dataclass(frozen=True, slots=True)
class Feed:
    """Numbers that the host computes anew for each call: a draw, the rates of an optimizer.

    The `first` are those of the call that is traced.
    """

    first: Numbers
    numbers: HostNumbers
    dtype: DType
    device: str
    leaf: UOp


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value is read: a global by its name, what a cell of a closure holds, or an object."""

    holder: Any  # a dict, a cell, or anything
    name: str | None = None

    def read(self) -> object:
        """Return the value; None where there is none."""
        if self.name is not None:
            return self.holder.get(self.name)
        if not isinstance(self.holder, CellType):
            return self.holder
        try:
            return self.holder.cell_contents
        except ValueError:  # not filled yet
            return None


@dataclass(frozen=True, slots=True)
class Watch:
    """A fact outside of the arguments that a program relies on, and how it is read again.

    If there is a `place`, it is about the value there and what that holds.
    """

    name: str
    read: Callable[[], Fact]
    known: Fact
    place: Place | None = None


@dataclass(frozen=True, slots=True)
class CellState:
    """A cell from outside as it was when it was first read, and a tensor that reads it."""

    tensor: Tensor
    uop: UOp
    leaf: UOp
    lifted: frozenset[int]


@dataclass(frozen=True, slots=True)
class TensorState:
    """A tensor as it was when it was first read."""

    tensor: weakref.ref[Tensor]
    cell: Cell
    view: Any  # a View or None
    gradient: Tensor | None


class Trace:
    """What one call of a function did, besides building expressions.

    `actions` are what the host repeats at each call, in order; `wanted` is what was asked to be
    computed; `kept` are objects that are known by identity; an `obstacle` says why no program can
    be made of the call.
    """

    def __init__(self) -> None:
        self.who = "jit"
        self.cells: dict[Cell, CellState] = {}
        self.tensors: dict[int, TensorState] = {}
        self.own_cells: set[Cell] = set()
        self.made: list[weakref.ref[Tensor]] = []
        self.wanted: list[weakref.ref[Tensor]] = []
        self.actions: list[Feed | Callable[[], object]] = []
        self.watches: dict[object, Watch] = {}
        self.modules: dict[Any, None] = {}
        self.kept: list[object] = []
        self.draws: dict[object, UOp] = {}
        self.differentiated: list[UOp] = []
        self.obstacle = ""
        self.first_serial: int = buffer(dtypes.bool, (), "").attrs.serial

    def note(self, tensor: Tensor) -> None:
        """Take note of a tensor before it is read or written."""
        cell = tensor.cell
        known = self.tensors.get(id(tensor))
        if known is None or known.tensor() is not tensor:
            state = TensorState(weakref.ref(tensor), cell, tensor._view, tensor._grad)
            self.tensors[id(tensor)] = state
        if cell in self.own_cells or cell in self.cells:
            return
        with paused():
            tensor._settle({each.leaf for each in self.cells.values()})
        self.cells[cell] = CellState(tensor, cell.uop, cell.leaf, cell.lifted)

    def make(self, tensor: Tensor, has_own_cell: bool) -> None:
        """Take note of a tensor that the function makes."""
        self.made.append(weakref.ref(tensor))
        if has_own_cell:
            self.own_cells.add(tensor.cell)

    def watch(
        self, key: object, name: str, read: Callable[[], Fact], place: Place | None = None
    ) -> None:
        """Rely on a fact that is read again before each call."""
        if key not in self.watches:
            self.watches[key] = Watch(name, read, read(), place)

    def begin_effect(self) -> None:
        """Take note that the host is about to do what it does once a call: draw, count a step."""

    def restore(self) -> None:
        """Make tensors from outside what they were before the call."""
        for cell, state in self.cells.items():
            if cell.uop is not state.uop:  # else other threads may be reading its memory
                cell.write(state.uop)
            cell.leaf, cell.lifted, cell.replaced = state.leaf, state.lifted, None
        for each in self.tensors.values():
            tensor = each.tensor()
            if tensor is not None:
                tensor._grad = each.gradient

    def refuse(self, reason: str) -> None:
        """Let the function run as it is at each call, for a reason."""
        self.obstacle = self.obstacle or reason


class _Active(threading.local):
    trace: Trace | None = None


ACTIVE = _Active()
TRACES: list[Trace] = []  # of all threads


@contextmanager
def tracing(trace: Trace | None) -> Iterator[None]:
    """Let a trace take note of what this thread does inside the block."""
    before, ACTIVE.trace = ACTIVE.trace, trace
    if trace is not None:
        TRACES.append(trace)
        config.note_change()  # so that jitted functions ask whether this thread traces
    try:
        yield
    finally:
        ACTIVE.trace = before
        if trace is not None:
            TRACES.remove(trace)


def paused() -> Any:  # noqa: ANN401 - a context
    """Take note of nothing inside a block, in which values are computed as ever."""
    return tracing(None)


def repeat(action: Callable[[], object]) -> None:
    """Do something on the host now, and again whenever the program of this trace is called."""
    if ACTIVE.trace is not None:
        ACTIVE.trace.begin_effect()
        ACTIVE.trace.actions.append(action)
    action()


def feed(numbers: HostNumbers, dtype: DType, device: str) -> UOp:
    """Return a leaf that holds numbers of the host, which each call of a program asks for anew."""
    if ACTIVE.trace is not None:
        ACTIVE.trace.begin_effect()
    first = numbers()
    leaf = from_host(np.asarray(first, dtype.storage_numpy), dtype, device)
    if ACTIVE.trace is not None:
        ACTIVE.trace.actions.append(Feed(first, numbers, dtype, device, leaf))
    return leaf


def refuse_reading(shape: tuple[int, ...]) -> None:
    """Raise TraceError where a value is read while a function is traced."""
    if ACTIVE.trace is None:
        return
    sentence = f"{ACTIVE.trace.who}: a value is read while the function is traced: shape {shape}"
    advice = "Return it, or choose with where() or cond()."
    site = caller_site()
    line = f"\nread at {site.describe()}" if site is not None else ""
    raise TraceError(f"{sentence}; only results may be read. {advice}{line}")
