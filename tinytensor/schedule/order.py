"""Orders kernels so that each runs after those whose results it reads, and says what dies when."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from tinytensor.ops.uop import UOp
from tinytensor.schedule.kernels import KernelCall


@dataclass(frozen=True, slots=True)
class Step:
    """One kernel of a schedule; `releases` are the intermediates nobody reads after it."""

    call: KernelCall
    releases: tuple[UOp, ...]


def order_kernels(calls: Sequence[KernelCall], shuffle: random.Random | None) -> list[KernelCall]:
    """Return the calls in an order that respects who reads what.

    Ready kernels run in the order they come in, or in a random one (TT_STRESS=1): a result never
    depends on it, because no kernel writes what another one has yet to read.
    """
    writer = {node: call for call in calls for node in written_by(call)}
    waits = {id(call): _writers_before(call, writer) for call in calls}
    readers: dict[int, list[KernelCall]] = {}
    for call in calls:
        for before in waits[id(call)].values():
            readers.setdefault(id(before), []).append(call)
    ready = [call for call in calls if not waits[id(call)]]
    done: list[KernelCall] = []
    while ready:
        call = ready.pop(shuffle.randrange(len(ready)) if shuffle else 0)
        done.append(call)
        for reader in readers.get(id(call), ()):
            del waits[id(reader)][id(call)]
            if not waits[id(reader)]:
                ready.append(reader)
    assert len(done) == len(calls), "order: kernels wait for one another in a circle"
    return done


def with_lifetimes(calls: Sequence[KernelCall], kept: frozenset[UOp]) -> list[Step]:
    """Attach to each kernel the intermediates that die with it; `kept` nodes never do.

    Their memory goes back to the allocator at once, so a later kernel's output of that size takes
    it over.
    """
    made = {node for call in calls for node in written_by(call)} - kept
    steps: list[Step] = []
    for call in reversed(calls):
        dying = tuple([node for node in dict.fromkeys(call.nodes) if node in made])
        made.difference_update(dying)
        steps.append(Step(call, dying))
    return steps[::-1]


def written_by(call: KernelCall) -> list[UOp]:
    """Return the nodes a kernel stores."""
    pairs = zip(call.nodes, call.kernel.params, strict=True)
    return [node for node, param in pairs if param.written]


def _writers_before(call: KernelCall, writer: dict[UOp, KernelCall]) -> dict[int, KernelCall]:
    found = [writer[node] for node in call.nodes if node in writer]
    return {id(each): each for each in found if each is not call}
