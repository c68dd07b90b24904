"""Tells the host's C of a common kind of call, which it then checks and makes without Python.

It is for programs on the CPU that read nothing but their arguments and give fresh tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from tinytensor.config import CHANGES
from tinytensor.errors import DeviceError
from tinytensor.jit.program import Origin, Program, fresh_cell, seeing
from tinytensor.records import dataclass
from tinytensor.replay import Replay
from tinytensor.runtime.buffer import Buffer, BufferPart, Taker
from tinytensor.runtime.steps import Part, WholeCall
from tinytensor.tensor.base import Cell, TensorBase
from tinytensor.tensor.grad_mode import MODE

Quick = Callable[..., Any]  # Any: what the user's function returns
NO_ADDRESS = 1 << 62  # and what follows it


@dataclass(slots=True)
class Tally:
    """How often a program was called; the count of changes of settings at which it fits.

    The `next` one makes the calls for which it does not.
    """

    calls: int = 0
    changes: int = -1
    next: Quick | None = None


# What runtime/steps.c reads, in its order.
READ_SLOTS = (
    *((TensorBase, "_view"), (TensorBase, "cell"), (Cell, "memory"), (Cell, "spec")),
    *((type(CHANGES), "count"), (Tally, "changes"), (Tally, "calls"), (Tally, "next")),
)


def make_direct(
    program: Program, kinds: Sequence[type[TensorBase]], is_enabled: bool, tally: Tally
) -> Quick | None:
    """Return C that makes calls of a program; None where the device has none, or more is done."""
    replay, effects = program.in_place.replay, program.effects
    assert isinstance(replay, Replay), "the caller leaves others out"
    launchers = [each.start.launcher for each in replay.calls]
    make = launchers[0].whole if len(launchers) == 1 else None
    if make is None or not _is_plain(program, len(kinds)):
        return None
    given = [each for each in (*replay.takers, replay.take_arena) if each is not None]
    takers = [each for each in given if isinstance(each, Taker)]
    if len(takers) < len(given):
        return None

    def restock() -> bool:
        with suppress(DeviceError):  # the next one says what there is too little memory for
            _ = [take() for take in takers]
        return True

    return make(
        WholeCall(
            slots=READ_SLOTS,
            changes=CHANGES,
            tally=tally,
            mode=MODE,
            is_enabled=is_enabled,
            workspace=launchers[0].workspace,
            restock=restock,
            build=None if effects.is_single else effects.build,
            kinds=kinds,
            specs=[each.spec for each in program.sources],
            parts=_parts(program, takers),
            blocks=len(takers),
            results=len(effects.outputs),
            order=_order(program, replay, len(takers)),
        )
    )


def _is_plain(program: Program, arguments: int) -> bool:
    """Whether a call reads its arguments alone, and gives tensors of its own."""
    places = list(range(arguments))
    return (
        [each.find.place for each in program.sources] == places
        and [each.find.place for each in program.readers] == places
        and all(each.origin is Origin.SOURCE for each in program.slots)
        and not program.watches
        and all(each.known is None and each.source is None for each in program.effects.outputs)
    )


def _parts(program: Program, takers: Sequence[Taker]) -> list[Part]:
    """Return what a call takes and makes: blocks, their buffers, cells and tensors."""
    buffers = [
        BufferPart(take.allocator.device, take.nbytes, NO_ADDRESS + number, take.shelf)
        for number, take in enumerate(takers)
    ]
    cells: list[Cell] = []
    for value in program.values:
        assert value.result is not None, "the caller leaves others out"
        buffers[value.result].site = value.site
        cells.append(fresh_cell(buffers[value.result], value.spec))
    tensors = [seeing(cells[each.value], each) for each in program.effects.outputs]
    made = [*[Part(Buffer, each) for each in buffers], *[Part(type(each), each) for each in cells]]
    blocks = [Part(take.shelf, each.address) for take, each in zip(takers, buffers, strict=True)]
    return [*blocks, *made, *[Part(type(each), each) for each in tensors]]


def _order(program: Program, replay: Replay, blocks: int) -> list[int]:
    """Return where the addresses are that the steps take."""
    taken = range(len(program.sources), len(program.sources) + blocks)
    bases = [*[program.slots[each].number for each in program.in_place.slots], *taken]
    start = replay.calls[0].start
    scratch = [taken.stop] if start.launcher.workspace is not None else []
    return [*[bases[base] for base, _ in start.places], *scratch]
