"""Turns legal LINEAR forms of a GPU into one self-contained CUDA file: an entry for each launch."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tinytensor.codegen.emit_c_types import CType, storage_type
from tinytensor.codegen.emit_c_values import Value
from tinytensor.codegen.emit_cuda_blocks import BLOCK_STATEMENTS, address_on_chip
from tinytensor.codegen.emit_cuda_functions import DEFINE_DEVICE, declare_struct
from tinytensor.codegen.emit_cuda_hopper import HOPPER_STATEMENTS, describe_map
from tinytensor.codegen.emit_cuda_memory import (
    MEMORY_STATEMENTS,
    REGIONS,
    declare_region,
    element_address,
    find_filled_at_once,
    read_register,
)
from tinytensor.codegen.emit_cuda_values import (
    CudaValueEmitter,
    LaneValue,
    VectorValue,
    named,
    struct_of,
    truth,
)
from tinytensor.codegen.emit_walk import CONTROL, StatementWriter
from tinytensor.codegen.instructions import Function
from tinytensor.codegen.instructions_cuda import LDMATRIX, LDMATRIX_TRANSPOSED, PtxInstruction
from tinytensor.dtype import dtypes
from tinytensor.errors import InternalError
from tinytensor.ops.instances import MOST_ELEMENTS
from tinytensor.ops.linear import Grid, Linear
from tinytensor.ops.op import Op
from tinytensor.ops.program import INSTANCE_WORDS, LaunchShape, Program
from tinytensor.ops.text import show
from tinytensor.ops.uop import UOp
from tinytensor.target import Target

# Operands from that one on are named: arms of `?:` would be branches, lanes be written twice.
EAGER = {Op.WHERE: 1, Op.STACK: 0, Op.SPLAT: 0}
SIMPLE = re.compile(r"-?[\w.]+(\[\d+\])?")
STRUCT_NAME = re.compile(r"\b([fiu])(32|64)x(\d+)\b")
SHARED_ALIGNMENT_BYTES = 1024
TENSOR_MAP = "struct __align__(64) TensorMap { unsigned long long words[16]; };"
PLACES = {
    **{"thread": "threadIdx.x", "block_x": "blockIdx.x"},
    **{"block_y": "blockIdx.y", "block_z": "blockIdx.z"},
}
INSTANCES = f"struct Instances {{ unsigned long long count, words[{INSTANCE_WORDS - 1}]; }};"
# A block is of the last instance that begins before it: rows are in the order of their blocks.
FIND_INSTANCE = """\
int low = 0, high = (int)instances.count - 1;
while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (instances.words[middle * WORDS] <= blockIdx.x) low = middle;
    else high = middle - 1;
}
const unsigned long long *row = instances.words + low * WORDS;
const int extent = (int)row[1];"""
STRUCTS = {"TensorMap": TENSOR_MAP, "Instances": INSTANCES}
ON_CHIP = (Op.SHARED, Op.TILE, Op.MBARRIERS)

# This launch goes on when the one before it has ended; only then may the next one start. In the
# other order blocks of many launches ahead wait in the multiprocessors' slots: on an H200 a product
# of 8.3 us took 11.8, one of 15.9 took 63; without either line the first takes 8.9 (2026-11-29).
# Source: PTX ISA, griddepcontrol.
GRID_DEPENDENCY = (
    'asm volatile("griddepcontrol.wait;" ::: "memory");',
    'asm volatile("griddepcontrol.launch_dependents;");',
)


def emit_cuda(linears: Sequence[Linear], name: str, target: Target) -> Program:
    """Write a kernel's launches as CUDA.

    Takes:  LINEAR forms after `split_lanes` and `legalize` for the same target, in launch order.
    Gives:  CUDA C++17 for NVRTC without headers; without implicit multiply-add (the compiler's
            flag) it has the bits of the LINEAR form.
    """
    workspace_bytes = max([each.workspace_bytes for each in linears])
    functions: dict[str, Function] = {}
    entries: list[str] = []
    launches: list[LaunchShape] = []
    for number, linear in enumerate(linears):
        entry = f"{name}_{number}"  # the name alone may be a function of CUDA, such as fma
        writer = CudaWriter(linear, target)
        entries.append(writer.entry(entry, workspace_bytes > 0))
        functions |= writer.values.functions
        launches.append(writer.launch(entry))
    body = "\n\n".join([*[each.text for each in functions.values()], *entries])
    return Program(
        name=name,
        source="\n".join([*_declarations(body), body, ""]),
        params=len(linears[0].params),
        workspace_bytes=workspace_bytes,
        launches=tuple(launches),
        scalars=linears[0].scalars,
    )


def _declarations(body: str) -> list[str]:
    """Declare the structs that a text names, and its shorthands."""
    found = sorted(set(STRUCT_NAME.findall(body)))
    lines = [declare_struct(CType(kind, int(bits), int(lanes))) for kind, bits, lanes in found]
    lines += [text for name, text in STRUCTS.items() if f" {name} " in body]
    if "DEVICE " in body:
        lines.append(DEFINE_DEVICE)
    return [*lines, ""] if lines else []


class CudaWriter(StatementWriter):
    """Writes one entry."""

    values: CudaValueEmitter

    def __init__(self, linear: Linear, target: Target) -> None:
        super().__init__(linear, CudaValueEmitter(target))
        self.waits_itself = "grid_dependency" in target.features
        self.tensor_maps: list[UOp] = []
        self.regions: dict[UOp, str] = {}
        self.filled_at_once = find_filled_at_once(linear.statements)

    @property
    def grid(self) -> Grid:
        """The blocks and threads of the launch."""
        if self.linear.grid is None:
            raise InternalError(
                f"emit cuda: {self.linear.name}: has no grid; a GPU's form says who runs it."
            )
        return self.linear.grid

    def launch(self, entry: str) -> LaunchShape:
        """Describe the launch; after the entry was written."""
        grid = self.grid
        maps = tuple([describe_map(each) for each in self.tensor_maps])
        shared_bytes = grid.shared_bytes
        waits = self.waits_itself
        across = "" if grid.across is None else show(grid.across)
        block_elements = MOST_ELEMENTS // grid.blocks[0] if self.linear.is_instanced else 0
        shape = (entry, grid.blocks, grid.threads, shared_bytes, maps, waits)
        return LaunchShape(*shape, block_elements, across)

    def entry(self, entry: str, has_workspace: bool) -> str:
        """Write the function."""
        self.write_body()
        head = f'extern "C" __global__ void __launch_bounds__({self.bounds()})'
        params = ",\n    ".join(self.params(has_workspace))
        lines = [head, f"{entry}(\n    {params})", "{", *self.prelude(), *self.lines, "}"]
        return "\n".join(lines)

    def bounds(self) -> str:
        """Write the threads of a block, and how many blocks must fit if the form says so.

        Without that number ptxas aims at as many threads as fit, which streams of loads want, and
        would rather spill one register (NVRTC 13.5); roles that divide the registers need it too.
        """
        grid = self.grid
        has_roles = any(node.op is Op.ROLE for node in self.linear.statements)
        resident = grid.resident or int(has_roles)
        return f"{grid.threads}, {resident}" if resident else f"{grid.threads}"

    def params(self, has_workspace: bool) -> list[str]:
        """Write the params; instanced ones are in a table."""
        if self.linear.is_instanced:
            return ["const __grid_constant__ Instances instances"]
        texts = [f"{type_} {name}" for name, type_ in self.pointers().items()]
        if has_workspace:
            texts.append("unsigned char *__restrict__ workspace")
        texts += self.scalars()
        maps = range(len(self.tensor_maps))
        texts += [f"const __grid_constant__ TensorMap m{number}" for number in maps]
        return texts

    def pointers(self) -> dict[str, str]:
        """Return the params' types: written ones overlap no other, so all are `__restrict__`."""
        return {
            f"p{number}": ("" if param.written else "const ")
            + f"{storage_type(param.dtype).name} *__restrict__"
            for number, param in enumerate(self.linear.params)
        }

    def find_instance(self) -> list[str]:
        """Declare what a block needs of its instance, which it looks up in the table."""
        pointers = self.pointers().items()
        lines = FIND_INSTANCE.replace("WORDS", str(len(pointers) + 2)).splitlines()
        for number, (name, type_) in enumerate(pointers, start=2):
            lines.append(f"{type_} {name} = ({type_})row[{number}];")
        return lines

    def prelude(self) -> list[str]:
        """Declare the places and the shared memory that the body names."""
        statements = self.linear.statements
        kinds = {node.attrs.kind for node in statements if node.op is Op.PLACE}
        ops = {node.op for node in statements}
        has_warps = Op.ROLE in ops or "warp" in kinds
        if has_warps:
            kinds.add("thread")
        lines = [] if Op.GRID_WAIT in ops else self.grid_dependency()
        places = PLACES
        if self.linear.is_instanced:
            lines += self.find_instance()
            places = {**PLACES, "block_x": "(int)(blockIdx.x - row[0])"}
        lines += [f"const int {kind} = {text};" for kind, text in places.items() if kind in kinds]
        if has_warps:
            lines.append("const int warp = __shfl_sync(0xffffffffu, thread / 32, 0);")
        if ops.intersection(ON_CHIP):
            align = f"__align__({SHARED_ALIGNMENT_BYTES})"
            lines.append(f"extern __shared__ {align} unsigned char shared[];")
        lines += [declare_region(node, name) for node, name in self.regions.items()]
        return [f"    {line}" for line in lines]

    def grid_dependency(self) -> list[str]:
        """Write how this launch waits for others and lets others start, on targets that overlap."""
        return list(GRID_DEPENDENCY) if self.waits_itself else []

    def pragma(self, unroll: int) -> str:
        """Say how far to unroll; without a word the compiler chooses."""
        return f"#pragma unroll {unroll}"

    def spell(self, ctype: CType) -> str:
        """Return CUDA's name of a type."""
        return "bool" if ctype.kind == "b" else ctype.name

    def value(self, node: UOp) -> Value:
        """Write a value that is one expression."""
        if node.op in EAGER:
            for each in node.operands[EAGER[node.op] :]:
                self.simplify(each)
        if node.op is Op.PLACE:
            return Value(node.attrs.kind, storage_type(node.dtype))
        if node.op in REGIONS:
            return self.region(node)
        if node.op is Op.TENSOR_MAP:
            return self.tensor_map(node)
        if node.op is Op.LDMATRIX:
            row = LDMATRIX_TRANSPOSED if node.attrs.transposed else LDMATRIX
            operands = [self.find(each) for each in node.operands]
            return self.values.instruction(row, [address_on_chip(*operands)])
        return super().value(node)

    def read(self, register: Value) -> Value:
        """Write what a register holds."""
        return read_register(self, register)

    def region(self, node: UOp) -> Value:
        """Name a region, which is declared before the body."""
        if node not in self.regions:
            self.regions[node] = self.name(REGIONS[node.op][0])
        return Value(self.regions[node], storage_type(node.dtype))

    def tensor_map(self, node: UOp) -> Value:
        """Name the param that holds a tensor map."""
        if node not in self.tensor_maps:
            self.tensor_maps.append(node)
        return Value(f"m{self.tensor_maps.index(node)}", storage_type(dtypes.uint64))

    def simplify(self, node: UOp) -> None:
        """Name a value here whose text does something."""
        value = self.find(node)
        if not isinstance(value, (LaneValue, VectorValue)) and not SIMPLE.fullmatch(value.text):
            self.declare(node, value)

    def keeps_text(self, node: UOp, value: Value, is_inlined: bool) -> bool:
        """Whether a value needs no name; a vector does until its fields are known."""
        if isinstance(value, VectorValue):
            return bool(value.fields)
        return super().keeps_text(node, value, is_inlined)

    def declare(self, node: UOp, value: Value) -> Value:
        """Give a value a name; the fields of a vector are then those of the variable."""
        if not isinstance(value, VectorValue):
            return super().declare(node, value)
        variable = named(struct_of(node.dtype), self.name("v"))
        self.line(f"{variable.ctype.name} {variable.text} = {value.text};")
        self.bind(node, variable)
        return variable

    def call(self, row: PtxInstruction, *operands: Value) -> None:
        """Write an instruction as a statement."""
        self.line(f"{self.values.instruction(row, operands).text};")

    # Memory.
    def load(self, node: UOp, buffer: Value, index: Value, guard: Value | None = None) -> Value:
        """Write a load; a guarded vector fills a variable of zeros first."""
        if node.dtype.lanes == 1:
            text = f"{buffer.text}[{index.text}]"
            loaded = Value(text, storage_type(node.dtype))
            if guard is not None:
                loaded = Value(f"{guard.operand} ? {text} : 0", loaded.ctype, is_atom=False)
            return truth(loaded) if node.dtype is dtypes.bool else loaded
        struct = struct_of(node.dtype)
        text = f"*(const {struct.ctype.name} *)({element_address(buffer, index)})"
        if guard is None:
            return VectorValue(text, struct.ctype)
        name = self.name("v")
        zero = "0" if struct.count == 1 else "{}"
        self.line(f"{struct.ctype.name} {name} = {zero};")
        self.line(f"if ({guard.text}) {name} = {text};")
        return named(struct, name)


CudaWriter.statements = {**CONTROL, **MEMORY_STATEMENTS, **BLOCK_STATEMENTS, **HOPPER_STATEMENTS}
CudaWriter.nameless = frozenset(
    (*REGIONS, Op.CONST, Op.PARAM, Op.PLACE, Op.EXTENT, Op.TENSOR_MAP)
    + (Op.STACK, Op.SPLAT, Op.LANE, Op.SHUFFLE)
)
