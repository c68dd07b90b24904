"""Finds how many adjacent elements of every access may be read or written at once on a GPU."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from tinytensor.codegen.plans.amounts import divisor_of
from tinytensor.codegen.plans.lanes import accesses_of
from tinytensor.codegen.vectorize import guard_of, stride_of
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp, exact_extent, walk

ACCESS_BYTES = 16  # of the widest load or store; buffers begin at multiples of it
MOST_ELEMENTS = 16


def common_access(
    roots: Iterable[UOp], range_: UOp, steps: Mapping[UOp, int], most: int = MOST_ELEMENTS
) -> int:
    """Return how many adjacent values of a range can be taken at once, a power of two.

    `steps` gives ranges of whose values something is known: all are multiples of that number.
    Every access along the range with stride 1 must then be aligned to its own size; any other
    stride is accessed element by element and limits nothing.
    """
    elements = math.gcd(most, divisor_of(exact_extent(range_)), steps.get(range_, 1))
    for access in accesses_of(roots):
        elements = min(elements, _access_elements(access, range_, steps))
    return elements


def _access_elements(access: UOp, range_: UOp, steps: Mapping[UOp, int]) -> int:
    stride = stride_of(access.operands[1], range_)
    guard = guard_of(access)
    if stride == -1 or (guard is not None and stride_of(guard, range_) != 0):
        return 1
    if stride != 1:
        return MOST_ELEMENTS
    widest = ACCESS_BYTES // access.operands[0].dtype.itemsize
    return power_dividing(access.operands[1], steps, widest)


def power_dividing(index: UOp, steps: Mapping[UOp, int], limit: int) -> int:
    """Return the greatest power of two, up to a limit that is one, dividing all values of an index.

    >>> from tinytensor.ops.uop import make_range
    >>> row, column = make_range(0, 9), make_range(1, 24)
    >>> power_dividing(row * 24 + column, {column: 16}, 16)
    8
    """
    powers: dict[UOp, int] = {}
    for node in walk((index,)):
        operands = [powers[each] for each in node.operands]
        powers[node] = math.gcd(limit, _divisor(node, operands, steps))
    return powers[index]


def _divisor(node: UOp, operands: list[int], steps: Mapping[UOp, int]) -> int:
    if node.op is Op.CONST:
        return int(node.value)
    if node.op is Op.RANGE:
        return steps.get(node, 1)
    if node.op in (Op.ADD, Op.SUB, Op.MOD, Op.MAX, Op.MIN):
        return math.gcd(*operands)
    return math.prod(operands) if node.op is Op.MUL else 1
