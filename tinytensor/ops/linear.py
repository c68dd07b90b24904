"""The LINEAR form of a kernel: one ordered list of statements."""

from __future__ import annotations

from collections.abc import Sequence

from tinytensor.dtype import dtypes
from tinytensor.ops.extents import index_with
from tinytensor.ops.kernel import Param
from tinytensor.ops.op import ELEMENTWISE, MACHINE, Op
from tinytensor.ops.uop import UOp
from tinytensor.records import dataclass

# Values that depend on their operands alone; a load of what nobody has written is one too.
PURE = ELEMENTWISE | {
    *(Op.CONST, Op.VARIABLE, Op.PARAM, Op.EXTENT, Op.WORKSPACE, *MACHINE),
    *(Op.SPLAT, Op.STACK, Op.LANE, Op.SHUFFLE, Op.CALL, Op.MMA),
    *(Op.PLACE, Op.SHARED, Op.TILE, Op.MBARRIERS, Op.TENSOR_MAP),
}
UNORDERED = -1  # the order of a load of elements that the kernel has not written before it


@dataclass(frozen=True, slots=True)
class Grid:
    """The blocks and threads that run a LINEAR form on a GPU.

    A multiprocessor must have registers for `resident` blocks at a time; 0 leaves that to the
    compiler. Where `across` is given, an index expression over variables, that many blocks along x
    run, and `blocks` is the most. Units: `shared_bytes` of one block.
    """

    blocks: tuple[int, int, int]
    threads: int
    shared_bytes: int = 0
    resident: int = 0
    across: UOp | None = None

    def blocks_at(self, scalars: Sequence[float]) -> tuple[int, int, int]:
        """Return the blocks of a launch with some scalars; one at least runs."""
        if self.across is None:
            return self.blocks
        return max(1, index_with(self.across, scalars)), *self.blocks[1:]


@dataclass(frozen=True, slots=True)
class Linear:
    """One kernel as a list in execution order.

    Every node appears before its users, in their block (LOOP..ENDLOOP, IF..ELSE..ENDIF) or one
    around it. A pure value may appear again in a block where its first appearance is not visible.
    `workspace_bytes` is the scratch memory one launch needs. `grid` is None for one thread.
    `scalars` says how the launch takes each VARIABLE, by number: q as an int64, d as a float64.
    """

    name: str
    params: tuple[Param, ...]
    statements: tuple[UOp, ...]
    workspace_bytes: int
    grid: Grid | None = None
    scalars: str = ""

    @property
    def is_instanced(self) -> bool:
        """Whether it runs once for each instance of a launch, up to the extent of each."""
        return any(node.op is Op.EXTENT for node in self.statements)


def is_pure(node: UOp) -> bool:
    """Whether a node is a value without an effect, so that it may be computed anywhere."""
    if node.op is Op.LOAD:
        return bool(node.attrs.order == UNORDERED)
    return node.op in PURE and node.dtype is not dtypes.void
