"""Prints one line of tensor code at every stage of the compiler: python -m extra.tour.

With `--write` and the pages README.md, docs/architecture.md and docs/reading-debug.md it puts each
listing into the fenced block below its marker `<!-- tour: name -->`. A test compares, so the pages
cannot go stale.
"""

from __future__ import annotations

import argparse
import functools
import inspect
import pathlib
import re
from collections.abc import Callable

from extra.examples.block import block, build
from tinytensor import Tensor, dtypes
from tinytensor.codegen.lower import Lowered, lower
from tinytensor.ops.text import show
from tinytensor.ops.uop import UOp
from tinytensor.report import Planned, apart_of, reads_of, schedule_lines, writes_of
from tinytensor.schedule.schedule import Options, schedule
from tinytensor.target import CPU_AVX512

LINE = "y = x.matmul(weight.T) + b"
LONGEST = 60  # lines of a listing that are kept
MARKER = re.compile(r"(<!-- tour: (\w+) -->\n+```\w*\n).*?(```\n)", re.DOTALL)
OPTIONS = Options(fuse=3, verify=True, stress=False)


class Tour:
    """The worked example, built once and shown stage by stage."""

    def __init__(self) -> None:
        x = Tensor.zeros(1024, 768, dtype=dtypes.float16).realize()
        weight = Tensor.zeros(1024, 768, dtype=dtypes.float16).realize()
        b = Tensor.zeros(1024, dtype=dtypes.float16).realize()
        self.root: UOp = (x.matmul(weight.T) + b).uop
        x32 = Tensor.zeros(512, 512).realize()
        second = (x32 @ x32.T + 1.0).relu().uop
        self.planned = [*_planned(self.root), *_planned(second)]
        self.kernel = self.planned[0].kernel
        self.lowered: Lowered = lower(self.kernel, CPU_AVX512)

    def tensor(self) -> str:
        """The TENSOR form: what is computed."""
        return _with_small_serials(show([self.root]))

    def decisions(self) -> str:
        """The schedule: which kernels, and why."""
        return "\n".join(schedule_lines(self.planned[:1]))

    def debug(self) -> str:
        """The schedule of both lines computed together."""
        return "\n".join(schedule_lines(self.planned))

    def program(self) -> str:
        """A larger program, whose schedule is read line by line."""
        return inspect.getsource(block).rstrip()

    def block(self) -> str:
        """Its schedule."""
        return "\n".join(schedule_lines(_planned(build().uop)))

    def indexed(self) -> str:
        """The INDEXED form: which element is computed from which."""
        lines = show(self.kernel).splitlines()
        return "\n".join(line for line in lines if not line.startswith("decision"))

    def linear(self) -> str:
        """The LINEAR form: who does it, in which order."""
        return _excerpt(show(self.lowered.planned[0]), "LOOP")

    def source(self) -> str:
        """The C that is compiled."""
        return _excerpt(self.lowered.program.source, self.kernel.name)


STAGES: dict[str, Callable[[Tour], str]] = {
    "tensor": Tour.tensor,
    "decisions": Tour.decisions,
    "debug": Tour.debug,
    "program": Tour.program,
    "block": Tour.block,
    "indexed": Tour.indexed,
    "linear": Tour.linear,
    "source": Tour.source,
}


def _planned(root: UOp) -> list[Planned]:
    """Schedule and plan a value on a machine that is the same wherever this runs."""
    calls = schedule([root], CPU_AVX512, OPTIONS)
    lowered = [lower(call.kernel, CPU_AVX512) for call in calls]
    told = zip(reads_of(calls), apart_of(calls), writes_of(calls), strict=True)
    return [
        Planned(call.kernel, reads, made.decisions, False, CPU_AVX512, apart=apart, writes=writes)
        for call, made, (reads, apart, writes) in zip(calls, lowered, told, strict=True)
    ]


def _with_small_serials(text: str) -> str:
    """Number BUFFER leaves from 0: their serials count every allocation of the process."""
    serials = list(dict.fromkeys(re.findall(r"serial=(\d+)", text)))
    return re.sub(r"serial=(\d+)", lambda match: f"serial={serials.index(match[1])}", text)


def _excerpt(text: str, first: str) -> str:
    """Keep the lines from the first that holds a word on, and say how many there are in all."""
    lines = text.splitlines()
    start = next(number for number, line in enumerate(lines) if first in line)
    kept = lines[start : start + LONGEST]
    left = len(lines) - start - len(kept)
    return "\n".join([*kept, f"... {left} lines more"] if left > 0 else kept)


@functools.cache
def listings() -> dict[str, str]:
    """Return every stage's listing by name."""
    tour = Tour()
    return {name: stage(tour) for name, stage in STAGES.items()}


def fill_in(page: str, texts: dict[str, str]) -> str:
    """Return the page with each marked block replaced by its listing."""
    return MARKER.sub(lambda match: f"{match[1]}{texts[match[2]]}\n{match[3]}", page)


def main() -> None:
    """Print the tour, or write it into a page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", nargs="*", type=pathlib.Path, help="pages with tour markers")
    arguments = parser.parse_args()
    texts = listings()
    if arguments.write:
        for page in arguments.write:
            page.write_text(fill_in(page.read_text(), texts))
        return
    print(LINE)
    for name, text in texts.items():
        print(f"\n=== {name}\n{text}")


if __name__ == "__main__":
    main()
