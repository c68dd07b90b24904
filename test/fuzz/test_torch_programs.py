"""Random programs give PyTorch's dtypes, shapes, values and refusals, on CPU and on PYTHON.

PyTorch runs each step at once, so its values tell which next steps have one right answer: sums
only of small multiples of a quarter, integer divisions only by what is not 0, and so on. What is
inexact (an exponential, a mean) is compared within its bound and then only moved about.
"""

import math
import operator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from tinytensor import Tensor, config, dtypes

torch = pytest.importorskip("torch")

IN_THE_SUITE = 200
ALL = 4000
FLOATS = ("float32", "float16", "bfloat16", "float64")
INTEGERS = ("int64", "int32", "int16", "int8", "uint8")
NAMES = (*FLOATS, *INTEGERS, "bool")
SPECIAL = (0.0, -0.0, 0.25, 1.0, -2.5, 3.25, math.inf, -math.inf, math.nan)
EXTENTS = (0, 1, 1, 2, 2, 3, 3, 4, 5, 8, 17)
MOST_ELEMENTS = 5000
OPERATORS = {
    **{"+": operator.add, "-": operator.sub, "*": operator.mul},
    **{"==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le},
    **{">": operator.gt, ">=": operator.ge},
    **{"&": operator.and_, "|": operator.or_, "^": operator.xor},
}
ANY_NUMBER = (0, 1, 2, -1, True, 0.5, -2.0, 1e3)
NUMBERS = {
    **dict.fromkeys(("+", "*", "/", "==", "!=", "<", "<=", ">", ">="), ANY_NUMBER),
    **dict.fromkeys(("&", "|", "^"), (0, 1, 2, True, -1)),
    **dict.fromkeys(("//", "%"), (1, 2, 3, -1, -3)),
    "-": (0, 1, 2, -1, 0.5, -2.0, 1e3),
}
REFUSALS = (RuntimeError, IndexError, TypeError, ValueError)


@dataclass(frozen=True)
class Pair:
    """The same value twice; `error` is what the two may differ by, relative to `scale`."""

    ours: Any
    theirs: Any
    error: float = 0.0
    scale: float = 0.0
    sign_of_zero: bool = True  # whether it is the same: PyTorch's maximum does not order zeros

    @property
    def values(self):
        return self.theirs.to(torch.float64)

    @property
    def name(self):
        return str(self.theirs.dtype).removeprefix("torch.")

    @property
    def is_float(self):
        return self.theirs.is_floating_point()

    @property
    def ndim(self):
        return self.theirs.ndim

    @property
    def is_summable(self):
        """Whether every order of summation gives the same bits."""
        finite = self.values[self.values.isfinite()]
        return bool(((finite * 4).frac() == 0).all() and (finite.abs() <= 16).all())


class TorchProgram:
    """Grows a program step by step; `pairs` holds everything it computes."""

    def __init__(self, seed, device):
        self.rng = np.random.default_rng(seed)
        self.device = device
        self.refusals = []
        self.steps = []
        self.pairs = [self.leaf() for _ in range(self.rng.integers(2, 5))]
        for _ in range(self.rng.integers(4, 16)):
            self.step()

    def chance(self, share):
        return bool(self.rng.random() < share)

    def pick(self, options):
        return options[int(self.rng.integers(len(options)))]

    def integer(self, low, high):
        return int(self.rng.integers(low, high + 1))

    def leaf(self, shape=None, name=None):
        name = name or self.pick(NAMES)
        if shape is None:
            shape = tuple([self.pick(EXTENTS) for _ in range(self.integer(0, 4))])
            while math.prod(shape) > 600:
                shape = shape[1:]
        values = self.rng.integers(0 if name == "uint8" else -4, 5, shape).astype(np.float64)
        if name in FLOATS:
            chosen = self.rng.choice(SPECIAL if self.chance(0.4) else SPECIAL[:-3], shape)
            values = np.where(self.rng.random(shape) < 0.5, chosen, values)
        elif name != "bool" and self.chance(0.3):
            limits = torch.iinfo(getattr(torch, name))
            edges = self.rng.choice([limits.min, limits.max], shape).astype(np.int64)
            whole = np.where(self.rng.random(shape) < 0.3, edges, values.astype(np.int64))
            values = whole.astype(name)
        array = np.asarray(values)
        theirs = torch.tensor(array).to(getattr(torch, name))
        return Pair(Tensor(array, device=self.device).cast(getattr(dtypes, name)), theirs)

    def step(self):
        pair = self.pick(self.pairs)
        moves = (self.view, self.part, self.join, self.cast)
        kinds = moves if pair.error else (*moves, self.unary, self.binary, self.binary)
        kinds = kinds if pair.error else (*kinds, self.fold, self.fold, self.product, self.inexact)
        self.pick(kinds)(pair)

    def add(self, what, function, *pairs, error=0.0, scale=0.0, sign_of_zero=True):
        """Take a step on both sides; both must give a value, or both must refuse."""
        error = max([error, *[pair.error for pair in pairs]])
        scale = max([scale, *[pair.scale for pair in pairs]])
        sign_of_zero = sign_of_zero and all(pair.sign_of_zero for pair in pairs)
        told = f"{what} of {[(pair.name, tuple(pair.theirs.shape)) for pair in pairs]}"
        theirs = attempt(function, torch, *[pair.theirs for pair in pairs])
        ours = attempt(function, Tensor, *[pair.ours for pair in pairs])
        self.steps.append(told)
        if isinstance(theirs, Exception) or isinstance(ours, Exception):
            if is_fault(ours, theirs):
                self.refusals.append(f"{told}: ours {ours!r}, PyTorch's {theirs!r}")
            return
        if theirs.numel() <= MOST_ELEMENTS:
            self.pairs.append(Pair(ours, theirs, error, scale, sign_of_zero))

    def unary(self, pair):
        names = ["neg", "abs", "relu", "sign", "square", "isnan", "isinf", "logical_not"]
        names += ["floor", "ceil", "trunc", "round", "clamp", "not"]
        if pair.sign_of_zero:
            names.append("reciprocal")
        name = self.pick(names)
        low, high = sorted([self.integer(0, 3), self.integer(0, 3)])
        if name == "clamp":
            bounds = self.pick([(low, high), (low, None), (None, high), (0.5, 2.5)])
            self.add(f"clamp{bounds}", lambda _, x: x.clamp(*bounds), pair, sign_of_zero=False)
        elif name == "not":
            self.add("~", lambda _, x: ~x, pair)
        else:
            self.add(name, lambda _, x: getattr(x, name)(), pair, sign_of_zero=name != "relu")

    def binary(self, pair):
        other = self.pick(self.pairs) if self.chance(0.6) else self.partner(pair)
        if other.error:
            return
        table = {
            **{sign: lambda _, x, y, f=f: f(x, y) for sign, f in OPERATORS.items()},
            "maximum": lambda m, x, y: m.maximum(x, y),
            "minimum": lambda m, x, y: m.minimum(x, y),
            "where": lambda _, x, y: x.where(x == x, y),
            "where >": lambda m, x, y: choose(m, x > y, y, x),
        }
        whole = not pair.is_float and not other.is_float
        divided_as = torch.result_type(pair.theirs, other.theirs)
        if whole and bool((other.theirs.to(divided_as) != 0).all()):
            table["//"] = lambda _, x, y: x // y
            table["%"] = lambda _, x, y: x % y
        if whole and "bool" not in (pair.name, other.name):
            bits = min(torch.iinfo(each.theirs.dtype).bits for each in (pair, other))
            if bool(((other.values >= 0) & (other.values < bits)).all()):
                table["<<"] = lambda _, x, y: x << y
                table[">>"] = lambda _, x, y: x >> y
        if pair.sign_of_zero and other.sign_of_zero:
            table["/"] = lambda _, x, y: x / y
        name = self.pick(list(table))
        if self.chance(0.25) and name in NUMBERS:
            number = self.pick(NUMBERS[name])
            if number >= 0 or pair.name != "uint8":  # PyTorch wraps -1, this package refuses it
                self.add(f"{name} {number}", lambda m, x: table[name](m, x, number), pair)
            return
        ordered = name not in ("maximum", "minimum")
        self.add(name, table[name], pair, other, sign_of_zero=ordered)

    def partner(self, pair):
        """A fresh leaf whose shape broadcasts with a pair's."""
        shape = [1 if self.chance(0.3) else extent for extent in pair.theirs.shape]
        return self.leaf(tuple(shape[self.integer(0, len(shape)) :]))

    def view(self, pair):
        ndim = pair.ndim
        axes = [self.integer(-ndim, ndim - 1) if ndim else -1 for _ in range(2)]
        shape = [*pair.theirs.shape]
        order = self.rng.permutation(ndim).tolist()
        wider = [self.pick([2, 3]) if extent == 1 and self.chance(0.7) else -1 for extent in shape]
        wider = [self.pick([1, 2])] * self.integer(0, 1) + wider
        borders = [self.integer(-2, 2) for _ in range(2 * self.integer(0, ndim))]
        flipped = [axis for axis in range(ndim) if self.chance(0.5)]
        folded = self.regrouped(shape)
        squeezed = axes[: self.integer(0, 1)]
        value = self.pick([0, 1, 2.5, -0.0]) if pair.is_float else 1
        table = {
            "permute": lambda _, x: x.permute(*order),
            "transpose": lambda _, x: x.transpose(*axes),
            "reshape": lambda _, x: x.reshape(*folded),
            "flatten": lambda _, x: x.flatten(*sorted(axis % max(ndim, 1) for axis in axes)),
            "squeeze": lambda _, x: x.squeeze(*squeezed),
            "unsqueeze": lambda _, x: x.unsqueeze(axes[0]),
            "expand": lambda _, x: x.expand(*wider),
            "flip": lambda _, x: x.flip(flipped),
            "pad": lambda m, x: pad(m, x, borders, value),
        }
        name = self.pick(list(table))
        details = {
            "permute": order,
            "transpose": axes,
            "reshape": folded,
            "flatten": axes,
            "squeeze": squeezed,
            "unsqueeze": axes,
            "expand": wider,
            "flip": flipped,
            "pad": (borders, value),
        }
        self.add(f"{name} {details[name]}", table[name], pair)

    def regrouped(self, shape):
        count = math.prod(shape)
        folded = []
        for factor in (2, 3, 5):
            if count and count % factor == 0 and self.chance(0.5):
                folded.append(factor)
                count //= factor
        folded.append(-1 if count and self.chance(0.5) else count)
        self.rng.shuffle(folded)
        return folded

    def part(self, pair):
        index = []
        for extent in pair.theirs.shape:
            bounds = [self.pick([None, self.integer(-extent - 1, extent + 1)]) for _ in range(2)]
            entry = self.pick([slice(*bounds, self.integer(1, 3)), slice(None), slice(None)])
            if extent and self.chance(0.2):
                entry = self.integer(-extent, extent - 1)
            index.append(entry)
        if self.chance(0.3):
            index.insert(self.integer(0, len(index)), None)
        if self.chance(0.2):
            index = [*index[: self.integer(0, len(index))], Ellipsis]
        self.add(f"[{index}]", lambda _, x: x[tuple(index)], pair)

    def join(self, pair):
        axis = self.integer(-pair.ndim, pair.ndim - 1) if pair.ndim else 0
        other = self.pick(self.pairs) if self.chance(0.3) else pair
        if self.chance(0.5) and pair.ndim and not pair.error:
            shape = [*pair.theirs.shape]
            shape[axis] = self.pick(EXTENTS)
            other = self.leaf(tuple(shape))
        parts = self.pick([(0, 1), (1, 0), (0, 1, 0), (0,)])
        name = self.pick(["cat", "stack"])
        self.add(
            f"{name} {parts} along {axis}",
            lambda m, *xs: getattr(m, name)([xs[part] for part in parts], dim=axis),
            pair,
            other,
        )

    def cast(self, pair):
        name = self.pick(NAMES)
        if pair.error and name not in FLOATS:
            return
        if pair.is_float and name in INTEGERS:
            low, high = torch.iinfo(getattr(torch, name)).min, torch.iinfo(getattr(torch, name)).max
            if not bool(((pair.values > low - 1.0) & (pair.values < high * (1 - 2**-20))).all()):
                return
        error = max(pair.error, torch.finfo(getattr(torch, name)).eps) if pair.error else 0.0
        self.add(
            f"cast {name}",
            lambda m, x: x.to(getattr(dtypes if m is Tensor else torch, name)),
            pair,
            error=error,
        )

    def fold(self, pair):
        keep = self.chance(0.5)
        axes = self.rng.permutation(max(pair.ndim, 1))[: self.integer(1, 3)].tolist()
        if pair.ndim == 0:
            axes = [0]
        one = axes[0] - self.integer(0, 1) * max(pair.ndim, 1)
        several = {"amax", "amin", "any", "all"} | ({"sum"} if pair.is_summable else set())
        positions = {"argmax", "argmin", "max", "min", "max at", "min at"}
        name = self.pick(sorted(several | positions))
        zeros = name in ("any", "all") or name in positions
        if name in several:
            dim = self.pick([axes, one])
            self.add(
                f"{name} {dim} {keep}",
                lambda _, x: getattr(x, name)(dim, keepdim=keep),
                pair,
                sign_of_zero=zeros,
            )
        elif name.startswith("arg"):
            dim = self.pick([one, None])
            self.add(f"{name} {dim} {keep}", lambda _, x: getattr(x, name)(dim, keepdim=keep), pair)
        else:
            field = "indices" if name.endswith("at") else "values"
            self.add(
                f"{name} {one} {keep}",
                lambda _, x: getattr(getattr(x, name[:3])(one, keepdim=keep), field),
                pair,
                sign_of_zero=field == "indices",
            )

    def product(self, pair):
        if not pair.is_summable or pair.name == "bool":
            return
        other = self.pick(self.pairs)
        if self.chance(0.8) and pair.ndim:
            inner = pair.theirs.shape[-1]
            batch = [1 if self.chance(0.4) else extent for extent in pair.theirs.shape[:-2]]
            shapes = [(inner,), (inner, self.pick(EXTENTS)), (*batch, inner, self.pick(EXTENTS))]
            other = self.leaf(self.pick(shapes), pair.name)
        if other.is_summable and other.name == pair.name:
            self.add("@", lambda _, x, y: x @ y, pair, other, sign_of_zero=False)

    def inexact(self, pair):
        name = self.pick(
            [
                "exp",
                "tanh",
                "sigmoid",
                "erf",
                "log",
                "sin",
                "silu",
                "gelu",
                "softmax",
                "log_softmax",
                "logsumexp",
                "mean",
                "var",
                "std",
                "rsqrt",
                "sqrt",
            ]
        )
        finite = pair.values[pair.values.isfinite()].abs()
        largest = float(finite.max()) if finite.numel() else 0.0
        if largest > 100 or not pair.sign_of_zero:
            return
        if name == "gelu" and finite.numel() < pair.values.numel():
            return  # PyTorch's depends on whether the element falls into a vector
        arguments = ()
        if name in ("softmax", "log_softmax", "logsumexp", "mean", "var", "std"):
            arguments = (self.integer(-pair.ndim, pair.ndim - 1) if pair.ndim else 0,)
        count = max(pair.theirs.numel(), 1)
        dtype = pair.theirs.dtype if pair.is_float else torch.float32
        computing = torch.promote_types(dtype, torch.float32)
        error = torch.finfo(dtype).eps + (16 + count) * torch.finfo(computing).eps
        gelu = torch.nn.functional.gelu
        silu = torch.nn.functional.silu

        def function(module, x):
            if module is torch and name in ("gelu", "silu"):
                return {"gelu": gelu, "silu": silu}[name](x)
            return getattr(x, name)(*arguments)

        scale = max(largest, 1.0) ** (2 if name == "var" else 1)
        self.add(f"{name} {arguments}", function, pair, error=error, scale=scale)


def choose(module, condition, x, y):
    return x.where(condition, y) if module is Tensor else torch.where(condition, x, y)


def pad(module, x, borders, value):
    if module is Tensor:
        return x.pad(borders, value=value)
    return torch.nn.functional.pad(x, borders, value=value)


def attempt(function, module, *operands):
    try:
        return function(module, *operands)
    except REFUSALS as error:
        return error


def is_fault(ours, theirs):
    """Whether one side refuses what the other takes, or ours does so without a sentence.

    PyTorch lacks kernels for some dtypes, and looks at the dtypes of operands only where there are
    elements.
    """
    if isinstance(ours, Exception) and not str(ours).endswith("."):
        return True
    if not isinstance(theirs, Exception):
        return isinstance(ours, Exception) and theirs.numel() > 0
    lacking = ("does not support bool", "missing 1 required positional")
    lacks = isinstance(theirs, NotImplementedError) or any(each in str(theirs) for each in lacking)
    return not isinstance(ours, Exception) and not lacks


def assert_same(pair):
    result = pair.ours.numpy()
    assert (pair.ours.dtype.name, pair.ours.shape) == (pair.name, tuple(pair.theirs.shape))
    theirs = pair.theirs.float() if pair.name == "bfloat16" else pair.theirs
    expected = theirs.numpy()
    if not pair.error:
        np.testing.assert_array_equal(result, expected)
        if pair.is_float and pair.sign_of_zero:
            same = np.signbit(result) == np.signbit(expected)
            assert (same | np.isnan(expected)).all(), "the signs of zeros differ"
        return
    least = 2.0**-24 if pair.name == "float16" else 0.0
    atol = pair.error * pair.scale + least
    np.testing.assert_allclose(
        result.astype(np.float64), expected.astype(np.float64), rtol=pair.error, atol=atol
    )


def check(seed, device, fuse):
    with config(fuse=fuse):
        program = TorchProgram(seed, device)
        first, *rest = [pair.ours for pair in program.pairs]
        first.realize(*rest)

    print(f"seed {seed}:", *program.steps, sep="\n  ")
    assert not program.refusals
    for pair in program.pairs:
        assert_same(pair)


@pytest.mark.parametrize("first", range(0, IN_THE_SUITE, 10))
def test_programs_agree_with_torch(first):
    for seed in range(first, first + 10):
        check(seed, "PYTHON", 3)
        if seed % 4 == 0:
            check(seed, "CPU", seed % 16 // 4)


@pytest.mark.fuzz
@pytest.mark.parametrize("device", ["CPU", "PYTHON"])
@pytest.mark.parametrize("first", range(IN_THE_SUITE, ALL, 100))
def test_many_programs_agree_with_torch(first, device):
    for seed in range(first, first + 100):
        check(seed, device, seed % 4)
