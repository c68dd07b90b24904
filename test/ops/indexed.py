"""Builds INDEXED kernels by hand: buffers, loads, stores, folds, and the Kernel around a sink."""

from tinytensor.dtype import dtypes
from tinytensor.ops.attrs import ContractAttrs, ParamAttrs, ReduceAttrs
from tinytensor.ops.kernel import Contraction, Kernel, Param
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp


def param(number, dtype, elements):
    return UOp(Op.PARAM, dtype, (), ParamAttrs(number, elements))


def load(buffer, index, *guard):
    return UOp(Op.LOAD, buffer.dtype, (buffer, index, *guard))


def store(buffer, index, value, *guard):
    return UOp(Op.STORE, dtypes.void, (buffer, index, value, *guard))


def sink(*stores):
    return UOp(Op.SINK, dtypes.void, stores)


def reduce(combine, x, *ranges, dtype=None):
    return UOp(Op.REDUCE, dtype or x.dtype, (x, *ranges), ReduceAttrs(combine))


def contract(a, b, batch, m, n, k, accumulate=dtypes.float32):
    numbers = [tuple(each.attrs.number for each in ranges) for ranges in (batch, m, n, k)]
    return UOp(Op.CONTRACT, accumulate, (a, b, *k), ContractAttrs(*numbers, accumulate))


def facts(node, batch, m, n, k):
    a, b = node.operands[:2]
    return Contraction(node, batch, m, n, k)


def kernel(sink, ranges, *buffers, written=(0,), contraction=None):
    params = tuple(
        Param(each.dtype, each.attrs.elements, number in written)
        for number, each in enumerate(buffers)
    )
    return Kernel("sample", sink, tuple(ranges), params, contraction, dtypes.int32)
