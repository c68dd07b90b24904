"""Turns a contraction that reads windows into one over patches, which the copy engine moves.

A tap of a convolution is the same box of the input, begun elsewhere: what lies beyond the border
the engine reads as 0. So a factor that repeats elements is not written out for each window. As no
box may begin amid 16 bytes, windows cannot slide along the innermost axis: where they do, the
factor is first written once with its channels innermost.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from tinytensor.codegen.plans.block_axes import Axis, Seen, see_axes
from tinytensor.codegen.plans.block_operand import Operand
from tinytensor.codegen.plans.block_patches import PATCH, Walk, choose_blocks, walk_in_patches
from tinytensor.codegen.plans.block_product import ProductFacts
from tinytensor.codegen.plans.cuda_hopper_boxes import ENGINE_BYTES, Boxes
from tinytensor.codegen.plans.flatten import FlatContraction, total_leaf
from tinytensor.codegen.plans.inside import guard_accesses, zero_outside
from tinytensor.codegen.plans.pack_rows import Rows
from tinytensor.codegen.vectorize import stride_of
from tinytensor.ops.infer_blocks import BOX_LIMIT, RANKS, STEP_LIMIT
from tinytensor.ops.kernel import Kernel
from tinytensor.ops.op import Op
from tinytensor.ops.simplify_index import simplify_index
from tinytensor.ops.uop import UOp, exact_extent, index_const, make_range, substitute_all, walk
from tinytensor.records import dataclass

REPEATED = 1.5  # how often an element is read, on the average, where windows are worth it
LEAST_INNER = PATCH // 2  # places of an axis that is made the innermost
HALF_BYTES = 2


@dataclass(frozen=True, slots=True)
class Layout:
    """How a factor lies when it is read, innermost axis first; written to `rows` before, or not."""

    seen: Seen
    rows: Rows | None = None

    @property
    def inner(self) -> UOp | None:
        """The range of which a box takes adjacent elements."""
        steps = self.seen.axes[0].steps
        plain = [each for each, step in steps.items() if step == 1]
        return max(plain, key=lambda each: each.extent, default=None)


def products_in_windows(product: ProductFacts) -> list[ProductFacts]:
    """Return ways to run a product over patches, where a factor is read in windows."""
    kernel = product.kernel
    contraction = kernel.contraction
    assert contraction is not None, "a product has a contraction"
    if any(each.is_open for each in walk((kernel.sink,)) if each.op is Op.RANGE):
        return []
    ways = [
        _Patched(product, factor, layout).facts()
        for factor in contraction.node.operands[:2]
        for layout in _layouts(factor, kernel)
    ]
    return [each for each in ways if each is not None]


def _ranges_in(node: UOp) -> list[UOp]:
    return [each for each in walk((node,)) if each.op is Op.RANGE]


def _repeats(factor: UOp) -> bool:
    """Whether the ranges of a factor read its elements again and again."""
    read = math.prod([each.extent for each in _ranges_in(factor)])
    loads = [node for node in walk((factor,)) if node.op is Op.LOAD]
    elements: int = sum([each.operands[0].attrs.elements for each in loads])
    return read >= REPEATED * elements


def _layouts(factor: UOp, kernel: Kernel) -> Iterator[Layout]:
    """Yield how a factor of windows may lie: as it does, and with a plain axis innermost."""
    seen = see_axes(factor)
    if seen is None or not _repeats(factor):
        return
    direct = _innermost_first(seen)
    if direct is not None:
        yield Layout(direct)
    plain = _plain_axes(seen)
    if plain:
        inner = min(plain, key=lambda each: each.stride)
        yield _rewritten(seen, inner, _fresh_number(kernel))


def _plain_axes(seen: Seen) -> list[Axis]:
    """List the axes that may be made the innermost."""
    long = [each for each in seen.axes if each.extent >= LEAST_INNER]
    return [each for each in long if list(each.steps.values()) == [1]]


def _fresh_number(kernel: Kernel) -> int:
    numbers: list[int] = [each.attrs.number for each in _ranges_in(kernel.sink)]
    return 1 + max(numbers)


def _innermost_first(seen: Seen) -> Seen | None:
    """Return an access with its adjacent axis first; None if it has none that fills boxes.

    Boxes begin at multiples of 16 bytes, so no window may slide along that axis.
    """
    inner = [each for each in seen.axes if each.stride == 1 and each.extent >= LEAST_INNER]
    others = [each for each in seen.axes if each not in inner]
    if len(inner) != 1:
        return None
    unit = ENGINE_BYTES // seen.buffer.dtype.itemsize
    steps = list(inner[0].steps.values())
    if steps.count(1) != 1:
        return None
    steps.remove(1)
    multiples = [inner[0].first, *steps]
    multiples += [each.stride for each in others]
    if any(each % unit for each in multiples):
        return None
    return replace(seen, axes=(*inner, *others))


def _rewritten(seen: Seen, inner: Axis, number: int) -> Layout:
    """Let a factor be written with an axis innermost, whose rows are padded to whole accesses."""
    others = [each for each in seen.axes if each is not inner]
    others.sort(key=lambda each: -each.stride)
    index = index_const(seen.offset)
    ranges: list[UOp] = []
    for each in (*others, inner):
        place = make_range(number + len(ranges), each.extent)
        ranges.append(place)
        index = index + place * each.stride
    dtype = seen.buffer.dtype
    value = UOp(Op.LOAD, dtype, (seen.buffer, simplify_index(index)))
    *outer, along = ranges
    operand = Operand(value, along, along, along, exact_extent(along), 1, False)
    unit = ENGINE_BYTES // dtype.itemsize
    pitch = math.ceil(inner.extent / unit) * unit
    axes = [replace(inner, stride=1)]
    stride = pitch
    for each in reversed(others):
        axes.append(replace(each, stride=stride))
        stride *= each.extent
    written = replace(seen, axes=tuple(axes), offset=0)
    return Layout(written, Rows(operand, tuple(outer), pitch))


class _Patched:
    """Walks the classes of a product in patches, as the layout of one factor wants them."""

    def __init__(self, product: ProductFacts, windowed: UOp, layout: Layout) -> None:
        self._product = product
        kernel = product.kernel
        contraction = kernel.contraction
        assert contraction is not None, "a product has a contraction"
        self._stores, self._node = kernel.sink.operands, contraction.node
        a, b = self._node.operands[:2]
        m, n = contraction.m, contraction.n
        written = self._stores[0].operands[1]
        if any(stride_of(written, each) == 1 for each in m):
            a, b, m, n = b, a, n, m
        self._factors = (a, b)
        self._classes = [_outermost_first(each, written) for each in (m, n, contraction.k)]
        self._layouts = {each: _direct_layout(each) for each in (a, b)}
        self._layouts[windowed] = layout
        self._windowed = windowed

    def facts(self) -> ProductFacts | None:
        """Return the product over patches; None where boxes of that layout make no tiles."""
        walks = self._walk_classes()
        if walks is None:
            return None
        m, n, k = walks
        places = {each: place for one in walks for each, place in one.places.items()}
        places[self._node] = total_leaf(self._node.attrs, k.flat)
        roots = (*self._factors, *self._stores)
        a, b, *stores = substitute_all(roots, places)
        left, right = self._factors
        x = self._operand(left, a, m, k)
        y = self._operand(right, b, n, k)
        if x is None or y is None:
            return None
        kept = [_store_inside(each, m, n) for each in stores]
        windows = {**x.windows, **y.windows}
        for store, original in zip(kept, self._stores, strict=True):
            windows.update(self._windows_of_store(store, original, n, m))
        walked = {each for one in walks for each in one.blocks}
        outer = tuple([each for each in self._product.kernel.ranges if each not in walked])
        values = (places[self._node], x.operand.value, y.operand.value)
        flat = FlatContraction(tuple(kept), *values, outer, m.flat, n.flat, k.flat, windows)
        return replace(self._product, flat=flat, a=x.operand, b=y.operand)

    def _walk_classes(self) -> list[Walk] | None:
        """Choose the patches of m, n and k, by what lies innermost in each factor."""
        inner = self._inner_ranges()
        k = self._classes[2]
        if self._layouts[self._windowed] is None:
            return None
        whole = [each for each in k if not self._ends_alone(each)]
        walks = []
        for number, ranges in enumerate(self._classes, _fresh_number(self._product.kernel)):
            first = next((each for each in ranges if each in inner), None)
            blocks = choose_blocks(ranges, first, whole)
            if blocks is None:
                return None
            walks.append(walk_in_patches(blocks, number))
        return walks

    def _inner_ranges(self) -> list[UOp]:
        """List the innermost range of each factor; one whose range does not suit is laid anew."""
        a, b = self._factors
        other = b if self._windowed is a else a
        found: list[UOp] = []
        for factor in (self._windowed, other):
            layout = self._layouts[factor]
            inner = None if layout is None else layout.inner
            if not self._suits(inner, found) and factor is other:
                layout = self._laid_anew(other, found)
                inner = None if layout is None else layout.inner
            if not self._suits(inner, found):
                layout = None
            elif inner is not None:
                found.append(inner)
            self._layouts[factor] = layout
        return found

    def _suits(self, inner: UOp | None, found: Sequence[UOp]) -> bool:
        """Whether patches may take adjacent values of a range, beside what other factors want."""
        ranges = next((each for each in self._classes if inner in each), None)
        if inner is None or ranges is None:
            return False
        is_free = not any(each in ranges for each in found)
        return inner in found or (is_free and self._may_lead(inner))

    def _laid_anew(self, factor: UOp, found: Sequence[UOp]) -> Layout | None:
        """Return a factor written with another axis innermost: of those that suit, the densest now.

        Where the other one lies along k, rows along k are as good.
        """
        seen = see_axes(factor)
        if seen is None or any(each in self._classes[2] for each in found):
            return None
        plain = _plain_axes(seen)
        suiting = [each for each in plain if self._suits(next(iter(each.steps)), found)]
        if not suiting:
            return None
        inner = min(suiting, key=lambda each: each.stride)
        return _rewritten(seen, inner, _fresh_number(self._product.kernel))

    def _may_lead(self, range_: UOp) -> bool:
        """Whether a patch may take adjacent values of a range: at the end of k there must be 0."""
        is_whole = range_ not in self._classes[2] or range_.extent % PATCH == 0
        return is_whole or self._ends_alone(range_)

    def _ends_alone(self, range_: UOp) -> bool:
        """Whether every factor is 0 beyond the end of a range, as its axis ends there as well."""
        layouts = [each for each in self._layouts.values() if each is not None]
        axes = [axis for each in layouts for axis in each.seen.axes]
        return all(each.holds_alone(range_) for each in axes if range_ in each.steps)

    def _operand(self, factor: UOp, value: UOp, free: Walk, k: Walk) -> _Brought | None:
        """Say how a factor is brought to tiles: in boxes, or from rows written before."""
        layout = self._layouts[factor]
        boxes = None if layout is None else _boxes_of(layout, free, k)
        if boxes is None and (factor is self._windowed or _repeats(factor)):
            return None
        value = simplify_index(value)
        for each in (free, k):
            value = value if each.inside is None else zero_outside(value, each.inside)
        inner = k.flat if boxes is None else boxes.inner
        operand = Operand(value, free.flat, k.flat, inner, exact_extent(inner), 1, False)
        windows = {} if boxes is None else {value: boxes}
        return _Brought(operand, windows)

    def _windows_of_store(self, store: UOp, original: UOp, n: Walk, m: Walk) -> dict[UOp, Boxes]:
        """Return what the engine sees of a store, where its tray is a patch of n wide."""
        layout = _direct_layout(original)
        widest = max([each.operands[0].dtype.itemsize for each in self._stores])
        if layout is None or widest > HALF_BYTES:
            return {}
        boxes = _boxes_of(layout, n, m)
        if boxes is None or boxes.inner is not n.flat:
            return {}
        return {store: boxes}


@dataclass(frozen=True, slots=True)
class _Brought:
    """A factor over patches, and its boxes if it has any."""

    operand: Operand
    windows: dict[UOp, Boxes]


def _direct_layout(access: UOp) -> Layout | None:
    seen = see_axes(access)
    if seen is None:
        return None
    direct = _innermost_first(seen)
    return None if direct is None else Layout(direct)


def _outermost_first(ranges: Sequence[UOp], index: UOp) -> list[UOp]:
    """Sort ranges by how far they step in an index; those that it lacks stay as they are."""
    return sorted(ranges, key=lambda each: -abs(stride_of(index, each) or 0))


def _store_inside(store: UOp, m: Walk, n: Walk) -> UOp:
    for each in (m, n):
        if each.inside is not None:
            (store,) = guard_accesses((store,), each.inside)
    return simplify_index(store)


@dataclass(frozen=True, slots=True)
class _Side:
    """An axis of a box: how many places the box takes, and how far they are apart."""

    axis: Axis
    block: int = 1
    step: int = 1

    @property
    def span(self) -> int:
        """How many places lie between the ends."""
        return self.block * self.step


def _boxes_of(layout: Layout, free: Walk, k: Walk) -> Boxes | None:
    """Return an access in boxes of a patch of one walk times a patch of the other."""
    inner = layout.inner
    along, across = (free, k) if inner in free.blocks else (k, free)
    if inner is None or along.blocks.get(inner) != PATCH:
        return None
    sides = _sides(layout.seen, across)
    if sides is None or len(sides) not in RANKS:
        return None
    box = tuple([each.block for each in sides])
    if math.prod(box) != PATCH * PATCH or max([each.span for each in sides]) > BOX_LIMIT:
        return None
    axes = [each.axis for each in sides]
    origins = {**free.origins, **k.origins}
    boxes = Boxes(
        buffer=layout.seen.buffer,
        inner=along.flat,
        places=tuple([each.place(origins) for each in axes]),
        shape=tuple([index_const(each.extent) for each in axes]),
        strides=tuple([each.stride for each in axes[1:]]),
        offset=layout.seen.offset,
        box=box,
        steps=tuple([each.step for each in sides]),
        rows=layout.rows,
        starts={free.flat: free.start, k.flat: k.start},
    )
    return boxes if boxes.begin_at_multiples(ENGINE_BYTES) else None


def _sides(seen: Seen, across: Walk) -> list[_Side] | None:
    """List the axes of a box: the innermost, then by stride, which keeps the order of a patch."""
    first, *others = seen.axes
    boxed: list[_Side] = []
    for each in across.boxed:
        axis = next((axis for axis in others if each in axis.steps), None)
        if axis is None or axis.steps[each] > STEP_LIMIT:
            return None
        others.remove(axis)
        boxed.append(_Side(axis, across.blocks[each], axis.steps[each]))
    rest = [_Side(axis) for axis in others]
    ordered = sorted([*boxed, *rest], key=lambda each: each.axis.stride)
    if [each for each in ordered if each.block > 1] != boxed:
        ordered = [*boxed, *rest]
    return [_Side(first, PATCH), *ordered]
