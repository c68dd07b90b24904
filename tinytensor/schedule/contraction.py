"""Recognizes a sum of products as a contraction: a checked fact, or a decline with its reason.

A contraction is `out[b, m, n] = sum over k of a[b, m, k] * b[b, k, n]`. It is found by pushing the
indices of a REDUCE[add] through the views below it and looking at which ranges each factor of the
product reads:

    range of the result, read by both factors      -> batch
    range of the result, read by a alone           -> m
    range of the result, read by b alone           -> n
    range folded over, read by both factors        -> k

Nothing else counts: not layouts, not strides, not the name `matmul`. So x @ x.T, einsum, a batch
that one factor broadcasts over, or a convolution (whose input is read at m + k) are all the same.
Casts that widen a factor exactly belong to the contraction; other elementwise work on a factor is
its prologue.

It is refused, with a remark, when the folded value is no product, when the product was rounded or
masked before it is summed, or when some range is read by neither factor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tinytensor.dtype import MANTISSA_BITS, DType
from tinytensor.ops.attrs import Combine, ContractAttrs
from tinytensor.ops.kernel import Contraction, Decision
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp, walk
from tinytensor.schedule.lower_views import Index, Lowering, ranges_over


@dataclass(frozen=True, slots=True)
class Product:
    """What is known of a REDUCE that is a contraction: which ranges each class holds.

    Ranges are those of the lowering that was asked; `a` and `b` are the factors without the casts
    that widen them exactly.
    """

    a: UOp
    b: UOp
    batch: tuple[UOp, ...]
    m: tuple[UOp, ...]
    n: tuple[UOp, ...]
    k: tuple[UOp, ...]


def classify(reduce: UOp, lowering: Lowering) -> Product | Decision | None:
    """Say what kind of sum of products a REDUCE is, over ranges along its own axes.

    Returns None when the REDUCE is no float or integer sum of anything like a product, so that
    there is nothing to remark.
    """
    index = ranges_over(reduce.shape, 0)
    return recognize(reduce, index, lowering)


def recognize(reduce: UOp, index: Index, lowering: Lowering) -> Product | Decision | None:
    """Classify the ranges of a REDUCE[add] at an index; see the top of this file."""
    if reduce.attrs.combine is not Combine.ADD or 0 in reduce.operands[0].shape:
        return None
    folded = lowering.fold_ranges(reduce, index)
    axes = reduce.attrs.axes
    inner = tuple([folded[i] if i in axes else each for i, each in enumerate(index)])
    element = lowering.value(reduce.operands[0], inner)
    k = tuple([each for each in folded if each.op is Op.RANGE])
    if element.op is not Op.MUL:
        return _why_no_product(element)
    a, b = (_without_exact_cast(factor) for factor in element.operands)
    free = tuple([each for each in index if each.op is Op.RANGE])
    return _sort_ranges(a, b, free, k)


def _sort_ranges(a: UOp, b: UOp, free: Index, k: Index) -> Product | Decision | None:
    in_a, in_b = ranges_in(a), ranges_in(b)
    batch = tuple([each for each in free if each in in_a and each in in_b])
    m = tuple([each for each in free if each in in_a and each not in in_b])
    n = tuple([each for each in free if each in in_b and each not in in_a])
    neither = [each for each in (*free, *k) if each not in in_a and each not in in_b]
    lonely = [each for each in k if (each in in_a) != (each in in_b)]
    if not k or not (in_a and in_b):
        return None
    if neither:
        return _decline(f"neither factor reads {_named(neither)}, so it is no axis of the product.")
    if lonely:
        return _decline(
            f"one factor alone reads the folded {_named(lonely)}; both must, or it is a sum of "
            "its own."
        )
    if not m and not n:
        return _decline("neither factor has a range of its own: a batch of dot products.")
    if not m or not n:
        return _decline(f"the product has no {'n' if m else 'm'} range: a matrix-vector product.")
    return Product(a, b, batch, m, n, k)


def _why_no_product(element: UOp) -> Decision | None:
    """Name the obstacle when a product is there but something stands between it and the sum."""
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
    if factor.op is Op.CAST and is_exact_widening(factor.operands[0].dtype, factor.dtype):
        return factor.operands[0]
    return factor


def is_exact_widening(narrow: DType, wide: DType) -> bool:
    """Whether every value of one dtype is a value of the other."""
    if narrow.is_float and wide.is_float:
        more_bits = MANTISSA_BITS[narrow.name] <= MANTISSA_BITS[wide.name]
        return more_bits and (narrow.bits < wide.bits or narrow is wide)
    if narrow.kind in ("int", "uint") and wide.kind == "int":
        return narrow.min >= wide.min and narrow.max <= wide.max
    return False


def ranges_in(expression: UOp) -> frozenset[UOp]:
    """Return the ranges an INDEXED expression depends on."""
    nodes = walk((expression,))
    folded = {each for node in nodes for each in _folded_by(node)}
    return frozenset([node for node in nodes if node.op is Op.RANGE and node not in folded])


def _folded_by(node: UOp) -> tuple[UOp, ...]:
    if node.op is Op.REDUCE:
        return node.operands[1:]
    return node.operands[2:] if node.op is Op.CONTRACT else ()


def contract(product: Product, accumulate: DType) -> UOp:
    """Write the CONTRACT node of a recognized product."""
    attrs = ContractAttrs(
        batch=_numbers(product.batch),
        m=_numbers(product.m),
        n=_numbers(product.n),
        k=_numbers(product.k),
        accumulate=accumulate,
    )
    return UOp(Op.CONTRACT, accumulate, (product.a, product.b, *product.k), attrs)


def facts_of(sink: UOp) -> Contraction | None:
    """Read the facts back from the CONTRACT of a kernel's sink (None when it holds none).

    Reading them from the graph keeps them true whatever rules have rewritten in between.
    """
    nodes = walk((sink,))
    contracts = [node for node in nodes if node.op is Op.CONTRACT]
    if len(contracts) != 1:
        return None
    node = contracts[0]
    a, b = node.operands[:2]
    ranges = {each.attrs.number: each for each in nodes if each.op is Op.RANGE}
    return Contraction(
        node,
        batch=_with_numbers(ranges, node.attrs.batch),
        m=_with_numbers(ranges, node.attrs.m),
        n=_with_numbers(ranges, node.attrs.n),
        k=_with_numbers(ranges, node.attrs.k),
        prologue_a=a.op is not Op.LOAD,
        prologue_b=b.op is not Op.LOAD,
    )


def _with_numbers(ranges: Mapping[int, UOp], numbers: Sequence[int]) -> Index:
    return tuple([ranges[number] for number in numbers])


def _numbers(ranges: Iterable[UOp]) -> tuple[int, ...]:
    return tuple([each.attrs.number for each in ranges])
