"""The instructions of C targets: which function C calls for a node, and what the machine has.

Each row means its op on its dtypes, and is written with GCC's builtins. Where a target lacks the
features, or the compiler is Clang, the same function is a loop over lanes, which Clang vectorizes.
"""

from __future__ import annotations

from tinytensor.codegen.emit_c_types import CType, storage_type
from tinytensor.dtype import DType, dtypes
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp
from tinytensor.records import dataclass
from tinytensor.target import Target


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction: `template` is GCC's expression of it, over x, y and z.

    It means `op` with that result and those operands.
    """

    op: Op
    result: DType
    operands: tuple[DType, ...]
    features: frozenset[str]
    template: str


@dataclass(frozen=True, slots=True)
class Function:
    """A C function that a node calls: its name, its text, and the library its loop needs."""

    name: str
    text: str
    libraries: tuple[str, ...] = ()


ALL = {16: "(unsigned short)-1", 8: "(unsigned char)-1"}  # a mask register with every lane set
CURRENT_ROUNDING = 4
LEAST_REGISTER_BYTES = 16
FLOOR_MODE = 9  # toward minus infinity, without the inexact flag
TRUNC_MODE = 11
F32, F64, F16 = dtypes.float32, dtypes.float64, dtypes.float16
AVX512, AVX2, NONE = frozenset({"avx512"}), frozenset({"avx2"}), frozenset[str]()
FMA, F16C = frozenset({"fma"}), frozenset({"f16c"})


def _float_rows(dtype: DType, word: str) -> list[Instruction]:
    """Rows of FMA, SQRT, FLOOR and TRUNC for registers of 64, 32 and 16 bytes."""
    rows = []
    for nbytes, size, features in ((64, "512", AVX512), (32, "256", AVX2), (16, "", AVX2)):
        vector = dtype.vector(nbytes // dtype.itemsize)
        wide = nbytes == 64
        tail = f", {ALL[vector.lanes]}, {CURRENT_ROUNDING}" if wide else ""
        masked = "_mask" if wide else ""
        kept = "x, " if wide else ""
        rows.append(
            Instruction(
                *(Op.FMA, vector, (vector,) * 3, features | FMA),
                f"__builtin_ia32_vfmadd{word}{size}{masked}(x, y, z{tail})",
            )
        )
        square_root = f"__builtin_ia32_sqrt{word}{size}{masked}({kept}x{tail})"
        rows.append(Instruction(Op.SQRT, vector, (vector,), features, square_root))
        for op, mode in ((Op.FLOOR, FLOOR_MODE), (Op.TRUNC, TRUNC_MODE)):
            name = f"rndscale{word}_mask" if wide else f"round{word}{size}"
            rest = f", x{tail}" if wide else ""
            template = f"__builtin_ia32_{name}(x, {mode}{rest})"
            rows.append(Instruction(op, vector, (vector,), features, template))
        if wide:
            scaled = f"__builtin_ia32_scalef{word}512_mask(x, y, x{tail})"
            rows.append(Instruction(Op.SCALE, vector, (vector, vector), features, scaled))
    return rows


def _half_row(lanes: int, widening: str, narrowing: str) -> list[Instruction]:
    half, wide = F16.vector(lanes), F32.vector(lanes)
    features = F16C | AVX512 if lanes == 16 else F16C
    return [
        Instruction(Op.CAST, wide, (half,), features, widening),
        Instruction(Op.CAST, half, (wide,), features, narrowing),
    ]


HALF_ROWS = (
    *_half_row(
        1,
        "__builtin_ia32_vcvtph2ps((i16x8){x})[0]",
        "__builtin_ia32_vcvtps2ph((f32x4){x}, 0)[0]",
    ),
    *_half_row(
        4,
        "__builtin_ia32_vcvtph2ps((i16x8)__builtin_shufflevector(x, x, 0, 1, 2, 3, 0, 1, 2, 3))",
        "__builtin_shufflevector((u16x8)__builtin_ia32_vcvtps2ph(x, 0),"
        " (u16x8)__builtin_ia32_vcvtps2ph(x, 0), 0, 1, 2, 3)",
    ),
    *_half_row(
        8,
        "__builtin_ia32_vcvtph2ps256((i16x8)x)",
        "(u16x8)__builtin_ia32_vcvtps2ph256(x, 0)",
    ),
    *_half_row(
        16,
        f"__builtin_ia32_vcvtph2ps512_mask((i16x16)x, (f32x16){{0}}, {ALL[16]}, 4)",
        f"(u16x16)__builtin_ia32_vcvtps2ph512_mask(x, 0, (i16x16){{0}}, {ALL[16]})",
    ),
)
INSTRUCTIONS = {
    (row.op, row.result, row.operands): row
    for row in (*_float_rows(F32, "ps"), *_float_rows(F64, "pd"), *HALF_ROWS)
}
# What one lane is: of GCC's builtins, each is one instruction where the target has it.
LANE_FUNCTIONS = {
    Op.FMA: ("fma", FMA),
    Op.SQRT: ("sqrt", NONE),
    Op.FLOOR: ("floor", AVX2),
    Op.TRUNC: ("trunc", AVX2),
}
LIBM = ("-lm",)


def find_instruction(node: UOp, target: Target) -> Instruction | None:
    """Return the target's row for a node, if it has one."""
    operands = tuple(each.dtype for each in node.operands)
    row = INSTRUCTIONS.get((node.op, node.dtype, operands))
    return row if row is not None and row.features <= target.features else None


def function_of(node: UOp, target: Target) -> Function | None:
    """Return the function that a node calls; None when C has an operator for it."""
    if node.op in LANE_FUNCTIONS and not node.dtype.is_narrow:
        return _float_function(node, target)
    if node.op is Op.SCALE:
        return _scale_function(node)
    if node.op is Op.CAST and F16 in (node.dtype.scalar, node.operands[0].dtype.scalar):
        return _half_function(node, target)
    return None


def _float_function(node: UOp, target: Target) -> Function:
    builtin, features = LANE_FUNCTIONS[node.op]
    ctype = storage_type(node.dtype)
    lane = f"__builtin_{builtin}{'f' if ctype.bits == 32 else ''}"
    letters = "xyz"[: len(node.operands)]
    subscript = "[i]" if ctype.lanes > 1 else ""
    by_lane = f"{lane}({', '.join(each + subscript for each in letters)})"
    body = _each_lane(ctype, by_lane)
    row = find_instruction(node, target)
    if row is not None:
        body = _for_gcc(f"    return {row.template};", body)
    libraries = () if features <= target.features else LIBM
    name = f"{builtin}_{ctype.short}"
    return Function(name, _define(name, ctype, node, body), libraries)


def can_scale(x: UOp, target: Target) -> bool:
    """Whether a target multiplies values like x by powers of two in one instruction."""
    return find_instruction(UOp(Op.SCALE, x.dtype, (x, x)), target) is not None


def _scale_function(node: UOp) -> Function:
    """Call the instruction; Clang has the same builtin."""
    ctype = storage_type(node.dtype)
    name = f"scale_{ctype.short}"
    row = INSTRUCTIONS[Op.SCALE, node.dtype, (node.dtype, node.dtype)]
    return Function(name, _define(name, ctype, node, f"    return {row.template};"))


def extreme_function(dtype: DType, is_larger: bool, target: Target) -> Function:
    """Return the function of WHERE(y < x, x, y), or of WHERE(x < y, x, y): y unless x is beyond it.

    That is what an instruction does; of the comparison and the choice GCC makes two.
    """
    ctype = storage_type(dtype)
    word, sign = ("max", ">") if is_larger else ("min", "<")
    name = f"{word}_{ctype.short}"
    body = _each_lane(ctype, f"x[i] {sign} y[i] ? x[i] : y[i]")
    size, features = {64: ("512_mask", AVX512), 32: ("256", AVX2)}.get(ctype.nbytes, ("", AVX2))
    if ctype.nbytes >= LEAST_REGISTER_BYTES and features <= target.features:
        rest = f", x, {ALL[ctype.lanes]}, {CURRENT_ROUNDING}" if ctype.nbytes == 64 else ""
        builtin = f"__builtin_ia32_{word}p{'s' if ctype.bits == 32 else 'd'}{size}"
        body = _for_gcc(f"    return {builtin}(x, y{rest});", body)
    params = f"{ctype.name} x, {ctype.name} y"
    return Function(name, f"INLINE {ctype.name} {name}({params})\n{{\n{body}\n}}")


def _half_function(node: UOp, target: Target) -> Function:
    """Convert by the target's row; lane counts without one take the scalar's for each lane.

    Other compilers than GCC turn a loop over _Float16 into the instruction, GCC 12 does not.
    """
    ctype = storage_type(node.dtype)
    is_widening = node.dtype.scalar is F32
    word = "widen_f16" if is_widening else "narrow_f16"
    name = f"{word}x{ctype.lanes}" if ctype.lanes > 1 else word
    x = node.operands[0]
    lane = "x[i]" if ctype.lanes > 1 else "x"
    scalar = INSTRUCTIONS[Op.CAST, node.dtype.scalar, (x.dtype.scalar,)]
    for_gcc = _each_lane(ctype, scalar.template.replace("{x}", f"{{{lane}}}"))
    row = find_instruction(node, target)
    if row is not None:
        for_gcc = f"    return {row.template};"
    union = WIDENING_UNION if is_widening else NARROWING_UNION
    body = _for_gcc(for_gcc, _each_lane(ctype, union.replace("{x}", f"{{{lane}}}")))
    return Function(name, _define(name, ctype, node, body))


WIDENING_UNION = "(union { unsigned short bits; _Float16 value; }){x}.value"
NARROWING_UNION = "(union { _Float16 value; unsigned short bits; }){x}.bits"


def _for_gcc(text: str, otherwise: str) -> str:
    return f"#if defined(__clang__)\n{otherwise}\n#else\n{text}\n#endif"


def _define(name: str, result: CType, node: UOp, body: str) -> str:
    params = ", ".join(
        f"{storage_type(each.dtype).name} {letter}"
        for each, letter in zip(node.operands, "xyz", strict=False)
    )
    return f"INLINE {result.name} {name}({params})\n{{\n{body}\n}}"


def _each_lane(result: CType, by_lane: str) -> str:
    if result.lanes == 1:
        return f"    return {by_lane};"
    return (
        f"    {result.name} out;\n"
        f"    for (int i = 0; i < {result.lanes}; i++)\n"
        f"        out[i] = {by_lane};\n"
        "    return out;"
    )
