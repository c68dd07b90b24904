"""What the schedule hands to codegen: an INDEXED graph, its buffers, its facts, and the reasons."""

from __future__ import annotations

import math

from tinytensor.dtype import DType
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp, by_number, walk
from tinytensor.records import dataclass


@dataclass(frozen=True, slots=True)
class Decision:
    """One choice and why, shown by DEBUG=2. `kind` is a word: fuse, store, contract, decline, plan.

    `subject` names the op or operand the choice is about; `reason` is a sentence with its numbers.
    """

    kind: str
    subject: str
    reason: str


@dataclass(frozen=True, slots=True)
class Winner:
    """The fastest measured candidate of a plan for a kernel, by its name, and what was measured."""

    plan: str
    version: int
    candidate: str
    reason: str


@dataclass(frozen=True, slots=True)
class Contraction:
    """The checked facts of one CONTRACT: its node, its ranges by class, and what surrounds it.

    `batch`, `m`, `n`, `k` are RANGE nodes.
    """

    node: UOp
    batch: tuple[UOp, ...]
    m: tuple[UOp, ...]
    n: tuple[UOp, ...]
    k: tuple[UOp, ...]

    @property
    def prologues(self) -> str:
        """Which factors are more than a bare load: a, b, ab or none."""
        factors = zip("ab", self.node.operands, strict=False)
        return "".join([name for name, factor in factors if factor.op is not Op.LOAD])

    @property
    def extents(self) -> tuple[int, int, int, int]:
        """(batch, m, n, k), each the product of its ranges' extents."""
        return (_count(self.batch), _count(self.m), _count(self.n), _count(self.k))


def _count(ranges: tuple[UOp, ...]) -> int:
    return math.prod(each.extent for each in ranges)


@dataclass(frozen=True, slots=True)
class Param:
    """A kernel's buffer: PARAM number = its position in `Kernel.params`."""

    dtype: DType
    elements: int
    written: bool


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel: a SINK of STOREs sharing the `ranges`, outermost first.

    `sink` is in INDEXED form and canonical: two kernels that do the same to other buffers have the
    identical sink. Every range of the space is in `ranges`, also those of reductions' results;
    ranges a REDUCE or CONTRACT folds over are its operands instead. Written params never overlap
    any other param. `index_dtype` (int32 or int64) is wide enough for every index value. A kernel
    that is `instanced` runs over many sets of buffers in one launch (ops/instances.py).
    """

    name: str
    sink: UOp
    ranges: tuple[UOp, ...]
    params: tuple[Param, ...]
    contraction: Contraction | None
    index_dtype: DType
    decisions: tuple[Decision, ...] = ()
    instanced: bool = False

    @property
    def variables(self) -> tuple[UOp, ...]:
        """The VARIABLE nodes, by number: what each launch is given beside its buffers."""
        return tuple(by_number(walk([self.sink, *self.ranges]), Op.VARIABLE))

    @property
    def scalars(self) -> str:
        """How a launch takes each variable: q as an int64, d as a float64."""
        return "".join(["d" if each.dtype.is_float else "q" for each in self.variables])
