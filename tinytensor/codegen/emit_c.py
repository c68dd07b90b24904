"""Turns legal LINEAR form into one self-contained C file: a function, and the door to it."""

from __future__ import annotations

import re

from tinytensor.codegen.emit import estimate_steps
from tinytensor.codegen.emit_c_functions import (
    can_mask,
    load_function,
    load_some_function,
    store_function,
    store_some_function,
)
from tinytensor.codegen.emit_c_types import CKind, CType, declare_vector, storage_type
from tinytensor.codegen.emit_c_values import Value, ValueEmitter, convert
from tinytensor.codegen.emit_walk import CONTROL, StatementWriter
from tinytensor.dtype import dtypes
from tinytensor.errors import InternalError
from tinytensor.ops.linear import Linear
from tinytensor.ops.op import Op
from tinytensor.ops.program import Program
from tinytensor.ops.uop import UOp
from tinytensor.target import Target

# Above, which is some 10 us, other Python threads may run meanwhile; to let them costs 22 ns.
LONG_RUN_STEPS = 500_000
LARGEST_LOCAL_BYTES = 32 << 10  # of scratch memory that lies on the stack of the thread
VECTOR_NAME = re.compile(r"\b([fiu])(8|16|32|64)x(\d+)(_loose)?\b")


def emit_c(linear: Linear, target: Target) -> Program:
    """Write a kernel as C.

    Takes:  LINEAR form after `legalize` for the same target.
    Gives:  C with GCC's vector extensions and no headers, for GCC 12 and Clang; without implicit
            multiply-add (the compiler's flags) it has the bits of the LINEAR form.
    """
    emitter = _Emitter(linear, target)
    kernel = emitter.kernel()
    functions = [function.text for function in emitter.values.functions.values()]
    body = "\n\n".join([*functions, kernel, door(linear)])
    source = "\n".join([*_declare_vectors(body, target, linear.name), body, ""])
    return Program(
        name=linear.name,
        source=source,
        params=len(linear.params),
        workspace_bytes=0 if is_local(linear) else linear.workspace_bytes,
        libraries=tuple(sorted(emitter.values.libraries)),
        scalars=linear.scalars,
    )


def _declare_vectors(body: str, target: Target, name: str) -> list[str]:
    """Declare the vector types that a text names."""
    kinds: dict[str, CKind] = {"f": "f", "i": "i", "u": "u"}
    declarations = set()
    for kind, bits, lanes, loose in VECTOR_NAME.findall(body):
        ctype = CType(kinds[kind], int(bits), int(lanes))
        if ctype.nbytes > target.vector_bytes or ctype.lanes & (ctype.lanes - 1):
            raise InternalError(
                f"emit c: {name}: no register holds this vector: {ctype.short}; it must have a "
                f"power of two of lanes and at most {target.vector_bytes} bytes."
            )
        declarations.add(declare_vector(ctype, loose))
    lines = sorted(declarations)
    if "INLINE " in body:
        lines.append("#define INLINE static inline __attribute__((always_inline))")
    return [*lines, ""] if lines else []


class _Emitter(StatementWriter):
    """Writes the kernel's function in C."""

    def __init__(self, linear: Linear, target: Target) -> None:
        super().__init__(linear, ValueEmitter(target))

    def kernel(self) -> str:
        """Write the function."""
        self.write_body()
        head = f"static __attribute__((noinline)) void {self.linear.name}({self.params()})"
        return "\n".join([head, "{", *self.lines, "}"])

    def params(self) -> str:
        """Write the params: written ones overlap no other, so `restrict` holds for all."""
        texts = []
        for number, param in enumerate(self.linear.params):
            const = "" if param.written else "const "
            texts.append(f"{const}{storage_type(param.dtype).name} *restrict p{number}")
        if self.linear.workspace_bytes:
            texts.append("unsigned char *restrict workspace")
        texts += self.scalars()
        if self.linear.is_instanced:
            texts.append("int extent")
        return "\n    " + ",\n    ".join(texts) if texts else "void"

    # Memory.
    def load(self, node: UOp, buffer: Value, index: Value, guard: Value | None = None) -> Value:
        """Write a load; one that is partial or guarded fills a variable of zeros first."""
        memory = storage_type(node.dtype)
        if memory.lanes == 1:
            text = f"{buffer.text}[{index.text}]"
            loaded = Value(text, memory)
            if guard is not None:
                loaded = Value(f"{guard.operand} ? {text} : 0", memory, is_atom=False)
        elif guard is None and node.attrs.valid == memory.lanes:
            address = Value(_address(buffer, index), memory)
            loaded = self.values.call(load_function(memory), (address,), memory)
        elif guard is None and can_mask(memory, self.values.target):
            function = load_some_function(memory)
            operands = Value(_address(buffer, index), memory), _first_lanes(node)
            loaded = self.values.call(function, operands, memory)
        else:
            loaded = self.fill(node, memory, _address(buffer, index), guard)
        if node.dtype.scalar is not dtypes.bool:
            return loaded
        return self.truth(loaded)

    def fill(self, node: UOp, memory: CType, address: str, guard: Value | None) -> Value:
        """Copy the valid lanes into a variable of zeros, if the guard holds."""
        name = self.name("v")
        self.line(f"{memory.name} {name} = {{0}};")
        condition = "" if guard is None else f"if ({guard.text}) "
        nbytes = node.attrs.valid * memory.bits // 8
        self.line(f"{condition}__builtin_memcpy(&{name}, {address}, {nbytes});")
        return Value(name, memory)

    def truth(self, x: Value) -> Value:
        """Read stored bytes as bools: any byte but 0 is true."""
        if x.ctype.lanes == 1:
            return Value(f"{x.operand} != 0", CType("b", 8), is_atom=False)
        ctype = x.ctype.of_kind("i")
        return Value(f"({ctype.name})({x.operand} != 0)", ctype)

    def stored(self, node: UOp, value: Value) -> Value:
        """Return a value as memory holds it: of a mask, bytes 0 and 1."""
        memory = storage_type(node.operands[2].dtype)
        if node.operands[2].dtype.scalar is not dtypes.bool or memory.lanes == 1:
            return value
        narrow = convert(value, memory.of_kind("i"))
        return Value(f"({memory.name})({narrow.operand} & 1)", memory)


def _first_lanes(node: UOp) -> Value:
    """Write the valid lanes as bits."""
    return Value(f"{(1 << node.attrs.valid) - 1:#x}", CType("u", 64))


def _address(buffer: Value, index: Value) -> str:
    return f"{buffer.text} + {index.operand}"


# Statements.
def _register(e: _Emitter, node: UOp) -> None:
    register = Value(e.name("r"), e.values.type_of(node.dtype))
    e.line(f"{register.ctype.name} {register.text};")
    e.bind(node, register)


def _write(e: _Emitter, node: UOp) -> None:
    register, value = (e.find(each) for each in node.operands)
    if value.ctype != register.ctype and register.ctype.lanes > 1:
        value = convert(value, register.ctype)
    e.line(f"{register.text} = {value.text};")


def _store(e: _Emitter, node: UOp) -> None:
    buffer, index, value, *guards = (e.find(each) for each in node.operands)
    condition = f"if ({guards[0].text}) " if guards else ""
    stored = e.stored(node, value)
    lanes, valid = stored.ctype.lanes, node.attrs.valid
    if lanes == 1:
        e.line(f"{condition}{buffer.text}[{index.text}] = {stored.text};")
    elif valid == lanes:
        address = Value(_address(buffer, index), stored.ctype)
        call = e.values.call(store_function(stored.ctype), (address, stored), stored.ctype)
        e.line(f"{condition}{call.text};")
    elif valid & (valid - 1) and can_mask(stored.ctype, e.values.target):
        address = Value(_address(buffer, index), stored.ctype)
        operands = address, stored, _first_lanes(node)
        call = e.values.call(store_some_function(stored.ctype), operands, stored.ctype)
        e.line(f"{condition}{call.text};")
    else:
        name = e.name("v")
        e.line(f"{stored.ctype.name} {name} = {stored.text};")
        nbytes = valid * stored.ctype.bits // 8
        e.line(f"{condition}__builtin_memcpy({_address(buffer, index)}, &{name}, {nbytes});")


def _workspace(e: _Emitter, node: UOp) -> None:
    region = Value(e.name("w"), storage_type(node.dtype))
    element = region.ctype.name
    start = f"({element} *)(workspace + {node.attrs.offset_bytes})"
    e.line(f"{element} *restrict {region.text} = {start};")
    e.bind(node, region)


_Emitter.statements = {
    **CONTROL,
    Op.REGISTER: _register,
    Op.WRITE: _write,
    Op.STORE: _store,
    Op.WORKSPACE: _workspace,
}
_Emitter.nameless = frozenset((Op.CONST, Op.PARAM, Op.EXTENT))


# How a word holds what a kernel takes: an address, an int64 or a float64.
FROM_WORD = {
    "p": "(void *)words[{0}]",
    "q": "(long long)words[{0}]",
    "d": "((union number){{words[{0}]}}).value",
}
LOCAL = "    unsigned char workspace[{0}] __attribute__((aligned(64)));\n"
DOOR = """\
union number {{
    unsigned long long word;
    double value;
}};
const int {name}_is_long = {is_long};

void {name}_step(const unsigned long long *words)
{{
{local}    {name}({arguments});
}}"""


def is_local(linear: Linear) -> bool:
    """Whether a kernel's scratch memory is so little that it lies on the stack."""
    return 0 < linear.workspace_bytes <= LARGEST_LOCAL_BYTES


def door(linear: Linear) -> str:
    """Write how a kernel is called: with words side by side, of an instance the extent first."""
    params, first = len(linear.params), int(linear.is_instanced)
    has_address = linear.workspace_bytes > 0 and not is_local(linear)
    takes = "p" * (params + has_address) + linear.scalars
    arguments = [FROM_WORD[kind].format(at) for at, kind in enumerate(takes, first)]
    arguments[params:params] = ["workspace"] * is_local(linear)
    arguments += ["(int)words[0]"] * first
    return DOOR.format(
        name=linear.name,
        is_long=int(estimate_steps(linear.statements) > LONG_RUN_STEPS),
        local=LOCAL.format(linear.workspace_bytes) if is_local(linear) else "",
        arguments=", ".join(arguments),
    )
