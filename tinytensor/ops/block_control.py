"""The steps of a warp that need no memory: control flow, registers, places and values."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tinytensor.ops.block_memory import PRODUCTS
from tinytensor.ops.block_warp import LANES, Register, Warp
from tinytensor.ops.fragments import WARP_THREADS
from tinytensor.ops.interpret import EVALUATE, Array, constant, evaluate, scalar_of
from tinytensor.ops.interpret_linear import call
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp

TRAPPING = (Op.TRUNCDIV, Op.TRUNCMOD)


# Control flow. A jump lands on the marker that closes (or halves) what is skipped.
def _loop(warp: Warp, node: UOp, begin: Array, end: Array) -> Array:
    warp.masks.append(warp.mask)
    warp.mask = warp.mask & (begin < end)
    if not warp.mask.any():
        warp.position = warp.block.launch.closed[node] - 1
    return begin


def _end_loop(warp: Warp, node: UOp, variable: Array) -> None:
    loop = node.operands[0]
    following = variable + variable.dtype.type(loop.attrs.step)
    warp.mask = warp.mask & (following < warp.values[loop.operands[1]])
    if warp.mask.any():
        warp.values[loop] = following
        warp.position = warp.block.launch.opened[loop]
    else:
        warp.mask = warp.masks.pop()


def _if(warp: Warp, node: UOp, cond: Array) -> None:
    warp.masks.append(warp.mask)
    warp.mask = warp.mask & cond
    if not warp.mask.any():
        launch = warp.block.launch
        warp.position = launch.halved.get(node, launch.closed[node]) - 1


def _else(warp: Warp, node: UOp) -> None:
    branch = node.operands[0]
    warp.mask = warp.masks[-1] & ~warp.values[branch.operands[0]]
    if not warp.mask.any():
        warp.position = warp.block.launch.closed[branch] - 1


def _end_if(warp: Warp, node: UOp) -> None:
    warp.mask = warp.masks.pop()


def _role(warp: Warp, node: UOp) -> None:
    first, count = node.attrs.first_warp, node.attrs.warps
    if first <= warp.number < first + count:
        warp.role = node
    else:
        warp.position = warp.block.launch.closed[node] - 1


def _end_role(warp: Warp, node: UOp) -> None:
    warp.role = None


def _nothing(warp: Warp, node: UOp, *operands: Array) -> None:
    """A region of memory has no value and no effect."""


# Registers.
def _register(warp: Warp, node: UOp) -> None:
    shape = (WARP_THREADS, node.dtype.lanes) if node.dtype.lanes > 1 else (WARP_THREADS,)
    values = np.zeros(shape, node.dtype.value_numpy)
    warp.registers[node] = Register(values, np.zeros(WARP_THREADS, np.bool_))


def settled_register(warp: Warp, node: UOp) -> Register:
    """Return the register a node is about; refuse one that a product still adds to."""
    register = warp.registers[node.operands[0]]
    if register.product > warp.groups[PRODUCTS].finished:
        raise warp.refuse(node, "the accumulator is in flight")
    return register


def _read(warp: Warp, node: UOp) -> Array:
    register = settled_register(warp, node)
    require_written(warp, node, register)
    register.fenced = False
    return register.values


def require_written(warp: Warp, node: UOp, register: Register) -> None:
    """Refuse a register that some lane here never wrote."""
    poison = warp.mask & ~register.written
    if poison.any():
        raise warp.refuse(node, "the register was never written", int(np.argmax(poison)))


def _write(warp: Warp, node: UOp, value: Array) -> None:
    register = settled_register(warp, node)
    register.values = np.where(_mask_like(warp, value), value, register.values)
    register.written = register.written | warp.mask
    register.fenced = False


def _mask_like(warp: Warp, values: Array) -> Array:
    """Return which lanes are here, in a shape that broadcasts with scalars or vectors."""
    return warp.mask if values.ndim == 1 else warp.mask[:, None]


# Values.
def _const(warp: Warp, node: UOp) -> Array:
    return np.full(WARP_THREADS, constant(node))


def _extent(warp: Warp, node: UOp) -> Array:
    return np.full(WARP_THREADS, node.attrs.extent, node.dtype.value_numpy)


def _variable(warp: Warp, node: UOp) -> Array:
    return np.full(WARP_THREADS, scalar_of(node, warp.block.launch.scalars))


def _place(warp: Warp, node: UOp) -> Array:
    if node.attrs.kind == "thread":
        return (warp.number * WARP_THREADS + LANES).astype(np.int32)
    if node.attrs.kind == "warp":
        return np.full(WARP_THREADS, warp.number, np.int32)
    axis = ("block_x", "block_y", "block_z").index(node.attrs.kind)
    return np.full(WARP_THREADS, warp.block.place[axis], np.int32)


def _elementwise(warp: Warp, node: UOp, *operands: Array) -> Array:
    if node.op in TRAPPING:
        x, y = operands
        one = y.dtype.type(1)  # lanes elsewhere may hold a 0
        operands = (x, np.where(_mask_like(warp, y), y, one))
    return evaluate(node.op, node.dtype, *operands)


def _splat(warp: Warp, node: UOp, x: Array) -> Array:
    return np.repeat(x[:, None], node.dtype.lanes, axis=1)


def _stack(warp: Warp, node: UOp, *lanes: Array) -> Array:
    return np.stack(lanes, axis=1)


def _shuffle(warp: Warp, node: UOp, *operands: Array) -> Array:
    rows = [each.reshape(WARP_THREADS, -1) for each in operands]
    numbers = list(node.attrs.lanes)
    picked = np.ascontiguousarray(np.concatenate(rows, axis=1)[:, numbers])
    return picked if node.dtype.lanes > 1 else picked[:, 0]


def _exchange(warp: Warp, node: UOp, x: Array) -> Array:
    warp.require_whole(node)
    exchanged: Array = x[LANES ^ node.attrs.distance]
    return exchanged


CONTROL_STEPS: dict[Op, Callable[..., Array | None]] = {
    **dict.fromkeys(EVALUATE, _elementwise),
    **dict.fromkeys((Op.PARAM, Op.WORKSPACE, Op.SHARED, Op.TILE, Op.MBARRIERS), _nothing),
    **dict.fromkeys((Op.TENSOR_MAP, Op.GRID_WAIT), _nothing),
    **dict.fromkeys((Op.LANE, Op.SHUFFLE), _shuffle),
    Op.LOOP: _loop,
    Op.ENDLOOP: _end_loop,
    Op.IF: _if,
    Op.ELSE: _else,
    Op.ENDIF: _end_if,
    Op.ROLE: _role,
    Op.ENDROLE: _end_role,
    Op.REGISTER: _register,
    Op.READ: _read,
    Op.WRITE: _write,
    Op.CONST: _const,
    Op.EXTENT: _extent,
    Op.VARIABLE: _variable,
    Op.PLACE: _place,
    Op.SPLAT: _splat,
    Op.STACK: _stack,
    Op.EXCHANGE: _exchange,
    Op.CALL: call,
}
