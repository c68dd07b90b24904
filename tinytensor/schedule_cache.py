"""Turns a graph's structure into the plan that an earlier process made of the same structure.

A record is one JSON object: programs, launches with the addresses of their params, results. It is
kept like a program, under a key of all that scheduling and lowering depend on.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, astuple
from typing import Any

from tinytensor.dtype import DType
from tinytensor.ops.op import Op
from tinytensor.program_cache import UNUSABLE, Fields, key_of, read_program
from tinytensor.replay import Address, Compiled, Launch, Plan, Result
from tinytensor.runtime.cache import open_cache
from tinytensor.runtime.device import AnyDevice
from tinytensor.timing import timed


def key_of_structure(structure: Sequence[object], options: object, device: AnyDevice) -> str | None:
    """Return the key of a plan; None where no other process can use it."""
    words = " ".join(map(_word, structure))
    if " at 0x" in words or device.target.kind == "python":  # a function, say; no programs
        return None
    return key_of(("schedule", words, options, device.name), device.target)


def _word(part: object) -> str:
    if isinstance(part, Op | DType):
        return part.name
    return repr(part)


@timed("plan: read")
def read_plan(key: str, device: AnyDevice) -> Plan | None:
    """Return the plan that is kept under a key, with its programs compiled; None if there is none.

    Raises: CompileError where a program does not compile any more.
    """
    text = open_cache().get_text(key)
    if text is None:
        return None
    try:
        record = json.loads(text)
        programs = [read_program(each) for each in record["programs"]]
        results = [Result(*each) for each in record["results"]]
        given = [_read_launch(each) for each in record["launches"]]
        arena_bytes = int(record["arena_bytes"])
    except UNUSABLE:
        return None
    pairs = zip(programs, device.compile(programs), strict=True)
    compiled = [Compiled(program.name, None, None, program, work) for program, work in pairs]
    launches = [Launch(compiled[number], *facts) for number, *facts in given]
    return Plan(tuple(launches), arena_bytes, tuple(results))


def _read_launch(record: Sequence[Any]) -> tuple[int, Any, Any, Any]:  # Any: facts of a Launch
    number, addresses, extents, scalars = record
    places = tuple([Address(*each) for each in addresses])
    return int(number), places, tuple(extents), tuple([float(each) for each in scalars])


@timed("plan: keep")
def keep_plan(key: str, plan: Plan) -> None:
    """Keep a plan for other processes, if all its kernels have programs."""
    made = [launch.compiled.program for launch in plan.launches]
    programs = {program: number for number, program in enumerate(dict.fromkeys(made))}
    if None in programs:
        return
    record: Fields = {
        "programs": [asdict(each) for each in programs if each is not None],
        "launches": [
            (programs[program], [astuple(each) for each in at.addresses], at.extents, at.scalars)
            for program, at in zip(made, plan.launches, strict=True)
        ],
        "results": [astuple(each) for each in plan.results],
        "arena_bytes": plan.arena_bytes,
    }
    open_cache().put_text(key, json.dumps(record))
