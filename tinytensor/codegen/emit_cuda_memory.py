"""The CUDA statements of memory and registers: stores, regions, register variables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tinytensor.codegen.emit_c_types import CType, storage_type
from tinytensor.codegen.emit_c_values import Value
from tinytensor.codegen.emit_cuda_values import VectorValue, fields_of, struct_of
from tinytensor.dtype import dtypes
from tinytensor.ops.op import CLOSERS, OPENERS, Op
from tinytensor.ops.uop import UOp

if TYPE_CHECKING:
    from tinytensor.codegen.emit_cuda import CudaWriter


def element_address(buffer: Value, index: Value) -> str:
    """Write a pointer to an element."""
    return buffer.text if index.text == "0" else f"{buffer.text} + {index.operand}"


def address_in_global(buffer: Value, index: Value) -> Value:
    """Write the address of an element of global memory, as instructions take it."""
    ctype = storage_type(dtypes.uint64)
    return Value(f"({ctype.name})({element_address(buffer, index)})", ctype)


def _store(e: CudaWriter, node: UOp) -> None:
    buffer, index, value, *guards = (e.find(each) for each in node.operands)
    condition = f"if ({guards[0].text}) " if guards else ""
    dtype = node.operands[2].dtype
    if dtype.lanes == 1:
        e.line(f"{condition}{buffer.text}[{index.text}] = {value.text};")
        return
    struct = struct_of(dtype).ctype
    address = f"*({struct.name} *)({element_address(buffer, index)})"
    e.line(f"{condition}{address} = {value.text};")


REGIONS = {
    **dict.fromkeys((Op.SHARED, Op.TILE, Op.MBARRIERS), ("s", "shared", " *")),
    Op.WORKSPACE: ("w", "workspace", " *__restrict__ "),
}


def declare_region(node: UOp, name: str) -> str:
    """Declare a pointer to a region of shared memory or scratch memory."""
    _, memory, pointer = REGIONS[node.op]
    element = storage_type(node.dtype).name
    offset = node.attrs.offset_bytes
    start = f"({memory} + {offset})" if offset else memory
    return f"{element}{pointer}{name} = ({element} *){start};"


def find_filled_at_once(statements: Sequence[UOp]) -> dict[UOp, UOp]:
    """Return, for registers whose block writes them before it opens another, that first write."""
    found: dict[UOp, UOp] = {}
    waiting: set[UOp] = set()
    for node in statements:
        if node.op is Op.REGISTER:
            waiting.add(node)
        elif node.op in OPENERS or node.op in CLOSERS:
            waiting.clear()
        elif node.op is Op.WRITE and node.operands[0] in waiting:
            found[node.operands[0]] = node
            waiting.remove(node.operands[0])
    return found


# Registers. What a warpgroup accumulates in is an array whose indices are known when compiled.
def _register(e: CudaWriter, node: UOp) -> None:
    name = e.name("r")
    lanes = node.dtype.lanes
    if lanes == 1 or node.dtype.is_half:
        register = Value(name, e.values.type_of(node.dtype))
        if node not in e.filled_at_once:
            e.line(f"{e.spell(register.ctype)} {name};")
        e.bind(node, register)
        return
    element = storage_type(node.dtype.scalar)
    e.line(f"{element.name} {name}[{lanes}];")
    e.bind(node, _array(name, element, lanes))


def _array(name: str, element: CType, lanes: int) -> VectorValue:
    fields = tuple([Value(f"{name}[{number}]", element) for number in range(lanes)])
    return VectorValue(name, CType(element.kind, element.bits, lanes), True, fields)


def read_register(e: CudaWriter, register: Value) -> Value:
    """Write what a register holds now: an array is copied, because it may be written later."""
    if not isinstance(register, VectorValue):
        return register
    fields = fields_of(register)
    copied = _array(e.name("v"), fields[0].ctype, len(fields))
    e.line(f"{fields[0].ctype.name} {copied.text}[{len(fields)}];")
    e.line("#pragma unroll")
    e.line(f"for (int i = 0; i < {len(fields)}; i++) {copied.text}[i] = {register.text}[i];")
    return copied


def _write(e: CudaWriter, node: UOp) -> None:
    register, value = (e.find(each) for each in node.operands)
    if not isinstance(register, VectorValue):
        declares = e.filled_at_once.get(node.operands[0]) is node
        ctype = f"{e.spell(register.ctype)} " if declares else ""
        e.line(f"{ctype}{register.text} = {value.text};")
        return
    for each, part in zip(fields_of(register), fields_of(value), strict=True):
        e.line(f"{each.text} = {part.text};")


MEMORY_STATEMENTS: dict[Op, Callable[[CudaWriter, UOp], None]] = {
    Op.STORE: _store,
    Op.REGISTER: _register,
    Op.WRITE: _write,
}
