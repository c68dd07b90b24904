"""Typed attributes of the ops of a GPU's thread block; `order` is that of EffectAttrs."""

from __future__ import annotations

from tinytensor.records import dataclass


@dataclass(frozen=True, slots=True)
class PlaceAttrs:
    """PLACE: which coordinate of the running thread.

    `thread` and `warp` are its own number and its warp's in the block, `block_x`, `block_y` and
    `block_z` its block's in the grid; `extent` is how many there are.
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
    """BARRIER: `number` 0 is the whole block's; others are named ones of `threads` threads.

    With a `group`, which its threads agree on, it is the barrier of number + group.
    """

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
    """LDMATRIX: load 8x8 matrices of 16-bit elements or of pairs of 8, `transposed` or as they lie.

    Pairs stay together.
    """

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

    Shape and box are innermost first, in elements; strides (one fewer, of the axes after the
    first) and the offset of the first element too. `swizzle_bytes` is 0, 32, 64 or 128. With
    `rounds`, float32 is rounded to TF32 on its way to shared memory. With `extents`, words for
    index expressions over scalars, a launch's shape is that, and `shape` the greatest. With `steps`
    a box takes each step-th place of an axis.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle_bytes: int
    offset: int = 0
    rounds: bool = False
    extents: tuple[str, ...] = ()
    steps: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class WgmmaAttrs:
    """WGMMA: the instruction's shape name and whether each operand is k-major.

    An operand that is not, and is wider than a row of its tile, goes on in the following stages.
    Its block begins `a_ahead` (or `b_ahead`) elements after its index.
    """

    order: int
    instruction: str
    a_k_major: bool
    b_k_major: bool
    a_ahead: int = 0
    b_ahead: int = 0
