"""Turns a thread and a register of a matrix instruction into the row and column held there.

Coordinates are written with operators alone and start from the lane or thread, so these functions
take ints, NumPy arrays and nodes alike. `lane` is a thread's number within its warp, `thread` its
number within the threads that multiply.
"""

from __future__ import annotations

import re
from typing import Any

from tinytensor.dtype import DType, dtypes
from tinytensor.errors import InternalError
from tinytensor.ops.attrs_blocks import TileMmaAttrs
from tinytensor.records import dataclass

WARP_THREADS = 32
GROUP_WARPS = 4  # a warpgroup; its warps hold 16 rows each of 64
Coordinate = Any  # an int, an array of ints or an integer node: whatever the lane is
_NAMES = re.compile(r"m(16|64)n(\d+)k(?:16\.(f16|bf16)|8\.(tf32))")
_DTYPES = {"f16": dtypes.float16, "bf16": dtypes.bfloat16, "tf32": dtypes.float32}


@dataclass(frozen=True, slots=True)
class MmaShape:
    """The extents of a matrix instruction, and the dtype of its operands."""

    m: int
    n: int
    k: int
    dtype: DType


def mma_shape(instruction: str) -> MmaShape:
    """Return the shape that an instruction's name tells: `m16n8k16.f16`, `m64n128k8.tf32`.

    Raises: InternalError for a name of no instruction.
    """
    match = _NAMES.fullmatch(instruction)
    m, n = (int(match[1]), int(match[2])) if match else (0, 0)
    word = (match[3] or match[4]) if match else ""
    is_tf32 = word == "tf32"
    legal = n == 8 and not is_tf32 if m == 16 else 8 <= n <= 256 and n % 8 == 0
    if not legal:
        raise InternalError(
            f"mma: no instruction has this name: {instruction!r}; known are m16n8k16 and m64nNk16 "
            f"(N a multiple of 8 up to 256) of f16 and bf16, and m64nNk8 of tf32."
        )
    return MmaShape(m, n, 8 if is_tf32 else 16, _DTYPES[word])


# m16n8k16 and ldmatrix, one warp. Two 16-bit elements share a register, the lower one first, so
# element e is half e % 2 of register e // 2.
def a_position(lane: Coordinate, element: int) -> tuple[Coordinate, Coordinate]:
    """Return (row, k) of one of a lane's 8 elements of A (16 x 16).

    Source: PTX ISA, matrix fragments for mma.m16n8k16 with floating point type.
    """
    row = lane // 4 + 8 * (element // 2 % 2)
    return row, lane % 4 * 2 + (element % 2 + 8 * (element // 4))


def b_position(lane: Coordinate, element: int) -> tuple[Coordinate, Coordinate]:
    """Return (k, column) of one of a lane's 4 elements of B (16 x 8). Source: as `a_position`."""
    return lane % 4 * 2 + (element % 2 + 8 * (element // 2)), lane // 4


def c_position(lane: Coordinate, register: int) -> tuple[Coordinate, Coordinate]:
    """Return (row, column) of one of a lane's 4 float32 of C. Source: as `a_position`."""
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
    """Return how many float32 of a block_m x block_n accumulator each thread holds."""
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
    unit_warps = shape.m // 16
    units_m = attrs.warps_m // unit_warps
    unit_m, unit_n = block_m // units_m, block_n // attrs.warps_n
    per_shape = shape.m * shape.n // (WARP_THREADS * unit_warps)
    number, within = divmod(register, per_shape)
    shape_row, shape_column = divmod(number, unit_n // shape.n)
    row, column = c_position(thread % WARP_THREADS, within % 4)
    warp = thread // WARP_THREADS
    unit = warp // unit_warps
    row = row + unit // attrs.warps_n * unit_m + shape_row * shape.m
    column = column + unit % attrs.warps_n * unit_n + (shape_column * shape.n + within // 4 * 8)
    return (row if unit_warps == 1 else row + warp % unit_warps * 16), column
