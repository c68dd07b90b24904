"""Turns an explanation into a table for the terminal: kernels by time, then what stands behind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tinytensor.ops.kernel import Decision
from tinytensor.ops.uop import UOp
from tinytensor.profile import MICRO, Total
from tinytensor.schedule.describe import short_count, short_size, short_time

if TYPE_CHECKING:
    from tinytensor.explain.record import ExplainedKernel, Explanation

UNFUSED = ("store", "decline")
ASKED = "its value was asked for."
# What the table for the terminal holds; the page has all.
LEAST_SHARE = 0.005
COLUMNS = ("share", "time", "runs", "kernel", "limit", "roof", "predicted", "work", "flop/B")
ROW = "{:>7}{:>9}{:>5}  {:44.44}{:11}{:>5}{:>11}{:>18}{:>8}  {}"
MOST_REASONS = 20
MOST_SAVED = 6


@dataclass(frozen=True, slots=True)
class Group:
    """Launches of one kernel, with its share of the time of all."""

    launches: tuple[ExplainedKernel, ...]
    share: float

    @property
    def time_us(self) -> float:
        """How long all launches take."""
        return sum(each.time_us for each in self.launches)

    @property
    def predicted_us(self) -> float:
        """How long they would take by the target's rates."""
        return sum(each.predicted_us for each in self.launches)


@dataclass(frozen=True, slots=True)
class Reason:
    """A decision not to fuse, and the numbers of the kernels that it was made for."""

    decision: Decision
    kernels: tuple[int, ...]


def groups_of(found: Explanation) -> list[Group]:
    """Take launches of the same kernel together, those that take longest first."""
    by_sink: dict[UOp, list[ExplainedKernel]] = {}
    for each in found.kernels:
        by_sink.setdefault(each.kernel.sink, []).append(each)
    whole = found.device_us or 1.0
    made = [
        Group(tuple(several), sum(each.time_us for each in several) / whole)
        for several in by_sink.values()
    ]
    return sorted(made, key=lambda each: -each.time_us)


def reasons_of(found: Explanation) -> list[Reason]:
    """Return why what was not fused was not: each reason once, those of long kernels first."""
    kernels: dict[Decision, list[int]] = {}
    for each in found.kernels:
        for decision in each.decisions:
            if decision.kind in UNFUSED and decision.reason != ASKED:
                kernels.setdefault(decision, []).append(each.number)
    made = [Reason(decision, tuple(numbers)) for decision, numbers in kernels.items()]
    times = {each.number: each.time_us for each in found.kernels}
    return sorted(made, key=lambda each: -sum(times[number] for number in each.kernels))


def table_lines(found: Explanation) -> Iterator[str]:
    """Give the lines of the whole table; it leaves out what hardly takes time."""
    groups, reasons = groups_of(found), reasons_of(found)
    facts = [f"{name} {value}" for name, value in summary_of(found).items()]
    yield f"{found.name} on {found.device}: {', '.join(facts)}"
    yield ""
    yield ROW.format(*COLUMNS, "number")
    shown = [each for each in groups if each.share >= LEAST_SHARE]
    for group in shown:
        yield ROW.format(*cells_of(group), _numbers([each.number for each in group.launches]))
    if len(shown) < len(groups):
        share = sum(each.share for each in groups[len(shown) :])
        yield f"{share:>7.1%}  {len(groups) - len(shown)} more kernels"
    yield ""
    yield "not fused, and why; first what the longest kernels leave:"
    for each in reasons[:MOST_REASONS]:
        told = each.decision
        yield f"  {told.kind:9} {told.subject}: {told.reason} ({_numbers(each.kernels)})"
    if len(reasons) > MOST_REASONS:
        yield f"  {len(reasons) - MOST_REASONS} more reasons"
    yield ""
    for name, value in details_of(found).items():
        if value:
            yield f"{name:12}{value}"


def cells_of(group: Group) -> tuple[str, ...]:
    """Return what is known of a kernel's launches, in the order of COLUMNS."""
    first = group.launches[0]
    work_us = sum(each.load.seconds for each in group.launches) * MICRO
    roof = work_us / group.time_us if group.time_us else 0.0
    return (
        *(f"{group.share:.1%}", micros(group.time_us), str(len(group.launches))),
        *(first.kernel.name, first.limit, f"{roof:.0%}", micros(group.predicted_us)),
        *(work_words(first), f"{first.intensity:.2g}"),
    )


def _numbers(numbers: Sequence[int]) -> str:
    """List the first few numbers."""
    return ", ".join(map(str, numbers[:4])) + ", .." * (len(numbers) > 4)


def work_words(each: ExplainedKernel) -> str:
    """Say how many operations a kernel does, and how many bytes it moves."""
    return f"{short_count(each.work.flops)}, {short_size(each.work.bytes_moved)}"


def micros(time_us: float) -> str:
    """Write a time that is given in µs."""
    return short_time(time_us / MICRO)


def summary_of(found: Explanation) -> dict[str, str]:
    """Return what matters most, each by its name."""
    launches, kernels = len(found.kernels), len(groups_of(found))
    return {
        "launches": f"{launches} of {kernels} kernels",
        "on the device": micros(found.device_us),
        "predicted": micros(found.predicted_us),
        "a call": micros(found.call_us),
        "compilation": micros(found.compile_us),
        "peak memory": short_size(found.memory.peak),
    }


def details_of(found: Explanation) -> dict[str, str]:
    """Return what is to be said of memory, of compilation and of caches, each by its name."""
    memory, cold = found.memory, found.cold
    distinct = len({each.sink for each in cold.kernels})
    hits = [(name, found.warm[-1].hit_rate(name)) for name in ("plans", "guards")]
    return {
        "memory": f"{short_size(memory.peak)} at the peak beside what was there before",
        "arena": f"{short_size(memory.arena)} hold {short_size(memory.stored)} of values between "
        "kernels, with what results of the call leave idle",
        "saved": _saved_words(memory.saved),
        "a call": _stage_words(found.warm[-1].by_stage()),
        "first call": _stage_words(cold.by_stage()),
        "compiled": f"{len(cold.compiled)} of {distinct} kernels, those that no cache had",
        "caches": ", ".join(f"{name} {rate:.0%} found" for name, rate in hits if rate is not None),
        "break-even": _break_even(found),
        "guards": "; ".join(found.guards),
        "misses": " ".join(found.misses),
    }


def _saved_words(saved: Sequence[tuple[str, int]]) -> str:
    """Say what is saved for the backward, the most bytes first."""
    sizes: Counter[str] = Counter()
    for name, nbytes in saved:
        sizes[name] += nbytes
    counts = Counter(name for name, _ in saved)
    most = [f"{name} x{counts[name]}" for name, _ in sizes.most_common(MOST_SAVED)]
    shown = ", ".join(most) + ", .." * (len(sizes) > MOST_SAVED)
    return f"{short_size(sizes.total())} for the backward" + f": {shown}" * bool(most)


def _stage_words(stages: Sequence[Total]) -> str:
    """Say where the host's time went, leaving out what is shorter than a hundredth of it."""
    least = sum(each.time_us for each in stages) / 100
    return ", ".join(
        f"{each.name} {micros(each.time_us)}" for each in stages if each.time_us > least
    )


def _break_even(found: Explanation) -> str:
    calls = found.break_even_calls
    unfused = f"one kernel per op would take {micros(found.unfused_us)}, as predicted"
    if calls is None:
        return f"never: {unfused}"
    return f"after {calls} calls: {unfused}"


def kernel_lines(each: ExplainedKernel) -> Iterator[str]:
    """Give the lines that tell all of one kernel."""
    yield f"kernel {each.number}  {each.kernel.name}"
    facts = facts_of(each)
    for name, value in facts.items():
        yield f"  {name:10}{value}"
    for decision in each.decisions:
        yield f"  {decision.kind:10}{decision.subject}: {decision.reason}"


def facts_of(each: ExplainedKernel) -> dict[str, str]:
    """Return what is known of a kernel, each fact by its name."""
    work_us = each.load.seconds * MICRO
    found = {
        "stores": ", ".join(each.outputs),
        "reads": each.inputs or "nothing",
        "time": f"{micros(each.time_us)} measured, {micros(each.predicted_us)} predicted: "
        f"launch {micros(each.launch_us)}, work {micros(work_us)}",
        "limit": f"{each.limit}; {each.roof_share:.0%} of the device's roof",
        "work": f"{work_words(each)}, {each.intensity:.3g} flop a byte",
        "numerics": str(each.contract),
    }
    facts = each.kernel.contraction
    if facts is not None:
        computed = {"a": facts.prologue_a, "b": facts.prologue_b}
        names = [name for name, is_computed in computed.items() if is_computed]
        found["factors"] = f"computed on the way in: {' and '.join(names) or 'none'}"
    return found
