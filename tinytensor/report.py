"""Prints what DEBUG asks for: launches, schedules, forms, source, passes and machine code."""

from __future__ import annotations

import math
import operator
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import accumulate
from typing import TYPE_CHECKING

from tinytensor.captures import CAPTURES, collect
from tinytensor.config import config
from tinytensor.dtype import dtypes
from tinytensor.errors import Site
from tinytensor.ops.instances import at_extent
from tinytensor.ops.kernel import Decision, Kernel
from tinytensor.ops.op import ELEMENTWISE, Mark, Op
from tinytensor.ops.ranges import dependencies, folded_ranges
from tinytensor.ops.text import show
from tinytensor.ops.uop import UOp, nbytes_of, substitute_all, walk
from tinytensor.records import dataclass
from tinytensor.schedule.cost import (
    MOVED_PER_HELD,
    Load,
    cached_bytes,
    evaluation_seconds,
    evaluations_of_factors,
    price_name,
    reading_seconds,
    writing_seconds,
)
from tinytensor.schedule.describe import (
    describe,
    short_count,
    short_size,
    short_time,
    short_type,
)
from tinytensor.schedule.kernels import KernelCall
from tinytensor.schedule.order import written_by
from tinytensor.target import Target

if TYPE_CHECKING:
    from tinytensor.codegen.lower import Lowered

MOST_LISTED = 5
NESTS = (Op.STORE, Op.REDUCE, Op.CONTRACT)
MEASURED = (
    "launches, measured: the first one of a kernel is cold; GFLOP/s counts operations on floats, "
    "a function as one, and no choice or comparison"
)


@dataclass(frozen=True, slots=True)
class Work:
    """What one launch of a kernel does at least. Units: operations, bytes."""

    flops: int
    bytes_moved: int


@dataclass(frozen=True, slots=True)
class Planned:
    """A kernel of a schedule, what it reads, what its plan decided, and whether it was compiled.

    An instanced kernel has the extents of its instances. `apart` says why kernels whose results it
    reads are not one with it. `call` tells the values it touches; what
    takes over an operand's memory is not yet merged there.
    """

    kernel: Kernel
    reads: str
    plan: Sequence[Decision]
    was_compiled: bool
    target: Target
    extents: Sequence[int] = ()
    call: KernelCall | None = None
    lowered: Lowered | None = None
    apart: Sequence[Decision] = ()
    writes: str = ""


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A schedule that was watched: what was asked for, and the bytes of its arena."""

    roots: tuple[UOp, ...]
    arena_bytes: int


def capture() -> AbstractContextManager[list[Planned]]:
    """Collect the kernels of every schedule made inside the block, by any thread."""
    return collect(CAPTURES)


def work_of(kernel: Kernel, extents: Sequence[int] = ()) -> Work:
    """Count a kernel's operations and the bytes of the buffers it touches, in all its instances.

    An op runs once for each value of the ranges it varies over or folds; a multiply-add of a
    contraction counts as two operations.
    """
    if extents:
        kernel = at_extent(kernel, sum(extents))
    nodes = walk((kernel.sink,))
    varies = dependencies(nodes)
    flops = 0
    for node in nodes:
        ranges = (*varies[node], *folded_ranges(node))
        flops += _operations(node) * math.prod(each.extent for each in ranges)
    moved = sum(param.elements * param.dtype.itemsize for param in kernel.params)
    return Work(flops, moved)


def _operations(node: UOp) -> int:
    if node.op in (Op.CONTRACT, Op.REDUCE):
        return 2 if node.op is Op.CONTRACT else 1
    is_arithmetic = node.dtype.is_float and node.op in ELEMENTWISE
    return 1 if is_arithmetic and node.op not in (Op.CAST, Op.BITCAST, Op.WHERE) else 0


def launch_line(kernel: Kernel, device: str, time_us: float, extents: Sequence[int] = ()) -> str:
    """Return DEBUG=1's line: kernel, time, GFLOP/s and GB/s. Units: µs."""
    work = work_of(kernel, extents)
    seconds = max(time_us, 0.01) * 1e-6
    gflops, gbytes = work.flops / seconds / 1e9, work.bytes_moved / seconds / 1e9
    return (
        f"{device:6} {kernel.name:40} {time_us:10.1f} us {gflops:9.2f} GFLOP/s {gbytes:8.2f} GB/s"
    )


def print_launch(kernel: Kernel, device: str, time_us: float, extents: Sequence[int] = ()) -> None:
    """Print one line about a launch (DEBUG=1)."""
    _print(launch_line(kernel, device, time_us, extents))


def reads_of(calls: Sequence[KernelCall]) -> list[str]:
    """Say for each kernel of a schedule which values it reads, and which kernels made them."""
    makers: dict[UOp, int] = {}
    texts = []
    for number, call in enumerate(calls, start=1):
        written = written_by(call)
        read: dict[int, list[str]] = {}
        for node in call.nodes:
            if node not in written:
                read.setdefault(makers.get(node, 0), []).append(short_type(node))
        texts.append(
            "; ".join(
                _counted(types) + f" of kernel {maker}" * (maker > 0)
                for maker, types in sorted(read.items())
            )
        )
        makers.update(dict.fromkeys(written, number))
    return texts


def writes_of(calls: Sequence[KernelCall]) -> list[str]:
    """Say for each kernel of a schedule which values it stores, and which kernels read them."""
    readers: dict[UOp, list[int]] = {}
    for number, call in enumerate(calls, start=1):
        for node in dict.fromkeys(call.nodes):
            readers.setdefault(node, []).append(number)
    texts = []
    for number, call in enumerate(calls, start=1):
        values: dict[tuple[int, ...], list[str]] = {}
        for node in written_by(call):
            others = tuple([each for each in readers[node] if each != number])
            values.setdefault(others, []).append(short_type(node))
        texts.append(
            "; ".join(
                f"{_counted(types)} for {_kernels(others) or 'the caller'}"
                for others, types in values.items()
            )
        )
    return texts


def _kernels(numbers: Sequence[int]) -> str:
    """Return `kernel 3`, `kernels 3, 5`; nothing for none."""
    kernels = f"kernel{'s' * (len(numbers) > 1)} "
    return kernels * bool(numbers) + ", ".join(map(str, numbers))


def apart_of(calls: Sequence[KernelCall]) -> list[list[Decision]]:
    """Say for each kernel of a schedule why those it reads from are not one with it."""
    makers: dict[UOp, int] = {}
    names: dict[UOp, str] = {}
    told = []
    for number, call in enumerate(calls, start=1):
        values: dict[int, dict[str, list[UOp]]] = {}
        for node, reason in zip(call.nodes, call.apart, strict=True):
            if reason:
                values.setdefault(makers[node], {}).setdefault(reason, []).append(node)
        told.append([_apart(maker, values[maker], names) for maker in sorted(values)])
        written = written_by(call)
        makers.update(dict.fromkeys(written, number))
        stored = [each.subject for each in call.kernel.decisions if each.kind == "store"]
        subjects = stored if len(stored) == len(written) else list(map(describe, written))
        names.update(zip(written, subjects, strict=True))
    return told


def _apart(maker: int, values: Mapping[str, Sequence[UOp]], names: Mapping[UOp, str]) -> Decision:
    """Say of each value why it is read of another kernel, and what one kernel would spare."""
    texts = [f"{_joined([names[n] for n in nodes])}: {why}" for why, nodes in values.items()]
    moved = 2 * sum(nbytes_of(each) for nodes in values.values() for each in nodes)
    end = f"Joined, they would spare at most a launch and {short_size(moved)} of moving."
    return Decision("apart", f"from kernel {maker}", " ".join([*texts, end]))


def _counted(words: Sequence[str]) -> str:
    """Return words once each, with how often they occur: `f32[3], 2 x f32[4]`."""
    return ", ".join(
        f"{count} x {word}" if count > 1 else word for word, count in Counter(words).items()
    )


def schedule_lines(planned: Sequence[Planned]) -> list[str]:
    """Return DEBUG=2's lines: each kernel, what it reads and takes, and why it is as it is."""
    lines = _head(planned)
    for number, each in enumerate(planned, start=1):
        made = "compiled before" if each.was_compiled else "compiled now"
        instances = f"  {len(each.extents)} instances" if each.extents else ""
        head = f"kernel {number}/{len(planned)}  {each.kernel.name}{instances}"
        lines.append(f"{head}  {made}")
        if each.reads:
            lines.append(f"  reads     {each.reads}.")
        if each.writes:
            lines.append(f"  writes    {each.writes}.")
        lines.append(f"  takes     {_takes(_whole(each), each.target)}")
        decisions = merged((*each.apart, *each.kernel.decisions, *each.plan))
        lines.extend(f"  {told.kind:9} {told.subject}: {told.reason}" for told in decisions)
    return lines


def _whole(planned: Planned) -> Kernel:
    """Return a kernel over all its instances."""
    extents = planned.extents
    return at_extent(planned.kernel, sum(extents)) if extents else planned.kernel


def _head(planned: Sequence[Planned]) -> list[str]:
    """Say once for what machine all is planned, by which rates, and what the times mean."""
    if not planned:
        return []
    target = planned[0].target
    rates, cached = target.rates, short_size(cached_bytes(target))
    found: dict[str, float] = {}
    for each in planned:
        for name, spent in spent_by(_whole(each), target).items():
            found[name] = spent.count / spent.seconds
    computed = [f"{name} {short_count(rate)}/s" for name, rate in sorted(found.items())]
    speeds = (rates.cache, rates.read, rates.write, rates.copy)
    small, read, written, copied = [f"{short_size(each)}/s" for each in speeds]
    loads = [load_of(_whole(each), target).seconds for each in planned]
    total = short_time(sum(loads) + len(loads) * rates.launch_seconds)
    launch = short_time(rates.launch_seconds)
    count = f"{len(planned)} kernel{'s' * (len(planned) != 1)}"
    machine = f"{target.name} with vectors of {target.vector_bytes} bytes"
    lines = [
        f"schedule of {count}, {total}, for {machine}: predicted by these rates, not measured",
        f"  computing {', '.join(computed) or 'nothing'}.",
        f"  moving    {small} for values up to {cached}, else {read} read and {written} written.",
        f"  launch    {launch}, added to the longer of computing and moving, for they overlap.",
    ]
    kinds = {told.kind for each in planned for told in (*each.apart, *each.kernel.decisions)}
    if not kinds.isdisjoint(("apart", "recompute", "spare")):
        lines += [
            "  choices   are by how much longer all kernels concerned take; a reason without "
            "times, or marked `a rule`, holds at any cost.",
            "            holding a value from its first reader to its last fills memory: priced as "
            f"copying it {MOVED_PER_HELD} times, at {copied};",
            "            half of that where the last reader comes only one kernel after the first, "
            "nothing where none comes later.",
        ]
    return lines


def _takes(kernel: Kernel, target: Target) -> str:
    """Predict a kernel's time by the target's rates, and say what it is made of."""
    spent, (read, written) = spent_by(kernel, target), moved_by(kernel)
    load, launch = load_of(kernel, target), target.rates.launch_seconds
    total = load.seconds + launch
    parts = {name.removeprefix("flop of "): each.seconds for name, each in spent.items()}
    if load.memory >= load.arithmetic:
        parts = {"moving": load.memory}
    parts["the launch"] = launch
    limit = max(parts, key=parts.__getitem__)
    ordered = sorted(spent.items(), key=lambda each: -each[1].seconds)
    counts = [
        f"{short_count(each.count).rstrip()} {name} {short_time(each.seconds)}"
        for name, each in ordered
    ]
    parted = f" ({', '.join(counts)})" * bool(counts)
    computing = f"computing {short_time(load.arithmetic)}{parted}"
    return (
        f"{short_time(total)}, limited by {limit} ({parts[limit] / total:.0%} of it): {computing}; "
        f"moving {short_time(load.memory)} ({short_size(read)} read, {short_size(written)} "
        f"written); launch {short_time(launch)}."
    )


@dataclass(frozen=True, slots=True)
class Spent:
    """How often a kernel computes what has one price, and how long that takes."""

    count: int = 0
    seconds: float = 0.0


def load_of(kernel: Kernel, target: Target) -> Load:
    """Price a kernel as loops run it; indices are not counted."""
    spent = spent_by(kernel, target).values()
    accesses = _accesses(kernel)
    read = sum(reading_seconds(_size(kernel, each), target) for each in accesses[Op.LOAD])
    written = sum(writing_seconds(_size(kernel, each), target) for each in accesses[Op.STORE])
    return Load(sum(each.seconds for each in spent), read + written)


def moved_by(kernel: Kernel) -> tuple[int, int]:
    """Return the bytes a kernel reads and writes, those of each buffer once."""
    found = _accesses(kernel)
    read, written = (sum(_size(kernel, n) for n in found[op]) for op in (Op.LOAD, Op.STORE))
    return read, written


def _accesses(kernel: Kernel) -> dict[Op, set[int]]:
    """Return the numbers of the params that are read, and of those that are written."""
    found: dict[Op, set[int]] = {Op.LOAD: set(), Op.STORE: set()}
    for node in walk((kernel.sink,)):
        if node.op in found:
            found[node.op].add(node.operands[0].attrs.number)
    return found


def _size(kernel: Kernel, number: int) -> int:
    param = kernel.params[number]
    return param.elements * param.dtype.itemsize


def spent_by(kernel: Kernel, target: Target) -> dict[str, Spent]:
    """Sum up what a kernel computes by what it is called and costs, as loops run it."""
    nodes = walk((kernel.sink,))
    varies = dependencies(nodes)
    counts: dict[UOp, int] = dict.fromkeys(nodes, 0)
    for top in [node for node in nodes if node.op in NESTS]:
        for node, count in _counts_below(top, kernel, varies, target):
            counts[node] = max(counts[node], count)
    twins = _twins(kernel, nodes, varies, target)
    for node, twin in twins.items():
        counts[twin] = max(counts[node], counts.get(twin, 0))
    spent: dict[str, Spent] = {}
    for node in [*(each for each in nodes if each not in twins), *dict.fromkeys(twins.values())]:
        seconds = evaluation_seconds(node, target)
        if node.dtype is not dtypes.index and counts[node] and seconds:
            name = price_name(node)
            known = spent.get(name, Spent())
            flops = 2 if node.op is Op.CONTRACT else 1
            spent[name] = Spent(
                known.count + flops * counts[node],
                known.seconds + counts[node] * seconds,
            )
    return spent


def _twins(
    kernel: Kernel, nodes: Sequence[UOp], varies: Mapping[UOp, frozenset[UOp]], target: Target
) -> dict[UOp, UOp]:
    """Return functions that several folds or stores need of a row: plans keep them on chip.

    Those are the same but for the ranges along the row.
    """
    folds = [node for node in nodes if node.op is Op.REDUCE]
    rows = {each for fold in folds for each in varies[fold]}
    apart = [each for each in kernel.ranges if each not in rows]
    first: dict[tuple[int, int], UOp] = {}
    places = {
        each: first.setdefault((number, each.extent), each)
        for ranges in (*map(folded_ranges, folds), apart if folds else ())
        for number, each in enumerate(ranges)
        if each.extent * 4 <= target.row_bytes
    }
    functions = tuple([node for node in nodes if node.op.mark is Mark.TRANSCENDENTAL])
    return dict(zip(functions, substitute_all(functions, places), strict=True))


def _counts_below(
    top: UOp, kernel: Kernel, varies: Mapping[UOp, frozenset[UOp]], target: Target
) -> Iterator[tuple[UOp, int]]:
    """Give how often each node is computed in the nest of loops around a store or a fold.

    It is computed again in each loop that lies around one of its own; but in a product once for
    each tile of the other factor.
    """
    nest = [*(each for each in kernel.ranges if each in varies[top]), *folded_ranges(top)]
    around = [1, *accumulate((each.extent for each in nest), operator.mul)]
    depth = {each: number for number, each in enumerate(nest, start=1)}
    yield top, around[-1]
    times = [1] * len(top.operands)
    if top.op is Op.CONTRACT and kernel.contraction is not None:
        _, m, n, k = kernel.contraction.extents
        times[:2] = evaluations_of_factors(m, n, k, target)
    folds = [node for node in varies if node.op in (Op.REDUCE, Op.CONTRACT) and node is not top]
    for operand, count in zip(top.operands, times, strict=True):
        for node in walk((operand,), stop=folds):
            own = [depth[each] for each in varies[node] if each in depth]
            if top.op is Op.CONTRACT:
                yield node, count * math.prod(nest[each - 1].extent for each in own)
            elif node not in folds:
                yield node, around[max(own, default=0)]


def merged(decisions: Sequence[Decision]) -> list[Decision]:
    """Say a reason once for several subjects of one kind."""
    subjects: dict[tuple[str, str], list[str]] = {}
    for each in decisions:
        subjects.setdefault((each.kind, each.reason), []).append(each.subject)
    return [
        Decision(kind, _joined(found if kind == "store" else list(dict.fromkeys(found))), reason)
        for (kind, reason), found in subjects.items()
    ]


def _joined(subjects: Sequence[str]) -> str:
    """Name a type once for the ops before it that have it: `cast, add f16[4], lt bool[4]`."""
    types = [subject.rpartition(" ")[2] for subject in subjects]
    return ", ".join(
        subject.removesuffix(f" {own}") if own == following and own.endswith("]") else subject
        for subject, own, following in zip(subjects, types, [*types[1:], ""], strict=True)
    )


def show_schedule(roots: Sequence[UOp], planned: Sequence[Planned]) -> None:
    """Give a schedule to the captures; print it (DEBUG=2) and its two graph forms (DEBUG=3)."""
    for found in CAPTURES:
        found.extend(planned)
    if config.debug < 2:
        return
    if config.debug >= 3:
        _print("--- TENSOR\n" + show(roots))
    _print("\n".join(schedule_lines(planned)))
    if config.debug >= 3:
        for each in planned:
            _print(f"--- INDEXED {each.kernel.name}\n{show(each.kernel)}")


def head_launches() -> None:
    """Say above the lines of launches what they are, below a schedule (DEBUG=2)."""
    if config.debug >= 2:
        _print(MEASURED)


def print_code(lowered: Lowered, machine_code: str) -> None:
    """Print a kernel's LINEAR form (DEBUG=3), source (4), every pass (5) and machine code (6)."""
    name = lowered.kernel.name
    for each in lowered.planned:
        _print(f"--- LINEAR {name}, as planned\n{show(each)}")
    if config.debug >= 5:
        for each in lowered.legal:
            _print(f"--- LINEAR {name}, after legalize\n{show(each)}")
        for taken in lowered.times:
            _print(f"pass {taken.name:20} {taken.seconds * 1e3:8.2f} ms")
    if config.debug >= 4:
        _print(f"--- SOURCE {name}\n{lowered.program.source}")
    if config.debug >= 6:
        _print(f"--- MACHINE CODE {name}\n{machine_code}")


def largest(values: Mapping[UOp, Site | None]) -> str:
    """List the leaves that hold the most memory, each with the line that made it if one did."""
    by_size = sorted(values, key=lambda leaf: -math.prod(leaf.shape) * leaf.dtype.itemsize)
    lines = ["the largest live tensors:"]
    for leaf in by_size[:MOST_LISTED]:
        nbytes, site = math.prod(leaf.shape) * leaf.dtype.itemsize, values[leaf]
        made = f", made at {site.describe()}" if site is not None else ""
        lines.append(f"  {nbytes} bytes: {leaf.dtype.name} {leaf.shape}{made}")
    return "\n".join(lines)


def _print(text: str) -> None:
    print(text, file=sys.stderr)
