"""Turns a product of float32 into three of TF32 that are nearly as exact together.

A float32 is the sum of two TF32, `high` and `low`, but for a part in 2**22. So x * y is nearly
high * high + low * high + high * low, each of them exact in float32. (Ootomo and Yokota,
arXiv:2203.03341.)
"""

from __future__ import annotations

from dataclasses import replace

from tinytensor.codegen.legalize_casts import INFINITY, MAGNITUDE
from tinytensor.codegen.plans.block_operand import describe
from tinytensor.codegen.plans.block_product import ProductFacts
from tinytensor.dtype import dtypes
from tinytensor.ops.op import Op
from tinytensor.ops.uop import (
    UOp,
    binary,
    bitcast,
    compare,
    const,
    fresh_number,
    index_const,
    make_range,
    walk,
    where,
)

# Sums of matrix instructions are truncated, so their error grows as they do. With k = 4096, of
# three products each, they are off by 5.9e-7, 8.0e-7, 1.2e-6, 2.2e-6, 4.0e-6 and 2.9e-5 if promoted
# after 32, 64, 128, 256, 512 or all values (hand-written prototype, H200, 2026-11-29).
PROMOTED_AFTER = 64
KEPT_BITS = 0xFFFFE000  # sign, exponent and 10 bits of the fraction
HALF_OF_LAST = 0x1000


def in_halves(facts: ProductFacts) -> ProductFacts:
    """Return the product of TF32 that stands for one of float32."""
    flat = facts.flat
    nodes = walk((flat.a, flat.b, *flat.stores))
    half = make_range(fresh_number(nodes), 2)
    a, b = [_half_of(value, half) for value in (flat.a, flat.b)]
    return replace(
        facts,
        flat=replace(flat, a=a, b=b, half=half),
        a=describe(a, flat.m, flat.k, facts.stored, is_open=False),
        b=describe(b, flat.n, flat.k, facts.stored, is_open=False),
        promoted_after=PROMOTED_AFTER,
    )


def _half_of(x: UOp, half: UOp) -> UOp:
    """Return the high part of a float32 where half is 0, and the low one where it is 1."""
    high = _high(x)
    return where(compare(Op.EQ, half, index_const(0)), high, _low(x, high))


def _high(x: UOp) -> UOp:
    """Round to TF32, to nearest; infinities, NaN and what would become one are cut off."""
    bits = bitcast(x, dtypes.uint32)
    rounded = bits + HALF_OF_LAST
    is_beyond = compare(Op.EQ, binary(Op.AND, rounded, INFINITY), INFINITY)
    return bitcast(binary(Op.AND, where(is_beyond, bits, rounded), KEPT_BITS), dtypes.float32)


def _low(x: UOp, high: UOp) -> UOp:
    """Return what is left, exactly; the engine rounds it to TF32 when it copies it."""
    size = binary(Op.AND, bitcast(x, dtypes.uint32), MAGNITUDE)
    is_infinite = compare(Op.EQ, size, INFINITY)
    return where(is_infinite, const(dtypes.float32, 0.0), x - high)
