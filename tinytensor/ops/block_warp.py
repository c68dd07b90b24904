"""Holds the state of a running grid: launch, block and warp, and how a warp touches memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tinytensor.errors import InternalError
from tinytensor.ops.block_memory import (
    BULK_STORES,
    COPIES,
    POISON_BYTE,
    PRODUCTS,
    WARP,
    Access,
    Agents,
    Conflict,
    Memory,
)
from tinytensor.ops.block_sync import FENCED, SEEN, Barrier, Groups, Mbarrier, Wait
from tinytensor.ops.fragments import WARP_THREADS
from tinytensor.ops.interpret import Array
from tinytensor.ops.linear import Grid, Linear
from tinytensor.ops.op import Op
from tinytensor.ops.text import numbers_at
from tinytensor.ops.uop import Number, UOp
from tinytensor.records import dataclass

CLOSERS = (Op.ENDLOOP, Op.ENDIF, Op.ENDROLE)
OPENERS = (Op.LOOP, Op.IF, Op.ROLE)
LANES = np.arange(WARP_THREADS)


class Launch:
    """What all blocks of a grid share: the statements, and global memory."""

    def __init__(
        self,
        linear: Linear,
        grid: Grid,
        params: Sequence[Memory],
        workspace: Memory,
        scalars: Sequence[Number] = (),
    ) -> None:
        self.name = linear.name
        self.grid = grid
        self.statements = linear.statements
        self.params = params
        self.workspace = workspace
        self.scalars = scalars
        numbered = list(enumerate(linear.statements))
        self.opened = {node: i for i, node in numbered if node.op in OPENERS}
        self.halved = {node.operands[0]: i for i, node in numbered if node.op is Op.ELSE}
        self.closed = {node.operands[0]: i for i, node in numbered if node.op in CLOSERS}
        self.agents = agents_of(linear, grid)
        self.first_mbarrier: dict[UOp, int] = {}  # the number of the first of each MBARRIERS
        count = 0
        for node in _mbarriers_of(linear):
            self.first_mbarrier[node] = count
            count += node.attrs.count

    def shape_of(self, tensor_map: UOp) -> tuple[int, ...]:
        """Return the shape that a tensor map has in this launch."""
        attrs = tensor_map.attrs
        return numbers_at(attrs.extents, tuple(self.scalars)) or attrs.shape


def agents_of(linear: Linear, grid: Grid) -> Agents:
    """Return who may touch memory in a block."""
    counts = [node.attrs.count for node in _mbarriers_of(linear)]
    return Agents(grid.threads // WARP_THREADS, sum(counts))


def _mbarriers_of(linear: Linear) -> list[UOp]:
    return [node for node in dict.fromkeys(linear.statements) if node.op is Op.MBARRIERS]


class Block:
    """One block: its shared memory, its barriers, and bulk loads that have yet to land."""

    def __init__(self, launch: Launch, place: tuple[int, int, int]) -> None:
        self.launch = launch
        self.place = place
        across, down, _ = launch.grid.blocks
        self.number = place[0] + across * (place[1] + down * place[2])
        self.agents = launch.agents
        contents = np.full(launch.grid.shared_bytes, POISON_BYTE, np.uint8)
        self.shared = Memory(contents, self.agents, is_poison=True)
        self.barriers: dict[int, Barrier] = {}
        self.mbarriers: dict[tuple[UOp, int], Mbarrier] = {}
        self.landing: list[Callable[[], None]] = []
        self.agreed: dict[tuple[UOp, int], list[int]] = {}
        self.warps = [Warp(self, number) for number in range(self.agents.warps)]

    def barrier(self, number: int) -> Barrier:
        """Return the barrier of that number."""
        if number not in self.barriers:
            self.barriers[number] = Barrier(self.agents.count)
        return self.barriers[number]


@dataclass(slots=True)
class Register:
    """A register variable of one warp: which lanes wrote it, and whether products use it."""

    values: Array
    written: Array
    product: int = 0  # the time of the newest product that adds to it
    fenced: bool = False  # since it was last used otherwise


class Warp:
    """One warp: position, values of statements (a row for each lane), registers, and its clock."""

    def __init__(self, block: Block, number: int) -> None:
        self.block = block
        self.number = number
        self.position = 0
        self.mask = np.ones(WARP_THREADS, np.bool_)
        self.masks: list[Array] = []
        self.role: UOp | None = None
        self.wait: Wait | None = None
        self.values: dict[UOp, Array] = {}
        self.registers: dict[UOp, Register] = {}
        self.visits: dict[UOp, int] = {}
        agents = block.agents
        kinds = (COPIES, PRODUCTS, BULK_STORES)
        self.groups = {kind: Groups(agents.number(kind, number)) for kind in kinds}
        self.clock = np.zeros((2, agents.count), np.int64)
        self.clock[SEEN, number] = 1

    # Errors.
    def refuse(self, node: UOp, sentence: str, lane: int | None = None) -> InternalError:
        """Return the error that names the statement, and the thread if it is about one."""
        thread = "" if lane is None else f", thread {self.number * WARP_THREADS + lane}"
        launch = self.block.launch
        where = f"block {self.block.place}, warp {self.number}{thread}: {self.show(node)}"
        return InternalError(f"run blocks: {launch.name}: {sentence}: {where}.")

    def show(self, node: UOp) -> str:
        """Return what an error calls the statement being run."""
        return f"statement {self.position}, {node.op.name} {node.dtype.name} {node.attrs}"

    def require_whole(self, node: UOp) -> None:
        """Refuse a warp of which some lanes are elsewhere."""
        if not self.mask.all():
            raise self.refuse(node, "all lanes of a warp come here together, and some do not")

    def single_lane(self, node: UOp) -> int:
        """Return the one lane that is here; refuse more."""
        if self.mask.sum() != 1:
            raise self.refuse(node, f"one thread comes here, and {self.mask.sum()} do")
        return int(np.argmax(self.mask))

    def same(self, node: UOp, values: Array) -> int:
        """Return the value that all lanes here agree on."""
        here = values[self.mask]
        if (here != here[0]).any():
            raise self.refuse(node, f"lanes disagree: {here.tolist()}")
        return int(here[0])

    def agree(self, node: UOp, *operands: Array) -> list[int]:
        """Return the values that all warps which come here agree on, visit by visit."""
        self.require_whole(node)
        values = [self.same(node, each) for each in operands]
        visit = self.visits.get(node, 0)
        self.visits[node] = visit + 1
        agreed = self.block.agreed.setdefault((node, visit), values)
        if agreed != values:
            raise self.refuse(node, f"warps disagree: {values} and {agreed}")
        return values

    # Order.
    @property
    def role_warps(self) -> tuple[int, int]:
        """The first warp of the running role, and how many it has."""
        if self.role is None:
            return 0, self.block.agents.warps
        return self.role.attrs.first_warp, self.role.attrs.warps

    def access(self) -> Access:
        """Return who touches memory now: the warp itself."""
        time = int(self.clock[SEEN, self.number])
        seen = self.clock[SEEN]
        return Access(self.number, time, seen, seen, self.block.number)

    def start(self, kind: int, row: int) -> Access:
        """Return a new piece of asynchronous work; `row` of the clock tells what it sees."""
        groups = self.groups[kind]
        clock = self.clock.copy()
        return Access(groups.agent, groups.start(), clock[row], clock[SEEN], self.block.number)

    def release(self) -> Array:
        """Return what this warp has seen and done, and begin a later time."""
        clock = self.clock.copy()
        self.clock[SEEN, self.number] += 1
        return clock

    def acquire(self, clock: Array) -> None:
        """See what was released."""
        self.clock = np.maximum(self.clock, clock)

    def retire(self, kind: int, pending: int) -> None:
        """Finish all but the newest groups of asynchronous work.

        Copies write as threads do, so the asynchronous proxy sees them only after a fence.
        """
        groups = self.groups[kind]
        rows = slice(SEEN, SEEN + 1) if kind == COPIES else slice(SEEN, FENCED + 1)
        self.clock[rows, groups.agent] = groups.retire(pending)

    def fence(self) -> None:
        """Let the asynchronous proxy see what this warp and its finished copies wrote."""
        for agent in (self.block.agents.number(WARP, self.number), self.groups[COPIES].agent):
            self.clock[FENCED, agent] = self.clock[SEEN, agent]
        self.clock[SEEN, self.number] += 1

    # Memory.
    def memory(self, buffer: UOp) -> tuple[Memory, int, int]:
        """Return a buffer's memory, its first byte there, and its number of elements."""
        attrs, launch = buffer.attrs, self.block.launch
        if buffer.op is Op.PARAM:
            return launch.params[attrs.number], 0, attrs.elements
        if buffer.op is Op.TENSOR_MAP:
            return self.memory(buffer.operands[0])
        if buffer.op is Op.TILE:
            count = attrs.rows * attrs.columns * attrs.stages
            return self.block.shared, attrs.offset_bytes, count
        memory = launch.workspace if buffer.op is Op.WORKSPACE else self.block.shared
        return memory, attrs.offset_bytes, attrs.elements

    def locate(self, node: UOp, buffer: UOp, index: Array, elements: int, lanes: Array) -> Spot:
        """Return where adjacent elements from each index lie; refuse what is outside the buffer.

        `lanes` names the lane of each index, for errors.
        """
        memory, offset, count = self.memory(buffer)
        outside = (index < 0) | (index + elements > count)
        if outside.any():
            row = int(np.argmax(outside))
            first = int(index[row])
            sentence = f"elements {first} to {first + elements - 1} are not within {count}"
            raise self.refuse(node, sentence, int(lanes[row]))
        itemsize = buffer.dtype.itemsize
        begin = offset + index.astype(np.int64) * itemsize
        addresses = begin[:, None] + np.arange(elements * itemsize)
        return Spot(self, node, memory, addresses, lanes)


@dataclass(frozen=True, slots=True)
class Spot:
    """Bytes that a statement touches: (rows, bytes of a row), and the lane of each row."""

    warp: Warp
    node: UOp
    memory: Memory
    addresses: Array
    lanes: Array

    def require_aligned(self, nbytes: int) -> None:
        """Refuse an access that does not lie on a multiple of its own size."""
        crooked = self.addresses[:, 0] % nbytes != 0
        if crooked.any():
            row = int(np.argmax(crooked))
            sentence = f"byte {self.addresses[row, 0]} is not aligned to {nbytes}"
            raise self.warp.refuse(self.node, sentence, int(self.lanes[row]))

    def read(self, access: Access) -> Array:
        """Return the bytes, if they may be read."""
        self._check(self.memory.read(self.addresses, access))
        contents: Array = self.memory.contents[self.addresses]
        return contents

    def write(self, values: Array, access: Access) -> None:
        """Write the bytes, if they may be written."""
        self._check(self.memory.write(self.addresses, values, access))

    def _check(self, conflict: Conflict | None) -> None:
        if conflict is not None:
            lane = int(self.lanes[conflict.row])
            raise self.warp.refuse(self.node, conflict.sentence, lane)
