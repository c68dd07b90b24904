"""The C functions for what has no operator: vector memory, splat, select, scalar bits, calls."""

from __future__ import annotations

from tinytensor.codegen.emit_c_types import CType
from tinytensor.codegen.instructions import LIBM, Function
from tinytensor.target import Target

MASKED = {16: "hi", 32: "si", 64: "di"}  # bits of a lane, and what the compiler calls it
MASKED_BYTES = 16


def splat_function(ctype: CType) -> Function:
    """Fill a vector with a scalar: an initializer list keeps -0.0 and becomes one broadcast."""
    name = f"splat_{ctype.short}"
    lanes = ", ".join(["x"] * ctype.lanes)
    head = f"INLINE {ctype.name} {name}({ctype.scalar.name} x)"
    return Function(name, f"{head}\n{{\n    return ({ctype.name}){{{lanes}}};\n}}")


def select_function(ctype: CType, mask: CType) -> Function:
    """Take lanes of x where the mask is set, else of y.

    Of this GCC makes one blend; of `|` in place of `^` it makes three operations.
    """
    name = f"select_{ctype.short}"
    params = f"{mask.name} cond, {ctype.name} x, {ctype.name} y"
    chosen = f"(cond & ({mask.name})x) ^ (~cond & ({mask.name})y)"
    head = f"INLINE {ctype.name} {name}({params})"
    return Function(name, f"{head}\n{{\n    return ({ctype.name})({chosen});\n}}")


def load_function(ctype: CType) -> Function:
    """Read adjacent elements."""
    name = f"load_{ctype.short}"
    head = f"INLINE {ctype.name} {name}(const {ctype.scalar.name} *from)"
    return Function(name, f"{head}\n{{\n    return *(const {ctype.name}_loose *)from;\n}}")


def store_function(ctype: CType) -> Function:
    """Write adjacent elements."""
    name = f"store_{ctype.short}"
    head = f"INLINE void {name}({ctype.scalar.name} *to, {ctype.name} x)"
    return Function(name, f"{head}\n{{\n    *({ctype.name}_loose *)to = x;\n}}")


def can_mask(ctype: CType, target: Target) -> bool:
    """Whether one instruction reads or writes some lanes of a vector in memory and no others."""
    return "avx512" in target.features and ctype.bits in MASKED and ctype.nbytes >= MASKED_BYTES


def load_some_function(ctype: CType) -> Function:
    """Read those of adjacent elements whose bit is set; the others are 0, and are not touched.

    A variable of zeros that is filled in part lies in memory, and is read from it at once: then the
    processor waits for it to be written.
    """
    name = f"load_some_{ctype.short}"
    whole = ctype.of_kind("i").name
    head = f"INLINE {ctype.name} {name}(const {ctype.scalar.name} *from, unsigned long long lanes)"
    call = f"{_masked('load', ctype)}((const void *)from, ({whole}){{0}}, lanes)"
    return Function(name, f"{head}\n{{\n    return ({ctype.name}){call};\n}}")


def store_some_function(ctype: CType) -> Function:
    """Write those of adjacent elements whose bit is set."""
    name = f"store_some_{ctype.short}"
    params = f"{ctype.scalar.name} *to, {ctype.name} x, unsigned long long lanes"
    call = f"{_masked('store', ctype)}((void *)to, ({ctype.of_kind('i').name})x, lanes)"
    return Function(name, f"INLINE void {name}({params})\n{{\n    {call};\n}}")


def _masked(verb: str, ctype: CType) -> str:
    return f"__builtin_ia32_{verb}dqu{MASKED[ctype.bits]}{ctype.nbytes * 8}_mask"


def bitcast_function(dst: CType, src: CType) -> Function:
    """Read the bits of a scalar as another type."""
    name = f"{dst.short}_from_{src.short}"
    body = f"    {dst.name} out;\n    __builtin_memcpy(&out, &x, sizeof out);\n    return out;"
    return Function(name, f"INLINE {dst.name} {name}({src.name} x)\n{{\n{body}\n}}")


def call_function(builtin: str, ctype: CType, mask: CType, count: int) -> Function:
    """Call a function of the C library in the lanes of a mask; the others are 0.

    The calls are in a function of their own: where no lane asks, the caller only tests the mask.
    """
    letters = "xy"[:count]
    params = f"{mask.name} cond, " + ", ".join(f"{ctype.name} {each}" for each in letters)
    lanes = ", ".join(f"{each}[i]" for each in letters)
    name = f"{builtin}_{ctype.short}"
    text = f"""\
static __attribute__((noinline)) {ctype.name} each_{name}({params})
{{
    {ctype.name} out = {{0}};
    for (int i = 0; i < {ctype.lanes}; i++)
        if (cond[i])
            out[i] = __builtin_{builtin}({lanes});
    return out;
}}

INLINE {ctype.name} {name}({params})
{{
    unsigned long long words[{max(1, ctype.nbytes // 8)}] = {{0}}, any = 0;
    __builtin_memcpy(words, &cond, sizeof cond);
    for (int i = 0; i < {max(1, ctype.nbytes // 8)}; i++)
        any |= words[i];
    if (__builtin_expect(any == 0, 1))
        return ({ctype.name}){{0}};
    return each_{name}(cond, {", ".join(letters)});
}}"""
    return Function(name, text, LIBM)
