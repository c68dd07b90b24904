"""Turns an explanation into a table for the terminal: kernels by time, then what stands behind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tinytensor.explain.lines import common_words, module_words, provenance_words
from tinytensor.ops.kernel import Decision
from tinytensor.ops.uop import UOp
from tinytensor.profile import CACHES, MICRO, Profile
from tinytensor.records import dataclass
from tinytensor.schedule.describe import short_count, short_size, short_time
from tinytensor.target import Rates

if TYPE_CHECKING:
    from tinytensor.explain.record import ExplainedKernel, Explanation

UNFUSED = ("store", "decline")
ASKED = "its value was asked for."
# What the table for the terminal holds; the page has all.
LEAST_SHARE = 0.005
COLUMNS = (
    *("share", "time", "runs", "kernel", "limit", "roof", "predicted", "work", "flop/B"),
    *("number", "from"),
)
ROW = "{:>7}{:>9}{:>5}  {:32.32}  {:11}{:>5}{:>11}{:>20}{:>8}  {:19}{}"
MOST_REASONS = 20
MOST_SAVED = 6
MOST_NUMBERS = 3
MOST_CANDIDATES = 8


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
    """A decision not to fuse, the numbers of the kernels it was made for, and their modules."""

    decision: Decision
    kernels: tuple[int, ...]
    modules: str


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
    made = [
        Reason(decision, tuple(numbers), _modules_of([found.kernels[n - 1] for n in numbers]))
        for decision, numbers in kernels.items()
    ]
    times = {each.number: each.time_us for each in found.kernels}
    return sorted(made, key=lambda each: -sum(times[number] for number in each.kernels))


def _modules_of(kernels: Sequence[ExplainedKernel]) -> str:
    return common_words([first for each in kernels for first in each.provenance[:1]], module_words)


def table_lines(found: Explanation) -> Iterator[str]:
    """Give the lines of the whole table; it leaves out what hardly takes time."""
    groups, reasons = groups_of(found), reasons_of(found)
    facts = [f"{name} {value}" for name, value in summary_of(found).items()]
    yield f"{found.name} on {found.device}: {', '.join(facts)}"
    yield ""
    yield ROW.format(*COLUMNS)
    shown = [each for each in groups if each.share >= LEAST_SHARE]
    for group in shown:
        yield ROW.format(*cells_of(group))
    if len(shown) < len(groups):
        share = sum(each.share for each in groups[len(shown) :])
        yield f"{share:>7.1%}  {len(groups) - len(shown)} more kernels"
    yield ""
    yield "not fused, and why; first what the longest kernels leave:"
    for each in reasons[:MOST_REASONS]:
        told = each.decision
        where = ": ".join(filter(None, [_numbers(each.kernels), each.modules]))
        yield f"  {told.kind:9} {told.subject}: {told.reason} ({where})"
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
        _numbers([each.number for each in group.launches]),
        common_words([first for each in group.launches for first in each.provenance[:1]]),
    )


def _numbers(numbers: Sequence[int]) -> str:
    """List the first few numbers."""
    shown = ", ".join(map(str, numbers[:MOST_NUMBERS]))
    return shown + ", .." * (len(numbers) > MOST_NUMBERS)


def work_words(each: ExplainedKernel) -> str:
    """Say how many operations a kernel does, and how many bytes it moves."""
    return f"{short_count(each.work.flops)}flop, {short_size(each.work.bytes_moved)}"


def micros(time_us: float) -> str:
    """Write a time that is given in µs."""
    return short_time(time_us / MICRO)


def summary_of(found: Explanation) -> dict[str, str]:
    """Return what matters most, each by its name."""
    launches, kernels = len(found.kernels), len(groups_of(found))
    return {
        "launches": f"{launches} of {kernels} kernels",
        "in kernels": micros(found.device_us),
        "predicted": micros(found.predicted_us),
        "a call": micros(found.call_us),
        "compilation": micros(found.compile_us),
        "peak memory": short_size(found.memory.peak),
    }


def details_of(found: Explanation) -> dict[str, str]:
    """Return what is to be said of memory, of compilation and of caches, each by its name."""
    memory, cold, shortest = found.memory, found.cold, found.shortest
    return {
        "roof": _roof_words(found.rates),
        "memory": f"{short_size(memory.peak)} at the peak beside what was there before",
        "arena": f"{short_size(memory.arena)} hold {short_size(memory.stored)} of values between "
        "kernels, with what results of the call leave idle",
        "saved": _saved_words(memory.saved),
        "a call": f"{micros(found.call_us)}, the shortest of {len(found.plain_seconds)}",
        "watched": _stage_words(shortest),
        "its caches": _cache_words(shortest),
        "first call": _stage_words(cold),
        "compiled": _compiled_words(cold),
        "break-even": _break_even(found),
        "decided": " ".join(found.decided),
        "guards": "; ".join(found.guards),
        "launched": found.launched,
        "misses": " ".join(found.misses),
    }


def _roof_words(rates: Rates | None) -> str:
    """Say what a share of the roof is a share of."""
    if rates is None:
        return ""
    halves = f", {short_count(rates.half_flops)}flop/s of halves" * bool(rates.half_flops)
    cached, read, written = [
        f"{short_size(each)}/s" for each in (rates.cache, rates.read, rates.write)
    ]
    return (
        f"100% is {short_count(rates.flops)}flop/s{halves}, {cached} in cache, {read} read and "
        f"{written} written in memory, as tinytensor/target.py has it from an idle machine of the "
        "kind; a faster one reaches more"
    )


def _cache_words(found: Profile) -> str:
    """Say how often the caches of a call had what it asked for."""
    told = [found.cache_line(each) for each in CACHES if found.hit_rate(each) is not None]
    return "; ".join(told)


def _compiled_words(cold: Profile) -> str:
    """Say how many programs the first call compiled."""
    compiled, kernels = len(cold.compiled), len({each.sink for each in cold.kernels})
    found = kernels - compiled
    others = (
        f"{found} {'was' if found == 1 else 'were'} in a cache" if found > 0 else "no cache had any"
    )
    made = f"{compiled} program{'s' * (compiled != 1)}"
    return f"{made} in the first call, for {kernels} kernels: {others}"


def _saved_words(saved: Sequence[tuple[str, int]]) -> str:
    """Say what is saved for the backward, the most bytes first."""
    sizes: Counter[str] = Counter()
    for name, nbytes in saved:
        sizes[name] += nbytes
    counts = Counter(name for name, _ in saved)
    most = [f"{name} x{counts[name]}" for name, _ in sizes.most_common(MOST_SAVED)]
    shown = ", ".join(most) + ", .." * (len(sizes) > MOST_SAVED)
    return f"{short_size(sizes.total())} for the backward" + f": {shown}" * bool(most)


def _stage_words(found: Profile) -> str:
    """Say where the host's time went; what is shorter than a hundredth of it is told together."""
    stages = found.by_stage()
    least = sum(each.time_us for each in stages) / 100
    short_us = sum(each.time_us for each in stages if each.time_us <= least)
    told = [f"{each.name} {micros(each.time_us)}" for each in stages if each.time_us > least]
    total = micros(found.seconds * MICRO)
    return f"{total} = {' + '.join([*told, f'others {micros(short_us)}'])}"


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
        yield f"  {name:12}{value}"
    for decision in (*each.apart, *each.decisions):
        yield f"  {decision.kind:12}{decision.subject}: {decision.reason}"


def facts_of(each: ExplainedKernel) -> dict[str, str]:
    """Return what is known of a kernel, each fact by its name."""
    work_us = each.load.seconds * MICRO
    found = {
        "from": provenance_words(each.provenance[0]) if each.provenance else "",
        "and from": "; ".join(map(provenance_words, each.provenance[1:])),
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
        found["factors"] = f"computed on the way in: {' and '.join(facts.prologues) or 'none'}"
    found["candidates"] = _candidate_words(each)
    return {name: value for name, value in found.items() if value}


def _candidate_words(each: ExplainedKernel) -> str:
    """Say which of several ways was taken, and what the others lost by."""
    if len(each.candidates) < 2:
        return ""
    winner = next((told.subject for told in each.decisions if told.kind == "tune"), None)
    taken = winner or each.candidates[0]
    others = [name for name in each.candidates if name != taken]
    if len(others) > MOST_CANDIDATES:
        others[MOST_CANDIDATES:] = [f"{len(others) - MOST_CANDIDATES} more"]
    why = "slower when measured (see tune)" if winner else "behind by estimate, not measured"
    return f"{taken} taken; {why}: {'; '.join(others)}"
