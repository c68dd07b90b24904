"""Turns C source into shared objects by the system's C compiler, and its complaints into errors."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass

from tinytensor.errors import CompileError, DeviceError
from tinytensor.lazy import lazy_import
from tinytensor.ops.program import Program

COMPILERS = ("cc", "gcc", "clang")

# No implicit multiply-add, no part of -ffast-math: the same bits on every path.
FLAGS = (
    *("-O2", "-march=native", "-fPIC", "-shared", "-nostdlib"),
    *("-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off", "-w"),
)

COMPLAINT = r":(\d+):(?:\d+:)? (?:fatal )?error: (.*)"
SHOWN_COMPLAINTS = 3
SHOWN_LOG_LINES = 20


@dataclass(frozen=True, slots=True)
class CCompiler:
    """A C compiler: its command, and what tells it from another version of itself."""

    command: tuple[str, ...]
    identity: str

    def build_all(self, programs: Sequence[Program]) -> list[bytes | CompileError]:
        """Compile programs side by side, one process a processor; an error stands for a binary."""
        if len(programs) == 1:
            return [self.build(programs[0])]
        pool_class = lazy_import("concurrent.futures", None, "cpu").ThreadPoolExecutor
        with pool_class(max_workers=_count_processors()) as pool:
            return list(pool.map(self.build, programs))

    def build(self, program: Program) -> bytes | CompileError:
        """Compile one program to the bytes of a shared object."""
        tempfile = lazy_import("tempfile", None, "cpu")
        subprocess = lazy_import("subprocess", None, "cpu")
        with tempfile.TemporaryDirectory(prefix="tinytensor-") as directory:
            path = os.path.join(directory, "kernel.so")
            done = subprocess.run(
                [*self.command, *FLAGS, "-x", "c", "-", "-o", path, *program.libraries],
                input=program.source,
                capture_output=True,
                text=True,
                env={**os.environ, "LC_ALL": "C"},  # complaints in the words parsed here
            )
            if done.returncode != 0:
                return CompileError(explain_log(program, self.command[0], done.stderr))
            with open(path, "rb") as file:
                return file.read()


def find_compiler() -> CCompiler:
    """Find the compiler that $CC names, else the first of cc, gcc and clang on the PATH.

    Its identity is its file's path, time and size: asking it for its version takes 10 ms.

    Raises: DeviceError with the reason if there is none.
    """
    chosen = os.environ.get("CC", "").split()
    for name in chosen[:1] or COMPILERS:
        path = _find_on_path(name)
        if path is None:
            continue
        status = os.stat(path)
        command = (path, *chosen[1:])
        words = (*command, os.path.realpath(path), status.st_mtime_ns, status.st_size)
        return CCompiler(command, " ".join(map(str, words)))
    looked_for = f"CC={chosen[0]}" if chosen else ", ".join(COMPILERS)
    raise DeviceError(f"no C compiler found, looked for {looked_for}")


def explain_log(program: Program, compiler: str, log: str) -> str:
    """Write a compiler's complaints beside the emitted lines they speak of."""
    found = re.findall(COMPLAINT, log)
    head = (
        f"cpu: kernel {program.name!r} does not compile: {compiler} complains as below; "
        "the emitted source must be valid."
    )
    if not found:
        return "\n".join([head, *log.splitlines()[-SHOWN_LOG_LINES:]])
    source = program.source.splitlines()
    parts = [head]
    for number, complaint in found[:SHOWN_COMPLAINTS]:
        parts.append(f"line {number}: {complaint}")
        parts.extend(_quote_lines(source, int(number)))
    return "\n".join(parts)


def _quote_lines(source: Sequence[str], number: int) -> list[str]:
    """Quote a line of the source, counted from 1, between its neighbors."""
    quoted = []
    for each in range(max(1, number - 1), min(len(source), number + 1) + 1):
        mark = ">" if each == number else " "
        quoted.append(f"{mark}{each:5} | {source[each - 1]}")
    return quoted


def _find_on_path(name: str) -> str | None:
    """Find a program as the shell would; `shutil.which` costs 2 ms to import."""
    directories = os.environ.get("PATH", os.defpath).split(os.pathsep)
    candidates = [name] if os.sep in name else [os.path.join(each, name) for each in directories]
    for path in candidates:
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return None


def _count_processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
