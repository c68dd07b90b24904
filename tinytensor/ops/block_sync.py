"""Keeps the barriers and groups at which the warps of a block wait for copies and one another.

A clock is an array (2, agents). Row SEEN holds, for each agent, the time up to which its accesses
come before what follows; row FENCED is the same for what follows in the asynchronous proxy (bulk
copies, WGMMA), which sees ordinary writes only after a proxy fence.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import field

import numpy as np

from tinytensor.ops.interpret import Array
from tinytensor.ops.uop import UOp
from tinytensor.records import dataclass

SEEN, FENCED = 0, 1


@dataclass(frozen=True, slots=True)
class Wait:
    """Where a warp stands still: until `is_over`, then `finish` runs."""

    node: UOp
    is_over: Callable[[], bool]
    finish: Callable[[], None]


class Barrier:
    """A barrier of a number of threads: the last to come frees all, with what all have seen."""

    def __init__(self, agents: int) -> None:
        self.threads = 0
        self.arrived = 0
        self.gathered = np.zeros((2, agents), np.int64)
        self.released: list[Array] = []  # by generation

    def arrive(self, threads: int, arrived: int, clock: Array) -> bool:
        """Count threads; False when others here await another number, or too many come."""
        if self.arrived and threads != self.threads:
            return False
        self.threads = threads
        self.arrived += arrived
        self.gathered = np.maximum(self.gathered, clock)
        if self.arrived == threads:
            self.released.append(self.gathered)
            self.arrived = 0
        return self.arrived < threads

    @property
    def generation(self) -> int:
        """How often all have come."""
        return len(self.released)


class Mbarrier:
    """A transaction barrier: a phase is over when arrivals and bytes are complete."""

    def __init__(self, arrivals: int, agent: int, maker: int, made_at: int, clock: Array) -> None:
        self.arrivals = arrivals
        self.agent = agent
        self.time = 0  # of the newest bulk load that counts here
        self.maker = maker  # the warp that initialized it, and when
        self.made_at = made_at
        self.phase = 0
        self.pending = arrivals
        self.nbytes = 0
        self.gathered = np.zeros_like(clock)
        self.released = np.zeros_like(clock)

    def arrive(self, count: int, clock: Array) -> bool:
        """Count arrivals; False when there are too many."""
        self.pending -= count
        self.gathered = np.maximum(self.gathered, clock)
        return self._turn()

    def complete(self, nbytes: int, time: int) -> None:
        """Count the bytes of a bulk load that has landed."""
        self.nbytes -= nbytes
        self.gathered[:, self.agent] = np.maximum(self.gathered[:, self.agent], time)
        self._turn()

    def is_over(self, parity: int) -> bool:
        """Whether the newest phase of that parity is over."""
        return self.phase % 2 != parity

    def _turn(self) -> bool:
        is_legal = self.pending >= 0
        if self.pending == 0 and self.nbytes == 0:
            self.phase += 1
            self.pending = self.arrivals
            self.released = np.maximum(self.released, self.gathered)
            self.gathered = np.zeros_like(self.released)
        return is_legal


@dataclass(slots=True)
class Groups:
    """The asynchronous work of one agent: its newest time, and the times of committed groups."""

    agent: int
    time: int = 0
    finished: int = 0
    committed: deque[int] = field(default_factory=deque)

    def start(self) -> int:
        """Return the time of one more piece of work."""
        self.time += 1
        return self.time

    def commit(self) -> None:
        """Close a group."""
        self.committed.append(self.time)

    def retire(self, pending: int) -> int:
        """Finish all but the newest groups; return the time up to which work is finished."""
        while len(self.committed) > pending:
            self.finished = self.committed.popleft()
        return self.finished
