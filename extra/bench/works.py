"""Lists the works that the engines are compared on: formula, inputs, cost, reference in float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from extra.bench.engines import EPSILON, Array, Engine, Formula, HostArray
from tinytensor.selfcheck import (
    HALF_ULP,
    Reference,
    gram_reference,
    linear_reference,
    product_reference,
    sum_error,
)

FUNCTION_ULP = 4  # what a library's exp may be off by: NumPy's is 2.3
LEAST = 2.0**-126  # engines may flush what is smaller

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Work:
    """One thing to compute.

    `flops` counts operations as the formula has them, whatever an engine spares itself;
    `bytes_moved` counts inputs and outputs once.
    """

    name: str
    formula: Formula
    dtype: str
    shapes: tuple[Shape, ...]
    flops: int
    bytes_moved: int
    refer: Callable[..., Reference]

    def inputs(self, seed: int) -> list[HostArray]:
        """Make operands from the normal distribution."""
        random = np.random.default_rng(seed)
        return [random.standard_normal(shape).astype(self.dtype) for shape in self.shapes]

    def reference(self, inputs: Sequence[HostArray]) -> Reference:
        """Compute the result in float64."""
        return self.refer(*[each.astype(np.float64) for each in inputs])


# The formulas, in the functions of an engine.
def gram(engine: Engine, x: Array) -> Array:
    """Multiply by the own transpose, add, clip: the project's second line."""
    return engine.relu(engine.matmul(x, x.T) + 1.0)


def linear(engine: Engine, x: Array, weight: Array, b: Array) -> Array:
    """Multiply, round, add a bias: the project's first line."""
    return engine.matmul(x, weight.T) + b


def product(engine: Engine, a: Array, b: Array) -> Array:
    """Multiply two matrices."""
    return engine.matmul(a, b)


def shift(engine: Engine, x: Array) -> Array:
    """Add and clip."""
    return engine.relu(x + 1.0)


def softmax(engine: Engine, x: Array) -> Array:
    """Take the softmax of each row."""
    return engine.softmax(x)


def normalize(engine: Engine, x: Array) -> Array:
    """Normalize each row and clip."""
    return engine.relu(engine.layer_norm(x))


def total(engine: Engine, x: Array) -> Array:
    """Add all elements."""
    return engine.total(x)


# The references, each with the bound of a right float32 result. relu brings no two values further
# apart, so its operand's bound is its own.
def _shift(x: HostArray) -> Reference:
    return Reference(np.maximum(x + 1, 0), HALF_ULP * np.abs(x + 1))


def _softmax(x: HostArray) -> Reference:
    lowered = x - x.max(1, keepdims=True)
    weights = np.exp(lowered)
    values = weights / weights.sum(1, keepdims=True)
    power = HALF_ULP * (2 * FUNCTION_ULP - lowered)  # relative: the function's, its operand's
    whole = power.max(1, keepdims=True) + sum_error(x.shape[1], np.ones(1))
    return Reference(values, values * (power + whole + 3 * HALF_ULP) + LEAST)


def _normalize(x: HostArray) -> Reference:
    count = x.shape[1]
    mean = _row_mean(x)
    centered = x - mean
    distance = np.abs(centered)
    variance = _row_mean(centered**2) + EPSILON
    deviation = np.sqrt(variance)
    moved = sum_error(count, _row_mean(np.abs(x))) + HALF_ULP * distance
    # A variance may also come as the mean of squares less the squared mean.
    squares = sum_error(count, _row_mean(x**2) + mean**2)
    spread = squares + 2 * _row_mean(moved * distance)
    relative = spread / (2 * variance) + 4 * HALF_ULP
    bounds = (moved + distance * relative) / deviation
    return Reference(np.maximum(centered / deviation, 0), bounds)


def _row_mean(x: HostArray) -> HostArray:
    mean: HostArray = x.mean(1, keepdims=True)
    return mean


def _total(x: HostArray) -> Reference:
    return Reference(x.sum(), sum_error(x.size, np.abs(x).sum()))


# The works.
def gram_of(n: int, name: str = "") -> Work:
    """The project's second line, on a square matrix."""
    flops = 2 * n**3 + 2 * n**2
    return Work(name or f"gram-{n}", gram, "float32", ((n, n),), flops, 8 * n**2, gram_reference)


def linear_of(m: int, n: int, k: int) -> Work:
    """The project's first line."""
    shapes = ((m, k), (n, k), (n,))
    flops = 2 * m * n * k + m * n
    moved = 2 * (m * k + n * k + n + m * n)
    return Work(f"linear-{m}x{n}x{k}", linear, "float16", shapes, flops, moved, linear_reference)


def product_of(n: int) -> Work:
    """A plain product of square matrices."""
    shapes = ((n, n), (n, n))
    return Work(f"matmul-{n}", product, "float32", shapes, 2 * n**3, 12 * n**2, product_reference)


def rowwise(
    name: str, formula: Formula, shape: tuple[int, int], ops: int, refer: Callable[..., Reference]
) -> Work:
    """A work with as many results as elements, and `ops` operations for each."""
    size = shape[0] * shape[1]
    label = f"{name}-{shape[0]}x{shape[1]}"
    return Work(label, formula, "float32", (shape,), ops * size, 8 * size, refer)


def total_of(size: int) -> Work:
    """A sum of everything."""
    return Work(f"sum-{size}", total, "float32", ((size,),), size, 4 * size, _total)


WORKS = (
    gram_of(4, "overhead"),  # almost no arithmetic: the time to build, find and launch
    gram_of(64),
    gram_of(512),
    gram_of(1024),
    linear_of(1024, 1024, 768),
    product_of(512),
    product_of(1024),
    rowwise("relu", shift, (512, 512), 2, _shift),
    rowwise("relu", shift, (1024, 1024), 2, _shift),
    rowwise("relu", shift, (2048, 2048), 2, _shift),
    rowwise("softmax", softmax, (256, 1024), 5, _softmax),
    rowwise("softmax", softmax, (1024, 1024), 5, _softmax),
    rowwise("layernorm", normalize, (1024, 1024), 7, _normalize),
    total_of(2**24),
)


def find_works(names: Sequence[str]) -> list[Work]:
    """Find works by name, or all of a kind: `gram` means every `gram-...`; all for no names.

    Raises: ValueError for a name that fits none.
    """
    for name in names:
        if not any(_fits(work, name) for work in WORKS):
            known = ", ".join(work.name for work in WORKS)
            raise ValueError(f"bench: no such work: {name!r}; must be one of {known}.")
    return [work for work in WORKS if not names or any(_fits(work, name) for name in names)]


def _fits(work: Work, name: str) -> bool:
    return work.name == name or work.name.startswith(name + "-")
