"""Turns windows that slide over arrays, and filters, into sums of their products, and back.

The gradient of what the windows slide over is such a sum again: of the windows of the upstream
gradient and the filters backwards. Each element is summed at once, in the accumulator, where the
views of the windows taken back one by one would store it once for each of its places in a window.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tinytensor.grad import fold_sum, with_rules
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp, cast
from tinytensor.tensor.formulas import mul
from tinytensor.tensor.nodes import (
    Shape,
    broadcast,
    pad,
    permute,
    reshape,
    stretch,
    take_slices,
    widen,
)
from tinytensor.tensor.windows import slide_all


@dataclass(frozen=True, slots=True)
class Slide:
    """How windows slide along an axis: their step, and how far apart their elements are.

    There are zeros before the axis and after it; so many below 0 cut it.
    """

    step: int = 1
    dilation: int = 1
    before: int = 0
    after: int = 0

    @property
    def has_gaps(self) -> bool:
        """Whether both the windows and their elements are apart."""
        return self.step > 1 and self.dilation > 1


MOVEMENTS = (Op.RESHAPE, Op.PERMUTE, Op.EXPAND, Op.SLICE)

Slides = Sequence[Slide]  # one for each of the last axes
Part = tuple[int, int]  # an element of an axis, and how many from there on


def correlate(x: UOp, filters: UOp, slides: Slides) -> UOp:
    """Return the sums of products of windows and filters; halves are summed in float32.

    Shapes: x (n, groups, c, *extents), filters (groups, m, c, *kernel) -> (n, groups, m, *places).
    """
    count = len(slides)
    groups, m, *rest = filters.shape
    ones = [1] * count
    apart = reshape(filters, (1, groups, m, *ones, *rest))
    products = _products(x, filters.shape, apart, slides)
    folded = range(3 + count, 4 + 2 * count)
    sums = fold_sum(products, tuple(folded))
    value = reshape(sums, sums.shape[: 3 + count])
    if any(each.has_gaps for each in slides):
        return value  # the places of an element in windows are no window themselves

    def of_x(g: UOp, out: UOp, x: UOp, filters: UOp) -> UOp:
        shapes = [each.shape[3:] for each in (x, filters, g)]
        axes = [_Axis(*each) for each in zip(slides, *shapes, strict=True)]
        total = _taken_back(_as_given(g), filters, axes)
        return cast(total, x.dtype)

    def of_filters(g: UOp, out: UOp, x: UOp, filters: UOp) -> UOp:
        products = _products(x, filters.shape, _as_given(g), slides)
        sums = fold_sum(products, (0, *range(3, 3 + count)))
        return cast(reshape(sums, filters.shape), filters.dtype)

    return with_rules(value, [x, filters], of_x, of_filters)


def _products(x: UOp, filters: Shape, factor: UOp, slides: Slides) -> UOp:
    """Multiply windows with what has the leading axes of the result's shape.

    Shapes: (n, groups, m, *places, c, *kernel).
    """
    _, m, channels, *kernel = filters
    parts = [
        (-each.before, n + each.before + each.after)
        for n, each in zip(x.shape[3:], slides, strict=True)
    ]
    steps = [each.step for each in slides]
    dilations = [each.dilation for each in slides]
    windows = slide_all(_fitted(x, 3, parts), kernel, steps, dilations)
    n, groups, _, *extents = windows.shape
    places = extents[: len(slides)]
    inner = (3 + axis for axis in range(len(slides)))
    folded = range(3 + len(slides), len(windows.shape))
    order = (0, 1, *inner, 2, *folded)
    single = (n, groups, 1, *places, channels, *kernel)
    moved = reshape(permute(windows, order), single)
    missing = [1] * (len(single) - len(factor.shape))
    aligned = reshape(factor, (*factor.shape, *missing))
    whole = (n, groups, m, *places, channels, *kernel)
    x = _widened(broadcast(moved, whole))
    return mul(x, _widened(broadcast(aligned, whole)))


@dataclass(frozen=True, slots=True)
class _Axis:
    """An axis that windows slide along, and how its gradient comes from theirs.

    Place s * a + v of window u - a is element s * u + v, for a step of s. So elements come from
    windows of the upstream gradient, `rows` long, and each of the phases v has filters of its own.
    """

    slide: Slide
    extent: int
    kernel: int
    windows: int

    @property
    def phases(self) -> int:
        return min(self.slide.step, self.kernel)

    @property
    def rows(self) -> int:
        return -(-self.kernel // self.phases)

    @property
    def inner(self) -> Part:
        """The first element of a joined row that is not of the border, and how many there are."""
        border = self.slide.before % self.slide.step
        return border, self.extent

    @property
    def back(self) -> Slide:
        """How windows slide over the gradient, for the elements that are not of the border."""
        step, before = self.slide.step, self.slide.before
        span = self.slide.dilation * (self.rows - 1)
        end = -(-(before + self.extent) // step)
        begin = before // step
        return Slide(1, self.slide.dilation, span - begin, end - self.windows)


def _taken_back(g: UOp, filters: UOp, axes: Sequence[_Axis]) -> UOp:
    """Return, for each element that windows slide over, the sum over its places in them."""
    turned = _turned(filters, axes)
    sums = correlate(g, turned, [each.back for each in axes])
    n, groups, _, *windows = sums.shape
    channels, count = filters.shape[2], len(axes)
    phases = [each.phases for each in axes]
    apart = reshape(sums, (n, groups, channels, *phases, *windows))
    order = [3 + side * count + axis for axis in range(count) for side in (1, 0)]
    found = permute(apart, (0, 1, 2, *order))
    steps = [each.slide.step for each in axes]
    for number, step in enumerate(steps):
        found = _fitted(found, 4 + 2 * number, [(0, step)])
    whole = [n * step for n, step in zip(windows, steps, strict=True)]
    joined = reshape(found, (n, groups, channels, *whole))
    return _fitted(joined, 3, [each.inner for each in axes])


def _turned(filters: UOp, axes: Sequence[_Axis]) -> UOp:
    """Return filters backwards, from the result's channels to the input's, with their phases.

    Shapes: (groups, m, c, *kernel) -> (groups, c * phases, m, *rows).
    """
    groups, m, channels, *_ = filters.shape
    parts = [(0, each.rows * each.phases) for each in axes]
    whole = _fitted(filters, 3, parts)
    sides = [side for each in axes for side in (each.rows, each.phases)]
    apart = reshape(whole, (groups, m, channels, *sides))
    end = len(apart.shape)
    row_axes = range(3, end, 2)
    phase_axes = range(4, end, 2)
    turned = permute(apart, (0, 2, *phase_axes, 1, *row_axes))
    slices = [stretch(0, n) for n in turned.shape]
    rows = [each.rows for each in axes]
    slices[-len(axes) :] = [stretch(n - 1, n, -1) for n in rows]
    backwards = take_slices(turned, slices)
    count = channels * math.prod([each.phases for each in axes])
    return reshape(backwards, (groups, count, m, *rows))


def _fitted(x: UOp, first: int, parts: Sequence[Part]) -> UOp:
    """Return so many elements, from one on, of the first axis and those after it; beyond, zeros."""
    slices = [stretch(0, n) for n in x.shape]
    before = [0] * len(slices)
    after = [0] * len(slices)
    for axis, (begin, extent) in enumerate(parts, first):
        end = begin + extent
        before[axis] = max(-begin, 0)
        after[axis] = max(end - x.shape[axis], 0)
        count = extent - before[axis] - after[axis]
        slices[axis] = stretch(max(begin, 0), count)
    return pad(take_slices(x, slices), tuple(before), tuple(after), 0)


def _widened(x: UOp) -> UOp:
    return widen(x) if x.dtype.is_half else x


def _as_given(g: UOp) -> UOp:
    """Return a gradient in the half that it was widened from, as a factor of exact products."""
    views: list[UOp] = []
    wide = g
    while wide.op in MOVEMENTS:
        views.append(wide)
        (wide,) = wide.operands
    if wide.op is not Op.CAST or not wide.operands[0].dtype.is_half:
        return g
    (given,) = wide.operands
    for view in reversed(views):
        given = UOp(view.op, given.dtype, (given,), view.attrs)
    return given
