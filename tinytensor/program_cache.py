"""Turns a kernel into its program, reading what an earlier process made of the same kernel."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict
from functools import cache
from typing import TYPE_CHECKING, Any

from tinytensor.config import config
from tinytensor.errors import InternalError
from tinytensor.lazy import lazy_import
from tinytensor.ops.kernel import Kernel, Winner
from tinytensor.ops.program import LaunchShape, Program, TensorMap
from tinytensor.ops.text import show
from tinytensor.records import dataclass
from tinytensor.runtime.cache import open_cache
from tinytensor.target import Target
from tinytensor.timing import stage, timed

if TYPE_CHECKING:
    from tinytensor.codegen.lower import Lowered


Fields = dict[str, Any]  # Any: a JSON object
UNUSABLE = (ValueError, TypeError, LookupError, InternalError)
WINNERS = hashlib.sha256(b"winners").hexdigest()


@dataclass(frozen=True, slots=True)
class Made:
    """A kernel's program; `lowered` tells how it came about, unless it was read from the disk."""

    program: Program
    lowered: Lowered | None


@timed("lower: record")
def make_program(kernel: Kernel, target: Target, is_shown: bool, model: str = "") -> Made:
    """Return a kernel's program; with `is_shown` it is lowered anew, so that all can be told.

    The winner that was measured on the device of that model is taken, unless TT_TUNE=0.
    """
    store = open_cache()
    winner = None if config.tune == "0" else find_winner(kernel, target, model)
    key = key_of((_text_of(kernel), winner), target)
    record = None if is_shown else store.get_text(key)
    if record is not None:
        with suppress(*UNUSABLE):
            return Made(read_program(json.loads(record)), None)
    with stage("lower: import"):
        lower = lazy_import("tinytensor.codegen.lower", None, "realize").lower
    lowered: Lowered = lower(kernel, target, winner)
    store.put_text(key, json.dumps(asdict(lowered.program)))
    return Made(lowered.program, lowered)


def read_program(record: Fields) -> Program:
    """Return the program of a JSON object.

    Raises: one of UNUSABLE if it is another object.
    """
    launches = tuple([_read_launch(each) for each in record["launches"]])
    libraries = tuple(record["libraries"])
    return Program(**{**record, "launches": launches, "libraries": libraries})


def _read_launch(record: Fields) -> LaunchShape:
    maps = tuple([TensorMap(**_with_tuples(each)) for each in record["tensor_maps"]])
    return LaunchShape(**{**_with_tuples(record), "tensor_maps": maps})


def _with_tuples(record: Fields) -> Fields:
    """Return a record whose lists are tuples, as they were before it was written."""
    return {name: tuple(x) if isinstance(x, list) else x for name, x in record.items()}


def find_winner(kernel: Kernel, target: Target, model: str) -> Winner | None:
    """Return the fastest candidate that was measured on a device of that model, if any was."""
    record = open_cache().get_text(_hash((_text_of(kernel), model), target))
    with suppress(*UNUSABLE):
        return None if record is None else Winner(**json.loads(record))
    return None


def keep_winner(kernel: Kernel, target: Target, model: str, winner: Winner) -> None:
    """Store the fastest candidate, for this process and later ones."""
    key, text = _hash((_text_of(kernel), model), target), json.dumps(asdict(winner))
    open_cache().put_text(key, text)
    open_cache().put_text(WINNERS, _hash((winners_stamp(), key, text), target))


def winners_stamp() -> str:
    """Return what changes with each winner that is stored: plans made before it do not hold it."""
    return open_cache().get_text(WINNERS) or ""


def _text_of(kernel: Kernel) -> str:
    """Write all of a kernel that lowering depends on."""
    ranges = [each.attrs.number for each in kernel.ranges]
    parts = (show(kernel.sink), kernel.name, ranges, kernel.params, kernel.index_dtype)
    return "\0".join(map(repr, parts))


def key_of(parts: Iterable[object], target: Target) -> str:
    """Return the key of what depends on some parts, the target and this package."""
    return _hash((*parts, _package_stamp()), target)


def _hash(parts: Iterable[object], target: Target) -> str:
    facts = {**asdict(target), "features": sorted(target.features)}
    text = "\0".join(map(repr, (*parts, facts)))
    return hashlib.sha256(text.encode()).hexdigest()


@cache
def _package_stamp() -> str:
    """Describe the package's files by name, size and time of change."""
    facts: list[tuple[str, int, int]] = []
    waiting = [os.path.dirname(__file__)]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            found = list(entries)
        waiting += [each.path for each in found if "." not in each.name and each.is_dir()]
        sources = [(each.path, each.stat()) for each in found if each.name.endswith(".py")]
        facts += [(path, status.st_size, status.st_mtime_ns) for path, status in sources]
    return hashlib.sha256(repr(sorted(facts)).encode()).hexdigest()
