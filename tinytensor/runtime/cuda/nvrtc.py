"""Turns CUDA C into a binary for one architecture by NVRTC; this needs no GPU."""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from collections.abc import Iterator
from types import ModuleType

from tinytensor.errors import CompileError, DeviceError
from tinytensor.lazy import lazy_import
from tinytensor.runtime.build import explain_complaints, identify_file
from tinytensor.runtime.cuda.driver import Handle

LIBRARY = "libnvrtc.so.13"
WHEEL_FOLDERS = ("nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib")
TOOLKIT_VARIABLES = ("CUDA_HOME", "CUDA_PATH", "CONDA_PREFIX")
TOOLKIT = "/usr/local/cuda"
SYSTEM_FOLDERS = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64")

# No implicit multiply-add: the same bits on every path. Division, roots and denormals are exact
# by default.
FLAGS = ("--std=c++17", "--fmad=false")

COMPLAINT = r"\((\d+)\): (?:catastrophic )?error(?: #[\w-]+)?: (.*)"


def compile_cubin(source: str, architecture: str, name: str = "kernel") -> bytes:
    """Compile source to a CUBIN for exactly one architecture, such as `sm_90a`.

    The compiler runs without the interpreter's lock, and two compilations do not wait for each
    other (NVRTC 13.5, 2 threads: both runnable all the time).

    Raises: CompileError with the complaints, DeviceError without NVRTC.
    """
    nvrtc = _load()
    program = _call(nvrtc, "nvrtcCreateProgram", source.encode(), b"kernel.cu", 0, [], [])
    options = [f"--gpu-architecture={architecture}".encode(), *[flag.encode() for flag in FLAGS]]
    try:
        status = nvrtc.nvrtcCompileProgram(program, len(options), options)[0]
        if status:
            log = _read(nvrtc, "ProgramLog", program).rstrip(b"\0").decode(errors="replace")
            raise CompileError(explain_log(name, source, architecture, log))
        return _read(nvrtc, "CUBIN", program)
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def explain_log(name: str, source: str, architecture: str, log: str) -> str:
    """Write NVRTC's complaints beside the emitted lines they speak of."""
    head = (
        f"cuda: kernel {name!r} does not compile for {architecture}: NVRTC complains as below; "
        "the emitted source must be valid."
    )
    return explain_complaints(head, source, COMPLAINT, log)


def find_library() -> str:
    """Find NVRTC's file where wheels, toolkits and the system put it, without loading it.

    Raises: DeviceError with the reason if there is none.
    """
    for folder in _list_folders():
        path = os.path.join(folder, LIBRARY)
        if os.path.isfile(path):
            return path
    raise DeviceError(f"no NVRTC found, looked for {LIBRARY}: pip install tinytensor[cuda]")


@functools.cache
def identity() -> str:
    """Tell this NVRTC from another version of itself, without loading it."""
    return identify_file(find_library())


def _list_folders() -> Iterator[str]:
    for folder in WHEEL_FOLDERS:
        yield from [os.path.join(path, folder) for path in sys.path]
    toolkits = [os.environ.get(name) for name in TOOLKIT_VARIABLES]
    for toolkit in [*toolkits, TOOLKIT]:
        if toolkit:
            yield from [os.path.join(toolkit, "lib64"), os.path.join(toolkit, "lib")]
    yield from filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep))
    yield from SYSTEM_FOLDERS


@functools.cache
def _load() -> ModuleType:
    ctypes.CDLL(find_library())  # the bindings take the one that is loaded already
    try:
        return lazy_import("cuda.bindings.nvrtc", "cuda", "cuda")
    except ImportError as error:
        raise DeviceError(str(error)) from error


def _read(nvrtc: ModuleType, what: str, program: Handle) -> bytes:
    """Read one of a compilation's results: ask for its size, then for its bytes."""
    nbytes = _call(nvrtc, f"nvrtcGet{what}Size", program)
    content = bytearray(nbytes)
    _call(nvrtc, f"nvrtcGet{what}", program, content)
    return bytes(content)


def _call(nvrtc: ModuleType, function: str, *arguments: Handle) -> Handle:
    status, *results = getattr(nvrtc, function)(*arguments)
    if status:
        raise CompileError(f"cuda: {function} failed: {status.name}; NVRTC must be able to run.")
    return results[0] if results else None
