"""Turns the plan of a schedule into launches whose addresses are looked up in one table."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import itemgetter
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tinytensor.captures import LAUNCHES, Launched
from tinytensor.config import config
from tinytensor.errors import DeviceError
from tinytensor.lazy import lazy_import
from tinytensor.ops.instances import split
from tinytensor.ops.kernel import Kernel
from tinytensor.ops.op import Op
from tinytensor.ops.program import Program
from tinytensor.ops.uop import living_leaves, walk
from tinytensor.records import dataclass
from tinytensor.runtime.buffer import Buffer
from tinytensor.runtime.device import AnyDevice, Start, Step
from tinytensor.timing import stage, timed

if TYPE_CHECKING:
    from tinytensor.codegen.lower import Lowered

Table = list[int]
Given = Mapping[int, Buffer]
NOTHING_GIVEN: Given = {}


@dataclass(frozen=True, slots=True)
class Compiled:
    """A kernel made ready for a device, under its name.

    `lowered` is None where it was not lowered just now, `kernel` where the plan was read from the
    disk, and `program` where a device needs none.
    """

    name: str
    kernel: Kernel | None
    lowered: Lowered | None
    program: Program | None
    work: Any  # each device runs its own kind of work


@dataclass(frozen=True, slots=True)
class Address:
    """Where a param lies: in the memory of a node, by its number in the walk, or in the arena."""

    holder: int | None
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel of a schedule, where its params lie, and its scalars.

    Of an instanced kernel they are those of all instances, with their extents.
    """

    compiled: Compiled
    addresses: tuple[Address, ...]
    extents: tuple[int, ...]
    scalars: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Result:
    """A value that a plan computes: its number in the walk, its bytes, and what to call it.

    `replaced` is the number of the leaf in whose memory it is computed.
    """

    number: int
    nbytes: int
    name: str
    replaced: int | None


@dataclass(frozen=True, slots=True)
class Plan:
    """The launches of a schedule, and the memory they need: all of it, before the first one runs.

    Units: `arena_bytes`.
    """

    launches: tuple[Launch, ...]
    arena_bytes: int
    results: tuple[Result, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """What starts kernels, and what takes their addresses out of a table, which holds parts too."""

    start: Start
    pick: Callable[[Table], tuple[int, ...]]


class Replay:
    """A plan made ready to run: `leaves` are the numbers of the leaves whose memory it is given.

    `taken` says for each result in which leaf's memory it is computed, by place, if in any.
    The table holds the addresses of the leaves, of the results, of the arena, and of parts of them.
    """

    def __init__(self, plan: Plan, device: AnyDevice) -> None:
        self.device = device
        self.results = plan.results
        self.launches = plan.launches
        made_ready = [each.compiled for each in plan.launches]
        self._scratched = [
            each.work for each in made_ready if each.program is None or each.program.workspace_bytes
        ]
        self.take_arena = device.taker(plan.arena_bytes) if plan.arena_bytes else None
        self.takers = [device.taker(each.nbytes) for each in plan.results]
        made = {each.number for each in plan.results}
        found = [each.holder for launch in plan.launches for each in launch.addresses]
        given = [each.replaced for each in plan.results]
        numbers = dict.fromkeys([*found, *given])
        self.leaves = [each for each in numbers if each is not None and each not in made]
        slots = {number: slot for slot, number in enumerate(self.leaves)}
        self.taken = [
            None if each.replaced is None else slots[each.replaced] for each in plan.results
        ]
        first = len(self.leaves)
        self._bases: dict[int | None, int] = {None: first + len(plan.results)}
        for number, slot in slots.items():
            self._bases[number] = slot
        for place, each in enumerate(plan.results):
            self._bases[each.number] = first + place
        self._parts: dict[tuple[int, int], int] = {}
        steps = [self._step(each) for each in plan.launches]
        self.calls = [self._prepared(each) for each in device.starts(steps)]

    def run(self, leaves: Sequence[Buffer], given: Given = NOTHING_GIVEN) -> list[Buffer]:
        """Launch all kernels; return the memory of the results, those `given` by number.

        Raises: DeviceError when there is too little memory; then nothing has changed.
        """
        results: list[Buffer] = []
        take = timed("allocate")(self._allocate) if LAUNCHES else self._allocate
        arena = take(leaves, results, given)
        if self.is_shown:
            self._show([*leaves, *results], arena)
            return results
        table = [each.address for each in leaves]
        table += [each.address for each in results]
        table.append(arena.address if arena is not None else 0)
        for base, offset in self._parts:
            table.append(table[base] + offset)
        _launch_all(self.calls, table)
        return results

    @property
    def is_shown(self) -> bool:
        """Whether each launch goes by itself through `device.run`, which somebody may have set."""
        return bool(config.debug or config.stress or LAUNCHES) or "run" in vars(self.device)

    @property
    def has_kernels(self) -> bool:
        """Whether the kernels are there, for who wants to see them."""
        return all(each.compiled.kernel is not None for each in self.launches)

    def names(self) -> tuple[str, ...]:
        """Return the names of the kernels, in order."""
        return tuple([each.compiled.name for each in self.launches])

    def told(self) -> str:
        """Say in a phrase how they start; nothing where there is but one way."""
        told = [each.start.launcher.told for each in self.calls]
        return ", ".join([each() for each in told if each is not None])

    def _allocate(
        self, leaves: Sequence[Buffer], results: list[Buffer], given: Given
    ) -> Buffer | None:
        """Allocate the results and the arena; a replaced leaf gives its memory."""
        device = self.device
        purpose = "the scratch memory of kernels"
        arena = None
        try:
            if self._scratched:
                device.reserve_workspace(self._scratched)
            purpose = "the values between"
            arena = self.take_arena() if self.take_arena is not None else None
            plans = zip(self.results, self.takers, self.taken, strict=True)
            for number, (each, take, slot) in enumerate(plans):
                purpose = each.name
                # Kernels read a replaced leaf before they write the result.
                place = given.get(number) if slot is None else leaves[slot]
                results.append(place or take())
        except DeviceError as error:
            results.clear()  # else the traceback keeps what was allocated
            arena = None
            asked = f"{error}\nasked for {purpose}\n{largest_on(device)}"
            raise DeviceError(asked) from error
        return arena

    def _step(self, launch: Launch) -> Step:
        places = [(self._bases[each.holder], each.offset) for each in launch.addresses]
        sizes = [each.nbytes for each in launch.addresses]
        given = (launch.scalars, launch.extents)
        return Step(launch.compiled.work, tuple(places), tuple(sizes), *given)

    def _prepared(self, start: Start) -> Call:
        slots = [self._slot_of(*place) for place in start.places]
        pick: Any = itemgetter(*slots)  # Any: of one slot it would give no tuple
        if len(slots) == 1:
            pick = partial(_only, slots[0])
        return Call(start, pick)

    def _slot_of(self, base: int, offset: int) -> int:
        if offset == 0:
            return base
        behind = len(self._bases)
        return self._parts.setdefault((base, offset), behind + len(self._parts))

    def _show(self, buffers: Sequence[Buffer], arena: Buffer | None) -> None:
        """Launch all kernels with all that DEBUG, TT_STRESS and watchers ask for."""
        held = [*buffers, arena]
        for launch in self.launches:
            wholes = [(held[self._bases[each.holder]], each) for each in launch.addresses]
            parts = [each.part(at.offset, at.nbytes) for each, at in wholes if each is not None]
            _launch(launch, parts, self.device)


def _launch_all(calls: Sequence[Call], table: Table) -> None:
    for call in calls:
        start, workspace = call.start.launcher.start, call.start.launcher.workspace
        if workspace is None:
            start(*call.pick(table))
        else:
            start(*call.pick(table), workspace())


def _only(slot: int, table: Table) -> tuple[int, ...]:
    return (table[slot],)


def largest_on(device: AnyDevice) -> str:
    """List the tensors that hold the most memory of a device."""
    # The base of a view has no memory.
    held = [(each, getattr(each, "memory", None)) for each in living_leaves()]
    found = {leaf: memory.site for leaf, memory in held if memory and memory.device is device}
    return str(_report().largest(found))


def _report() -> ModuleType:
    """Return what tells users of kernels, which few processes need."""
    return lazy_import("tinytensor.report", None, "replay")


def _launch(launch: Launch, buffers: Sequence[Buffer], device: AnyDevice) -> None:
    compiled, extents = launch.compiled, launch.extents
    kernel = compiled.kernel
    if config.stress:
        assert kernel is not None, "replay: who poisons what a kernel writes has made it"
        for part in split(buffers, extents):
            _poison(kernel, part, device)
    run = partial(device.run, compiled.work, buffers, launch.scalars, extents=extents)
    if not (config.debug or LAUNCHES):
        run()
        return
    with stage("launch", compiled.name):
        start = device.event_record()
        run()
        end = device.event_record()
    for found in LAUNCHES:
        found.append(Launched(compiled.name, kernel, device, start, end))
    if config.debug:
        assert kernel is not None, "replay: who shows kernels has made them"
        _report().print_launch(kernel, device.name, device.elapsed_us(start, end), extents)


def _poison(kernel: Kernel, buffers: Sequence[Buffer], device: AnyDevice) -> None:
    """Fill what a kernel writes and does not read: so that a read of what is there gives NaN.

    What it writes in parts keeps the rest.
    """
    points = math.prod([each.extent for each in kernel.ranges if not each.is_open])
    read = {node.operands[0].attrs.number for node in walk([kernel.sink]) if node.op is Op.LOAD}
    for store in kernel.sink.operands:
        number = store.operands[0].attrs.number
        is_whole = len(store.operands) == 3 and points >= kernel.params[number].elements
        if is_whole and number not in read:
            device.poison(buffers[number])
