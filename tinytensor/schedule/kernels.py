"""Turns one region into a Kernel: an INDEXED sink over numbered parameters, with its facts.

Takes:  a region, its outputs, and the nodes that are stored somewhere.
Gives:  INDEXED form; views are gone, sums of products are CONTRACT nodes.
Placed: after `materialize`, which says where reading ends; before `order`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet

from tinytensor.dtype import DType, dtypes
from tinytensor.ops.bounds import bounds_of, most_of
from tinytensor.ops.kernel import Contraction, Decision, Kernel, Param
from tinytensor.ops.op import VIEWS, Op
from tinytensor.ops.ranges import folded_ranges
from tinytensor.ops.simplify_index import simplify
from tinytensor.ops.size import numbered_variables
from tinytensor.ops.uop import UOp, by_number, make_param, substitute, substitute_all, walk
from tinytensor.records import dataclass
from tinytensor.schedule.contraction import (
    facts_of,
    path_below,
    path_to_product,
    path_to_sum,
    recognize,
    recognize_blocks,
)
from tinytensor.schedule.describe import short_dtype
from tinytensor.schedule.lower_views import Index, Lowering, Point, flatten
from tinytensor.schedule.region import Region
from tinytensor.timing import timed


@dataclass(frozen=True, slots=True)
class KernelCall:
    """A kernel and the nodes whose memory its parameters are, in order; outputs come first.

    With `extents`, one for each instance, it has the nodes of all instances. `variables` are the
    graph's, by their number in the kernel. `apart` says for each node that another kernel stores
    why that kernel is not one with this.
    """

    kernel: Kernel
    nodes: tuple[UOp, ...]
    extents: tuple[int, ...] = ()
    variables: tuple[UOp, ...] = ()
    apart: tuple[str, ...] = ()


class Numbering(dict[UOp, UOp]):
    """Numbers the stored nodes a kernel touches as PARAMs, in the order of their first visit.

    `computed` nodes are stored somewhere too, but this kernel computes them itself.
    """

    def __init__(self, stored: AbstractSet[UOp], computed: AbstractSet[UOp] = frozenset()) -> None:
        super().__init__()
        self._stored = stored
        self._computed = computed

    def __contains__(self, node: object) -> bool:
        return node in self._stored and node not in self._computed

    def __missing__(self, node: UOp) -> UOp:
        self[node] = make_param(node.dtype, len(self), most_of(math.prod(node.shape)))
        return self[node]


@timed("schedule: kernels")
def build_kernel(
    region: Region,
    outputs: Sequence[UOp],
    stored: frozenset[UOp],
    sums: Mapping[UOp, Contraction | Decision],
) -> KernelCall:
    """Lower one region; see the top of this file."""
    anchor = region.anchor
    fact = sums.get(anchor)
    is_contraction = isinstance(fact, Contraction)
    computed = region.position.keys() | (computed_within(anchor) if is_contraction else ())
    params = Numbering(stored, computed)
    placed = _ranges_in(region.position.values())
    numbers = [each.attrs.number + 1 for each in placed]
    lowering = Lowering(params, next_range=max(len(anchor.shape), *numbers, 0))
    out_params = [params[node] for node in outputs]
    if is_contraction:  # once more, now over this kernel's own parameters
        fact = (recognize_blocks if path_to_sum(anchor) else recognize)(anchor, lowering)
    lower_members(region, lowering, fact)
    stores = [
        _store(param, node, region.position[node], lowering)
        for param, node in zip(out_params, outputs, strict=True)
    ]
    sink = UOp(Op.SINK, dtypes.void, tuple(stores))
    ranges = _ranges_in([region.position[node] for node in (anchor, *outputs)])
    decisions = (*told_of(fact), *dict.fromkeys(region.decisions))
    return make_call(sink, ranges, tuple(params), decisions)


def make_call(
    sink: UOp, ranges: tuple[UOp, ...], nodes: tuple[UOp, ...], decisions: tuple[Decision, ...]
) -> KernelCall:
    """Return the call of the kernel of some stores; its PARAMs stand for the nodes."""
    sink, nodes = _number_densely(simplify((sink,))[0], nodes)
    variables = [node for node in walk([sink, *ranges]) if node.op is Op.VARIABLE]
    sink, *closed = substitute_all((sink, *ranges), numbered_variables(variables))
    ranges = tuple(closed)
    inner = walk((sink,))
    kernel = Kernel(
        name=name_of(inner, ranges),
        sink=sink,
        ranges=ranges,
        params=_params_of(inner),
        contraction=facts_of(inner),
        index_dtype=_index_dtype(inner),
        decisions=decisions,
    )
    return KernelCall(kernel, nodes, variables=tuple(variables))


def _ranges_in(places: Iterable[Index]) -> tuple[UOp, ...]:
    nodes = walk([each for place in places for each in place])
    return tuple([each for each in nodes if each.op is Op.RANGE])


def _number_densely(sink: UOp, nodes: tuple[UOp, ...]) -> tuple[UOp, tuple[UOp, ...]]:
    """Leave out the parameters that simplification has made unread."""
    params = by_number(walk((sink,)), Op.PARAM)
    renumbered = {
        param: make_param(param.dtype, number, param.attrs.elements)
        for number, param in enumerate(params)
    }
    kept = tuple([nodes[param.attrs.number] for param in params])
    return substitute(sink, renumbered), kept


def lower_members(region: Region, lowering: Lowering, fact: Contraction | Decision | None) -> None:
    """Give each member its value at its place, so that members read one another, not memory."""
    for node, index in region.position.items():
        point = Point(node, index, None)
        if node.op is Op.REDUCE:  # all of a region's fold the same elements
            anchor = (region.anchor, region.position[region.anchor])
            lowering.folds[node, index] = lowering.fold_ranges(*anchor)
        if node is region.anchor and isinstance(fact, Contraction):
            lowering.memo[point] = fact.node
        elif node.op in VIEWS and node.operands[0] in region.position:
            inner = node.operands[0]
            lowering.memo[point] = lowering.memo[Point(inner, region.position[inner], None)]
        else:
            lowering.memo[point] = lowering.compute(point)


def told_of(fact: Contraction | Decision | None) -> tuple[Decision, ...]:
    """Say what a sum of products is, or why it is no contraction."""
    if not isinstance(fact, Contraction):
        return () if fact is None else (fact,)
    batch, m, n, k = fact.extents
    (node,) = [each for each in walk((fact.node,)) if each.op is Op.CONTRACT]
    a, b, summed = (short_dtype(each.dtype) for each in (*node.operands[:2], node))
    blocks = ""
    if node is not fact.node:
        within = math.prod([each.extent for each in node.operands[2:]])
        blocks = f" for each {within} values of k, whose sums are scaled and added up"
    reason = f"batch={batch} m={m} n={n} k={k}; a {a}, b {b}, summed in {summed}{blocks}."
    return (Decision("contract", "sum of products", reason),)


def computed_within(reduce: UOp) -> frozenset[UOp]:
    """Return what lies from a contraction's REDUCE down to its factors: never read from memory."""
    path = path_to_product(reduce)
    within = [each for factor in path[-1].operands for each in path_below(factor)[:-1]]
    return frozenset([*path, *within])


def _store(param: UOp, node: UOp, index: Index, lowering: Lowering) -> UOp:
    value = lowering.memo[Point(node, index, None)]
    return UOp(Op.STORE, dtypes.void, (param, flatten(index, node.shape), value))


def _params_of(nodes: Sequence[UOp]) -> tuple[Param, ...]:
    """Return what a kernel's PARAMs are, by number."""
    params = by_number(nodes, Op.PARAM)
    written = {store.operands[0] for store in nodes[-1].operands}
    return tuple([Param(each.dtype, each.attrs.elements, each in written) for each in params])


def _index_dtype(nodes: Sequence[UOp]) -> DType:
    """Return int32 when every index value, intermediate ones too, is proven below 2**31."""
    for node in nodes:
        if node.dtype is dtypes.index:
            least, most = bounds_of(node)
            if least < dtypes.int32.min or most > dtypes.int32.max:
                return dtypes.int64
    return dtypes.int32


def name_of(nodes: Sequence[UOp], ranges: Sequence[UOp]) -> str:
    """Return a C identifier that says what kind of kernel it is, its dtype and its space.

    The nodes are those of its graph, the sink last.
    """
    kinds = {node.op for node in nodes}
    kind = "pointwise"
    if Op.CONTRACT in kinds:
        kind = "contract"
    elif Op.REDUCE in kinds:
        combines = [node.attrs.combine.value for node in nodes if node.op is Op.REDUCE]
        kind = "_".join(dict.fromkeys(combines))
    dtype = short_dtype(nodes[-1].operands[0].operands[2].dtype)
    folded = [each for node in nodes for each in folded_ranges(node) if each.op is Op.RANGE]
    extents = [f"{'n' * each.is_open}{each.extent}" for each in (*ranges, *folded)]
    space = "x".join(extents) or "1"
    return f"{kind}_{dtype}_{space}"
