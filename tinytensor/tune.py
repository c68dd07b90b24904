"""Measures the best few candidates of a kernel's plan on its device, and stores the fastest."""

from __future__ import annotations

import hashlib
import math
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from tinytensor.codegen.lower import lower
from tinytensor.codegen.plan import take
from tinytensor.dtype import DType, dtypes
from tinytensor.errors import CompileError, DeviceError
from tinytensor.ops.interpret import to_storage
from tinytensor.ops.kernel import Kernel, Winner
from tinytensor.ops.op import COMPARE, Op
from tinytensor.ops.program import Program
from tinytensor.ops.uop import UOp, walk
from tinytensor.program_cache import find_winner, keep_winner
from tinytensor.progress import Progress
from tinytensor.records import dataclass
from tinytensor.runtime.buffer import Buffer
from tinytensor.runtime.device import AnyDevice
from tinytensor.target import Target

MOST_CANDIDATES = 12  # of a kernel: the best by estimate
MOST_SECONDS = 3.0  # of measuring one kernel, beside compiling its candidates
LEAST_ROUNDS, MOST_ROUNDS = 3, 25
LEAST_GAIN = 1.02  # over the best by estimate, else that one stays: less may be chance
MOST_TOLD = 4
HOPELESS = 0.7  # of its speed in the first round: no more rounds
BATCH_US = 1000  # of calls between two events
MOST_CALLS = 256
COLD = 3  # times what the caches hold lies between two calls on the same memory
MOST_SETS = 64
LARGEST = 2  # magnitude of an input
PERIOD = 999_983  # of inputs: a prime, so that no row repeats the one before
EXACT = {
    **{dtypes.float8_e4m3fn: 2**4, dtypes.float8_e5m2: 2**3},
    **{dtypes.float16: 2**11, dtypes.bfloat16: 2**8, dtypes.float32: 2**24},
}

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Measured:
    """A candidate's median time and speed, as a part of the first one's; 0 where it was wrong.

    Units: µs a call.
    """

    name: str
    time_us: float
    speed: float


def tune(kernels: Sequence[Kernel], device: AnyDevice, target: Target) -> None:
    """Find and store the winner of each kernel that has several candidates and none stored."""
    left = [each for each in kernels if find_winner(each, target, device.model) is None]
    with Progress("tuned") as progress:
        for kernel in list(progress.count(left)):
            plan = take(kernel, target).plan
            found = measure(kernel, device, target)
            if found:
                best = max(found, key=lambda each: each.speed)
                chosen = best if best.speed >= LEAST_GAIN else found[0]
                reason = describe(found, chosen, device.model)
                winner = Winner(plan.name, plan.version, chosen.name, reason)
                keep_winner(kernel, target, device.model, winner)
            progress.step()


def describe(found: Sequence[Measured], chosen: Measured, model: str) -> str:
    """Say what was measured, the fastest first."""
    others = sorted([each for each in found if each != chosen], key=lambda each: -each.speed)
    wrong = [f"{each.name} is wrong" for each in others if not each.speed]
    told = [f"{each.name} {each.time_us:.4g}" for each in others if each.speed][:MOST_TOLD] + wrong
    gain = f"{chosen.speed:.3f} times as fast as estimated best {found[0].name}"
    won = gain if chosen != found[0] else f"nothing else is {LEAST_GAIN} times as fast"
    return f"{chosen.time_us:.4g} us on {model}, {won}; {'; '.join(told)}."


def measure(
    kernel: Kernel,
    device: AnyDevice,
    target: Target,
    most: int = MOST_CANDIDATES,
    seconds: float = MOST_SECONDS,
) -> list[Measured]:
    """Time the best candidates in turns, on cold memory; the best by estimate comes first.

    None where there is but one, where sums are not exact, or where the memory does not suffice.
    """
    taken = take(kernel, target)
    listed = taken.plan.candidates(taken.facts, target)[:most]
    if len(listed) < 2 or kernel.variables or not is_exact(kernel):
        return []
    plan = taken.plan
    winners = [Winner(plan.name, plan.version, each.name, "") for each in listed]
    works = compile_all([lower(kernel, target, each).program for each in winners], device)
    names = [each.name for each in listed]
    ready = {name: work for name, work in zip(names, works, strict=True) if work is not None}
    try:
        device.reserve_workspace(list(ready.values()))
        inputs = _inputs(kernel)
        sets = _make_sets(kernel, inputs, device, target)
        digests = {
            name: _digest(work, kernel, inputs, sets[0], device) for name, work in ready.items()
        }
        want = next(iter(digests.values()))
        right = {name: work for name, work in ready.items() if digests[name] == want}
        found = _take_turns(right, sets, device, seconds)
        return found + [Measured(name, 0.0, 0.0) for name in ready if name not in right]
    except DeviceError:
        return []


def compile_all(programs: Sequence[Program], device: AnyDevice) -> list[Any]:
    """Compile programs, and give None for each that does not compile."""
    with suppress(CompileError):
        return device.compile(programs)
    works: list[Any] = [None] * len(programs)
    for number, program in enumerate(programs):
        with suppress(CompileError):
            (works[number],) = device.compile([program])
    return works


def is_exact(kernel: Kernel) -> bool:
    """Whether small whole inputs give sums that are exact, and so the same in every order."""
    contraction = kernel.contraction
    if contraction is None:
        return False
    dtype = contraction.node.dtype
    a, b = [largest(each) for each in contraction.node.operands[:2]]
    return not dtype.is_float or contraction.extents[3] * a * b <= EXACT.get(dtype, 2**53)


def largest(factor: UOp) -> float:
    """Return the largest magnitude of a factor of whole inputs; infinite if it may be no whole."""
    found: dict[UOp, float] = {}
    for node in walk((factor,)):
        if node.dtype is not dtypes.index and node.dtype is not dtypes.void:
            size = _largest(node, [found.get(each, math.inf) for each in node.operands])
            found[node] = size if size <= EXACT.get(node.dtype, 2**53) else math.inf
    return found[factor]


def _largest(node: UOp, sizes: Sequence[float]) -> float:
    if node.op is Op.LOAD or node.op in COMPARE:
        return LARGEST
    if node.op is Op.CONST:
        return abs(node.value) if float(node.value).is_integer() else math.inf
    if node.op in (Op.ADD, Op.SUB):
        return sum(sizes)
    if node.op is Op.MUL:
        return math.prod(sizes)
    if node.op in (Op.MAX, Op.MIN, Op.NEG, Op.CAST):
        return max(sizes)
    return max(sizes[1:]) if node.op is Op.WHERE else math.inf


def _inputs(kernel: Kernel) -> dict[int, Array]:
    """Return what the params that are read are filled with, by number."""
    loads = [node for node in walk([kernel.sink]) if node.op is Op.LOAD]
    read = sorted({node.operands[0].attrs.number for node in loads})
    params = [(number, kernel.params[number]) for number in read]
    return {number: whole_numbers(each.dtype, each.elements, number) for number, each in params}


def _make_sets(
    kernel: Kernel, inputs: dict[int, Array], device: AnyDevice, target: Target
) -> list[list[Buffer]]:
    """Allocate and fill as many sets of buffers as keep each call from finding its own in cache."""
    sizes = [each.elements * each.dtype.itemsize for each in kernel.params]
    count = min(MOST_SETS, 1 + math.ceil(COLD * target.cache_bytes / max(sum(sizes), 1)))
    sets = [[device.allocate(each) for each in sizes] for _ in range(count)]
    for buffers in sets:
        for number, array in inputs.items():
            device.copy_in(buffers[number], array)
    return sets


def whole_numbers(dtype: DType, elements: int, seed: int) -> Array:
    """Return numbers from -LARGEST to LARGEST, in the dtype's storage type."""
    least = -LARGEST if dtype.min < 0 else 0
    most = 1 if dtype is dtypes.bool else LARGEST
    drawn = np.random.default_rng(seed).integers(least, most + 1, PERIOD)
    return np.resize(to_storage(drawn.astype(dtype.value_numpy), dtype), elements)


def _digest(
    work: Any,  # noqa: ANN401 - of the device
    kernel: Kernel,
    inputs: dict[int, Array],
    buffers: Sequence[Buffer],
    device: AnyDevice,
) -> str:
    """Run some work where nothing is written yet, and digest what it wrote."""
    written = [number for number, param in enumerate(kernel.params) if param.written]
    for number in written:
        if number in inputs:
            device.copy_in(buffers[number], inputs[number])
        else:
            device.poison(buffers[number])
    device.run(work, buffers)
    digest = hashlib.sha256()
    for number in written:
        host = bytearray(buffers[number].nbytes)
        device.copy_out(buffers[number], host)
        digest.update(host)
    return digest.hexdigest()


def _take_turns(
    works: dict[str, Any], sets: Sequence[Sequence[Buffer]], device: AnyDevice, seconds: float
) -> list[Measured]:
    """Time works round by round, each against the first one in the same round."""
    first = next(iter(works))
    once_us = _time_us(partial(device.run, works[first], sets[0]), device)
    calls = max(1, min(MOST_CALLS, math.ceil(BATCH_US / max(once_us, 1))))
    turns = [sets[number % len(sets)] for number in range(calls)]
    batches = {
        name: device.join([partial(device.run, work, each) for each in turns])
        for name, work in works.items()
    }
    times: dict[str, list[float]] = {name: [] for name in works}
    deadline = time.monotonic() + seconds
    for number in range(1 + MOST_ROUNDS):
        for name, batch in batches.items():
            times[name].append(_time_us(batch, device) / calls)
        if number == 0:  # the round that warms up
            limit = times[first][0] / HOPELESS
            batches = {name: each for name, each in batches.items() if times[name][0] <= limit}
        if number >= LEAST_ROUNDS and time.monotonic() > deadline:
            break
    return [_judge(name, times[name], times[first]) for name in works]


def _time_us(call: Callable[[], None], device: AnyDevice) -> float:
    start = device.event_record()
    call()
    return device.elapsed_us(start, device.event_record())


def _judge(name: str, times: Sequence[float], first: Sequence[float]) -> Measured:
    rounds = range(1, len(times)) if len(times) > 1 else range(1)
    speed = statistics.median([first[each] / times[each] for each in rounds])
    return Measured(name, statistics.median([times[each] for each in rounds]), speed)
