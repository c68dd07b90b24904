"""Keeps the bytes of a memory with who wrote and read them last, and finds accesses out of order.

An agent is whoever touches memory: a warp, the copies a warp started, a bulk copy. Each has a time
that only grows. An access is in order when its agent has seen the times of the accesses before it
(a vector clock: what was seen passes on at barriers).
"""

from __future__ import annotations

import numpy as np

from tinytensor.ops.interpret import Array
from tinytensor.records import dataclass

NOBODY = -1
SEVERAL = -2
POISON_BYTE = 0xA5
TF32_BITS = np.uint32(0xFFFFE000)  # of a float32: what TF32 keeps
KINDS = ("", "an unfinished copy of ", "an unfinished product of ", "an unfinished bulk store of ")
WARP, COPIES, PRODUCTS, BULK_STORES = range(len(KINDS))


@dataclass(frozen=True, slots=True)
class Agents:
    """The numbers of a block's agents: four for each warp, then one for each mbarrier."""

    warps: int
    mbarriers: int

    @property
    def count(self) -> int:
        """How many there are."""
        return len(KINDS) * self.warps + self.mbarriers

    def number(self, kind: int, warp: int) -> int:
        """Return the agent of a warp and a kind."""
        return kind * self.warps + warp

    def bulk_load(self, mbarrier: int) -> int:
        """Return the agent of the bulk loads that count at an mbarrier."""
        return len(KINDS) * self.warps + mbarrier

    def name(self, agent: int) -> str:
        """Return what an error calls an agent."""
        kind, warp = divmod(agent, self.warps)
        if kind >= len(KINDS):
            return f"an unfinished bulk load at mbarrier {agent - len(KINDS) * self.warps}"
        return f"{KINDS[kind]}warp {warp}"


@dataclass(frozen=True, slots=True)
class Access:
    """Who touches memory, when, and up to which time it has seen each agent's writes and reads."""

    agent: int
    time: int
    writes_seen: Array
    reads_seen: Array
    block: int


@dataclass(frozen=True, slots=True)
class Conflict:
    """Why an access is refused, and which row of its addresses it is about."""

    row: int
    sentence: str


class Memory:
    """Bytes, and who touched them. Addresses are arrays (rows, bytes of a row) of byte numbers."""

    def __init__(
        self, contents: Array, agents: Agents, is_poison: bool, is_constant: bool = False
    ) -> None:
        self.contents = contents
        self.agents = agents
        self.is_constant = is_constant
        self.written = np.full(contents.size, not is_poison)
        self.begin_launch()

    def begin_launch(self) -> None:
        """Forget who touched what; what was written stays written."""
        count = self.contents.size
        self.writer = np.full(count, NOBODY)
        self.written_at = np.zeros(count, np.int64)
        self.writing_block = np.full(count, NOBODY)
        self.reading_block = np.full(count, NOBODY)
        self.read_at: Array | None = None  # (bytes, agents), made by the first read

    def read(self, addresses: Array, access: Access) -> Conflict | None:
        """Note a read; `contents[addresses]` is what it gives if there is no conflict."""
        if self.is_constant:
            return None
        foreign = self._is_foreign(self.writing_block[addresses], access.block)
        conflict = (
            _first(~self.written[addresses], "reads poison, which nobody has written")
            or _first(foreign, "reads what another block wrote in this launch")
            or self._unseen_write(addresses, access, "reads")
        )
        if conflict is not None:
            return conflict
        if self.read_at is None:
            self.read_at = np.zeros((self.contents.size, self.agents.count), np.int32)
        self.read_at[addresses, access.agent] = access.time
        readers = self.reading_block[addresses]
        known = (readers == NOBODY) | (readers == access.block)
        self.reading_block[addresses] = np.where(known, access.block, SEVERAL)
        return None

    def write(self, addresses: Array, values: Array, access: Access) -> Conflict | None:
        """Note a write and do it."""
        writers, readers = self.writing_block[addresses], self.reading_block[addresses]
        conflict = (
            _first(self._is_foreign(writers, access.block), "writes what another block wrote")
            or _first(self._is_foreign(readers, access.block), "writes what another block read")
            or self._unseen_write(addresses, access, "writes")
            or self._unseen_read(addresses, access)
        )
        if conflict is not None:
            return conflict
        self.contents[addresses] = values
        self.written[addresses] = True
        self.writer[addresses] = access.agent
        self.written_at[addresses] = access.time
        self.writing_block[addresses] = access.block
        lost = np.asarray(self.contents[addresses] != values)
        return _first(lost, "lanes write different values to a place")

    def _is_foreign(self, blocks: Array, block: int) -> Array:
        foreign: Array = (blocks != NOBODY) & (blocks != block)
        return foreign

    def _unseen_write(self, addresses: Array, access: Access, verb: str) -> Conflict | None:
        writers = self.writer[addresses]
        unseen = (writers != NOBODY) & (self.written_at[addresses] > access.writes_seen[writers])
        if not unseen.any():
            return None
        name = self.agents.name(int(writers[unseen][0]))
        ordered = self.written_at[addresses] <= access.reads_seen[writers]
        missing = "a proxy fence" if np.all(ordered | ~unseen) else "an order"
        return _first(unseen, f"{verb} what {name} writes without {missing} between them (a race)")

    def _unseen_read(self, addresses: Array, access: Access) -> Conflict | None:
        if self.read_at is None:
            return None
        unseen = self.read_at[addresses] > access.reads_seen
        if not unseen.any():
            return None
        name = self.agents.name(int(np.argwhere(unseen)[0][-1]))
        sentence = f"writes what {name} reads without an order between them (a race)"
        return _first(np.any(unseen, axis=-1), sentence)


def _first(wrong: Array | np.bool_, sentence: str) -> Conflict | None:
    """Return the conflict of the first row with something wrong."""
    if not wrong.any():
        return None
    return Conflict(int(np.argwhere(wrong)[0][0]), sentence)
