"""Turns many kernels into one function of the host: C that runs them in order by a table."""

from __future__ import annotations

import ctypes
import functools
import os
import struct
from array import array
from collections.abc import Callable, Iterable, Sequence
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
    return _table(table, *works)


@dataclass(frozen=True, slots=True)
class Part:
    """What a call takes or makes: the address of a block of a shelf, or an object of a class.

    It is `like` an object; where later parts are like objects that hold that, they hold this.
    """

    source: Shelf | type
    like: object


@dataclass(frozen=True, slots=True)
class WholeCall:
    """What C checks, takes, makes and gives in a call.

    It reads `slots` of classes, by name. The arguments are tensors of `kinds`, whose cells have
    `specs`. Of the parts the first are `blocks`, the last `results`. Each base of the steps is an
    address, by its `order` among those of the arguments, of the blocks and of scratch memory.
    """

    slots: Sequence[tuple[type, str]]
    changes: object
    tally: object
    mode: object
    is_enabled: bool
    workspace: Callable[[], int] | None
    restock: Callable[[], bool]
    build: Callable[..., Any] | None  # Any: what the user's function returns
    kinds: Sequence[type]
    specs: Sequence[object]
    parts: Sequence[Part]
    blocks: int
    results: int
    order: Sequence[int]


def write_call(table: Table, call: WholeCall) -> Table:
    """Write what C reads of a call that runs the steps of a table."""
    pairs = zip(call.kinds, call.specs, strict=True)
    sources = _table([id(each) for pair in pairs for each in pair], call)
    likes = [id(each.like) for each in call.parts]
    slots: list[Table] = []
    words = [_words_of_part(each, likes, slots) for each in call.parts]
    parts = _table([word for each in words for word in each], call, *slots)
    order = _table(call.order, call)
    objects = [call.changes, call.tally, call.mode, call.is_enabled]
    objects += [call.workspace, call.restock, call.build]
    found = [address_of(table), *[place_of(*each) for each in call.slots], *map(id, objects)]
    found += [len(call.kinds), call.blocks, len(call.parts), call.results]
    found += [address_of(each) for each in (sources, parts, order)]
    return _table(found, table, sources, parts, order)


def _words_of_part(part: Part, likes: Sequence[int], held: list[Table]) -> list[int]:
    if isinstance(part.source, Shelf):
        return [address_of(part.source), 0, 0]
    words = ctypes.c_size_t * (part.source.__basicsize__ // WORD_BYTES)
    slots = list(words.from_address(id(part.like)))[HEAD_WORDS:]
    held.append(_table([1 + likes.index(each) if each in likes else each for each in slots]))
    return [id(part.source), len(slots), address_of(held[-1])]


def _table(words: Sequence[int], *works: object) -> Table:
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
