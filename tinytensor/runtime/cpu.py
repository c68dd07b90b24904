"""The CPU as a device: programs in C become functions that Python calls directly."""

from __future__ import annotations

import ctypes
import hashlib
import threading
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence

from tinytensor.errors import CompileError
from tinytensor.lazy import lazy_import
from tinytensor.ops.instances import split
from tinytensor.ops.program import Program
from tinytensor.runtime.buffer import Buffer
from tinytensor.runtime.c_compiler import FLAGS, CCompiler, find_compiler
from tinytensor.runtime.cache import DiskCache, open_cache
from tinytensor.runtime.device import Launcher
from tinytensor.runtime.host import HostDevice
from tinytensor.runtime.lock import ForkSafeLock
from tinytensor.runtime.probe import probe_target, read_processor

make_builtin = ctypes.pythonapi.PyCFunction_NewEx
make_builtin.restype = ctypes.py_object
make_builtin.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]


class Executable:
    """A compiled program: `function(*addresses)` runs it, in 30 ns beyond the kernel's own time.

    Units: `workspace_bytes`; above 0, the function takes the scratch memory's address after the
    buffers'. Scalars come last.
    """

    __slots__ = ("function", "library", "name", "was_cached", "workspace_bytes")

    def __init__(self, program: Program, path: str, was_cached: bool) -> None:
        self.name = program.name
        self.workspace_bytes = program.workspace_bytes
        self.was_cached = was_cached
        self.library = ctypes.CDLL(path)  # holds the method's record that `function` points to
        method = ctypes.c_char.in_dll(self.library, f"{program.name}_method")
        self.function = make_builtin(ctypes.addressof(method), None, None)

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
        self._executables: dict[str, Executable] = {}
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
            cache = open_cache()
            return [self._executables[key] for key in self._build(cache, programs)]

    def run(
        self,
        work: Executable,
        buffers: Sequence[Buffer],
        scalars: Sequence[float] = (),
        *,
        extents: Sequence[int] = (),
    ) -> None:
        """Run an executable on buffers, in the order of its params, and its scalars."""
        addresses = [buffer.address for buffer in buffers]
        if extents:
            rows = zip(extents, split(addresses, extents), strict=True)
            table = array("Q", [word for extent, row in rows for word in (extent, *row)])
            work.function(table.buffer_info()[0], len(extents))
            return
        if work.workspace_bytes:
            addresses.append(self.workspace(work.workspace_bytes))
        work.function(*addresses, *scalars)

    def launcher(
        self,
        work: Executable,
        sizes: Sequence[int],
        scalars: Sequence[float],
        extents: Sequence[int],
    ) -> Launcher:
        """Return what runs an executable on the addresses of its params."""
        if extents:
            return super().launcher(work, sizes, scalars, extents)
        held, workspace_bytes = self._workspace, work.workspace_bytes
        function: Callable[..., object] = work.function

        def workspace() -> int:
            buffer = held.buffer
            if buffer is None or buffer.nbytes < workspace_bytes:
                return self.workspace(workspace_bytes)
            return buffer.address

        start = (lambda *given: function(*given, *scalars)) if scalars else function
        return Launcher(start, workspace if workspace_bytes else None)

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

    def _load_cached(self, cache: DiskCache, key: str, program: Program) -> bool:
        path = cache.find(f"{key}.so")
        if path is None:
            return False
        self._executables[key] = _load(program, path, was_cached=True)
        return True

    def _build(self, cache: DiskCache, programs: Iterable[Program]) -> list[str]:
        """Load or compile programs; return the keys of all."""
        keys: list[str] = []
        missing: dict[str, Program] = {}

        def choose_missing() -> Iterator[Program]:
            for program in programs:
                keys.append(self._make_key(program))
                is_known = keys[-1] in missing or keys[-1] in self._executables
                if not is_known and not self._load_cached(cache, keys[-1], program):
                    missing[keys[-1]] = program
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
            self._executables[key] = _load(program, path, was_cached=False)
        if errors:
            raise errors[0]
        return keys


def open_device() -> CpuDevice:
    """Give the device, if there is a C compiler.

    Raises: DeviceError with the reason if there is none.
    """
    return CpuDevice(find_compiler())


def _load(program: Program, path: str, was_cached: bool) -> Executable:
    try:
        return Executable(program, path, was_cached)
    except (OSError, ValueError) as error:
        raise CompileError(
            f"cpu: kernel {program.name!r} cannot be loaded: {error}; it must export "
            f"{program.name}_method and lie where the system lets code be loaded (TT_CACHE_DIR)."
        ) from error
