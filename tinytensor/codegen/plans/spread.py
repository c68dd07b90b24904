"""Spreads ranges over the threads of a grid: turns a thread's number into the ranges' values."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

from tinytensor.codegen.block_builder import BlockBuilder
from tinytensor.codegen.builder import Builder
from tinytensor.codegen.pieces_cuda import pieces_of
from tinytensor.codegen.plans.lanes import accesses_of, best_lane_range
from tinytensor.codegen.vectorize import Evaluator, aligned_stride, extent_value, stride_of
from tinytensor.dtype import DType, dtypes
from tinytensor.ops.kernel import Kernel
from tinytensor.ops.op import Op
from tinytensor.ops.simplify_index import simplify_index
from tinytensor.ops.uop import UOp, binary, const, exact_extent, index_const
from tinytensor.records import dataclass
from tinytensor.target import Target

MOST_INT32_NUMBERS = 2**30  # what lies beyond the last number still fits an int32


@dataclass(frozen=True, slots=True)
class Spread:
    """Ranges walked by one number, outermost first; it counts `lanes` values of the last one."""

    ranges: tuple[UOp, ...]
    lanes: int = 1

    @property
    def count(self) -> int:
        """How many numbers there are; the last vector of a lone range may be ragged."""
        if not self.ranges:
            return 1
        *outer, last = [each.extent for each in self.ranges]
        return math.prod(outer) * -(-last // self.lanes)

    @property
    def is_open(self) -> bool:
        """Whether their number is known only at launch; `count` is then the most."""
        return any(each.is_open for each in self.ranges)

    @property
    def exact_count(self) -> UOp:
        """How many numbers there are, as an index expression."""
        extents = [exact_extent(each) for each in self.ranges]
        if extents and self.lanes > 1:
            extents[-1] = extents[-1] // self.lanes
        return simplify_index(functools.reduce(UOp.__mul__, extents, index_const(1)))

    def numbers(self, b: Builder) -> UOp | int:
        """Return how many numbers there are, in the code."""
        return b.value(Evaluator(b, {}).value(self.exact_count)) if self.is_open else self.count

    def blocks_of(self, numbers: int) -> UOp | None:
        """Return how many blocks take all numbers, so many each; None where that is known now."""
        if not self.is_open:
            return None
        return simplify_index((self.exact_count + (numbers - 1)) // numbers)

    @property
    def lane_range(self) -> UOp | None:
        """The range along which there are lanes."""
        return self.ranges[-1] if self.lanes > 1 else None

    def places(self, b: Builder, number: UOp) -> dict[UOp, UOp]:
        """Return each range's value (the last one's at lane 0) of a number below `count`."""
        places: dict[UOp, UOp] = {}
        lanes = self.lanes
        for at in reversed(range(len(self.ranges))):
            each = self.ranges[at]
            extent = extent_value(b, each) if each.is_open else -(-each.extent // lanes)
            if lanes > 1 and isinstance(extent, UOp):
                extent = quotient(extent, lanes)
            value = number
            if at > 0:
                value = remainder(number, extent)
                number = quotient(number, extent)
            places[each] = scaled(value, lanes)
            lanes = 1
        return places


def scaled(number: UOp, factor: int) -> UOp:
    """Return number * factor."""
    return number if factor == 1 else number * factor


def quotient(number: UOp, divisor: UOp | int) -> UOp:
    """Return number // divisor of a number that is not negative."""
    is_one = isinstance(divisor, int) and divisor == 1
    return number if is_one else binary(Op.TRUNCDIV, number, divisor)


def remainder(number: UOp, divisor: UOp | int) -> UOp:
    """Return number % divisor of a number that is not negative."""
    is_one = isinstance(divisor, int) and divisor == 1
    return const(number.dtype, 0) if is_one else binary(Op.TRUNCMOD, number, divisor)


def innermost(ranges: Sequence[UOp], last: UOp) -> tuple[UOp, ...]:
    """Return the ranges with one of them moved to the end."""
    return (*[each for each in ranges if each is not last], last)


def choose_last(accesses: Sequence[UOp], ranges: Sequence[UOp]) -> UOp:
    """Return the range along which neighboring threads are best: of equals the innermost."""
    candidates = [each for each in ranges if each.extent > 1]
    return best_lane_range(accesses, candidates) if candidates else ranges[-1]


def most_lanes(roots: Sequence[UOp], range_: UOp, target: Target) -> int:
    """Return how many values of a range make the widest access one whole vector."""
    accesses = accesses_of(roots)
    moving = [each for each in accesses if stride_of(each.operands[1], range_) != 0]
    sizes = [each.operands[0].dtype.itemsize for each in moving]
    return target.lanes(max(sizes, default=target.vector_bytes))


def takes_lanes(roots: Sequence[UOp], range_: UOp, lanes: int) -> bool:
    """Whether vectors along a range serve: something is adjacent, and all that is is aligned."""
    adjacent = [each for each in accesses_of(roots) if is_adjacent(each, range_)]
    aligned = [each for each in adjacent if aligned_stride(each, range_, lanes)]
    return bool(adjacent) and len(aligned) == len(adjacent)


def moves_vectors(roots: Sequence[UOp], range_: UOp, lanes: int) -> bool:
    """Whether all that is read along a range lies in few vectors, and what is written in one."""
    for each in accesses_of(roots):
        is_vector = aligned_stride(each, range_, lanes) is not None
        if each.op is Op.LOAD and not is_vector and pieces_of(each, range_, lanes) is None:
            return False
        if each.op is Op.STORE and not is_vector and is_adjacent(each, range_):
            return False
    return True


def is_adjacent(access: UOp, range_: UOp) -> bool:
    """Whether an access takes the next or the last element at the next value of a range."""
    return stride_of(access.operands[1], range_) in (1, -1)


def index_dtype_for(kernel: Kernel, numbers: int) -> DType:
    """Return the dtype that holds the kernel's indices and that many thread numbers."""
    return kernel.index_dtype if numbers <= MOST_INT32_NUMBERS else dtypes.int64


def empty_launch(kernel: Kernel) -> BlockBuilder:
    """Return the builder of a launch that does nothing: one block, for kernels without elements."""
    return BlockBuilder(kernel.name, kernel.params, kernel.index_dtype, (1, 1, 1), 32)


def power_above(number: int) -> int:
    """Return the least power of two that is not below a number, at least 1.

    >>> power_above(5), power_above(8), power_above(0)
    (8, 8, 1)
    """
    return 1 << max(0, number - 1).bit_length()
