"""Divides a product in two, where its last tiles would occupy few multiprocessors for a round.

The first rows (or columns) fill whole rounds; the rest is computed by launches of its own, often in
parts of k.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tinytensor.codegen.plans.block_operand import Operand
from tinytensor.codegen.plans.block_product import ProductFacts
from tinytensor.codegen.plans.cuda_hopper_tiling import Candidate
from tinytensor.ops.simplify_index import simplify_index
from tinytensor.ops.uop import UOp, fresh_number, make_range, substitute, walk


def in_pieces(
    facts: ProductFacts, candidate: Candidate
) -> Iterator[tuple[ProductFacts, Candidate]]:
    """Return what a candidate computes itself, and what the candidate of its rest does."""
    rest = candidate.rest
    if rest is None:
        yield facts, candidate
        return
    extent = getattr(facts.flat, rest.axis).extent
    yield _between(facts, rest.axis, 0, rest.begin), candidate
    yield _between(facts, rest.axis, rest.begin, extent), rest.candidate


def _between(facts: ProductFacts, axis: str, begin: int, end: int) -> ProductFacts:
    """Return the product of the rows (or columns) from `begin` to `end`."""
    flat = facts.flat
    whole = getattr(flat, axis)
    nodes = walk((facts.a.value, facts.b.value, *flat.roots))
    range_ = make_range(fresh_number(nodes), end - begin)
    place = range_ + begin if begin else range_

    def moved(root: UOp) -> UOp:
        return simplify_index(substitute(root, {whole: place}))

    def taken(operand: Operand) -> Operand:
        if operand.free is not whole:
            return operand
        inner = range_ if operand.inner is whole else operand.inner
        return replace(operand, value=moved(operand.value), free=range_, inner=inner)

    a, b = taken(facts.a), taken(facts.b)
    stores = tuple([moved(each) for each in flat.stores])
    promotion = flat.promotion
    if promotion is not None:
        promotion = replace(promotion, value=moved(promotion.value))
    flat = replace(flat, stores=stores, a=a.value, b=b.value, promotion=promotion)
    flat = replace(flat, m=range_) if axis == "m" else replace(flat, n=range_)
    return replace(facts, flat=flat, a=a, b=b)
