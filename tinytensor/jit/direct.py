"""Tells the host's C of a common kind of call, which it then checks and makes without Python.

It is for programs that only compute, whatever they read outside of their arguments.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from tinytensor.config import CHANGES
from tinytensor.control.legs import Legs
from tinytensor.errors import CompileError, DeviceError
from tinytensor.jit.demands import Given, watch_words, word_of
from tinytensor.jit.program import Finder, Program, Reader, expect_all, filled, fresh_cell, seeing
from tinytensor.records import dataclass
from tinytensor.replay import Call, Replay
from tinytensor.runtime.buffer import Buffer, BufferPart, Taker
from tinytensor.runtime.device import Device
from tinytensor.runtime.steps import Part, Table, WholeCall, address_of, words_table, write_parts
from tinytensor.tensor.base import NO_CUTS, NO_PARTS, Cell, FilledCell, TensorBase
from tinytensor.tensor.grad_mode import MODE

Direct = Callable[..., Any]  # Any: what the user's function returns
NO_ADDRESS = 1 << 62  # and what follows it


@dataclass(slots=True)
class Tally:
    """How often a program was called; the count of changes of settings at which it fits.

    The `next` one makes the calls for which it does not.
    """

    calls: int = 0
    changes: int = -1
    next: Direct | None = None


@dataclass(slots=True, eq=False)
class Way:
    """A program, how often it was called, and C that makes its calls."""

    program: Program
    tally: Tally
    direct: Direct | None


# What runtime/steps.c reads, in its order.
READ_SLOTS = (
    *((TensorBase, "_view"), (TensorBase, "_grad"), (TensorBase, "cell")),
    *((Cell, "leaf"), (Cell, "lifted"), (Cell, "memory"), (Cell, "spec"), (Cell, "parts")),
    (BufferPart, "is_shared"),
    *((type(CHANGES), "count"), (Tally, "changes"), (Tally, "calls"), (Tally, "next")),
)


def make_direct(
    program: Program, given: Given | None, is_enabled: bool, tally: Tally
) -> Direct | None:
    """Return C that makes calls of a program, or hands them on; None for other programs."""
    replay = program.in_place.replay
    if given is None or isinstance(replay, Legs) or not _only_computes(program, replay):
        return None
    readers = _readers_in_order(program, given.tensors)
    if readers is None:
        return None
    fresh = zip(replay.takers, replay.taken, strict=True)
    needed = [*[take for take, leaf in fresh if leaf is None], replay.take_arena]
    takers = [each for each in needed if isinstance(each, Taker)]
    if len(takers) < len(needed) - needed.count(None):
        return None
    try:
        cpu: Any = Device["CPU"]  # Any: a device found by name runs its own kind of work
        call = _Writer(program, replay, readers, takers).write(given, is_enabled, tally)
        made: Direct | None = cpu.whole(call)
    except (DeviceError, CompileError):  # there is no compiler of C
        return None
    return made


def _only_computes(program: Program, replay: Replay) -> bool:
    """Whether a call does nothing but compute values, each in memory of its own.

    Those that are written lie where those were that they replace; only on the CPU can nothing
    interrupt that.
    """
    effects, values = program.effects, program.values
    if effects.gradients or program.actions:
        return False
    found = [each.result for each in values if each.result is not None and not each.is_shared]
    if len(found) < len(values):
        return False
    written = [(each.source, found[each.value]) for each in effects.writes]
    in_place = all(_source_of(program, replay, result) == source for source, result in written)
    return in_place and (not written or _table_of(replay.calls[0]) is not None)


def _source_of(program: Program, replay: Replay, result: int) -> int | None:
    """Return the source in whose memory a result is computed, by number."""
    leaf = replay.taken[result]
    return None if leaf is None else program.slots[program.in_place.slots[leaf]].number


def _table_of(call: Call) -> Table | None:
    """Return the table by which C runs kernels, where it does."""
    table = getattr(call.start.launcher.start, "__self__", None)
    return table if isinstance(table, Table) else None


def _readers_in_order(program: Program, arguments: int) -> list[Reader] | None:
    """Return what reads arguments, by their places, and then the others; None for other programs.

    Each argument is another tensor with a cell of its own, and each cell is found by one of them.
    """
    given = [each for each in program.readers if each.find.place is not None]
    others = [each for each in program.readers if each.find.place is None]
    places = [each.find.place for each in given]
    sources = {each.source for each in program.readers}
    is_known = (
        places == list(range(arguments))
        and len({each.source for each in given}) == len(given)
        and len(sources) == len(program.sources)
        and not any(each.find.is_gradient for each in program.readers)
    )
    return [*given, *others] if is_known else None


class _Writer:
    """Writes down a program, over things that stand for its tensors and cells."""

    def __init__(
        self, program: Program, replay: Replay, readers: Sequence[Reader], takers: Sequence[Taker]
    ) -> None:
        self._program = program
        self._replay = replay
        self._readers = readers
        self._takers = takers
        self._tensors = [object() for _ in readers]
        self._cells: list[Cell] = [FilledCell() for _ in program.sources]
        self._held: list[Table] = []
        numbers = itertools.count(len(self._cells))
        sources = [_source_of(program, replay, each) for each in range(len(replay.taken))]
        found = [next(numbers) if each is None else each for each in sources]
        # Of results and the arena: each is that of a source, or comes after those.
        self._addresses = [*found, next(numbers)]

    def write(self, given: Given, is_enabled: bool, tally: Tally) -> WholeCall:
        """Return all that C needs to know."""
        program, effects = self._program, self._program.effects
        build = None if effects.is_single else effects.build
        expect = partial(expect_all, effects.probes) if effects.probes else None
        watches = [watch_words(each) for each in program.watches]
        parts, results, probed = self._parts()
        likes = [*self._tensors, *self._cells, *[each.like for each in parts]]
        places = {id(each): number for number, each in enumerate(likes, 1)}
        rows = [
            words_table([word for words, _ in watches for word in words]),
            words_table([word for each in self._readers for word in _words_of_reader(each)]),
            words_table([id(each.spec) for each in program.sources]),
            write_parts(parts, likes),
            words_table([places[id(each)] for each in (*results, *probed)]),
            words_table([each.source for each in effects.writes]),
            words_table([word for each in self._replay.calls for word in self._start(each)]),
        ]
        read = (self._readers, program.sources, watches, self._takers)
        made: tuple[Sequence[object], ...] = (parts, results, probed)
        done = (effects.writes, self._replay.calls)
        known = (CHANGES, tally, MODE, is_enabled, NO_CUTS, NO_PARTS, False, FilledCell, filled)
        return WholeCall(
            slots=READ_SLOTS,
            objects=[*known, self._restock(), build, expect, given.names, "__dict__"],
            counts=[given.count, *map(len, read), *map(len, made), *map(len, done)],
            rows=[given.demands, *rows],
            keeps=(program, watches, self._held),
        )

    def _restock(self) -> Callable[[], bool]:
        takers = self._takers

        def restock() -> bool:
            with suppress(DeviceError):  # the next way says what there is too little memory for
                _ = [take() for take in takers]  # all before one of them goes back
            return True

        return restock

    def _parts(self) -> tuple[list[Part], list[object], list[BufferPart]]:
        """Return what a call takes and makes, what it returns, and what its probes give."""
        program, takers = self._program, self._takers
        buffers = [
            BufferPart(take.allocator.device, take.nbytes, NO_ADDRESS + number, take.shelf)
            for number, take in enumerate(takers)
        ]
        first, end = len(self._cells), len(self._replay.taken)
        places = enumerate(self._addresses[:end])
        fresh = {number: buffers[at - first] for number, at in places if at >= first}
        cells: dict[int, Cell] = {}
        for number, value in enumerate(program.values):
            if value.result in fresh:
                fresh[value.result].site = value.site
                cells[number] = fresh_cell(fresh[value.result], value.spec)
        results: list[object] = []
        for each in program.effects.outputs:
            if each.known is not None:
                results.append(self._tensor(each.known))
            else:
                cell = cells[each.value] if each.source is None else self._cells[each.source]
                results.append(seeing(cell, each))
        pairs = zip(takers, buffers, strict=True)
        blocks = [Part(take.shelf, each.address) for take, each in pairs]
        made = [Part(Buffer, each) for each in buffers]
        made += [Part(type(each), each) for each in cells.values()]
        made += [Part(type(each), each) for each in results if isinstance(each, TensorBase)]
        probed = [fresh[each] for each in range(end - len(program.effects.probes), end)]
        return [*blocks, *made], results, probed

    def _tensor(self, find: Finder) -> object:
        known = [each.find for each in self._readers]
        found = [each.place == find.place and each.tensor is find.tensor for each in known]
        return self._tensors[found.index(True)]

    def _start(self, call: Call) -> list[int]:
        """Return the words of what starts kernels."""
        slots = [self._program.slots[each] for each in self._program.in_place.slots]
        bases = [each.memory.address if each.memory else each.number for each in slots]
        bases += self._addresses
        launcher, places = call.start.launcher, call.start.places
        table = _table_of(call)
        pairs = [(bases[base], offset) for base, offset in places]
        words = words_table([word for pair in pairs for word in pair])
        self._held.append(words)
        head = 0 if table is None else address_of(table)
        scratch = word_of(launcher.workspace)
        return [head, id(launcher.start), scratch, len(places), address_of(words)]


def _words_of_reader(reader: Reader) -> list[int]:
    outside = word_of(reader.find.tensor)
    return [outside, id(reader.view), reader.has_gradient, reader.source]
