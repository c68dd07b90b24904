"""Turns a node into the few words by which decisions speak of it."""

from __future__ import annotations

from tinytensor.dtype import DType
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp

_SHORT = {"float": "f", "int": "i", "uint": "u"}


def short_dtype(dtype: DType) -> str:
    """Return a dtype's short name: f16, bf16, i64, bool.

    >>> from tinytensor.dtype import dtypes
    >>> short_dtype(dtypes.bfloat16)
    'bf16'
    """
    if dtype.name == "bfloat16":
        return "bf16"
    return f"{_SHORT[dtype.kind]}{dtype.bits}" if dtype.kind in _SHORT else dtype.name


def describe(node: UOp) -> str:
    """Return an op, its dtype and its shape, as in `add f16[1024,1024]`."""
    name = node.op.name.lower()
    if node.op is Op.REDUCE:
        name = f"reduce[{node.attrs.combine.value}]"
    shape = ",".join(str(extent) for extent in node.shape)
    return f"{name} {short_dtype(node.dtype)}[{shape}]"
