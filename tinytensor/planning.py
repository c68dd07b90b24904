"""Turns graphs into plans: schedules them, lowers and compiles their kernels."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence

from tinytensor import report
from tinytensor.captures import wants_schedule
from tinytensor.config import config
from tinytensor.ops.kernel import Kernel
from tinytensor.ops.program import Program
from tinytensor.ops.uop import UOp, nbytes_of
from tinytensor.program_cache import Made, make_program
from tinytensor.replay import Address, Compiled, Launch, Plan, Result
from tinytensor.runtime.device import AnyDevice
from tinytensor.schedule.describe import describe
from tinytensor.schedule.kernels import KernelCall
from tinytensor.schedule.memory import assign_memory
from tinytensor.schedule.order import written_by
from tinytensor.schedule.schedule import Options, schedule
from tinytensor.target import Target
from tinytensor.timing import note, timed

MOST_COMPILED = 4096
_COMPILED: OrderedDict[tuple[UOp, str, bool], Compiled] = OrderedDict()


def kept_between(inside: set[UOp], roots: Sequence[UOp], device: AnyDevice) -> list[UOp]:
    """Return the values among some nodes that a schedule keeps for what is outside of them."""
    kept: dict[UOp, None] = {}
    for call in _calls(roots, device):
        if not inside.issuperset(written_by(call)):
            kept.update(dict.fromkeys([each for each in call.nodes if each in inside]))
    return list(kept)


def _calls(roots: Sequence[UOp], device: AnyDevice) -> list[KernelCall]:
    options = Options(config.fuse, config.verify, config.stress)
    return schedule(roots, _target_of(device), options) if roots else []


def make_plan(
    order: Sequence[UOp], roots: Sequence[UOp], replaceable: dict[UOp, UOp], device: AnyDevice
) -> Plan:
    """Return the launches that compute some roots of a walk, and the memory they need."""
    calls = _calls(roots, device)
    assigned = assign_memory(calls, roots, replaceable)
    kernels = [step.kernel for step in assigned.steps]
    ready_before = [_key_of(kernel, device) in _COMPILED for kernel in kernels]
    compiled = _compile(kernels, device)
    if kernels and wants_schedule():
        lowered = [each.lowered for each in compiled]
        plans = [each.decisions if each else () for each in lowered]
        targets = [_target_of(device)] * len(calls)
        found = (kernels, report.reads_of(calls), plans, ready_before, targets, calls, lowered)
        planned = [report.Planned(*each) for each in zip(*found, strict=True)]
        report.show_schedule(roots, planned)
        note(report.Scheduled(tuple(roots), assigned.arena_bytes))
        for each in compiled:
            _show_code(each, device)
    numbers: dict[UOp | None, int] = {node: number for number, node in enumerate(order)}
    addresses = [
        tuple(
            [Address(numbers.get(each.holder), each.offset, each.nbytes) for each in step.locations]
        )
        for step in assigned.steps
    ]
    results = [
        Result(numbers[root], nbytes_of(root), describe(root), numbers.get(leaf))
        for root, leaf in [(root, assigned.replaced.get(root)) for root in roots]
    ]
    launches = [Launch(*each) for each in zip(compiled, addresses, strict=True)]
    return Plan(tuple(launches), assigned.arena_bytes, tuple(results))


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


def _key_of(kernel: Kernel, device: AnyDevice) -> tuple[UOp, str, bool]:
    return (kernel.sink, device.name, config.stress)


def _target_of(device: AnyDevice) -> Target:
    """Return what the compiler plans for: under TT_STRESS a machine that is small everywhere."""
    return device.target.stressed() if config.stress else device.target


def _tells(compiled: Compiled) -> bool:
    """Whether a kernel made before has kept all that somebody wants to see of it."""
    runs_itself = compiled.work is compiled.kernel
    return runs_itself or compiled.lowered is not None or not wants_schedule()


@timed("compile")
def _lower_all(kernels: Sequence[Kernel], device: AnyDevice) -> list[Compiled]:
    target = _target_of(device)
    if target.kind == "python" or not kernels:
        return [Compiled(kernel.name, kernel, None, None, kernel) for kernel in kernels]
    is_shown = wants_schedule()
    made: list[Made] = []

    def lower_next() -> Iterator[Program]:
        for kernel in kernels:
            made.append(make_program(kernel, target, is_shown))
            yield made[-1].program

    works = device.compile(lower_next())
    return [
        Compiled(kernel.name, kernel, each.lowered, each.program, work)
        for kernel, each, work in zip(kernels, made, works, strict=True)
    ]
