"""What the compiler may know about a machine: capacities, features and rates, as one record."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from tinytensor.records import dataclass

GPU_ROW_BYTES = 512 * 8 * 16  # 512 threads with 8 vectors each


@dataclass(frozen=True, slots=True)
class Rates:
    """What one core of a CPU, or a whole GPU, reaches; from a table, never measured in the process.

    So the same program is planned the same way each time.

    Units: `read` and `write` in bytes of memory a second, `cache` of bytes read or written in cache
    (a CPU reads a line before it writes to it, and brings that to memory later); `flops`
    in float32 operations a second of a product, where a multiply-add is two; `half_flops` the same
    of matrix instructions on halves (twice that on bytes), `computed_half_flops` when a factor is
    not copied as it lies, but computed on the way; `functions` in the unit of `schedule/cost.py` a
    second, of which a float32 exponential takes `exponential`.
    """

    read: float
    write: float
    cache: float
    flops: float
    functions: float
    launch_seconds: float
    half_flops: float = 0.0
    computed_half_flops: float = 0.0
    exponential: float = 1.0

    @property
    def copy(self) -> float:
        """Bytes a second, read plus written, where as many are read as written."""
        return 2 / (1 / self.read + 1 / self.write)


@dataclass(frozen=True, slots=True)
class Target:
    """One kind of machine to generate code for.

    Units: `shared_bytes` of one block, `cache_bytes` of the largest cache. `tile` is the side of
    the tile of a product that a GPU's block computes, and sums of products of 8 bits and halves are
    scaled on chip for each multiple of `scaled_bytes` of k (0: none). A GPU's `name` is the
    architecture that its code is compiled for.
    """

    name: str
    kind: Literal["c", "python", "cuda"]
    vector_bytes: int
    features: frozenset[str]
    registers: int
    l2_bytes: int
    cache_bytes: int
    rates: Rates
    max_kernel_ops: int = 512
    tile: int = 128
    shared_bytes: int = 0
    multiprocessors: int = 1
    scaled_bytes: int = 0

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

    def with_fp32_matmul(self, how: str) -> Target:
        """Return this machine allowed to compute float32 products from TF32, if it can and may."""
        can = "wgmma" in self.features and how != "exact"
        return replace(self, features=self.features | {how}) if can else self

    def stressed(self) -> Target:
        """Return this machine with narrow vectors, little cache and small kernels.

        Edges, tails and splits are then met by small inputs.
        """
        narrow = min(self.vector_bytes, 16)
        return replace(self, vector_bytes=narrow, l2_bytes=16 << 10, max_kernel_ops=16)


# One core: copies of 16 MB and of 4 MB, a packed product of 1024, the exponential of
# codegen/functions.py. A launch: 30 ns to call, the rest to find and hand over its buffers. Zen 4:
# 5.7e9 exponentials summed, at any size, 2.3 to 3 times as many as of other functions, 2026-11-29;
# on Zen 5 it was not measured since it scales by powers of two in one instruction.
# Zen 4 also sums 16 MB at 39 to 45e9 bytes a second and fills them at 26 to 28e9 (medians of
# three runs, 2026-11-30). Of the others copies alone were measured; a write is taken for two reads.
ZEN4 = Rates(
    read=43e9,
    write=27e9,
    cache=80e9,
    flops=105e9,
    functions=3.7e9,
    launch_seconds=1e-6,
    exponential=0.65,
)
ZEN5 = Rates(75e9, 37.5e9, cache=100e9, flops=240e9, functions=4e9, launch_seconds=1e-6)
# By the family of /proc/cpuinfo and the bytes of a vector; others by their vectors alone. Those
# narrower than a machine's own were measured on Zen 4, but the exponential, which goes by lanes.
CPU_RATES = {("AuthenticAMD 25", 64): ZEN4, ("AuthenticAMD 26", 64): ZEN5}
VECTOR_RATES = {
    64: ZEN5,
    32: Rates(60e9, 30e9, cache=80e9, flops=100e9, functions=2e9, launch_seconds=1e-6),
    16: Rates(37.5e9, 18.75e9, cache=50e9, flops=40e9, functions=1e9, launch_seconds=1e-6),
}
NUMPY_RATES = Rates(5e9, 5e9, cache=5e9, flops=5e9, functions=1e9, launch_seconds=1e-6)

DEFAULT_L2_BYTES = 1 << 20
DEFAULT_L3_BYTES = 32 << 20


def cpu_target(
    vector_bytes: int,
    features: frozenset[str],
    registers: int,
    l2_bytes: int = DEFAULT_L2_BYTES,
    l3_bytes: int = DEFAULT_L3_BYTES,
    family: str = "",
) -> Target:
    """Describe a CPU by what was probed, with the rates of its family or its vector width."""
    return Target(
        name="CPU",
        kind="c",
        vector_bytes=vector_bytes,
        features=features,
        registers=registers,
        l2_bytes=l2_bytes,
        cache_bytes=max(l2_bytes, l3_bytes),
        rates=CPU_RATES.get((family, vector_bytes), VECTOR_RATES[vector_bytes]),
    )


CPU_AVX512 = cpu_target(64, frozenset({"avx512", "avx2", "f16c", "fma"}), registers=32)
CPU_AVX2 = cpu_target(32, frozenset({"avx2", "f16c", "fma"}), registers=16)
CPU_SSE = cpu_target(16, frozenset(), registers=16)

PYTHON = replace(CPU_SSE, name="PYTHON", kind="python", rates=NUMPY_RATES)


# H200: measured, but for the rate of L2, which is a guess: a copy (taken as fast both ways), a
# register-tiled product, 8.5 instructions an exponential, a launch of its own, a vendor library's
# product of bf16 (cool card); with a computed factor, a product through registers.
# A100: nine tenths of the published bandwidth, eight tenths of the published operations.
H200_RATES = Rates(
    4.3e12, 4.3e12, 5.5e12, 60e12, 3.9e12, 2e-6, half_flops=790e12, computed_half_flops=380e12
)
A100_RATES = Rates(
    1.4e12, 1.4e12, 2.5e12, 15.6e12, 1.1e12, 2e-6, half_flops=250e12, computed_half_flops=250e12
)
GPU_RATES = {"NVIDIA H200": H200_RATES}

PORTABLE_GPU = frozenset({"mma", "cp.async"})
HOPPER = PORTABLE_GPU | {"mma.f64", "wgmma", "bulk", "grid_dependency"}
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
        cache_bytes=l2_bytes,
        rates=rates,
        shared_bytes=shared_bytes,
        multiprocessors=multiprocessors,
        scaled_bytes=128 * is_hopper,
    )


SM80 = cuda_target((8, 0))
SM90A = cuda_target((9, 0), "NVIDIA H200", 132, 227 << 10, 60 << 20)
