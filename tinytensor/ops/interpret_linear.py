"""Runs the LINEAR form of a kernel statement by statement: its meaning, for tests on small kernels.

A scalar is an array without axes, a vector a 1-D array of its lanes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tinytensor.dtype import dtypes
from tinytensor.errors import InternalError
from tinytensor.ops.interpret import (
    EVALUATE,
    Array,
    constant,
    evaluate,
    from_storage,
    round_to,
    scalar_of,
    to_storage,
)
from tinytensor.ops.linear import UNORDERED, Linear
from tinytensor.ops.op import Op
from tinytensor.ops.uop import Number, UOp

if TYPE_CHECKING:
    from tinytensor.ops.block_warp import Warp

POISON_BYTE = 0xA5
# The C library's functions, by their float64 names.
FUNCTIONS: dict[str, Callable[..., Array]] = {
    **{"exp": np.exp, "log": np.log, "sin": np.sin, "cos": np.cos, "tanh": np.tanh},
    **{"fmod": np.fmod, "sqrt": np.sqrt, "floor": np.floor, "trunc": np.trunc},
    "erf": lambda x: evaluate(Op.ERF, dtypes.float64, x),
}


def run_linear(
    linear: Linear, arrays: Sequence[Array], poison: bool = True, scalars: Sequence[Number] = ()
) -> None:
    """Run one launch on the params' arrays: 1-D, as memory holds them (bfloat16: uint16).

    Scratch memory starts as 0xA5 bytes; with `poison`, a read of what was never written is refused.

    Raises: InternalError, naming the statement, for that, and for an access outside its buffer.
    """
    machine = _Machine(linear, arrays, poison, scalars)
    while machine.position < len(linear.statements):
        machine.run_statement(linear.statements[machine.position])
        machine.position += 1


class _Machine:
    """The state of a launch: the position, values of statements, registers, and memory."""

    def __init__(
        self, linear: Linear, arrays: Sequence[Array], poison: bool, scalars: Sequence[Number]
    ) -> None:
        self.name = linear.name
        self.arrays = arrays
        self.scalars = scalars
        self.poison = poison
        self.position = 0
        self.values: dict[UOp, Array] = {}
        self.registers: dict[UOp, Array] = {}
        self.scratch = np.full(linear.workspace_bytes, POISON_BYTE, np.uint8)
        self.written = np.zeros(linear.workspace_bytes, np.bool_)
        self.stored = [np.zeros(each.size, np.bool_) for each in arrays]
        numbered = list(enumerate(linear.statements))
        self.opened = {node: i for i, node in numbered if node.op in (Op.LOOP, Op.IF)}
        self.halved = {node.operands[0]: i for i, node in numbered if node.op is Op.ELSE}
        self.closed = {node.operands[0]: i for i, node in numbered if node.op in _CLOSE}

    def run_statement(self, node: UOp) -> None:
        """Execute one statement; control flow sets the position before the next one."""
        operands = [self.values[each] for each in node.operands if each in self.values]
        result = LINEAR[node.op](self, node, *operands)
        if result is not None:
            self.values[node] = result

    def refuse(self, node: UOp, sentence: str) -> InternalError:
        """Return the error that names the statement being run."""
        where = f"statement {self.position}, {node.op.name} {node.dtype.name} {node.attrs}"
        return InternalError(f"run linear: {self.name}: {sentence}: {where}.")

    def elements(self, node: UOp, index: Array) -> tuple[Array, Array]:
        """Return the elements an access touches, and which (of scratch: bytes) were written."""
        buffer, begin, valid = node.operands[0], int(index), node.attrs.valid
        count, itemsize = buffer.attrs.elements, buffer.dtype.itemsize
        if begin < 0 or begin + valid > count:
            sentence = f"elements {begin} to {begin + valid - 1} are not within {count}"
            raise self.refuse(node, sentence)
        if buffer.op is Op.PARAM:
            number, touched = buffer.attrs.number, slice(begin, begin + valid)
            return self.arrays[number][touched], self.stored[number][touched]
        first = buffer.attrs.offset_bytes + begin * itemsize
        touched = slice(first, first + valid * itemsize)
        if touched.stop > self.scratch.size:
            raise self.refuse(node, f"byte {touched.stop} is not within the scratch memory")
        return self.scratch[touched].view(buffer.dtype.storage_numpy), self.written[touched]


_CLOSE = (Op.ENDLOOP, Op.ENDIF)


# Control flow.
def _loop(machine: _Machine, node: UOp, begin: Array, end: Array) -> Array:
    if begin >= end:
        machine.position = machine.closed[node]
    return begin


def _end_loop(machine: _Machine, node: UOp, variable: Array) -> None:
    loop = node.operands[0]
    following = np.asarray(variable + variable.dtype.type(loop.attrs.step))
    if following < machine.values[loop.operands[1]]:
        machine.values[loop] = following
        machine.position = machine.opened[loop]


def _if(machine: _Machine, node: UOp, cond: Array) -> None:
    if not cond:
        machine.position = machine.halved.get(node, machine.closed[node])


def _else(machine: _Machine, node: UOp) -> None:
    machine.position = machine.closed[node.operands[0]]


def _nothing(machine: _Machine, node: UOp, *operands: Array) -> None:
    """A buffer and the end of a branch have no value and no effect."""


# State.
def _register(machine: _Machine, node: UOp) -> None:
    machine.registers.pop(node, None)


def _read(machine: _Machine, node: UOp) -> Array:
    if node.operands[0] not in machine.registers:
        raise machine.refuse(node, "the register was never written")
    return machine.registers[node.operands[0]]


def _write(machine: _Machine, node: UOp, value: Array) -> None:
    machine.registers[node.operands[0]] = value


def _load(machine: _Machine, node: UOp, index: Array, *guard: Array) -> Array:
    lanes, valid = node.dtype.lanes, node.attrs.valid
    stored = np.zeros(lanes, node.dtype.storage_numpy)
    if all(guard):
        stored[:valid], written = machine.elements(node, index)
        is_pure = node.attrs.order == UNORDERED
        if is_pure and written.any():
            raise machine.refuse(node, "reads what this launch wrote; such a load has an order")
        is_scratch = node.operands[0].op is Op.WORKSPACE
        if machine.poison and is_scratch and not written.all():
            raise machine.refuse(node, "reads scratch memory that was never written")
    values = from_storage(stored, node.dtype)
    return values if lanes > 1 else values.reshape(())


def _store(machine: _Machine, node: UOp, index: Array, value: Array, *guard: Array) -> None:
    if all(guard):
        elements, written = machine.elements(node, index)
        stored = to_storage(value, node.operands[2].dtype).reshape(-1)
        elements[:] = stored[: node.attrs.valid]
        written[:] = True


# Values.
def _elementwise(machine: _Machine, node: UOp, *operands: Array) -> Array:
    return evaluate(node.op, node.dtype, *operands)


def _splat(machine: _Machine, node: UOp, x: Array) -> Array:
    return np.full(node.dtype.lanes, x)


def _stack(machine: _Machine, node: UOp, *lanes: Array) -> Array:
    return np.stack(lanes)


def _shuffle(machine: _Machine, node: UOp, *operands: Array) -> Array:
    lanes = np.concatenate([each.reshape(-1) for each in operands])
    picked = lanes[list(node.attrs.lanes)]
    return picked if node.dtype.lanes > 1 else picked.reshape(())


def call(machine: _Machine | Warp, node: UOp, cond: Array, *operands: Array) -> Array:
    """Return what a function of the C library gives where `cond`, and 0 elsewhere.

    Raises: InternalError when there is no such function.
    """
    function = FUNCTIONS.get(node.attrs.function)
    if function is None:
        raise machine.refuse(node, f"no function is called {node.attrs.function}")
    wide = [each.astype(np.float64) for each in operands]
    with np.errstate(all="ignore"):
        result = round_to(np.asarray(function(*wide)), node.dtype.scalar)
    nothing = np.zeros((), result.dtype)
    return np.where(cond, result, nothing)


LINEAR: dict[Op, Callable[..., Array | None]] = {
    **dict.fromkeys(EVALUATE, _elementwise),
    **dict.fromkeys((Op.PARAM, Op.WORKSPACE, Op.ENDIF), _nothing),
    **dict.fromkeys((Op.LANE, Op.SHUFFLE), _shuffle),
    Op.CONST: lambda machine, node: constant(node),
    Op.EXTENT: lambda machine, node: np.array(node.attrs.extent, node.dtype.value_numpy),
    Op.VARIABLE: lambda machine, node: scalar_of(node, machine.scalars),
    Op.LOOP: _loop,
    Op.ENDLOOP: _end_loop,
    Op.IF: _if,
    Op.ELSE: _else,
    Op.REGISTER: _register,
    Op.READ: _read,
    Op.WRITE: _write,
    Op.LOAD: _load,
    Op.STORE: _store,
    Op.SPLAT: _splat,
    Op.STACK: _stack,
    Op.CALL: call,
}
