"""Checks a recognized contraction by running it: as a CONTRACT, and as the sum it came from."""

from __future__ import annotations

import math

import numpy as np

from tinytensor.dtype import dtypes
from tinytensor.errors import InternalError
from tinytensor.ops.attrs import ParamAttrs, RangeAttrs
from tinytensor.ops.bounds import bounds_of
from tinytensor.ops.interpret import Array, from_storage, to_storage
from tinytensor.ops.interpret_indexed import run_sink
from tinytensor.ops.kernel import Contraction
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp, binary, const, substitute_all, walk
from tinytensor.schedule.lower_views import Index, flatten

CLIPPED_EXTENT = 5


def check_contraction(fact: Contraction, plain: UOp) -> None:
    """Raise InternalError when a CONTRACT is not `plain`, the REDUCE it was recognized in.

    The interpreter runs both on small integers with every range clipped to 5, so no size is too
    large to check. Results that are no integers may differ as the order of a float sum allows: for
    n terms by n epsilon / 2 of the sum of their magnitudes, for each of the two. The bound is twice
    that, because the magnitudes are rounded as well.
    """
    roots = (fact.node, plain, _sum_of_magnitudes(plain))
    free = (*fact.batch, *fact.m, *fact.n)
    found, wanted, magnitudes = _run_clipped(roots, free)
    is_right = found == wanted
    if plain.dtype.is_float:
        terms = math.prod(min(each.extent, CLIPPED_EXTENT) for each in fact.k)
        bounds = 2 * terms * plain.dtype.epsilon * magnitudes
        with np.errstate(invalid="ignore"):
            is_right |= np.abs(found - wanted) <= bounds
        is_right |= ~np.isfinite(magnitudes)
    if not is_right.all():
        raise InternalError(
            "contraction: it differs from the sum of products it was recognized in: "
            f"{np.sum(~is_right)} of {is_right.size} elements; all must agree."
        )


def _sum_of_magnitudes(plain: UOp) -> UOp:
    element, *folded = plain.operands
    if not element.dtype.is_float:
        return plain
    negated = UOp(Op.NEG, element.dtype, (element,))
    return plain.replace((binary(Op.MAX, element, negated), *folded))


def _run_clipped(roots: tuple[UOp, ...], free: Index) -> list[Array]:
    """Compute expressions over the first 5 values of each range."""
    short = {node: _shortened(node) for node in walk(roots) if node.op in (Op.RANGE, Op.VARIABLE)}
    clipped = substitute_all(roots, short)
    index = tuple([short[each] for each in free])
    extents = [each.extent for each in index]
    count = math.prod(extents)
    position = flatten(index, extents)
    arrays = _small_integers(clipped)
    stores = []
    for root in clipped:
        param = UOp(Op.PARAM, root.dtype, (), ParamAttrs(len(arrays), count))
        stores.append(UOp(Op.STORE, dtypes.void, (param, position, root)))
        arrays.append(np.zeros(count, root.dtype.storage_numpy))
    sink = UOp(Op.SINK, dtypes.void, tuple(stores))
    run_sink(sink, index, arrays)
    results = arrays[-len(clipped) :]
    return [from_storage(each, root.dtype) for each, root in zip(results, clipped, strict=True)]


def _shortened(node: UOp) -> UOp:
    if node.op is Op.VARIABLE:
        return const(node.dtype, max(node.attrs.least, min(node.attrs.most, CLIPPED_EXTENT)))
    extent = min(node.extent, CLIPPED_EXTENT)
    return UOp(Op.RANGE, dtypes.index, (), RangeAttrs(node.attrs.number, extent))


def _small_integers(roots: tuple[UOp, ...]) -> list[Array]:
    """Return an array for each parameter that is loaded, as far as it is."""
    elements: dict[UOp, int] = {}
    for node in walk(roots):
        if node.op is Op.LOAD:
            param, index = node.operands[:2]
            last = int(bounds_of(index)[1])
            elements[param] = max(elements.get(param, 1), last + 1)
    rng = np.random.default_rng(0)
    highest = max([each.attrs.number for each in elements], default=-1)
    arrays: list[Array] = [np.zeros(0)] * (highest + 1)
    for param, count in elements.items():
        least = 0 if param.dtype.kind in ("uint", "bool") else -2
        values = rng.integers(least, 3, count).astype(param.dtype.value_numpy)
        arrays[param.attrs.number] = to_storage(values, param.dtype)
    return arrays
