"""Turns one value node and the C text of its operands into a C expression."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tinytensor.codegen.emit_c_functions import (
    bitcast_function,
    call_function,
    select_function,
    splat_function,
)
from tinytensor.codegen.emit_c_types import (
    GREATEST_MASK_BITS,
    LEAST_MASK_BITS,
    CType,
    constant_text,
    mask_type,
    storage_type,
)
from tinytensor.codegen.instructions import LIBM, Function, extreme_function, function_of
from tinytensor.codegen.legalize_casts import constant_of
from tinytensor.dtype import DType, dtypes
from tinytensor.errors import InternalError
from tinytensor.ops.bounds import bounds_of
from tinytensor.ops.op import COMPARE, Op
from tinytensor.ops.uop import UOp
from tinytensor.records import dataclass
from tinytensor.target import Target

SYMBOLS = {
    **{Op.ADD: "+", Op.SUB: "-", Op.MUL: "*", Op.DIV: "/", Op.TRUNCDIV: "/", Op.TRUNCMOD: "%"},
    **{Op.LT: "<", Op.LE: "<=", Op.EQ: "==", Op.NE: "!="},
    **{Op.AND: "&", Op.OR: "|", Op.XOR: "^", Op.SHL: "<<", Op.SHR: ">>"},
}
PROMOTED_BITS = 32  # C computes narrower integers as int


@dataclass(frozen=True, slots=True)
class Value:
    """A C expression and its type; `is_atom`: it needs no parentheses beside an operator."""

    text: str
    ctype: CType
    is_atom: bool = True

    @property
    def operand(self) -> str:
        """The text as part of a larger expression."""
        return self.text if self.is_atom else f"({self.text})"

    def cast(self, ctype: CType) -> str:
        """The operand's bits or value as another type, unless it has that type."""
        return self.operand if ctype == self.ctype else f"({ctype.name}){self.operand}"


class ValueEmitter:
    """Writes values, and remembers which functions and libraries they call."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.functions: dict[str, Function] = {}
        self.libraries: set[str] = set()

    def emit(self, node: UOp, operands: Sequence[Value]) -> Value:
        """Write one value node."""
        function = function_of(node, self.target)
        if function is not None:
            return self.call(function, operands, storage_type(node.dtype))
        if node.op not in EXPRESSIONS:
            raise InternalError(
                f"emit c: no text for this op: {node!r}; legalize should have removed it."
            )
        return EXPRESSIONS[node.op](self, node, *operands)

    def call(self, function: Function, operands: Sequence[Value], ctype: CType) -> Value:
        """Write a call, and keep the function's definition."""
        self.functions[function.name] = function
        self.libraries.update(function.libraries)
        return Value(f"{function.name}({', '.join(each.text for each in operands)})", ctype)

    def type_of(self, dtype: DType) -> CType:
        """Return the type of a value that is not made of other values: masks get their usual width.

        That is the width of the lanes that fill a register, as those that it will select from do.
        """
        if dtype.scalar is not dtypes.bool:
            return storage_type(dtype)
        bits = self.target.vector_bytes * 8 // dtype.lanes
        return mask_type(dtype.lanes, min(max(bits, LEAST_MASK_BITS), GREATEST_MASK_BITS))


def convert(x: Value, ctype: CType) -> Value:
    """Write a conversion by value; of a mask, to another width."""
    if x.ctype == ctype:
        return x
    if ctype.lanes == 1:
        return Value(f"({ctype.name}){x.operand}", ctype)
    return Value(f"__builtin_convertvector({x.text}, {ctype.name})", ctype)


def _const(e: ValueEmitter, node: UOp) -> Value:
    text = constant_text(node.dtype, node.attrs.bits)
    return Value(text, e.type_of(node.dtype), is_atom=not text.startswith("-"))


def _can_wrap(node: UOp) -> bool:
    """Whether the exact result may lie outside the type: then C must not see a signed overflow."""
    if node.dtype.lanes > 1:
        return True
    (a, b), (c, d) = (bounds_of(each) for each in node.operands)
    exact = {
        Op.ADD: (a + c, b + d),
        Op.SUB: (a - d, b - c),
        Op.MUL: (a * c, a * d, b * c, b * d),
    }[node.op]
    return min(exact) < node.dtype.min or max(exact) > node.dtype.max


def _arithmetic(e: ValueEmitter, node: UOp, x: Value, y: Value) -> Value:
    is_wide = x.ctype.bits >= PROMOTED_BITS
    if x.ctype.kind == "f" or (is_wide and not _can_wrap(node)):
        return _infix(e, node, x, y)
    return _wrapping(f"{{}} {SYMBOLS[node.op]} {{}}", x.ctype, x, y)


def _wrapping(template: str, ctype: CType, *operands: Value) -> Value:
    """Compute in the unsigned type, where overflow wraps, and go back."""
    wide = ctype.of_kind("u")
    if ctype.lanes == 1 and ctype.bits < PROMOTED_BITS:
        wide = CType("u", PROMOTED_BITS)
    text = template.format(*[each.cast(wide) for each in operands])
    if wide == ctype:
        return Value(text, ctype, is_atom=False)
    return Value(f"({ctype.name})({text})", ctype)


def _infix(e: ValueEmitter, node: UOp, x: Value, y: Value) -> Value:
    text = f"{x.operand} {SYMBOLS[node.op]} {y.operand}"
    return Value(text, x.ctype, is_atom=False)


def _negate(e: ValueEmitter, node: UOp, x: Value) -> Value:
    if x.ctype.kind == "f":
        return Value(f"-({x.text})", x.ctype, is_atom=False)  # never --x
    return _wrapping("-{}", x.ctype, x)


def _compare(e: ValueEmitter, node: UOp, x: Value, y: Value) -> Value:
    text = _infix(e, node, x, y).text
    ctype = mask_type(node.dtype.lanes, x.ctype.bits)
    if ctype.lanes > 1:
        return Value(f"({ctype.name})({text})", ctype)
    return Value(text, ctype, is_atom=False)


def _bits(e: ValueEmitter, node: UOp, x: Value, y: Value) -> Value:
    if node.dtype.scalar is dtypes.bool:
        constant = constant_of(node.operands[1])
        if node.op is Op.XOR and constant is not None and constant.value:
            sign = "~" if x.ctype.lanes > 1 else "!"
            return Value(f"{sign}{x.operand}", x.ctype)
        y = convert(y, x.ctype)
    return _infix(e, node, x, y)


def _shift_left(e: ValueEmitter, node: UOp, x: Value, y: Value) -> Value:
    return _wrapping("{} << {}", x.ctype, x, y)


def _where(e: ValueEmitter, node: UOp, cond: Value, x: Value, y: Value) -> Value:
    if x.ctype.lanes == 1:
        return Value(f"{cond.operand} ? {x.operand} : {y.operand}", x.ctype, is_atom=False)
    y = convert(y, x.ctype)
    decider, *values = node.operands
    if x.ctype.kind == "f" and decider.op is Op.LT and {*values} == {*decider.operands}:
        is_larger = values[0] is decider.operands[1]
        return e.call(extreme_function(node.dtype, is_larger, e.target), (x, y), x.ctype)
    mask = CType("i", x.ctype.bits, x.ctype.lanes)
    function = select_function(x.ctype, mask)
    return e.call(function, (convert(cond, mask), x, y), x.ctype)


def _cast(e: ValueEmitter, node: UOp, x: Value) -> Value:
    return convert(x, storage_type(node.dtype))


def _bitcast(e: ValueEmitter, node: UOp, x: Value) -> Value:
    if node.dtype.scalar is dtypes.bool:
        return x
    ctype = storage_type(node.dtype)
    if x.ctype == ctype:
        return x
    if ctype.lanes == 1 and "f" in (ctype.kind, x.ctype.kind):
        return e.call(bitcast_function(ctype, x.ctype), (x,), ctype)
    return Value(x.cast(ctype), ctype)


def _splat(e: ValueEmitter, node: UOp, x: Value) -> Value:
    ctype = e.type_of(node.dtype)
    if node.dtype.scalar is dtypes.bool:
        x = Value(f"-{x.operand}", ctype.scalar)
    return e.call(splat_function(ctype), (x,), ctype)


def _stack(e: ValueEmitter, node: UOp, *lanes: Value) -> Value:
    sign = "-" if node.dtype.scalar is dtypes.bool else ""
    ctype = e.type_of(node.dtype)
    texts = [sign + (each.operand if sign else each.text) for each in lanes]
    return Value(f"({ctype.name}){{{', '.join(texts)}}}", ctype)


def _pick(x: Value, lane: int) -> Value:
    """Write one lane as a scalar."""
    text = x.text if x.text.isidentifier() else f"({x.text})"
    return Value(f"{text}[{lane}]", x.ctype.scalar)


def _lane(e: ValueEmitter, node: UOp, x: Value) -> Value:
    picked = _pick(x, node.attrs.lanes[0])
    if node.dtype is dtypes.bool:
        return Value(f"{picked.text} != 0", mask_type(1, 0), is_atom=False)
    return picked


def _shuffle(e: ValueEmitter, node: UOp, x: Value, y: Value) -> Value:
    lanes: tuple[int, ...] = node.attrs.lanes
    y = convert(y, x.ctype)
    ctype = CType(x.ctype.kind, x.ctype.bits, len(lanes))
    chosen = ", ".join(map(str, lanes))
    return Value(f"__builtin_shufflevector({x.text}, {y.text}, {chosen})", ctype)


def _call(e: ValueEmitter, node: UOp, cond: Value, *operands: Value) -> Value:
    ctype = operands[0].ctype
    builtin = node.attrs.function + ("f" if ctype.bits == 32 else "")
    mask = CType("i", ctype.bits, ctype.lanes)
    if ctype.lanes > 1:
        function = call_function(builtin, ctype, mask, len(operands))
        return e.call(function, (convert(cond, mask), *operands), ctype)
    e.libraries.update(LIBM)
    call = f"__builtin_{builtin}({', '.join(each.text for each in operands)})"
    return Value(f"{cond.operand} ? {call} : 0", ctype, is_atom=False)


EXPRESSIONS: dict[Op, Callable[..., Value]] = {
    **dict.fromkeys((Op.ADD, Op.SUB, Op.MUL), _arithmetic),
    **dict.fromkeys((Op.DIV, Op.TRUNCDIV, Op.TRUNCMOD, Op.SHR), _infix),
    **dict.fromkeys(COMPARE, _compare),
    **dict.fromkeys((Op.AND, Op.OR, Op.XOR), _bits),
    Op.CONST: _const,
    Op.NEG: _negate,
    Op.SHL: _shift_left,
    Op.WHERE: _where,
    Op.CAST: _cast,
    Op.BITCAST: _bitcast,
    Op.SPLAT: _splat,
    Op.STACK: _stack,
    Op.LANE: _lane,
    Op.SHUFFLE: _shuffle,
    Op.CALL: _call,
}
