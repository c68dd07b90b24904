"""Gives a kernel of many instances the extent of one: then it is a kernel like all others.

An instanced kernel does the same to many sets of buffers. Its one range, and the params that have
an element for each of its values, are as long as the instance that runs; until that is known they
have the length that none exceeds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from tinytensor.dtype import DType
from tinytensor.ops.attrs import ExtentAttrs
from tinytensor.ops.kernel import Kernel, Param
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp, make_param, make_range, substitute, walk

MOST_ELEMENTS = 2**30  # what lies beyond the last element still has an int32 index
Value = TypeVar("Value")


def split(values: Sequence[Value], extents: Sequence[int]) -> Iterator[Sequence[Value]]:
    """Give the part of each instance of what all have one after the other."""
    count = len(values) // max(1, len(extents))
    return (values[at : at + count] for at in range(0, len(values), count))


def extent_of(dtype: DType) -> UOp:
    """Return the extent of the instance that runs, for the LINEAR form."""
    return UOp(Op.EXTENT, dtype, (), ExtentAttrs(MOST_ELEMENTS))


def at_extent(kernel: Kernel, extent: int) -> Kernel:
    """Return the kernel of one instance."""
    (range_,) = kernel.ranges
    known = make_range(range_.attrs.number, extent)
    places = {range_: known, **params_at(walk((kernel.sink,)), extent)}
    return replace(
        kernel,
        sink=substitute(kernel.sink, places),
        ranges=(known,),
        params=tuple([param_at(each, extent) for each in kernel.params]),
        instanced=False,
    )


def params_at(nodes: Sequence[UOp], extent: int) -> dict[UOp, UOp]:
    """Return what replaces the PARAMs of an instanced kernel in one instance."""
    return {
        node: make_param(node.dtype, node.attrs.number, extent)
        for node in nodes
        if node.op is Op.PARAM and node.attrs.elements == MOST_ELEMENTS
    }


def param_at(param: Param, extent: int) -> Param:
    """Return a param of one instance."""
    return replace(param, elements=extent) if param.elements == MOST_ELEMENTS else param
