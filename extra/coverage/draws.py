"""Describes random functions, whose numbers are not PyTorch's, and checks how they are spread."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

import tinytensor
from extra.coverage.compare import outcome
from extra.coverage.record import DTYPES, FLOATS, Library, Result, Shape, resolve, written
from extra.coverage.run import Verdict
from tinytensor import autograd

SHAPE = (64, 64)
INTEGERS = ("uint8", "int8", "int16", "int32", "int64")
SIGMAS = 5  # of the seed's draw, once and for all
NO_GRADIENT = "random"
NO_OPERAND = "no operand"


@dataclass(frozen=True)
class Spread:
    """What the numbers of a distribution are like; `places` tells that they are 0 .. n - 1."""

    mean: float
    deviation: float
    least: float
    most: float
    is_order: bool = False


@dataclass(frozen=True)
class Draw:
    """A random function: how to call it for a shape and a dtype, and how its numbers spread."""

    path: str
    call: Callable[[Library, Shape, Result], Result]
    spread: Spread
    dtypes: tuple[str, ...] = FLOATS
    shapes: dict[str, Shape] = field(
        default_factory=lambda: {"forward": SHAPE, "empty": (0, 3), "zero-dim": ()}
    )
    note: str = ""

    @property
    def name(self) -> str:
        """The function's name without the class or module that holds it."""
        return self.path.removeprefix("Tensor.").removeprefix("nn.functional.")


def dropped(library: Library, shape: Shape, dtype: Result) -> Result:
    """Drop a quarter of ones."""
    return library.nn.functional.dropout(library.ones(shape, dtype=dtype), 0.25)


def chosen(library: Library, shape: Shape, dtype: Result) -> Result:
    """Choose among four, with chances of 1 to 4 in 10."""
    weights = library.tensor([1.0, 2.0, 3.0, 4.0], dtype=dtype)
    return weights.multinomial(math.prod(shape), replacement=True).reshape(shape)


def filled(name: str, spread: Spread, *arguments: float, dtypes: tuple[str, ...] = FLOATS) -> Draw:
    """Return the draw of a method that fills its tensor."""

    def call(library: Library, shape: Shape, dtype: Result) -> Result:
        return written(name, library.ones(shape, dtype=dtype), *arguments)

    return Draw(f"Tensor.{name}", call, spread, dtypes)


LINE: dict[str, Shape] = {"forward": (4096,), "empty": (0,)}
DRAWS = [
    Draw("rand", lambda t, s, d: t.rand(s, dtype=d), Spread(0.5, 12**-0.5, 0, 1)),
    Draw("rand_like", lambda t, s, d: t.rand_like(t.ones(s, dtype=d)), Spread(0.5, 12**-0.5, 0, 1)),
    Draw("randn", lambda t, s, d: t.randn(s, dtype=d), Spread(0, 1, -8, 8)),
    Draw("randn_like", lambda t, s, d: t.randn_like(t.ones(s, dtype=d)), Spread(0, 1, -8, 8)),
    Draw(
        "randint",
        lambda t, s, d: t.randint(2, 9, s, dtype=d),
        Spread(5, 2, 2, 8),
        (*INTEGERS, *FLOATS),
    ),
    Draw(
        "randint_like",
        lambda t, s, d: t.randint_like(t.ones(s, dtype=d), 2, 9),
        Spread(5, 2, 2, 8),
        (*INTEGERS, *FLOATS),
    ),
    Draw(
        "randperm",
        lambda t, s, d: t.randperm(math.prod(s), dtype=d),
        Spread(2047.5, 4096 * 12**-0.5, 0, 4095, is_order=True),
        ("int16", "int32", "int64", "float32", "float64"),
        LINE,
    ),
    filled("normal_", Spread(1, 2, -15, 17), 1, 2),
    filled("uniform_", Spread(1, 4 * 12**-0.5, -1, 3), -1, 3),
    filled("bernoulli_", Spread(0.25, 0.1875**0.5, 0, 1), 0.25, dtypes=DTYPES),
    filled("random_", Spread(5, 2, 2, 8), 2, 9, dtypes=(*INTEGERS, *FLOATS)),
    Draw(
        "Tensor.bernoulli",
        lambda t, s, d: t.full(s, 0.25, dtype=d).bernoulli(),
        Spread(0.25, 0.1875**0.5, 0, 1),
    ),
    Draw("Tensor.multinomial", chosen, Spread(2, 1, 0, 3), FLOATS, {"forward": SHAPE}),
    Draw("nn.functional.dropout", dropped, Spread(1, 3**-0.5, 0, 4 / 3 + 0.01)),
]


def run_draw(draw: Draw, library: Library) -> Verdict:
    """Check shapes and dtypes with PyTorch's, and the numbers with their distribution."""
    cells = dict.fromkeys(("gradient", "non-contiguous", "broadcast"), NO_OPERAND)
    if resolve(tinytensor, draw.path) is None:
        return Verdict(draw.name, True, {}, (), (), draw.note)
    problems: list[str] = []
    failed: set[str] = set()
    for aspect, shape in draw.shapes.items():
        for dtype in draw.dtypes:
            found = difference_of_draw(draw, library, shape, dtype)
            if found:
                problems.append(f"{draw.name}: {aspect} of {dtype}: {found}")
                failed |= {aspect, dtype}
    if draw.name == "dropout":
        problems += [f"{draw.name}: {each}" for each in dropout_problems()]
        cells |= dict.fromkeys(("gradient", "non-contiguous"), "fails" if problems else "yes")
    for aspect in ("forward", "empty", "zero-dim"):
        cells[aspect] = "fails" if aspect in failed else "yes"
        cells[aspect] = cells[aspect] if aspect in draw.shapes else "fixed shape"
    passed = tuple([each for each in draw.dtypes if each not in failed])
    return Verdict(draw.name, False, cells, passed, tuple(problems), draw.note)


def difference_of_draw(draw: Draw, library: Library, shape: Shape, dtype: str) -> str:
    """Say how a draw of one shape and dtype is not what it should be."""
    tinytensor.manual_seed(7)
    ours = outcome(lambda: draw.call(tinytensor, shape, getattr(tinytensor, dtype)))
    theirs = outcome(lambda: draw.call(library, shape, getattr(library, dtype)))
    if isinstance(theirs, Exception):
        return "" if isinstance(ours, type(theirs)) else f"PyTorch refuses ({theirs})"
    if isinstance(ours, Exception):
        return f"raises {ours!r}"
    name = str(theirs.dtype).removeprefix("torch.")
    if (ours.dtype.name, tuple(ours.shape)) != (name, tuple(theirs.shape)):
        return f"is {ours.dtype.name}{ours.shape}, PyTorch's {name}{tuple(theirs.shape)}"
    return difference_of_spread(ours.numpy().astype(np.float64), draw.spread, ours.dtype)


def difference_of_spread(values: np.ndarray, spread: Spread, dtype: Result) -> str:
    """Say how numbers are not spread as they should be, where there are enough to tell."""
    if values.size and not spread.least <= values.min() <= values.max() <= spread.most:
        return f"leaves its range: {values.min()} .. {values.max()}"
    if values.size < 1000:
        return ""
    if spread.is_order and sorted(values) != list(range(values.size)):
        return "is no order of all numbers"
    step = dtype.epsilon if dtype.is_float else 0
    room = SIGMAS * spread.deviation / values.size**0.5 + step * (abs(spread.mean) + 1)
    if abs(values.mean() - spread.mean) > room:
        return f"has the mean {values.mean()}, not {spread.mean}"
    # A fourth moment of at most 5 deviations: the deviation of a deviation is at most the mean's.
    if abs(values.std() - spread.deviation) > room:
        return f"has the deviation {values.std()}, not {spread.deviation}"
    return ""


def dropout_problems() -> Sequence[str]:
    """Check that a gradient passes where an element does, and that a view drops as well."""
    x = tinytensor.ones((8, 16), requires_grad=True)
    y = x.T.dropout(0.25)
    (slope,) = autograd.grad(y.sum(), [x])
    same = bool((y.detach().numpy() == slope.numpy().T).all())
    return [] if same else ["the gradient is not that of what was dropped"]
