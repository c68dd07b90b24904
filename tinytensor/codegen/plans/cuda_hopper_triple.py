"""Turns a product of float32 into one of TF32 that is three times as long and nearly as exact.

A float32 is the sum of two TF32, `high` and `low`, but for a part in 2**22. So x * y is nearly
high * high + low * high + high * low, each of them exact in float32: along the longer k the factors
are `high low high` and `high high low`. (Ootomo and Yokota, arXiv:2203.03341.)
"""

from __future__ import annotations

from dataclasses import replace

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
    make_range,
    substitute,
    walk,
    where,
)

PIECES = 3  # of the longer k
LOW_IN = (1, 2)  # the piece in which factor a is low, and b
# Sums of matrix instructions are truncated, which an error of 1 in 2**24 does not allow for long:
# of k = 4096 promoted after 1, 2, 4, 8, 16 or no blocks of 32 values, they are off by 5.9e-7,
# 8.0e-7, 1.2e-6, 2.2e-6, 4.0e-6 and 2.9e-5 (hand-written prototype, H200, 2026-11-29).
PROMOTED_AFTER = 128
KEPT_BITS = 0xFFFFE000  # sign, exponent and 10 bits of the fraction
HALF_OF_LAST = 0x1000
EXPONENT = 0x7F800000
NOT_SIGN = 0x7FFFFFFF


def tripled(facts: ProductFacts) -> ProductFacts:
    """Return the product of TF32 that stands for one of float32 whose k has a fixed extent."""
    flat = facts.flat
    numbers = [
        each.attrs.number for each in walk((flat.a, flat.b, *flat.stores)) if each.op is Op.RANGE
    ]
    k = make_range(1 + max(numbers), PIECES * flat.k.extent)
    a, b = [
        _pieces(value, flat.k, k, low_in)
        for value, low_in in zip((flat.a, flat.b), LOW_IN, strict=True)
    ]
    return replace(
        facts,
        flat=replace(flat, a=a, b=b, k=k),
        a=describe(a, flat.m, k, facts.stored, is_open=False),
        b=describe(b, flat.n, k, facts.stored, is_open=False),
        promoted_after=PROMOTED_AFTER,
    )


def _pieces(value: UOp, k: UOp, longer: UOp, low_in: int) -> UOp:
    """Return a factor along the longer k."""
    extent = k.extent
    here = substitute(value, {k: binary(Op.MOD, longer, extent)})
    piece = binary(Op.FLOORDIV, longer, extent)
    high = _high(here)
    return where(compare(Op.EQ, piece, low_in), _low(here, high), high)


def _high(x: UOp) -> UOp:
    """Round to TF32, to nearest; infinities, NaN and what would become one are cut off."""
    bits = bitcast(x, dtypes.uint32)
    rounded = bits + HALF_OF_LAST
    exponent = const(dtypes.uint32, EXPONENT)
    is_beyond = compare(Op.EQ, binary(Op.AND, rounded, exponent), exponent)
    return bitcast(binary(Op.AND, where(is_beyond, bits, rounded), KEPT_BITS), dtypes.float32)


def _low(x: UOp, high: UOp) -> UOp:
    """Return what is left, exactly; the engine rounds it to TF32 when it copies it."""
    size = binary(Op.AND, bitcast(x, dtypes.uint32), NOT_SIGN)
    is_infinite = compare(Op.EQ, size, EXPONENT)
    return where(is_infinite, const(dtypes.float32, 0.0), x - high)
