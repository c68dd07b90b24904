"""Turns patterns and random numbers into nodes, and nodes into arrays of values."""

import numpy as np

from tinytensor.dtype import USER_DTYPES, dtypes
from tinytensor.errors import InternalError
from tinytensor.ops import attrs as a
from tinytensor.ops.interpret import evaluate, from_storage
from tinytensor.ops.op import COMPARE, Op
from tinytensor.ops.pattern import KINDS, Variable
from tinytensor.ops.uop import UOp, binary, cast, const, index_const, make_range

SAMPLES = 32
RANGES = [make_range(number, extent) for number, extent in enumerate((1, 2, 3, 4, 6, 8))]
INDEX_CONSTANTS = (-7, -3, -1, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 6, 6, 8, 12, 12, 24)
ALL_DTYPES = (*USER_DTYPES, dtypes.index)
# What a bool op means as arithmetic; bool has no other arithmetic.
BOOL_OPS = {Op.ADD, Op.MUL, Op.AND, Op.OR, Op.XOR, Op.MAX, Op.MIN, Op.CAST, Op.WHERE, *COMPARE}
INDEX_OPS = {Op.ADD, Op.SUB, Op.MUL, Op.NEG, Op.FLOORDIV, Op.MOD, Op.MAX, Op.MIN, Op.WHERE, Op.CAST}


class NoSuchNode(Exception):
    """The draw is no well-formed node."""


def node_for(pattern, rng, dtype=None, found=None):
    """A random node of the pattern's shape; whether it matches is for the pattern to say."""
    found = {} if found is None else found
    if isinstance(pattern, Variable):
        if pattern.name not in found:
            found[pattern.name] = node_for_variable(pattern, rng, dtype)
        return found[pattern.name]
    op = pick(rng, sorted(pattern.ops, key=lambda each: each.name))
    dtype = dtype or dtype_of_result(op, pattern, rng)
    parts = operand_dtypes(op, dtype, rng)
    if pattern.operands is None:
        operands = [random_node(rng, part, 1) for part in parts]
    elif op in (Op.LOAD, Op.STORE):
        memory = UOp(Op.PARAM, dtype, (), a.ParamAttrs(int(rng.integers(3)), 8))
        found[pattern.operands[0].name] = memory
        rest = zip(pattern.operands[1:], parts[1:], strict=True)
        operands = [memory, *[node_for(part, rng, each, found) for part, each in rest]]
    else:
        pairs = zip(pattern.operands, parts, strict=True)
        operands = [node_for(part, rng, each, found) for part, each in pairs]
    return build_node(op, dtypes.void if op is Op.STORE else dtype, tuple(operands))


def build_node(op, dtype, operands):
    outside_bool = dtype is dtypes.bool and op not in {*BOOL_OPS, Op.LOAD}
    if outside_bool or (dtype is dtypes.index and op not in INDEX_OPS):
        raise NoSuchNode
    try:
        return UOp(op, dtype, operands)
    except InternalError as error:
        raise NoSuchNode from error


def dtype_of_result(op, pattern, rng):
    if op in COMPARE:
        return dtypes.bool
    choices = [dtype for dtype in ALL_DTYPES if KINDS[pattern.kind](dtype)]
    return pick(rng, choices)


def operand_dtypes(op, dtype, rng):
    if op in COMPARE:
        return [pick(rng, ALL_DTYPES)] * 2
    if op is Op.WHERE:
        return [dtypes.bool, dtype, dtype]
    if op is Op.CAST and dtype is dtypes.index:  # which 64 bits may leave
        return [pick(rng, [each for each in ALL_DTYPES if each.bits < 64 or each is dtype])]
    if op is Op.CAST:
        return [pick(rng, ALL_DTYPES)]
    if op is Op.BITCAST:
        return [pick(rng, [each for each in USER_DTYPES if each.bits == dtype.bits])]
    if op is Op.LOAD:
        return [None, dtypes.index, dtypes.bool]
    if op is Op.STORE:
        return [None, dtypes.index, dtype, dtypes.bool]
    return [dtype] * len(op.operands)


def node_for_variable(variable, rng, dtype):
    if dtype is None or not KINDS[variable.kind](dtype):
        raise NoSuchNode
    if variable.is_constant:
        return random_constant(rng, dtype)
    return random_node(rng, dtype, 2)


def random_node(rng, dtype, depth):
    """A leaf, a constant, or a small expression."""
    kind = rng.random()
    if dtype is dtypes.index:
        return random_index(rng, depth)
    if kind < 0.2:
        return random_constant(rng, dtype)
    if kind < 0.7 or depth == 0:
        return random_load(rng, dtype)
    if dtype is dtypes.bool and kind < 0.85:
        return random_guard(rng)
    op = pick(rng, (Op.MUL, Op.MAX, Op.WHERE, Op.CAST, Op.AND, Op.NEG, Op.MOD))
    try:
        parts = [random_node(rng, each, depth - 1) for each in operand_dtypes(op, dtype, rng)]
        return build_node(op, dtype, tuple(parts))
    except NoSuchNode:
        return random_load(rng, dtype)


def random_guard(rng):
    """A comparison of an index with a constant, or of two."""
    x, y = (
        random_index(rng, 1),
        pick(rng, (index_const(int(rng.integers(-2, 20))), pick(rng, RANGES))),
    )
    x, y = (x, y) if rng.random() < 0.8 else (y, x)
    return UOp(pick(rng, COMPARE), dtypes.bool, (x, y))


def random_index(rng, depth):
    """A sum of few terms, of which some are quotients and remainders of others."""
    total = None
    for _ in range(int(rng.integers(1, 4))):
        term = random_term(rng, depth)
        total = term if total is None else total + term
    if rng.random() < 0.3:
        total = total + pick(rng, INDEX_CONSTANTS)
    return total


def random_term(rng, depth):
    term = (
        pick(rng, RANGES[1:])
        if rng.random() < 0.9
        else cast(random_load(rng, dtypes.int8), dtypes.index)
    )
    if depth and rng.random() < 0.4:
        op = pick(rng, (Op.FLOORDIV, Op.MOD, Op.SUB, Op.MAX))
        term = binary(op, random_index(rng, depth - 1), pick(rng, INDEX_CONSTANTS))
    return term * pick(rng, INDEX_CONSTANTS) if rng.random() < 0.5 else term


def random_load(rng, dtype):
    memory = UOp(Op.PARAM, dtype, (), a.ParamAttrs(int(rng.integers(3)), 8))
    return UOp(Op.LOAD, dtype, (memory, index_const(0)))


def random_constant(rng, dtype):
    if dtype is dtypes.index:
        return index_const(pick(rng, INDEX_CONSTANTS))
    if dtype is dtypes.bool:
        return const(dtype, bool(rng.integers(2)))
    if rng.random() < 0.4:
        return const(dtype, pick(rng, (0, 1, 1)) if dtype.is_int else pick(rng, (-0.0, 0.0, 1.0)))
    return const(dtype, pick(rng, edges_of(dtype)))


def edges_of(dtype):
    """The values of a dtype that hurt."""
    if dtype.is_float:
        return (0.0, -0.0, 1.0, -1.0, 0.5, np.inf, -np.inf, np.nan, 3e9, -1.5, 1e-40, 65504.0)
    return (0, 1, 2, 3, -1, -2, dtype.min, dtype.max, dtype.min + 1, dtype.max // 3)


def random_values(rng, dtype):
    """Random bits and edge values of a dtype, SAMPLES of them."""
    if dtype is dtypes.bool:
        return rng.integers(0, 2, SAMPLES).astype(bool)
    stored = np.frombuffer(rng.bytes(SAMPLES * dtype.itemsize), dtype.storage_numpy).copy()
    values = from_storage(stored, dtype)
    for place in range(SAMPLES // 2):
        edge = const(dtype, pick(rng, edges_of(dtype))).value
        values[place] = edge
    return values


def pick(rng, choices):
    return choices[int(rng.integers(len(choices)))]


class Environment:
    """Random values for every leaf a graph meets: the same leaf always has the same ones."""

    def __init__(self, rng):
        self.rng = rng
        self.leaves = {}

    def values_of(self, node):
        """An array of SAMPLES values; index values are Python integers, which never wrap."""
        if node.op is Op.CONST:
            kind = object if node.dtype is dtypes.index else node.dtype.value_numpy
            return np.full(SAMPLES, node.value, kind)
        if node.op is Op.RANGE:
            return self.leaf(
                node, lambda: self.rng.integers(0, node.extent, SAMPLES).astype(object)
            )
        if node.op is Op.LOAD:
            memory = node.operands[:2]
            loaded = self.leaf(memory, lambda: random_values(self.rng, node.dtype))
            return self.guarded(loaded, node.operands[2:])
        if node.op is Op.STORE:
            return self.guarded(self.values_of(node.operands[2]), node.operands[3:])
        operands = [self.values_of(each) for each in node.operands]
        if dtypes.index in (node.dtype, node.operands[0].dtype) and node.op is not Op.WHERE:
            return index_values(node, operands)
        return evaluate(node.op, node.dtype, *operands)

    def leaf(self, key, draw):
        if key not in self.leaves:
            self.leaves[key] = draw()
        return self.leaves[key]

    def guarded(self, values, guard):
        zero = np.zeros((), values.dtype)
        return np.where(self.values_of(guard[0]), values, zero) if guard else values


INDEX_MEANING = {
    Op.ADD: lambda x, y: x + y,
    Op.SUB: lambda x, y: x - y,
    Op.MUL: lambda x, y: x * y,
    Op.NEG: lambda x: -x,
    Op.FLOORDIV: lambda x, y: x // y if y else 0,
    Op.MOD: lambda x, y: x % y if y else 0,
    Op.MAX: max,
    Op.MIN: min,
    Op.LT: lambda x, y: x < y,
    Op.LE: lambda x, y: x <= y,
    Op.EQ: lambda x, y: x == y,
    Op.NE: lambda x, y: x != y,
}


def index_values(node, operands):
    """What an op on the index dtype gives, in Python's integers."""
    if node.op is not Op.CAST:
        meaning = INDEX_MEANING[node.op]
        found = [meaning(*values) for values in zip(*operands, strict=True)]
        return np.array(found, bool if node.dtype is dtypes.bool else object)
    if node.dtype is dtypes.index:
        whole = [int(np.clip(float(x), -(2.0**62), 2.0**62)) if x == x else 0 for x in operands[0]]
        return np.array(whole, object)
    if node.dtype.is_int:
        return np.array([const(node.dtype, x).value for x in operands[0]], node.dtype.value_numpy)
    return evaluate(Op.CAST, node.dtype, operands[0].astype(np.int64))


def same_values(x, y):
    """Whether two arrays hold the same bits; NaNs are all alike."""
    if x.dtype != y.dtype:
        return False
    if x.dtype.kind != "f":
        return bool(np.array_equal(x, y))
    both_nan = np.isnan(x) & np.isnan(y)
    return bool(np.all(both_nan | ((x == y) & (np.signbit(x) == np.signbit(y)))))
