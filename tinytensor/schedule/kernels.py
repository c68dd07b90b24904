"""Turns one region into a Kernel: an INDEXED sink over numbered parameters, with its facts.

Takes:  a region, its outputs, and the nodes that are stored somewhere.
Gives:  INDEXED form; views are gone, sums of products are CONTRACT nodes.
Placed: after `materialize`, which says where reading ends; before `order`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tinytensor.dtype import DType, dtypes
from tinytensor.ops.attrs import ParamAttrs
from tinytensor.ops.bounds import bounds_of
from tinytensor.ops.kernel import Decision, Kernel, Param
from tinytensor.ops.op import VIEWS, Op
from tinytensor.ops.simplify import simplify
from tinytensor.ops.uop import UOp, substitute, walk
from tinytensor.schedule.contraction import Product, contract, facts_of, recognize
from tinytensor.schedule.describe import short_dtype
from tinytensor.schedule.lower_views import Index, Lowering, Point, flatten
from tinytensor.schedule.region import Region


@dataclass(frozen=True, slots=True)
class KernelCall:
    """A kernel and the nodes whose memory its parameters are, in order; outputs come first."""

    kernel: Kernel
    nodes: tuple[UOp, ...]


class Numbering(dict[UOp, UOp]):
    """Numbers the stored nodes a kernel touches as PARAMs, in the order of their first visit."""

    def __init__(self, stored: Iterable[UOp]) -> None:
        super().__init__()
        self._stored = set(stored)

    def __contains__(self, node: object) -> bool:
        return node in self._stored

    def __missing__(self, node: UOp) -> UOp:
        attrs = ParamAttrs(len(self), math.prod(node.shape))
        self[node] = UOp(Op.PARAM, node.dtype, (), attrs)
        return self[node]


def build_kernel(
    region: Region,
    outputs: Sequence[UOp],
    stored: frozenset[UOp],
    products: Mapping[UOp, Product | Decision],
) -> KernelCall:
    """Lower one region; see the top of this file."""
    anchor = region.anchor
    readable = stored - set(_between_sum_and_product(anchor, products))
    params = Numbering(readable)
    lowering = Lowering(params, next_range=len(anchor.shape))
    out_params = [params[node] for node in outputs]
    decisions: list[Decision] = []
    _lower_members(region, lowering, products, decisions)
    stores = [
        _store(param, node, region.position[node], lowering)
        for param, node in zip(out_params, outputs, strict=True)
    ]
    written = simplify((UOp(Op.SINK, dtypes.void, tuple(stores)),))[0]
    sink, nodes = _number_densely(written, tuple(params))
    ranges = tuple([each for each in region.position[anchor] if each.op is Op.RANGE])
    kernel = Kernel(
        name=_name(sink, ranges),
        sink=sink,
        ranges=ranges,
        params=tuple([_param(node, node in outputs) for node in nodes]),
        contraction=facts_of(sink),
        index_dtype=_index_dtype(sink),
        decisions=tuple(dict.fromkeys((*decisions, *region.decisions))),
    )
    return KernelCall(kernel, nodes)


def _number_densely(sink: UOp, nodes: tuple[UOp, ...]) -> tuple[UOp, tuple[UOp, ...]]:
    """Leave out the parameters that simplification has made unread."""
    old = sorted(
        (node for node in walk((sink,)) if node.op is Op.PARAM), key=lambda each: each.attrs.number
    )
    renumbered = {
        param: UOp(Op.PARAM, param.dtype, (), ParamAttrs(number, param.attrs.elements))
        for number, param in enumerate(old)
    }
    kept = tuple([nodes[param.attrs.number] for param in old])
    return substitute(sink, renumbered), kept


def _lower_members(
    region: Region,
    lowering: Lowering,
    products: Mapping[UOp, Product | Decision],
    decisions: list[Decision],
) -> None:
    """Give each member its value at its place, so that members read one another, not memory."""
    for node, index in region.position.items():
        value = _member_value(region, node, index, lowering, products, decisions)
        lowering.memo[Point(node, index, None)] = value


def _member_value(
    region: Region,
    node: UOp,
    index: Index,
    lowering: Lowering,
    products: Mapping[UOp, Product | Decision],
    decisions: list[Decision],
) -> UOp:
    if node.op is Op.REDUCE:
        known = products.get(node)
        if isinstance(known, Product):
            found = recognize(node, index, lowering)
            if isinstance(found, Product):
                decisions.append(_contract_decision(node, found))
                return contract(found, node.dtype)
        if isinstance(known, Decision):
            decisions.append(known)
    if node.op in VIEWS and node.operands[0] in region.position:
        inner = node.operands[0]
        return lowering.memo[Point(inner, region.position[inner], None)]
    return lowering.compute(Point(node, index, None))


def _contract_decision(node: UOp, product: Product) -> Decision:
    extents = [
        f"{name}={math.prod(each.extent for each in ranges)}"
        for name, ranges in (
            *(("batch", product.batch), ("m", product.m)),
            *(("n", product.n), ("k", product.k)),
        )
    ]
    factors = f"a {short_dtype(product.a.dtype)}, b {short_dtype(product.b.dtype)}"
    reason = f"{' '.join(extents)}; {factors}, summed in {short_dtype(node.dtype)}."
    return Decision("contract", "sum of products", reason)


def _between_sum_and_product(anchor: UOp, products: Mapping[UOp, Product | Decision]) -> list[UOp]:
    """Return what lies from a contraction's REDUCE down to its product: never read from memory."""
    if not isinstance(products.get(anchor), Product):
        return []
    node = anchor.operands[0]
    passed = [node]
    while node.op is not Op.MUL:
        node = node.operands[0]
        passed.append(node)
    return [*passed, *(each for each in node.operands if each.op is Op.CAST)]


def _store(param: UOp, node: UOp, index: Index, lowering: Lowering) -> UOp:
    value = lowering.memo[Point(node, index, None)]
    return UOp(Op.STORE, dtypes.void, (param, flatten(index, node.shape), value))


def _param(node: UOp, written: bool) -> Param:
    return Param(node.dtype, math.prod(node.shape), written)


def _index_dtype(sink: UOp) -> DType:
    """Return int32 when every index value, intermediate ones too, is proven below 2**31."""
    for node in walk((sink,)):
        if node.dtype is dtypes.index:
            least, most = bounds_of(node)
            if least < dtypes.int32.min or most > dtypes.int32.max:
                return dtypes.int64
    return dtypes.int32


def _name(sink: UOp, ranges: Sequence[UOp]) -> str:
    """Return a C identifier that says what kind of kernel it is, its dtype and its space."""
    nodes = walk((sink,))
    kinds = {node.op for node in nodes}
    kind = "pointwise"
    if Op.CONTRACT in kinds:
        kind = "contract"
    elif Op.REDUCE in kinds:
        combines = [node.attrs.combine.value for node in nodes if node.op is Op.REDUCE]
        kind = "_".join(dict.fromkeys(combines))
    dtype = short_dtype(sink.operands[0].operands[2].dtype)
    folded = [each.extent for node in nodes for each in _folded(node) if each.op is Op.RANGE]
    extents = [each.extent for each in ranges] + folded
    space = "x".join(str(extent) for extent in extents) or "1"
    return f"{kind}_{dtype}_{space}"


def _folded(node: UOp) -> tuple[UOp, ...]:
    if node.op is Op.REDUCE:
        return node.operands[1:]
    return node.operands[2:] if node.op is Op.CONTRACT else ()
