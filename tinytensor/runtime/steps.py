"""Turns many kernels into one function of the host: C that runs them in order by a table."""

from __future__ import annotations

import ctypes
import os
import struct
from array import array
from collections.abc import Iterable, Sequence

from tinytensor.ops.program import Program
from tinytensor.records import dataclass

SOURCE = os.path.join(os.path.dirname(__file__), "steps.c")
make_builtin = ctypes.pythonapi.PyCFunction_NewEx
make_builtin.restype = ctypes.py_object
make_builtin.argtypes = [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p]
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


def write_table(steps: Sequence[Words], bases: int, is_long: bool) -> Table:
    """Write what the runner reads: how many bases there are, and the steps in order."""
    most = max(len(each.given) for each in steps)
    table = array("Q", [bases, is_long, most, len(steps)])
    for each in steps:
        table.extend([each.function, len(each.given)])
        table.extend([word for pair in each.given for word in pair])
    return Table(table.tobytes())


def words_of(scalars: Iterable[float], kinds: str) -> list[tuple[int, int]]:
    """Return the words of numbers of their kinds, each an int64 (q) or a float64 (d)."""
    pairs = zip(scalars, kinds, strict=True)
    packed = [struct.pack(f"={kind}", int(n) if kind == "q" else n) for n, kind in pairs]
    return [(NOTHING, int.from_bytes(each, "little")) for each in packed]
