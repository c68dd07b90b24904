"""Turns a kernel into the same one with fewer and longer ranges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tinytensor.codegen.vectorize import stride_of
from tinytensor.ops.kernel import Kernel
from tinytensor.ops.op import Op
from tinytensor.ops.ranges import folded_ranges
from tinytensor.ops.simplify_index import simplify_index
from tinytensor.ops.uop import UOp, fresh_number, index_const, make_range, walk
from tinytensor.records import dataclass

FOLDS = frozenset((Op.REDUCE, Op.CONTRACT))


def merge_ranges(kernel: Kernel) -> Kernel:
    """Drop ranges of extent 1 and merge neighbors wherever no index needs them apart.

    Neighbors r, q become R with r = R // extent(q), q = R % extent(q); that is kept when every
    division vanishes again. Kernels with a CONTRACT keep their ranges, which its attrs number.
    """
    if any(node.op is Op.CONTRACT for node in walk((kernel.sink,))):
        return kernel
    ranges = list(kernel.ranges)
    sink = _drop_single(kernel.sink, ranges)
    sink = _merge_neighbors(sink, ranges)
    for folded in {folded_ranges(fold): None for fold in _folds(sink)}:
        sink = _merge_neighbors(sink, list(folded))
    return replace(kernel, sink=sink, ranges=tuple(ranges))


def _drop_single(sink: UOp, ranges: list[UOp]) -> UOp:
    single = {each: index_const(0) for each in ranges if each.extent == 1 and not each.is_open}
    ranges[:] = [each for each in ranges if each not in single]
    return simplify_index(replace_ranges(sink, single)) if single else sink


def _merge_neighbors(sink: UOp, ranges: list[UOp]) -> UOp:
    at = len(ranges) - 2
    while at >= 0:
        merged = _merged(sink, ranges[at], ranges[at + 1])
        if merged is not None:
            sink, ranges[at : at + 2] = merged.sink, [merged.range_]
        at = min(at - 1, len(ranges) - 2)
    return sink


def _folds(sink: UOp) -> list[UOp]:
    return [node for node in walk((sink,)) if node.op in FOLDS]


@dataclass(frozen=True, slots=True)
class Merged:
    """A sink in which two ranges became one."""

    sink: UOp
    range_: UOp


def _merged(sink: UOp, outer: UOp, inner: UOp) -> Merged | None:
    nodes = walk((sink,))
    if inner.is_open or _is_apart(nodes, outer, inner):
        return None
    exact = simplify_index(outer.operands[0] * inner.extent) if outer.is_open else None
    both = make_range(fresh_number(nodes), outer.extent * inner.extent, exact)
    parts = {outer: both // inner.extent, inner: both % inner.extent}
    result = simplify_index(replace_ranges(sink, parts, both))
    if _divisions(result) > _divisions(sink):
        return None
    return Merged(result, both)


def _is_apart(nodes: Sequence[UOp], outer: UOp, inner: UOp) -> bool:
    """Whether some access or fold plainly does not run through both ranges as through one."""
    for node in nodes:
        if node.op in FOLDS and (outer in node.operands) != (inner in node.operands):
            return True
        if node.op not in (Op.LOAD, Op.STORE):
            continue
        index = node.operands[1]
        far = stride_of(index, outer)
        near = stride_of(index, inner)
        if far is not None and near is not None and far != near * inner.extent:
            return True
    return False


def _divisions(sink: UOp) -> int:
    return sum(node.op in (Op.FLOORDIV, Op.MOD) for node in walk((sink,)))


def replace_ranges(sink: UOp, parts: dict[UOp, UOp], both: UOp | None = None) -> UOp:
    """Return the graph with ranges replaced; a fold over replaced ranges folds over `both`."""
    mapped: dict[UOp, UOp] = dict(parts)
    for node in walk((sink,), stop=set(parts)):
        if node in mapped:
            continue
        operands = tuple([mapped[each] for each in node.operands])
        if node.op is Op.REDUCE and both is not None:
            folded = [both if each in parts else each for each in folded_ranges(node)]
            operands = (operands[0], *dict.fromkeys(folded))
        mapped[node] = node.replace(operands)
    return mapped[sink]
