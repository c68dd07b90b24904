"""Turns Python numbers and nested lists into checked and stored values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tinytensor.dtype import DType, dtypes, round_to_bfloat16
from tinytensor.errors import DTypeError, ShapeError
from tinytensor.ops.interpret import to_storage
from tinytensor.ops.size import Size
from tinytensor.ops.uop import Number

Array = npt.NDArray[Any]  # Any: the dtype is a run-time value here


def number_dtype(value: Number) -> DType:
    """Return the dtype that a number has on its own, which NumPy's number has as Python's."""
    if isinstance(value, (bool, np.bool_)):
        return dtypes.bool
    return dtypes.int64 if isinstance(value, (int, np.integer, Size)) else dtypes.float32


def check_number(who: str, value: Number, dtype: DType) -> Number:
    """Return the value, which the dtype can hold (floats round, and may overflow to inf).

    Raises: DTypeError.
    """
    if isinstance(value, Size):
        return value
    if not dtype.is_int:
        return _as_float(value) if dtype.is_float else value
    whole = int(value) if isinstance(value, int) or math.isfinite(value) else None
    if whole is None or not dtype.min <= whole <= dtype.max:
        sentence = f"{who}: the value does not fit the dtype: {value} in {dtype.name}"
        raise DTypeError(f"{sentence}; it must be in {dtype.min} .. {dtype.max}.")
    return whole


def _as_float(value: Number) -> float:
    """Return a number as a float; an integer beyond all floats as an infinity."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def nested_values(sequence: Sequence[Any], dtype: DType | None) -> tuple[Array, DType]:
    """Return the stored values of nested lists, and their dtype.

    Raises: ShapeError for ragged lists, DTypeError for what is no number or does not fit.
    """
    try:
        values = np.array(sequence)
    except ValueError as error:
        sentence = "tensor: nested lists are ragged: lengths differ at one depth"
        raise ShapeError(f"{sentence}; they must be equal.") from error
    if values.dtype.kind not in "biuf":
        sentence = f"tensor: an element is no number: NumPy reads the lists as {values.dtype}"
        raise DTypeError(f"{sentence}; all must be bool, int or float. Use stack for tensors.")
    found = {"b": dtypes.bool, "f": dtypes.float32}.get(values.dtype.kind, dtypes.int64)
    chosen = dtype or found
    for extreme in (values.min(), values.max()) if values.size else ():
        check_number("tensor", extreme.item(), chosen)
    return stored(values, chosen), chosen


def stored(values: Array, dtype: DType) -> Array:
    """Return values that fit a dtype as memory holds them."""
    if dtype.is_float and dtype.bits == 8:
        return to_storage(values, dtype)
    with np.errstate(over="ignore"):
        converted = values.astype(dtype.value_numpy)
    if dtype is dtypes.bfloat16:
        converted = round_to_bfloat16(converted)
    return to_storage(converted, dtype)
