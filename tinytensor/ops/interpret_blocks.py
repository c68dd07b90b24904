"""Runs the LINEAR form of a grid: blocks of warps that wait for one another, in random order.

This is the meaning of that form, for tests on small kernels. The 32 lanes of a warp run together, a
scalar being an array of 32 and a vector one of (32, lanes); a mask tells who is in a branch. Memory
remembers who touched it, so a missing barrier is found whatever the order was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from tinytensor.errors import InternalError
from tinytensor.ops.block_accesses import ACCESS_STEPS
from tinytensor.ops.block_control import CONTROL_STEPS
from tinytensor.ops.block_memory import BULK_STORES, POISON_BYTE, Memory
from tinytensor.ops.block_products import PRODUCT_STEPS
from tinytensor.ops.block_sync import Wait
from tinytensor.ops.block_waits import WAIT_STEPS
from tinytensor.ops.block_warp import Block, Launch, Warp, agents_of
from tinytensor.ops.interpret import Array
from tinytensor.ops.linear import Linear
from tinytensor.ops.op import Op
from tinytensor.ops.uop import Number

Place = tuple[int, int, int]
BLOCKS: dict[Op, Callable[..., Array | Wait | None]] = {
    **CONTROL_STEPS,
    **ACCESS_STEPS,
    **WAIT_STEPS,
    **PRODUCT_STEPS,
}


def run_blocks(
    linear: Linear,
    arrays: Sequence[Array],
    seed: int = 0,
    blocks: Sequence[Place] | None = None,
    scalars: Sequence[Number] = (),
) -> None:
    """Run one launch on the params' arrays: 1-D, as memory holds them (bfloat16: uint16).

    All blocks run, or those named. `seed` draws the order of blocks, warps and bulk copies.

    Raises: InternalError, naming statement and thread, for an access outside its buffer, a read of
    what was never written, a race, a deadlock, and threads that should agree and do not.
    """
    run_launches((linear,), arrays, seed, blocks, scalars)


def run_launches(
    linears: Sequence[Linear],
    arrays: Sequence[Array],
    seed: int = 0,
    blocks: Sequence[Place] | None = None,
    scalars: Sequence[Number] = (),
) -> None:
    """Run launches one after the other; they share scratch memory. See `run_blocks`."""
    order = np.random.default_rng(seed)
    size = max([each.workspace_bytes for each in linears])
    scratch = np.full(size, POISON_BYTE, np.uint8)
    written = np.zeros(size, np.bool_)
    for linear in linears:
        if linear.grid is None:
            raise InternalError(f"run blocks: {linear.name}: has no grid; run_linear runs it.")
        agents = agents_of(linear, linear.grid)
        params = [
            Memory(each.view(np.uint8), agents, is_poison=False, is_constant=not param.written)
            for each, param in zip(arrays, linear.params, strict=True)
        ]
        workspace = Memory(scratch, agents, is_poison=True)
        workspace.written = written
        launch = Launch(linear, linear.grid, params, workspace, scalars)
        whole = np.ndindex(*linear.grid.blocks_at(scalars))
        places = list(whole if blocks is None else blocks)
        for number in order.permutation(len(places)):
            x, y, z = places[number]
            _run_block(Block(launch, (x, y, z)), order)


def _run_block(block: Block, order: np.random.Generator) -> None:
    """Resume warps that need not wait, and land bulk loads, one at a time, until all are done."""
    running = {warp: _run_warp(warp) for warp in block.warps}
    while running:
        ready = [warp for warp in running if warp.wait is None or warp.wait.is_over()]
        choices = len(ready) + len(block.landing)
        if not choices:
            raise _deadlock(block, list(running))
        choice = int(order.integers(choices))
        if choice >= len(ready):
            block.landing.pop(choice - len(ready))()
            continue
        warp = ready[choice]
        if next(running[warp], None) is None:
            del running[warp]


def _run_warp(warp: Warp) -> Iterator[Wait]:
    """Run a warp's statements; stand still at each wait."""
    statements = warp.block.launch.statements
    while warp.position < len(statements):
        node = statements[warp.position]
        operands = [warp.values[each] for each in node.operands if each in warp.values]
        result = BLOCKS[node.op](warp, node, *operands)
        if isinstance(result, Wait):
            warp.wait = result
            yield result
            warp.wait = None
            result.finish()
        elif result is not None:
            warp.values[node] = result
        warp.position += 1
    stores = warp.groups[BULK_STORES]
    if stores.finished != stores.time:
        raise warp.refuse(statements[-1], "exits with an unfinished bulk store")


def _deadlock(block: Block, waiting: Sequence[Warp]) -> InternalError:
    places = [f"warp {each.number} at {each.show(each.wait.node)}" for each in waiting if each.wait]
    where = f"block {block.place}: {'; '.join(places)}"
    return InternalError(f"run blocks: {block.launch.name}: deadlock, all wait: {where}.")
