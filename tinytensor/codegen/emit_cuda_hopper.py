"""The CUDA statements that Hopper adds: transaction barriers, bulk copies, warpgroup products."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tinytensor.codegen import instructions_hopper as hopper
from tinytensor.codegen.emit_c_types import storage_type
from tinytensor.codegen.emit_c_values import Value
from tinytensor.codegen.emit_cuda_blocks import address_on_chip, plain
from tinytensor.codegen.emit_cuda_functions import DEVICE
from tinytensor.codegen.emit_cuda_values import fields_of
from tinytensor.codegen.instructions import Function
from tinytensor.codegen.instructions_cuda import I32, PtxInstruction
from tinytensor.dtype import dtypes
from tinytensor.ops.op import Op
from tinytensor.ops.program import TensorMap
from tinytensor.ops.tile import CHUNK_BYTES
from tinytensor.ops.uop import UOp

if TYPE_CHECKING:
    from tinytensor.codegen.emit_cuda import CudaWriter

ADDRESS = storage_type(dtypes.uint64)


# Transaction barriers.
def _init(e: CudaWriter, node: UOp) -> None:
    barriers = node.operands[0]
    arrivals = Value(str(barriers.attrs.arrivals), storage_type(I32))
    for number in range(barriers.attrs.count):
        index = Value(str(number), storage_type(I32))
        e.call(hopper.MBARRIER_INIT, address_on_chip(e.find(barriers), index), arrivals)
    e.call(hopper.MBARRIER_PUBLISH)


def _on_barrier(row: PtxInstruction) -> Callable[[CudaWriter, UOp], None]:
    def write(e: CudaWriter, node: UOp) -> None:
        barriers, number, *further = (e.find(each) for each in node.operands)
        e.call(row, address_on_chip(barriers, number), *further)

    return write


# Bulk copies.
def _stage_address(e: CudaWriter, tile: UOp, stage: UOp) -> Value:
    elements = tile.attrs.rows * tile.attrs.columns
    index = f"{e.find(stage).operand} * {elements}"
    return address_on_chip(e.find(tile), Value(index, storage_type(I32), is_atom=False))


def _map_address(e: CudaWriter, tensor_map: UOp) -> Value:
    return Value(f"({ADDRESS.name})&{e.find(tensor_map).text}", ADDRESS)


def describe_map(node: UOp) -> TensorMap:
    """Tell the runtime of a TENSOR_MAP, in bytes."""
    (buffer,), attrs, itemsize = node.operands, node.attrs, node.dtype.itemsize
    is_param = buffer.op is Op.PARAM
    return TensorMap(
        number=buffer.attrs.number if is_param else -1,
        offset_bytes=attrs.offset * itemsize + (0 if is_param else buffer.attrs.offset_bytes),
        itemsize=itemsize,
        shape=attrs.shape,
        strides_bytes=tuple([stride * itemsize for stride in attrs.strides]),
        box=attrs.box,
        swizzle_bytes=attrs.swizzle_bytes,
        rounds=attrs.rounds,
        extents=attrs.extents,
        steps=attrs.steps,
    )


def _bulk_load(e: CudaWriter, node: UOp) -> None:
    tile, stage, tensor_map, barriers, number, *places = node.operands
    e.call(
        hopper.bulk_load(len(places)),
        *(_stage_address(e, tile, stage), _map_address(e, tensor_map)),
        *(address_on_chip(e.find(barriers), e.find(number)), *[e.find(each) for each in places]),
    )


def _bulk_store(e: CudaWriter, node: UOp) -> None:
    tensor_map, tile, stage, *places = node.operands
    e.call(
        hopper.bulk_store(len(places)),
        *(_map_address(e, tensor_map), _stage_address(e, tile, stage)),
        *[e.find(each) for each in places],
    )


def _bulk_wait(e: CudaWriter, node: UOp) -> None:
    e.call(hopper.bulk_wait(node.attrs.pending))


# Products of a warpgroup.
def _fence(e: CudaWriter, node: UOp) -> None:
    _pin(e, node.operands)
    e.call(hopper.WGMMA_FENCE)


def _wait(e: CudaWriter, node: UOp) -> None:
    e.call(hopper.wgmma_wait(node.attrs.pending))
    _pin(e, node.operands)


def _pin(e: CudaWriter, accumulators: Sequence[UOp]) -> None:
    """Keep the compiler from moving uses of accumulators past this place."""
    for node in accumulators:
        accumulator, letter = e.find(node), _letter(node)
        count = len(fields_of(accumulator))
        e.line("#pragma unroll")
        e.line(
            f'for (int i = 0; i < {count}; i++) asm volatile("" : "+{letter}"({accumulator.text}'
            "[i]) :: "
            '"memory");'
        )


def _letter(accumulator: UOp) -> str:
    """Return the constraint of a register that holds a sum."""
    return "f" if accumulator.dtype.is_float else "r"


def _wgmma(e: CudaWriter, node: UOp) -> None:
    accumulator, x, x_index, y, y_index, adds = node.operands
    function = wgmma_function(node)
    e.values.functions[function.name] = function
    x_block = _descriptor(e, x, x_index, node.attrs.a_ahead)
    y_block = _descriptor(e, y, y_index, node.attrs.b_ahead)
    sums, condition = e.find(accumulator).text, e.find(adds).text
    e.line(f"{function.name}({sums}, {x_block}, {y_block}, {condition});")


def _descriptor(e: CudaWriter, tile: UOp, index: UOp, ahead: int) -> str:
    """Write a block's descriptor: the index's address is shared, and a constant added to it."""
    e.values.functions[DESCRIPTOR.name] = DESCRIPTOR
    address = address_on_chip(e.find(tile), e.find(index))
    chunks = ahead * tile.dtype.itemsize // CHUNK_BYTES
    layout = f"0x{hopper.descriptor_constant(tile):016x}ull"
    return f"{DESCRIPTOR.name}({layout}, {address.text}, {chunks})"


DESCRIPTOR = Function(
    "matrix_descriptor",
    f"""\
{DEVICE} unsigned long long matrix_descriptor(
    unsigned long long layout, unsigned address, unsigned chunks_ahead)
{{
    const unsigned low = ((unsigned)layout | (address & 0x3ffffu) >> 4) + chunks_ahead;
    return layout >> 32 << 32 | low;
}}""",
)


def wgmma_function(node: UOp) -> Function:
    """Wrap a product: the accumulators are one array."""
    attrs = node.attrs
    count = node.operands[0].dtype.lanes
    kinds = "".join("k" if each else "m" for each in (attrs.a_k_major, attrs.b_k_major))
    name = f"wgmma_{attrs.instruction.replace('.', '_')}_{kinds}"
    template = hopper.wgmma_template(attrs.instruction, attrs.a_k_major, attrs.b_k_major)
    letter, field = _letter(node.operands[0]), storage_type(node.operands[0].dtype.scalar).name
    outputs = ", ".join([f'"+{letter}"(d[{number}])' for number in range(count)])
    params = f"{field} (&d)[{count}], unsigned long long x, unsigned long long y, int adds"
    inputs = '"l"(x), "l"(y), "r"(adds)'
    body = f'    asm volatile("{template}"\n        : {outputs}\n        : {inputs});'
    return Function(name, f"{DEVICE} void {name}({params})\n{{\n{body}\n}}")


HOPPER_STATEMENTS: dict[Op, Callable[[CudaWriter, UOp], None]] = {
    Op.MBARRIER_INIT: _init,
    Op.MBARRIER_EXPECT: _on_barrier(hopper.MBARRIER_EXPECT),
    Op.MBARRIER_ARRIVE: _on_barrier(hopper.MBARRIER_ARRIVE),
    Op.MBARRIER_WAIT: _on_barrier(hopper.MBARRIER_WAIT),
    Op.BULK_LOAD: _bulk_load,
    Op.BULK_STORE: _bulk_store,
    Op.BULK_COMMIT: plain(hopper.BULK_COMMIT),
    Op.BULK_WAIT: _bulk_wait,
    Op.PROXY_FENCE: plain(hopper.PROXY_FENCE),
    Op.WGMMA_FENCE: _fence,
    Op.WGMMA: _wgmma,
    Op.WGMMA_COMMIT: plain(hopper.WGMMA_COMMIT),
    Op.WGMMA_WAIT: _wait,
}
