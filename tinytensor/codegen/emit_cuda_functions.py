"""The CUDA functions that values and statements call: PTX instructions, structs, slow functions."""

from __future__ import annotations

from tinytensor.codegen.emit_c_types import CType, storage_type
from tinytensor.codegen.instructions import Function
from tinytensor.codegen.instructions_cuda import PtxInstruction
from tinytensor.dtype import DType, dtypes
from tinytensor.records import dataclass

# How PTX calls a register, by the bits of an integer or a float.
INTEGER_CONSTRAINTS = {16: "h", 32: "r", 64: "l"}
FLOAT_CONSTRAINTS = {32: "f", 64: "d"}
DEVICE = "DEVICE"
DEFINE_DEVICE = "#define DEVICE static __device__ __forceinline__"


def declare_struct(ctype: CType) -> str:
    """Declare what holds a vector in registers; aligned, so that it moves at once."""
    fields = ", ".join("xyzw"[: ctype.lanes])
    return f"struct __align__({ctype.nbytes}) {ctype.short} {{ {ctype.scalar.name} {fields}; }};"


@dataclass(frozen=True, slots=True)
class _Register:
    """One register that an instruction reads or writes."""

    ctype: CType
    name: str

    @property
    def param(self) -> str:
        """How a function takes it."""
        return f"{self.ctype.name} {self.name}"

    @property
    def bound(self) -> str:
        """How an asm statement takes it."""
        is_float = self.ctype.kind == "f"
        constraints = FLOAT_CONSTRAINTS if is_float else INTEGER_CONSTRAINTS
        return f'"{constraints[self.ctype.bits]}"({self.name})'


def instruction_function(row: PtxInstruction) -> Function:
    """Wrap an instruction: its params are the fields of the operands, one by one."""
    fields = [field for each in row.operands for field in _fields(each)]
    taken = [_Register(field, f"x{number}") for number, field in enumerate(fields)]
    params = ", ".join([each.param for each in taken])
    inputs = ", ".join([each.bound for each in taken])
    volatile = " volatile" if row.is_effect else ""
    clobbers = ' : "memory"' if row.is_effect else ""
    if row.result is dtypes.void:
        body = f'    asm{volatile}("{row.template}" :: {inputs}{clobbers});'
        return Function(row.name, f"{DEVICE} void {row.name}({params})\n{{\n{body}\n}}")
    result, given = _results(row.result)
    outputs = ", ".join([f'"={each.bound[1:]}' for each in given])
    lines = [
        f"    {result.name} out;",
        f'    asm{volatile}("{row.template}"',
        f"        : {outputs}",
        f"        : {inputs}{clobbers});",
        "    return out;",
    ]
    body = "\n".join(lines)
    return Function(row.name, f"{DEVICE} {result.name} {row.name}({params})\n{{\n{body}\n}}")


def _results(dtype: DType) -> tuple[CType, list[_Register]]:
    """The type of a result, and the registers of the variable `out` that holds it."""
    fields = _fields(dtype)
    first = fields[0]
    if len(fields) == 1:
        return first, [_Register(first, "out")]
    struct = CType(first.kind, first.bits, len(fields))
    letters = "xyzw"[: len(fields)]
    return struct, [_Register(first, f"out.{letter}") for letter in letters]


def _fields(dtype: DType) -> list[CType]:
    """The registers of a value: a pair of halves is one word."""
    if dtype is dtypes.void:
        return []
    if dtype.is_half and dtype.lanes == 2:
        return [CType("u", 32)]
    return [storage_type(dtype.scalar)] * dtype.lanes


# sin and cos of a large |x| = m * 2**e. Of 2 / pi, the 96 bits that decide the quadrant and the
# fraction are multiplied by m; what is left of them is exact to 2**-60. Then a polynomial in
# float64 (Taylor's, within 2**-41 up to pi / 4) is rounded once. The library's own reduction keeps
# its words in an array, which would give every kernel a stack.
SINE_OF_LARGE = Function(
    "sine_of_large",
    """\
static __constant__ unsigned two_over_pi[8] = {0u, 0xa2f9836eu, 0x4e441529u, 0xfc2757d1u,
    0xf534ddc0u, 0xdb629599u, 0x3c439041u, 0xfe5163abu};

// sin(|x| + quarters * pi / 2), with the sign of x when there are no quarters.
DEVICE float sine_of_large(float x, unsigned quarters)
{
    const unsigned bits = __float_as_uint(x) & 0x7fffffffu;
    if (bits >= 0x7f800000u)
        return x - x;
    const unsigned begin = (bits >> 23) - 120u;
    const unsigned mantissa = (bits & 0x7fffffu) | 0x800000u;
    const unsigned *words = two_over_pi + begin / 32u;
    const unsigned high = __funnelshift_l(words[1], words[0], begin);
    const unsigned middle = __funnelshift_l(words[2], words[1], begin);
    const unsigned low = __funnelshift_l(words[3], words[2], begin);
    const unsigned long long first = (unsigned long long)mantissa * low;
    const unsigned long long second = (unsigned long long)mantissa * middle + (first >> 32);
    const unsigned top = mantissa * high + (unsigned)(second >> 32);
    const unsigned quadrant = ((top + 0x20000000u) >> 30) + quarters;
    const unsigned long long rest = ((unsigned long long)top << 34) | (second << 32 >> 30);
    const double r = (double)(long long)rest * 8.5153039502163873e-20;
    const double square = r * r;
    double sine = __fma_rn(square, 1.6059043836821613e-10, -2.5052108385441720e-8);
    sine = __fma_rn(square, sine, 2.7557319223985893e-6);
    sine = __fma_rn(square, sine, -1.9841269841269841e-4);
    sine = __fma_rn(square, sine, 8.3333333333333332e-3);
    sine = __fma_rn(square, sine, -1.6666666666666666e-1);
    sine = __fma_rn(square * r, sine, r);
    double cosine = __fma_rn(square, 2.0876756987868099e-9, -2.7557319223985888e-7);
    cosine = __fma_rn(square, cosine, 2.4801587301587302e-5);
    cosine = __fma_rn(square, cosine, -1.3888888888888889e-3);
    cosine = __fma_rn(square, cosine, 4.1666666666666664e-2);
    cosine = __fma_rn(square, cosine, -0.5);
    cosine = __fma_rn(square, cosine, 1.0);
    const double turned = quadrant & 1u ? cosine : sine;
    const bool is_negative = ((quadrant & 2u) != 0) != (quarters == 0u && x < 0.0f);
    return (float)(is_negative ? -turned : turned);
}""",
)
QUARTERS = {"sin": "0u", "cos": "1u"}


@dataclass(frozen=True, slots=True)
class LibraryCall:
    """How a function of the C library is called: its name, further arguments, and its text."""

    name: str
    arguments: tuple[str, ...] = ()
    function: Function | None = None


def library_call(name: str, ctype: CType) -> LibraryCall:
    """Return CUDA's own function, or the project's where CUDA's needs a stack."""
    if ctype.bits == 64:
        return LibraryCall(name)
    if name in QUARTERS:
        return LibraryCall(SINE_OF_LARGE.name, (QUARTERS[name],), SINE_OF_LARGE)
    return LibraryCall(f"{name}f")
