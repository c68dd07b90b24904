"""Runs the project's two lines on a device and compares them with NumPy.

Twice each: on normal numbers against float64, within a derived bound; and on integers, whose sums
are exact in any order, against the roundings that the line spells out, bit for bit.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt

from tinytensor.records import dataclass
from tinytensor.report import Planned, capture, work_of
from tinytensor.runtime.device import Device
from tinytensor.tensor.tensor import Tensor

SIGMAS = 6  # a right sum leaves the bound with a probability below 2 exp(-18)
HALF_ULP = 2.0**-24  # relative, of float32
HALF_ULP_OF_HALF = 2.0**-11
WARM_RUNS = 7
SEED = 2024
LARGEST_SUM = 49152  # of the integers; far beyond 2048, where float16 begins to round them

Array = npt.NDArray[Any]  # Any: float16, float32 and float64 meet here


@dataclass(frozen=True, slots=True)
class Reference:
    """The exact result, and how far from it a right one may be, element by element."""

    values: Array
    bounds: Array

    def largest_error(self, result: Array) -> float:
        """Return the largest error as a part of its bound; infinite for NaN or a wrong shape."""
        if result.shape != self.values.shape:
            return math.inf
        distance = np.abs(result.astype(np.float64) - self.values)
        parts = distance / np.maximum(self.bounds, np.finfo(np.float64).tiny)
        return float(np.nan_to_num(parts, nan=math.inf).max())


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a user's program at one size.

    `reference` takes the operands in float64; `contract` takes integers in the line's own dtype,
    and gives the result with every rounding that the line spells out.
    """

    text: str
    run: Callable[..., Tensor]
    dtype: str
    shapes: tuple[tuple[int, ...], ...]
    reference: Callable[..., Reference]
    contract: Callable[..., Array]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What running a line showed.

    `error` is the largest error as a part of its bound; `broken` counts the elements of `elements`
    whose bits are not those of the contract. Units: µs.
    """

    kernels: Sequence[Planned]
    cold_us: float
    warm_us: float
    error: float
    broken: int
    elements: int

    @property
    def is_right(self) -> bool:
        """Whether both comparisons hold."""
        return self.error <= 1 and self.broken == 0

    @property
    def gflops(self) -> float:
        """Operations of the warm run, in 10^9 a second."""
        return sum(work_of(each.kernel).flops for each in self.kernels) / self.warm_us / 1e3


def lines(quick: bool) -> list[Line]:
    """List the two lines at the sizes to run."""
    if quick:
        return [linear_line(64, 80, 96), gram_line(16), gram_line(64)]
    return [linear_line(1024, 1024, 768), gram_line(64), gram_line(512), gram_line(1024)]


def linear_line(m: int, n: int, k: int) -> Line:
    """Give the first line, for m rows of k numbers."""
    text = "y = x.matmul(weight.T) + b"
    shapes = ((m, k), (n, k), (n,))
    return Line(text, linear, "float16", shapes, linear_reference, linear_contract)


def gram_line(n: int) -> Line:
    """Give the second line, for a square matrix."""
    text = "z = (x @ x.T + 1.0).relu()"
    return Line(text, gram, "float32", ((n, n),), gram_reference, gram_contract)


def check(line: Line, device: str) -> Verdict:
    """Run a line once cold and several times warm, then compare both its results."""
    inputs = normal_inputs(line)
    operands = [Tensor(each, device=device).realize() for each in inputs]
    with capture() as kernels:
        cold_us = _time_us(line, operands, device)
    warm_us = median(_time_us(line, operands, device) for _ in range(WARM_RUNS))
    reference = line.reference(*[each.astype(np.float64) for each in inputs])
    error = reference.largest_error(line.run(*operands).numpy())

    integers = integer_inputs(line)
    result = line.run(*[Tensor(each, device=device) for each in integers]).numpy()
    wanted = line.contract(*integers)
    differs = result != wanted if result.shape == wanted.shape else np.ones(wanted.shape)
    broken = int(np.count_nonzero(differs))
    return Verdict(kernels, cold_us, warm_us, error, broken, wanted.size)


def _time_us(line: Line, operands: Sequence[Tensor], device: str) -> float:
    start = time.perf_counter()
    line.run(*operands).realize()
    Device[device].synchronize()
    return (time.perf_counter() - start) * 1e6


def normal_inputs(line: Line) -> list[Array]:
    """Make operands from the normal distribution."""
    random = np.random.default_rng(SEED)
    return [random.standard_normal(shape).astype(line.dtype) for shape in line.shapes]


def integer_inputs(line: Line) -> list[Array]:
    """Make operands of integers from 0 on, as large as their sums over k allow."""
    random = np.random.default_rng(SEED)
    most = math.isqrt(LARGEST_SUM // line.shapes[0][1])
    return [random.integers(0, most + 1, shape).astype(line.dtype) for shape in line.shapes]


# The lines, what they give in float64, and what they promise. relu brings no two values further
# apart, so its operand's bound is its own.
def linear(x: Tensor, weight: Tensor, b: Tensor) -> Tensor:
    """Run the first line."""
    return x.matmul(weight.T) + b


def gram(x: Tensor) -> Tensor:
    """Run the second line."""
    return (x @ x.T + 1.0).relu()


def linear_reference(x: Array, weight: Array, b: Array) -> Reference:
    """Bound the first line: a sum in float32, rounded to float16, then a rounded addition."""
    exact = product_reference(x, weight.T)
    product = exact.bounds + HALF_ULP_OF_HALF * (np.abs(exact.values) + exact.bounds)
    values = exact.values + b
    return Reference(values, product + HALF_ULP_OF_HALF * (np.abs(values) + product))


def gram_reference(x: Array) -> Reference:
    """Bound the second line: a sum in float32, then a rounded addition."""
    exact = product_reference(x, x.T)
    moved = exact.values + 1
    bounds = exact.bounds + HALF_ULP * (np.abs(moved) + exact.bounds)
    return Reference(np.maximum(moved, 0), bounds)


def product_reference(a: Array, b: Array) -> Reference:
    """Bound a product with sums in float32."""
    return Reference(a @ b, sum_error(a.shape[1], np.abs(a) @ np.abs(b)))


def sum_error(count: int, magnitudes: Array) -> Array:
    """Bound the error of sums in float32, in any order, by the sums of their terms' magnitudes.

    Source: Higham and Mary, A New Approach to Probabilistic Rounding Error Analysis, 2019,
    theorem 2.4.
    """
    return SIGMAS * math.sqrt(count) * HALF_ULP * magnitudes


def linear_contract(x: Array, weight: Array, b: Array) -> Array:
    """Round the product to float16, then add in float16."""
    return exact_product(x, weight.T).astype(np.float16) + b


def gram_contract(x: Array) -> Array:
    """Compute integers, which nothing rounds."""
    return np.maximum(exact_product(x, x.T) + np.float32(1), np.float32(0))


def exact_product(a: Array, b: Array) -> Array:
    """Multiply integers whose sums float32 holds exactly, whatever the order."""
    product: Array = a.astype(np.float32) @ b.astype(np.float32)
    return product
