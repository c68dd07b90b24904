"""Runs a product over k through a ring of stages in shared memory, filled ahead of their use."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tinytensor.codegen.block_builder import BlockBuilder
from tinytensor.codegen.plans.amounts import amount
from tinytensor.codegen.plans.block_operand import Source
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp, binary


def run_ring(
    b: BlockBuilder,
    blocks: UOp,
    stages: int,
    sources: Sequence[Source],
    multiply: Callable[[UOp], None],
) -> None:
    """Emit the loop over a count of blocks of k; `multiply` works on the stage it is given.

    Block i lies in stage i % stages. At a block's turn its copies have come for this thread (all
    but the newest stages - 2 groups), and after the barrier for all. Then every thread is done with
    the block before, so its stage takes block i + stages - 1.
    """
    count = amount(b, blocks)
    for number in range(stages - 1):
        if blocks.op is not Op.CONST:
            with b.branch(b.index(number) < count):
                _fill(b, sources, number)
        elif number < blocks.value:
            _fill(b, sources, number)
        b.commit()
    with b.loop(0, count) as block:
        b.wait_copies(stages - 2)
        b.barrier()
        ahead = b.value(block + (stages - 1))
        freed = b.value(binary(Op.TRUNCMOD, ahead, stages))
        with b.branch(ahead < count):
            for source in sources:
                source.copy(freed, ahead)
        b.commit()
        gathered = [source.gather(ahead) for source in sources]
        multiply(b.value(binary(Op.TRUNCMOD, block, stages)))
        for source, values in zip(sources, gathered, strict=True):
            source.put(freed, values)


def _fill(b: BlockBuilder, sources: Sequence[Source], number: int) -> None:
    stage = block = b.index(number)
    for source in sources:
        source.copy(stage, block)
        source.put(stage, source.gather(block))
