"""Turns a call of a function into its explanation: runs it, and reads what was captured."""

from __future__ import annotations

import functools
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Any

from tinytensor.captures import Forward
from tinytensor.codegen.plan import take
from tinytensor.control.run import Decided
from tinytensor.explain.contract import contract_of
from tinytensor.explain.lines import provenance_of
from tinytensor.explain.record import ExplainedKernel, Explanation, Memory, Sources
from tinytensor.jit.function import Jitted
from tinytensor.jit.structure import tensors_in
from tinytensor.ops.instances import at_extent
from tinytensor.ops.op import Op
from tinytensor.ops.text import show
from tinytensor.ops.uop import UOp, buffer, nbytes_of, substitute_all, walk
from tinytensor.profile import MICRO, Profile, profile
from tinytensor.provenance import Provenance, collect_provenance
from tinytensor.records import dataclass
from tinytensor.report import Planned, Scheduled, capture, load_of, merged, work_of
from tinytensor.runtime.device import AnyDevice, Device
from tinytensor.schedule.describe import describe
from tinytensor.schedule.order import written_by
from tinytensor.schedule.schedule import Options, schedule
from tinytensor.target import Target
from tinytensor.timing import watch

UNFUSED = Options(fuse=0, verify=False, stress=False)

Nest = Any  # tuples, lists and dicts of tensors, as the user's function returns them


@dataclass(frozen=True, slots=True)
class Touched:
    """A captured kernel, and the values that it stores and reads."""

    planned: Planned
    written: tuple[UOp, ...]
    read: tuple[UOp, ...]

    def computed(self) -> list[UOp]:
        """Return what it computes, in TENSOR form, operands before users."""
        read = set(self.read)
        return [node for node in walk(self.written, stop=read) if node not in read]


@dataclass(frozen=True, slots=True)
class Captured:
    """A call that was captured: its profile, its kernels, and what was noted of its graph."""

    profile: Profile
    planned: Sequence[Planned]
    notes: Sequence[object]
    provenance: Mapping[UOp, Provenance]


def explain_call(
    function: Callable[..., Nest], args: tuple[Any, ...], kwargs: dict[str, Any], repeats: int
) -> Explanation:
    """Run a call until its kernels are those of the call before, then measure it."""
    call = functools.partial(function, *args, **kwargs)
    cold = captured = _capture(call)
    launched = [each.sink for each in _measure(call).kernels]
    if launched != [each.kernel.sink for each in cold.planned]:
        captured = _capture(call)  # the first call also made what it needs
    names = dict.fromkeys(each.device for each in cold.profile.kernels)
    devices = [Device[each] for each in names]
    before = sum(each.memory().allocated for each in devices)
    for device in devices:
        device.reset_peak()
    plain, warm = [_seconds(call, devices)], [_measure(call)]
    peak = sum(each.memory().peak for each in devices) - before
    for _ in range(repeats - 1):
        plain.append(_seconds(call, devices))
        warm.append(_measure(call))
    planned, notes = captured.planned, captured.notes
    shortest = min(warm, key=lambda each: each.seconds)
    touched = list(_touched_by(planned))
    schedules = [each for each in notes if isinstance(each, Scheduled)]
    forward = [each.nodes for each in notes if isinstance(each, Forward)]
    decided = [each.sentence for each in notes if isinstance(each, Decided)]
    programs = function.programs() if isinstance(function, Jitted) else []
    return Explanation(
        name=getattr(function, "__name__", type(function).__name__),
        device=", ".join(names) or "no device",
        kernels=tuple(_kernels_of(touched, shortest, captured.provenance)),
        memory=_memory_of(touched, schedules, frozenset().union(*forward), peak),
        cold=cold.profile,
        warm=tuple(warm),
        plain_seconds=tuple(plain),
        shortest=shortest,
        rates=planned[0].target.rates if planned else None,
        unfused_us=_unfused_us(schedules, planned[0].target) if planned else 0.0,
        guards=programs[-1].guards if programs else (),
        launched=programs[-1].launched if programs else "",
        decided=tuple(decided),
        misses=tuple(function.remarks) if isinstance(function, Jitted) else (),
    )


def _capture(call: Callable[[], Nest]) -> Captured:
    with profile() as found, watch() as watched, capture() as planned, collect_provenance() as made:
        _compute(call())
    return Captured(found, planned, watched.notes, made.scheduled)


def _compute(result: Nest) -> None:
    tensors = tensors_in(result)
    if tensors:
        tensors[0].realize(*tensors[1:])


def _measure(call: Callable[[], Nest]) -> Profile:
    with profile() as found:
        _compute(call())
    return found


def _seconds(call: Callable[[], Nest], devices: Sequence[AnyDevice]) -> float:
    """Return how long a call takes that nobody watches, until its devices have nothing to do."""
    begin = time.perf_counter()
    _compute(call())
    for each in devices:
        each.synchronize()
    return time.perf_counter() - begin


def _touched_by(planned: Sequence[Planned]) -> Iterator[Touched]:
    for each in planned:
        assert each.call is not None, "explain: a captured kernel tells the values it touches"
        written = written_by(each.call)
        read = [node for node in each.call.nodes if node not in written]
        yield Touched(each, tuple(written), tuple(read))


def _kernels_of(
    touched: Sequence[Touched], run: Profile, known: Mapping[UOp, Provenance]
) -> Iterator[ExplainedKernel]:
    makers: dict[UOp, int] = {}
    readers: dict[int, list[int]] = defaultdict(list)
    reads: list[list[int]] = []
    for number, each in enumerate(touched, start=1):
        reads.append(sorted({makers[node] for node in each.read if node in makers}))
        makers.update(dict.fromkeys(each.written, number))
        for maker in reads[-1]:
            readers[maker].append(number)
    times = _times_in(run, touched)
    for number, each in enumerate(touched, start=1):
        planned = each.planned
        kernel, lowered = planned.kernel, planned.lowered
        whole = at_extent(kernel, sum(planned.extents)) if planned.extents else kernel
        yield ExplainedKernel(
            number=number,
            kernel=kernel,
            provenance=provenance_of(each.computed(), known),
            outputs=tuple(map(describe, each.written)),
            inputs=planned.reads,
            reads=tuple(reads[number - 1]),
            readers=tuple(readers[number]),
            apart=tuple(planned.apart),
            decisions=tuple(merged((*kernel.decisions, *planned.plan))),
            candidates=_candidates_of(planned),
            contract=contract_of(kernel, lowered.legal if lowered else ()),
            work=work_of(whole),
            load=load_of(whole, planned.target),
            launch_us=planned.target.rates.launch_seconds * MICRO,
            time_us=times[number - 1],
            sources=_sources_of(each),
        )


def _candidates_of(planned: Planned) -> tuple[str, ...]:
    """Name the candidates of a kernel's plan, by estimate the best first."""
    if planned.lowered is None:
        return ()
    taken = take(planned.kernel, planned.target)
    return tuple([each.name for each in taken.plan.candidates(taken.facts, planned.target)])


def _times_in(run: Profile, touched: Sequence[Touched]) -> list[float]:
    """Return the time of each kernel in a run, 0 where it did not run.

    A run of the same kernels may have them with sizes or numbers taken out; else sinks tell.
    """
    if len(run.kernels) == len(touched):
        return [each.time_us for each in run.kernels]
    found: dict[UOp | None, list[float]] = defaultdict(list)
    for each in run.kernels:
        found[each.sink].append(each.time_us)
    several = [found[each.planned.kernel.sink] for each in touched]
    return [times.pop(0) if times else 0.0 for times in several]


def _sources_of(touched: Touched) -> Sources:
    """Show every form; in the first, what other kernels compute is a leaf."""
    inner = [node for node in touched.read if node.op is not Op.BUFFER]
    leaves = {node: buffer(node.dtype, node.shape, "") for node in inner}
    tensor = show(substitute_all(touched.written, leaves))
    indexed, lowered = show(touched.planned.kernel), touched.planned.lowered
    if lowered is None:
        return Sources(tensor, indexed)
    linear = "\n".join(map(show, lowered.planned))
    return Sources(tensor, indexed, linear, lowered.program.source)


def _memory_of(
    touched: Sequence[Touched], schedules: Sequence[Scheduled], forward: Set[UOp], peak: int
) -> Memory:
    asked = {node for each in schedules for node in each.roots}
    stored = [node for each in touched for node in each.written if node not in asked]
    ahead = [each for each in touched if not forward.isdisjoint(each.written)]
    left = {node for each in ahead for node in each.written}.intersection(stored)
    behind = [each for each in touched if forward.isdisjoint(each.written)]
    saved = dict.fromkeys(node for each in behind for node in each.read if node in left)
    return Memory(
        peak=peak,
        arena=sum(each.arena_bytes for each in schedules),
        stored=sum(map(nbytes_of, stored)),
        saved=tuple([(describe(node), nbytes_of(node)) for node in saved]),
    )


def _unfused_us(schedules: Sequence[Scheduled], target: Target) -> float:
    """Predict how long one kernel per op would take."""
    calls = [call for each in schedules for call in schedule(each.roots, target, UNFUSED)]
    seconds = [load_of(call.kernel, target).seconds for call in calls]
    return (sum(seconds) + len(calls) * target.rates.launch_seconds) * MICRO
