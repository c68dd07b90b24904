"""Turns graphs into plans: schedules them, lowers and compiles their kernels."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tinytensor import report
from tinytensor.captures import wants_schedule
from tinytensor.config import config
from tinytensor.families import Family, family_of
from tinytensor.lazy import lazy_import
from tinytensor.ops.kernel import Kernel
from tinytensor.ops.program import Program
from tinytensor.ops.size import recorded_claims, value_of
from tinytensor.ops.uop import UOp, nbytes_of
from tinytensor.program_cache import Made, make_program
from tinytensor.replay import Address, Compiled, Launch, Plan, Result
from tinytensor.runtime.device import AnyDevice
from tinytensor.schedule.describe import describe
from tinytensor.schedule.kernels import KernelCall
from tinytensor.schedule.memory import Step, assign_memory
from tinytensor.schedule.numbers import Numbered, take_out_numbers
from tinytensor.schedule.order import written_by
from tinytensor.schedule.schedule import Options, schedule
from tinytensor.structure import Graph, Structure
from tinytensor.target import Target
from tinytensor.timing import note, timed

MOST_COMPILED = 4096
MOST_FAMILIES = 1024
# A kernel's sink, whether it is instanced, device, TT_STRESS, TT_FP32_MATMUL.
Key = tuple[UOp, bool, str, bool, str, str]
_COMPILED: OrderedDict[Key, Compiled] = OrderedDict()
# By a kernel without its numbers: the sink of the first with any.
_FIRST: weakref.WeakValueDictionary[Key, UOp] = weakref.WeakValueDictionary()
_FAMILIES: OrderedDict[Structure, list[Family]] = OrderedDict()  # of graphs with variables alone


def kept_between(inside: set[UOp], roots: Sequence[UOp], device: AnyDevice) -> list[UOp]:
    """Return the values among some nodes that a schedule keeps for what is outside of them."""
    kept: dict[UOp, None] = {}
    for call in _calls(roots, device):
        written = written_by(call)
        if not inside.issuperset(written):  # what it writes itself is kept by whoever reads that
            read = inside.difference(written)
            kept.update(dict.fromkeys([each for each in call.nodes if each in read]))
    return list(kept)


def _calls(
    roots: Sequence[UOp], device: AnyDevice, why: Mapping[UOp, str] = {}
) -> list[KernelCall]:
    options = Options(config.fuse, config.verify, config.stress)
    return schedule(roots, _target_of(device), options, why) if roots else []


def _open_calls(
    order: Sequence[UOp],
    roots: Sequence[UOp],
    device: AnyDevice,
    structure: Structure,
    variables: tuple[UOp, ...],
) -> list[KernelCall]:
    """Return the kernels of a graph with variables; those of a known family where one holds."""
    settings = (config.fuse, config.verify, config.stress, config.fp32_matmul, config.tune)
    key = (structure, device.name, settings)
    families = _FAMILIES.setdefault(key, [])
    _FAMILIES.move_to_end(key)
    if len(_FAMILIES) > MOST_FAMILIES:
        _FAMILIES.popitem(last=False)
    values = tuple(map(value_of, variables))
    for each in families:
        if each.holds(values):
            return each.calls_in(order, variables)
    with recorded_claims() as claims:
        calls = _calls(roots, device)
    families.append(family_of(calls, order, variables, claims))
    return calls


def make_plan(
    graph: Graph,
    replaceable: dict[UOp, UOp],
    device: AnyDevice,
    structure: Structure = (),
    variables: tuple[UOp, ...] = (),
) -> Plan:
    """Return the launches that compute the roots of a graph, and the memory they need."""
    order, roots = graph.order, graph.roots
    if variables:
        calls = _open_calls(order, roots, device, structure, variables)
    else:
        calls = _calls(roots, device, graph.why)
    assigned = assign_memory(calls, roots, replaceable)
    numbered = [_share_program(step.kernel, device) for step in assigned.steps]
    kernels = [each.kernel for each in numbered]
    ready_before = [_key_of(kernel, device) in _COMPILED for kernel in kernels]
    compiled = _compile(kernels, device)
    if kernels and wants_schedule():
        steps = zip(kernels, assigned.steps, compiled, ready_before, strict=True)
        report.show_schedule(roots, _told(steps, calls, _target_of(device)))
        note(report.Scheduled(tuple(roots), assigned.arena_bytes))
        for each in compiled:
            _show_code(each, device)
        report.head_launches()
    numbers: dict[UOp | None, int] = {node: number for number, node in enumerate(order)}
    launches: list[Launch] = []
    for made, step, given in zip(compiled, assigned.steps, numbered, strict=True):
        places = [(numbers.get(at.holder), at.offset, at.nbytes) for at in step.locations]
        addresses = tuple([Address(*place) for place in places])
        values = tuple(map(value_of, calls[step.number].variables))
        launches.append(Launch(made, addresses, step.extents, given.scalars or values))
    results = [
        Result(numbers[root], nbytes_of(root), describe(root), numbers.get(leaf))
        for root, leaf in [(root, assigned.replaced.get(root)) for root in roots]
    ]
    return Plan(tuple(launches), assigned.arena_bytes, tuple(results))


def _told(
    steps: Iterable[tuple[Kernel, Step, Compiled, bool]],
    calls: Sequence[KernelCall],
    target: Target,
) -> list[report.Planned]:
    """Return what is to be told of each kernel, in the order in which they run."""
    reads, apart = report.reads_of(calls), report.apart_of(calls)
    writes = report.writes_of(calls)
    planned: list[report.Planned] = []
    for kernel, step, made, was_compiled in steps:
        call, lowered = calls[step.number], made.lowered
        plan = lowered.decisions if lowered else ()
        facts = (kernel, reads[step.number], plan, was_compiled, target, step.extents)
        planned.append(
            report.Planned(*facts, call, lowered, apart[step.number], writes[step.number])
        )
    return planned


def _show_code(compiled: Compiled, device: AnyDevice) -> None:
    if compiled.lowered is None or config.debug < 3:
        return
    code = device.disassemble(compiled.work) if config.debug >= 6 else ""
    report.print_code(compiled.lowered, code)


def _compile(kernels: Sequence[Kernel], device: AnyDevice) -> list[Compiled]:
    """Make kernels ready; those with the same canonical sink are lowered once, ever."""
    keys = [_key_of(kernel, device) for kernel in kernels]
    ready = {key: _COMPILED[key] for key in keys if key in _COMPILED and _tells(_COMPILED[key])}
    missing = {key: each for key, each in zip(keys, kernels, strict=True) if key not in ready}
    for key, made in zip(missing, _lower_all(list(missing.values()), device), strict=True):
        ready[key] = _COMPILED[key] = made
        if len(_COMPILED) > MOST_COMPILED:
            _COMPILED.popitem(last=False)
    return [ready[key] for key in keys]


def _share_program(kernel: Kernel, device: AnyDevice) -> Numbered:
    """Return a kernel without its numbers, if a program was asked for that differs in them alone.

    The first such program knows its numbers, the second serves all others. Instances know theirs.
    """
    is_python = device.target.kind == "python"
    if kernel.instanced or is_python or _key_of(kernel, device) in _COMPILED:
        return Numbered(kernel)
    bare = take_out_numbers(kernel)
    if not bare.scalars:
        return bare
    first = _FIRST.setdefault(_key_of(bare.kernel, device), kernel.sink)
    return Numbered(kernel) if first is kernel.sink else bare


def _key_of(kernel: Kernel, device: AnyDevice) -> Key:
    settings = (config.stress, config.fp32_matmul, config.tune)
    return (kernel.sink, kernel.instanced, device.name, *settings)


def _target_of(device: AnyDevice) -> Target:
    """Return what the compiler plans for: under TT_STRESS a machine that is small everywhere."""
    target = device.target.with_fp32_matmul(config.fp32_matmul)
    return target.stressed() if config.stress else target


def _tells(compiled: Compiled) -> bool:
    """Whether a kernel made before has kept all that somebody wants to see of it."""
    runs_itself = compiled.work is compiled.kernel
    return runs_itself or compiled.lowered is not None or not wants_schedule()


@timed("compile")
def _lower_all(kernels: Sequence[Kernel], device: AnyDevice) -> list[Compiled]:
    target = _target_of(device)
    if target.kind == "python" or not kernels:
        return [Compiled(kernel.name, kernel, None, None, kernel) for kernel in kernels]
    if config.tune == "1":
        lazy_import("tinytensor.tune", None, "realize").tune(kernels, device, target)
    is_shown = wants_schedule()
    made: list[Made] = []

    def lower_next() -> Iterator[Program]:
        for kernel in kernels:
            made.append(make_program(kernel, target, is_shown, device.model))
            yield made[-1].program

    works = device.compile(lower_next())
    return [
        Compiled(kernel.name, kernel, each.lowered, each.program, work)
        for kernel, each, work in zip(kernels, made, works, strict=True)
    ]
