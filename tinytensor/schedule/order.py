"""Orders kernels: each after those whose results it reads, and so that little lies in memory."""

from __future__ import annotations

import heapq
import random
from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from tinytensor.ops.uop import UOp, nbytes_of
from tinytensor.schedule.kernels import KernelCall
from tinytensor.timing import timed


@timed("schedule: order")
def order_kernels(
    calls: Sequence[KernelCall], roots: AbstractSet[UOp], shuffle: random.Random | None
) -> list[KernelCall]:
    """Return the calls in an order that respects who reads what; `roots` stay to the end.

    Of the kernels that are ready, one that frees at least the bytes it makes runs at once. When
    there is none, the one farthest from the end runs: so what only the end needs is made late, also
    what is computed a second time to spare memory. A result never depends on the order, which is
    random under TT_STRESS=1: no kernel writes what another one has yet to read.
    """
    writer = {node: number for number, call in enumerate(calls) for node in written_by(call)}
    reads = [
        [node for node in call.nodes if writer.get(node, number) != number]
        for number, call in enumerate(calls)
    ]
    made = [sum(map(nbytes_of, written_by(call))) for call in calls]
    waits = [{writer[node] for node in nodes} for nodes in reads]
    unread: dict[UOp, set[int]] = {node: set() for node in writer}
    followers: list[list[int]] = [[] for _ in calls]
    for number, nodes in enumerate(reads):
        for node in nodes:
            unread[node].add(number)
        for before in waits[number]:
            followers[before].append(number)
    heights = _ways_to_the_end(waits, followers)

    def rank(number: int) -> tuple[float, int, int]:
        if shuffle:
            return (shuffle.random(), 0, 0)
        freed = [node for node in reads[number] if len(unread[node]) == 1 and node not in roots]
        is_costly = made[number] > sum(map(nbytes_of, freed))
        return (is_costly, -heights[number] if is_costly else made[number], number)

    queue = [(rank(number), number) for number, before in enumerate(waits) if not before]
    heapq.heapify(queue)
    done: dict[int, None] = {}
    while queue:
        _, number = heapq.heappop(queue)
        if number in done:  # it was queued again when it began to free more
            continue
        done[number] = None
        for node in reads[number]:
            unread[node].remove(number)
        ready = {each for node in reads[number] if len(unread[node]) == 1 for each in unread[node]}
        for each in followers[number]:
            waits[each].remove(number)
            ready.add(each)
        for each in sorted(each for each in ready if not waits[each]):
            heapq.heappush(queue, (rank(each), each))
    assert len(done) == len(calls), "order: kernels wait for one another in a circle"
    return [calls[number] for number in done]


def _ways_to_the_end(waits: Sequence[set[int]], followers: Sequence[list[int]]) -> list[int]:
    """Return the most kernels that follow each one on a way to the end."""
    heights = [0] * len(waits)
    left = [len(each) for each in followers]
    ended = [number for number, count in enumerate(left) if not count]
    for number in ended:
        for before in waits[number]:
            heights[before] = max(heights[before], heights[number] + 1)
            left[before] -= 1
            if not left[before]:
                ended.append(before)
    return heights


def written_by(call: KernelCall) -> list[UOp]:
    """Return the nodes a kernel stores."""
    params = call.kernel.params * max(1, len(call.extents))
    return [node for node, param in zip(call.nodes, params, strict=True) if param.written]
