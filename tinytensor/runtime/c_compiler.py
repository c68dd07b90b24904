"""Turns C source into shared objects by the system's C compiler, and its complaints into errors."""

from __future__ import annotations

import os
from collections.abc import Iterable

from tinytensor.errors import CompileError, DeviceError
from tinytensor.lazy import lazy_import
from tinytensor.ops.program import Program
from tinytensor.records import dataclass
from tinytensor.runtime.build import build_all, explain_complaints, find_program, identify_file

COMPILERS = ("cc", "gcc", "clang")

# No implicit multiply-add, no part of -ffast-math: the same bits on every path. The choice of
# induction variables takes time by the cube of their uses: 1.3 s of 1.5 s where a kernel reads 200
# lanes one by one. Above 60 uses it is left out (of 63 kernels of a GPT-2 step, in one). The last
# flag leaves 2 maps of memory for a kernel in place of 5: a process may have 65,530.
FLAGS = (
    *("-O2", "-march=native", "-fPIC", "-shared", "-nostdlib"),
    *("-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off", "-w"),
    *("--param=iv-max-considered-uses=60", "-Wl,-z,noseparate-code,-z,norelro"),
)

COMPLAINT = r":(\d+):(?:\d+:)? (?:fatal )?error: (.*)"


@dataclass(frozen=True, slots=True)
class CCompiler:
    """A C compiler: its command, and what tells it from another version of itself."""

    command: tuple[str, ...]
    identity: str

    def build_all(self, programs: Iterable[Program]) -> list[bytes | CompileError]:
        """Compile programs side by side; an error stands for a binary."""
        return build_all(self.build, programs)

    def build(self, program: Program) -> bytes:
        """Compile one program to the bytes of a shared object.

        Raises: CompileError with the compiler's complaints.
        """
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
                raise CompileError(explain_log(program, self.command[0], done.stderr))
            with open(path, "rb") as file:
                return file.read()


def find_compiler() -> CCompiler:
    """Find the compiler that $CC names, else the first of cc, gcc and clang on the PATH.

    Its identity is its file's path, time and size: asking it for its version takes 10 ms.

    Raises: DeviceError with the reason if there is none.
    """
    chosen = os.environ.get("CC", "").split()
    for name in chosen[:1] or COMPILERS:
        path = find_program(name)
        if path is None:
            continue
        command = (path, *chosen[1:])
        return CCompiler(command, " ".join([*command, identify_file(path)]))
    looked_for = f"CC={chosen[0]}" if chosen else ", ".join(COMPILERS)
    raise DeviceError(f"no C compiler found, looked for {looked_for}")


def explain_log(program: Program, compiler: str, log: str) -> str:
    """Write a compiler's complaints beside the emitted lines they speak of."""
    head = (
        f"cpu: kernel {program.name!r} does not compile: {compiler} complains as below; "
        "the emitted source must be valid."
    )
    return explain_complaints(head, program.source, COMPLAINT, log)
