"""Turns the ranges of each class of a contraction into one range, and the rest into outer loops."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import reduce
from itertools import count
from typing import Any

from tinytensor.codegen.vectorize import stride_of
from tinytensor.dtype import dtypes
from tinytensor.ops.attrs import ContractAttrs
from tinytensor.ops.kernel import Kernel
from tinytensor.ops.op import Op
from tinytensor.ops.simplify_index import simplify_index
from tinytensor.ops.uop import (
    UOp,
    binary,
    const,
    exact_extent,
    fresh_number,
    make_range,
    substitute,
    substitute_all,
    walk,
)
from tinytensor.records import dataclass

Nodes = tuple[UOp, ...]
NARROW = 8  # a shorter range does not fill the lanes of a float32 vector


@dataclass(frozen=True, slots=True)
class Promotion:
    """What is added up of each block of k: the `value` that the leaf `partial` stands in.

    That is the sum over the `extent` values of k of one block, whose number is the range `block`.
    """

    value: UOp
    partial: UOp
    block: UOp
    extent: int


@dataclass(frozen=True, slots=True)
class FlatContraction:
    """Stores that read the sum over k of a(m, k) * b(k, n), with one range of each class.

    `outer` ranges are loops around everything. In the stores the leaf `total` stands for the sum.
    Where ranges are walked in patches, `windows` has what a copy engine sees of the factors and
    stores that it can move; each plan has its own. With a range `half` of two, a factor is the sum
    of its halves, and all products but that of the second ones are summed. With a `promotion` the
    sum is one over blocks of k.
    """

    stores: Nodes
    total: UOp
    a: UOp
    b: UOp
    outer: Nodes
    m: UOp
    n: UOp
    k: UOp
    windows: Mapping[UOp, Any] = field(default_factory=dict)
    half: UOp | None = None
    promotion: Promotion | None = None

    @property
    def roots(self) -> Nodes:
        """All that depends on the ranges."""
        promoted = () if self.promotion is None else (self.promotion.value,)
        return (self.a, self.b, *self.stores, *promoted)

    @property
    def around(self) -> Nodes:
        """The ranges beside its own two that a factor may depend on."""
        return self.outer if self.half is None else (*self.outer, self.half)


def flatten(kernel: Kernel) -> FlatContraction:
    """Give m, n and k one range each, with n the class that suits lanes better.

    n runs along lanes, which wants plain strides, so it takes only ranges whose flat index needs no
    division; m and k are divided once a row.
    """
    contraction = kernel.contraction
    assert contraction is not None, "only a contraction has classes"
    stores = kernel.sink.operands
    fresh = count(fresh_number(walk(stores)))
    blocks = block_ranges(kernel)
    whole = sum_of_blocks(kernel) if blocks else contraction.node
    roots = (*contraction.node.operands[:2], *stores)
    m_ranges, n_ranges = _by_stride(contraction.m, stores), _by_stride(contraction.n, stores)
    if _fitness(m_ranges, roots) > _fitness(n_ranges, roots):
        roots, m_ranges, n_ranges = (*roots[1::-1], *stores), n_ranges, m_ranges

    k, k_places = _flat_range((*blocks, *contraction.k), fresh)
    m, m_places = _flat_range(m_ranges, fresh)
    total = total_leaf(replace(contraction.node.attrs, accumulate=whole.dtype), k)
    roots = _replace(roots, {**k_places, **m_places, whole: total})
    n_outer, n, roots = _flatten_inside(n_ranges, roots, fresh)
    around = [each for each in kernel.ranges if each not in {*m_ranges, *n_ranges}]
    a, b, *rest = roots
    flat = FlatContraction(tuple(rest), total, a, b, (*around, *n_outer), m, n, k)
    if not blocks:
        return flat
    _, n_places = _flat_range(n_ranges[len(n_outer) :], iter([n.attrs.number]))
    block, block_places = _flat_range(blocks, fresh)
    partial = total_leaf(replace(contraction.node.attrs, batch=()), k)
    places = {**m_places, **n_places, **block_places, contraction.node: partial}
    (value,) = _replace(whole.operands[:1], places)
    extent = k.extent // block.extent
    return replace(flat, promotion=Promotion(value, partial, block, extent))


def block_ranges(kernel: Kernel) -> Nodes:
    """Return the ranges of blocks of k whose sums are scaled before they are added up, if any."""
    assert kernel.contraction is not None, "only a contraction sums products"
    return tuple([each for each in kernel.contraction.batch if each not in kernel.ranges])


def sum_of_blocks(kernel: Kernel) -> UOp:
    """Return the REDUCE that adds them up."""
    (found,) = [each for each in walk(kernel.sink.operands) if each.op is Op.REDUCE]
    return found


def _fitness(ranges: list[UOp], roots: Nodes) -> tuple[bool, bool]:
    """Say how well a class runs along lanes: they are filled, and the stores are adjacent.

    The gradient of a 3 x 3 filter, 32 x 288 sums of 4096: 6.5 ms on Zen 4 along its 32 outputs, 34
    ms along 3 places of the window, in 96 outer loops that each pack both factors.
    """
    outer, inner, _ = _flatten_inside(ranges, roots, count(1 << 30))
    is_filled = not outer or inner.extent >= NARROW
    return is_filled, _are_adjacent(roots[2:], ranges[-1:])


def is_symmetric(flat: FlatContraction) -> bool:
    """Whether both operands are one expression, of m and of n: x @ x.T, whose sums mirror."""
    is_square = exact_extent(flat.m) is exact_extent(flat.n)
    if not is_square or flat.a.dtype is not flat.b.dtype:
        return False
    return simplify_index(substitute(flat.a, {flat.m: flat.n})) is flat.b


def _replace(roots: Nodes, places: dict[UOp, UOp]) -> Nodes:
    replaced = substitute_all(roots, places)
    return tuple([simplify_index(each) for each in replaced])


def total_leaf(attrs: ContractAttrs, k: UOp) -> UOp:
    """A contraction that reads no memory, to stand for the sum in the stores."""
    nothing = const(attrs.accumulate, 0)
    return UOp(Op.CONTRACT, attrs.accumulate, (nothing, nothing, k), attrs)


def _by_stride(ranges: Sequence[UOp], stores: Sequence[UOp]) -> list[UOp]:
    """Sort ranges so that the one whose step moves the first store least comes last."""
    index = stores[0].operands[1]
    return sorted(ranges, key=lambda each: -abs(stride_of(index, each) or 0))


def _are_adjacent(stores: Sequence[UOp], ranges: Sequence[UOp]) -> bool:
    """Whether any store writes adjacent elements along one of the ranges."""
    indices = [each.operands[1] for each in stores]
    return any(stride_of(each, r) == 1 for each in indices for r in ranges)


def _flat_range(ranges: Sequence[UOp], fresh: Iterator[int]) -> tuple[UOp, dict[UOp, UOp]]:
    """Return one range over the space of several, and what each of them is in it."""
    if len(ranges) == 1:
        return ranges[0], {}
    exact = None
    if any(each.is_open for each in ranges):
        exact = simplify_index(reduce(UOp.__mul__, [exact_extent(each) for each in ranges]))
    flat = make_range(next(fresh), math.prod(each.extent for each in ranges), exact)
    places, rest = {}, flat
    for each in reversed(ranges[1:]):
        divisor = binary(Op.MAX, exact_extent(each), 1) if each.is_open else max(each.extent, 1)
        places[each], rest = rest % divisor, rest // divisor
    places[ranges[0]] = rest
    return flat, places


def _flatten_inside(
    ranges: list[UOp], roots: Nodes, fresh: Iterator[int]
) -> tuple[list[UOp], UOp, Nodes]:
    """Flatten the inner ranges that need no division; give the others, the flat one, the roots."""
    if not ranges:
        return [], make_range(next(fresh), 1), roots
    *outer, inner = ranges
    while outer:
        flat, places = _flat_range((outer[-1], inner), fresh)
        flattened = _replace(roots, places)
        if _is_divided(flattened, flat):
            break
        inner, roots = flat, flattened
        outer.pop()
    return outer, inner, roots


def _is_divided(roots: Nodes, range_: UOp) -> bool:
    divisions = [node for node in walk(roots) if node.op in (Op.FLOORDIV, Op.MOD)]
    return any(range_ in walk((each,)) for each in divisions if each.dtype is dtypes.index)
