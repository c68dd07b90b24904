"""Turns a function on Tensors into one that runs once for each kind of call."""

from __future__ import annotations

import functools
import sys
import weakref
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from types import MethodType
from typing import Any, Generic, ParamSpec, TypeVar

from tinytensor.captures import LAUNCHES, wants_schedule
from tinytensor.config import CHANGES, config
from tinytensor.jit.build import Obstacle, build_program
from tinytensor.jit.demands import demands_of
from tinytensor.jit.direct import Tally, Way, make_direct
from tinytensor.jit.facts import key_of, names_of, watch_modules, watch_objects, watch_outside
from tinytensor.jit.open import OTHERS, Failure, OpenProgram, find_opening, trace_open
from tinytensor.jit.program import MISS
from tinytensor.jit.structure import Fact, Flat, flatten
from tinytensor.jit.words import changed, restructured, told_of
from tinytensor.records import dataclass
from tinytensor.runtime.lock import ForkSafeLock
from tinytensor.tensor.base import TensorBase
from tinytensor.tensor.grad_mode import MODE
from tinytensor.timing import count
from tinytensor.tracing import ACTIVE, TRACES, Trace, tracing

P = ParamSpec("P")
R = TypeVar("R")
Key = tuple[Fact, ...]
MOST_PROGRAMS = 16
MOST_REMARKS = 64
MOST_REFUSALS = 3  # after so many calls of a kind without a program none is looked for
# A trace writes to tensors that other threads may trace, too.
TRACING = ForkSafeLock()
LINKING = ForkSafeLock()  # two that link ways at once would make a ring


@dataclass(frozen=True, slots=True)
class ProgramRecord:
    """What there is to know of a program: what must hold for it, its kernels, its calls.

    `launched` says in a phrase how a device starts the kernels, where it has several ways.
    """

    guards: tuple[str, ...]
    kernels: tuple[str, ...]
    calls: int
    launched: str = ""


@dataclass(slots=True, eq=False)
class Entry(Way):
    """A program, and the names and facts it was made for."""

    key: Key
    names: list[str]

    def record(self) -> ProgramRecord:
        """Tell users of it."""
        guards = [f"{n} is {told_of(n, it)}" for n, it in zip(self.names, self.key, strict=True)]
        guards += [f"{each.name} has not changed" for each in self.program.watches]
        replay = self.program.in_place.replay
        return ProgramRecord(tuple(guards), replay.names(), self.tally.calls, replay.told())


class Jitted(Generic[P, R]):
    """A function whose calls are traced once and then made again without running it.

    `remarks` tell why it was traced anew, and why a call cannot be made again. Calling it returns
    what the function returns, and does to tensors what it does: `__call__` is a slot, in which the
    quickest way lies, and each way knows the next.
    """

    __slots__ = ("__call__", "__dict__", "__weakref__")
    __call__: Callable[P, R]

    def __init__(self, function: Callable[P, R], dynamic: bool | None = None) -> None:
        functools.update_wrapper(self, function, updated=())
        self.function = function
        self.dynamic = dynamic
        self._open: deque[OpenProgram] = deque(maxlen=MOST_PROGRAMS)
        self._plain: set[Key] = set()  # of calls whose sizes the function itself needs
        self.remarks: deque[str] = deque(maxlen=MOST_REMARKS)
        self._armed: list[Way] = []
        self._link()
        self._refused: Counter[Key] = Counter()
        self._entries: OrderedDict[Key, list[Entry]] = OrderedDict()

    def __get__(self, owner: object, kind: type | None = None) -> Any:  # noqa: ANN401 - a method
        return self if owner is None else MethodType(self, owner)

    def _call(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function, or find or make a program that does what it does."""
        if ACTIVE.trace is not None or wants_schedule():
            return self.function(*args, **kwargs)
        flat = Flat()
        flatten(args, flat)
        flatten(kwargs, flat)
        key = key_of(flat)
        complaint = ""
        for entry in self._entries.get(key, ()):
            program = entry.program
            cells = program.cells(flat.tensors)
            complaint = program.complaint(flat.tensors, cells)
            if not complaint:
                count("guards hold")
                self._arm(entry)
                result: R = program.run(flat.tensors, cells)
                return result
        found = self._run_open(flat, key, args, kwargs)
        count("guards miss" if found is MISS else "guards hold")
        if found is MISS and not complaint and self.dynamic is not False:
            found = self._trace_open(flat, key, args, kwargs)
        if found is not MISS:
            return found  # type: ignore[no-any-return]  # it is what the function gives
        if self._refused[key] >= MOST_REFUSALS:
            return self.function(*args, **kwargs)
        return self._trace(flat, key, complaint, args, kwargs)

    def _run_open(self, flat: Flat, key: Key, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401 - what the function gives
        for each in self._open:
            if each.complaint(key, flat.tensors):
                continue
            way = each.way(key)
            if way.tally.calls == 1:  # these sizes come back
                given = demands_of(args, kwargs)
                way.direct = make_direct(way.program, given, MODE.get(), way.tally)
            self._arm(way)
            return way.program.run(flat.tensors, way.program.cells(flat.tensors))
        return MISS

    def _trace_open(
        self, flat: Flat, key: Key, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:  # noqa: ANN401 - what the function gives
        """Trace a call for all sizes, where nothing but sizes is other than before."""
        names = names_of(self._parameters(), args, kwargs, flat)
        latest = next(reversed(self._entries.values()))[-1] if self._entries else None
        was = key if latest is None or latest.names != names else latest.key
        if was is key and not self.dynamic:
            return MISS
        opening = find_opening(names, was, key)
        if opening is None or opening.closed(key) in self._plain:
            return MISS
        with TRACING:
            try:
                program = trace_open(self.function, opening, key, flat, args, kwargs)
            except Obstacle as obstacle:
                self._plain.add(opening.closed(key))
                self._remark(f"not traced for all sizes: {obstacle}")
                return MISS
            except Failure:
                return MISS
        others = [each.complaint(key, flat.tensors) for each in self._open]
        earlier = [f"; an earlier one does not serve: {each}" for each in others if each != OTHERS]
        why = changed(names, was, key) or "dynamic is True"
        self._remark(f"traced for all sizes: {why}{''.join(earlier[-1:])}")
        self._open.append(program)
        return self._run_open(flat, key, args, kwargs)

    def programs(self) -> list[ProgramRecord]:
        """Return what there is to know of each program, the latest last."""
        closed = [each.record() for entries in list(self._entries.values()) for each in entries]
        return [*closed, *[_record_of(each) for each in self._open]]

    def _trace(
        self, flat: Flat, key: Key, complaint: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> R:
        """Run the function, keep a program of the call if there is one, and finish the call."""
        names = names_of(self._parameters(), args, kwargs, flat)
        self._say_why(names, key, complaint)
        trace = Trace()
        given = demands_of(args, kwargs)  # the function may change what they hold
        with TRACING:
            with tracing(trace):
                watch_outside(self.function, trace)
                watch_objects(trace, flat.objects)
                for tensor in flat.tensors:
                    trace.note(tensor)
                returned = self.function(*args, **kwargs)
            watch_modules(trace, flat.objects)
            trace.kept += flat.objects
            try:
                program = build_program(trace, flat.tensors, returned)
            except Obstacle as obstacle:
                self._refused[key] += 1
                self._remark(f"the function runs at each such call: {obstacle}")
                finish(trace)
                return returned
            except BaseException:
                trace.restore()  # an error of a compiler leaves every value as it was
                raise
            trace.restore()
            tally = Tally()
            direct = make_direct(program, given, MODE.get(), tally)
            self._keep(Entry(program, tally, direct, key, names))
            result: R = program.run_first(flat.tensors)
            return result

    def _arm(self, way: Way) -> None:
        """Count a call of a program, and try it first from now on, until a setting changes."""
        way.tally.calls += 1
        changes = CHANGES.count  # read before what it counts
        if LAUNCHES or TRACES:  # C tells nobody of its launches, and asks no trace
            return
        way.tally.changes = changes
        if way.direct is not None and not way.program.in_place.replay.is_shown:
            others = [each for each in self._armed if each is not way]
            self._armed = [way, *others[: MOST_PROGRAMS - 1]]
            self._link()

    def _link(self) -> None:
        """Let calls try the armed programs in order, and then look further."""
        known: Any = weakref.ref(self)  # Any: who calls it holds it

        def way(*args: P.args, **kwargs: P.kwargs) -> Any:  # noqa: ANN401 - what the function gives
            return known()._call(*args, **kwargs)

        with LINKING:
            for each in reversed(self._armed):
                assert each.direct is not None, "only what C makes is armed"
                each.tally.next, way = way, each.direct
            self.__call__ = way

    def _keep(self, entry: Entry) -> None:
        """Keep a program; the oldest one goes where there are too many."""
        self._entries.setdefault(entry.key, []).append(entry)
        self._entries.move_to_end(entry.key)
        if sum(len(each) for each in self._entries.values()) > MOST_PROGRAMS:
            oldest = next(iter(self._entries))
            gone = self._entries[oldest].pop(0)
            self._armed = [each for each in self._armed if each is not gone]
            self._link()
            if not self._entries[oldest]:
                del self._entries[oldest]
            self._remark(f"the oldest of {MOST_PROGRAMS} programs goes")

    def _parameters(self) -> tuple[str, ...]:
        code = getattr(self.function, "__code__", None)
        return code.co_varnames[: code.co_argcount] if code is not None else ()

    def _say_why(self, names: list[str], key: Key, complaint: str) -> None:
        """Tell what is other than in the latest program."""
        if not self._entries:
            return
        latest = next(reversed(self._entries.values()))[-1]
        if complaint:
            self._remark(f"traced anew: {complaint}")
        elif names != latest.names:
            self._remark(f"traced anew: {restructured(latest.names, names)}")
        else:
            self._remark(f"traced anew: {changed(names, latest.key, key)}")

    def _remark(self, text: str) -> None:
        sentence = f"jit: {getattr(self, '__name__', self.function)}: {text}."
        self.remarks.append(sentence)
        if config.debug:
            print(f"tinytensor: {sentence}", file=sys.stderr)


def _record_of(program: OpenProgram) -> ProgramRecord:
    """Tell users of a program for all sizes; its kernels depend on the sizes of a call."""
    pairs = zip(program.variables, program.opening.seen, strict=True)
    facts = zip(program.opening.names, program.key, strict=True)
    guards = [f"{name} is {told_of(name, fact)}" for name, fact in facts]
    guards += [
        f"what was {was} and then {now} is {each.attrs.least} to {each.attrs.most}"
        for each, (was, now) in pairs
    ]
    guards += [f"{each.name} has not changed" for each in program.watches]
    calls = sum([each.tally.calls for each in [*program.bound.values()]])
    return ProgramRecord(tuple(guards), (), calls)


def finish(trace: Trace) -> None:
    """Compute what the function asked for while it was traced."""
    wanted = [each() for each in trace.wanted]
    tensors: list[TensorBase] = [each for each in wanted if each is not None]
    if tensors:
        tensors[0].realize(*tensors[1:])
