"""The CPU as a device: programs in C become functions that Python calls directly."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import threading
import weakref
from _ctypes import dlclose
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from tinytensor.errors import CompileError
from tinytensor.lazy import lazy_import
from tinytensor.ops.instances import split
from tinytensor.ops.program import Program
from tinytensor.runtime.buffer import Buffer, BufferPart
from tinytensor.runtime.c_compiler import FLAGS, CCompiler, find_compiler
from tinytensor.runtime.cache import DiskCache, open_cache
from tinytensor.runtime.device import Launcher, Start, Step
from tinytensor.runtime.host import HostDevice
from tinytensor.runtime.lock import ForkSafeLock
from tinytensor.runtime.probe import probe_target, read_processor
from tinytensor.runtime.steps import (
    HAS_PLAIN_OBJECTS,
    NOTHING,
    WholeCall,
    Words,
    make_builtin,
    make_method,
    place_of,
    read_runner,
    words_of,
    write_call,
    write_table,
)

EXPORTS = ("step", "is_long")


class Executable:
    """A compiled program: the address of its step, which takes all that it needs as words.

    Units: `workspace_bytes`; above 0, the scratch memory's address comes after the buffers'.
    Scalars, of the kinds `takes`, come last. Its code leaves memory when nobody holds it.
    """

    def __init__(self, program: Program, path: str, was_cached: bool) -> None:
        self.name = program.name
        self.takes = program.scalars
        self.workspace_bytes = program.workspace_bytes
        self.was_cached = was_cached
        self.library = ctypes.CDLL(path)
        found = [ctypes.c_int.in_dll(self.library, f"{self.name}_{each}") for each in EXPORTS]
        self.step = ctypes.addressof(found[0])
        self.is_long = bool(found[1].value)
        weakref.finalize(self, dlclose, self.library._handle).atexit = False

    def __repr__(self) -> str:
        return f"Executable({self.name})"


class Workspace(threading.local):
    """Each thread's scratch memory."""

    buffer: Buffer | None = None


class CpuDevice(HostDevice[Executable]):
    """The host's processor, driven by C that the system's compiler turned into code for it."""

    def __init__(self, compiler: CCompiler) -> None:
        super().__init__("CPU", probe_target())
        self.compiler = compiler
        self._executables = weakref.WeakValueDictionary[str, Executable]()
        self._workspace = Workspace()
        self._lock = ForkSafeLock()

    @property
    def model(self) -> str:
        """Return what the processor is called."""
        return read_processor().model

    def compile(self, programs: Iterable[Program]) -> list[Executable]:
        """Compile programs, or load what an earlier process compiled; in the programs' order.

        Raises: CompileError for the first program that does not compile; the others are cached.
        """
        with self._lock:
            return self._build(open_cache(), programs)

    def run(
        self,
        work: Executable,
        buffers: Sequence[Buffer],
        scalars: Sequence[float] = (),
        *,
        extents: Sequence[int] = (),
    ) -> None:
        """Run an executable on buffers, in the order of its params, and its scalars."""
        places = tuple([(number, 0) for number in range(len(buffers))])
        (start,) = self.starts([Step(work, places, (), tuple(scalars), tuple(extents))])
        addresses = [buffer.address for buffer in buffers]
        if start.launcher.workspace is not None:
            addresses.append(start.launcher.workspace())
        start.launcher.start(*addresses)

    def _workspace_taker(self, nbytes: int) -> Callable[[], int]:
        """Return what gives the address of scratch memory of a size again and again."""
        held = self._workspace

        def workspace() -> int:
            buffer = held.buffer
            if buffer is None or buffer.nbytes < nbytes:
                return self.workspace(nbytes)
            return buffer.address

        return workspace

    def starts(self, steps: Sequence[Step]) -> list[Start]:
        """Return one function that runs all executables: 30 ns, and a few for each."""
        if not steps:
            return []
        bases = sorted({base for step in steps for base, _ in step.places})
        numbers = {base: number for number, base in enumerate(bases, NOTHING + 1)}
        workspace_bytes = max([step.work.workspace_bytes for step in steps])
        words = [each for step in steps for each in _words_in(step, numbers)]
        count = 1 + len(bases) + (workspace_bytes > 0)
        table = write_table(words, count, [step.work for step in steps])
        workspace = self._workspace_taker(workspace_bytes) if workspace_bytes else None
        places = tuple([(base, 0) for base in bases])
        start = make_builtin(self._runner.step, table, None)
        return [Start(Launcher(start, workspace), places)]

    def whole(self, call: WholeCall) -> Callable[..., Any] | None:
        """Return what does all of a call, if C knows its way among Python's objects."""
        if not HAS_PLAIN_OBJECTS:
            return None
        found = ctypes.addressof(ctypes.c_int.in_dll(self._runner.library, "runner_whole"))
        made: Callable[..., Any] = make_builtin(found, write_call(call), None)
        return made

    @functools.cached_property
    def _runner(self) -> Executable:
        (runner,) = self.compile([read_runner()])
        if HAS_PLAIN_OBJECTS:
            library = ctypes.CDLL(runner.library._name)  # stays loaded, for the last buffer
            places = (ctypes.c_size_t * 2).in_dll(library, "runner_places")
            places[:] = [place_of(BufferPart, name) for name in ("shelf", "address")]
            release = ctypes.addressof(ctypes.c_int.in_dll(library, "runner_release"))
            Buffer.__del__ = make_method(Buffer, release)  # type: ignore[method-assign]  # in C
        return runner

    def reserve_workspace(self, works: Sequence[Executable]) -> None:
        """Make this thread's scratch memory large enough for some executables."""
        self.workspace(max([work.workspace_bytes for work in works], default=0))

    def disassemble(self, work: Executable) -> str:
        """Give an executable's machine code, by the system's objdump."""
        subprocess = lazy_import("subprocess", None, "cpu")
        command = ["objdump", "-d", "--no-show-raw-insn", work.library._name]
        try:
            listing = subprocess.run(command, capture_output=True, text=True, check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            return f"objdump does not run: {error}; install binutils to see machine code."
        return str(listing.stdout)

    def workspace(self, nbytes: int) -> int:
        """Return the address of this thread's scratch memory, grown to `nbytes` if it is less."""
        buffer = self._workspace.buffer
        if buffer is None or buffer.nbytes < nbytes:
            self._workspace.buffer = None
            buffer = self._workspace.buffer = self.allocate(nbytes)
        return buffer.address

    def _make_key(self, program: Program) -> str:
        processor = read_processor()
        parts = (
            *(program.name, program.source),
            *(*FLAGS, *program.libraries),
            *(self.compiler.identity, processor.model, processor.flags),
        )
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    def _find(self, cache: DiskCache, key: str, program: Program) -> Executable | None:
        """Return what was loaded or compiled before, in this process or in another."""
        work = self._executables.get(key)
        if work is not None:
            return work
        path = cache.find(f"{key}.so")
        return None if path is None else _load(program, path, was_cached=True)

    def _build(self, cache: DiskCache, programs: Iterable[Program]) -> list[Executable]:
        """Load or compile programs."""
        keys: list[str] = []
        made: dict[str, Executable] = {}
        missing: dict[str, Program] = {}

        def choose_missing() -> Iterator[Program]:
            for program in programs:
                key = self._make_key(program)
                keys.append(key)
                if key in missing or key in made:
                    continue
                work = self._find(cache, key, program)
                if work is not None:
                    made[key] = work
                    continue
                missing[key] = program
                yield program

        errors: list[CompileError] = []
        binaries = self.compiler.build_all(choose_missing())
        for (key, program), binary in zip(missing.items(), binaries, strict=True):
            if isinstance(binary, CompileError):
                errors.append(binary)
                continue
            try:
                path = cache.put(f"{key}.so", binary)
            except OSError as error:
                sentence = f"cpu: kernel {program.name!r} cannot be stored: {error.strerror}"
                required = "TT_CACHE_DIR must name a place with room"
                errors.append(CompileError(f"{sentence}; {required}."))
                continue
            made[key] = _load(program, path, was_cached=False)
        self._executables.update(made)
        if errors:
            raise errors[0]
        return [made[key] for key in keys]


def open_device() -> CpuDevice:
    """Give the device, if there is a C compiler.

    Raises: DeviceError with the reason if there is none.
    """
    return CpuDevice(find_compiler())


def _words_in(step: Step, numbers: dict[int, int]) -> Iterator[Words]:
    """Give what a step's instances take, or the one kernel that it is; scratch is the last base."""
    work: Executable = step.work
    given = [(numbers[base], offset) for base, offset in step.places]
    for extent, row in zip(step.extents, split(given, step.extents), strict=False):
        yield Words(work.step, ((NOTHING, extent), *row))
    if not step.extents:
        scratch = [(len(numbers) + 1, 0)] * (work.workspace_bytes > 0)
        yield Words(work.step, (*given, *scratch, *words_of(step.scalars, work.takes)))


def _load(program: Program, path: str, was_cached: bool) -> Executable:
    try:
        return Executable(program, path, was_cached)
    except (OSError, ValueError) as error:
        raise CompileError(
            f"cpu: kernel {program.name!r} cannot be loaded: {error}; it must export "
            f"{program.name}_step and lie where the system lets code be loaded (TT_CACHE_DIR)."
        ) from error
