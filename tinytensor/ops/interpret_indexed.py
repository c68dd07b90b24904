"""Runs a kernel's INDEXED form over whole ranges with NumPy: its meaning, and the PYTHON device.

Every RANGE of the kernel is an axis. A value has extent 1 along the axes it does not depend on, so
it is computed once for all their positions. An affine index is a strided view, not a gather.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np

from tinytensor.dtype import DType
from tinytensor.errors import InternalError
from tinytensor.ops.extents import index_with
from tinytensor.ops.fold import fold
from tinytensor.ops.interpret import (
    EVALUATE,
    Array,
    constant,
    evaluate,
    from_storage,
    round_to,
    scalar_of,
    to_storage,
)
from tinytensor.ops.kernel import Kernel
from tinytensor.ops.op import ELEMENTWISE, Op
from tinytensor.ops.ranges import dependencies, folded_ranges
from tinytensor.ops.uop import Number, UOp, exact_extent, walk
from tinytensor.records import dataclass

# The widest temporary, in elements: 64 MiB of float64 around a contraction, whose operands are
# computed again for every block; elsewhere what stays in the second-level cache.
CONTRACTION_ELEMENTS: Final = 2**23
CACHED_ELEMENTS: Final = 2**17
EXACT_IN_FLOAT64: Final = 2.0**53

Block = dict[UOp, range]  # the values that each RANGE takes
Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Affine:
    """An index that is offset + the sum of coefficient * range, in elements."""

    offset: int
    coefficients: dict[UOp, int]


@dataclass(frozen=True, slots=True)
class Step:
    """One node to evaluate, from the values of `reads`; nobody reads `unread` after it."""

    node: UOp
    reads: tuple[UOp, ...]
    unread: tuple[UOp, ...]


def run_kernel(kernel: Kernel, arrays: Sequence[Array], scalars: Sequence[Number] = ()) -> None:
    """Run a kernel on its params' arrays: 1-D, as memory holds them (bfloat16: uint16)."""
    run_sink(kernel.sink, kernel.ranges, arrays, scalars)


def run_sink(
    sink: UOp, ranges: Sequence[UOp], arrays: Sequence[Array], scalars: Sequence[Number] = ()
) -> None:
    """Run all stores of a sink, in blocks over `ranges`, outermost first.

    Within a block all values are computed before the first store.

    Cost: no temporary is larger than a block, except where folded ranges alone exceed one.
    """
    nodes = walk([sink, *ranges])
    affine = find_affine(nodes, scalars)
    steps = _plan_steps(nodes, affine)
    changing = frozenset([node.operands[0] for node in nodes if node.op is Op.STORE])
    found = [each for each in nodes if each.op is Op.RANGE]
    extents = {each: index_with(exact_extent(each), scalars) for each in found}
    whole = _ranges_in_one_piece(nodes)
    split = [each for each in ranges if each not in whole]
    for block in _split_into_blocks(nodes, split, extents):
        space = _Space(block, affine, arrays, scalars, changing)
        values: dict[UOp, Array] = {}
        for step in steps:
            operands = [values[each] for each in step.reads]
            values[step.node] = INDEXED[step.node.op](space, step.node, *operands)
            for each in step.unread:
                del values[each]


# What to evaluate.
def _plan_steps(nodes: Sequence[UOp], affine: dict[UOp, Affine]) -> list[Step]:
    nodes = sorted(nodes, key=lambda each: each.op is Op.STORE)  # they come after all that is read
    needed = {node for node in nodes if node.op is Op.STORE}
    reads: dict[UOp, tuple[UOp, ...]] = {}
    last_reader: dict[UOp, UOp] = {}
    for node in reversed(nodes):
        if node in needed:
            reads[node] = _values_read(node, affine)
            needed.update(reads[node])
            for each in reads[node]:
                last_reader.setdefault(each, node)
    unread: dict[UOp, list[UOp]] = {node: [] for node in reads}
    for each, node in last_reader.items():
        unread[node].append(each)
    return [Step(node, reads[node], tuple(unread[node])) for node in reversed(reads)]


def _values_read(node: UOp, affine: dict[UOp, Affine]) -> tuple[UOp, ...]:
    """Return the operands whose values the node's evaluation needs."""
    if node.op is Op.REDUCE:
        return node.operands[:1]
    if node.op is Op.CONTRACT:
        return node.operands[:2]
    if node.op is Op.RANGE:
        return ()
    if node.op not in (Op.LOAD, Op.STORE):
        return node.operands
    return node.operands[2 if _is_view(node, affine) else 1 :]


def _is_view(node: UOp, affine: dict[UOp, Affine]) -> bool:
    """Whether a strided view serves an access: its index is affine, and nothing guards it."""
    guard_position = 2 if node.op is Op.LOAD else 3
    return len(node.operands) == guard_position and node.operands[1] in affine


def find_affine(nodes: Sequence[UOp], scalars: Sequence[Number] = ()) -> dict[UOp, Affine]:
    """Return the affine form of each index expression that has one; operands come before users."""
    found: dict[UOp, Affine] = {}
    for node in nodes:
        if node.op is Op.RANGE:
            found[node] = Affine(0, {node: 1})
        elif node.op is Op.CONST and node.dtype.kind == "index":
            found[node] = Affine(int(node.value), {})
        elif node.op is Op.VARIABLE and node.dtype.kind == "index":
            found[node] = Affine(int(scalars[node.attrs.number]), {})
        elif node.op in (Op.ADD, Op.SUB, Op.MUL) and found.keys() >= set(node.operands):
            x, y = (found[each] for each in node.operands)
            if node.op is not Op.MUL:
                sign = 1 if node.op is Op.ADD else -1
                found[node] = _add(x, y, sign)
            elif not y.coefficients:
                found[node] = _scale(x, y.offset)
            elif not x.coefficients:
                found[node] = _scale(y, x.offset)
    return found


def _add(x: Affine, y: Affine, sign: int) -> Affine:
    total = dict(x.coefficients)
    for each, c in y.coefficients.items():
        total[each] = total.get(each, 0) + sign * c
    return Affine(x.offset + sign * y.offset, total)


def _scale(x: Affine, factor: int) -> Affine:
    scaled = {each: c * factor for each, c in x.coefficients.items()}
    return Affine(x.offset * factor, scaled)


# Blocks.
def _ranges_in_one_piece(nodes: Sequence[UOp]) -> frozenset[UOp]:
    """Return the ranges that some fold of what the stores overwrite does not vary over.

    All of a row is folded before any of it is written, so it is never split.
    """
    varies = dependencies(nodes)
    written = {node.operands[0] for node in nodes if node.op is Op.STORE}
    folds = [
        node
        for node in nodes
        if folded_ranges(node)
        and any(each.op is Op.LOAD and each.operands[0] in written for each in walk((node,)))
    ]
    ranges = frozenset([node for node in nodes if node.op is Op.RANGE])
    return ranges.difference(*[varies[fold] for fold in folds]) if folds else frozenset()


def _split_into_blocks(
    nodes: Sequence[UOp], ranges: Sequence[UOp], extents: dict[UOp, int]
) -> Iterator[Block]:
    """Split some ranges, outermost first, until no value of a block is too large.

    All others stay whole.
    """
    contracts = any(node.op is Op.CONTRACT for node in nodes)
    limit = CONTRACTION_ELEMENTS if contracts else CACHED_ELEMENTS
    spaces = set(dependencies(nodes).values())
    counts = {each: extents[each] for each in dict.fromkeys((*ranges, *extents))}
    for each in ranges:
        sizes = [_count(space - {each}, counts) for space in spaces if each in space]
        fitting = limit // max(sizes, default=1)
        counts[each] = min(extents[each], max(fitting, 1))
    parts = [_parts(extents[each], count) for each, count in counts.items()]
    for chosen in itertools.product(*parts):
        yield dict(zip(counts, chosen, strict=True))


def _count(space: frozenset[UOp], counts: dict[UOp, int]) -> int:
    elements = math.prod([counts[each] for each in space])
    return max(elements, 1)


def _parts(extent: int, count: int) -> list[range]:
    if extent == 0:
        return [range(0)]
    begins = range(0, extent, count)
    return [range(begin, min(begin + count, extent)) for begin in begins]


class _Space:
    """What evaluation reads in one block: the ranges' axes and values, and the arrays."""

    def __init__(
        self,
        block: Block,
        affine: dict[UOp, Affine],
        arrays: Sequence[Array],
        scalars: Sequence[Number],
        changing: frozenset[UOp],
    ) -> None:
        self.changing = changing
        self.block = block
        self.affine = affine
        self.arrays = arrays
        self.scalars = scalars
        self.axis = {each: axis for axis, each in enumerate(block)}
        self.by_number = {each.attrs.number: each for each in block}
        self.ndim = len(block)

    def extents(self, ranges: Sequence[UOp]) -> Shape:
        """Return how many values each range takes in this block."""
        return tuple([len(self.block[each]) for each in ranges])

    def numbered(self, numbers: Sequence[int]) -> tuple[UOp, ...]:
        """Return the ranges of those numbers."""
        return tuple([self.by_number[number] for number in numbers])

    def axes_first(self, ranges: Sequence[UOp]) -> list[int]:
        """Return the order of axes that puts those of the ranges first."""
        first = [self.axis[each] for each in ranges]
        return first + [axis for axis in range(self.ndim) if axis not in first]

    def view(self, node: UOp) -> Array:
        """Return the elements of an affine access as a strided view of its buffer: no copy."""
        array, affine = self.array(node), self.affine[node.operands[1]]
        offset = affine.offset
        shape, strides = [1] * self.ndim, [0] * self.ndim
        for each, c in affine.coefficients.items():
            axis, positions = self.axis[each], self.block[each]
            shape[axis] = len(positions)
            strides[axis] = c * array.itemsize
            offset += c * positions.start
        if 0 in shape:
            return np.empty(shape, array.dtype)
        try:
            return np.ndarray(shape, array.dtype, array, offset * array.itemsize, strides)
        except ValueError as error:
            raise _outside(node, offset, array) from error

    def array(self, node: UOp) -> Array:
        """Return the array of an access's buffer."""
        number: int = node.operands[0].attrs.number
        return self.arrays[number]


def _outside(node: UOp, index: int, array: Array) -> InternalError:
    return InternalError(
        f"{node.op.name.lower()}: an index is outside its buffer: {index} or one of its block, of "
        f"{array.size} elements of param {node.operands[0].attrs.number}; accesses stay inside."
    )


# Meanings.
def _elementwise(space: _Space, node: UOp, *operands: Array) -> Array:
    return evaluate(node.op, node.dtype, *operands)


def _const(space: _Space, node: UOp) -> Array:
    return constant(node).reshape((1,) * space.ndim)


def _variable(space: _Space, node: UOp) -> Array:
    return scalar_of(node, space.scalars).reshape((1,) * space.ndim)


def _range(space: _Space, node: UOp) -> Array:
    positions = space.block[node]
    shape = [1] * space.ndim
    shape[space.axis[node]] = len(positions)
    return np.arange(positions.start, positions.stop, dtype=np.int64).reshape(shape)


def _load(space: _Space, node: UOp, *operands: Array) -> Array:
    if not operands:
        seen = space.view(node)
        is_changing = node.operands[0] in space.changing
        return from_storage(seen.copy() if is_changing else seen, node.dtype)
    array, (index, *guard) = space.array(node), operands
    if not guard:
        inside = _inside(node, index, array)
        return from_storage(array[inside], node.dtype)
    if array.size == 0:
        array = np.zeros(1, array.dtype)
    inside = _inside(node, np.where(guard[0], index, 0), array)
    values = from_storage(array[inside], node.dtype)
    nothing = np.zeros((), values.dtype)
    return np.where(guard[0], values, nothing)


def _store(space: _Space, node: UOp, *operands: Array) -> Array:
    array, dtype = space.array(node), node.operands[2].dtype
    if len(operands) == 1:
        space.view(node)[...] = to_storage(operands[0], dtype)
        return array
    index, value, *guard = np.broadcast_arrays(*operands)
    if guard:
        index, value = index[guard[0]], value[guard[0]]
    inside = _inside(node, index, array)
    array[inside] = to_storage(value, dtype)
    return array


def _inside(node: UOp, index: Array, array: Array) -> Array:
    for extreme in (index.min(initial=0), index.max(initial=-1)):
        if index.size and not 0 <= extreme < array.size:
            raise _outside(node, int(extreme), array)
    return index


def _reduce(space: _Space, node: UOp, x: Array) -> Array:
    shape, ranges = list(x.shape), folded_ranges(node)
    for each in ranges:
        shape[space.axis[each]] = len(space.block[each])
    axes = tuple([space.axis[each] for each in ranges])
    full = np.broadcast_to(x, shape)
    return fold(node.attrs.combine, full, axes, node.dtype)


def _contract(space: _Space, node: UOp, a: Array, b: Array) -> Array:
    attrs, k = node.attrs, folded_ranges(node)
    batch, m, n = map(space.numbered, (attrs.batch, attrs.m, attrs.n))
    left = evaluate(Op.CAST, node.dtype, a)
    right = evaluate(Op.CAST, node.dtype, b)
    left = _matrices(space, left, batch, m, k)
    right = _matrices(space, right, batch, k, n)
    product = _multiply(left, right, node.dtype)
    result = (*batch, *m, *n)
    rest = [1] * (space.ndim - len(result))
    ordered = product.reshape((*space.extents(result), *rest))
    return ordered.transpose(np.argsort(space.axes_first(result)))


def _matrices(space: _Space, values: Array, *classes: tuple[UOp, ...]) -> Array:
    """Return values as a batch of matrices: one axis per class of ranges."""
    ranges = tuple(itertools.chain(*classes))
    ordered = values.transpose(space.axes_first(ranges))
    rest = ordered.shape[len(ranges) :]
    full = np.broadcast_to(ordered, (*space.extents(ranges), *rest))
    sizes = [math.prod(space.extents(each)) for each in classes]
    return full.reshape(sizes)


def _multiply(left: Array, right: Array, dtype: DType) -> Array:
    """Multiply batches of matrices in the accumulator's dtype; integers wrap, float sums have +0.0.

    Integers whose sums float64 holds exactly go through it, because NumPy has no fast product.
    """
    if dtype.is_narrow:
        left, right = left.astype(np.float32), right.astype(np.float32)
    with np.errstate(all="ignore"):
        if dtype.is_int and _largest_sum(left, right) < EXACT_IN_FLOAT64:
            exact = np.matmul(left.astype(np.float64), right.astype(np.float64))
            return np.asarray(exact.astype(np.int64).astype(dtype.value_numpy))
        product = np.matmul(left, right)
        if dtype.is_float:
            return round_to(product + product.dtype.type(0), dtype)
        return np.asarray(product)


def _largest_sum(left: Array, right: Array) -> float:
    terms: int = left.shape[-1]
    return terms * _largest(left) * _largest(right)


def _largest(values: Array) -> float:
    greatest = float(values.max(initial=0))
    least = float(values.min(initial=0))
    return max(greatest, -least)


INDEXED: dict[Op, Callable[..., Array]] = {
    **{op: _elementwise for op in EVALUATE if op in ELEMENTWISE},
    Op.CONST: _const,
    Op.VARIABLE: _variable,
    Op.RANGE: _range,
    Op.LOAD: _load,
    Op.STORE: _store,
    Op.REDUCE: _reduce,
    Op.CONTRACT: _contract,
}
