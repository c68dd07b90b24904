"""Lists the programs whose memory is compared, in names that tinytensor and PyTorch share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, unique
from typing import Any

Array = Any  # a Tensor of either library
Functions = Any  # its nn.functional, and what else the formulas take from it
Shape = tuple[int, ...]


@unique
class Asked(Enum):
    """What is asked for: the formula's results, gradients of its mean square, a step along them."""

    RESULTS = "results"
    GRADIENTS = "gradients"
    STEP = "step"


@dataclass(frozen=True, slots=True)
class Work:
    """A program and its operands: `formula(functions, *operands)` returns what it computes.

    Gradients are those of all float operands but the first. With `classes` above 0, integers below
    it stand in for the last operand.
    """

    name: str
    formula: Callable[..., Array | Sequence[Array]]
    shapes: tuple[Shape, ...]
    asked: Asked = Asked.RESULTS
    classes: int = 0


# The formulas.
def chain(f: Functions, x: Array, y: Array) -> Array:
    """Twelve elementwise operations one after another."""
    return ((x * y + x).exp().sqrt() - y).tanh() * (x - y).sigmoid() + x.abs() / (y.abs() + 1.0)


def row_shares(f: Functions, x: Array) -> Array:
    """Take the softmax of each row."""
    return x.softmax(-1)


def normalized(f: Functions, x: Array, weight: Array, bias: Array) -> Array:
    """Normalize each row."""
    return f.layer_norm(x, x.shape[-1:], weight, bias)


def perceptron(f: Functions, x: Array, *weights: Array) -> Array:
    """Alternate products and clips; the last is a product."""
    for weight in weights[:-1]:
        x = (x @ weight).relu()
    return x @ weights[-1]


def convolutions(f: Functions, x: Array, first: Array, second: Array) -> Array:
    """Convolve, clip, pool, twice."""
    x = f.max_pool2d(f.conv2d(x, first, padding=1).relu(), 2)
    return f.max_pool2d(f.conv2d(x, second, padding=1).relu(), 2)


def attend(f: Functions, x: Array, into: Array, out: Array) -> Array:
    """Project to queries, keys and values of four heads, attend, project back."""
    batch, length, width = x.shape
    heads = (x @ into).reshape(batch, length, 3, 4, width // 4).permute(2, 0, 3, 1, 4)
    scores = (heads[0] @ heads[1].transpose(-1, -2)) * (width // 4) ** -0.5
    mixed = scores.softmax(-1) @ heads[2]
    return mixed.permute(0, 2, 1, 3).reshape(batch, length, width) @ out


def transform(f: Functions, x: Array, into: Array, out: Array, up: Array, down: Array) -> Array:
    """Attend and widen, each on normalized rows and beside what it came from."""
    width = x.shape[-1:]
    x = x + attend(f, f.layer_norm(x, width), into, out)
    return x + f.gelu(f.layer_norm(x, width) @ up) @ down


def deep(f: Functions, x: Array, *weights: Array) -> Array:
    """Widen and narrow again, four times, each beside what it came from."""
    for up, down in zip(weights[::2], weights[1::2], strict=True):
        x = x + f.gelu(x @ up) @ down
    return x


def spared(f: Functions, x: Array, *weights: Array) -> Array:
    """Widen and narrow as `deep` does, keeping nothing of what lies between for the gradient."""
    for up, down in zip(weights[::2], weights[1::2], strict=True):
        x = f.checkpoint(lambda x, up, down: x + f.gelu(x @ up) @ down, x, up, down)
    return x


def surprise(f: Functions, scores: Array, classes: Array) -> Array:
    """Take the cross entropy over a large vocabulary."""
    return f.cross_entropy(scores, classes)


def project_and_compare(f: Functions, x: Array, vocabulary: Array, classes: Array) -> Array:
    """Score a large vocabulary and take the cross entropy."""
    return f.cross_entropy(x @ vocabulary, classes)


def decay(f: Functions, weight: Array, gradient: Array, speed: Array) -> Sequence[Array]:
    """Move a weight along its gradient with momentum, in place."""
    speed *= 0.9
    speed += gradient
    weight -= speed * 0.01
    return [weight, speed]


def adapt(
    f: Functions, weight: Array, gradient: Array, mean: Array, square: Array
) -> Sequence[Array]:
    """Move a weight as Adam does, in place."""
    mean *= 0.9
    mean += gradient * 0.1
    square *= 0.999
    square += gradient * gradient * 0.001
    weight -= mean / (square.sqrt() + 1e-8) * 0.001
    return [weight, mean, square]


def ordered(f: Functions, x: Array) -> Sequence[Array]:
    """Sort the rows, and say where each value was; equal ones stay in order."""
    return list(x.sort(dim=-1, stable=True))


def run_totals(f: Functions, x: Array) -> Array:
    """Add up along the rows."""
    return x.cumsum(-1)


def joined(f: Functions, x: Array, y: Array) -> Array:
    """Put two arrays side by side, scaled."""
    return f.cat([x * 2.0, y.exp()], 1)


def contracted(f: Functions, a: Array, b: Array, c: Array) -> Array:
    """Sum over two shared axes of three arrays."""
    return f.einsum("bij,bjk,bkl->bil", a, b, c)


def spread(f: Functions, x: Array) -> Array:
    """Take the variance of the columns of a normalized array."""
    return ((x - x.mean(0)) / x.std(0)).var(0)


def turned(f: Functions, x: Array, y: Array) -> Array:
    """Add a transposed array."""
    return (x.transpose(0, 1) + y).exp().transpose(0, 1) + y


SQUARE = (1024, 1024)
ROWS = (256, 1024)
ATTENTION = ((4, 256, 128), (128, 384), (128, 128))
CONVOLUTIONS = ((8, 8, 64, 64), (16, 8, 3, 3), (16, 16, 3, 3))
DEEP = ((512, 128), *[(128, 512), (512, 128)] * 4)
PERCEPTRON = ((1024, 256), *[(256, 256)] * 4)
TRANSFORMER = (*ATTENTION, (128, 512), (512, 128))
VOCABULARY = ((256, 64), (64, 16384), (256,))

GRADIENTS, STEP = Asked.GRADIENTS, Asked.STEP
WORKS = (
    Work("chain", chain, (SQUARE, SQUARE)),
    Work("softmax", row_shares, (SQUARE,)),
    Work("layer_norm", normalized, (SQUARE, (1024,), (1024,))),
    Work("layer_norm gradients", normalized, (SQUARE, (1024,), (1024,)), GRADIENTS),
    Work("perceptron", perceptron, PERCEPTRON),
    Work("perceptron gradients", perceptron, PERCEPTRON, GRADIENTS),
    Work("perceptron step", perceptron, PERCEPTRON, STEP),
    Work("convolutions", convolutions, CONVOLUTIONS),
    Work("convolutions gradients", convolutions, CONVOLUTIONS, GRADIENTS),
    Work("attention", attend, ATTENTION),
    Work("attention gradients", attend, ATTENTION, GRADIENTS),
    Work("transformer step", transform, TRANSFORMER, STEP),
    Work("deep gradients", deep, DEEP, GRADIENTS),
    Work("deep checkpointed", spared, DEEP, GRADIENTS),
    Work("cross entropy", surprise, ((256, 16384), (256,)), classes=16384),
    Work("vocabulary gradients", project_and_compare, VOCABULARY, GRADIENTS, 16384),
    Work("momentum", decay, (SQUARE,) * 3),
    Work("adam", adapt, (SQUARE,) * 4),
    Work("sort", ordered, (ROWS,)),
    Work("cumsum", run_totals, (SQUARE,)),
    Work("cat", joined, ((1024, 512), (1024, 512))),
    Work("einsum", contracted, ((8, 256, 256),) * 3),
    Work("variance", spread, (SQUARE,)),
    Work("transpose", turned, (SQUARE, SQUARE)),
)
