"""Turns a CHECK into a probe, one number that tells whether it holds, and reads that number."""

from __future__ import annotations

import math

from tinytensor.dtype import decode, dtypes
from tinytensor.ops.attrs import CheckAttrs, Combine, ReduceAttrs, ShapeAttrs
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp, cast, const


def probe_of(check: UOp) -> UOp | None:
    """Return the probe of a CHECK, a value of one element; None when nothing is checked.

    It is the maximum of x - least as unsigned numbers, which makes what is below least the largest.
    """
    x, least = check.operands[0], check.attrs.least
    if math.prod(x.shape) == 0:
        return None
    if least:
        lowest = UOp(Op.RESHAPE, x.dtype, (const(x.dtype, least),), ShapeAttrs((1,) * len(x.shape)))
        x = UOp(Op.SUB, x.dtype, (x, UOp(Op.EXPAND, x.dtype, (lowest,), ShapeAttrs(x.shape))))
    probe = cast(x, dtypes.uint64)
    if x.shape:
        attrs = ReduceAttrs(Combine.MAX, tuple(range(len(x.shape))))
        probe = UOp(Op.REDUCE, probe.dtype, (probe,), attrs)
    return probe


def complaint(attrs: CheckAttrs, probed: int) -> str | None:
    """Return what is wrong with the indices of a CHECK by the number probed, if anything is."""
    extent = attrs.end
    if probed < extent - attrs.least:
        return None
    index = decode(dtypes.int64, (probed + attrs.least) % 2**64)
    sentence = f"{attrs.who}: an index is out of range: {index} on axis {attrs.axis}"
    return f"{sentence} of extent {extent}; it must be in {attrs.least} .. {extent - 1}."
