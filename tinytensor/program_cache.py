"""Turns a kernel into its program, reading what an earlier process made of the same kernel."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from tinytensor.lazy import lazy_import
from tinytensor.ops.kernel import Kernel
from tinytensor.ops.program import LaunchShape, Program, TensorMap
from tinytensor.ops.text import show
from tinytensor.runtime.cache import open_cache
from tinytensor.target import Target
from tinytensor.timing import stage, timed

if TYPE_CHECKING:
    from tinytensor.codegen.lower import Lowered


@dataclass(frozen=True, slots=True)
class Made:
    """A kernel's program; `lowered` tells how it came about, unless it was read from the disk."""

    program: Program
    lowered: Lowered | None


@timed("lower: record")
def make_program(kernel: Kernel, target: Target, is_shown: bool) -> Made:
    """Return a kernel's program; with `is_shown` it is lowered anew, so that all can be told."""
    store = open_cache()
    key = _key_of(kernel, target)
    record = None if is_shown else store.get_text(key)
    known = None if record is None else _read(record)
    if known is not None:
        return Made(known, None)
    with stage("lower: import"):
        lower = lazy_import("tinytensor.codegen.lower", None, "realize").lower
    lowered: Lowered = lower(kernel, target)
    store.put_text(key, json.dumps(asdict(lowered.program)))
    return Made(lowered.program, lowered)


def _read(record: str) -> Program | None:
    """Return the program that a record holds; None if it holds something else."""
    try:
        fields = json.loads(record)
        fields["libraries"] = tuple(fields["libraries"])
        fields["launches"] = tuple([_read_launch(each) for each in fields["launches"]])
        return Program(**fields)
    except (ValueError, TypeError, KeyError):
        return None


def _read_launch(fields: dict[str, Any]) -> LaunchShape:  # Any: a JSON object
    """Return a launch."""
    x, y, z = fields["grid"]
    maps = tuple([_read_map(each) for each in fields["tensor_maps"]])
    return LaunchShape(**{**fields, "grid": (x, y, z), "tensor_maps": maps})


def _read_map(fields: dict[str, Any]) -> TensorMap:  # Any: a JSON object
    """Return a tensor map: its lists were tuples."""
    lists = {name: tuple(each) for name, each in fields.items() if isinstance(each, list)}
    return TensorMap(**{**fields, **lists})


def _key_of(kernel: Kernel, target: Target) -> str:
    """Return the key of all that lowering depends on: the graph, the target, this package."""
    ranges = [each.attrs.number for each in kernel.ranges]
    facts = {**asdict(target), "features": sorted(target.features)}
    parts = (show(kernel.sink), kernel.name, ranges, kernel.params, kernel.index_dtype, facts)
    text = "\0".join([*map(repr, parts), _package_stamp()])
    return hashlib.sha256(text.encode()).hexdigest()


@cache
def _package_stamp() -> str:
    """Describe the package's files by name, size and time of change."""
    root = os.path.dirname(__file__)
    files = [os.path.join(at, name) for at, _, names in os.walk(root) for name in names]
    sources = sorted(path for path in files if path.endswith(".py"))
    facts = [(path, os.stat(path).st_size, os.stat(path).st_mtime_ns) for path in sources]
    return hashlib.sha256(repr(facts).encode()).hexdigest()
