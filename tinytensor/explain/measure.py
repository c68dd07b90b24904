"""Turns a call of a function into its explanation: runs it, and reads what was captured."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import median
from typing import Any

from tinytensor.explain.contract import contract_of
from tinytensor.explain.record import ExplainedKernel, Explanation, Memory, Sources
from tinytensor.jit.function import Jitted
from tinytensor.ops.op import Op
from tinytensor.ops.text import show
from tinytensor.ops.uop import UOp, buffer, substitute_all
from tinytensor.profile import MICRO, Profile, profile
from tinytensor.report import Forward, Planned, Scheduled, capture, load_of, merged, work_of
from tinytensor.runtime.device import Device
from tinytensor.schedule.describe import describe, short_type
from tinytensor.schedule.kernels import KernelCall
from tinytensor.schedule.order import nbytes_of, written_by
from tinytensor.schedule.schedule import Options, schedule
from tinytensor.target import Target
from tinytensor.tensor.tensor import Tensor
from tinytensor.timing import Watch, watch

UNFUSED = Options(fuse=0, verify=False, stress=False)

Nest = Any  # tuples, lists and dicts of tensors, as the user's function returns them


def explain_call(
    function: Callable[..., Nest], args: tuple[Any, ...], kwargs: dict[str, Any], repeats: int
) -> Explanation:
    """Run a call until its kernels are those of the call before, then measure it."""
    call = functools.partial(function, *args, **kwargs)
    name = getattr(function, "__name__", type(function).__name__)
    with profile() as cold, watch() as watched, capture() as planned:
        _compute(call())
    if _sinks(_measure(call)) != [each.kernel.sink for each in planned]:
        with watch() as watched, capture() as planned:  # the first call also made what it needs
            _compute(call())
    names = dict.fromkeys(each.device for each in cold.kernels)
    devices = [Device[each] for each in names]
    before = sum(each.memory().allocated for each in devices)
    for device in devices:
        device.reset_peak()
    warm = [_measure(call)]
    peak = sum(each.memory().peak for each in devices) - before
    warm += [_measure(call) for _ in range(repeats - 1)]
    memory = _memory_of(planned, watched, peak)
    unfused_us = _unfused_us(watched, planned[0].target) if planned else 0.0
    return Explanation(
        name=name,
        device=", ".join(names) or "no device",
        kernels=tuple(_kernels_of(planned, _times_of(warm))),
        memory=memory,
        cold=cold,
        warm=tuple(warm),
        unfused_us=unfused_us,
        guards=_guards_of(function),
        misses=tuple(function.remarks) if isinstance(function, Jitted) else (),
    )


def _guards_of(function: Callable[..., Nest]) -> tuple[str, ...]:
    """Return what a jitted function relies on in its latest program."""
    programs = function.programs() if isinstance(function, Jitted) else []
    return programs[-1].guards if programs else ()


def _compute(result: Nest) -> None:
    tensors = list(_tensors_in(result))
    if tensors:
        tensors[0].realize(*tensors[1:])


def _tensors_in(value: Nest) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for each in value:
            yield from _tensors_in(each)
    elif isinstance(value, dict):
        yield from _tensors_in(list(value.values()))


def _measure(call: Callable[[], Nest]) -> Profile:
    with profile() as found:
        _compute(call())
    return found


def _sinks(found: Profile) -> list[UOp]:
    return [each.kernel.sink for each in found.kernels]


def _times_of(profiles: Iterable[Profile]) -> dict[UOp, list[list[float]]]:
    """Return for each sink the times of its first launch in a run, of its second, and so on."""
    found: dict[UOp, list[list[float]]] = defaultdict(list)
    for each in profiles:
        counts: dict[UOp, int] = defaultdict(int)
        for launch in each.kernels:
            places = found[launch.kernel.sink]
            number = counts[launch.kernel.sink]
            counts[launch.kernel.sink] += 1
            if number == len(places):
                places.append([])
            places[number].append(launch.time_us)
    return found


def _kernels_of(
    planned: Sequence[Planned], times: dict[UOp, list[list[float]]]
) -> Iterator[ExplainedKernel]:
    makers: dict[UOp, int] = {}
    reads: list[tuple[int, ...]] = []
    for number, each in enumerate(planned, start=1):
        reads.append(_numbers(makers[node] for node in _read_by(each) if node in makers))
        makers.update(dict.fromkeys(written_by(_call_of(each)), number))
    readers: dict[int, list[int]] = defaultdict(list)
    for number, numbers in enumerate(reads, start=1):
        for maker in numbers:
            readers[maker].append(number)
    waiting = {sink: iter(places) for sink, places in times.items()}
    for number, each in enumerate(planned, start=1):
        measured = next(waiting.get(each.kernel.sink, iter(())), [])
        yield ExplainedKernel(
            number=number,
            kernel=each.kernel,
            outputs=tuple([describe(node) for node in written_by(_call_of(each))]),
            inputs=tuple([short_type(node) for node in _read_by(each)]),
            reads=reads[number - 1],
            readers=tuple(readers[number]),
            decisions=tuple(merged((*each.kernel.decisions, *each.plan))),
            contract=contract_of(each.kernel, each.lowered.legal if each.lowered else ()),
            work=work_of(each.kernel),
            load=load_of(each.kernel, each.target),
            launch_us=each.target.rates.launch_seconds * MICRO,
            time_us=median(measured) if measured else 0.0,
            sources=_sources_of(each),
        )


def _numbers(found: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted(set(found)))


def _call_of(planned: Planned) -> KernelCall:
    assert planned.call is not None, "explain: a captured kernel tells the values it touches"
    return planned.call


def _read_by(planned: Planned) -> list[UOp]:
    call = _call_of(planned)
    written = written_by(call)
    return [node for node in call.nodes if node not in written]


def _sources_of(planned: Planned) -> Sources:
    outputs = tuple(written_by(_call_of(planned)))
    leaves = {
        node: buffer(node.dtype, node.shape, "")
        for node in _read_by(planned)
        if node.op is not Op.BUFFER
    }
    tensor, indexed = show(substitute_all(outputs, leaves)), show(planned.kernel)
    lowered = planned.lowered
    if lowered is None:
        return Sources(tensor, indexed)
    linear = "\n".join([show(each) for each in lowered.planned])
    return Sources(tensor, indexed, linear, lowered.program.source)


def _memory_of(planned: Sequence[Planned], watched: Watch, peak: int) -> Memory:
    schedules = [each for each in watched.notes if isinstance(each, Scheduled)]
    asked = {node for each in schedules for node in each.roots}
    stored = [node for each in planned for node in written_by(_call_of(each)) if node not in asked]
    forward = {node for each in watched.notes if isinstance(each, Forward) for node in each.nodes}
    left = {  # by kernels of the forward
        node
        for each in planned
        if not forward.isdisjoint(written_by(_call_of(each)))
        for node in written_by(_call_of(each))
    }.intersection(stored)
    saved = dict.fromkeys(
        node
        for each in planned
        if forward.isdisjoint(written_by(_call_of(each)))
        for node in _read_by(each)
        if node in left
    )
    return Memory(
        peak=peak,
        arena=sum(each.arena_bytes for each in schedules),
        stored=sum(map(nbytes_of, stored)),
        saved=tuple([(describe(node), nbytes_of(node)) for node in saved]),
    )


def _unfused_us(watched: Watch, target: Target) -> float:
    """Predict how long one kernel per op would take."""
    roots = [each.roots for each in watched.notes if isinstance(each, Scheduled)]
    calls = [call for each in roots for call in schedule(each, target, UNFUSED)]
    seconds = [load_of(call.kernel, target).seconds for call in calls]
    return (sum(seconds) + len(calls) * target.rates.launch_seconds) * MICRO
