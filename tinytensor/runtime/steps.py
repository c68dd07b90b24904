"""Turns many kernels into one function of the host: C that runs them in order by a table."""

from __future__ import annotations

import ctypes
import functools
import os
import struct
from array import array
from collections.abc import Iterable, Sequence
from typing import Any

from tinytensor.ops.program import Program
from tinytensor.records import dataclass
from tinytensor.runtime.buffer import Shelf

SOURCE = os.path.join(os.path.dirname(__file__), "steps.c")
make_builtin = ctypes.pythonapi.PyCFunction_NewEx
make_builtin.restype = ctypes.py_object
make_builtin.argtypes = [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p]
make_method = ctypes.pythonapi.PyDescr_NewMethod
make_method.restype = ctypes.py_object
make_method.argtypes = [ctypes.py_object, ctypes.c_void_p]
address_of = ctypes.pythonapi.PyBytes_AsString
address_of.restype = ctypes.c_void_p
address_of.argtypes = [ctypes.py_object]
WORD_BYTES = 8
HEAD_WORDS = 2  # of an object, before its slots
HAS_PLAIN_OBJECTS = object.__basicsize__ == HEAD_WORDS * WORD_BYTES  # so that C knows its way
NOTHING = 0  # the base that is no address: what is added to it is a number


def read_runner(source: str = SOURCE) -> Program:
    """Return the program whose step is no function, but the record of one that Python calls.

    It is the method of a table, and takes the bases.
    """
    with open(source, encoding="utf-8") as file:
        return Program("runner", file.read(), 0, 0)


@dataclass(frozen=True, slots=True)
class Words:
    """What a C function takes as words: for each a base, by number, and what is added to it."""

    function: int
    given: tuple[tuple[int, int], ...]


class Table(bytes):
    """What the runner reads; it holds the `works` whose code it runs."""

    works: Sequence[object] = ()


def write_table(steps: Sequence[Words], bases: int, works: Sequence[Any]) -> Table:
    """Write what the runner reads: how many bases there are, and the steps in order."""
    is_long = any(each.is_long for each in works)
    most = max(len(each.given) for each in steps)
    table = [bases, is_long, most, len(steps)]
    for each in steps:
        table += [each.function, len(each.given)]
        table += [word for pair in each.given for word in pair]
    return words_table(table, *works)


@dataclass(frozen=True, slots=True)
class Part:
    """What a call takes or makes: the address of a block of a shelf, or an object of a class.

    It is `like` an object; where later parts are like objects that hold that, they hold this.
    """

    source: Shelf | type
    like: object


@dataclass(frozen=True, slots=True)
class WholeCall:
    """What C checks, takes, makes and gives in a call, as its struct of that name tells.

    It reads `slots` of classes, by name. The words of `rows` point to what `keeps` holds.
    """

    slots: Sequence[tuple[type, str]]
    objects: Sequence[object]
    counts: Sequence[int]
    rows: Sequence[Table]
    keeps: object


def write_call(call: WholeCall) -> Table:
    """Write what C reads of a call."""
    found = [*[place_of(*each) for each in call.slots], *map(id, call.objects), *call.counts]
    return words_table([*found, *map(address_of, call.rows)], call)


def write_parts(parts: Sequence[Part], likes: Sequence[object]) -> Table:
    """Write what C reads of parts, whose slots hold what is like one of several objects."""
    held: list[Table] = []
    places = [id(each) for each in likes]
    words = [_words_of_part(each, places, held) for each in parts]
    return words_table([word for each in words for word in each], parts, *held)


def _words_of_part(part: Part, likes: Sequence[int], held: list[Table]) -> list[int]:
    if isinstance(part.source, Shelf):
        return [address_of(part.source), 0, 0]
    words = ctypes.c_size_t * (part.source.__basicsize__ // WORD_BYTES)
    slots = list(words.from_address(id(part.like)))[HEAD_WORDS:]
    held.append(words_table([1 + likes.index(each) if each in likes else each for each in slots]))
    return [id(part.source), len(slots), address_of(held[-1])]


def words_table(words: Sequence[int], *works: object) -> Table:
    """Return words that C reads; they hold what they point to."""
    table = Table(array("Q", words).tobytes())
    table.works = works
    return table


@functools.cache
def place_of(kind: type, name: str) -> int:
    """Return the number of the slot in which objects of a class keep an attribute."""
    mark = object()
    holder: object = object.__new__(kind)
    setattr(holder, name, mark)
    words = ctypes.c_size_t * (kind.__basicsize__ // WORD_BYTES)
    return list(words.from_address(id(holder))).index(id(mark)) - HEAD_WORDS


def words_of(scalars: Iterable[float], kinds: str) -> list[tuple[int, int]]:
    """Return the words of numbers of their kinds, each an int64 (q) or a float64 (d)."""
    pairs = zip(scalars, kinds, strict=True)
    packed = [struct.pack(f"={kind}", int(n) if kind == "q" else n) for n, kind in pairs]
    return [(NOTHING, int.from_bytes(each, "little")) for each in packed]
