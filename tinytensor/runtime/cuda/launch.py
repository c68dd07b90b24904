"""Turns a loaded binary into launches whose argument blocks are ready before the first call."""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Callable, Sequence
from typing import TypeVar

from tinytensor.ops.extents import index_with
from tinytensor.ops.instances import split
from tinytensor.ops.program import INSTANCE_WORDS, LaunchShape, Program, TensorMap
from tinytensor.ops.text import numbers_at, parse_node
from tinytensor.ops.uop import UOp
from tinytensor.records import dataclass
from tinytensor.runtime.cuda.driver import Driver, Handle

ADDRESS_BYTES = 8
TENSOR_MAP_WORDS = 16
MOST_TENSOR_MAPS = 4096
NOWHERE = -1

# A bulk copy moves bits: only the size of an element matters to it.
ELEMENT_TYPES = {1: "UINT8", 2: "UINT16", 4: "UINT32", 8: "UINT64"}
ROUNDED_TYPE = "TFLOAT32"
SWIZZLES = {0: "NONE", 32: "32B", 64: "64B", 128: "128B"}


@dataclass(frozen=True, slots=True)
class Binary:
    """A CUBIN, and its handle once the driver has loaded it."""

    cubin: bytes
    module: Handle
    was_cached: bool


EncodedMap = ctypes.Array[ctypes.c_uint64]
Where = TypeVar("Where")


@dataclass(frozen=True, slots=True)
class PlacedMap:
    """A tensor map that a launch reads now, and the address and shape it was encoded for."""

    address: int
    shape: tuple[int, ...]
    encoded: EncodedMap | None


@dataclass(frozen=True, slots=True)
class PreparedLaunch:
    """One entry's launch: `start` calls cuLaunchKernel; `pointers` also has its tensor maps' slots.

    What `start` is bound to holds the address of `pointers`, which point to the parameters' values.
    An instanced entry gets its blocks by `config`, its one parameter is all values; so does one
    where `across` says how many blocks run along x.
    Units: `local_bytes` of one thread's stack frame and spilled registers.
    """

    shape: LaunchShape
    function: Handle
    start: Callable[[], tuple[Handle]]
    pointers: ctypes.Array[ctypes.c_void_p]
    placed: list[PlacedMap]
    local_bytes: int
    config: Handle | None
    across: UOp | None

    def place_map(self, number: int, placed: PlacedMap) -> None:
        """Let the entry read a tensor map, and keep that map alive."""
        assert placed.encoded is not None, "only a map that was encoded is read"
        first = len(self.pointers) - len(self.placed)
        self.pointers[first + number] = ctypes.addressof(placed.encoded)
        self.placed[number] = placed

    def set_blocks(self, blocks: int) -> None:
        """Let so many blocks run along x, at least one."""
        assert self.config is not None, "a grid that differs from run to run is in a record"
        self.config.gridDimX = max(1, blocks)


class CudaExecutable:
    """A program ready to run: one block of addresses and scalars, read by all its launches.

    Whoever runs it holds the device's lock from `place` to the last launch. A kernel whose
    `local_bytes` are above 0 is slower than it looks.
    """

    __slots__ = (
        *("binary", "driver", "launches", "local_bytes", "name", "pack", "program", "stream"),
        *("values", "with_grids", "with_maps", "workspace_bytes"),
    )

    def __init__(self, driver: Driver, stream: Handle, program: Program, binary: Binary) -> None:
        self.name = program.name
        self.driver, self.stream = driver, stream
        self.program, self.binary = program, binary
        self.workspace_bytes = program.workspace_bytes
        count = program.params + (program.workspace_bytes > 0)
        form = f"{count}Q{program.scalars}"
        words = count + len(program.scalars)
        if any(shape.block_elements for shape in program.launches):
            words = INSTANCE_WORDS
        self.values = (ctypes.c_uint64 * words)()
        self.pack = struct.Struct(form).pack_into
        prepared = [
            prepare_launch(driver, stream, binary.module, shape, self.values)
            for shape in program.launches
        ]
        self.launches = tuple(prepared)
        self.with_maps = tuple([launch for launch in prepared if launch.placed])
        self.with_grids = tuple([launch for launch in prepared if launch.across is not None])
        self.local_bytes = max([launch.local_bytes for launch in prepared], default=0)

    def __repr__(self) -> str:
        return f"CudaExecutable({self.name})"

    @property
    def was_cached(self) -> bool:
        """Whether the binary came from the disk cache."""
        return self.binary.was_cached

    def again(self) -> CudaExecutable:
        """Return the same with a block of its own."""
        return CudaExecutable(self.driver, self.stream, self.program, self.binary)

    def parts(
        self, addresses: Sequence[Where], extents: Sequence[int]
    ) -> list[tuple[Sequence[Where], Sequence[int]]]:
        """Split instances into as many as a table holds; what is not instanced is one part."""
        if not extents:
            return [(addresses, extents)]
        count = len(addresses) // len(extents)
        most = (INSTANCE_WORDS - 1) // (2 + count)
        begins = range(0, len(extents), most)
        return [
            (addresses[at * count : (at + most) * count], extents[at : at + most]) for at in begins
        ]

    def address_places(self, count: int, extents: Sequence[int]) -> list[int]:
        """Return which words of the block some addresses are; a row of a table has two more."""
        if not extents:
            return list(range(count))
        each = count // len(extents)
        return [1 + n // each * (2 + each) + 2 + n % each for n in range(count)]

    def place(
        self,
        addresses: Sequence[int],
        scalars: Sequence[float] = (),
        extents: Sequence[int] = (),
    ) -> None:
        """Write addresses, the tensor maps made of them, and scalars where launches read them."""
        if extents:
            self._place_table(addresses, extents)
            return
        self.pack(self.values, 0, *addresses, *scalars)
        for launch in self.with_maps:
            for number, each in enumerate(launch.shape.tensor_maps):
                address = addresses[each.number]
                shape = numbers_at(each.extents, tuple(scalars)) or each.shape
                placed = launch.placed[number]
                if placed.address != address or placed.shape != shape:
                    encoded = encode_tensor_map(self.driver, each, shape, address)
                    launch.place_map(number, PlacedMap(address, shape, encoded))
        for launch in self.with_grids:
            assert launch.across is not None, "these have one"
            launch.set_blocks(index_with(launch.across, scalars))

    def _place_table(self, addresses: Sequence[int], extents: Sequence[int]) -> None:
        """Write the table of some instances, and count their blocks."""
        (launch,) = self.launches
        words: list[ctypes.c_uint64 | int] = [len(extents)]
        blocks = 0
        for extent, row in zip(extents, split(addresses, extents), strict=True):
            words += [blocks, extent, *row]
            blocks += -(-extent // launch.shape.block_elements)
        self.values[: len(words)] = words
        launch.set_blocks(blocks)


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
    count = 1 if shape.block_elements else len(values)
    pointers = (ctypes.c_void_p * (count + len(shape.tensor_maps)))()
    first = ctypes.addressof(values)
    pointers[:count] = [first + ADDRESS_BYTES * number for number in range(count)]
    config = _configure(driver, stream, shape)
    return PreparedLaunch(
        shape=shape,
        function=function,
        start=_start(driver, stream, function, shape, ctypes.addressof(pointers), config),
        pointers=pointers,
        placed=[PlacedMap(NOWHERE, (), None)] * len(shape.tensor_maps),
        local_bytes=driver.function_attribute(function, "LOCAL_SIZE_BYTES"),
        config=config,
        across=parse_node(shape.across) if shape.across else None,
    )


def _start(
    driver: Driver,
    stream: Handle,
    function: Handle,
    shape: LaunchShape,
    parameters: int,
    config: Handle | None,
) -> Callable[[], tuple[Handle]]:
    """Return the call that launches an entry, with all it takes but the parameters' values."""
    if config is not None:
        return functools.partial(driver.api.cuLaunchKernelEx, config, function, parameters, 0)
    tail = (shape.threads, 1, 1, shape.shared_bytes, stream, parameters, 0)
    return functools.partial(driver.api.cuLaunchKernel, function, *shape.grid, *tail)


def _configure(driver: Driver, stream: Handle, shape: LaunchShape) -> Handle | None:
    """Return the record of a launch that starts early, or whose grid differs from run to run."""
    if not (shape.waits_itself or shape.block_elements or shape.across):
        return None
    api = driver.api
    config = api.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = shape.grid
    config.blockDimX, config.blockDimY, config.blockDimZ = shape.threads, 1, 1
    config.sharedMemBytes, config.hStream = shape.shared_bytes, stream
    if shape.waits_itself:
        early = api.CUlaunchAttribute()
        name = "CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION"
        early.id = driver.constant("CUlaunchAttributeID", name)
        early.value.programmaticStreamSerializationAllowed = 1
        config.attrs, config.numAttrs = [early], 1
    return config


def _allow_shared(driver: Driver, function: Handle, shared_bytes: int) -> None:
    """Allow more shared memory than the default of 48 KiB, and never less than before."""
    name = "MAX_DYNAMIC_SHARED_SIZE_BYTES"
    if shared_bytes > driver.function_attribute(function, name):
        attribute = driver.constant("CUfunction_attribute", f"CU_FUNC_ATTRIBUTE_{name}")
        driver.call("cuFuncSetAttribute", function, attribute, shared_bytes)


@functools.lru_cache(maxsize=MOST_TENSOR_MAPS)
def encode_tensor_map(
    driver: Driver, described: TensorMap, shape: tuple[int, ...], address: int
) -> EncodedMap:
    """Describe the buffer at an address to the bulk copy engine, in its own 128 bytes.

    Source: CUDA driver API, cuTensorMapEncodeTiled; shapes innermost first, strides in bytes and
    without the innermost one. A box is given by the places it spans, of which it takes some.
    """
    api = driver.api
    kind = ROUNDED_TYPE if described.rounds else ELEMENT_TYPES[described.itemsize]
    element = f"CU_TENSOR_MAP_DATA_TYPE_{kind}"
    swizzle = f"CU_TENSOR_MAP_SWIZZLE_{SWIZZLES[described.swizzle_bytes]}"
    steps = described.steps or (1,) * len(described.box)
    encoded = driver.call(
        "cuTensorMapEncodeTiled",
        driver.constant("CUtensorMapDataType", element),
        len(shape),
        address + described.offset_bytes,
        [api.cuuint64_t(extent) for extent in shape],
        [api.cuuint64_t(stride) for stride in described.strides_bytes],
        [api.cuuint32_t(n * step) for n, step in zip(described.box, steps, strict=True)],
        [api.cuuint32_t(step) for step in steps],
        driver.constant("CUtensorMapInterleave", "CU_TENSOR_MAP_INTERLEAVE_NONE"),
        driver.constant("CUtensorMapSwizzle", swizzle),
        driver.constant("CUtensorMapL2promotion", "CU_TENSOR_MAP_L2_PROMOTION_L2_256B"),
        driver.constant("CUtensorMapFloatOOBfill", "CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE"),
    )
    return (ctypes.c_uint64 * TENSOR_MAP_WORDS)(*[int(word) for word in encoded.opaque])
