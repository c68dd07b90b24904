"""Writes the Python function that checks a common kind of call and makes it, in one go.

It is for calls whose arguments are tensors by position, each seeing all of its cell, and that do
nothing but compute. Everything it does is a statement of its own for each tensor and each kernel:
no loop, no tuple and no call but those of kernels and allocators, because each would be felt.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tinytensor.config import CHANGES
from tinytensor.control.legs import Legs
from tinytensor.errors import DeviceError
from tinytensor.jit.direct import Quick, Tally, make_direct
from tinytensor.jit.program import Finder, Origin, Output, Program
from tinytensor.replay import Replay
from tinytensor.runtime.buffer import Block, Buffer, Taker
from tinytensor.tensor.base import NO_PARTS, FilledCell, TensorBase
from tinytensor.tensor.grad_mode import MODE

NEXT = "tally.next(*args, **named)"


def write_quick(
    program: Program, kinds: list[type[TensorBase]], is_enabled: bool, tally: Tally
) -> Quick | None:
    """Return a function that makes calls of a program, or hands them on; None for other programs.

    `kinds` are the classes of the arguments.
    """
    effects = program.effects
    is_pure = not (effects.writes or effects.gradients or effects.probes or program.actions)
    finders = [*[each.find for each in program.sources], *[each.find for each in program.readers]]
    replay = program.in_place.replay
    if not is_pure or isinstance(replay, Legs) or any(each.is_gradient for each in finders):
        return None
    if len({each.place for each in finders} - {None}) < len(kinds):  # some tensor is given twice
        return None
    if any(each.is_shared or each.result is None for each in program.values):
        return None
    call = make_direct(program, kinds, is_enabled, tally)
    if call is not None:
        return call
    writer = _Writer(program, is_enabled, tally)
    writer.write_guards(kinds)
    writer.write_launches(replay)
    writer.write_results()
    text = "\n    ".join(["def quick(*args, **named):", *writer.lines])
    space = dict(writer.names)
    exec(compile(text, "<quick call of a program>", "exec"), space)
    quick: Quick = space["quick"]
    return quick


class _Writer:
    """Collects the lines of the function, and the objects that its names stand for."""

    def __init__(self, program: Program, is_enabled: bool, tally: Tally) -> None:
        self.program = program
        self.lines: list[str] = []
        self.names: dict[str, Any] = {  # Any: objects of all kinds
            "Block": Block,
            "CHANGES": CHANGES,
            "DeviceError": DeviceError,
            "FilledCell": FilledCell,
            "MODE": MODE,
            "NO_PARTS": NO_PARTS,
            "empty": frozenset(),
            "new_tensor": TensorBase.__new__,
            "tally": tally,
        }
        self._refuse("CHANGES.count != tally.changes")
        self._refuse(f"MODE.get() is not {is_enabled}")

    def write_guards(self, kinds: list[type[TensorBase]]) -> None:
        """Check the arguments and all that is read from outside; name the memory of each source."""
        self._refuse(f"named or len(args) != {len(kinds)}")
        names = "".join([f"a{place}, " for place in range(len(kinds))])
        self.lines += [f"{names}= args"] if kinds else []
        for place, kind in enumerate(kinds):
            name = self._name("kind", place, kind)
            self._refuse(f"type(a{place}) is not {name} or a{place}._view is not None")
        for number, source in enumerate(self.program.sources):
            spec = self._name("spec", number, source.spec)
            self.lines.append(f"c{number} = {self._tensor(source.find)}.cell")
            self.lines.append(f"m{number} = c{number}.memory")
            self._refuse(f"m{number} is None or c{number}.spec is not {spec}")
        cells = [f"c{number}" for number in range(len(self.program.sources))]
        if len(cells) > 1:
            self._refuse(f"len({{{', '.join(cells)}}}) < {len(cells)}")
        for number, reader in enumerate(self.program.readers):
            tensor = self._tensor(reader.find)
            if tensor != self._tensor(self.program.sources[reader.source].find):
                self._refuse(f"{tensor}.cell is not c{reader.source}")
            if not reader.is_argument:
                view = self._name("view", number, reader.view)
                self._refuse(f"{tensor}._view is not {view}")
                self._refuse(f"({tensor}._grad is not None) is not {reader.has_gradient}")
        for number, watch in enumerate(self.program.watches):
            read = self._name("read", number, watch.read)
            known = self._name("known", number, watch.known)
            self._refuse(f"{read}() != {known}")

    def write_launches(self, replay: Replay) -> None:
        """Allocate the results and the arena, and launch the kernels."""
        addresses = [self._address(slot) for slot in self.program.in_place.slots]
        for number, take in enumerate(replay.takers):
            addresses.append(self._take(f"r{number}", take))
        if replay.take_arena is not None:
            addresses.append(self._take("arena", replay.take_arena))
        for number, call in enumerate(replay.calls):
            launcher, places = call.start.launcher, call.start.places
            start = self._name("start", number, launcher.start)
            given = [
                addresses[base] + (f" + {offset}" if offset else "") for base, offset in places
            ]
            if launcher.workspace is not None:
                given.append(f"{self._name('workspace', number, launcher.workspace)}()")
            self.lines.append(f"{start}({', '.join(given)})")

    def write_results(self) -> None:
        """Make the tensors that are returned."""
        self.lines.append("tally.calls += 1")
        effects = self.program.effects
        made: set[int] = set()
        for number, output in enumerate(effects.outputs):
            if output.known is not None:
                self.lines.append(f"t{number} = {self._tensor(output.known)}")
                continue
            if output.source is None and output.value not in made:
                made.add(output.value)
                self._write_cell(output.value)
            self._write_tensor(number, output)
        outputs = ", ".join([f"t{number}" for number in range(len(effects.outputs))])
        if effects.is_single:
            self.lines.append(f"return {outputs}")
        else:
            self.names["build"] = effects.build
            self.lines.append(f"return build([{outputs}])")

    def _write_cell(self, number: int) -> None:
        value = self.program.values[number]
        spec = self._name("value_spec", number, value.spec)
        cell = f"d{number}"
        self.lines += [
            f"r{value.result}.site = {self._name('value_site', number, value.site)}",
            f"{cell} = FilledCell()",
            f"{cell}.memory = r{value.result}",
            f"{cell}.spec = {spec}",
            f"{cell}.lifted = empty",
            f"{cell}.parts = NO_PARTS",
            f"{cell}.replaced = None",
        ]

    def _write_tensor(self, number: int, output: Output) -> None:
        cell = f"d{output.value}" if output.source is None else f"c{output.source}"
        tensor = f"t{number}"
        self.lines += [
            f"{tensor} = new_tensor({self._name('output_kind', number, output.kind)})",
            f"{tensor}.cell = {cell}",
            f"{tensor}._view = {self._name('output_view', number, output.view)}",
            f"{tensor}._current = {tensor}._grad = None",
            f"{tensor}.device = {output.device!r}",
            f"{tensor}.site = {self._name('site', number, output.site)}",
        ]

    def _take(self, name: str, take: Callable[[], Buffer]) -> str:
        """Allocate a buffer of that name; return its address, which has a name as well."""
        taken = f"take_{name}"
        self.names[taken] = take
        address = f"{name}_address"
        if not isinstance(take, Taker):
            self.lines += [f"{name} = {taken}()", f"{address} = {name}.address"]
            return address
        shelf, blocks, use = f"shelf_{name}", f"blocks_{name}", f"use_{name}"
        self.names.update({shelf: take.shelf, blocks: take.shelf.blocks, use: take.shelf.use})
        self.names[f"device_{name}"] = take.allocator.device
        self.lines += [
            "try:",
            f"    {address} = {blocks}.pop()",
            "except IndexError:",
            "    try:",
            f"        {name} = {taken}()",
            f"    except DeviceError: return {NEXT}",  # it says what there is too little memory for
            f"    {address} = {name}.address",
            "else:",
            f"    {use}[0] += {take.shelf.block_bytes}",
            f"    if {use}[0] > {use}[1]: {use}[1] = {use}[0]",
            f"    {name} = Block()",
            f"    {name}.is_shared, {name}.site = False, None",
            f"    {name}.device = device_{name}",
            f"    {name}.nbytes, {name}.shelf = {take.nbytes}, {shelf}",
            f"    {name}.address = {address}",
        ]
        return address

    def _refuse(self, condition: str) -> None:
        self.lines.append(f"if {condition}: return {NEXT}")

    def _name(self, kind: str, number: int, value: object) -> str:
        name = f"{kind}{number}"
        self.names[name] = value
        return name

    def _tensor(self, find: Finder) -> str:
        if find.place is not None:
            return f"a{find.place}"
        return self._name("outside", id(find.tensor), find.tensor)

    def _address(self, number: int) -> str:
        slot = self.program.slots[number]
        if slot.origin is Origin.SOURCE:
            return f"m{slot.number}.address"
        assert slot.memory is not None, "a pure program has no feeds"
        return str(slot.memory.address)
