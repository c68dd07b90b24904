"""What the compiler may know about a machine: capacities, features and rates, as one record."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal


@dataclass(frozen=True, slots=True)
class Target:
    """One kind of machine to generate code for.

    Units: `copy_rate` in bytes a second (read plus written), `flop_rate` in fp32 operations a
    second of one core. The rates come from a table, never from a measurement in this process, so
    the same program is planned the same way each time.
    """

    name: str
    kind: Literal["c", "python", "cuda"]
    vector_bytes: int
    features: frozenset[str]
    registers: int
    l1_bytes: int
    l2_bytes: int
    l3_bytes: int
    copy_rate: float
    flop_rate: float
    max_kernel_ops: int = 512
    launch_seconds: float = 1e-6
    contraction_columns: int = 512  # n computed per pass over the other factor of a product

    def lanes(self, itemsize: int) -> int:
        """Count the elements of `itemsize` bytes that one vector register holds, at least 1.

        >>> CPU_AVX2.lanes(4)
        8
        """
        return max(1, self.vector_bytes // itemsize)

    def stressed(self) -> Target:
        """Return this machine with narrow vectors, little cache and small kernels.

        Edges, tails and splits are then met by small inputs.
        """
        narrow = min(self.vector_bytes, 16)
        return replace(self, vector_bytes=narrow, l2_bytes=16 << 10, max_kernel_ops=16)


# One core, from cache-exceeding elementwise kernels and register-tiled products on AMD Zen 4 and 5.
COPY_RATES = {64: 50e9, 32: 40e9, 16: 25e9}
FLOP_RATES = {64: 200e9, 32: 100e9, 16: 40e9}

DEFAULT_L1_BYTES = 32 << 10
DEFAULT_L2_BYTES = 1 << 20
DEFAULT_L3_BYTES = 16 << 20


def cpu_target(
    vector_bytes: int,
    features: frozenset[str],
    registers: int,
    l1_bytes: int = DEFAULT_L1_BYTES,
    l2_bytes: int = DEFAULT_L2_BYTES,
    l3_bytes: int = DEFAULT_L3_BYTES,
) -> Target:
    """Describe a CPU by what was probed, with the rates of its vector width."""
    return Target(
        name="CPU",
        kind="c",
        vector_bytes=vector_bytes,
        features=features,
        registers=registers,
        l1_bytes=l1_bytes,
        l2_bytes=l2_bytes,
        l3_bytes=l3_bytes,
        copy_rate=COPY_RATES[vector_bytes],
        flop_rate=FLOP_RATES[vector_bytes],
    )


CPU_AVX512 = cpu_target(64, frozenset({"avx512", "avx2", "f16c", "fma"}), registers=32)
CPU_AVX2 = cpu_target(32, frozenset({"avx2", "f16c", "fma"}), registers=16)
CPU_SSE = cpu_target(16, frozenset(), registers=16)

PYTHON = Target(
    name="PYTHON",
    kind="python",
    vector_bytes=16,
    features=frozenset(),
    registers=16,
    l1_bytes=DEFAULT_L1_BYTES,
    l2_bytes=DEFAULT_L2_BYTES,
    l3_bytes=DEFAULT_L3_BYTES,
    copy_rate=5e9,
    flop_rate=5e9,
)
