"""Turns TENSOR values into INDEXED expressions: indices are pushed through views down to loads."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field

from tinytensor.dtype import DType, dtypes
from tinytensor.ops.attrs import POSITIONS, Combine, ReduceAttrs
from tinytensor.ops.bounds import bounds_of
from tinytensor.ops.guards import both
from tinytensor.ops.op import ELEMENTWISE, Op
from tinytensor.ops.simplify_index import simplify_index
from tinytensor.ops.size import are_same, is_one, is_open, is_repeated, is_same, is_zero, now
from tinytensor.ops.uop import UOp, binary, cast, const, index_const, make_range, where
from tinytensor.records import dataclass

Index = tuple[UOp, ...]
ZERO = index_const(0)


@dataclass(frozen=True, slots=True)
class Point:
    """A node's element at an index, read only where the guard holds (None: everywhere)."""

    node: UOp
    index: Index
    guard: UOp | None = None


def ranges_over(shape: Sequence[int], first: int) -> Index:
    """Return one RANGE per axis, numbered from `first`; an axis of extent 1 gets the constant 0."""
    return tuple([range_over(extent, first + axis) for axis, extent in enumerate(shape)])


def only_ranges(index: Iterable[UOp]) -> Index:
    """Return the ranges of an index, without the constants of axes of extent 1."""
    return tuple([each for each in index if each.op is Op.RANGE])


def range_over(extent: int, number: int) -> UOp:
    """Return a RANGE of an extent, or the constant 0 for an extent of 1."""
    return range_of(index_const(extent), number)


def range_of(count: UOp, number: int) -> UOp:
    """Return a RANGE of so many values, or the constant 0 for one value."""
    if count.op is not Op.CONST:
        return make_range(number, int(bounds_of(count)[1]), count)
    return ZERO if count.value == 1 else make_range(number, int(count.value))


def flatten(index: Index, shape: Sequence[int]) -> UOp:
    """Return the row-major position of an index in a shape, in elements."""
    position = ZERO
    stride = 1
    for each, extent in zip(reversed(index), reversed(shape), strict=True):
        if each is not ZERO:
            scaled = each if is_one(stride) else each * stride
            position = scaled if position is ZERO else scaled + position
        stride *= extent
    return simplify_index(position)


def unflatten(position: UOp, shape: Sequence[int]) -> Index:
    """Return the index in a shape of a row-major position."""
    index: list[UOp] = []
    stride = math.prod(shape)
    for extent in shape:
        stride = stride // extent if extent else 0
        if is_one(extent) or extent == 0:
            index.append(ZERO)
            continue
        index.append(simplify_index((position // stride) % extent))
    return tuple(index)


def reshape_index(index: Index, shape: Sequence[int], onto: Sequence[int]) -> Index:
    """Return the index in shape `onto` of the element at `index` in `shape`.

    Runs of axes with equal products are matched first, so that a reshape which only splits or
    merges some axes leaves the others alone.
    """
    result: list[UOp] = []
    for source, target in _aligned_runs(shape, onto):
        kept = [axis for axis in source if not is_one(shape[axis])]
        found = tuple([onto[axis] for axis in target if not is_one(onto[axis])])
        if are_same(tuple([shape[axis] for axis in kept]), found):
            moved = iter([index[axis] for axis in kept])
            result.extend([ZERO if is_one(onto[axis]) else next(moved) for axis in target])
            continue
        run = flatten(tuple([index[axis] for axis in source]), [shape[axis] for axis in source])
        result.extend(unflatten(run, [onto[axis] for axis in target]))
    return tuple(result)


def _aligned_runs(a: Sequence[int], b: Sequence[int]) -> list[tuple[range, range]]:
    """Pair the shortest runs of axes of a and b whose extents have the same product."""
    if 0 in a:
        return [(range(len(a)), range(len(b)))]
    runs: list[tuple[range, range]] = []
    i = j = 0
    while i < len(a) or j < len(b):
        start_i, start_j = i, j
        left = right = 1
        if i < len(a):
            left, i = a[i], i + 1
        if j < len(b):
            right, j = b[j], j + 1
        while not is_same(left, right) and (i < len(a) or j < len(b)):
            if j == len(b) or (i < len(a) and now(left) <= now(right)):
                left, i = left * a[i], i + 1
            else:
                right, j = right * b[j], j + 1
        runs.append((range(start_i, i), range(start_j, j)))
    return runs


def _through_permute(view: UOp, index: Index) -> Index:
    order = view.attrs.order
    return tuple([index[order.index(axis)] for axis in range(len(order))])


def _through_expand(view: UOp, index: Index) -> Index:
    facts = zip(index, view.operands[0].shape, view.shape, strict=True)
    return tuple([ZERO if is_repeated(n, wanted) else each for each, n, wanted in facts])


def _through_slice(view: UOp, index: Index) -> Index:
    facts = zip(index, view.attrs.begin, view.attrs.step, strict=True)
    return tuple([simplify_index(each * stride + first) for each, first, stride in facts])


OPERAND_INDEX: dict[Op, Callable[[UOp, Index], Index]] = {
    Op.RESHAPE: lambda view, index: reshape_index(index, view.shape, view.operands[0].shape),
    Op.PERMUTE: _through_permute,
    Op.EXPAND: _through_expand,
    Op.SLICE: _through_slice,
    Op.CHECK: lambda view, index: index,
    Op.DETACH: lambda view, index: index,
}


def inside_pad(view: UOp, index: Index) -> tuple[Index, UOp | None]:
    """Return the operand's index under a PAD, and the guard that says it is inside, if any."""
    guard: UOp | None = None
    shifted: list[UOp] = []
    extents = view.operands[0].shape
    for each, before, after, extent in zip(
        index, view.attrs.before, view.attrs.after, extents, strict=True
    ):
        moved = each if is_zero(before) else simplify_index(each - before)
        shifted.append(moved)
        if not is_zero(before):
            guard = both(guard, index_const(0) <= moved)
        if not is_zero(after):
            guard = both(guard, moved < extent)
    return tuple(shifted), guard


@dataclass(slots=True)
class Lowering:
    """Lowers values of one kernel; `params` maps each stored node to its PARAM.

    Ranges that reductions fold over are numbered from `next_range` on.
    """

    params: dict[UOp, UOp]
    next_range: int
    memo: dict[Point, UOp] = field(default_factory=dict)
    folds: dict[tuple[UOp, Index], Index] = field(default_factory=dict)

    def value(self, root: Point) -> UOp:
        """Return the INDEXED expression of a node's element."""
        if root in self.memo:
            return self.memo[root]
        stack = [(root, self._needed(root))]
        while stack:
            point, needed = stack[-1]
            missing = next((each for each in needed if each not in self.memo), None)
            if missing is not None:
                stack.append((missing, self._needed(missing)))
                continue
            following = self._following(point, needed)
            if following:
                stack[-1] = (point, needed + following)
                continue
            stack.pop()
            self.memo[point] = self._build(point, [self.memo[each] for each in needed])
        return self.memo[root]

    def compute(self, point: Point) -> UOp:
        """Return the expression of a node that this very kernel stores: never a load of it."""
        points = self._operand_points(point)
        operands = [self.value(each) for each in points]
        operands += [self.value(each) for each in self._following(point, points)]
        return self._combine(point, operands)

    def fold_ranges(self, node: UOp, index: Index) -> Index:
        """Return the ranges a REDUCE folds over at an index: one per axis, 0 where not folded."""
        key = (node, index)
        if key not in self.folds:
            axes = node.attrs.axes
            shape = node.operands[0].shape
            extents = [n if axis in axes else 1 for axis, n in enumerate(shape)]
            self.folds[key] = ranges_over(extents, self.next_range)
            self.next_range += len(extents)
        return self.folds[key]

    def element_index(self, node: UOp, index: Index) -> Index:
        """Return where a REDUCE at an index reads its operand: the folded axes become ranges."""
        folded = self.fold_ranges(node, index)
        axes = node.attrs.axes
        return tuple([folded[i] if i in axes else each for i, each in enumerate(index)])

    def _needed(self, point: Point) -> list[Point]:
        return [] if point.node in self.params else self._operand_points(point)

    def _following(self, point: Point, needed: list[Point]) -> list[Point]:
        """Return what else is needed once the values at `needed` are known: where GATHER reads."""
        node = point.node
        if node.op is not Op.GATHER or len(needed) != len(node.attrs.axes):
            return []
        index = list(point.index)
        for axis, each in zip(node.attrs.axes, needed, strict=True):
            index[axis] = _held_inside(self.memo[each], node.operands[0].shape[axis])
        return [Point(node.operands[0], tuple(index), point.guard)]

    def _operand_points(self, point: Point) -> list[Point]:
        node, index, guard = point.node, point.index, point.guard
        if node.op in (Op.CONST, Op.IOTA, Op.VARIABLE):
            return []
        if node.op in ELEMENTWISE:
            return [Point(each, index, guard) for each in node.operands]
        if node.op is Op.PAD:
            inner, inside = inside_pad(node, index)
            return [Point(node.operands[0], inner, both(guard, inside))]
        if node.op is Op.GATHER:
            return [Point(each, index, guard) for each in node.operands[1:]]
        if node.op is Op.REDUCE:
            if _folds_nothing(node):
                return []
            return [Point(node.operands[0], self.element_index(node, index), guard)]
        return [Point(node.operands[0], OPERAND_INDEX[node.op](node, index), guard)]

    def _build(self, point: Point, operands: list[UOp]) -> UOp:
        node, index, guard = point.node, point.index, point.guard
        if node not in self.params:
            return self._combine(point, operands)
        position = flatten(index, node.shape)
        guarded = () if guard is None else (guard,)
        return UOp(Op.LOAD, node.dtype, (self.params[node], position, *guarded))

    def _combine(self, point: Point, operands: list[UOp]) -> UOp:
        node, index = point.node, point.index
        if node.op in (Op.CONST, Op.VARIABLE):
            return node
        if node.op is Op.IOTA:
            return cast(index[0], node.dtype)
        if node.op in ELEMENTWISE:
            return node.replace(tuple(operands))
        if node.op is Op.PAD:
            _, inside = inside_pad(node, index)
            fill = node.operands[1]
            return operands[0] if inside is None else where(inside, operands[0], fill)
        if node.op is Op.REDUCE:
            return self._fold(node, index, operands)
        return operands[-1]

    def _fold(self, node: UOp, index: Index, operands: list[UOp]) -> UOp:
        combine = node.attrs.combine
        if _folds_nothing(node):  # a maximum over nothing is refused at the Tensor's door
            return const(node.dtype, 0 if combine in POSITIONS else combine.identity(node.dtype))
        folded = only_ranges(self.fold_ranges(node, index))
        return fold_over(folded, operands[0], combine, node.dtype)


def _held_inside(value: UOp, extent: int) -> UOp:
    """Return an integer value as an index 0 .. extent - 1: memory beyond is never touched."""
    if is_one(extent) or is_zero(extent):
        return ZERO
    low, high = bounds_of(value)
    if low < 0:
        value = binary(Op.MAX, value, 0)
    if is_open((extent,)) or high >= extent:
        value = binary(Op.MIN, value, extent - 1)
    return cast(value, dtypes.index)


def _folds_nothing(node: UOp) -> bool:
    shape = node.operands[0].shape
    return any(shape[axis] == 0 for axis in node.attrs.axes)


def fold_over(ranges: Index, element: UOp, combine: Combine, dtype: DType) -> UOp:
    """Return a fold over ranges; without any it is that of a single element.

    A float sum starts from +0.0, so that of -0.0 is 0.0.
    """
    if ranges:
        return UOp(Op.REDUCE, dtype, (element, *ranges), ReduceAttrs(combine))
    if combine in POSITIONS:
        return const(dtype, 0)
    if combine is Combine.ADD and dtype.is_float:
        return element + 0.0
    return element
