"""Turns what the system tells about its processor into a Target."""

from __future__ import annotations

import functools
import itertools
import os

from tinytensor.records import dataclass
from tinytensor.target import DEFAULT_L2_BYTES, Target, cpu_target

CPUINFO = "/proc/cpuinfo"
CACHES = "/sys/devices/system/cpu/cpu0/cache"

AVX512_FLAGS = frozenset({"avx512f", "avx512bw", "avx512vl", "avx512dq"})
AVX2_FLAGS = frozenset({"avx2", "fma"})
FEATURE_FLAGS = frozenset({"avx2", "fma", "f16c", "sse4_1", "avx512_bf16", "avx512_fp16"})
UNIT_BYTES = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@dataclass(frozen=True, slots=True)
class Processor:
    """A processor's model, its vendor with the family, and its flags, as the system spells them."""

    model: str
    family: str
    flags: str


@functools.cache
def read_processor() -> Processor:
    """Read the first processor of /proc/cpuinfo; elsewhere only the machine's kind is known."""
    fields = _read_fields(CPUINFO)
    machine = os.uname().machine
    model = fields.get("model name") or fields.get("CPU part", "unknown")
    family = f"{fields.get('vendor_id', '')} {fields.get('cpu family', '')}"
    flags = fields.get("flags") or fields.get("Features", "")
    return Processor(f"{machine} {model}", family, flags)


@functools.cache
def probe_target() -> Target:
    """Describe this machine's processor."""
    flags = frozenset(read_processor().flags.split())
    features = flags & FEATURE_FLAGS
    vector_bytes = 16
    registers = 16 if os.uname().machine == "x86_64" else 32
    if flags >= AVX2_FLAGS:
        vector_bytes = 32
    if flags >= AVX512_FLAGS | AVX2_FLAGS:
        vector_bytes = 64
        registers = 32
        features |= {"avx512"}
    l2_bytes = read_cache_bytes(CACHES, 2) or DEFAULT_L2_BYTES
    l3_bytes = read_cache_bytes(CACHES, 3)
    family = read_processor().family
    return cpu_target(vector_bytes, features, registers, l2_bytes, l3_bytes, family)


def read_cache_bytes(directory: str, level: int) -> int:
    """Read the size of the first processor's cache for its own level's data; 0 if unknown."""
    for number in range(5):
        index = os.path.join(directory, f"index{number}")
        is_level = _read_line(os.path.join(index, "level")) == str(level)
        if is_level and _read_line(os.path.join(index, "type")) != "Instruction":
            return parse_size(_read_line(os.path.join(index, "size")))
    return 0


def parse_size(text: str) -> int:
    """Turn the system's `48K` into bytes; 0 if it is not a size.

    >>> parse_size("48K")
    49152
    """
    unit = UNIT_BYTES.get(text[-1:], 1)
    digits = text.rstrip("KMG")
    return int(digits) * unit if digits.isdecimal() else 0


def _read_fields(path: str) -> dict[str, str]:
    """Read `name : value` lines up to the first empty one: one processor of many."""
    try:
        with open(path) as file:
            lines = list(itertools.takewhile(str.strip, file))
    except OSError:
        return {}
    fields: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        fields[name.strip()] = value.strip()
    return fields


def _read_line(path: str) -> str:
    try:
        with open(path) as file:
            return file.readline().strip()
    except OSError:
        return ""
