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
_NAMES = re.compile(r"m(\d+)n(\d+)k(\d+)\.(\w+)(?:\.(\w+))?")
STEP_BYTES = 32  # of the values of k of one instruction, but for float64
WORDS = {
    **{dtypes.float16: "f16", dtypes.bfloat16: "bf16", dtypes.float32: "tf32"},
    **{dtypes.int8: "s8", dtypes.uint8: "u8", dtypes.float64: "f64"},
    **{dtypes.float8_e4m3fn: "e4m3", dtypes.float8_e5m2: "e5m2"},
}
_DTYPES = {word: dtype for dtype, word in WORDS.items()}
_OF_BYTES = ("s8", "u8", "s8.u8", "u8.s8")
OF_WARPS = (
    *("m16n8k16.f16", "m16n8k16.bf16"),
    *[f"m16n8k32.{words}" for words in _OF_BYTES],
    *("m16n8k4.f64", "m8n8k4.f64"),
)
_OF_WARPGROUPS = (
    *("k16.f16", "k16.bf16", "k8.tf32"),
    *[f"k32.{words}" for words in (*_OF_BYTES, "e4m3", "e5m2", "e4m3.e5m2", "e5m2.e4m3")],
)


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
        return self.a.bits == 16 or self.a is dtypes.float64

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
    multiple = 16 if a.is_int and n >= 32 else 8
    takes_n = m == 64 and 8 <= n <= 256 and n % multiple == 0
    of_group = takes_n and instruction.partition(f"n{n}")[2] in _OF_WARPGROUPS
    if instruction not in OF_WARPS and not of_group:
        raise InternalError(
            f"mma: no instruction has this name: {instruction!r}; known are {', '.join(OF_WARPS)} "
            f"and m64nN of {', '.join(_OF_WARPGROUPS)} (N a multiple of 8 up to 256, of integers "
            f"from 32 on of 16)."
        )
    sums = dtypes.int32 if a.is_int else a if a is dtypes.float64 else dtypes.float32
    return MmaShape(m, n, k, a, b, sums)


# mma and ldmatrix, one warp. Elements share a register, `held` of them (two of 16 bits, four of 8),
# the lowest first; a float64 takes one of its own (or two, as hardware counts). So element e is
# part e % held of register e // held.
def a_position(lane: Coordinate, element: int, held: int = 2) -> tuple[Coordinate, Coordinate]:
    """Return (row, k) of one of a lane's elements of A. m8n8k4 has but one.

    Source: PTX ISA, matrix fragments for mma.m16n8k16, m16n8k32, m16n8k4 and m8n8k4.
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
