"""Turns the failure of a call into a sentence about the argument that its signature does not take.

Nothing is looked at before a call: whoever gives a number in the place of a Tensor is told so once
that has failed, so that a call that succeeds pays for no check.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from functools import wraps
from types import FunctionType
from typing import Any, Final

import numpy as np

from tinytensor.dtype import DType, dtypes
from tinytensor.ops.size import Size
from tinytensor.records import dataclass
from tinytensor.tensor.base import TensorBase
from tinytensor.tensor.operands import is_number

Value = Any  # whatever a user gives
Function = Callable[..., Any]  # whatever it takes and gives


@dataclass(frozen=True, slots=True)
class Kind:
    """What an annotation takes, and what one and several of it are called."""

    one: str
    several: str
    has: Callable[[Value], bool]


def is_integer(value: Value) -> bool:
    """Tell whether a value is an integer; none is read for that."""
    if isinstance(value, TensorBase):
        return value.dtype.is_int and value.ndim == 0
    return isinstance(value, (int, np.integer, Size))


def is_real(value: Value) -> bool:
    """Tell whether a value is a number; none is read for that."""
    return is_number(value) or (isinstance(value, TensorBase) and value.ndim == 0)


KINDS: Final = {
    "Tensor": Kind("a Tensor", "Tensors", lambda value: isinstance(value, TensorBase)),
    "float": Kind("a number", "numbers", is_real),
    "int": Kind("an integer", "integers", is_integer),
    "str": Kind("a string", "strings", lambda value: isinstance(value, str)),
    "DType": Kind("a dtype", "dtypes", lambda value: isinstance(value, DType)),
    "None": Kind("None", "None", lambda value: value is None),
}
ANYTHING: Final = Kind("what it takes", "what it takes", lambda value: True)
# What annotations are short for.
SHORT: Final = {
    **dict.fromkeys(["TensorBase", "Self", "T", "M", "Movement", "Arranging"], "Tensor"),
    **{"Operand": "Tensor | float", "Number": "float"},
    **dict.fromkeys(["Sizes", "Each"], "int | Sequence[int]"),
    **{"Dims": "int | Sequence[int] | None"},
}
# The operands of operators are told by `align`, and what is true is no matter of type.
TOLD: Final = {"Operand", "bool", "Any"}
# What Python calls so are dtypes as well, and NumPy's names of options are taken, too.
PYTHON_DTYPES: Final = {float: dtypes.float64, int: dtypes.int64, bool: dtypes.bool}
NUMPY_NAMES: Final = {"axis": "dim", "keepdims": "keepdim"}
OPERATORS: Final = {"__init__", "__matmul__", "__setitem__"}
OF_OBJECTS: Final = {"init", "forward"}


def kinds_of(annotation: str) -> list[Kind]:
    """Return the kinds that an annotation joins by `|`."""
    parts = re.split(r" \| (?![^\[]*\])", annotation)
    return [kind_of(each) for part in parts for each in SHORT.get(part, part).split(" | ")]


def kind_of(annotation: str) -> Kind:
    """Return the kind of one annotation."""
    inner = re.fullmatch(r"Sequence\[(.*)\]", annotation)
    if inner is None:
        return KINDS.get(annotation, ANYTHING)
    kinds = kinds_of(inner[1])
    several = " or ".join([each.several for each in kinds])

    def has(value: Value) -> bool:
        is_listed = isinstance(value, Sequence) and not isinstance(value, (str, bytes))
        return is_listed and all(is_of(kinds, each) for each in value)

    return Kind(f"a sequence of {several}", "sequences", has)


def is_of(kinds: list[Kind], value: Value) -> bool:
    """Tell whether a value is of one of some kinds."""
    return any(each.has(value) for each in kinds)


def described(value: Value, is_inside: bool = False) -> str:
    """Write a value after its type, and a Tensor's shape alone: its values may not be there."""
    if isinstance(value, type):
        return f"type {value.__name__}"
    name, shape = type(value).__name__, getattr(value, "shape", None)
    if isinstance(value, (list, tuple)):
        return f"{name} [{', '.join([described(each, True) for each in value[:4]])}]"
    if isinstance(value, (bool, int, float, complex, str, bytes)):
        return f"{value!r:.40}" if is_inside else f"{name} {value!r:.40}"
    return "None" if value is None else name if shape is None else f"{name} {shape}"


def complaint(who: str, signature: inspect.Signature, given: inspect.BoundArguments) -> str | None:
    """Return the sentence about the first argument that is not what is annotated."""
    for name, value in given.arguments.items():
        parameter = signature.parameters[name]
        kinds = kinds_of(str(parameter.annotation))
        is_many = parameter.kind is parameter.VAR_POSITIONAL
        for each in value if is_many else (value,):
            if not is_of(kinds, each):
                *most, last = [kind.one for kind in kinds]
                required = f"{', '.join(most)} or {last}" if most else last
                return f"{who}: {name} cannot be this: {described(each)}; it must be {required}."
    return None


def as_dtype(value: Value) -> Value:
    """Return the dtype that a type of Python stands for, and any other value as it is."""
    return PYTHON_DTYPES.get(value, value) if isinstance(value, type) else value


def explained(function: Function) -> Function:
    """Return a function that names the argument for which it fails, if it is of no annotated kind.

    Python's float, int and bool are dtypes, and NumPy's axis and keepdims options, as in PyTorch.
    """

    @wraps(function)
    def call(*args: Value, **options: Value) -> Value:
        try:
            return function(*args, **options)
        except Exception:
            signature = inspect.signature(function)
            known = {old: new for old, new in NUMPY_NAMES.items() if new in signature.parameters}
            named = {known.get(name, name): value for name, value in options.items()}
            types = [each for each in (*args, *options.values()) if isinstance(each, type)]
            is_other = PYTHON_DTYPES.keys() & types or named.keys() != options.keys()
            if is_other and len(named) == len(options):
                return call(*map(as_dtype, args), **{n: as_dtype(v) for n, v in named.items()})
            who = function.__name__.removeprefix("__").removesuffix("__")
            teller = type(args[0]).__name__ if who in OF_OBJECTS else who
            try:
                given = signature.bind(*args, **options)
            except TypeError as mismatch:
                taken = ", ".join([each for each in signature.parameters if each != "self"])
                sentence = f"{teller}: the arguments do not fit: {mismatch}"
                raise TypeError(f"{sentence}; they must be {taken}.") from None
            found = complaint(teller, signature, given)
            if found is None:
                raise
            raise TypeError(found) from None

    return call


def explain_methods(kind: type, bases: Sequence[type]) -> None:
    """Let the methods that a class has of some bases tell which argument is of another kind.

    A later base counts more. Looking each name up in the class would take 100 ms.
    """
    methods = {name: method for base in bases for name, method in vars(base).items()}
    for name, method in methods.items():
        function = getattr(method, "__func__", method)
        if (name.startswith("_") and name not in OPERATORS) or not takes_kinds(function):
            continue
        told = explained(function)
        setattr(kind, name, classmethod(told) if isinstance(method, classmethod) else told)


def explain_functions(scope: dict[str, Any]) -> list[str]:
    """Let the functions of a file tell the same; return the names of all but this one."""
    functions = {name: each for name, each in scope.items() if isinstance(each, FunctionType)}
    functions.pop(explain_functions.__name__)
    scope |= {name: explained(each) for name, each in functions.items() if takes_kinds(each)}
    return sorted(functions)


def takes_kinds(function: object) -> bool:
    """Tell whether some argument of a function has to be of a kind."""
    if not isinstance(function, FunctionType):
        return False
    asked = {each for name, each in function.__annotations__.items() if name != "return"}
    return bool(asked - TOLD) and "Any" not in asked
