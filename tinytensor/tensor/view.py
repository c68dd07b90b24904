"""Turns changes of shape into views: what a view reads of a cell, and how a write comes back."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from tinytensor.dtype import DType, dtypes
from tinytensor.errors import ShapeError
from tinytensor.grad import RULES, cut
from tinytensor.ops.attrs import BufferAttrs, Combine, DetachAttrs, ReduceAttrs
from tinytensor.ops.op import Op
from tinytensor.ops.size import are_same, is_one, is_repeated, is_same, now
from tinytensor.ops.uop import Number, UOp
from tinytensor.records import dataclass
from tinytensor.tensor import nodes
from tinytensor.tensor.axes import Shape

BUFFER, DETACH = Op.BUFFER, Op.DETACH  # looked up once: every look at a view asks
BASE_SERIAL = -1  # that of no allocation
_CUTS: Iterator[int] = itertools.count(-1, -1)


@dataclass(frozen=True, slots=True)
class View:
    """How a tensor sees its cell: an expression over a base, the leaf that stands for its value.

    A mark, which is a DETACH among its nodes, says what becomes of gradients: they reach a leaf
    of a serial above 0; or they are cut, by a serial below 0; without one they pass.

    Units: strides and offset in elements; they are those that PyTorch reports, and decide what
    `reshape` copies.
    """

    expression: UOp
    strides: Shape
    offset: int = 0

    @property
    def shape(self) -> Shape:
        """The extents of what is seen."""
        return self.expression.shape

    @property
    def is_whole(self) -> bool:
        """Whether the elements of the cell are seen as they are."""
        expression = self.expression
        bare = expression.operands[0] if expression.op is DETACH else expression
        return bare.op is BUFFER

    @property
    def is_plain(self) -> bool:
        """Whether it tells nothing that the cell does not."""
        is_base = self.expression.op is BUFFER
        return is_base and are_same(self.strides, row_major(self.shape))

    @property
    def is_contiguous(self) -> bool:
        """Whether memory holds the elements in row-major order, side by side."""
        if 0 in self.shape:
            return True
        expected = row_major(self.shape)
        facts = zip(self.shape, self.strides, expected, strict=True)
        return all(is_one(n) or is_same(stride, wanted) for n, stride, wanted in facts)

    def marked(self, serial: int) -> View:
        """Return this view as a leaf of that serial, or with its gradients cut; 0: passing."""
        steps = chain(self.expression)
        base = steps[-1].operands[0] if steps else self.expression
        bare = apply_steps([each for each in steps if each.op is not Op.DETACH], base)
        if serial:
            bare = UOp(Op.DETACH, bare.dtype, (bare,), DetachAttrs(serial))
        return replace(self, expression=bare)

    def cut_off(self) -> View:
        """Return this view such that no gradient passes, until one is written to it."""
        return self.marked(next(_CUTS))

    def permuted(self, order: Shape) -> View:
        """Return this view with its axes in another order."""
        return _permuted(self.expression, self.strides, self.offset, order)

    def sliced(self, slices: Sequence[nodes.Indices]) -> View:
        """Return the elements whose index along each axis is in that axis's range."""
        pairs = list(zip(slices, self.strides, strict=True))
        offset = self.offset + sum(each.start * stride for each, stride in pairs)
        strides = tuple([each.step * stride for each, stride in pairs])
        return View(nodes.take_slices(self.expression, slices), strides, offset)

    def with_axes(self, shape: Shape, strides: Shape) -> View:
        """Return the same elements in the same order under a shape whose strides are known."""
        return _with_axes(self.expression, self.offset, shape, strides)

    def reshaped(self, shape: Shape) -> View | None:
        """Return the same elements under another shape; None where no strides give them."""
        strides = strides_under(self.shape, self.strides, shape)
        return None if strides is None else self.with_axes(shape, strides)

    def diagonal(self, offset: int) -> View:
        """Return the elements where the last two axes have one index, less an offset."""
        *outer, rows, columns = self.shape
        top, left = max(-offset, 0), max(offset, 0)
        count = max(min(rows - top, columns - left), 0)
        whole = [range(extent) for extent in outer]
        corner = [range(top, top + count), range(left, left + count)]
        square = self.sliced([*whole, *(corner if count else [range(0)] * 2)])
        flat = square.with_axes((*outer, count * count), (*square.strides[:-2], 1))
        seen = flat.sliced([*whole, range(0, count * count, count + 1)])
        strides = (*square.strides[:-2], sum(square.strides[-2:]))
        return View(seen.expression, strides, square.offset)

    def expanded(self, shape: Shape) -> View:
        """Return axes of extent 1 repeated, and axes added in front."""
        added = len(shape) - len(self.shape)
        strides: list[int] = []
        for axis in reversed(range(len(shape))):
            extent = self.shape[axis - added] if axis >= added else 1
            if is_repeated(extent, shape[axis]) or not self.shape:
                strides.append(0)
            elif axis >= added:
                strides.append(self.strides[axis - added])
            else:
                strides.append(shape[axis + 1] * strides[-1])
        expression = nodes.broadcast(self.expression, shape)
        return View(expression, tuple(strides[::-1]), self.offset)


# The same line takes the same views again and again, of bases that hold no memory.
@functools.lru_cache(maxsize=4096)
def _permuted(expression: UOp, strides: Shape, offset: int, order: Shape) -> View:
    moved = tuple([strides[axis] for axis in order])
    return View(nodes.permute(expression, order), moved, offset)


@functools.lru_cache(maxsize=4096)
def _with_axes(expression: UOp, offset: int, shape: Shape, strides: Shape) -> View:
    return View(nodes.reshape(expression, shape), strides, offset)


def view_of_all(value: UOp) -> View:
    """Return how a fresh tensor sees a cell of that value: all of it, in row-major order."""
    return _view_of_all(value.dtype, value.shape)


@functools.lru_cache(maxsize=4096)
def _view_of_all(dtype: DType, shape: Shape) -> View:
    base = UOp(Op.BUFFER, dtype, (), BufferAttrs(BASE_SERIAL, shape, ""))
    return View(base, row_major(shape))


# Strides.
def row_major(shape: Shape) -> Shape:
    """Return the strides of elements that lie side by side, the last axis fastest."""
    strides = [1]
    for extent in reversed(shape[1:]):
        strides.append(strides[-1] * max(extent, 1))
    return tuple(strides[::-1]) if shape else ()


def strides_under(shape: Shape, strides: Shape, wanted: Shape) -> Shape | None:
    """Return the strides that give the same elements under another shape, or None."""
    if 0 in shape:
        return strides if shape == wanted else row_major(wanted)
    left = list(wanted)
    found: list[int] = []
    for elements, stride in _runs(shape, strides):
        passed = 1
        while left and (now(passed) < now(elements) or is_one(left[-1])):
            found.append(passed * stride)
            passed *= left.pop()
        if not is_same(passed, elements):
            return None
    return tuple(found[::-1])


def _runs(shape: Shape, strides: Shape) -> Iterator[tuple[int, int]]:
    """Give, from the last axis on, groups of axes evenly spaced: their elements and stride."""
    elements, stride = 1, strides[-1] if strides else 1
    for axis in reversed(range(len(shape))):
        elements *= shape[axis]
        is_adjacent = axis > 0 and is_same(strides[axis - 1], elements * stride)
        if axis == 0 or not (is_one(shape[axis - 1]) or is_adjacent):
            yield elements, stride
            elements, stride = 1, strides[axis - 1]
    if not shape:
        yield elements, stride


# Expressions.
def chain(expression: UOp) -> list[UOp]:
    """Return the nodes of a view's expression from the outermost in, without the base."""
    found = []
    while expression.op is not BUFFER:
        found.append(expression)
        expression = expression.operands[0]
    return found


def apply_steps(steps: Sequence[UOp], value: UOp) -> UOp:
    """Return what the nodes of a view's expression, the outermost first, make of a value."""
    for node in reversed(steps):
        value = READS[node.op](node, value)
    return value


def write_through(expression: UOp, value: UOp, whole: UOp) -> UOp:
    """Return a cell's value with the part that a view sees replaced."""
    if 0 in value.shape:
        return whole
    steps = chain(expression)
    lowest = value.dtype.min if any(each.op is Op.EXPAND for each in steps) else 0
    placed = _undo(steps, value, lowest)
    if all(each.op is not Op.SLICE for each in steps):
        return placed
    mask = _undo(steps, nodes.full(dtypes.bool, True, value.shape), False)
    return nodes.select(mask, placed, whole)


def _undo(steps: Iterable[UOp], value: UOp, fill: Number) -> UOp:
    """Return an array like the base with each element where a view reads it, and fill elsewhere.

    That is what gradients do, but where the view repeats elements: all copies but the one that is
    written hold the least of all values, so the written one is the greatest.
    """
    for node in steps:
        source = node.operands[0]
        if node.op is Op.SLICE:
            value = nodes.put_slices(value, node.attrs, source.shape, fill)
        elif node.op is Op.EXPAND:
            axes = [
                axis for axis, n in enumerate(source.shape) if is_repeated(n, value.shape[axis])
            ]
            attrs = ReduceAttrs(Combine.MAX, tuple(axes))
            value = UOp(Op.REDUCE, value.dtype, (value,), attrs)
        elif node.op is not Op.DETACH:
            rule = RULES[node.op][0]
            assert rule is not None, "a view has a gradient"
            value = rule(value, node, *node.operands)
    return value


def check_writable(who: str, view: View) -> None:
    """Raise ShapeError where several elements of a view are one place in memory."""
    is_repeated = any(each.op is Op.EXPAND for each in chain(view.expression))
    if is_repeated and not _are_apart(view.shape, view.strides):
        sentence = f"{who}: elements share memory: shape {view.shape}, strides {view.strides}"
        raise ShapeError(f"{sentence}; each must have a place of its own. Use clone() first.")


def _are_apart(shape: Shape, strides: Shape) -> bool:
    """Tell whether each axis steps over all that the axes with shorter strides reach."""
    reach = 0
    for stride, extent in sorted(zip(strides, shape, strict=True)):
        if extent > 1 and stride <= reach:
            return 0 in shape
        reach += stride * (extent - 1)
    return True


def _read_slice(node: UOp, x: UOp) -> UOp:
    attrs = node.attrs
    facts = zip(attrs.begin, attrs.step, attrs.extent, strict=True)
    return nodes.take_slices(x, [nodes.stretch(i, n, step) for i, step, n in facts])


Step = Callable[[UOp, UOp], UOp]  # (node of an expression, value) -> value

READS: dict[Op, Step] = {
    Op.RESHAPE: lambda node, x: nodes.reshape(x, node.shape),
    Op.EXPAND: lambda node, x: nodes.broadcast(x, node.shape),
    Op.PERMUTE: lambda node, x: nodes.permute(x, node.attrs.order),
    Op.SLICE: _read_slice,
    Op.PAD: lambda node, x: node.replace((x, *node.operands[1:])),
    Op.DETACH: lambda node, x: node.replace((x,)) if node.attrs.serial > 0 else cut(x),
}
