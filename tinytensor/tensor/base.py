"""Turns a cell's expression into values: the state every Tensor has, and how it is realized."""

from __future__ import annotations

import math
import weakref
from collections.abc import Collection, Container
from typing import Any, Final, Self, overload
from weakref import ref

import numpy as np
import numpy.typing as npt

from tinytensor.dtype import DType, dtypes
from tinytensor.errors import (
    DTypeError,
    GradientError,
    IndexOutOfRange,
    ShapeError,
    Site,
    caller_site,
)
from tinytensor.grad import Rule, cut, make_leaf, requires_gradient, serial_of_leaf, with_rules
from tinytensor.ops.interpret import from_storage
from tinytensor.ops.op import Op
from tinytensor.ops.uop import Number, UOp, buffer, cast, walk
from tinytensor.provenance import COLLECTING
from tinytensor.realize import HOLDERS, Root, alias_of, realize, to_host
from tinytensor.records import dataclass
from tinytensor.runtime.buffer import Buffer
from tinytensor.tensor import nodes
from tinytensor.tensor.axes import Shape, check_axis
from tinytensor.tensor.grad_mode import MODE
from tinytensor.tensor.view import (
    View,
    apply_steps,
    chain,
    check_writable,
    view_of_all,
    write_through,
)
from tinytensor.tracing import ACTIVE, refuse_reading

BUFFER, DETACH = Op.BUFFER, Op.DETACH  # looked up once: every cell asks
NOTE_HOLDER = HOLDERS.append
Nested = Any  # a Python number, or lists as deep as the tensor has axes: no type says that


# Whose gradient a leaf's is: by serial, so that storing a leaf's value changes no owner.
OWNERS: weakref.WeakValueDictionary[int, TensorBase] = weakref.WeakValueDictionary()


@dataclass(frozen=True, slots=True)
class Spec:
    """What a program knows of a cell it reads; one record for equal ones, so that `is` compares."""

    dtype: DType
    shape: Shape
    device: str
    requires_grad: bool


class Cell:
    """What tensors share: an expression and, once it is realized, the leaf of its buffer.

    A write replaces the expression, so whoever sees the cell reads the written value from then
    on, and what was built before keeps the one it has read. `parts` are what views see of it;
    `lifted` are the cuts that gradients pass since a value with a gradient was written there;
    `replaced` is the leaf of the last computed value, while somebody holds it.
    """

    __slots__ = ("__weakref__", "leaf", "lifted", "memory", "parts", "replaced", "spec", "uop")
    memory: Buffer | None  # that of the leaf and what is known of it, once a program asked
    spec: Spec | None

    def __init__(self, uop: UOp) -> None:
        self.uop = uop
        self.memory = self.spec = None
        self.leaf = uop if uop.op is BUFFER else None
        self.lifted = NO_CUTS
        self.parts: set[weakref.ref[Part]] = NO_PARTS
        self.replaced: weakref.ref[UOp] | None = None

    def write(self, uop: UOp) -> None:
        """Replace the value, which no view has seen yet."""
        if self.leaf is not None:
            self.replaced = weakref.ref(self.leaf)
        self.memory = None
        self.uop = uop
        self.leaf = uop if uop.op is BUFFER else None
        self.leave_parts()

    def leave_parts(self) -> None:
        """Tell the views of the value that it is not this cell's any more."""
        if self.parts is NO_PARTS:
            return
        for part in self._living_parts():
            part.is_current = False
            part.uop, part.leaf = part.expression, None  # holds no value any more
        self.parts = NO_PARTS

    def keep(self, leaf: UOp) -> None:
        """Take in the computed value; what a gradient may still need stays an expression."""
        self.memory = None
        self.leaf = leaf
        if not requires_gradient(self.uop):
            self.refer(leaf)

    def refer(self, uop: UOp) -> None:
        """Hold another expression of the same value, through which no gradient passes either."""
        self.uop = uop
        for part in self._living_parts():
            if part.leaf is None and not requires_gradient(part.uop):
                part.uop = self.read(part.expression)

    def root(self, device: str, site: Site | None) -> Root:
        """Return what is to be computed, and in whose memory it may be."""
        is_dropped = not requires_gradient(self.uop)
        replaced = self.replaced() if is_dropped and self.replaced is not None else None
        return Root(self.uop, device, site, is_dropped, replaced, self.keep)

    def read(self, expression: UOp) -> UOp:
        """Return what a view sees: of the computed value, where no gradient needs its graph."""
        steps = chain(expression)
        if self.lifted:
            steps = [each for each in steps if not self._is_lifted(each)]
        leaf = self.leaf
        if leaf is not None and leaf is not self.uop and DETACH in [each.op for each in steps]:
            return apply_steps(steps, leaf)
        return apply_steps(steps, self.uop)

    def part(self, expression: UOp) -> Part:
        """Return what a view sees, to be realized by itself."""
        found = Part(self.read(expression))
        found.expression = expression
        found.is_current = True
        if self.parts is NO_PARTS:
            self.parts = set()
        self.parts.add(weakref.ref(found, self.parts.discard))
        return found

    def mark(self, expression: UOp) -> int:
        """Return a view's mark: a leaf's serial, that of a cut (below 0), or 0."""
        marks = [each for each in chain(expression) if each.op is DETACH]
        return next((each.attrs.serial for each in marks if not self._is_lifted(each)), 0)

    def _is_lifted(self, node: UOp) -> bool:
        return node.op is DETACH and node.attrs.serial in self.lifted

    def _living_parts(self) -> list[Part]:
        found = [reference() for reference in list(self.parts)]
        return [part for part in found if part is not None]


class FilledCell(Cell):
    """A cell whose value a program has put into memory; its leaf is made when it is asked for."""

    __slots__ = ()
    __init__ = object.__init__  # the program fills in the rest

    def __getattr__(self, name: str) -> UOp:
        memory, spec = self.memory, self.spec
        assert memory is not None and spec is not None, f"cell: {name} is there once it is filled"
        leaf = buffer(spec.dtype, spec.shape, spec.device)
        leaf.memory = memory
        self.uop = self.leaf = leaf
        self.__class__ = Cell  # type: ignore[assignment]  # from now on it is like any other
        return leaf


class Part(Cell):
    """What a view sees of a cell; not current any more once that cell is written."""

    __slots__ = ("expression", "is_current")
    expression: UOp
    is_current: bool


NO_PARTS: Final[set[weakref.ref[Part]]] = set()
NO_CUTS: Final[frozenset[int]] = frozenset()
# Cells that were written and may not be computed yet, with their device and the line of the write.
WRITTEN: Final[dict[weakref.ref[Cell], tuple[str, Site | None]]] = {}


def written_below(cells: Collection[Cell]) -> list[Root]:
    """Return the values that were written to other cells and that these cells are made of.

    They are computed with them: else each read of a state that grows by writes would make all of
    them again. Every realization passes here: of what it does not read, it asks no function.
    """
    waiting: list[tuple[Cell, tuple[str, Site | None]]] = []
    for reference, place in [*WRITTEN.items()]:
        cell = reference()
        if cell is None or cell.leaf is not None:
            WRITTEN.pop(reference, None)
        elif cell not in cells:
            waiting.append((cell, place))
    below = set(walk([each.uop for each in cells])) if waiting else set()
    return [cell.root(*place) for cell, place in waiting if cell.uop in below]


def _zeros_for(place: int) -> Rule:
    """Return the rule of an operand that a write has covered, or has put nowhere."""
    return lambda g, out, *operands: nodes.full_like(operands[place], 0)


class TensorBase:
    """A lazy array: a cell, how the tensor sees it, a device, and the line that made it.

    `_view` is None where it sees all of the cell as it is.
    """

    __slots__ = ("__weakref__", "_grad", "_current", "_view", "cell", "device", "site")
    # With None, NumPy's arrays and scalars leave `array + tensor` to the Tensor.
    __array_ufunc__ = None

    cell: Cell
    _view: View | None
    _current: Part | None
    device: str
    site: Site | None
    _grad: TensorBase | None

    @classmethod
    def _made(cls, uop: UOp, device: str, requires_grad: bool = False) -> Self:
        tensor = cls.__new__(cls)
        tensor._fill(uop, device, requires_grad)
        return tensor

    def _fill(self, uop: UOp, device: str, requires_grad: bool) -> None:
        is_cut = requires_grad or not MODE.get()
        self.cell = Cell(cut(uop) if is_cut else uop)
        self._view = self._current = None
        self.device = device
        self.site = caller_site(inside=2)
        if COLLECTING.collector is not None:
            COLLECTING.collector.note_line(self.cell.uop, self.site)
        self._grad = None
        if ACTIVE.trace is not None:
            ACTIVE.trace.make(self, has_own_cell=True)
        if requires_grad:
            self._become_leaf()

    def _become_leaf(self) -> None:
        """Let this tensor require a gradient of its own; others of its cell do not change."""
        if not self.dtype.is_float:
            sentence = f"tensor: only floats can require a gradient: dtype is {self.dtype.name}"
            raise DTypeError(f"{sentence}; it must be a float dtype.")
        layout = self._layout()
        serial = serial_of_leaf(make_leaf(layout.expression))
        self._look(layout.marked(serial))
        OWNERS[serial] = self

    def _wrap(self, uop: UOp) -> Self:
        """Return a tensor of a fresh cell, which is asked whether its value had better be stored.

        Not so a gradient, most of which is never in memory.
        """
        tensor = self._blank()
        tensor._fill(uop, self.device, False)
        NOTE_HOLDER(ref(tensor.cell))
        return tensor

    def _seen(self, view: View) -> Self:
        """Return a tensor that sees this one's cell in another way."""
        if ACTIVE.trace is not None:
            ACTIVE.trace.note(self)
        tensor = self._blank()
        tensor.cell = self.cell
        if MODE.get():
            tensor._look(None if view.is_plain else view)
        else:
            tensor._look(view.cut_off())
        tensor.device = self.device
        tensor.site = caller_site(inside=2)
        tensor._grad = None
        if ACTIVE.trace is not None:
            ACTIVE.trace.make(tensor, has_own_cell=False)
        return tensor

    def _blank(self) -> Self:
        """Return a tensor to be filled, of the class that results and views of this one have."""
        return type(self).__new__(type(self))

    def _layout(self) -> View:
        return view_of_all(self.cell.uop) if self._view is None else self._view

    def _look(self, view: View | None) -> None:
        """See the cell in another way from now on."""
        self._view = view
        self._current = None

    def _own_cell(self) -> Cell:
        """Return the cell of this tensor's value, which is not its storage if it sees a part."""
        if self._view is None or self._view.is_whole:
            return self.cell
        if self._current is None or not self._current.is_current:
            self._current = self.cell.part(self._view.expression)
        return self._current

    @property
    def _mark(self) -> int:
        """What the view says of gradients."""
        return self.cell.mark(self._view.expression) if self._view else 0

    def _write(self, who: str, value: UOp, is_one_value: bool = False) -> None:
        """Replace the values by others of the same shape and dtype: the one door of all writes.

        Where gradients do not pass, that of what stood here before is kept as it was.

        Raises: GradientError for a leaf that requires a gradient, or for a view of one, while
        gradients are on; ShapeError where elements share memory, but for one value in all.
        """
        if ACTIVE.trace is not None:
            ACTIVE.trace.note(self)
        mark = self._mark
        if MODE.get() and mark > 0:
            sentence = f"{who}: a leaf that requires a gradient is written: shape {self.shape}"
            raise GradientError(f"{sentence}; gradients must be off. Use no_grad().")
        if self._view is not None and not is_one_value:
            check_writable(who, self._view)
        if value is self.uop:
            return
        before = self.cell.uop
        whole = write_through(self._view.expression, value, before) if self._view else value
        if MODE.get() and mark < 0 and requires_gradient(value):
            self.cell.lifted |= {mark}
        elif mark or not MODE.get():
            whole = with_rules(cut(whole), [before], lambda g, *_: g)
        if MODE.get() and not requires_gradient(whole):
            whole = with_rules(whole, [before, value], _zeros_for(0), _zeros_for(1))
        self.cell.write(whole)
        self.site = caller_site(inside=2)
        WRITTEN[weakref.ref(self.cell)] = self.device, self.site
        if COLLECTING.collector is not None:
            COLLECTING.collector.note_line(whole, self.site)

    def _replace(self, who: str, result: TensorBase) -> Self:
        """Write what an operation on this tensor gives; its dtype may widen, not change kind."""
        if result.shape != self.shape:
            sentence = f"{who}: the result has another shape: {result.shape} for {self.shape}"
            raise ShapeError(f"{sentence}; a tensor that is written is not broadcast.")
        dtype, found = self.dtype, result.dtype
        if (found.is_float and not dtype.is_float) or (found.is_int and dtype is dtypes.bool):
            sentence = f"{who}: a result of {found.name} is no {dtype.name}"
            raise DTypeError(f"{sentence}; it must be of a kind that the tensor holds.")
        self._write(who, cast(result.uop, dtype))
        return self

    @property
    def uop(self) -> UOp:
        """The node that gives the values."""
        if ACTIVE.trace is not None:
            ACTIVE.trace.note(self)
        view = self._view
        if view is None:
            return self.cell.uop
        if view.is_whole:
            return self.cell.read(view.expression)
        return self._own_cell().uop

    @property
    def shape(self) -> Shape:
        """The extent of each axis."""
        return self.cell.uop.shape if self._view is None else self._view.expression.shape

    @property
    def dtype(self) -> DType:
        """The type of the elements."""
        return self.cell.uop.dtype

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @overload
    def size(self) -> Shape: ...
    @overload
    def size(self, dim: int) -> int: ...
    def size(self, dim: int | None = None) -> Shape | int:
        """Return the shape, or the extent of one axis."""
        if dim is None:
            return self.shape
        if self.ndim == 0:
            sentence = f"size: a 0-d tensor has no axes: dim is {dim}"
            raise IndexOutOfRange(f"{sentence}; leave it out.")
        return self.shape[check_axis("size", dim, self.ndim)]

    def numel(self) -> int:
        """Return the number of elements."""
        return math.prod(self.shape)

    def realize(self, *others: TensorBase) -> Self:
        """Compute this tensor and others now, as one schedule."""
        tensors: list[TensorBase] = [self, *others]
        if ACTIVE.trace is not None:
            ACTIVE.trace.wanted += map(weakref.ref, tensors)
            return self
        roots = {}
        for each in tensors:
            cell = each._own_cell()
            if cell.leaf is None:
                roots[cell] = cell.root(each.device, each.site)
        if roots:
            written = written_below(roots) if WRITTEN else []
            realize([*roots.values(), *written])
        return self

    def _settle(self, others: Container[UOp]) -> None:
        """Compute the cell's value now, in a leaf that is none of some others."""
        cell = self.cell
        if cell.leaf is None:
            realize([cell.root(self.device, self.site)])
        assert cell.leaf is not None, "realize fills every cell"
        self._current = None  # a part with a value of its own would hide that of the cell
        if cell.leaf in others:
            leaf = alias_of(cell.leaf, cell.leaf.shape)
            cell.uop = leaf if cell.uop is cell.leaf else cell.uop
            cell.leaf = leaf

    def _values(self) -> npt.NDArray[np.generic]:
        """Return a copy of the values; of a float that NumPy lacks, in a wider one."""
        refuse_reading(self.shape)
        leaf = self.realize()._own_cell().leaf
        assert leaf is not None, "realize fills every cell"
        return from_storage(to_host(leaf), self.dtype)

    def numpy(self) -> npt.NDArray[np.generic]:
        """Return a copy of the values; of a float that NumPy lacks, in a wider one."""
        if requires_gradient(self.uop):
            sentence = "numpy: an array carries no gradient: the tensor requires one"
            raise GradientError(f"{sentence}; it must not. Use detach().")
        return self._values()

    def tolist(self) -> Nested:
        """Return the values as nested lists of Python numbers; a number when 0-d."""
        return self._values().tolist()

    def item(self) -> Number:
        """Return the value of a tensor with one element as a Python number."""
        if self.numel() != 1:
            sentence = f"item: the tensor has not one element: shape {self.shape}"
            raise ShapeError(f"{sentence}; it must hold exactly 1.")
        value: Number = self._values().item()
        return value

    def __array__(
        self, dtype: npt.DTypeLike | None = None, copy: bool | None = None
    ) -> npt.NDArray[Any]:
        values = self.numpy()  # a copy, whatever is asked for
        return values if dtype is None else values.astype(dtype)

    def __bool__(self) -> bool:
        if self.numel() != 1:
            sentence = f"bool: the truth of several values is ambiguous: shape {self.shape}"
            raise ShapeError(f"{sentence}; it must hold exactly 1. Use any() or all().")
        return bool(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __index__(self) -> int:
        if not self.dtype.is_int or self.ndim != 0:
            sentence = f"index: not an integer of 0-d: {self.dtype.name} {self.shape}"
            raise TypeError(f"{sentence}; it must be one integer.")
        return int(self.item())

    def __len__(self) -> int:
        if self.ndim == 0:
            raise TypeError("len: a 0-d tensor has no length: shape (); ndim must be 1 or more.")
        return self.shape[0]
