"""Chooses the range whose values a plan takes as vectors, and how many of them at a time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tinytensor.codegen.vectorize import guard_of, stride_of, widest_itemsize
from tinytensor.ops.kernel import Kernel
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp, walk
from tinytensor.records import dataclass
from tinytensor.target import Target

LONG_VECTOR = 16  # lanes beyond which an adjacent access gets no cheaper


@dataclass(frozen=True, slots=True)
class Lanes:
    """How a range is walked: `count` adjacent values as one vector, `vectors` of them in a step."""

    count: int = 1
    vectors: int = 1

    @property
    def width(self) -> int:
        """The values that one step takes."""
        return self.count * self.vectors


SCALAR = Lanes()


def accesses_of(roots: Iterable[UOp], stop: Iterable[UOp] = ()) -> list[UOp]:
    """Return the LOADs and STOREs below the roots that are not below nodes in `stop`."""
    return [each for each in walk(roots, set(stop)) if each.op in (Op.LOAD, Op.STORE)]


def values_of(stores: Iterable[UOp]) -> list[UOp]:
    """Return the stored values and the guards of STOREs."""
    values: list[UOp] = []
    for store in stores:
        values.extend(store.operands[2:])
    return values


def vector_cost(accesses: Iterable[UOp], range_: UOp) -> float:
    """Estimate the memory accesses per element when a range's values are taken as vectors.

    An adjacent access is shared by its lanes; any other stride, or a guard that changes along the
    range, takes one access for each lane.
    """
    cost = 0.0
    for access in accesses:
        stride = stride_of(access.operands[1], range_)
        guard = guard_of(access)
        guarded = guard is not None and stride_of(guard, range_) != 0
        weight = 2.0 if access.op is Op.STORE else 1.0
        if stride in (1, -1) and not guarded:
            cost += weight / min(range_.extent, LONG_VECTOR)
        elif stride != 0 or guarded:
            cost += weight
    return cost


def best_lane_range(accesses: Sequence[UOp], candidates: Sequence[UOp]) -> UOp:
    """Return the candidate with the least cost; of equals the innermost."""
    return min(reversed(candidates), key=lambda each: vector_cost(accesses, each))


def lanes_along(
    range_: UOp, values: Sequence[UOp], kernel: Kernel, target: Target, vectors: int = 1
) -> Lanes:
    """Return as many lanes as the widest of the values leaves in a register, and no spare ones."""
    most = target.lanes(widest_itemsize([*values], kernel.index_dtype))
    fitting = 1 << max(0, range_.extent - 1).bit_length()
    count = min(most, fitting)
    return Lanes(count, max(1, min(vectors, -(-range_.extent // count))))
