"""Turns values into cheaper ones with the same bits: the exact rules for every user dtype."""

from __future__ import annotations

import numpy as np

from tinytensor.dtype import MANTISSA_BITS, DType, dtypes
from tinytensor.ops import attrs as a
from tinytensor.ops.bounds import bounds_of, single_value
from tinytensor.ops.interpret import constant as value_of
from tinytensor.ops.interpret import evaluate, to_storage
from tinytensor.ops.op import BINARY, COMMUTATIVE, COMPARE, ELEMENTWISE, UNARY, Mark, Op
from tinytensor.ops.pattern import (
    any_operands,
    comparison,
    constant,
    one_of,
    pattern_of,
    select,
    variable,
)
from tinytensor.ops.rewrite import LATER, Measure, RuleSet
from tinytensor.ops.uop import UOp, cast, compare, const, walk, where


def count_nodes(node: UOp) -> Measure:
    """Return (nodes of the tree, constants on the left): every rule makes it smaller."""
    sizes: dict[UOp, int] = {}
    constants_left = 0
    for each in walk((node,)):
        sizes[each] = 1 + sum(sizes[operand] for operand in each.operands)
        constants_left += len(each.operands) == 2 and each.operands[0].op is Op.CONST
    return sizes[node], constants_left


VALUE_RULES = RuleSet("simplify_values", count_nodes)
x = variable("x")
y = variable("y")
z = variable("z")
u = variable("u", "user")
n = variable("n", "integer")
m = variable("m", "integer")
p = variable("p", "bool")
c = constant("c")
v = constant("v", "user")
w = constant("w", "user")
b = constant("b", "bool")
EXACT_UNARY = [op for op in UNARY if op.mark is Mark.EXACT]
ASSOCIATIVE = (Op.ADD, Op.MUL, Op.MAX, Op.MIN, Op.AND, Op.OR, Op.XOR)
IDEMPOTENT = (Op.AND, Op.OR, Op.MAX, Op.MIN)
SELF_INVERSE = (Op.SUB, Op.XOR)
INVERSE = {Op.LT: Op.LE, Op.LE: Op.LT, Op.EQ: Op.NE, Op.NE: Op.EQ}


def fold_constants(op: Op, dtype: DType, *operands: UOp) -> UOp:
    """Return the constant that an exact op gives for constants, computed by the interpreter."""
    result = evaluate(op, dtype, *[np.atleast_1d(value_of(each)) for each in operands])
    stored = to_storage(result, dtype).tobytes()
    return UOp(Op.CONST, dtype, (), a.ConstAttrs(int.from_bytes(stored, "little")))


# Constants.
@VALUE_RULES.rule(
    one_of(EXACT_UNARY, v),
    before=LATER,
)
def fold_unary(node: UOp, v: UOp) -> UOp:
    """op(constant)  ->  constant

    Always legal: the op is exact, so it gives these bits wherever it is computed.
    Gain: one op fewer.
    """
    return fold_constants(node.op, node.dtype, v)


@VALUE_RULES.rule(
    one_of((*BINARY, *COMPARE), v, w),
    before=LATER,
)
def fold_binary(node: UOp, v: UOp, w: UOp) -> UOp:
    """constant op constant  ->  constant

    Always legal: every binary op and comparison is exact.
    Gain: one op fewer.
    """
    return fold_constants(node.op, node.dtype, v, w)


@VALUE_RULES.rule(
    pattern_of(Op.CAST, c),
    before=LATER,
)
def fold_cast(node: UOp, c: UOp) -> UOp:
    """CAST(constant)  ->  constant

    Always legal: casts are exact; an index wraps to a user integer.
    Gain: one CAST fewer.
    """
    if c.dtype is dtypes.index and node.dtype.is_int:
        return const(node.dtype, c.value)
    if dtypes.index in (c.dtype, node.dtype):
        return node
    return fold_constants(Op.CAST, node.dtype, c)


@VALUE_RULES.rule(pattern_of(Op.BITCAST, v))
def fold_bitcast(node: UOp, v: UOp) -> UOp:
    """BITCAST(constant)  ->  constant

    Always legal: a constant is its bits.
    Gain: one BITCAST fewer.
    """
    return UOp(Op.CONST, node.dtype, (), v.attrs)


@VALUE_RULES.rule(
    one_of(COMMUTATIVE, v, u),
    legal=lambda u: u.op is not Op.CONST,
    before=LATER,
)
def put_constant_right(node: UOp, v: UOp, u: UOp) -> UOp:
    """constant op x  ->  x op constant

    Legal when x is no constant: the op is commutative, NaN and -0.0 included.
    Gain: other rules look for constants on the right only.
    """
    return node.replace((u, v))


@VALUE_RULES.rule(
    any_operands(ELEMENTWISE, "whole"),
    legal=lambda node: _is_single(node),
    before=LATER,
)
def fold_single_value(node: UOp) -> UOp:
    """integer or bool  ->  its value

    Legal when the bounds of the node are one value, which covers x*0, x % 1, x // c in range and
    comparisons that bounds settle; those of floats settle nothing.
    Gain: the whole expression.
    """
    return const(node.dtype, int(bounds_of(node)[0]))


def _is_single(node: UOp) -> bool:
    return node.shape == () and node.dtype.lanes == 1 and single_value(node) is not None


# Identities.
@VALUE_RULES.rule(
    one_of(BINARY, x, c),
    legal=lambda node, c: _is_identity(node.op, c),
    before=("drop_repeat", "cancel_self", "settle_extremum", "gather_constants"),
)
def drop_identity(x: UOp) -> UOp:
    """x op identity  ->  x

    Legal when the constant is the op's identity for every x: 0 for integer sums, but -0.0 for float
    sums, as -0.0 + 0.0 is 0.0.
    Gain: one op fewer.
    """
    return x


def _is_identity(op: Op, constant: UOp) -> bool:
    dtype = constant.dtype
    if op is Op.ADD and dtype.is_float:
        return constant is const(dtype, -0.0)
    if op in (Op.MAX, Op.MIN):
        least = dtype.min if op is Op.MAX else dtype.max
        return dtype is not dtypes.index and constant is const(dtype, least)
    if op in (Op.ADD, Op.SUB, Op.OR, Op.XOR, Op.SHL, Op.SHR):
        return constant is const(dtype, 0)
    if op in (Op.MUL, Op.DIV, Op.FLOORDIV):
        return constant is const(dtype, 1)
    return op is Op.AND and constant is const(dtype, True if dtype is dtypes.bool else -1)


@VALUE_RULES.rule(pattern_of(Op.NEG, pattern_of(Op.NEG, x)))
def cancel_negation(x: UOp) -> UOp:
    """-(-x)  ->  x

    Always legal: a float changes its sign bit twice, an integer wraps back.
    Gain: two ops fewer.
    """
    return x


@VALUE_RULES.rule(
    one_of(IDEMPOTENT, x, x),
    before=("settle_extremum",),
)
def drop_repeat(x: UOp) -> UOp:
    """x op x  ->  x

    Always legal: AND, OR, MAX and MIN of equals give either, NaN included.
    Gain: one op fewer.
    """
    return x


@VALUE_RULES.rule(
    one_of(SELF_INVERSE, x, x),
    legal=lambda x: x.shape == () and _is_whole(x),
)
def cancel_self(x: UOp) -> UOp:
    """x - x, x ^ x  ->  0

    Legal when x is an integer or bool: an infinite or NaN float gives NaN.
    Gain: the whole expression.
    """
    return const(x.dtype, 0)


@VALUE_RULES.rule(
    comparison(x, x),
    legal=lambda x: x.shape == () and _is_whole(x),
)
def compare_self(node: UOp) -> UOp:
    """x < x, x != x  ->  false;  x <= x, x == x  ->  true

    Legal when x is an integer or bool: a NaN equals nothing.
    Gain: the whole expression.
    """
    return const(dtypes.bool, node.op in (Op.LE, Op.EQ))


def _is_whole(node: UOp) -> bool:
    return node.dtype.lanes == 1 and (node.dtype.is_int or node.dtype is dtypes.bool)


@VALUE_RULES.rule(
    one_of((Op.MAX, Op.MIN), n, m),
    legal=lambda n, m: _greater(n, m) is not None,
    before=("gather_constants",),
)
def settle_extremum(node: UOp, n: UOp, m: UOp) -> UOp:
    """MAX(x, y), MIN(x, y)  ->  x or y

    Legal when the bounds say which integer is at least the other.
    Gain: one op and one operand fewer.
    """
    greater = _greater(n, m)
    return n if (greater is n) == (node.op is Op.MAX) else m


def _greater(n: UOp, m: UOp) -> UOp | None:
    if bounds_of(n)[0] >= bounds_of(m)[1]:
        return n
    return m if bounds_of(m)[0] >= bounds_of(n)[1] else None


@VALUE_RULES.rule(
    one_of(ASSOCIATIVE, one_of(ASSOCIATIVE, u, v), w),
    legal=lambda node, u: _is_associative(node, u.dtype),
)
def gather_constants(node: UOp, u: UOp, v: UOp, w: UOp) -> UOp:
    """(x op c) op d  ->  x op (c op d)

    Legal when op is associative: of integers that wrap and of bool all of these, of floats MAX and
    MIN, whose result does not depend on order.
    Gain: one op fewer.
    """
    return node.replace((u, fold_constants(node.op, node.dtype, v, w)))


def _is_associative(node: UOp, dtype: DType) -> bool:
    is_same = node.operands[0].op is node.op
    return is_same and (not dtype.is_float or node.op in (Op.MAX, Op.MIN))


@VALUE_RULES.rule(
    comparison(x, y) ^ b,
    legal=lambda node, x, b: b.value and _inverts(node, x),
)
def invert_comparison(node: UOp, x: UOp, y: UOp) -> UOp:
    """!(x < y)  ->  y <= x;  !(x == y)  ->  x != y

    Legal when x is no float, or the comparison asks for equality: !(nan < y) is true.
    Gain: one op fewer.
    """
    op = node.operands[0].op
    if op in (Op.EQ, Op.NE):
        return compare(INVERSE[op], x, y)
    return compare(INVERSE[op], y, x)


def _inverts(node: UOp, operand: UOp) -> bool:
    return not operand.dtype.is_float or node.operands[0].op in (Op.EQ, Op.NE)


# Casts.
@VALUE_RULES.rule(
    pattern_of(Op.CAST, x),
    legal=lambda node, x: node.dtype is x.dtype,
    before=("merge_casts",),
)
def drop_cast(x: UOp) -> UOp:
    """CAST(x)  ->  x

    Legal when x has the dtype already.
    Gain: one CAST fewer.
    """
    return x


@VALUE_RULES.rule(
    pattern_of(Op.CAST, pattern_of(Op.CAST, x)),
    legal=lambda node, x: _merges(x, node.operands[0].dtype, node.dtype),
)
def merge_casts(node: UOp, x: UOp) -> UOp:
    """CAST(CAST(x))  ->  CAST(x)

    Legal when the inner cast keeps every value x can have and the outer one does not ask how it was
    stored, or when both wrap integers to ever fewer bits. float32 to float16 and back rounds.
    Gain: one CAST fewer, two when the dtype is that of x.
    """
    return cast(x, node.dtype.scalar)


def _merges(x: UOp, inner: DType, outer: DType) -> bool:
    src, inner, outer = x.dtype.scalar, inner.scalar, outer.scalar
    if src.is_float:
        return inner.is_float and (src is inner or src.bits < inner.bits)
    if inner.is_float:
        return _floats_exactly(x, inner, outer)
    if inner is dtypes.bool:
        return src is dtypes.bool
    low, high = bounds_of(x)
    if inner.kind == "index" or (inner.min <= low and high <= inner.max):
        return True
    return outer.kind in ("int", "uint") and outer.bits <= inner.bits


def _floats_exactly(x: UOp, inner: DType, outer: DType) -> bool:
    """Whether every integer x can be is one of inner, and leaves it as the direct cast would.

    A direct cast to a half goes through float32, one from float64 does not; a float saturates where
    an integer wraps.
    """
    low, high = bounds_of(x)
    reach = 2 << MANTISSA_BITS[inner.name]
    if outer.is_narrow:
        reach = min(reach, 2 << MANTISSA_BITS["float32"])
    fits_outer = outer.min <= low and high <= outer.max
    exact = -reach <= low and high <= reach
    return exact and (outer is dtypes.bool or fits_outer)


# Choices.
@VALUE_RULES.rule(
    select(b, x, y),
    before=("drop_choice", "choose_again", "choose_condition"),
)
def choose_arm(b: UOp, x: UOp, y: UOp) -> UOp:
    """WHERE(constant, x, y)  ->  x or y

    Always legal: the other arm is never read.
    Gain: the op and the other arm.
    """
    return x if b.value else y


@VALUE_RULES.rule(
    select(p, x, x),
    before=("choose_again",),
)
def drop_choice(x: UOp) -> UOp:
    """WHERE(p, x, x)  ->  x

    Always legal: both arms are the identical node.
    Gain: the op and its condition.
    """
    return x


@VALUE_RULES.rule(
    select(p, b, constant("e", "bool")),
    legal=lambda b, e: b.value != e.value,
)
def choose_condition(p: UOp, b: UOp) -> UOp:
    """WHERE(p, true, false)  ->  p;  WHERE(p, false, true)  ->  !p

    Legal when the arms are the two constants.
    Gain: the op becomes cheaper or vanishes.
    """
    return p if b.value else p ^ True


@VALUE_RULES.rule(
    select(p, x, y),
    before=("choose_guarded",),
)
def choose_again(node: UOp, p: UOp, x: UOp, y: UOp) -> UOp:
    """WHERE(p, WHERE(p, x, _), WHERE(p, _, y))  ->  WHERE(p, x, y)

    Always legal: within an arm the condition is known.
    Gain: one or two ops fewer.
    """
    first = x.operands[1] if x.op is Op.WHERE and x.operands[0] is p else x
    second = y.operands[2] if y.op is Op.WHERE and y.operands[0] is p else y
    return where(p, first, second)


@VALUE_RULES.rule(
    select(p ^ b, x, y),
    legal=lambda b: b.value,
    before=("choose_guarded",),
)
def swap_arms(p: UOp, x: UOp, y: UOp) -> UOp:
    """WHERE(!p, x, y)  ->  WHERE(p, y, x)

    Legal when the condition is a negation.
    Gain: one op fewer.
    """
    return where(p, y, x)


@VALUE_RULES.rule(
    select(p, pattern_of(Op.LOAD, x, y, p), c),
    legal=lambda c: c.attrs.bits == 0,
)
def choose_guarded(node: UOp) -> UOp:
    """WHERE(p, LOAD(buffer, index, p), 0)  ->  LOAD(buffer, index, p)

    Legal when the constant has no bit set (not -0.0): a load gives that where its guard is false.
    Gain: one op fewer.
    """
    return node.operands[1]


# Guards.
@VALUE_RULES.rule(pattern_of(Op.LOAD, x, y, b))
def settle_load(node: UOp, b: UOp) -> UOp:
    """LOAD(buffer, index, true)  ->  LOAD(buffer, index);  with false  ->  0

    Always legal: this is what a guard means.
    Gain: the guard, or the whole load.
    """
    if b.value:
        return node.replace(node.operands[:2])
    return const(node.dtype, 0) if node.dtype.lanes == 1 else node


@VALUE_RULES.rule(
    pattern_of(Op.STORE, x, y, z, b),
    legal=lambda b: b.value,
)
def drop_store_guard(node: UOp) -> UOp:
    """STORE(buffer, index, value, true)  ->  STORE(buffer, index, value)

    Legal when the guard is true.
    Gain: the guard.
    """
    return node.replace(node.operands[:3])
