"""What turning programs into binaries shares: side by side work, found tools, explained logs."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from tinytensor.errors import CompileError
from tinytensor.lazy import lazy_import
from tinytensor.ops.program import Program
from tinytensor.progress import Progress
from tinytensor.timing import stage

SHOWN_COMPLAINTS = 3
SHOWN_LOG_LINES = 20

Binary = TypeVar("Binary")


def build_all(
    build: Callable[[Program], Binary], programs: Iterable[Program]
) -> list[Binary | CompileError]:
    """Build programs side by side, one thread a processor; an error stands for a binary.

    `build` spends its time outside of Python, so threads suffice; and each begins as soon as its
    program is made, so that lowering one kernel and compiling others take place at once.
    """

    def attempt(program: Program) -> Binary | CompileError:
        try:
            with stage("compile: build", program.name):
                return build(program)
        except CompileError as error:
            return error

    coming = iter(programs)
    first = list(itertools.islice(coming, 2))
    if len(first) < 2:
        return [attempt(program) for program in first]
    pool_class = lazy_import("concurrent.futures", None, "runtime").ThreadPoolExecutor
    with Progress() as progress, pool_class(max_workers=count_processors()) as pool:

        def attempt_and_tell(program: Program) -> Binary | CompileError:
            made = attempt(program)
            progress.step()
            return made

        return list(pool.map(attempt_and_tell, progress.count(itertools.chain(first, coming))))


def explain_complaints(head: str, source: str, complaint: str, log: str) -> str:
    """Write a compiler's complaints beside the emitted lines they speak of.

    `complaint` is a pattern with two groups, the line's number and the words. A log in which it
    finds nothing is shown as it is, but only its end.
    """
    found = re.findall(complaint, log)
    if not found:
        return "\n".join([head, *log.splitlines()[-SHOWN_LOG_LINES:]])
    lines = source.splitlines()
    parts = [head]
    for number, words in found[:SHOWN_COMPLAINTS]:
        parts.append(f"line {number}: {words}")
        parts.extend(_quote_lines(lines, int(number)))
    return "\n".join(parts)


def find_program(name: str, more_directories: Iterable[str] = ()) -> str | None:
    """Find a program as the shell would; `shutil.which` costs 2 ms to import."""
    directories = os.environ.get("PATH", os.defpath).split(os.pathsep)
    candidates = [os.path.join(each, name) for each in (*directories, *more_directories)]
    for path in [name] if os.sep in name else candidates:
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return None


def identify_file(path: str) -> str:
    """Tell a file from another version of itself by its path, time and size: no reading."""
    status = os.stat(path)
    return f"{os.path.realpath(path)} {status.st_mtime_ns} {status.st_size}"


def count_processors() -> int:
    """Count the processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _quote_lines(source: Sequence[str], number: int) -> list[str]:
    """Quote a line of the source, counted from 1, between its neighbors."""
    quoted = []
    for each in range(max(1, number - 1), min(len(source), number + 1) + 1):
        mark = ">" if each == number else " "
        quoted.append(f"{mark}{each:5} | {source[each - 1]}")
    return quoted
