"""Recognizes a sum of products as a contraction, or says why it is none.

A contraction is `out[b, m, n] = sum over k of a[b, m, k] * b[b, k, n]`. To find it, the indices of
a REDUCE[add] are pushed through the views below it, down to what it multiplies. Then only one
question counts: which ranges does each factor read?

    range of the result, read by both factors      -> batch
    range of the result, read by a alone           -> m
    range of the result, read by b alone           -> n
    range folded over, read by both factors        -> k

For `x @ x.T` the element summed is `x[r0, r2] * x[r1, r2]`: r0 is m, r1 is n, r2 is k. Layouts,
strides and the name `matmul` play no part, so einsum, a batch that one factor broadcasts over, and
a convolution (whose input is read at m + k) are found the same way.

A sum of products is refused, with a Decision that names the obstacle, when the product was rounded
or masked before it is summed, when a range fits no row of the table, or when m or n is missing.

A cast that widens a factor exactly belongs to the contraction; whatever else a factor computes is
its prologue.

A sum over blocks of k, of contractions that are scaled each, is recognized as one contraction over
all of k where a plan computes it so (`recognize_blocks`). Its node is the REDUCE over the blocks;
the CONTRACT below has their range as a batch.
"""

from __future__ import annotations

from collections.abc import Sequence

from tinytensor.dtype import MANTISSA_BITS, DType
from tinytensor.ops.attrs import Combine, ContractAttrs
from tinytensor.ops.kernel import Contraction, Decision
from tinytensor.ops.op import ELEMENTWISE, VIEWS, Op
from tinytensor.ops.ranges import dependencies
from tinytensor.ops.uop import UOp, cast, substitute, substitute_all, walk
from tinytensor.schedule.lower_views import (
    Index,
    Lowering,
    Point,
    fold_over,
    only_ranges,
    ranges_over,
)
from tinytensor.schedule.region import BIJECTIVE

MOST_BETWEEN = 24  # nodes looked at between a sum and one that it reads


def recognize(reduce: UOp, lowering: Lowering) -> Contraction | Decision | None:
    """Say what a REDUCE is, over ranges along its own axes; see the top of this file.

    Returns None when it is no sum of anything like a product, so that there is nothing to tell.
    """
    if reduce.attrs.combine is not Combine.ADD or 0 in reduce.operands[0].shape:
        return None
    index = ranges_over(reduce.shape, 0)
    element = lowering.value(Point(reduce.operands[0], lowering.element_index(reduce, index)))
    if element.op is not Op.MUL:
        return _why_no_product(element)
    free, k = only_ranges(index), only_ranges(lowering.fold_ranges(reduce, index))
    return _classify(element, free, k, reduce.dtype)


def recognize_blocks(reduce: UOp, lowering: Lowering) -> Contraction | None:
    """Say what a REDUCE is over blocks of k, each of them a contraction with work on its sums."""
    index = ranges_over(reduce.shape, 0)
    element = lowering.value(Point(reduce.operands[0], lowering.element_index(reduce, index)))
    blocks = only_ranges(lowering.fold_ranges(reduce, index))
    inner = [node for node in walk((element,)) if node.op is Op.REDUCE]
    if len(inner) != 1 or inner[0].operands[0].op is not Op.MUL:
        return None
    product, *k = inner[0].operands
    fact = _classify(product, (*only_ranges(index), *blocks), tuple(k), inner[0].dtype)
    if not isinstance(fact, Contraction) or not {*blocks} <= {*fact.batch}:
        return None
    scaled = substitute(element, {inner[0]: fact.node})
    total = fold_over(blocks, scaled, Combine.ADD, reduce.dtype)
    batch = tuple([each for each in fact.batch if each not in blocks])
    return Contraction(total, batch, fact.m, fact.n, (*blocks, *k))


def _classify(
    product: UOp, free: Index, k: Index, accumulate: DType
) -> Contraction | Decision | None:
    """Say what a sum over some ranges of a product of two factors is."""
    a, b = (_without_exact_cast(factor) for factor in product.operands)
    reads = dependencies(walk((a, b)))
    in_a, in_b = reads[a], reads[b]
    if not (k and in_a and in_b):
        return None
    m = tuple([each for each in free if each in in_a - in_b])
    n = tuple([each for each in free if each in in_b - in_a])
    batch = tuple([each for each in free if each in in_a & in_b])
    unread = [each for each in (*free, *k) if each not in in_a | in_b]
    lonely = [each for each in k if each in in_a ^ in_b]
    obstacle = _obstacle(m, n, unread, lonely)
    if obstacle is not None:
        return _decline(obstacle)
    return Contraction(contract(a, b, batch, m, n, k, accumulate), batch, m, n, k)


def contract(a: UOp, b: UOp, batch: Index, m: Index, n: Index, k: Index, accumulate: DType) -> UOp:
    """Return the CONTRACT of two factors over ranges of each class."""
    attrs = ContractAttrs(_numbers(batch), _numbers(m), _numbers(n), _numbers(k), accumulate)
    return UOp(Op.CONTRACT, accumulate, (a, b, *k), attrs)


def _obstacle(m: Index, n: Index, unread: Sequence[UOp], lonely: Sequence[UOp]) -> str | None:
    """Say why the ranges of a product are not those of a contraction; None when they are."""
    if unread:
        return f"neither factor reads {_named(unread)}, so it is no axis of the product."
    if lonely:
        return (
            f"one factor alone reads the folded {_named(lonely)}; both must, or it is a sum of "
            "its own."
        )
    if not m and not n:
        return "neither factor has a range of its own: a batch of dot products."
    if not m or not n:
        return f"the product has no {'n' if m else 'm'} range: a matrix-vector product."
    return None


def _why_no_product(element: UOp) -> Decision | None:
    """Name what stands between a product and the sum, if that is all that is wrong."""
    inner = element
    while inner.op is Op.CAST:
        inner = inner.operands[0]
    if inner is not element and inner.op is Op.MUL and inner.dtype.is_float:
        return _decline(
            f"the product is rounded to {inner.dtype.name} before it is summed in "
            f"{element.dtype.name}; cast the factors first."
        )
    if element.op is Op.WHERE and any(each.op is Op.MUL for each in element.operands[1:]):
        return _decline("the product is masked before it is summed; mask a factor instead.")
    return None


def _decline(reason: str) -> Decision:
    return Decision("decline", "contraction", reason)


def _named(ranges: Sequence[UOp]) -> str:
    names = ", ".join(f"r{each.attrs.number}<{each.extent}" for each in ranges)
    return f"range {names}" if len(ranges) == 1 else f"ranges {names}"


def _without_exact_cast(factor: UOp) -> UOp:
    while factor.op is Op.CAST and is_exact_widening(factor.operands[0].dtype, factor.dtype):
        factor = factor.operands[0]
    return factor


def is_exact_widening(narrow: DType, wide: DType) -> bool:
    """Whether every value of one dtype is a value of the other."""
    if narrow.is_float and wide.is_float:
        more_bits = MANTISSA_BITS[narrow.name] <= MANTISSA_BITS[wide.name]
        return more_bits and (narrow.bits < wide.bits or narrow is wide)
    if narrow.kind in ("int", "uint") and wide.kind == "int":
        return narrow.min >= wide.min and narrow.max <= wide.max
    return False


def _numbers(ranges: Index) -> tuple[int, ...]:
    return tuple([each.attrs.number for each in ranges])


def path_to_sum(reduce: UOp) -> list[UOp]:
    """Return the nodes from below a REDUCE down to the only one that it reads as it lies; or none.

    Every element of that one is read once. A contraction's factors are repeated instead, so none
    of them is ever found.
    """
    above: dict[UOp, UOp | None] = {reduce.operands[0]: None}
    stack = [reduce.operands[0]]
    ends: list[UOp] = []
    while stack and len(above) <= MOST_BETWEEN:
        node = stack.pop()
        if node.op is Op.REDUCE:
            ends.append(node)
        elif node.op in ELEMENTWISE or node.op in BIJECTIVE:
            fresh = [each for each in dict.fromkeys(node.operands) if each not in above]
            above.update(dict.fromkeys(fresh, node))
            stack.extend(fresh)
    if len(ends) != 1 or stack:
        return []
    path: list[UOp] = []
    at: UOp | None = ends[0]
    while at is not None:
        path.append(at)
        at = above[at]
    return path[::-1]


def path_to_product(reduce: UOp) -> list[UOp]:
    """Return the nodes from just below a recognized REDUCE down to its MUL."""
    path = path_to_sum(reduce)
    path.append((path[-1] if path else reduce).operands[0])
    while path[-1].op is not Op.MUL:
        path.append(path[-1].operands[0])
    return path


def path_below(factor: UOp) -> list[UOp]:
    """Return a factor's nodes, views and widening casts, down to the first computed or stored."""
    path = [factor]
    while path[-1].op in VIEWS or (path[-1].op is Op.CAST and widens(path[-1])):
        path.append(path[-1].operands[0])
    return path


def widens(cast: UOp) -> bool:
    """Whether a cast makes of its operand something that takes more bytes."""
    return cast.operands[0].dtype.itemsize < cast.dtype.itemsize


def facts_of(nodes: Sequence[UOp]) -> Contraction | None:
    """Read the facts back from the CONTRACT of a kernel's nodes (None when there is none).

    Reading them from the graph keeps them true whatever rules have rewritten in between.
    """
    contracts = [node for node in nodes if node.op is Op.CONTRACT]
    if len(contracts) != 1:
        return None
    ranges = {each.attrs.number: each for each in nodes if each.op is Op.RANGE}
    attrs = contracts[0].attrs
    classes = (attrs.batch, attrs.m, attrs.n, attrs.k)
    found = [tuple([ranges[number] for number in numbers]) for numbers in classes]
    return Contraction(contracts[0], *found)


def sum_at(contraction: Contraction, places: dict[UOp, UOp]) -> UOp:
    """Return the sum of products; a plain one where a class has extents of 1 alone, so no range."""
    node = contraction.node
    a, b = substitute_all(node.operands[:2], places)
    classes = (contraction.batch, contraction.m, contraction.n, contraction.k)
    batch, m, n, k = [only_ranges(substitute_all(ranges, places)) for ranges in classes]
    if m and n and k:
        return contract(a, b, batch, m, n, k, node.dtype)
    product = cast(a, node.dtype) * cast(b, node.dtype)
    return fold_over(k, product, Combine.ADD, node.dtype)
