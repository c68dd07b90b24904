"""Turns a kernel that writes back what it reads into one that writes only what changes.

`cache[:, p:p+1] = k` in the memory of the cache stores, at every place but one, the value that is
there. What is left is a store with a guard, over the ranges' values for which the guard can hold.

Takes:  a kernel whose output lies where an operand lies, without a fold.
Gives:  the same writes, but for those of values that do not change.
Placed: after params were merged, which is what makes the value that is read the one that is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tinytensor.ops.guards import conjuncts
from tinytensor.ops.kernel import Kernel
from tinytensor.ops.op import Op
from tinytensor.ops.ranges import dependencies, folded_ranges
from tinytensor.ops.simplify_index import simplify, simplify_index
from tinytensor.ops.sums import build, collect
from tinytensor.ops.uop import (
    UOp,
    binary,
    by_number,
    exact_extent,
    fresh_number,
    index_const,
    substitute_all,
    walk,
)
from tinytensor.records import dataclass
from tinytensor.schedule.lower_views import range_of


def narrow_writes(kernel: Kernel) -> Kernel:
    """Return the kernel without the stores of what is there; see the top of this file."""
    has_folds = any(folded_ranges(node) for node in walk([kernel.sink]))
    if len(kernel.sink.operands) != 1 or has_folds or kernel.instanced:
        return kernel
    store = _guarded(kernel.sink.operands[0])
    if len(store.operands) < 4:
        return kernel
    ranges = list(kernel.ranges)
    number = fresh_number(ranges)
    for at, range_ in enumerate(ranges):
        part = _part(range_, conjuncts(store.operands[3]) if len(store.operands) > 3 else [])
        if part is None:
            continue
        begin, count = part
        fresh = range_of(count, number + at)
        (store,) = simplify(substitute_all((store,), {range_: fresh + begin}))
        ranges[at] = fresh
    kept = [each for each in ranges if each.op is Op.RANGE]
    narrow = replace(kernel, sink=kernel.sink.replace((store,)), ranges=tuple(kept))
    return narrow if _needs(narrow) == _needs(kernel) else kernel


def _needs(kernel: Kernel) -> list[UOp]:
    """What a launch gives: the params and the variables, by number."""
    return [*by_number(walk([kernel.sink]), Op.PARAM), *kernel.variables]


def _guarded(store: UOp) -> UOp:
    """STORE b[i] = (x if p else b[i])  ->  STORE b[i] = x if p."""
    buffer, index, value, *guard = store.operands
    if guard or value.op is not Op.WHERE:
        return store
    cond, x, y = value.operands
    is_kept = y.op is Op.LOAD and y.operands == (buffer, index)
    return store.replace((buffer, index, x, cond)) if is_kept else store


def _part(range_: UOp, claims: Sequence[UOp]) -> tuple[UOp, UOp] | None:
    """Return where the values of a range begin for which claims hold, and how many they are."""
    ends = [end for end in [_end_of(range_, claim) for claim in claims] if end is not None]
    if not ends:
        return None
    begin, end = index_const(0), exact_extent(range_)
    for each in ends:
        if each.is_lower:
            begin = binary(Op.MAX, begin, each.value)
        else:
            end = binary(Op.MIN, end, each.value)
    begin, end = simplify_index(begin), simplify_index(end)
    return begin, simplify_index(binary(Op.MAX, end - begin, 0))


@dataclass(frozen=True, slots=True)
class _End:
    """A bound of a range: its least value, or what all its values are below."""

    value: UOp
    is_lower: bool


def _end_of(range_: UOp, claim: UOp) -> _End | None:
    """Return the bound that x < y or x <= y is of a range, where nothing else varies."""
    if claim.op not in (Op.LT, Op.LE) or claim.operands[0].dtype.kind != "index":
        return None
    x, y = claim.operands
    slack = collect(y)
    slack.include(collect(x), -1)  # at least 0, or above 0
    slack.constant -= claim.op is Op.LT
    slope = slack.coefficients.pop(range_, 0)
    if abs(slope) != 1 or any(dependencies(walk([build(slack)])).values()):
        return None
    rest = build(slack)
    if slope > 0:  # r + rest >= 0
        return _End(simplify_index(index_const(0) - rest), is_lower=True)
    return _End(simplify_index(rest + 1), is_lower=False)  # rest - r >= 0
