"""Turns one value node of a GPU's thread and the text of its operands into a CUDA expression.

A scalar's text is that of C. A vector is a struct or a word of 32 bits; its fields are the lanes,
or words that hold several narrow lanes, the first one lowest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tinytensor.codegen.emit_c_types import CType, constant_text, mask_type, storage_type
from tinytensor.codegen.emit_c_values import EXPRESSIONS as C_EXPRESSIONS
from tinytensor.codegen.emit_c_values import Value, ValueEmitter
from tinytensor.codegen.emit_cuda_functions import instruction_function, library_call
from tinytensor.codegen.instructions_cuda import MMA_ROWS, PtxInstruction, find_instruction
from tinytensor.dtype import DType, dtypes
from tinytensor.errors import InternalError
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp
from tinytensor.records import dataclass

WORD = CType("u", 32)
WORD_BYTES = 4
ALL_LANES = "0xffffffffu"


@dataclass(frozen=True, slots=True)
class Struct:
    """What holds a vector: equal fields; one field stands without a struct around it."""

    field: CType
    count: int

    @property
    def ctype(self) -> CType:
        """Its name as a type: `f32x4`, or that of the only field."""
        return CType(self.field.kind, self.field.bits, self.count)

    def fields_of(self, name: str) -> tuple[Value, ...]:
        """Return the fields of a variable."""
        if self.count == 1:
            return (Value(name, self.field),)
        return tuple([Value(f"{name}.{each}", self.field) for each in "xyzw"[: self.count]])


@dataclass(frozen=True, slots=True)
class VectorValue(Value):
    """A vector: its text builds the struct, its fields are expressions of their own."""

    fields: tuple[Value, ...] = ()


def struct_of(dtype: DType) -> Struct:
    """Return what holds a vector of that dtype."""
    element = storage_type(dtype.scalar)
    nbytes = dtype.lanes * element.nbytes
    if element.nbytes >= WORD_BYTES:
        return Struct(element, dtype.lanes)
    if nbytes < WORD_BYTES:
        return Struct(CType("u", 8 * nbytes), 1)
    return Struct(WORD, nbytes // WORD_BYTES)


def build(struct: Struct, fields: Sequence[Value]) -> VectorValue:
    """Write a vector of fields."""
    texts = ", ".join([each.text for each in fields])
    text = texts if struct.count == 1 else f"{struct.ctype.name}{{{texts}}}"
    return VectorValue(text, struct.ctype, fields[0].is_atom, tuple(fields))


def named(struct: Struct, name: str) -> VectorValue:
    """Return a vector that is a variable."""
    return VectorValue(name, struct.ctype, True, struct.fields_of(name))


def fields_of(value: Value) -> tuple[Value, ...]:
    """Return the fields of a vector; a scalar is its own."""
    return value.fields if isinstance(value, VectorValue) else (value,)


class CudaValueEmitter(ValueEmitter):
    """Writes values of one thread, and remembers which functions they call."""

    def emit(self, node: UOp, operands: Sequence[Value]) -> Value:
        """Write one value node."""
        row = find_instruction(node, self.target)
        if row is not None:
            return self.instruction(row, operands)
        if node.op not in EXPRESSIONS:
            raise InternalError(
                f"emit cuda: no text for this op: {node!r}; legalize should have removed it."
            )
        return EXPRESSIONS[node.op](self, node, *operands)

    def instruction(self, row: PtxInstruction, operands: Sequence[Value]) -> Value:
        """Write an instruction as a call of its function."""
        fields = [field for each in operands for field in fields_of(each)]
        if row.result is dtypes.void:
            return self.call(instruction_function(row), fields, WORD)
        struct = struct_of(row.result)
        called = self.call(instruction_function(row), fields, struct.ctype)
        return VectorValue(called.text, struct.ctype) if struct.count > 1 else called

    def type_of(self, dtype: DType) -> CType:
        """Return the type of a variable."""
        if dtype is dtypes.bool:
            return mask_type(1, 0)
        return storage_type(dtype) if dtype.lanes == 1 else struct_of(dtype).ctype


# Scalars.
def _const(e: CudaValueEmitter, node: UOp) -> Value:
    text = cuda_constant(node.dtype, node.attrs.bits)
    return Value(text, e.type_of(node.dtype), is_atom=not text.startswith("-"))


def cuda_constant(dtype: DType, bits: int) -> str:
    """Write a scalar constant; NaN and infinities by their bits."""
    text = constant_text(dtype, bits)
    if "__builtin" not in text:
        return text
    if dtype is dtypes.float32:
        return f"__uint_as_float(0x{bits:08x}u)"
    return f"__longlong_as_double(0x{bits:016x}ll)"


MATH = {
    Op.SQRT: {32: "__fsqrt_rn", 64: "__dsqrt_rn"},
    Op.FMA: {32: "__fmaf_rn", 64: "__fma_rn"},
    Op.ABS: {32: "fabsf", 64: "fabs"},
    Op.FLOOR: {32: "floorf", 64: "floor"},
    Op.TRUNC: {32: "truncf", 64: "trunc"},
}


def _math(e: CudaValueEmitter, node: UOp, *operands: Value) -> Value:
    ctype = operands[0].ctype
    arguments = ", ".join([each.text for each in operands])
    return Value(f"{MATH[node.op][ctype.bits]}({arguments})", ctype)


# (from, to) of one width: kinds and bits.
BITCASTS = {
    ("f", "u", 32): "__float_as_uint",
    ("f", "i", 32): "__float_as_int",
    ("u", "f", 32): "__uint_as_float",
    ("i", "f", 32): "__int_as_float",
    ("f", "u", 64): "__double_as_longlong",
    ("f", "i", 64): "__double_as_longlong",
    ("u", "f", 64): "__longlong_as_double",
    ("i", "f", 64): "__longlong_as_double",
}


def _bitcast(e: CudaValueEmitter, node: UOp, x: Value) -> Value:
    ctype = e.type_of(node.dtype)
    if x.ctype == ctype:
        return x
    function = BITCASTS.get((x.ctype.kind, ctype.kind, ctype.bits))
    if function is None:
        return Value(x.cast(ctype), ctype)
    text = f"{function}({x.text})"
    made_signed = ctype == CType("u", 64)
    return Value(f"({ctype.name}){text}" if made_signed else text, ctype)


def _call(e: CudaValueEmitter, node: UOp, cond: Value, *operands: Value) -> Value:
    ctype = operands[0].ctype
    library = library_call(node.attrs.function, ctype)
    arguments = [*[each.text for each in operands], *library.arguments]
    called = f"{library.name}({', '.join(arguments)})"
    if library.function is not None:
        e.functions[library.name] = library.function
    if cond.text == "1":
        return Value(called, ctype)
    return Value(f"{cond.operand} ? {called} : 0", ctype, is_atom=False)


def _exchange(e: CudaValueEmitter, node: UOp, x: Value) -> Value:
    ctype = x.ctype
    is_narrow = ctype.bits < WORD.bits
    argument = f"(int){x.operand}" if is_narrow else x.text
    text = f"__shfl_xor_sync({ALL_LANES}, {argument}, {node.attrs.distance})"
    if ctype.kind == "b":
        return Value(f"{text} != 0", ctype, is_atom=False)
    return Value(f"({ctype.name}){text}" if is_narrow else text, ctype)


# Vectors.
def _splat(e: CudaValueEmitter, node: UOp, x: Value) -> Value:
    constant = node.operands[0]
    if constant.op is Op.CONST and node.dtype.is_half:
        return Value(f"0x{constant.attrs.bits * 0x10001:08x}u", WORD)
    return _stack(e, node, *[x] * node.dtype.lanes)


def _stack(e: CudaValueEmitter, node: UOp, *lanes: Value) -> Value:
    struct = struct_of(node.dtype)
    if struct.field == storage_type(node.dtype.scalar):
        return build(struct, lanes)
    per_word = len(lanes) // struct.count
    groups = [lanes[i : i + per_word] for i in range(0, len(lanes), per_word)]
    return build(struct, [_word(struct.field, each) for each in groups])


def _word(word: CType, lanes: Sequence[Value]) -> Value:
    """Write a word of narrow lanes, or the word that they were all taken from."""
    origins = [each.origin if isinstance(each, LaneValue) else None for each in lanes]
    first = origins[0]
    if first is not None and origins == [(first[0], number) for number in range(len(lanes))]:
        return first[0]
    bits = word.bits // len(lanes)
    unsigned = CType("u", bits)
    terms = []
    for number, each in enumerate(lanes):
        term = f"(unsigned){each.cast(unsigned)}"
        terms.append(f"{term} << {bits * number}" if number else term)
    text = " | ".join(terms)
    return Value(f"({word.name})({text})" if word != WORD else text, word, word != WORD)


@dataclass(frozen=True, slots=True)
class LaneValue(Value):
    """One lane of a word: `origin` is the word and the lane's number within it."""

    origin: tuple[Value, int] | None = None


def _lane(e: CudaValueEmitter, node: UOp, x: Value) -> Value:
    source = node.operands[0].dtype
    number = node.attrs.lanes[0]
    fields = fields_of(x)
    element = storage_type(source.scalar)
    if fields[0].ctype.nbytes == element.nbytes:
        return truth(fields[number]) if node.dtype is dtypes.bool else fields[number]
    per_word = source.lanes // len(fields)
    word, place = fields[number // per_word], number % per_word
    shifted = f"{word.operand} >> {element.bits * place}" if place else word.text
    if node.dtype is dtypes.bool:
        masked = f"({shifted} & 255)" if place else f"({word.operand} & 255)"
        return Value(f"{masked} != 0", mask_type(1, 0), is_atom=False)
    text = f"({element.name})({shifted})" if place else f"({element.name}){word.operand}"
    return LaneValue(text, element, True, (word, place))


def truth(x: Value) -> Value:
    """Read a stored byte as a bool: any but 0 is true."""
    return Value(f"{x.operand} != 0", mask_type(1, 0), is_atom=False)


def _shuffle(e: CudaValueEmitter, node: UOp, x: Value, y: Value) -> Value:
    """Take a pair that is one word of a vector."""
    first, second = node.attrs.lanes
    if x is not y or first % 2 or second != first + 1:
        raise InternalError(f"emit cuda: no pair of one word: {node!r}; lanes were to be split.")
    word = fields_of(x)[first // 2]
    return VectorValue(word.text, word.ctype, word.is_atom, (word,))


def _mma(e: CudaValueEmitter, node: UOp, *operands: Value) -> Value:
    return e.instruction(MMA_ROWS[node.attrs.instruction], operands)


SCALAR_OPS = (
    *(Op.ADD, Op.SUB, Op.MUL, Op.DIV, Op.TRUNCDIV, Op.TRUNCMOD, Op.NEG, Op.SHL, Op.SHR),
    *(Op.LT, Op.LE, Op.EQ, Op.NE, Op.AND, Op.OR, Op.XOR, Op.WHERE, Op.CAST),
)
EXPRESSIONS: dict[Op, Callable[..., Value]] = {
    **{op: C_EXPRESSIONS[op] for op in SCALAR_OPS},
    **dict.fromkeys(MATH, _math),
    Op.CONST: _const,
    Op.BITCAST: _bitcast,
    Op.CALL: _call,
    Op.EXCHANGE: _exchange,
    Op.SPLAT: _splat,
    Op.STACK: _stack,
    Op.LANE: _lane,
    Op.SHUFFLE: _shuffle,
    Op.MMA: _mma,
}
