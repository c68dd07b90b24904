"""Turns a thread and a register of a matrix instruction into the row and column held there.

Coordinates are written with operators alone and start from the lane or thread, so these functions
take ints, NumPy arrays and nodes alike. `lane` is a thread's number within its warp, `thread` its
number within the threads that multiply.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from tinytensor.dtype import DType, dtypes
from tinytensor.errors import InternalError
from tinytensor.ops.attrs_blocks import TileMmaAttrs

WARP_THREADS = 32
GROUP_WARPS = 4  # a warpgroup; its warps hold 16 rows each of 64
Coordinate = Any  # an int, an array of ints or an integer node: whatever the lane is
_NAMES = re.compile(r"m(\d+)n(\d+)k(\d+)\.(\w+)")
# What the factors are, and what their products are summed in.
_DTYPES = {
    "f16": (dtypes.float16, dtypes.float32),
    "bf16": (dtypes.bfloat16, dtypes.float32),
    "tf32": (dtypes.float32, dtypes.float32),
    "f64": (dtypes.float64, dtypes.float64),
}
_OF_WARPS = (
    *("m16n8k16.f16", "m16n8k16.bf16"),
    *("m8n8k4.f64", "m16n8k4.f64"),
)
_OF_WARPGROUPS = ("k16.f16", "k16.bf16", "k8.tf32")


@dataclass(frozen=True, slots=True)
class MmaShape:
    """The extents of a matrix instruction, and the dtypes of its operands and of its sums."""

    m: int
    n: int
    k: int
    a: DType
    b: DType
    accumulate: DType

    @property
    def least(self) -> tuple[int, int, int]:
        """Return the extents that a tile product gives each warp a multiple of.

        Of float64 two pieces lie together, and two adjacent values of k: see `place_along`.
        """
        if self.a is dtypes.float64:
            return 16, 16, 8
        return self.m, self.n, self.k

    def fragment(self, elements: int) -> DType:
        """Return what a lane holds of so many elements of a factor."""
        if self.a is dtypes.float64:
            return self.a.vector(elements // WARP_THREADS)
        return dtypes.uint32.vector(elements * self.a.bits // (32 * WARP_THREADS))


def mma_shape(instruction: str) -> MmaShape:
    """Return the shape that an instruction's name tells: `m16n8k16.f16`, `m64n128k8.tf32`.

    Raises: InternalError for a name of no instruction.
    """
    match = _NAMES.fullmatch(instruction)
    m, n, k = map(int, match.groups()[:3]) if match else (0, 0, 0)
    word = match[4] if match else ""
    of_group = m == 64 and 8 <= n <= 256 and n % 8 == 0 and f"k{k}.{word}" in _OF_WARPGROUPS
    if instruction not in _OF_WARPS and not of_group:
        raise InternalError(
            f"mma: no instruction has this name: {instruction!r}; known are "
            f"{', '.join(_OF_WARPS)} and m64nN of {', '.join(_OF_WARPGROUPS)} "
            f"(N a multiple of 8 up to 256)."
        )
    factor, accumulate = _DTYPES[word]
    return MmaShape(m, n, k, factor, factor, accumulate)


# mma and ldmatrix, one warp. Elements share a register, `held` of them (two of 16 bits), the lowest
# first; a float64 takes one of its own (or two, as hardware counts). So element e is part e % held
# of register e // held.
def a_position(lane: Coordinate, element: int, held: int = 2) -> tuple[Coordinate, Coordinate]:
    """Return (row, k) of one of a lane's elements of A. m8n8k4 has but one.

    Source: PTX ISA, matrix fragments for mma.m16n8k16, m16n8k4 and m8n8k4.
    """
    register, part = divmod(element, held)
    return lane // 4 + 8 * (register % 2), lane % 4 * held + (part + 4 * held * (register // 2))


def b_position(lane: Coordinate, element: int, held: int = 2) -> tuple[Coordinate, Coordinate]:
    """Return (k, column) of one of a lane's elements of B. Source: as `a_position`."""
    register, part = divmod(element, held)
    return lane % 4 * held + (part + 4 * held * register), lane // 4


def c_position(lane: Coordinate, register: int) -> tuple[Coordinate, Coordinate]:
    """Return (row, column) of one of a lane's sums, 2 for each 8 rows of C."""
    return lane // 4 + 8 * (register // 2), lane % 4 * 2 + register % 2


def ldmatrix_position(
    lane: Coordinate, half: int, transposed: bool
) -> tuple[Coordinate, Coordinate]:
    """Return (row, column) in an 8 x 8 matrix of the half that ldmatrix gives a lane.

    Register i comes from matrix i, whose row r is at the address given by lane 8 * i + r.
    Source: PTX ISA, ldmatrix.
    """
    row, column = lane // 4, lane % 4 * 2 + half
    return (column, row) if transposed else (row, column)


# A block's accumulator.
def accumulator_registers(attrs: TileMmaAttrs, block_m: int, block_n: int) -> int:
    """Return how many sums of a block_m x block_n accumulator each thread holds."""
    return block_m * block_n // (WARP_THREADS * attrs.warps_m * attrs.warps_n)


def accumulator_position(
    attrs: TileMmaAttrs, block_m: int, block_n: int, thread: Coordinate, register: int
) -> tuple[Coordinate, Coordinate]:
    """Return (row, column) in the block's accumulator of one register of one thread.

    Warps (of m64: warpgroups) lie row by row over the block, warps_n in a row of warps. Each holds
    a rectangle of instruction shapes, row by row, and of each shape its registers in order.
    Of m64nN, registers 4j .. 4j + 3 are those of m16n8 at columns 8j, warp w at rows 16w.
    """
    shape = mma_shape(attrs.instruction)
    unit_warps = max(1, shape.m // 16)
    units_m = attrs.warps_m // unit_warps
    unit_m, unit_n = block_m // units_m, block_n // attrs.warps_n
    per_shape = shape.m * shape.n // (WARP_THREADS * unit_warps)
    number, within = divmod(register, per_shape)
    shape_row, shape_column = divmod(number, unit_n // shape.n)
    lane, warp = thread % WARP_THREADS, thread // WARP_THREADS
    unit = warp // unit_warps
    piece_m = shape_row * (shape.m // 8) + within % 4 // 2
    piece_n = shape_column * (shape.n // 8) + within // 4
    row = place_along(shape, attrs.a_k_major, piece_m, lane // 4)
    column = place_along(shape, attrs.b_k_major, piece_n, lane % 4 * 2 + within % 2)
    row, column = row + unit // attrs.warps_n * unit_m, column + unit % attrs.warps_n * unit_n
    return (row if unit_warps == 1 else row + warp % unit_warps * 16), column


def place_along(shape: MmaShape, k_major: bool, piece: int, place: Coordinate) -> Coordinate:
    """Return which row (or column) of a warp's rectangle is a place of a piece of 8.

    Pieces follow one another. Of float64, each two share 16 rows, so that a lane reads two adjacent
    elements at once, and 8 lanes that read together meet 8 different chunks of 16 bytes: along k
    their rows are 4 apart, else the chunks are 8 neighbors.
    """
    if shape.a is not dtypes.float64:
        return place + 8 * piece
    spread = place // 2 % 2 * 2 + place % 2 * 4 + place // 4 * 8 if k_major else place * 2
    return spread + (piece // 2 * 16 + piece % 2)
