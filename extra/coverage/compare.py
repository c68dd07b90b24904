"""Decides whether a result is PyTorch's: dtype, shape, values in a bound, or the same refusal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from extra.coverage.record import FLOATS, Result, Tolerance
from tinytensor import Tensor, dtypes

REFUSALS = (RuntimeError, TypeError, ValueError, IndexError, AssertionError)
LEAST_NORMAL = {"float16": -14, "bfloat16": -126, "float32": -126, "float64": -1022}
MANTISSA = {"float16": 10, "bfloat16": 7, "float32": 23, "float64": 52}


@dataclass(frozen=True)
class Oracle:
    """What PyTorch gives in the operands' own dtype, in float64, and of the magnitudes there.

    `error` is the relative error of what it gives in float64. The class of its error counts only
    where it `is_refusal_typed`: PyTorch complains of an axis before it looks at shapes.
    """

    own: Result
    wide: Result = None
    magnitudes: Result = None
    error: float = 0.0
    is_refusal_typed: bool = True


def outcome(call: Callable[[], Any]) -> Result:
    """Return what a call gives: a result, or the error that refuses it."""
    try:
        return call()
    except REFUSALS as error:
        return error


def is_unsupported(error: Result) -> bool:
    """Tell whether PyTorch has no kernel for a dtype, though the operator takes its kind."""
    is_told = any([each in str(error) for each in ("not implemented for", "does not support bool")])
    return isinstance(error, NotImplementedError) or (isinstance(error, Exception) and is_told)


def tensors_in(result: Result) -> list[Tensor]:
    """Return the Tensors of a result."""
    if isinstance(result, Tensor):
        return [result]
    listed = result if isinstance(result, (tuple, list)) else []
    return [each for each in listed if isinstance(each, Tensor)]


def difference(ours: Result, oracle: Oracle, tolerance: Tolerance) -> str:
    """Say how a result differs from PyTorch's; nothing if it does not."""
    own = oracle.own
    if isinstance(own, Exception):
        if not isinstance(ours, Exception):
            return f"PyTorch refuses ({first_line(own)})"
        is_same = isinstance(ours, type(own)) or is_unsupported(own) or not oracle.is_refusal_typed
        return "" if is_same else f"raises {ours!r}, PyTorch {first_line(own)}"
    if isinstance(ours, Exception):
        return f"raises {first_line(ours)}"
    if isinstance(own, (tuple, list)):
        return difference_of_several(ours, oracle, tolerance)
    if not hasattr(own, "dtype"):
        return "" if ours == own else f"gives {ours!r}, PyTorch {own!r}"
    name = str(own.dtype).removeprefix("torch.")
    if (ours.dtype.name, tuple(ours.shape)) != (name, tuple(own.shape)):
        return f"is {ours.dtype.name}{ours.shape}, PyTorch's {name}{tuple(own.shape)}"
    return difference_of_values(ours, oracle, tolerance)


def difference_of_several(ours: Result, oracle: Oracle, tolerance: Tolerance) -> str:
    """Compare the results of an operator that gives several."""
    if len(ours) != len(oracle.own):
        return f"gives {len(ours)} results, PyTorch {len(oracle.own)}"
    for number, own in enumerate(oracle.own):
        parts = [part_of(each, number) for each in (oracle.wide, oracle.magnitudes)]
        found = difference(ours[number], Oracle(own, *parts, oracle.error), tolerance)
        if found:
            return f"result {number} {found}"
    return ""


def part_of(result: Result, number: int) -> Result:
    """Return one of several results; None of None."""
    return None if result is None else result[number]


def difference_of_values(ours: Tensor, oracle: Oracle, tolerance: Tolerance) -> str:
    """Compare elements: bits, or floats within the bound."""
    result = outcome(ours.detach().numpy)
    if isinstance(result, Exception):
        return f"raises {first_line(result)}"
    wide = result.astype(np.float64) if ours.dtype.is_float else result
    is_bounded = ours.dtype.is_float and tolerance.roundings > 0 and oracle.wide is not None
    reference = as_array(oracle.wide if is_bounded else oracle.own)
    good = wide == reference
    if is_bounded:
        with np.errstate(invalid="ignore"):
            distance = np.abs(wide - reference)
        good |= distance <= bound_of(ours, reference, oracle, tolerance)
    if ours.dtype.is_float:
        good |= np.isnan(wide) & np.isnan(reference)
        good |= overflows(ours, wide, reference)
        if not is_bounded and tolerance.signs:
            good &= (np.signbit(wide) == np.signbit(reference)) | np.isnan(wide)
    if good.all():
        return ""
    place = tuple([int(each) for each in np.argwhere(~good)[0]])
    return f"at {place} is {wide[place]!r}, PyTorch's {reference[place]!r}"


def bound_of(ours: Tensor, reference: np.ndarray, oracle: Oracle, tolerance: Tolerance) -> Result:
    """Return how far each element may be from PyTorch's in float64."""
    computing = dtypes.float32 if ours.dtype.is_half else ours.dtype
    sides = 2 if ours.dtype is dtypes.float64 else 1  # then PyTorch rounds just as often
    count = sides * (tolerance.roundings + tolerance.terms)
    size = np.where(np.isfinite(reference), np.abs(reference), 0)
    scale = size
    if tolerance.scale == "magnitudes" and oracle.magnitudes is not None:
        scale = np.maximum(size, np.abs(as_array(oracle.magnitudes)))
    elif tolerance.scale == "largest":
        scale = np.maximum(size.max(initial=0), 1)
    bound = count * computing.epsilon / 2 * scale + oracle.error * scale
    if ours.dtype.is_half:
        bound = bound + tolerance.half_roundings * ours.dtype.epsilon / 2 * scale
        bound = bound + ours.dtype.epsilon / 2 * (size + bound)
    name = ours.dtype.name
    return bound + 2.0 ** (LEAST_NORMAL[name] - MANTISSA[name])


def overflows(ours: Tensor, wide: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """Tell where an infinity stands for a number that the dtype cannot hold."""
    largest = 2.0 ** (1 - LEAST_NORMAL[ours.dtype.name]) * (2 - ours.dtype.epsilon)
    is_beyond = (np.abs(reference) >= largest) & (np.sign(wide) == np.sign(reference))
    return np.isinf(wide) & is_beyond


def as_array(tensor: Result) -> np.ndarray:
    """Return PyTorch's values; floats in float64."""
    bare = tensor.detach()
    name = str(bare.dtype).removeprefix("torch.")
    return (bare.double() if name in FLOATS else bare).numpy(force=True)


def first_line(error: Exception) -> str:
    """Return the kind of an error and the first line of its sentence."""
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:160]
