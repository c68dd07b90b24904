"""Holds what an explanation tells: kernels with reasons and times, memory, compilation."""

from __future__ import annotations

import math

from tinytensor.explain.apart import why_apart
from tinytensor.explain.contract import NumericalContract
from tinytensor.explain.page import page_of
from tinytensor.explain.table import kernel_lines, table_lines
from tinytensor.ops.kernel import Decision, Kernel
from tinytensor.profile import MICRO, Profile
from tinytensor.provenance import Provenance
from tinytensor.records import dataclass
from tinytensor.report import Work
from tinytensor.schedule.cost import Load
from tinytensor.target import Rates

COMPILING = ("schedule", "lower", "compile")
IMPORTING = "lower: import"  # once a process, whatever is compiled


@dataclass(frozen=True, slots=True)
class Sources:
    """A kernel in every form, as text; empty where a device has no such form."""

    tensor: str
    indexed: str
    linear: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True)
class ExplainedKernel:
    """One launch: where it comes from, what it computes, why so, and what it takes.

    Kernels are numbered from 1 in the order in which they run. `provenance` are the user's lines,
    first that of its fold or its result. `outputs` are what it stores, `inputs` what it reads,
    `reads` and `readers` other kernels, by number; `apart` says of each of the former why it is not
    one with this. `candidates` are the ways in which its plan could run it, by estimate the best
    first. Units: µs; `time_us` in the shortest call,
    `launch_us` the fixed part of the prediction.
    """

    number: int
    kernel: Kernel
    provenance: tuple[Provenance, ...]
    outputs: tuple[str, ...]
    inputs: str
    reads: tuple[int, ...]
    readers: tuple[int, ...]
    apart: tuple[Decision, ...]
    decisions: tuple[Decision, ...]
    candidates: tuple[str, ...]
    contract: NumericalContract
    work: Work
    load: Load
    launch_us: float
    time_us: float
    sources: Sources

    def why_apart_from(self, maker: int) -> str:
        """Say why it is not one with a kernel that it reads."""
        subject = f"from kernel {maker}"
        return " ".join([each.reason for each in self.apart if each.subject == subject])

    @property
    def predicted_us(self) -> float:
        """The time by the target's rates: of the launch, and of what grows with the work."""
        return self.launch_us + self.load.seconds * MICRO

    @property
    def limit(self) -> str:
        """What takes longest, by the target's rates: arithmetic, memory or the launch."""
        parts = {"arithmetic": self.load.arithmetic, "memory": self.load.memory}
        parts["launch"] = self.launch_us / MICRO
        return max(parts, key=lambda name: parts[name])

    @property
    def roof_share(self) -> float:
        """Which part of the device's rates it reaches: those of what limits it."""
        return self.load.seconds * MICRO / self.time_us if self.time_us else 0.0

    @property
    def intensity(self) -> float:
        """How many operations it does for each byte it moves."""
        return self.work.flops / max(1, self.work.bytes_moved)

    def __str__(self) -> str:
        return "\n".join(kernel_lines(self))


@dataclass(frozen=True, slots=True)
class Memory:
    """What a call needs beside what was there. Units: bytes.

    `peak` is what was allocated at most above what was before; `arena` holds values between
    kernels, which would take `stored` if each had memory of its own. `saved` are the values that
    kernels of the forward store and kernels of the backward read.
    """

    peak: int
    arena: int
    stored: int
    saved: tuple[tuple[str, int], ...]

    @property
    def saved_bytes(self) -> int:
        """The bytes of all values that are saved for the backward."""
        return sum(nbytes for _, nbytes in self.saved)


@dataclass(frozen=True, slots=True)
class Explanation:
    """What a call of a function does; `print` shows a table, `to_html` gives a page.

    `cold` is the profile of the first call, `warm` those of later ones, and `shortest` the one
    among these whose times are told, so that they add up: other work on the machine only adds to
    them. `plain_seconds` are those of calls between them that nobody watched. Predictions go by
    `rates`. Of a jitted function, `guards` are what its latest program relies on, `launched` how
    its kernels start, `misses` tell why it was traced anew; `decided` is what the host decided on
    its way: which bodies it launched, and how often. Units: `unfused_us` is the predicted time of
    one kernel per op, in µs.
    """

    name: str
    device: str
    kernels: tuple[ExplainedKernel, ...]
    memory: Memory
    cold: Profile
    warm: tuple[Profile, ...]
    shortest: Profile
    plain_seconds: tuple[float, ...]
    rates: Rates | None
    unfused_us: float
    guards: tuple[str, ...] = ()
    launched: str = ""
    decided: tuple[str, ...] = ()
    misses: tuple[str, ...] = ()

    @property
    def device_us(self) -> float:
        """How long the kernels of one call take."""
        return sum(each.time_us for each in self.kernels)

    @property
    def call_us(self) -> float:
        """How long a later call takes that nobody watches: the shortest of them."""
        return min(self.plain_seconds) * MICRO

    @property
    def predicted_us(self) -> float:
        """How long the kernels of one call take by the target's rates."""
        return sum(each.predicted_us for each in self.kernels)

    @property
    def compile_us(self) -> float:
        """How long the first call scheduled, lowered and compiled."""
        stages = self.cold.by_stage()
        return sum(
            each.time_us
            for each in stages
            if each.name.startswith(COMPILING) and each.name != IMPORTING
        )

    @property
    def break_even_calls(self) -> int | None:
        """After how many calls compiling has paid: by what fusing spares, as predicted.

        None where one kernel per op would take no longer.
        """
        gain_us = self.unfused_us - self.predicted_us
        return math.ceil(self.compile_us / gain_us) if gain_us > 0 else None

    def why_apart(self, maker: int, reader: int) -> str:
        """Say why two kernels, by their numbers, are not one.

        Raises: ValueError for a number that no kernel has.
        """
        return why_apart(self.kernels, maker, reader)

    def __str__(self) -> str:
        return "\n".join(table_lines(self))

    def to_html(self) -> str:
        """Return a page that shows all of it: one file that needs nothing else."""
        return page_of(self)
