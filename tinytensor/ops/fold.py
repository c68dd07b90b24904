"""Turns an array into its fold over some axes: the meaning of every Combine, with its edges."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tinytensor.dtype import DType, dtypes
from tinytensor.ops.attrs import Combine
from tinytensor.ops.interpret import Array, round_to

Axes = tuple[int, ...]
Position = Callable[..., Array]

UFUNCS = {
    Combine.ADD: np.add,
    Combine.MUL: np.multiply,
    Combine.MAX: np.maximum,
    Combine.MIN: np.minimum,
    Combine.AND: np.bitwise_and,
    Combine.OR: np.bitwise_or,
}
# NumPy gives the first NaN where there is one, else the first extreme.
POSITIONS: dict[Combine, Position] = {Combine.ARGMAX: np.argmax, Combine.ARGMIN: np.argmin}
OF_BOOLS = {
    Combine.ADD: Combine.OR,
    Combine.MUL: Combine.AND,
    Combine.MAX: Combine.OR,
    Combine.MIN: Combine.AND,
}


def fold(combine: Combine, values: Array, axes: Axes, dtype: DType) -> Array:
    """Fold over axes, which stay with extent 1; `dtype` is the accumulator and the result.

    Float sums and products run in NumPy's pairwise order (halves in float32, rounded once at the
    end): reassociated ops promise no order. Nothing folded gives the identity: 0 for a sum, 1 for a
    product, the least value for a maximum, the greatest for a minimum, position 0 for argmax.
    """
    if combine in POSITIONS:
        return _find_position(POSITIONS[combine], values, axes)
    if dtype is dtypes.bool:
        combine = OF_BOOLS.get(combine, combine)
    if dtype.is_narrow:
        return round_to(_accumulate(combine, values.astype(np.float32), axes), dtype)
    return _accumulate(combine, values, axes)


def _accumulate(combine: Combine, values: Array, axes: Axes) -> Array:
    kind = values.dtype
    initial = _identity(combine, kind)
    with np.errstate(all="ignore"):
        ufunc = UFUNCS[combine]
        result = np.asarray(ufunc.reduce(values, axes, kind, keepdims=True, initial=initial))
    if combine in (Combine.MAX, Combine.MIN) and kind.kind == "f" and np.any(result == 0):
        zeros = _choose_zeros(combine, values, axes)
        return np.where(result == 0, zeros.astype(kind), result)
    return result


def _identity(combine: Combine, kind: np.dtype[np.generic]) -> int | float:
    if combine in (Combine.MAX, Combine.MIN):
        sign = -1 if combine is Combine.MAX else 1
        if kind.kind == "f":
            return sign * math.inf
        limits = np.iinfo(kind.name)
        return limits.min if sign < 0 else limits.max
    if combine is Combine.AND:
        return 1 if kind.kind == "b" else int(~np.zeros((), kind))
    return int(combine is Combine.MUL)


def _choose_zeros(combine: Combine, values: Array, axes: Axes) -> Array:
    """Return which zero wins where the extreme is one: -0.0 is below 0.0."""
    is_maximum = combine is Combine.MAX
    winners = (values == 0) & (np.signbit(values) != is_maximum)
    found = np.any(winners, axes, keepdims=True)
    return np.where(found == is_maximum, 0.0, -0.0)


def _find_position(function: Position, values: Array, axes: Axes) -> Array:
    (axis,) = axes
    if values.size == 0:
        shape = (*values.shape[:axis], 1, *values.shape[axis + 1 :])
        return np.zeros(shape, np.int64)
    return np.asarray(function(values, axis, keepdims=True), np.int64)
