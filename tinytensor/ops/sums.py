"""Turns an index expression into a sum of terms with coefficients, and back in canonical order."""

from __future__ import annotations

import functools
import math
from dataclasses import field

from tinytensor.ops.bounds import bounds_of, single_value
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp, binary, index_const, walk
from tinytensor.records import dataclass

MOST_TERMS = 64  # what is longer is left as written, so that the cost stays linear


@dataclass(slots=True)
class Sum:
    """constant + the sum of coefficient * node, in exact integers; no coefficient is 0."""

    coefficients: dict[UOp, int] = field(default_factory=dict)
    constant: int = 0

    def add(self, node: UOp, coefficient: int) -> None:
        """Add coefficient * node as one term."""
        total = self.coefficients.pop(node, 0) + coefficient
        if total:
            self.coefficients[node] = total

    def include(self, other: Sum, factor: int) -> None:
        """Add factor times another sum."""
        self.constant += factor * other.constant
        for node, coefficient in other.coefficients.items():
            self.add(node, factor * coefficient)


def collect(node: UOp) -> Sum:
    """Return an index expression as a sum; what is no sum is one term with coefficient 1."""
    total = Sum()
    stack = [(node, 1)]
    while stack:
        part, factor = stack.pop()
        if len(total.coefficients) + len(stack) >= MOST_TERMS:
            return Sum({node: 1})
        value = single_value(part)
        if value is not None:
            total.constant += factor * value
        elif part.op is Op.ADD:
            stack += [(part.operands[1], factor), (part.operands[0], factor)]
        elif part.op is Op.SUB:
            stack += [(part.operands[1], -factor), (part.operands[0], factor)]
        elif part.op is Op.NEG:
            stack.append((part.operands[0], -factor))
        elif part.op is Op.MUL:
            x, y = part.operands
            if single_value(y) is None:
                x, y = y, x
            scale = single_value(y)
            if scale is None:
                total.add(part, factor)
            else:
                stack.append((x, factor * scale))
        else:
            total.add(part, factor)
    return total


def rank(node: UOp) -> float:
    """Return a term's place in a sum: ranges by number, then all others in order of appearance."""
    return float(node.attrs.number) if node.op is Op.RANGE else math.inf


def build(total: Sum) -> UOp:
    """Return the canonical expression: ranges outermost first, others, then the constant."""
    result: UOp | None = None
    for node in sorted(total.coefficients, key=rank):
        coefficient = total.coefficients[node]
        term = node if coefficient == 1 else binary(Op.MUL, node, index_const(coefficient))
        result = term if result is None else result + term
    if result is None:
        return index_const(total.constant)
    return result + index_const(total.constant) if total.constant else result


# Products of what is known only at launch.
def multiply(x: Sum, y: Sum) -> Sum:
    """Return the product of two sums, multiplied out: equal products become the identical node."""
    total = Sum({}, x.constant * y.constant)
    for one, other in ((x, y), (y, x)):
        for node, coefficient in one.coefficients.items():
            if other.constant:
                total.add(node, coefficient * other.constant)
    for a, coefficient in x.coefficients.items():
        for b, factor in y.coefficients.items():
            total.add(_joined([*_factors(a), *_factors(b)]), coefficient * factor)
    return total


def divide(x: Sum, y: Sum) -> Sum | None:
    """Return the quotient of sums where each term of one is a multiple of the other, one term."""
    if y.constant or len(y.coefficients) != 1:
        return None
    ((divisor, scale),) = y.coefficients.items()
    quotient = Sum()
    if x.constant:
        return None
    for node, coefficient in x.coefficients.items():
        left = _factors(node)
        for each in _factors(divisor):
            if each not in left:
                return None
            left.remove(each)
        if coefficient % scale:
            return None
        if left:
            quotient.add(_joined(left), coefficient // scale)
        else:
            quotient.constant += coefficient // scale
    return quotient


def _factors(node: UOp) -> list[UOp]:
    found, stack = [], [node]
    while stack:
        part = stack.pop()
        if part.op is Op.MUL:
            stack += part.operands
        else:
            found.append(part)
    return found


def _joined(factors: list[UOp]) -> UOp:
    first, *others = sorted(factors, key=_place)
    return functools.reduce(UOp.__mul__, others, first)


def _place(node: UOp) -> tuple[object, ...]:
    """What orders factors: their ops and numbers, from the top down."""
    nodes = walk((node,))
    return tuple([(each.op.name, getattr(each.attrs, "number", 0)) for each in reversed(nodes)])


def join_remainders(total: Sum) -> Sum:
    """Replace x // c * (c*k) + x % c * k by x * k, and x // c % d likewise by x % (c*d) * k."""
    pending = [node for node in total.coefficients if node.op is Op.MOD]
    while pending:
        remainder = pending.pop()
        scale = total.coefficients.get(remainder, 0)
        beside = _beside(total, remainder, scale)
        if beside is None:
            continue
        total.add(remainder, -scale)
        total.add(beside.quotient, -total.coefficients[beside.quotient])
        total.include(collect(beside.whole), scale)
        pending = [node for node in total.coefficients if node.op is Op.MOD]
    return total


@dataclass(frozen=True, slots=True)
class _Beside:
    """The quotient that stands beside a remainder, and what both are together."""

    quotient: UOp
    whole: UOp


def _beside(total: Sum, remainder: UOp, scale: int) -> _Beside | None:
    x = remainder.operands[0]
    divisor = positive_divisor(remainder)
    if divisor is None or scale == 0:
        return None
    quotient = x // divisor
    inner = positive_divisor(x) if x.op is Op.FLOORDIV else None
    if inner is not None:
        quotient = x.operands[0] // (inner * divisor)
    for node, coefficient in total.coefficients.items():
        if coefficient != scale * divisor:
            continue
        if node is quotient:
            return _Beside(node, x)
        outer = positive_divisor(node) if node.op is Op.MOD else None
        shift = _difference(node.operands[0], quotient) if outer is not None else None
        if outer is not None and shift is not None:
            return _Beside(node, build(collect(x + shift * divisor)) % (outer * divisor))
    return None


def _difference(x: UOp, y: UOp) -> int | None:
    """The constant x - y, or None when it depends on a range."""
    difference = collect(x)
    difference.include(collect(y), -1)
    return None if difference.coefficients else difference.constant


def positive_divisor(node: UOp) -> int | None:
    """Return the divisor of a FLOORDIV or MOD when it is a constant above 0."""
    divisor = node.operands[1]
    if divisor.op is not Op.CONST or divisor.value <= 0:
        return None
    return int(divisor.value)


def one_quotient(x: UOp, divisor: int) -> int | None:
    """Return x // divisor when the bounds of x allow one value only."""
    low, high = bounds_of(x)
    quotient = int(low) // divisor
    return quotient if quotient == int(high) // divisor else None


@dataclass(slots=True)
class Split:
    """A sum as multiples * factor + rest; `quotient` is rest // factor where that is one value."""

    multiples: Sum
    rest: Sum
    factor: int
    quotient: int = 0


def split_multiples(total: Sum, factor: int) -> Split:
    """Split off the terms whose coefficients the factor divides, and the constant's multiples.

    The constant that stays keeps its sign: x - 1 has no canonical x + 3, whatever the factor.
    """
    multiple = abs(total.constant) // factor * (1 if total.constant > 0 else -1)
    split = Split(Sum({}, multiple), Sum({}, total.constant - multiple * factor), factor)
    for node, coefficient in total.coefficients.items():
        if coefficient % factor == 0:
            split.multiples.add(node, coefficient // factor)
        else:
            split.rest.add(node, coefficient)
    return split


def split_wraps(total: Sum, divisor: int) -> Split | None:
    """Split off all multiples of a divisor, those within a term too, whose rest has one quotient.

    59*x + y is 58*x + (x + y), and x + y may lie below 58.
    """
    split = split_multiples(total, divisor)
    for node, coefficient in list(split.rest.coefficients.items()):
        if coefficient > divisor:
            split.multiples.add(node, coefficient // divisor)
            split.rest.add(node, coefficient % divisor - coefficient)
    quotient = one_quotient(build(split.rest), divisor)
    if quotient is None:
        return None
    split.quotient = quotient
    return split


def split_factor(total: Sum, divisor: int) -> Split | None:
    """Split by the greatest factor of the divisor above 1 whose rest has one quotient."""
    factors = {math.gcd(coefficient, divisor) for coefficient in total.coefficients.values()}
    for factor in sorted(factors - {1}, reverse=True):
        split = split_multiples(total, factor)
        quotient = one_quotient(build(split.rest), factor)
        if quotient is not None:
            split.quotient = quotient
            return split
    return None
