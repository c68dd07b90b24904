"""Turns comparisons of index expressions, and guards made of them, into decided or tighter ones."""

from __future__ import annotations

import math

from tinytensor.ops.bounds import bounds_of
from tinytensor.ops.op import Op
from tinytensor.ops.sums import Sum, build, rank
from tinytensor.ops.uop import UOp, compare, index_const

MOST_CLAIMS = 64  # a longer guard is left as written, so that the cost stays linear


def decide(op: Op, difference: Sum) -> bool | None:
    """Return whether `difference op 0` holds, or None where its bounds allow both."""
    low = high = difference.constant
    for node, coefficient in difference.coefficients.items():
        ends = [coefficient * int(end) for end in bounds_of(node)]
        low, high = low + min(ends), high + max(ends)
    if op in (Op.EQ, Op.NE):
        divisor = math.gcd(*difference.coefficients.values())
        never = low > 0 or high < 0 or (divisor > 1 and difference.constant % divisor != 0)
        always = low == high == 0
        return (op is Op.EQ) == always if always or never else None
    least_false = 0 if op is Op.LT else 1
    if low >= least_false:
        return False
    return True if high < least_false else None


def compare_sides(op: Op, difference: Sum) -> UOp:
    """Return `difference op 0` with the terms on the side where they are positive.

    A bound by a constant is written with LT; terms on both sides take the constant to the right.
    """
    difference = _reduce(op, difference)
    left, right = Sum(), Sum({}, -difference.constant)
    for node, coefficient in difference.coefficients.items():
        side = left if coefficient > 0 else right
        side.add(node, abs(coefficient))
    if op is Op.LE and not (left.coefficients and right.coefficients):
        # x <= 5 is x < 6, and 6 <= x is 5 < x.
        op = Op.LT
        right.constant += 1
    if left.coefficients:
        return compare(op, build(left), build(right))
    return compare(op, index_const(-right.constant), build(Sum(right.coefficients)))


def _reduce(op: Op, difference: Sum) -> Sum:
    """Divide by the common factor; an equality begins with a positive term."""
    divisor = math.gcd(*difference.coefficients.values())
    if op in (Op.EQ, Op.NE):
        first = min(difference.coefficients, key=rank)
        divisor = divisor if difference.coefficients[first] > 0 else -divisor
    terms = {node: k // divisor for node, k in difference.coefficients.items()}
    # g*x + k < 0 is x + floor(k/g) < 0, and g*x + k <= 0 is x + ceil(k/g) <= 0.
    constant = difference.constant // divisor
    if op is Op.LE:
        constant = -(-difference.constant // divisor)
    return Sum(terms, constant)


def both(a: UOp | None, b: UOp | None) -> UOp | None:
    """Return the guard that holds where two do; None holds everywhere."""
    if a is None or b is None:
        return a if b is None else b
    return a & b


def conjuncts(guard: UOp) -> list[UOp]:
    """Return what a chain of ANDs claims, in order; a guard that is too long is one claim."""
    claims: list[UOp] = []
    stack = [guard]
    while stack:
        part = stack.pop()
        if part.op is Op.AND:
            stack += reversed(part.operands)
        else:
            claims.append(part)
        if len(claims) + len(stack) > MOST_CLAIMS:
            return [guard]
    return claims


def tightest(claims: list[UOp]) -> list[UOp] | None:
    """Return the claims that no other claim implies, or None when they exclude each other."""
    above: dict[UOp, int] = {}  # a node -> the constant it is below
    below: dict[UOp, int] = {}  # a node -> the constant it is above
    for x, y in [each.operands for each in claims if _is_bound(each)]:
        if y.op is Op.CONST:
            above[x] = min(int(y.value), above.get(x, int(y.value)))
        else:
            below[y] = max(int(x.value), below.get(y, int(x.value)))
    if any(above[node] - below[node] <= 1 for node in above.keys() & below.keys()):
        return None
    return [each for each in dict.fromkeys(claims) if _is_tight(each, above, below)]


def _is_bound(claim: UOp) -> bool:
    """Whether a claim is x < constant or constant < x, of integers."""
    if claim.op is not Op.LT or not claim.operands[0].dtype.is_int:
        return False
    x, y = claim.operands
    return (x.op is Op.CONST) != (y.op is Op.CONST)


def _is_tight(claim: UOp, above: dict[UOp, int], below: dict[UOp, int]) -> bool:
    if not _is_bound(claim):
        return True
    x, y = claim.operands
    return above[x] == y.value if y.op is Op.CONST else below[y] == x.value
