"""The instructions that Hopper adds: transaction barriers, bulk copies, warpgroup products."""

from __future__ import annotations

from tinytensor.codegen.instructions_cuda import (
    GLOBAL,
    I32,
    SHARED,
    SUM_WORDS,
    VOID,
    PtxInstruction,
)
from tinytensor.dtype import DType
from tinytensor.ops import tile as tiles
from tinytensor.ops.fragments import WORDS, mma_shape
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp

BULK = frozenset({"bulk"})
WGMMA = frozenset({"wgmma"})


def _effect(
    op: Op, template: str, *operands: DType, features: frozenset[str] = BULK, name: str = ""
) -> PtxInstruction:
    return PtxInstruction(op, name or op.name.lower(), VOID, operands, template, features, True)


# Source: PTX ISA, mbarrier.
MBARRIER_INIT = _effect(Op.MBARRIER_INIT, "mbarrier.init.shared::cta.b64 [%0], %1;", SHARED, I32)
MBARRIER_PUBLISH = _effect(
    Op.MBARRIER_INIT, "fence.mbarrier_init.release.cluster;", name="mbarrier_publish"
)
MBARRIER_EXPECT = _effect(
    Op.MBARRIER_EXPECT, "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;", SHARED, I32
)
MBARRIER_ARRIVE = _effect(Op.MBARRIER_ARRIVE, "mbarrier.arrive.shared::cta.b64 _, [%0];", SHARED)
MBARRIER_WAIT = _effect(
    Op.MBARRIER_WAIT,
    "{ .reg .pred done; again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;"
    " @!done bra again; }",
    *(SHARED, I32),
)
BULK_COMMIT = _effect(Op.BULK_COMMIT, "cp.async.bulk.commit_group;")
PROXY_FENCE = _effect(Op.PROXY_FENCE, "fence.proxy.async.shared::cta;")
# Source: PTX ISA, wgmma.
WGMMA_FENCE = _effect(Op.WGMMA_FENCE, "wgmma.fence.sync.aligned;", features=WGMMA)
WGMMA_COMMIT = _effect(Op.WGMMA_COMMIT, "wgmma.commit_group.sync.aligned;", features=WGMMA)


# Source: PTX ISA, cp.async.bulk.tensor. Coordinates are innermost first.
def bulk_load(rank: int) -> PtxInstruction:
    """Return the row that copies a box: to, map, the barrier of its bytes, coordinates."""
    template = (
        f"cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
        f" [%0], [%1, {{{_numbered(3, rank)}}}], [%2];"
    )
    operands = (SHARED, GLOBAL, SHARED, *[I32] * rank)
    return _effect(Op.BULK_LOAD, template, *operands, name=f"bulk_load_{rank}d")


def bulk_store(rank: int) -> PtxInstruction:
    """Return the row that writes a box: map, from, coordinates."""
    template = (
        f"cp.async.bulk.tensor.{rank}d.global.shared::cta.tile.bulk_group"
        f" [%0, {{{_numbered(2, rank)}}}], [%1];"
    )
    operands = (GLOBAL, SHARED, *[I32] * rank)
    return _effect(Op.BULK_STORE, template, *operands, name=f"bulk_store_{rank}d")


def _numbered(first: int, count: int) -> str:
    return ", ".join([f"%{number}" for number in range(first, first + count)])


def bulk_wait(pending: int) -> PtxInstruction:
    """Return the row that waits until at most `pending` groups of stores still read."""
    template = f"cp.async.bulk.wait_group.read {pending};"
    return _effect(Op.BULK_WAIT, template, name=f"bulk_wait_{pending}")


def wgmma_wait(pending: int) -> PtxInstruction:
    """Return the row that waits until at most `pending` groups of products are left."""
    template = f"wgmma.wait_group.sync.aligned {pending};"
    name = f"wgmma_wait_{pending}"
    return _effect(Op.WGMMA_WAIT, template, name=name, features=WGMMA)


def set_registers(registers: int, launched_with: int) -> PtxInstruction:
    """Return the row that changes a warpgroup's registers per thread."""
    word = "inc" if registers > launched_with else "dec"
    template = f"setmaxnreg.{word}.sync.aligned.u32 {registers};"
    return _effect(Op.ROLE, template, name=f"set_registers_{registers}", features=WGMMA)


REGISTERS = 65536  # of a multiprocessor
MOST_REGISTERS = 255


def launched_registers(threads: int) -> int:
    """Return the registers per thread of a launch that fills a multiprocessor with one block."""
    return min(REGISTERS // threads, MOST_REGISTERS) // 8 * 8


def wgmma_template(instruction: str, a_k_major: bool, b_k_major: bool) -> str:
    """Write a warpgroup's product: %0 .. are the accumulators, then two descriptors, and adds.

    The predicate says whether the accumulator is added to; the ones are signs, of floats; the last
    two immediates transpose what does not lie along k.
    """
    shape = mma_shape(instruction)
    kinds = f"{SUM_WORDS[shape.accumulate]}.{WORDS[shape.a]}.{WORDS[shape.b]}"
    count = shape.n // 2
    accumulators = ", ".join([f"%{number}" for number in range(count)])
    signs = ", 1, 1" if shape.accumulate.is_float else ""
    turns = f", {int(not a_k_major)}, {int(not b_k_major)}" if shape.takes_any_major else ""
    return (
        f"{{ .reg .pred adds; setp.ne.b32 adds, %{count + 2}, 0; "
        f"wgmma.mma_async.sync.aligned.m64n{shape.n}k{shape.k}.{kinds} "
        f"{{{accumulators}}}, %{count}, %{count + 1}, adds{signs}{turns}; }}"
    )


# Layout codes of a descriptor, by the bytes of a swizzled row.
LAYOUTS = {128: 1, 64: 2, 32: 3}
ROWS_PER_GROUP = 8


def descriptor_constant(tile: UOp) -> int:
    """Return a matrix descriptor of a swizzled tile but for its address.

    Bits 16..29: the leading offset, which one swizzled row of columns does not use; 32..45: from
    eight rows to the next eight; 62..63: the swizzle. Offsets count 16 bytes.
    Source: PTX ISA, matrix descriptor of wgmma.
    """
    row_bytes = tiles.row_bytes(tile)
    leading = tiles.stage_bytes(tile) >> 4
    stride = ROWS_PER_GROUP * row_bytes >> 4
    return leading << 16 | stride << 32 | LAYOUTS[row_bytes] << 62
