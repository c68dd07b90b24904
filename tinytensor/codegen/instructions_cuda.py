"""The instructions of GPU targets: PTX, and the op that each means."""

from __future__ import annotations

import itertools

from tinytensor.dtype import DType, dtypes
from tinytensor.ops.fragments import OF_WARPS, WARP_THREADS, WORDS, mma_shape
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp
from tinytensor.records import dataclass
from tinytensor.target import Target


@dataclass(frozen=True, slots=True)
class PtxInstruction:
    """One instruction: it means `op` with that result and those operands.

    In the template %0, %1, .. are the fields of the result, then those of the operands, in order.
    The address of shared memory is an uint32, of global memory an uint64. An effect is never
    moved, and memory may change by it.
    """

    op: Op
    name: str
    result: DType
    operands: tuple[DType, ...]
    template: str
    features: frozenset[str] = frozenset()
    is_effect: bool = False


F16, BF16, F32, F64 = dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64
I32, U32, U64, VOID = dtypes.int32, dtypes.uint32, dtypes.uint64, dtypes.void
SHARED, GLOBAL = U32, U64  # addresses
MMA = frozenset({"mma"})
MMA_F64 = frozenset({"mma", "mma.f64"})  # of 16 rows; those of 8 are slower there, but everywhere
COPY = frozenset({"cp.async"})


def _plain(op: Op, name: str, dtype: DType, ptx: str) -> PtxInstruction:
    """A row of one dtype, whose template only names its operands."""
    count = len(op.operands)
    numbered = ", ".join(f"%{each}" for each in range(count + 1))
    return PtxInstruction(op, name, dtype, (dtype,) * count, f"{ptx} {numbered};")


def _with_constant(op: Op, name: str, words: str, template: str) -> PtxInstruction:
    """A row of a bfloat16 pair that FMA makes with a constant pair, called `c` in the template."""
    pair = BF16.vector(2)
    text = f"{{ .reg .b32 c; mov.b32 c, {words}; {template} }}"
    return PtxInstruction(op, name, pair, (pair,) * 2, text)


# Pairs of halves. float32 holds the exact sum or product of two halves to more than twice their
# bits, so rounding once from there and rounding the exact result agree. bfloat16 has FMA alone on
# every target: x * 1 + y, y * -1 + x and x * y - 0 are exact before they round.
# Source: PTX ISA, half precision floating point instructions; Figueroa on double rounding.
PAIR_ROWS = (
    _plain(Op.ADD, "add_f16x2", F16.vector(2), "add.rn.f16x2"),
    _plain(Op.SUB, "sub_f16x2", F16.vector(2), "sub.rn.f16x2"),
    _plain(Op.MUL, "mul_f16x2", F16.vector(2), "mul.rn.f16x2"),
    _plain(Op.MAX, "max_f16x2", F16.vector(2), "max.NaN.f16x2"),
    _plain(Op.MIN, "min_f16x2", F16.vector(2), "min.NaN.f16x2"),
    _with_constant(Op.ADD, "add_bf16x2", "0x3f803f80", "fma.rn.bf16x2 %0, %1, c, %2;"),
    _with_constant(Op.SUB, "sub_bf16x2", "0xbf80bf80", "fma.rn.bf16x2 %0, %2, c, %1;"),
    _with_constant(Op.MUL, "mul_bf16x2", "0x80008000", "fma.rn.bf16x2 %0, %1, %2, c;"),
    _plain(Op.MAX, "max_bf16x2", BF16.vector(2), "max.NaN.bf16x2"),
    _plain(Op.MIN, "min_bf16x2", BF16.vector(2), "min.NaN.bf16x2"),
)
NEGATE_PAIR = "xor.b32 %0, %1, 0x80008000;"
SCALAR_ROWS = (
    _plain(Op.MAX, "max_f32", F32, "max.NaN.f32"),
    _plain(Op.MIN, "min_f32", F32, "min.NaN.f32"),
    _plain(Op.EXP2_APPROX, "exp2_approx_f32", F32, "ex2.approx.ftz.f32"),
    _plain(Op.RECIPROCAL_APPROX, "reciprocal_approx_f32", F32, "rcp.approx.ftz.f32"),
    *(
        PtxInstruction(Op.NEG, f"neg_{word}x2", half.vector(2), (half.vector(2),), NEGATE_PAIR)
        for word, half in (("f16", F16), ("bf16", BF16))
    ),
)
# Conversions. Of NaN and of what lies outside, float32 to 32-bit integers gives what CAST says;
# float64 and 64-bit integers do not.
CAST_ROWS = (
    PtxInstruction(Op.CAST, "f16_from_f32", F16, (F32,), "cvt.rn.f16.f32 %0, %1;"),
    PtxInstruction(Op.CAST, "f16_from_f64", F16, (F64,), "cvt.rn.f16.f64 %0, %1;"),
    PtxInstruction(Op.CAST, "bf16_from_f32", BF16, (F32,), "cvt.rn.bf16.f32 %0, %1;"),
    PtxInstruction(Op.CAST, "f32_from_f16", F32, (F16,), "cvt.f32.f16 %0, %1;"),
    PtxInstruction(Op.CAST, "i32_from_f32", I32, (F32,), "cvt.rzi.s32.f32 %0, %1;"),
    PtxInstruction(Op.CAST, "u32_from_f32", U32, (F32,), "cvt.rzi.u32.f32 %0, %1;"),
    *(
        PtxInstruction(
            *(Op.CAST, f"{word}x2_from_f32x2", half.vector(2), (F32.vector(2),)),
            f"cvt.rn.{word}x2.f32 %0, %2, %1;",  # the upper half comes first
        )
        for word, half in (("f16", F16), ("bf16", BF16))
    ),
)
INSTRUCTIONS = {
    (row.op, row.result, row.operands): row for row in (*PAIR_ROWS, *SCALAR_ROWS, *CAST_ROWS)
}


def _mma_row(name: str) -> PtxInstruction:
    """A warp's matrix instruction, by its name."""
    made = mma_shape(name)
    factors = made.fragment(made.m * made.k), made.fragment(made.k * made.n)
    sums = made.accumulate.vector(made.m * made.n // WARP_THREADS)
    numbers = itertools.count()
    fields = [
        ", ".join([f"%{next(numbers)}" for _ in range(each.lanes)])
        for each in (sums, *factors, sums)
    ]
    total = SUM_WORDS[made.accumulate]
    shape = f"m{made.m}n{made.n}k{made.k}"
    words = f"{total}.{WORDS[made.a]}.{WORDS[made.b]}.{total}"
    template = f"mma.sync.aligned.{shape}.row.col.{words} {{{'}, {'.join(fields)}}};"
    wide = made.accumulate is F64 and made.m > LEAST_ROWS
    features = MMA_F64 if wide else MMA
    row = (Op.MMA, f"mma_{name.replace('.', '_')}", sums, (*factors, sums), template, features)
    return PtxInstruction(*row)


def _ldmatrix_row(name: str, modifier: str) -> PtxInstruction:
    template = f"ldmatrix.sync.aligned.m8n8.x4{modifier}.shared.b16 {{%0, %1, %2, %3}}, [%4];"
    return PtxInstruction(Op.LDMATRIX, name, U32.vector(4), (SHARED,), template, MMA, True)


def _copy_row(nbytes: int) -> PtxInstruction:
    """Copy `nbytes` without a register; beyond the number of bytes that is given, write zeros."""
    level = "cg" if nbytes == 16 else "ca"  # only whole 16 bytes may pass by the first cache
    template = f"cp.async.{level}.shared.global [%0], [%1], {nbytes}, %2;"
    name = f"copy_async_{nbytes}"
    return PtxInstruction(Op.COPY_ASYNC, name, VOID, (SHARED, GLOBAL, I32), template, COPY, True)


SUM_WORDS = {F32: "f32", F64: "f64", I32: "s32"}
LEAST_ROWS = 8
MMA_ROWS = {name: _mma_row(name) for name in OF_WARPS}


def instructions_on(a: DType, b: DType) -> list[str]:
    """Return the matrix instructions of a warp that take such factors, the fastest first."""
    shapes = {name: mma_shape(name) for name in MMA_ROWS}
    return [name for name, shape in shapes.items() if shape.a is a and shape.b is b]


LDMATRIX = _ldmatrix_row("ldmatrix", "")
LDMATRIX_TRANSPOSED = _ldmatrix_row("ldmatrix_transposed", ".trans")
COPY_ROWS = {nbytes: _copy_row(nbytes) for nbytes in (4, 8, 16)}
COPY_COMMIT = PtxInstruction(
    *(Op.COPY_COMMIT, "copy_commit", VOID, ()), "cp.async.commit_group;", COPY, True
)


def copy_wait(pending: int) -> PtxInstruction:
    """Return the row that waits until at most `pending` groups of this thread are unfinished."""
    template = f"cp.async.wait_group {pending};"
    return PtxInstruction(Op.COPY_WAIT, f"copy_wait_{pending}", VOID, (), template, COPY, True)


def barrier(threads: int) -> PtxInstruction:
    """Return the row of a named barrier, of which the number is given."""
    template = f"bar.sync %0, {threads};"
    name = f"barrier_of_{threads}"
    return PtxInstruction(Op.BARRIER, name, VOID, (I32,), template, is_effect=True)


def find_instruction(node: UOp, target: Target) -> PtxInstruction | None:
    """Return the row of an elementwise node, if a GPU target has one."""
    if target.kind != "cuda":
        return None
    operands = tuple([each.dtype for each in node.operands])
    row = INSTRUCTIONS.get((node.op, node.dtype, operands))
    return row if row is not None and row.features <= target.features else None


def is_instruction(node: UOp, target: Target) -> bool:
    """Whether a node is one instruction of a GPU target as it stands."""
    return find_instruction(node, target) is not None
