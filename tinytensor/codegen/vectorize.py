"""Turns INDEXED expressions into LINEAR values, at one point or along lanes of one range."""

from __future__ import annotations

from collections.abc import Mapping

from tinytensor.codegen.builder import Builder, lane, shuffle, splat, stack
from tinytensor.dtype import DType, dtypes
from tinytensor.ops.bounds import bounds_of
from tinytensor.ops.guards import conjuncts
from tinytensor.ops.op import ELEMENTWISE, Op
from tinytensor.ops.sums import collect
from tinytensor.ops.uop import UOp, const, exact_extent, require, walk

TRUNCATING = {Op.FLOORDIV: Op.TRUNCDIV, Op.MOD: Op.TRUNCMOD}


class Evaluator:
    """Turns INDEXED expressions into LINEAR values at one point, or along `lanes` of one range.

    `ranges` gives each RANGE a scalar index value, the lane range its value at lane 0. `known`
    gives nodes whose LINEAR value exists already, such as a fold's result. `valid` is how many
    lanes exist at a ragged tail (0: all); the others touch no memory.
    """

    def __init__(
        self,
        b: Builder,
        ranges: Mapping[UOp, UOp],
        lane_range: UOp | None = None,
        lanes: int = 1,
        valid: int = 0,
        known: Mapping[UOp, UOp] | None = None,
    ) -> None:
        self._b = b
        self._ranges = ranges
        self._lane_range = lane_range if lanes > 1 else None
        self._lanes = lanes
        self._valid = valid or lanes
        self._known = dict(known or {})
        self._values = dict(self._known)
        self._points: dict[int, Evaluator] = {}

    def value(self, node: UOp) -> UOp:
        """Return a node's value: a vector, or a scalar where it is the same in all lanes."""
        pending = [node]
        while pending:
            current = pending[-1]
            if current in self._values:
                pending.pop()
                continue
            missing = [each for each in self._reads(current) if each not in self._values]
            if missing:
                pending.extend(missing)
            else:
                self._values[pending.pop()] = self._lower(current)
        return self._values[node]

    def place(self, node: UOp) -> None:
        """Compute a node here, and not only where its value is first needed."""
        self._b.value(self.value(node))

    def store(self, store: UOp) -> None:
        """Emit an INDEXED STORE at this point."""
        index, value = store.operands[1], self.value(store.operands[2])
        if self._lane_range is None:
            self._store_lane(store, 0, value)
            return
        stride = self._common_stride(store)
        if stride not in (1, -1):
            for number in range(self._valid):
                self._store_lane(store, number, value)
            return
        first = self._at(0).value(index)
        value = splat(value, self._lanes) if value.dtype.lanes == 1 else value
        if stride == -1:
            first, value = self._last_of(first), self._reverse(value)
        guard = self._at(0)._guard(store)
        self._b.store(self._buffer(store), first, value, self._valid, guard)

    # One point of the lanes.
    def _at(self, number: int) -> Evaluator:
        """Return the scalar evaluator of one lane (of this point when there are no lanes)."""
        if self._lane_range is None:
            return self
        if number not in self._points:
            here = self._ranges[self._lane_range]
            place = {self._lane_range: here + number if number else here}
            known = {
                node: lane(value, number) if value.dtype.lanes > 1 else value
                for node, value in self._known.items()
            }
            self._points[number] = Evaluator(self._b, {**self._ranges, **place}, known=known)
        return self._points[number]

    def _reads(self, node: UOp) -> tuple[UOp, ...]:
        """The operands a node's value is made of; a vector LOAD asks the lanes' own evaluators."""
        if node.op is Op.LOAD:
            return () if self._lane_range is not None else node.operands[1:]
        return node.operands if node.op in ELEMENTWISE else ()

    def _lower(self, node: UOp) -> UOp:
        if node.op is Op.RANGE:
            return self._range(node)
        if node.op is Op.VARIABLE:
            dtype = self._b.index_dtype if node.dtype is dtypes.index else node.dtype
            return UOp(Op.VARIABLE, dtype, (), node.attrs)
        if node.op is Op.CONST:
            return self._b.index(int(node.value)) if node.dtype is dtypes.index else node
        if node.op is Op.LOAD:
            return self._load(node) if self._lane_range is not None else self._load_lane(node, 0)
        require(node.op in ELEMENTWISE, node, "has no value here; a fold's must be known")
        return self._elementwise(node)

    def _range(self, node: UOp) -> UOp:
        first = self._ranges[node]
        if node is not self._lane_range:
            return first
        return splat(first, self._lanes) + stack([self._b.index(i) for i in range(self._lanes)])

    def _elementwise(self, node: UOp) -> UOp:
        values = [self._values[each] for each in node.operands]
        lanes = max(each.dtype.lanes for each in values)
        operands = [each if each.dtype.lanes == lanes else splat(each, lanes) for each in values]
        dtype = self._b.index_dtype if node.dtype is dtypes.index else node.dtype
        if node.op is Op.CAST and operands[0].dtype is dtype.vector(lanes):
            return operands[0]
        op = TRUNCATING[node.op] if divides_plainly(node) else node.op
        return UOp(op, dtype.vector(lanes), tuple(operands))

    # Memory.
    def _buffer(self, access: UOp) -> UOp:
        return self._b.param(access.operands[0].attrs.number)

    def _guard(self, access: UOp) -> UOp | None:
        guard = guard_of(access)
        return None if guard is None else self.value(guard)

    def _common_stride(self, access: UOp) -> int | None:
        """The elements per lane of an access whose lanes share one guard, else None."""
        assert self._lane_range is not None, "only lanes have a stride"
        if self._b.aligns_vectors:
            return aligned_stride(access, self._lane_range, self._lanes)
        guard = guard_of(access)
        if guard is not None and stride_of(guard, self._lane_range) != 0:
            return None
        return stride_of(access.operands[1], self._lane_range)

    def _load(self, node: UOp) -> UOp:
        stride = self._common_stride(node)
        if stride == 0:
            return self._load_lane(node, 0)
        pieces = None if stride else self._load_pieces(node)
        if pieces is not None:
            return pieces
        if stride not in (1, -1):
            zero = const(node.dtype, 0)
            numbers = range(self._lanes)
            return stack([self._load_lane(node, i) if i < self._valid else zero for i in numbers])
        first = self._at(0).value(node.operands[1])
        guard = self._at(0)._guard(node)
        if stride == -1:
            first = self._last_of(first)
        where = (self._buffer(node), first)
        loaded = self._b.load_unwritten(*where, self._lanes, self._valid, guard)
        return loaded if stride == 1 else self._reverse(loaded)

    def _load_pieces(self, node: UOp) -> UOp | None:
        """Return what lies in several aligned vectors, of those; None if it does not."""
        if self._lane_range is None or self._valid < self._lanes:
            return None
        pieces = self._b.pieces_of(node, self._lane_range, self._lanes)
        if pieces is None:
            return None
        point, width = self._at(0), pieces.width
        loads = [point._load_vector(each, width) for each in pieces.vectors]
        return stack([lane(loads[at // width], at % width) for at in pieces.lanes])

    def _load_vector(self, node: UOp, lanes: int) -> UOp:
        where = (self._buffer(node), self.value(node.operands[1]))
        return self._b.load_unwritten(*where, lanes, lanes, self._guard(node))

    def _load_lane(self, node: UOp, number: int) -> UOp:
        point = self._at(number)
        index = point.value(node.operands[1])
        return self._b.load_unwritten(self._buffer(node), index, guard=point._guard(node))

    def _store_lane(self, store: UOp, number: int, value: UOp) -> None:
        point = self._at(number)
        scalar = lane(value, number) if value.dtype.lanes > 1 else value
        index = point.value(store.operands[1])
        self._b.store(self._buffer(store), index, scalar, guard=point._guard(store))

    def _last_of(self, first: UOp) -> UOp:
        """The lowest element of a flipped access that starts at `first`."""
        return first - (self._valid - 1)

    def _reverse(self, value: UOp) -> UOp:
        """Swap the valid lanes end for end; the others stay."""
        valid = self._valid
        lanes = [valid - 1 - i if i < valid else i for i in range(self._lanes)]
        return shuffle(value, value, lanes)


def extent_value(b: Builder, range_: UOp) -> UOp:
    """Return a range's number of values in this launch."""
    return Evaluator(b, {}).value(exact_extent(range_))


def guard_of(access: UOp) -> UOp | None:
    """Return the guard of an INDEXED LOAD or STORE, if it has one."""
    count = 3 if access.op is Op.STORE else 2
    return access.operands[count] if len(access.operands) > count else None


def divides_plainly(node: UOp) -> bool:
    """Whether a division of index values needs no rounding down: no sign, a constant divisor."""
    if node.dtype is not dtypes.index or node.op not in TRUNCATING:
        return False
    x, y = node.operands
    return y.op is Op.CONST and y.value > 0 and bounds_of(x)[0] >= 0


def stride_of(index: UOp, range_: UOp) -> int | None:
    """Return the elements per step of a range along which an index is affine, else None.

    0 when the index does not depend on the range (for any other value: when it is independent).
    """
    if index.dtype is not dtypes.index:
        return None if range_ in walk((index,)) else 0
    strides = collect(index).coefficients
    stride = strides.pop(range_, 0)
    return None if range_ in walk(strides) else stride


def aligned_stride(access: UOp, range_: UOp, lanes: int) -> int | None:
    """Return the elements per lane of an access that may be one aligned vector, else None.

    Lane 0 is at a multiple of `lanes` of the range, where buffers and vectors begin aligned. 0 is
    for an access that is the same in all lanes.
    """
    stride = stride_of(access.operands[1], range_)
    guard = guard_of(access)
    if guard is not None and not is_uniform(guard, range_, lanes):
        return None
    if stride == 0:
        return 0
    if stride not in (1, -1):
        return None
    lowest = 0 if stride == 1 else lanes - 1
    return stride if is_multiple(access.operands[1], range_, lanes, -lowest) else None


def is_uniform(guard: UOp, range_: UOp, lanes: int) -> bool:
    """Whether lanes from a multiple of `lanes` of a range on always share one guard."""
    claims = conjuncts(guard)
    return all(
        stride_of(claim, range_) == 0 or _changes_between_vectors(claim, range_, lanes)
        for claim in claims
    )


def _changes_between_vectors(claim: UOp, range_: UOp, lanes: int) -> bool:
    """Whether x < y changes at multiples of `lanes` alone: where y - x - 1 becomes negative."""
    if claim.op not in (Op.LT, Op.LE) or claim.operands[0].dtype is not dtypes.index:
        return False
    x, y = claim.operands
    margin = y - x
    stride = stride_of(margin, range_)
    last = 0 if claim.op is Op.LE else -1
    if stride == 1:
        return is_multiple(margin, range_, lanes, last)
    return stride == -1 and is_multiple(margin, range_, lanes, last + 1)


def is_multiple(index: UOp, range_: UOp, divisor: int, offset: int) -> bool:
    """Whether index + offset is a multiple of a divisor where the range is one."""
    total = collect(index)
    factors = [factor for node, factor in total.coefficients.items() if node is not range_]
    return all(each % divisor == 0 for each in (*factors, total.constant + offset))


def widest_itemsize(values: list[UOp], index_dtype: DType) -> int:
    """Return the bytes of the widest element computed with; halves compute in float32.

    Index values count where they are themselves values, not where they address a LOAD. What is
    inside a fold does not count.
    """
    widest = 1
    pending, seen = list(values), set(values)
    while pending:
        node = pending.pop()
        dtype = index_dtype if node.dtype is dtypes.index else node.dtype
        widest = max(widest, 4 if dtype.is_narrow else dtype.itemsize)
        reads = node.operands if node.op in ELEMENTWISE else ()
        fresh = [each for each in reads if each not in seen]
        seen.update(fresh)
        pending.extend(fresh)
    return widest
