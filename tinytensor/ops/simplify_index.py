"""Turns index expressions into shorter ones with the same values, by the bounds of ranges."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from tinytensor.dtype import dtypes
from tinytensor.ops.guards import compare_sides, conjuncts, decide, tightest
from tinytensor.ops.op import COMPARE, Op
from tinytensor.ops.pattern import any_operands, comparison, constant, variable
from tinytensor.ops.rewrite import Measure, RuleSet, join, rewrite
from tinytensor.ops.simplify_values import VALUE_RULES
from tinytensor.ops.sums import (
    Sum,
    build,
    collect,
    join_remainders,
    positive_divisor,
    rank,
    split_factor,
    split_multiples,
    split_wraps,
)
from tinytensor.ops.uop import UOp, const, walk


# Views over views ask for the same expressions again: with it, the schedule of a sort of 100,000
# elements for a GPU takes 0.3 of the time. Each kept expression holds a few nodes.
@functools.lru_cache(maxsize=4096)
def simplify_index(node: UOp) -> UOp:
    """Return the simplest known expression with the same value for all values of its ranges.

    >>> from tinytensor.ops.uop import make_range
    >>> row, column = make_range(0, 4), make_range(1, 3)
    >>> simplify_index((row * 3 + column) // 3) is row
    True
    """
    return rewrite((node,), ALL_RULES)[0] if node.operands else node


def weigh(node: UOp) -> Measure:
    """Return (weight, disorder), which every rule makes smaller; disorder breaks ties.

    Division squares its dividend's weight and a product multiplies it, so moving work out of them
    pays even where it makes more nodes.
    """
    weights: dict[UOp, int] = {}
    disorder = 0
    for each in walk((node,)):
        parts = [weights[operand] for operand in each.operands]
        weights[each] = _weight(each, parts)
        disorder += _disorder(each)
    return weights[node], disorder


def _weight(node: UOp, parts: list[int]) -> int:
    if node.op is Op.CONST:
        return 1 + abs(int(node.value))
    if node.op is Op.MUL and node.operands[1].op is Op.CONST:
        return parts[0] * _factor(node.operands[1]) + 1
    if node.op is Op.MUL and node.operands[0].op is Op.CONST:
        return parts[1] * _factor(node.operands[0]) + 1
    if node.op in (Op.FLOORDIV, Op.MOD):
        return parts[0] ** 2 + parts[1]
    if node.op is Op.SUB:
        return parts[0] + 2 * parts[1] + 4
    if node.op is Op.NEG:
        return 2 * parts[0] + 2
    return sum(parts) + _OWN_WEIGHT.get(node.op, 1 if parts else 8)


_OWN_WEIGHT = {Op.ADD: 2, Op.LE: 4}


def _factor(factor: UOp) -> int:
    value = int(factor.value)
    return value if value > 0 else 1 - value


def _disorder(node: UOp) -> int:
    """How many operands of a sum or a comparison stand on the wrong side."""
    if node.op is not Op.ADD and node.op not in COMPARE:
        return 0
    x, y = node.operands
    constant_left = x.op is Op.CONST and node.op not in (Op.LT, Op.LE)
    if node.op is not Op.ADD:
        added_left = x.op is Op.ADD and x.operands[1].op is Op.CONST
        swapped = node.op in (Op.EQ, Op.NE) and rank(_term(x)) > rank(_term(y))
        return constant_left + added_left + swapped
    last = x.operands[1] if x.op is Op.ADD else x
    return constant_left + (last.op is Op.CONST) + (rank(_term(last)) > rank(_term(y)))


def _term(node: UOp) -> UOp:
    """The node of a term, without its coefficient; of a sum, its first one."""
    while node.op in (Op.ADD, Op.MUL):
        node = node.operands[0]
    return node


INDEX_RULES = RuleSet("simplify_index", weigh)
x = variable("x", "index")
y = variable("y", "index")
c = constant("c", "index")
d = constant("d", "index")
p = variable("p", "bool")
q = variable("q", "bool")


@INDEX_RULES.rule(any_operands((Op.ADD, Op.SUB, Op.MUL, Op.NEG), "index"))
def collect_terms(node: UOp) -> UOp:
    """x*a + y - x*b + ...  ->  x*(a - b) + y + ...

    Always legal: index values are exact integers, so a sum may be taken in any order; and by the
    definition of the remainder x // c * c + x % c is x.
    Gain: like terms are added once, and equal sums become the identical node.
    """
    return build(join_remainders(collect(node)))


@INDEX_RULES.rule(
    x // c,
    legal=lambda c: c.value > 0,
    before=("merge_divisions", "divide_remainder", "cancel_factor"),
)
def pull_multiples(node: UOp, x: UOp, c: UOp) -> UOp:
    """(x*c + y) // c  ->  x + y // c

    Legal when c > 0 and x is every term with a multiple of c, a constant of at least c included;
    multiples of c within the terms of y are x's too, where what they leave has one quotient.
    Gain: a shorter dividend; y // c is 0 where bounds say so.
    """
    split = split_wraps(collect(x), int(c.value)) or split_multiples(collect(x), int(c.value))
    if not split.multiples.coefficients and not split.multiples.constant:
        return node
    return build(split.multiples) + build(split.rest) // c


@INDEX_RULES.rule((x // c) // d, legal=lambda c, d: c.value > 0 and d.value > 0)
def merge_divisions(x: UOp, c: UOp, d: UOp) -> UOp:
    """(x // c) // d  ->  x // (c*d)

    Legal when c, d > 0: the floor of a floor is one floor then.
    Gain: one FLOORDIV fewer.
    """
    return x // (int(c.value) * int(d.value))


@INDEX_RULES.rule(
    (x % c) // d,
    legal=lambda c, d: c.value > 0 and d.value > 1 and c.value % d.value == 0,
)
def divide_remainder(x: UOp, c: UOp, d: UOp) -> UOp:
    """(x % c) // d  ->  (x // d) % (c // d)

    Legal when c > 0, d > 1 and d divides c: x = q*c + r gives q*(c//d) + r // d.
    Gain: x // d has one canonical place, and divisions merge in it.
    """
    return (x // d) % (int(c.value) // int(d.value))


@INDEX_RULES.rule(x // c, legal=lambda c: c.value > 1)
def cancel_factor(node: UOp, x: UOp, c: UOp) -> UOp:
    """(x*g + y) // (g*c)  ->  (x + y // g) // c

    Legal when g, c > 0 and y // g is one value: flooring by g first changes nothing.
    Gain: y is gone from the dividend, and the constants are smaller.
    """
    split = split_factor(collect(x), int(c.value))
    if split is None:
        return node
    split.multiples.constant += split.quotient
    return build(split.multiples) // (int(c.value) // split.factor)


@INDEX_RULES.rule(
    x % c,
    legal=lambda c: c.value > 0,
    before=("unwrap_remainders", "drop_modulo", "factor_remainder"),
)
def drop_multiples(node: UOp, x: UOp, c: UOp) -> UOp:
    """(x*c + y) % c  ->  y % c

    Legal when c > 0: multiples of c leave no remainder, a constant of at least c included.
    Gain: a shorter dividend.
    """
    split = split_multiples(collect(x), int(c.value))
    if not split.multiples.coefficients and not split.multiples.constant:
        return node
    return build(split.rest) % c


@INDEX_RULES.rule(
    x % c, legal=lambda c: c.value > 0, before=("unwrap_remainders", "factor_remainder")
)
def drop_modulo(node: UOp, x: UOp, c: UOp) -> UOp:
    """(x*k + y) % c  ->  x*(k % c) + y - q*c

    Legal when c > 0 and the bounds of x*(k % c) + y have one quotient q by c: it differs from the
    dividend by multiples of c.
    Gain: one MOD fewer. The windows of a convolution end as sums.
    """
    split = split_wraps(collect(x), int(c.value))
    if split is None:
        return node
    split.rest.constant -= split.quotient * split.factor
    return build(split.rest)


@INDEX_RULES.rule(x % c, legal=lambda c: c.value > 0, before=("factor_remainder",))
def unwrap_remainders(node: UOp, x: UOp, c: UOp) -> UOp:
    """((x % a)*k + y) % c  ->  (x*k + y) % c

    Legal when c > 0 and c divides a*k: x % a differs from x by multiples of a.
    Gain: one MOD fewer.
    """
    total, unwrapped = collect(x), Sum()
    for term, k in total.coefficients.items():
        inner = positive_divisor(term) if term.op is Op.MOD else None
        unwraps = inner is not None and inner * k % int(c.value) == 0
        unwrapped.add(term.operands[0] if unwraps else term, k)
    unwrapped.constant = total.constant
    if unwrapped == total:
        return node
    return build(unwrapped) % c


@INDEX_RULES.rule(x % c, legal=lambda c: c.value > 1)
def factor_remainder(node: UOp, x: UOp, c: UOp) -> UOp:
    """(x*g + y) % (g*c)  ->  ((x + y // g) % c)*g + y % g

    Legal when g, c > 0 and y // g is one value: y % g is then a difference.
    Gain: the remainder is taken of fewer terms, by a smaller constant.
    """
    split = split_factor(collect(x), int(c.value))
    if split is None:
        return node
    split.multiples.constant += split.quotient
    split.rest.constant -= split.quotient * split.factor
    inner = build(split.multiples) % (int(c.value) // split.factor)
    split.rest.add(inner, split.factor)
    return build(split.rest)


@INDEX_RULES.rule(comparison(x, y))
def order_comparison(node: UOp, x: UOp, y: UOp) -> UOp:
    """x*a + b < y + d  ->  x < y' + e

    Always legal: the sides may lose what they share and a common factor, as integers are exact;
    the difference of the sides is a constant or has bounds that decide where they can.
    Gain: guards that say the same are the identical node, and many are decided.
    """
    difference = collect(x)
    difference.include(collect(y), -1)
    join_remainders(difference)
    decided = decide(node.op, difference)
    if decided is not None:
        return const(dtypes.bool, decided)
    return compare_sides(node.op, difference)


@INDEX_RULES.rule(p & q)
def tighten_guard(node: UOp) -> UOp:
    """x < 5 & y & x < 3 & y  ->  x < 3 & y

    Always legal: of bounds on one node the tightest implies the others, and bounds that exclude
    each other make the whole false.
    Gain: one comparison per load fewer.
    """
    claims = conjuncts(node)
    kept = tightest(claims)
    if kept is None:
        return const(dtypes.bool, False)
    if len(kept) == len(claims):
        return node
    return functools.reduce(UOp.__and__, kept)


ALL_RULES = join("simplify", VALUE_RULES, INDEX_RULES)


def simplify(roots: Sequence[UOp]) -> tuple[UOp, ...]:
    """Return the roots with every rule for values and indices applied, in one run.

    >>> from tinytensor.dtype import dtypes
    >>> from tinytensor.ops.uop import const
    >>> three = const(dtypes.float32, 3.0)
    >>> simplify((three * 2.0,))[0].value
    6.0
    """
    return rewrite(roots, ALL_RULES)
