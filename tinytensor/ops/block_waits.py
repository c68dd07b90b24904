"""The steps of a warp that order what warps do: barriers, groups, mbarriers and fences."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tinytensor.ops.block_memory import BULK_STORES, COPIES, PRODUCTS
from tinytensor.ops.block_sync import SEEN, Mbarrier, Wait
from tinytensor.ops.block_warp import Warp
from tinytensor.ops.fragments import WARP_THREADS
from tinytensor.ops.interpret import Array
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp

KIND_OF = {
    **{Op.COPY_COMMIT: COPIES, Op.COPY_WAIT: COPIES},
    **{Op.BULK_COMMIT: BULK_STORES, Op.BULK_WAIT: BULK_STORES},
    **{Op.WGMMA_COMMIT: PRODUCTS, Op.WGMMA_WAIT: PRODUCTS, Op.MMA_WAIT: PRODUCTS},
}


def _barrier(warp: Warp, node: UOp, *group: Array) -> Wait:
    warp.require_whole(node)
    barrier = warp.block.barrier(node.attrs.number + sum([warp.same(node, x) for x in group]))
    generation = barrier.generation
    if not barrier.arrive(node.attrs.threads, WARP_THREADS, warp.release()):
        raise warp.refuse(node, "others await another number of threads there, or too many come")
    return Wait(
        node,
        lambda: barrier.generation != generation,
        lambda: warp.acquire(barrier.released[generation]),
    )


# Groups of asynchronous work.
def _commit(warp: Warp, node: UOp) -> None:
    kind = KIND_OF[node.op]
    if kind != BULK_STORES:  # these are one thread's
        warp.require_whole(node)
    warp.groups[kind].commit()


def _wait_groups(warp: Warp, node: UOp) -> Wait:
    kind = KIND_OF[node.op]
    if kind != BULK_STORES:
        warp.require_whole(node)
    return Wait(node, lambda: True, lambda: warp.retire(kind, node.attrs.pending))


def _proxy_fence(warp: Warp, node: UOp) -> None:
    warp.require_whole(node)
    warp.fence()


# Transaction barriers.
def _init(warp: Warp, node: UOp) -> None:
    barriers = node.operands[0]
    lane = warp.single_lane(node)
    block = warp.block
    time = int(warp.release()[SEEN, warp.number])
    for number in range(barriers.attrs.count):
        if (barriers, number) in block.mbarriers:
            raise warp.refuse(node, "the barriers were initialized before", lane)
        agent = block.agents.bulk_load(block.launch.first_mbarrier[barriers] + number)
        made = Mbarrier(
            barriers.attrs.arrivals, agent, warp.number, time, np.zeros_like(warp.clock)
        )
        block.mbarriers[barriers, number] = made


def find_mbarrier(warp: Warp, node: UOp, barriers: UOp, number: int) -> Mbarrier:
    """Return an mbarrier whose initialization comes before this."""
    found = warp.block.mbarriers.get((barriers, number))
    if found is None:
        raise warp.refuse(node, f"mbarrier {number} is not initialized")
    if warp.clock[SEEN, found.maker] < found.made_at:
        raise warp.refuse(node, f"mbarrier {number} is initialized without an order (a race)")
    return found


def _expect(warp: Warp, node: UOp, number: Array, nbytes: Array) -> None:
    lane = warp.single_lane(node)
    mbarrier = find_mbarrier(warp, node, node.operands[0], int(number[lane]))
    mbarrier.nbytes += int(nbytes[lane])
    _require_arrival(warp, node, mbarrier, 1)


def _arrive(warp: Warp, node: UOp, number: Array) -> None:
    mbarrier = find_mbarrier(warp, node, node.operands[0], warp.same(node, number))
    _require_arrival(warp, node, mbarrier, int(warp.mask.sum()))


def _require_arrival(warp: Warp, node: UOp, mbarrier: Mbarrier, count: int) -> None:
    if not mbarrier.arrive(count, warp.release()):
        raise warp.refuse(node, f"more arrive in a phase than {mbarrier.arrivals}")


def _wait_phase(warp: Warp, node: UOp, number: Array, parity: Array) -> Wait:
    mbarrier = find_mbarrier(warp, node, node.operands[0], warp.same(node, number))
    awaited = warp.same(node, parity)
    if awaited not in (0, 1):
        raise warp.refuse(node, f"a parity is 0 or 1, and this is {awaited}")
    return Wait(
        node,
        lambda: mbarrier.is_over(awaited),
        lambda: warp.acquire(mbarrier.released),
    )


WAIT_STEPS: dict[Op, Callable[..., Wait | None]] = {
    **dict.fromkeys((Op.COPY_COMMIT, Op.BULK_COMMIT, Op.WGMMA_COMMIT), _commit),
    **dict.fromkeys((Op.COPY_WAIT, Op.BULK_WAIT, Op.WGMMA_WAIT, Op.MMA_WAIT), _wait_groups),
    Op.BARRIER: _barrier,
    Op.PROXY_FENCE: _proxy_fence,
    Op.MBARRIER_INIT: _init,
    Op.MBARRIER_EXPECT: _expect,
    Op.MBARRIER_ARRIVE: _arrive,
    Op.MBARRIER_WAIT: _wait_phase,
}
