"""Turns a loaded binary into launches whose argument blocks are ready before the first call."""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tinytensor.ops.program import LaunchShape, Program, TensorMap
from tinytensor.runtime.cuda.driver import Driver, Handle

ADDRESS_BYTES = 8
TENSOR_MAP_WORDS = 16
MOST_TENSOR_MAPS = 4096

# A bulk copy moves bits: only the size of an element matters to it.
ELEMENT_TYPES = {1: "UINT8", 2: "UINT16", 4: "UINT32", 8: "UINT64"}
SWIZZLES = {0: "NONE", 32: "32B", 64: "64B", 128: "128B"}


@dataclass(frozen=True, slots=True)
class Binary:
    """A CUBIN, and its handle once the driver has loaded it."""

    cubin: bytes
    module: Handle
    was_cached: bool


@dataclass(frozen=True, slots=True)
class PreparedLaunch:
    """One entry's launch: `start` calls cuLaunchKernel; `pointers` also has its tensor maps' slots.

    What `start` is bound to holds the address of `pointers`, which point to the parameters' values.
    Units: `local_bytes` of one thread's stack frame and spilled registers.
    """

    entry: str
    start: Callable[[], tuple[Handle]]
    pointers: ctypes.Array[ctypes.c_void_p]
    tensor_maps: tuple[TensorMap, ...]
    first_map: int
    local_bytes: int


class CudaExecutable:
    """A program ready to run: one block of addresses and scalars, read by all its launches.

    Whoever runs it holds the device's lock from `place` to the last launch. A kernel whose
    `local_bytes` are above 0 is slower than it looks.
    """

    __slots__ = (
        *("binary", "launches", "local_bytes", "name", "pack", "values", "with_maps"),
        "workspace_bytes",
    )

    def __init__(self, driver: Driver, stream: Handle, program: Program, binary: Binary) -> None:
        self.name = program.name
        self.binary = binary
        self.workspace_bytes = program.workspace_bytes
        count = program.params + (program.workspace_bytes > 0)
        self.values = (ctypes.c_uint64 * (count + len(program.scalars)))()
        self.pack = struct.Struct(f"{count}Q{program.scalars}").pack_into
        prepared = [
            prepare_launch(driver, stream, binary.module, shape, self.values)
            for shape in program.launches
        ]
        self.launches = tuple(prepared)
        self.with_maps = tuple([launch for launch in prepared if launch.tensor_maps])
        self.local_bytes = max([launch.local_bytes for launch in prepared], default=0)

    def __repr__(self) -> str:
        return f"CudaExecutable({self.name})"

    @property
    def was_cached(self) -> bool:
        """Whether the binary came from the disk cache."""
        return self.binary.was_cached

    def place(
        self, driver: Driver, addresses: Sequence[int], scalars: Sequence[float] = ()
    ) -> None:
        """Write addresses, the tensor maps made of them, and scalars where launches read them."""
        self.pack(self.values, 0, *addresses, *scalars)
        for launch in self.with_maps:
            for number, each in enumerate(launch.tensor_maps, start=launch.first_map):
                encoded = encode_tensor_map(driver, each, addresses[each.number])
                launch.pointers[number] = ctypes.addressof(encoded)


def prepare_launch(
    driver: Driver,
    stream: Handle,
    module: Handle,
    shape: LaunchShape,
    values: ctypes.Array[ctypes.c_uint64],
) -> PreparedLaunch:
    """Find an entry in a module, and lay out what cuLaunchKernel is called with."""
    function = driver.call("cuModuleGetFunction", module, shape.entry.encode())
    _allow_shared(driver, function, shape.shared_bytes)
    count = len(values)
    pointers = (ctypes.c_void_p * (count + len(shape.tensor_maps)))()
    first = ctypes.addressof(values)
    pointers[:count] = [first + ADDRESS_BYTES * number for number in range(count)]
    return PreparedLaunch(
        entry=shape.entry,
        start=_start(driver, stream, function, shape, ctypes.addressof(pointers)),
        pointers=pointers,
        tensor_maps=shape.tensor_maps,
        first_map=count,
        local_bytes=driver.function_attribute(function, "LOCAL_SIZE_BYTES"),
    )


def _start(
    driver: Driver, stream: Handle, function: Handle, shape: LaunchShape, parameters: int
) -> Callable[[], tuple[Handle]]:
    """Return the call that launches an entry, with all it takes but the parameters' values."""
    api, block = driver.api, (shape.threads, 1, 1)
    if not shape.waits_itself:
        tail = (shape.shared_bytes, stream, parameters, 0)
        return functools.partial(api.cuLaunchKernel, function, *shape.grid, *block, *tail)
    early = api.CUlaunchAttribute()
    name = "CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION"
    early.id = driver.constant("CUlaunchAttributeID", name)
    early.value.programmaticStreamSerializationAllowed = 1
    launch = api.CUlaunchConfig()
    launch.gridDimX, launch.gridDimY, launch.gridDimZ = shape.grid
    launch.blockDimX, launch.blockDimY, launch.blockDimZ = block
    launch.sharedMemBytes, launch.hStream = shape.shared_bytes, stream
    launch.attrs, launch.numAttrs = [early], 1
    return functools.partial(api.cuLaunchKernelEx, launch, function, parameters, 0)


def _allow_shared(driver: Driver, function: Handle, shared_bytes: int) -> None:
    """Allow more shared memory than the default of 48 KiB, and never less than before."""
    name = "MAX_DYNAMIC_SHARED_SIZE_BYTES"
    if shared_bytes > driver.function_attribute(function, name):
        attribute = driver.constant("CUfunction_attribute", f"CU_FUNC_ATTRIBUTE_{name}")
        driver.call("cuFuncSetAttribute", function, attribute, shared_bytes)


@functools.lru_cache(maxsize=MOST_TENSOR_MAPS)
def encode_tensor_map(
    driver: Driver, described: TensorMap, address: int
) -> ctypes.Array[ctypes.c_uint64]:
    """Describe the buffer at an address to the bulk copy engine, in its own 128 bytes.

    Source: CUDA driver API, cuTensorMapEncodeTiled; shapes innermost first, strides in bytes and
    without the innermost one.
    """
    api = driver.api
    element = f"CU_TENSOR_MAP_DATA_TYPE_{ELEMENT_TYPES[described.itemsize]}"
    swizzle = f"CU_TENSOR_MAP_SWIZZLE_{SWIZZLES[described.swizzle_bytes]}"
    encoded = driver.call(
        "cuTensorMapEncodeTiled",
        driver.constant("CUtensorMapDataType", element),
        len(described.shape),
        address + described.offset_bytes,
        [api.cuuint64_t(extent) for extent in described.shape],
        [api.cuuint64_t(stride) for stride in described.strides_bytes],
        [api.cuuint32_t(extent) for extent in described.box],
        [api.cuuint32_t(1) for _ in described.box],
        driver.constant("CUtensorMapInterleave", "CU_TENSOR_MAP_INTERLEAVE_NONE"),
        driver.constant("CUtensorMapSwizzle", swizzle),
        driver.constant("CUtensorMapL2promotion", "CU_TENSOR_MAP_L2_PROMOTION_L2_256B"),
        driver.constant("CUtensorMapFloatOOBfill", "CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE"),
    )
    return (ctypes.c_uint64 * TENSOR_MAP_WORDS)(*[int(word) for word in encoded.opaque])
