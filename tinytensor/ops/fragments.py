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
_NAMES = re.compile(r"m(16|64)n(\d+)k(\d+)\.(\w+)(?:\.(\w+))?")
STEP_BYTES = 32  # of the values of k of one instruction
WORDS = {
    **{dtypes.float16: "f16", dtypes.bfloat16: "bf16", dtypes.float32: "tf32"},
    **{dtypes.int8: "s8", dtypes.uint8: "u8"},
    **{dtypes.float8_e4m3fn: "e4m3", dtypes.float8_e5m2: "e5m2"},
}
_DTYPES = {word: dtype for dtype, word in WORDS.items()}


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
    def takes_any_major(self) -> bool:
        """Whether rows of an operand need not run along k."""
        return self.a.bits == 16


def words_of(a: DType, b: DType) -> str:
    """Return what an instruction's name calls its operands: `f16`, or `s8.u8` if they differ."""
    return WORDS[a] if a is b else f"{WORDS[a]}.{WORDS[b]}"


def mma_name(m: int, n: int, a: DType, b: DType) -> str:
    """Return the name of the instruction of that shape and those operands."""
    return f"m{m}n{n}k{STEP_BYTES // a.itemsize}.{words_of(a, b)}"


def mma_shape(instruction: str) -> MmaShape:
    """Return the shape that an instruction's name tells: `m16n8k16.f16`, `m64n128k32.s8.u8`.

    Raises: InternalError for a name of no instruction.
    """
    match = _NAMES.fullmatch(instruction)
    m, n, k = map(int, match.group(1, 2, 3)) if match else (0, 0, 0)
    words = (match[4], match[5] or match[4]) if match else ("", "")
    a, b = (_DTYPES.get(word, dtypes.bool) for word in words)  # no instruction takes bools
    integers = a.is_int and b.is_int
    if m == 16:
        takes_n = n == 8 and (integers or a.is_half)
    else:
        takes_n = 8 <= n <= 256 and n % (16 if integers and n >= 32 else 8) == 0
    floats = a.is_float and b.is_float
    takes_dtypes = integers or (floats and (a is b or a.bits == b.bits == 8))
    if not (takes_n and takes_dtypes and k * a.itemsize == STEP_BYTES):
        raise InternalError(
            f"mma: no instruction has this name: {instruction!r}; known are m16n8k16 and m64nNk16 "
            f"(N a multiple of 8 up to 256) of f16 and bf16, m64nNk8 of tf32, and m16n8k32 and "
            f"m64nNk32 (from 32 on N a multiple of 16) of s8 and u8; m64nNk32 of e4m3 and e5m2."
        )
    return MmaShape(m, n, k, a, b, dtypes.int32 if integers else dtypes.float32)


# m16n8k16, m16n8k32 and ldmatrix, one warp. Elements share a register, `held` of them (two of 16
# bits, four of 8), the lowest first, so element e is part e % held of register e // held.
def a_position(lane: Coordinate, element: int, held: int = 2) -> tuple[Coordinate, Coordinate]:
    """Return (row, k) of one of a lane's elements of A, in its 4 registers.

    Source: PTX ISA, matrix fragments for mma.m16n8k16 with floating point type, for mma.m16n8k32.
    """
    register, part = divmod(element, held)
    return lane // 4 + 8 * (register % 2), lane % 4 * held + (part + 4 * held * (register // 2))


def b_position(lane: Coordinate, element: int, held: int = 2) -> tuple[Coordinate, Coordinate]:
    """Return (k, column) of one of a lane's elements of B, in 2 registers. Source: as above."""
    register, part = divmod(element, held)
    return lane % 4 * held + (part + 4 * held * register), lane // 4


def c_position(lane: Coordinate, register: int) -> tuple[Coordinate, Coordinate]:
    """Return (row, column) of one of a lane's 4 sums of C. Source: as `a_position`."""
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
