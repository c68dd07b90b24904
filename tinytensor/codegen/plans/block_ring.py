"""Runs a product over k through a ring of stages in shared memory, filled ahead of their use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext

from tinytensor.codegen.block_builder import BlockBuilder
from tinytensor.codegen.plans.amounts import amount
from tinytensor.codegen.plans.block_operand import Share, Source
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp, binary, where

# Begins one of so many parts of a thread's copies for the block that comes.
Copy = Callable[[int, int], None]
# Waits until the next block is in shared memory; gives its stage (after the last one, its own).
Turn = Callable[[], UOp]


def run_ring(
    b: BlockBuilder,
    blocks: UOp,
    stages: int,
    sources: Sequence[Source],
    begin: Callable[[UOp], None],
    multiply: Callable[[UOp, Copy, Turn], None],
) -> None:
    """Emit the loop over a count of blocks of k, each in the stage that `multiply` is given.

    Block i lies in stage i % stages. At a turn the next block's copies have come for this thread
    (all but the newest stages - 2 groups), and after its barrier for all. `multiply` makes a turn
    once, when the thread has read all of its stage: so every thread is then done with it, and it
    takes block i + stages. What is left to multiply hides the wait. Before, it begins all copies
    for the stage that was freed last. `begin` is given the first stage, before the loop.
    """
    count = amount(b, blocks)
    for number in range(stages - 1):
        if blocks.op is not Op.CONST:
            with b.branch(b.index(number) < count):
                _fill(b, sources, number)
        elif number < blocks.value:
            _fill(b, sources, number)
        b.commit()
    b.wait_copies(stages - 2)
    b.barrier()
    if blocks.op is not Op.CONST or blocks.value:
        with b.branch(b.index(0) < count):
            begin(b.index(0))
    with b.loop(0, count) as block:
        ahead = b.value(block + (stages - 1))
        freed = b.value(binary(Op.TRUNCMOD, ahead, stages))
        exists = b.value(ahead < count)

        def copy(part: int, parts: int) -> None:
            _copy(b, sources, freed, ahead, Share(part, parts, exists))

        gathered = [source.gather(ahead) for source in sources]

        def turn() -> UOp:
            for source, values in zip(sources, gathered, strict=True):
                source.put(freed, values)
            b.commit()
            b.wait_copies(stages - 2)
            b.barrier()
            following = b.value(where(block + 1 < count, block + 1, block))
            return b.value(binary(Op.TRUNCMOD, following, stages))

        multiply(b.value(binary(Op.TRUNCMOD, block, stages)), copy, turn)


def _fill(b: BlockBuilder, sources: Sequence[Source], number: int) -> None:
    stage = block = b.index(number)
    for source in sources:
        source.copy(stage, block)
        source.put(stage, source.gather(block))


def _copy(b: BlockBuilder, sources: Sequence[Source], stage: UOp, block: UOp, share: Share) -> None:
    """Begin a share of the copies: of all of them by a branch, of a part without."""
    is_whole = share.parts == 1
    with b.branch(share.exists) if is_whole else nullcontext():
        for source in sources:
            source.copy(stage, block, None if is_whole else share)
