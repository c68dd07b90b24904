"""Makes the same values as a tensor of each library, in several layouts."""

from __future__ import annotations

import math
import zlib
from typing import Any

import numpy as np

from extra.coverage.record import FLOATS, Library, Operand, Shape
from tinytensor import Tensor, dtypes

SPECIAL = [0.0, -0.0, 1.0, -2.5, 3.25, math.inf, -math.inf, math.nan, 1e-3, -0.7, 0.5, 2.5]
LAYOUTS = ("transposed", "strided", "expanded")
RANGES = {
    "any": (-3.0, 3.0),
    "positive": (0.2, 3.0),
    "unit": (-0.95, 0.95),
    "share": (0.05, 0.95),
    "above1": (1.05, 4.0),
    "wide": (-20.0, 20.0),
    "small": (-0.5, 0.5),
}


def values_of(operand: Operand, dtype: str, seed: str) -> np.ndarray:
    """Return values of an operand, in float64 or int64 (or bool), that its dtype can hold."""
    rng = np.random.default_rng(zlib.crc32(f"{seed} {operand}".encode()))
    kind, shape = operand.values, operand.shape
    if kind.startswith("below"):
        return rng.integers(0, int(kind.removeprefix("below")), shape)
    if kind == "distinct":
        count = math.prod(shape)
        order = rng.permutation(count).reshape(shape)
        return order / 4 - count // 8 if dtype in FLOATS else order
    if kind == "ties":
        return rng.choice([-1.0, 0.0, 2.0] if dtype in FLOATS else [0, 1, 2], shape)
    if kind == "special":
        return np.resize(SPECIAL if dtype in FLOATS else np.arange(12), shape)
    if kind == "finite":
        finite = np.nan_to_num(SPECIAL, nan=4.0, posinf=7.5, neginf=-7.5)
        return np.resize(finite if dtype in FLOATS else np.arange(12), shape)
    if dtype == "bool":
        return rng.random(shape) < 0.5
    if dtype in FLOATS:
        return float_values(rng, kind, shape)
    least = 1 if kind in ("positive", "nonzero", "share", "above1") else 0
    values = rng.integers(least, 6, shape)
    signed = kind not in ("positive", "share", "above1") and dtype != "uint8"
    return values * rng.choice([-1, 1], shape) if signed else values


def float_values(rng: np.random.Generator, kind: str, shape: Shape) -> np.ndarray:
    """Return floats of a kind, some of them equal to those of other kinds at simple numbers."""
    if kind == "nonzero":
        return rng.uniform(0.25, 3, shape) * rng.choice([-1, 1], shape)
    return rng.uniform(*RANGES[kind], shape)


def laid_out(values: np.ndarray, layout: str) -> tuple[np.ndarray, Any]:
    """Return stored values and the view of them, for either library, that gives the operand.

    An expanded operand repeats the first row.
    """
    if layout == "transposed":
        order = tuple(reversed(range(values.ndim)))
        return np.ascontiguousarray(values.transpose(order)), lambda x: x.permute(order)
    if layout == "strided":
        stored = np.repeat(values, 2, -1)
        return stored, lambda x: x[..., ::2]
    if layout == "expanded":
        return values[:1], lambda x: x.expand(values.shape)
    return values, lambda x: x


def pair_of(
    values: np.ndarray, library: Library, dtype: str, narrow: str = "", is_leaf: bool = False
) -> tuple[Any, Any]:
    """Return a Tensor and PyTorch's tensor of the same values, which a narrow dtype can hold."""
    narrowed = library.tensor(values).to(getattr(library, narrow or dtype))
    theirs = narrowed.to(getattr(library, dtype))
    stored = theirs.float() if dtype == "bfloat16" else theirs
    ours = Tensor(stored.numpy(), dtype=getattr(dtypes, dtype), requires_grad=is_leaf)
    return ours, theirs.requires_grad_(is_leaf)
