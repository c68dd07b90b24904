"""What the compiler may know about a machine: capacities, features and rates, as one record."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

GPU_ROW_BYTES = 512 * 8 * 16  # 512 threads with 8 vectors each


@dataclass(frozen=True, slots=True)
class Target:
    """One kind of machine to generate code for.

    Units: `copy_rate` in bytes a second (read plus written), `flop_rate` in fp32 operations a
    second of one core, or of a whole GPU; `half_rate` the same for matrix instructions on halves;
    `shared_bytes` of one block. The rates come from a table, never from a measurement in this
    process, so the same program is planned the same way each time.
    A GPU's `name` is the architecture that its code is compiled for.
    """

    name: str
    kind: Literal["c", "python", "cuda"]
    vector_bytes: int
    features: frozenset[str]
    registers: int
    l2_bytes: int
    copy_rate: float
    flop_rate: float
    max_kernel_ops: int = 512
    launch_seconds: float = 1e-6
    contraction_columns: int = 512  # n computed per pass over the other factor of a product
    half_rate: float = 0.0
    shared_bytes: int = 0
    multiprocessors: int = 1

    def lanes(self, itemsize: int) -> int:
        """Count the elements of `itemsize` bytes that one vector register holds, at least 1.

        >>> CPU_AVX2.lanes(4)
        8
        """
        return max(1, self.vector_bytes // itemsize)

    @property
    def row_bytes(self) -> int:
        """The bytes of one buffer's row that stay on chip between two reductions of the row.

        They stay in a CPU's cache beside rows of other buffers, or in a GPU block's registers.
        """
        return GPU_ROW_BYTES if self.kind == "cuda" else self.l2_bytes // 4

    def stressed(self) -> Target:
        """Return this machine with narrow vectors, little cache and small kernels.

        Edges, tails and splits are then met by small inputs.
        """
        narrow = min(self.vector_bytes, 16)
        return replace(self, vector_bytes=narrow, l2_bytes=16 << 10, max_kernel_ops=16)


# One core, from cache-exceeding elementwise kernels and register-tiled products on AMD Zen 4 and 5.
COPY_RATES = {64: 50e9, 32: 40e9, 16: 25e9}
FLOP_RATES = {64: 200e9, 32: 100e9, 16: 40e9}

DEFAULT_L2_BYTES = 1 << 20


def cpu_target(
    vector_bytes: int,
    features: frozenset[str],
    registers: int,
    l2_bytes: int = DEFAULT_L2_BYTES,
) -> Target:
    """Describe a CPU by what was probed, with the rates of its vector width."""
    return Target(
        name="CPU",
        kind="c",
        vector_bytes=vector_bytes,
        features=features,
        registers=registers,
        l2_bytes=l2_bytes,
        copy_rate=COPY_RATES[vector_bytes],
        flop_rate=FLOP_RATES[vector_bytes],
    )


CPU_AVX512 = cpu_target(64, frozenset({"avx512", "avx2", "f16c", "fma"}), registers=32)
CPU_AVX2 = cpu_target(32, frozenset({"avx2", "f16c", "fma"}), registers=16)
CPU_SSE = cpu_target(16, frozenset(), registers=16)

PYTHON = replace(CPU_SSE, name="PYTHON", kind="python", copy_rate=5e9, flop_rate=5e9)


@dataclass(frozen=True, slots=True)
class GpuRates:
    """What a GPU reaches. Units: bytes a second, and operations a second in fp32 and halves."""

    copy_rate: float
    flop_rate: float
    half_rate: float


# H200: measured (copy, register-tiled product, vendor library's product of bf16 on a cool card).
# A100: nine tenths of the published bandwidth, eight tenths of the published operations.
H200_RATES = GpuRates(4.3e12, 60e12, 790e12)
A100_RATES = GpuRates(1.4e12, 15.6e12, 250e12)
GPU_RATES = {"NVIDIA H200": H200_RATES}

PORTABLE_GPU = frozenset({"mma", "cp.async"})
HOPPER = PORTABLE_GPU | {"wgmma", "bulk", "grid_dependency"}
HOPPER_CAPABILITY = (9, 0)


def cuda_target(
    capability: tuple[int, int],
    device_name: str = "",
    multiprocessors: int = 108,
    shared_bytes: int = 163 << 10,
    l2_bytes: int = 40 << 20,
) -> Target:
    """Describe a GPU by what its driver tells; one without rates of its own gets its kind's.

    >>> cuda_target((9, 0)).name, cuda_target((8, 9)).name
    ('sm_90a', 'sm_89')
    """
    is_hopper = capability == HOPPER_CAPABILITY
    rates = GPU_RATES.get(device_name, H200_RATES if is_hopper else A100_RATES)
    major, minor = capability
    return Target(
        name=f"sm_{major}{minor}{'a' * is_hopper}",
        kind="cuda",
        vector_bytes=16,
        features=HOPPER if is_hopper else PORTABLE_GPU,
        registers=255,
        l2_bytes=l2_bytes,
        copy_rate=rates.copy_rate,
        flop_rate=rates.flop_rate,
        half_rate=rates.half_rate,
        launch_seconds=2e-6,
        shared_bytes=shared_bytes,
        multiprocessors=multiprocessors,
    )


SM80 = cuda_target((8, 0))
SM90A = cuda_target((9, 0), "NVIDIA H200", 132, 227 << 10, 60 << 20)
