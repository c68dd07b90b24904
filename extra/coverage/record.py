"""Describes an operator by examples that are written once and run by both libraries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

Shape = tuple[int, ...]
Library = Any  # tinytensor, or PyTorch as it is installed
Result = Any  # of an operator of either library: a tensor, several, a Python value
Call = Callable[..., Any]  # (library, *tensors) -> a tensor, several of them or a Python value

FLOATS = ("float16", "bfloat16", "float32", "float64")
DTYPES = ("bool", "uint8", "int8", "int16", "int32", "int64", *FLOATS)
ONE_OPERAND = "one operand"
FIXED_SHAPES = "fixed shapes"
INTEGER_RESULT = "no float result"


@dataclass(frozen=True)
class Operand:
    """One tensor of an example: its shape, how its values are made, and its dtype unless swept."""

    shape: Shape
    values: str = "any"
    dtype: str = ""

    @classmethod
    def parse(cls, text: str) -> Operand:
        """Read an operand such as '3 4', '2 3 positive' or '4 below3 int64'."""
        words = text.split()
        shape = tuple([int(word) for word in words if word.isdigit()])
        dtype = next((word for word in words if word in DTYPES), "")
        left = [word for word in words if not word.isdigit() and word != dtype]
        return cls(shape, left[0] if left else "any", dtype)


@dataclass(frozen=True)
class Example:
    """Operands, and what is called with them: the record's own function unless `call` is given."""

    operands: tuple[Operand, ...]
    arguments: tuple[Any, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    call: Call | None = None

    def reshaped(self, shapes: Sequence[Shape]) -> Example:
        """Return the same call of operands of other shapes."""
        pairs = zip(self.operands, shapes, strict=True)
        return replace(self, operands=tuple([replace(each, shape=shape) for each, shape in pairs]))

    def emptied(self) -> Example:
        """Return the same call of operands whose first axes are empty."""
        return self.reshaped([(0, *each.shape[1:]) for each in self.operands])

    def without_axes(self) -> Example:
        """Return the same call of 0-d operands, along their only dim."""
        options = {
            name: -1 if name == "dim" and isinstance(value, int) else value
            for name, value in self.options.items()
        }
        return replace(self.reshaped([()] * len(self.operands)), options=options)


@dataclass(frozen=True)
class Tolerance:
    """How far a float result may be from the exact one.

    `roundings` counts those of the computing dtype between the operands and the result; with
    `terms` there are as many more, which a sum in any order may add. Each moves the result by half
    an epsilon of what `scale` names: 'value', the element itself; 'magnitudes', the same call of
    the operands' magnitudes; 'largest', the largest element. Without roundings it is bits; without
    `signs` those of 0 may differ. Halves compute in float32 and round once more at the end, and
    `half_roundings` times before.
    """

    roundings: int = 0
    terms: int = 0
    scale: str = "value"
    half_roundings: int = 0
    signs: bool = True


TITLES = {"__getitem__": "x[..]", "__setitem__": "x[..] = y"}
EXACT = Tolerance()
UNSIGNED = Tolerance(signs=False)  # -0.0 is below 0.0, as in IEEE 754-2019


def function(ulp: float) -> Tolerance:
    """Return the tolerance of a function that docs/numerics.md promises within some ulp."""
    return Tolerance(round(2 * ulp + 0.5))


def reassociated(terms: int, roundings: int = 2) -> Tolerance:
    """Return the tolerance of a sum of so many terms, in any order."""
    return Tolerance(roundings, 2 * terms, "magnitudes")


def composed(roundings: int, half_roundings: int = 0) -> Tolerance:
    """Return the tolerance of a formula in which the largest element may cancel."""
    return Tolerance(roundings, 0, "largest", half_roundings)


@dataclass(frozen=True)
class Record:
    """All that is known of one operator before it is run.

    An aspect is a tuple of examples, or a sentence that says why it does not apply; `empty` and
    `zero_dim` are derived from the first example unless given. `path` finds the function in a
    library: 'Tensor.exp', 'nn.functional.softplus', 'einsum'. `slope_error` is the relative error
    of PyTorch's own gradient in float64. One that `is_wider` may take dtypes for which PyTorch has
    no kernel on the CPU.
    """

    path: str
    examples: tuple[Example, ...]
    tolerance: Tolerance = EXACT
    gradient: str = ""
    broadcast: tuple[Example, ...] | str = ONE_OPERAND
    empty: tuple[Example, ...] | str = ()
    zero_dim: tuple[Example, ...] | str = ()
    layouts: str = ""
    note: str = ""
    slope_error: float = 0.0
    is_wider: bool = False

    @property
    def name(self) -> str:
        """The operator's name without the class or module that holds it."""
        bare = self.path.removeprefix("Tensor.").removeprefix("nn.functional.")
        return TITLES.get(bare, bare)

    @property
    def is_in_place(self) -> bool:
        """Whether the function changes its first operand and returns it."""
        return self.name.endswith("_")


def on(
    *operands: str,
    arguments: Sequence[Any] = (),
    call: Call | None = None,
    **options: Result,
) -> Example:
    """Return an example on operands given as text."""
    return Example(tuple(map(Operand.parse, operands)), tuple(arguments), options, call)


def resolve(library: Library, path: str) -> Library:
    """Return what a library holds under a dotted path; None if it lacks it."""
    found = library
    for name in path.split("."):
        found = getattr(found, name, None)
    return found


def invoke(library: Library, record: Record, example: Example, tensors: Sequence[Any]) -> Result:
    """Call a record's function in one library."""
    if example.call is not None:
        return example.call(library, *tensors)
    if record.is_in_place:
        return written(record.name, *tensors, *example.arguments, **example.options)
    function = resolve(library, record.path)
    return function(*tensors, *example.arguments, **example.options)


def written(name: str, x: Result, *arguments: Result, **options: Result) -> Result:
    """Call a method; one in place on a view of a copy, to return the copy that it changed."""
    if not name.endswith("_"):
        return getattr(x, name)(*arguments, **options)
    copy = x.clone()
    view = copy[...]
    if getattr(view, name)(*arguments, **options) is not view:
        raise AssertionError(f"{name}: the result is not the tensor itself")
    return copy
