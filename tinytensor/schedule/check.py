"""Checks a recognized contraction by running it: as a contraction, and as the sum it came from."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tinytensor.dtype import dtypes
from tinytensor.errors import InternalError
from tinytensor.ops.attrs import Combine, ParamAttrs, RangeAttrs, ReduceAttrs
from tinytensor.ops.bounds import bounds_of
from tinytensor.ops.interpret import to_storage
from tinytensor.ops.interpret_indexed import run_kernel
from tinytensor.ops.kernel import Kernel, Param
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp, cast, substitute, walk

CLIPPED_EXTENT = 5


def check_contraction(kernel: Kernel) -> None:
    """Raise InternalError when a kernel's CONTRACT is not the sum of products it stands for.

    Both are run by the interpreter on small integers with every range clipped to 5, so that they
    must agree in every bit and no size is too large to check.
    """
    if kernel.contraction is None:
        return
    clipped = clip_ranges(kernel)
    plain = replace(clipped, sink=_written_out(clipped.sink), contraction=None)
    left, right = _run(clipped), _run(plain)
    for a, b in zip(left, right, strict=True):
        if not np.array_equal(a, b, equal_nan=True):
            raise InternalError(
                f"contraction: {kernel.name}: it differs from the sum of products it was "
                "recognized in."
            )


def clip_ranges(kernel: Kernel) -> Kernel:
    """Return the kernel with every range cut to its first 5 values, and its buffers likewise."""
    nodes = walk((kernel.sink,))
    short = {node: _shortened(node) for node in nodes if node.op is Op.RANGE}
    sink = substitute(kernel.sink, short)
    elements = _touched_elements(sink, len(kernel.params))
    params = [
        Param(param.dtype, size, param.written)
        for param, size in zip(kernel.params, elements, strict=True)
    ]
    whole = [node for node in walk((sink,)) if node.op is Op.PARAM]
    cut = {node: _resized(node, elements[node.attrs.number]) for node in whole}
    ranges = tuple([short.get(each, each) for each in kernel.ranges])
    return replace(kernel, sink=substitute(sink, cut), ranges=ranges, params=tuple(params))


def _shortened(node: UOp) -> UOp:
    extent = min(node.extent, CLIPPED_EXTENT)
    return UOp(Op.RANGE, dtypes.index, (), RangeAttrs(node.attrs.number, extent))


def _resized(param: UOp, elements: int) -> UOp:
    return UOp(Op.PARAM, param.dtype, (), ParamAttrs(param.attrs.number, elements))


def _touched_elements(sink: UOp, count: int) -> list[int]:
    elements = [1] * count
    for node in walk((sink,)):
        if node.op in (Op.LOAD, Op.STORE):
            number = node.operands[0].attrs.number
            last = int(bounds_of(node.operands[1])[1])
            elements[number] = max(elements[number], last + 1)
    return elements


def _written_out(sink: UOp) -> UOp:
    sums: dict[UOp, UOp] = {}
    for node in walk((sink,)):
        if node.op is Op.CONTRACT:
            a, b, *k = node.operands
            product = cast(a, node.dtype) * cast(b, node.dtype)
            sums[node] = UOp(Op.REDUCE, node.dtype, (product, *k), ReduceAttrs(Combine.ADD))
    return substitute(sink, sums)


def _run(kernel: Kernel) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    arrays = []
    for param in kernel.params:
        values = rng.integers(0 if param.dtype.kind in ("uint", "bool") else -2, 3, param.elements)
        arrays.append(to_storage(values.astype(param.dtype.value_numpy), param.dtype))
    run_kernel(kernel, arrays)
    return [array for array, param in zip(arrays, kernel.params, strict=True) if param.written]
