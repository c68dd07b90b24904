"""Lists the works of the GPU benchmark: formula, inputs, cost, and reference in float64 by torch.

A reference covers a sample of the result's rows, enough to meet every kind of tile and tail.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from extra.bench.gpu.engines import EPSILON, WINDOW, Array, Engine, Formula
from tinytensor.lazy import lazy_import
from tinytensor.selfcheck import HALF_ULP, sum_error

LEAST_BYTES = 250_000_000  # of all sets together, several times what L2 holds
MOST_SETS = 128
SAMPLED_ROWS = 1024
ULP = {"float32": HALF_ULP, "float16": 2.0**-11, "bfloat16": 2.0**-8}  # half of one, relative
ITEMSIZE = {"float32": 4, "float16": 2, "bfloat16": 2}
FUNCTION_ULP = 4  # what an engine's exp may be off by
LEAST = 2.0**-126  # engines may flush what is smaller
STEEPEST_GELU = 1.13
LONGEST_CHAIN = 2**14  # of additions one after another, in a sum spread over the GPU's threads
INTERNAL_ROUNDINGS = 8  # of a function that is written out in float32

Torch = Any
Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Reference:
    """The exact values of some rows of a result, and how far from them a right one may be."""

    values: Array
    bounds: Array


@dataclass(frozen=True, slots=True)
class Work:
    """One thing to compute.

    `row` is the line of the project's targets that it belongs to. `flops` counts those of products
    alone; `bytes_moved` counts inputs and outputs once.
    """

    name: str
    row: str
    formula: Formula
    dtype: str
    shapes: tuple[Shape, ...]
    flops: int
    bytes_moved: int
    refer: Callable[[Sequence[Array], Array, float], Reference]
    is_positive: bool = False

    @property
    def sets(self) -> int:
        """The number of sets of inputs that keep every call from finding its own in L2."""
        return min(MOST_SETS, math.ceil(LEAST_BYTES / self.bytes_moved))

    def inputs(self, torch: Torch, device: str, count: int) -> list[list[Array]]:
        """Make sets of normal numbers, or of their magnitudes: then no sum cancels."""
        generator = torch.Generator(device=device).manual_seed(1234)
        dtype = getattr(torch, self.dtype)

        def normal(shape: Shape) -> Array:
            made = torch.randn(shape, generator=generator, device=device, dtype=torch.float32)
            return (made.abs() if self.is_positive else made).to(dtype)

        return [[normal(shape) for shape in self.shapes] for _ in range(count)]

    def largest_error(self, torch: Torch, inputs: Sequence[Array], result: Array) -> float:
        """Return the largest error as a part of its bound; infinite for a NaN anywhere."""
        if bool(torch.isnan(result).any()):
            return math.inf
        rows = sample_rows(torch, result if result.ndim else inputs[0])
        reference = self.refer(inputs, rows, ULP[self.dtype])
        found = result[rows] if result.ndim else result
        if found.shape != reference.values.shape:
            return math.inf
        distance = (found.double() - reference.values).abs()
        parts = distance / reference.bounds.clamp(min=2.0**-1000)
        return float(parts.nan_to_num(nan=math.inf, posinf=math.inf).max())


def sample_rows(torch: Torch, x: Array) -> Array:
    """Choose rows, the first and the last among them; all when there are few."""
    count = x.shape[0]
    if count <= SAMPLED_ROWS:
        return torch.arange(count, device=x.device)
    return torch.linspace(0, count - 1, SAMPLED_ROWS, device=x.device).long()


# The formulas, in the functions of an engine.
def linear(engine: Engine, x: Array, weight: Array, b: Array) -> Array:
    """Multiply, round, add a bias."""
    return engine.matmul(x, weight.T) + b


def gram(engine: Engine, x: Array) -> Array:
    """Multiply by the own transpose, add, clip."""
    return engine.relu(engine.matmul(x, x.T) + 1.0)


def turned(x: Array, letter: str) -> Array:
    """Return a matrix, or for the letter T its transpose."""
    return x.T if letter == "T" else x


def product(layout: str, engine: Engine, a: Array, b: Array) -> Array:
    """Multiply two matrices, each as it lies or turned, such as NT."""
    return engine.matmul(turned(a, layout[0]), turned(b, layout[1]))


def shift(engine: Engine, x: Array) -> Array:
    """Add and clip."""
    return engine.relu(x + 1.0)


def chain(engine: Engine, x: Array, a: Array, b: Array, c: Array) -> Array:
    """Scale, move, apply gelu and scale again, column by column."""
    return engine.gelu(x * a + b) * c


def softmax(engine: Engine, x: Array) -> Array:
    """Take the softmax of each row."""
    return engine.softmax(x)


def normalize(engine: Engine, x: Array, weight: Array, bias: Array) -> Array:
    """Normalize each row and clip."""
    return engine.relu(engine.layer_norm(x, weight, bias))


def scale(engine: Engine, x: Array, weight: Array) -> Array:
    """Divide each row by the root of its mean square."""
    return engine.rms_norm(x, weight)


def total(engine: Engine, x: Array) -> Array:
    """Add all elements."""
    return engine.total(x)


def position(engine: Engine, x: Array) -> Array:
    """Find each row's greatest element."""
    return engine.argmax(x)


def convolution(engine: Engine, x: Array, weight: Array) -> Array:
    """Convolve planes by windows of 3 x 3."""
    return engine.convolve(x, weight)


def input_gradient(engine: Engine, g: Array, weight: Array) -> Array:
    """Differentiate that convolution by its input."""
    return engine.input_gradient(g, weight)


def weight_gradient(engine: Engine, g: Array, x: Array) -> Array:
    """Differentiate that convolution by its weight."""
    return engine.weight_gradient(g, x)


# The references. `ulp` is half a unit of the result's dtype; every value that an engine may round
# is taken to be rounded. relu brings no two values further apart.
def _rounded(values: Array, bounds: Array, ulp: float) -> Array:
    return bounds + ulp * (values.abs() + bounds)


def _product(a: Array, b: Array, ulp: float) -> Reference:
    """Bound a rounded product; matrix instructions cut off where others round: twice the error."""
    values = a @ b
    summed = 2 * sum_error(a.shape[1], a.abs() @ b.abs())
    return Reference(values, _rounded(values, summed, ulp))


def _refer_linear(inputs: Sequence[Array], rows: Array, ulp: float) -> Reference:
    x, weight, b = [each.double() for each in inputs]
    exact = _product(x[rows], weight.T, ulp)
    values = exact.values + b
    return Reference(values, _rounded(values, exact.bounds, ulp))


def _refer_gram(inputs: Sequence[Array], rows: Array, ulp: float) -> Reference:
    x = inputs[0].double()
    exact = _product(x[rows], x.T, ulp)
    values = exact.values + 1
    return Reference(values.relu(), _rounded(values, exact.bounds, ulp))


def _refer_product(layout: str, inputs: Sequence[Array], rows: Array, ulp: float) -> Reference:
    a, b = [turned(x, letter) for x, letter in zip(inputs, layout, strict=True)]
    return _product(a[rows].double(), b.double(), ulp)


def _bilinear(
    function: Callable[..., Array], a: Array, b: Array, count: int, ulp: float
) -> Reference:
    """Bound sums of so many products, as those of a matrix product."""
    values = function(a, b)
    summed = 2 * sum_error(count, function(a.abs(), b.abs()))
    return Reference(values, _rounded(values, summed, ulp))


def _refer_convolution(inputs: Sequence[Array], rows: Array, ulp: float) -> Reference:
    x, weight = [each.double() for each in inputs]
    torch = lazy_import("torch", None, "the reference")
    convolve = partial(torch.nn.functional.conv2d, padding=1)
    return _bilinear(convolve, x[rows], weight, weight[0].numel(), ulp)


def _refer_input_gradient(inputs: Sequence[Array], rows: Array, ulp: float) -> Reference:
    g, weight = [each.double() for each in inputs]
    turned_round = weight.flip(2, 3).transpose(0, 1)
    return _refer_convolution([g, turned_round], rows, ulp)


def _refer_weight_gradient(inputs: Sequence[Array], rows: Array, ulp: float) -> Reference:
    g, x = [each.double() for each in inputs]
    torch = lazy_import("torch", None, "the reference")

    def by_taps(g: Array, x: Array) -> Array:
        height, width = g.shape[2:]
        padded = torch.nn.functional.pad(x, (1, 1, 1, 1))
        taps = [
            torch.einsum("nohw,nchw->oc", g, padded[:, :, i : i + height, j : j + width])
            for i, j in itertools.product(range(WINDOW[0]), range(WINDOW[1]))
        ]
        return torch.stack(taps, 2).reshape(g.shape[1], x.shape[1], *WINDOW)

    return _bilinear(by_taps, g[:, rows], x, g[:, 0].numel(), ulp)


def _refer_shift(inputs: Sequence[Array], rows: Array, ulp: float) -> Reference:
    values = inputs[0][rows].double() + 1
    return Reference(values.relu(), ulp * values.abs())


def _refer_chain(inputs: Sequence[Array], rows: Array, ulp: float) -> Reference:
    a, b, c = [each.double() for each in inputs[1:]]
    scaled = inputs[0][rows].double() * a
    moved = scaled + b
    bounds = STEEPEST_GELU * _rounded(moved, ulp * scaled.abs(), ulp)
    curve = 0.5 * moved * (1 + (math.sqrt(2 / math.pi) * (moved + 0.044715 * moved**3)).tanh())
    inside = INTERNAL_ROUNDINGS * HALF_ULP * moved.abs()
    bent = _rounded(curve, bounds + inside, ulp)
    values = curve * c
    return Reference(values, _rounded(values, bent * c.abs(), ulp))


def _refer_softmax(inputs: Sequence[Array], rows: Array, ulp: float) -> Reference:
    x = inputs[0][rows].double()
    lowered = x - x.amax(1, keepdim=True)
    values = x.softmax(1)
    power = HALF_ULP * (2 * FUNCTION_ULP - lowered)  # relative: the function's, its operand's
    whole = power.amax(1, keepdim=True) + sum_error(x.shape[1], 1.0)
    bounds = values * (power + whole + 3 * HALF_ULP) + LEAST
    return Reference(values, _rounded(values, bounds, ulp))


def _refer_normalize(inputs: Sequence[Array], rows: Array, ulp: float) -> Reference:
    """Bound float32 sums and roundings, then one of the norm and one of the result."""
    x, weight, bias = inputs[0][rows].double(), inputs[1].double(), inputs[2].double()
    count = x.shape[1]
    mean = x.mean(1, keepdim=True)
    centered = x - mean
    variance = (centered**2).mean(1, keepdim=True) + EPSILON
    moved = sum_error(count, x.abs().mean(1, keepdim=True)) + HALF_ULP * centered.abs()
    # A variance may also come as the mean of squares less the squared mean.
    squares = sum_error(count, (x**2).mean(1, keepdim=True) + mean**2)
    spread = squares + 2 * (moved * centered.abs()).mean(1, keepdim=True)
    relative = spread / (2 * variance) + INTERNAL_ROUNDINGS * HALF_ULP
    deviation = variance.sqrt()
    bounds = (moved + centered.abs() * relative) / deviation * weight.abs()
    values = centered / deviation * weight + bias
    inside = bounds + INTERNAL_ROUNDINGS * HALF_ULP * (values.abs() + bias.abs())
    return Reference(values.relu(), _rounded(values, inside, ulp))


def _refer_scale(inputs: Sequence[Array], rows: Array, ulp: float) -> Reference:
    """An engine may round twice: before it multiplies by the weight and after."""
    x, weight = inputs[0][rows].double(), inputs[1].double()
    values = x / ((x**2).mean(1, keepdim=True) + EPSILON).sqrt() * weight
    relative = sum_error(x.shape[1], 1.0) + INTERNAL_ROUNDINGS * HALF_ULP
    once = _rounded(values, values.abs() * relative, ulp)
    return Reference(values, _rounded(values, once, ulp))


def _refer_total(inputs: Sequence[Array], rows: Array, ulp: float) -> Reference:
    x = inputs[0].double()
    return Reference(x.sum(), sum_error(LONGEST_CHAIN, x.abs().sum()))


def _refer_position(inputs: Sequence[Array], rows: Array, ulp: float) -> Reference:
    """Allow no other position: two greatest elements are too rare to be met."""
    greatest = inputs[0][rows].argmax(1).double()
    return Reference(greatest, 0.0 * greatest)


# The works.
def _moved(dtype: str, *shapes: Shape) -> int:
    return ITEMSIZE[dtype] * sum(math.prod(shape) for shape in shapes)


def linear_of(row: str, m: int, n: int, k: int) -> Work:
    """The project's first line."""
    shapes = ((m, k), (n, k), (n,))
    moved = _moved("float16", *shapes, (m, n))
    flops = 2 * m * n * k
    return Work(f"linear-{m}x{n}x{k}", row, linear, "float16", shapes, flops, moved, _refer_linear)


def gram_of(row: str, dtype: str, n: int) -> Work:
    """The project's second line."""
    moved = _moved(dtype, (n, n), (n, n))
    name = f"gram-{dtype}-{n}"
    return Work(name, row, gram, dtype, ((n, n),), 2 * n**3, moved, _refer_gram)


def product_of(row: str, dtype: str, m: int, n: int, k: int, layout: str = "NN") -> Work:
    """A plain product of matrices that lie in memory as they are, or turned."""
    shapes = ((m, k)[:: -1 if layout[0] == "T" else 1], (k, n)[:: -1 if layout[1] == "T" else 1])
    moved = _moved(dtype, *shapes, (m, n))
    name = f"matmul-{dtype}-{m}x{n}x{k}-{layout}"
    formula, refer = partial(product, layout), partial(_refer_product, layout)
    return Work(name, row, formula, dtype, shapes, 2 * m * n * k, moved, refer)


def rowwise(
    row: str, formula: Formula, refer: Callable[..., Reference], dtype: str, *shapes: Shape
) -> Work:
    """A work with as many results as its first operand has elements."""
    rows, columns = shapes[0]
    name = f"{formula.__name__}-{dtype}-{rows}x{columns}"
    moved = _moved(dtype, *shapes, shapes[0])
    return Work(name, row, formula, dtype, shapes, 0, moved, refer)


def total_of(n: int) -> Work:
    """A sum of everything."""
    moved = _moved("float32", (n,))
    name, shapes = f"sum-{n}", ((n,),)
    return Work(name, "W5c", total, "float32", shapes, 0, moved, _refer_total, is_positive=True)


def position_of(rows: int, columns: int) -> Work:
    """The position of each row's greatest element, an int64."""
    shapes = ((rows, columns),)
    moved = _moved("float32", *shapes) + 8 * rows
    name = f"argmax-{rows}x{columns}"
    return Work(name, "W5c", position, "float32", shapes, 0, moved, _refer_position)


def convolution_of(n: int, channels: int, side: int) -> list[Work]:
    """A convolution of square planes that keeps their number and size, and its gradients."""
    planes, weight = (n, channels, side, side), (channels, channels, *WINDOW)
    flops = 2 * n * side**2 * math.prod(weight)
    name = f"{n}x{channels}x{side}x{side}"
    moved = _moved("float16", planes, weight, planes)

    def work(formula: Formula, refer: Callable[..., Reference], *shapes: Shape) -> Work:
        made = f"{formula.__name__}-{name}"
        return Work(made, "W7", formula, "float16", shapes, flops, moved, refer)

    return [
        work(convolution, _refer_convolution, planes, weight),
        work(input_gradient, _refer_input_gradient, planes, weight),
        work(weight_gradient, _refer_weight_gradient, planes, planes),
    ]


COLUMN = (8192,)
LAYOUTS = ("NT", "NN")
WORKS = (
    linear_of("W1", 1024, 1024, 768),
    *[gram_of("W2a", "float32", n) for n in (512, 1024, 4096)],
    gram_of("W2b", "float16", 4096),
    rowwise("W2c", shift, _refer_shift, "float32", (16384, 16384)),
    *[product_of("W3", "bfloat16", n, n, n) for n in (4096, 8192)],
    product_of("W3", "float16", 2048, 2048, 2048),
    *[product_of("W3s", "bfloat16", m, 4096, 4096, layout) for m in (16, 1) for layout in LAYOUTS],
    *[product_of("W3m", "bfloat16", 4096, 4096, 4096, layout) for layout in ("NT", "TN", "TT")],
    *[product_of("W3m", "bfloat16", 8192, 28672, 4096, layout) for layout in LAYOUTS],
    *[product_of("W3m", "bfloat16", 4096, 11008, 8192, layout) for layout in ("TN", "TT")],
    *[product_of("W3m", "bfloat16", 4096, 4096, k, "NT") for k in (1024, 512)],
    *[product_of("W3m", "bfloat16", m, 4096, 4096, "NT") for m in (512, 128)],
    *[product_of("W3m", "bfloat16", m, 768, 8192, "TN") for m in (768, 3072)],
    product_of("W3m", "float16", 1000, 1000, 1000, "NT"),
    *[linear_of("W3m", *extents) for extents in ((1000, 1000, 1000), (1001, 999, 1003))],
    product_of("W3m", "bfloat16", 4097, 4095, 4099, "NT"),
    *[product_of("W3m", "float32", n, n, n, "NT") for n in (2048, 4096)],
    rowwise("W4", chain, _refer_chain, "bfloat16", (16384, 8192), COLUMN, COLUMN, COLUMN),
    *[
        rowwise("W5a", softmax, _refer_softmax, dtype, (8192, 8192))
        for dtype in ("bfloat16", "float32")
    ],
    rowwise("W5b", normalize, _refer_normalize, "bfloat16", (8192, 4096), (4096,), (4096,)),
    rowwise("W5b", scale, _refer_scale, "bfloat16", (8192, 4096), (4096,)),
    total_of(2**28),
    position_of(8192, 8192),
    *convolution_of(64, 64, 56),
    *convolution_of(64, 128, 28),
)


def find_works(names: Sequence[str]) -> list[Work]:
    """Find works by row (`W1`, `W2`, `W2a`) or by name; all for no names.

    Raises: ValueError for a name that fits none.
    """
    for name in names:
        if not any(_fits(work, name) for work in WORKS):
            known = ", ".join(dict.fromkeys(work.row for work in WORKS))
            raise ValueError(f"bench: no such row: {name!r}; must be one of {known}, or a name.")
    return [work for work in WORKS if not names or any(_fits(work, name) for name in names)]


def _fits(work: Work, name: str) -> bool:
    return work.name == name or work.row.rstrip("abcms") == name or work.row == name
