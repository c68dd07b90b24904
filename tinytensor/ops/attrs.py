"""Typed static attributes of nodes, validated when a node is built."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, unique
from typing import Any, ClassVar, Protocol

from tinytensor.dtype import DType


@unique
class Combine(Enum):
    """The associative operations a reduction folds with."""

    ADD = "add"
    MUL = "mul"
    MAX = "max"
    MIN = "min"
    AND = "and"
    OR = "or"
    ARGMAX = "argmax"
    ARGMIN = "argmin"

    __hash__ = object.__hash__


@dataclass(frozen=True, slots=True)
class ConstAttrs:
    """The bits of a constant in its node's dtype, so that 0.0, -0.0 and NaN never meet."""

    bits: int


@dataclass(frozen=True, slots=True)
class BufferAttrs:
    """One allocation: `serial` is unique, so two equal leaves stay two."""

    serial: int
    shape: tuple[int, ...]
    device: str


@dataclass(frozen=True, slots=True)
class ShapeAttrs:
    """The result's shape (RESHAPE, EXPAND)."""

    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class OrderAttrs:
    """PERMUTE: result axis i is operand axis order[i]."""

    order: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SliceAttrs:
    """SLICE: along each axis, result element i is operand element begin + i * step.

    `extent` is the result's shape. A negative step walks backwards (a flip).
    """

    begin: tuple[int, ...]
    step: tuple[int, ...]
    extent: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PadAttrs:
    """PAD: elements added before and after, per axis; none is negative."""

    before: tuple[int, ...]
    after: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DetachAttrs:
    """DETACH: 0 ends gradients; any other serial is a place of its own, told apart by it."""

    serial: int


@dataclass(frozen=True, slots=True)
class CheckAttrs:
    """CHECK: the operation whose indices these are, along which axis, and least <= x < end."""

    who: str
    axis: int
    least: int
    end: int


@dataclass(frozen=True, slots=True)
class GatherAttrs:
    """GATHER: the axes of x along which an index operand says what to read, one for each."""

    axes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ExtentAttrs:
    """IOTA: the number of values, 0 .. extent - 1."""

    extent: int


@dataclass(frozen=True, slots=True)
class ReduceAttrs:
    """REDUCE: how to fold, and over which axes (TENSOR form; in INDEXED form ranges are operands).

    Reduced axes stay, with extent 1.
    """

    combine: Combine
    axes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class DeviceAttrs:
    """COPY: the device the result lives on."""

    device: str


@dataclass(frozen=True, slots=True)
class ParamAttrs:
    """PARAM: the kernel's buffer number, and its size in elements."""

    number: int
    elements: int


@dataclass(frozen=True, slots=True)
class RangeAttrs:
    """RANGE: a loop variable 0 .. extent - 1, told apart by its number."""

    number: int
    extent: int


@dataclass(frozen=True, slots=True)
class ContractAttrs:
    """CONTRACT: numbers of the ranges of each class, and the accumulator's dtype."""

    batch: tuple[int, ...]
    m: tuple[int, ...]
    n: tuple[int, ...]
    k: tuple[int, ...]
    accumulate: DType


@dataclass(frozen=True, slots=True)
class EffectAttrs:
    """LINEAR: `order` is unique per effect, so interning never merges two of them."""

    order: int


@dataclass(frozen=True, slots=True)
class AccessAttrs:
    """LINEAR load or store of `valid` leading lanes; other lanes read 0 and are not written."""

    order: int
    valid: int


@dataclass(frozen=True, slots=True)
class LoopAttrs:
    """LINEAR loop: unique order, step of the variable, and how far to unroll (1: not at all)."""

    order: int
    step: int
    unroll: int = 1


@dataclass(frozen=True, slots=True)
class WorkspaceAttrs:
    """LINEAR scratch memory: a region of the launch's workspace.

    Units: `offset_bytes` from its start, `elements` of the node's dtype.
    """

    offset_bytes: int
    elements: int


@dataclass(frozen=True, slots=True)
class LanesAttrs:
    """SHUFFLE: lane i of the result is lane lanes[i] of the operands laid end to end."""

    lanes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CallAttrs:
    """CALL: the C library's name for the float64 function, without the suffix of other types."""

    function: str


# Attributes of the ops of a GPU's thread block. `order` is that of EffectAttrs.


@dataclass(frozen=True, slots=True)
class PlaceAttrs:
    """PLACE: which coordinate of the running thread (`thread`, `block_x`, `block_y`, `block_z`).

    `extent` is the number of threads of a block, or of blocks along that axis of the grid.
    """

    kind: str
    extent: int


@dataclass(frozen=True, slots=True)
class SharedAttrs:
    """SHARED: a region of the block's shared memory; `elements` of the node's dtype."""

    offset_bytes: int
    elements: int


@dataclass(frozen=True, slots=True)
class BarrierAttrs:
    """BARRIER: `number` 0 is the whole block's; others are named ones of `threads` threads."""

    order: int
    number: int
    threads: int


@dataclass(frozen=True, slots=True)
class ExchangeAttrs:
    """EXCHANGE: each lane of a warp gets the value of the lane whose number differs by XOR."""

    order: int
    distance: int


@dataclass(frozen=True, slots=True)
class CopyAttrs:
    """COPY_ASYNC: adjacent `elements` moved by one thread (4, 8 or 16 bytes in all)."""

    order: int
    elements: int


@dataclass(frozen=True, slots=True)
class WaitAttrs:
    """COPY_WAIT (and its kind): how many of the newest committed groups may still be in flight."""

    order: int
    pending: int


@dataclass(frozen=True, slots=True)
class FragmentAttrs:
    """LDMATRIX: load 8x8 matrices of 16-bit elements, `transposed` or as they lie."""

    order: int
    transposed: bool


@dataclass(frozen=True, slots=True)
class MmaAttrs:
    """MMA: the instruction's PTX shape name and input dtype, as in `m16n8k16.f16`."""

    instruction: str


@dataclass(frozen=True, slots=True)
class RoleAttrs:
    """ROLE: what follows, up to ENDROLE, is run by warps first_warp .. first_warp + warps - 1.

    `registers` is the budget per thread it asks for; 0 leaves the launch's own.
    """

    order: int
    name: str
    first_warp: int
    warps: int
    registers: int


@dataclass(frozen=True, slots=True)
class TileAttrs:
    """TILE: a ring of `stages` tiles of rows x columns elements in shared memory.

    With `swizzle`, 16-byte chunks of a row trade places so that the same chunk of 8 neighboring
    rows lies in different banks. The address functions are in ops/tile.py.
    """

    offset_bytes: int
    rows: int
    columns: int
    stages: int
    swizzle: bool


@dataclass(frozen=True, slots=True)
class TileCopyAttrs:
    """TILE_COPY: run by `threads` threads; source rows lie `row_stride` elements apart.

    `access_elements` adjacent elements are known to be readable at once: aligned, and valid or
    invalid together. 1 means that nothing is known.
    """

    order: int
    threads: int
    row_stride: int
    access_elements: int


@dataclass(frozen=True, slots=True)
class TileMmaAttrs:
    """TILE_MMA: a grid of warps_m x warps_n warps multiplies two tiles.

    A tile is k-major when its rows are m (or n) and its columns k; else its rows are k.
    """

    order: int
    instruction: str
    warps_m: int
    warps_n: int
    a_k_major: bool
    b_k_major: bool


@dataclass(frozen=True, slots=True)
class MbarrierAttrs:
    """MBARRIERS: `count` transaction barriers in shared memory, each of `arrivals` arrivals."""

    offset_bytes: int
    count: int
    arrivals: int


@dataclass(frozen=True, slots=True)
class TensorMapAttrs:
    """TENSOR_MAP: how the bulk copy engine sees a buffer; encoded by the runtime at launch.

    `param` is the buffer's number; shape and box are innermost first, in elements; strides (one
    fewer) too. `swizzle_bytes` is 0, 32, 64 or 128.
    """

    param: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle_bytes: int


@dataclass(frozen=True, slots=True)
class WgmmaAttrs:
    """WGMMA: the instruction's shape name and whether each operand is k-major."""

    order: int
    instruction: str
    a_k_major: bool
    b_k_major: bool


class Attrs(Protocol):
    """Any of these dataclasses; the op table says whose they are."""

    __dataclass_fields__: ClassVar[dict[str, Any]]  # Any: what dataclasses keep there is their own
