"""Says in words of the host's C what arguments have to be, and what a function reads outside."""

from __future__ import annotations

from typing import Any

from tinytensor.jit.facts import DEPTH, MOST_PARTS, depth_inside, parts_outside
from tinytensor.jit.structure import PLAIN, parts_of
from tinytensor.records import dataclass
from tinytensor.runtime.steps import Table, address_of, words_table
from tinytensor.tensor.base import TensorBase
from tinytensor.tracing import Watch

LOOKS = ("tensor", "same", "equal", "real", "list", "tuple", "dict", "variables")  # as in C


class Opaque(Exception):
    """C does not know how to look into something."""


@dataclass(frozen=True, slots=True)
class Given:
    """The arguments of a call: what C compares of them, how many there are, the last ones' names.

    So many `tensors` are in them.
    """

    demands: Table
    count: int
    tensors: int
    names: tuple[str, ...]


def demands_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Given | None:
    """Return what C compares of arguments; None where it does not know how."""
    values = [*args, *kwargs.values()]
    demands = _Demands()
    try:
        for each in values:
            demands.add(each, 1, is_outside=False)
    except Opaque:
        return None
    table = words_table(demands.words, demands.held)
    return Given(table, len(values), demands.tensors, tuple(kwargs))


def watch_words(watch: Watch) -> tuple[list[int], Table]:
    """Return what C reads of a watch, and what that points to."""
    demands = _Demands()
    place = watch.place
    try:
        if place is not None:
            demands.add(place.read(), DEPTH, is_outside=True)
        is_known = place is not None and watch.read() == watch.known
    except Opaque:
        is_known = False
    table = words_table(demands.words, demands.held)
    holder, name = (0, 0) if place is None else (id(place.holder), word_of(place.name))
    found = [holder, name, id(watch.read), id(watch.known)]
    return [*found, address_of(table) if is_known else 0], table


def word_of(value: object) -> int:
    """Return what points to an object; 0 for None."""
    return 0 if value is None else id(value)


class _Demands:
    """Words for values, each before its parts, and the objects that they point to."""

    def __init__(self) -> None:
        self.words: list[int] = []
        self.held: list[object] = []
        self.tensors = 0

    def add(self, value: object, depth: int, is_outside: bool) -> None:
        """Add a value; one that is outside is known by itself, but for plain ones."""
        is_nest = isinstance(value, (list, tuple, dict))
        parts = parts_outside(value) if depth and (is_nest or is_outside) else None
        kind = type(value)
        if not is_outside and isinstance(value, TensorBase):
            self._add_words("tensor", value, None, 0)
            self.tensors += 1
        elif parts is None:
            if not is_outside and parts_of(value) is not None:
                raise Opaque
            look = "real" if kind is float else "equal" if kind in PLAIN else "same"
            self._add_words(look, value, value, 0)
        else:
            if is_outside and len(parts) > MOST_PARTS:
                raise Opaque
            known = value if is_outside else None
            self._add_words(_look_of(value, is_nest), value, known, len(parts))
            inside = depth_inside(depth, parts) if is_outside else depth
            for each in parts:
                self.add(each, inside, is_outside)

    def _add_words(self, look: str, value: object, known: object, parts: int) -> None:
        kind = type(value)
        self.held += [kind, known]
        self.words += [id(kind), word_of(known), LOOKS.index(look), parts]


def _look_of(value: object, is_nest: bool) -> str:
    kind: Any = type(value)  # Any: called in one of the ways below
    if not is_nest:
        return "variables"
    if kind in (list, dict):
        return str(kind.__name__)
    if kind.__iter__ is not tuple.__iter__:
        raise Opaque
    return "tuple"
