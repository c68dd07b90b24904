"""Says what a program relies on: its arguments, the settings, and what a function reads outside."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import zip_longest
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from tinytensor.config import config
from tinytensor.errors import PACKAGE
from tinytensor.jit.structure import Fact, Flat, fact_of, names_in
from tinytensor.nn.module import CHANGES, REGISTRIES, Module
from tinytensor.ops.op import Op
from tinytensor.tensor.base import TensorBase
from tinytensor.tensor.grad_mode import MODE
from tinytensor.tensor.view import chain
from tinytensor.tracing import Place, Trace

Function = Callable[..., Any]
CALLABLES = (FunctionType, MethodType, ModuleType)
DEPTH = 3  # how deep an object from outside is looked into, and how many parts are compared;
MOST_DEEP, MOST_PARTS = 100, 2000  # of more than the first number not what these hold
MODES = ("gradients", *vars(config))


def modes() -> tuple[Fact, ...]:
    """Return the settings that a program is made for, by the names in MODES."""
    return (MODE.get(), *vars(config).values())


def key_of(flat: Flat) -> tuple[Fact, ...]:
    """Return what programs are found by."""
    return (*modes(), *flat.facts, *tensor_facts(flat.tensors))


def names_of(
    parameters: Sequence[str], args: tuple[Any, ...], kwargs: dict[str, Any], flat: Flat
) -> list[str]:
    """Return the names of all facts of a key."""
    names = ["the number of arguments"]
    for place, value in enumerate(args):
        known = parameters[place] if place < len(parameters) else f"args[{place}]"
        names += names_in(value, known)
    names.append("the named arguments")
    for name, value in kwargs.items():
        names += names_in(value, name)
    places = [name for name, fact in zip(names, flat.facts, strict=True) if is_tensor(fact)]
    return [*MODES, *names, *[f"{place}.{aspect}" for place in places for aspect in ASPECTS]]


def is_tensor(fact: Fact) -> bool:
    """Tell whether a fact stands for a tensor."""
    return isinstance(fact, type) and issubclass(fact, TensorBase)


ASPECTS = ("shape", "dtype", "device", "alias", "view", "requires_grad", "has_grad")


def tensor_facts(tensors: list[TensorBase]) -> Iterator[Fact]:
    """Give what is compared of each tensor, by the names in ASPECTS."""
    cells: dict[Any, int] = {}
    identities: dict[int, int] = {}
    for tensor in tensors:
        cell = tensor.cell
        yield cell.uop.shape
        yield cell.uop.dtype
        yield tensor.device
        yield (
            cells.setdefault(cell, len(cells)),
            identities.setdefault(id(tensor), len(identities)),
        )
        yield _view_fact(tensor)
        yield _gradient_fact(tensor)
        yield tensor._grad is not None


def _view_fact(tensor: TensorBase) -> Fact:
    view = tensor._view
    if view is None:
        return None
    steps = [(each.op, each.attrs) for each in chain(view.expression) if each.op is not Op.DETACH]
    return (tuple(steps), view.shape, view.strides, view.offset)


def _gradient_fact(tensor: TensorBase) -> Fact:
    if tensor._view is None:
        return tensor.cell.uop.is_differentiable is True
    mark = tensor._mark
    return "leaf" if mark > 0 else "cut" if mark < 0 else "passes"


# What a function reads outside of its arguments.
def watch_outside(function: Function, trace: Trace) -> None:
    """Watch each global name and each variable of an outer function that a function reads."""
    waiting: list[object] = [function]
    seen: set[int] = set()
    watch_objects(trace, waiting)
    while waiting:
        value = waiting.pop()
        held = _held_by(value)
        watch_objects(trace, held)
        trace.kept += held
        waiting += held
        code_owner = _plain_function(value)
        if code_owner is None or id(code_owner) in seen:
            continue
        seen.add(id(code_owner))
        waiting += _watch_function(code_owner, trace)


def _held_by(value: object) -> list[object]:
    """Return what a method or a part of a call is bound to."""
    if isinstance(value, partial):
        return [value.func, *value.args, *value.keywords.values()]
    return [value.__self__] if isinstance(value, MethodType) else []


def _plain_function(value: object) -> FunctionType | None:
    """Return the Python function that a value calls, unless it belongs to this package."""
    kind: Any = type(value)  # Any: mypy misses the hash of a class
    if isinstance(value, Module):
        value = type(value).forward
    elif _is_of_user(kind) and callable(value):
        value = kind.__call__
    if isinstance(value, MethodType):
        value = value.__func__
    value = getattr(value, "__wrapped__", value)
    if not isinstance(value, FunctionType):
        return None
    origin = (value.__module__ or "").partition(".")[0]
    return None if origin == PACKAGE or origin in sys.stdlib_module_names else value


def _watch_function(function: FunctionType, trace: Trace) -> list[object]:
    """Watch what one function reads; return the values it found there."""
    found = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    watch_objects(trace, found)
    trace.kept += found
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        found += _watch_value(trace, (id(cell), name), name, Place(cell))
    space = function.__globals__
    for name in _global_names(function.__code__):
        if name in space:
            found += _watch_value(trace, (id(space), name), name, Place(space, name))
    return found


def _watch_value(trace: Trace, key: object, name: str, place: Place) -> list[object]:
    value = place.read()
    if isinstance(value, ModuleType):
        return []
    trace.watch(key, name, lambda: _deep_fact(place.read(), DEPTH, None), place)
    _deep_fact(value, DEPTH, trace.kept)
    return [value]


def watch_objects(trace: Trace, objects: list[object]) -> None:
    """Watch what arguments hold that are known by identity."""
    for value in objects:
        if parts_outside(value) is not None:
            _watch_value(trace, id(value), f"what {type(value).__name__} holds", Place(value))


def _deep_fact(value: object, depth: int, kept: list[object] | None) -> Fact:
    """Return what is compared of a value and of what it holds; keep what is known by identity."""
    if kept is not None:
        kept.append(value)
    parts = parts_outside(value) if depth else None
    if parts is None or len(parts) > MOST_PARTS:
        return fact_of(value)
    inside = depth_inside(depth, parts)
    return (type(value), id(value), [_deep_fact(each, inside, kept) for each in parts])


def depth_inside(depth: int, parts: Sequence[object]) -> int:
    """Return how many levels of some parts are looked into."""
    return depth - 1 if len(parts) <= MOST_DEEP else 0


def parts_outside(value: object) -> list[object] | None:
    """Return what a nest, or an object of a class of the user's, holds."""
    if isinstance(value, (list, tuple)):
        return list(value)
    kind: Any = type(value)  # Any: mypy misses the hash of a class
    is_looked_into = _is_of_user(kind) and hasattr(value, "__dict__")
    held: Any = value if isinstance(value, dict) else vars(value) if is_looked_into else None
    return None if held is None else [*held, *held.values()]


@lru_cache(maxsize=1024)  # asked at each call
def _is_of_user(kind: type) -> bool:
    """Whether objects of a class are looked into: it is the user's, and no module or function."""
    origin = kind.__module__.partition(".")[0]
    is_known = origin in (PACKAGE, "numpy") or origin in sys.stdlib_module_names
    return not (is_known or issubclass(kind, (type, Module, *CALLABLES)))


def _global_names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _global_names(each)


def watch_modules(trace: Trace, objects: list[object]) -> None:
    """Watch the attributes of each module that ran, or that is known, and of all inside."""
    known = (*objects, *trace.kept)
    used = [*trace.modules, *[each for each in known if isinstance(each, Module)]]
    modules = list(dict.fromkeys([inner for each in used for inner in each.modules()]))
    if modules:
        watch = _ModuleWatch(modules)
        trace.watch(Module, "an attribute of a module", watch.change)
        trace.kept += [value for _, value in watch.attributes()]


class _ModuleWatch:
    """Knows the attributes of modules, and looks at them again only where any module changed."""

    def __init__(self, modules: list[Module]) -> None:
        self._modules = modules
        self._known = self._facts()
        self._looked_at = CHANGES.count

    def change(self) -> str:
        """Return the name of the first attribute that is not as it was; empty if all are."""
        count = CHANGES.count
        if count == self._looked_at:
            return ""
        facts = self._facts()
        if facts != self._known:
            pairs = zip_longest(facts, self._known, fillvalue=("another attribute", None))
            return next(now[0] for now, then in pairs if now != then)
        self._looked_at = count
        return ""

    def _facts(self) -> list[tuple[str, Fact]]:
        return [(name, fact_of(value)) for name, value in self.attributes()]

    def attributes(self) -> Iterator[tuple[str, object]]:
        """Give the name and the value of each."""
        for module in self._modules:
            for held in (vars(module), *[vars(module)[each] for each in REGISTRIES]):
                yield from held.items()
