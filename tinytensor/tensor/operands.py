"""Turns the operands of an elementwise method into nodes of one dtype and one shape."""

from __future__ import annotations

from functools import cache, reduce

import numpy as np

from tinytensor.dtype import DType, dtypes, promote
from tinytensor.errors import DeviceError, DTypeError
from tinytensor.ops.size import Size, are_same
from tinytensor.ops.uop import Number, UOp, cast, const
from tinytensor.tensor.axes import broadcast_shapes
from tinytensor.tensor.base import TensorBase
from tinytensor.tensor.host import check_number, number_dtype
from tinytensor.tensor.nodes import broadcast, full

Operand = TensorBase | Number


def align(who: str, *operands: Operand, dtype: DType | None = None) -> list[UOp]:
    """Return the operands in their common dtype (or the one given) and their common shape.

    Raises: DTypeError, ShapeError, DeviceError.
    """
    tensors = [each for each in operands if isinstance(each, TensorBase)]
    check_devices(who, tensors)
    target = dtype or result_dtype(who, *operands)
    shape = tensors[0].uop.shape
    if any(each.uop.shape != shape for each in tensors):
        shape = broadcast_shapes(who, [each.uop.shape for each in tensors])
    return [broadcast(_in_dtype(each, target), shape) for each in operands]


def align_pair(who: str, x: TensorBase, y: Operand) -> tuple[UOp, UOp]:
    """Return two operands in their common dtype and shape; quick in the usual cases."""
    if isinstance(y, TensorBase):
        left, right = x.uop, y.uop
        if left.dtype is right.dtype and x.device == y.device:
            if are_same(left.shape, right.shape):
                return left, right
            if right.shape and are_same(left.shape[-len(right.shape) :], right.shape):
                return left, broadcast(right, left.shape)
    elif isinstance(y, (int, float, Size)):
        node, own = x.uop, number_dtype(y)
        target = _outrank(own, node.dtype)
        left = cast(node, target)
        return left, full(target, check_number(who, y, own), left.shape)
    left, right = align(who, x, y)
    return left, right


def align_tensors(who: str, *operands: TensorBase) -> list[UOp]:
    """Align operands none of which may be a number.

    Raises: DTypeError, ShapeError, DeviceError.
    """
    check_devices(who, list(operands))
    return align(who, *operands)


def check_devices(who: str, tensors: list[TensorBase]) -> None:
    """Raise DeviceError unless all tensors are on one device."""
    devices = [each.device for each in tensors]
    if devices.count(devices[0]) < len(devices):
        sentence = f"{who}: operands are on several devices: {', '.join(devices)}"
        raise DeviceError(f"{sentence}; they must share one. Use to(device).")


def is_number(value: object) -> bool:
    """Tell whether a value is a Python or NumPy number."""
    return isinstance(value, (bool, int, float, np.bool_, np.integer, np.floating, Size))


def result_dtype(who: str, *operands: Operand) -> DType:
    """Return the common dtype: tensors with axes first, then 0-d tensors, then numbers.

    A later rank decides only when its category (bool, integer, float) is higher.
    """
    ranks: list[list[DType]] = [[], [], []]
    for each in operands:
        if isinstance(each, TensorBase):
            node = each.uop
            ranks[2 if node.shape else 1].append(node.dtype)
        elif is_number(each):
            number = each.item() if isinstance(each, np.generic) else each
            ranks[0].append(number_dtype(number))
            check_number(who, number, ranks[0][-1])
        else:
            kind = type(each).__name__
            sentence = f"{who}: an operand is neither a Tensor nor a number: {kind}"
            raise DTypeError(f"{sentence}; it must be one of them. Use Tensor(...).")
    return reduce(_outrank, [reduce(promote, rank) for rank in ranks if rank])


@cache
def _outrank(lower: DType, higher: DType) -> DType:
    if higher.is_float or not (higher is dtypes.bool or lower.is_float):
        return higher
    return promote(lower, higher)


def _in_dtype(operand: Operand, dtype: DType) -> UOp:
    if isinstance(operand, TensorBase):
        return cast(operand.uop, dtype)
    number = operand.item() if isinstance(operand, np.generic) else operand
    return const(dtype, number)
