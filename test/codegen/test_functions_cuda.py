"""Every function graph of a GPU keeps its bound in ulp, interpreted and on a device."""

import numpy as np
import pytest
from codegen import test_functions
from codegen.gpu_machine import block_kernel, cubin_of, frame_bytes, run_on_device, source_of
from codegen.test_functions import REFERENCE, argument, error_ulp, floats, meaning

from tinytensor.codegen.functions_cuda import EXPANSIONS, expand
from tinytensor.dtype import dtypes
from tinytensor.ops.interpret import bits_of
from tinytensor.ops.linear import is_pure
from tinytensor.ops.op import APPROXIMATE, Op
from tinytensor.ops.uop import UOp, walk
from tinytensor.target import SM90A

# Largest error over all 2**32 floats, against float64. Units: ulp of the float32 result.
ULP_BOUND = {Op.EXP: 2.0, Op.TANH: 2.0, Op.ERF: 1.5}
FUNCTIONS = tuple(ULP_BOUND)
INF, NAN, LEAST = np.inf, np.nan, 2.0**-149
SPECIALS = [
    *((op, NAN, NAN) for op in FUNCTIONS),
    *((op, zero, zero) for op in (Op.TANH, Op.ERF) for zero in (0.0, -0.0)),
    *((op, sign * big, sign) for op in (Op.TANH, Op.ERF) for sign in (1, -1) for big in (9e9, INF)),
    *((Op.TANH, tiny, tiny) for tiny in (LEAST, -LEAST, 2.0**-126 - LEAST, -1e-30)),
    *((Op.EXP, tiny, 1.0) for tiny in (0.0, -0.0, LEAST, -LEAST, 1e-9, -1e-9)),
    *((Op.EXP, big, INF) for big in (INF, 3e38, 88.72284)),
    *((Op.EXP, big, 0.0) for big in (-INF, -3e38, -104.1)),
    # In units of 2**-149: so few bits are left that only the last rounding counts.
    *((Op.EXP, x, n * LEAST) for x, n in ((-97.2, 437), (-100.0, 27), (-103.1, 1), (-103.9, 1))),
]


def expansion(op, lanes=1):
    x = argument(lanes)
    return expand(UOp(op, x.dtype, (x,)))


def compute(op, array):
    """Evaluate the graph of a function node by node; 2**x and 1/x are rounded once."""
    known = {argument(): np.asarray(array, np.float32)}
    root = expansion(op)
    for node in walk((root,)):
        if node not in known:
            known[node] = meaning(node, [known[each] for each in node.operands])
    return known[root]


def kernel_of(op, count):
    f32 = dtypes.float32
    result = (f32, lambda x: UOp(op, x.dtype, (x,)))
    return block_kernel(f"sweep_{op.name.lower()}", (f32,), [result], 1, count)


def compute_on_device(op, x):
    return run_on_device(kernel_of(op, len(x)), [x, np.full_like(x, 0.5)])[1]


def worst_ulp(op, compute, step):
    with np.errstate(all="ignore"):
        return max(
            error_ulp(compute(op, x), REFERENCE[op](x.astype(np.float64))).max()
            for x in floats(step)
        )


def same_bits(x, y):
    """Whether arrays of float32 agree to the bit, NaN with any NaN."""
    return np.all((bits_of(x) == bits_of(y)) | (np.isnan(x) & np.isnan(y)))


def specials_of(op):
    chosen = [(x, y) for each, x, y in SPECIALS if each is op]
    return np.array(chosen, np.float32).T.copy()


@pytest.mark.parametrize("op", FUNCTIONS, ids=lambda op: op.name)
def test_a_function_keeps_its_bound(op):
    assert worst_ulp(op, compute, 4093) <= ULP_BOUND[op]


@pytest.mark.parametrize("op", FUNCTIONS, ids=lambda op: op.name)
def test_a_special_argument_gives_its_special_value(op):
    x, expected = specials_of(op)

    assert same_bits(compute(op, x), expected)


@pytest.mark.gpu
@pytest.mark.parametrize("op", test_functions.ULP_BOUND, ids=lambda op: op.name)
def test_a_function_keeps_its_bound_on_a_device(op):
    bound = {**test_functions.ULP_BOUND, **ULP_BOUND}[op]

    assert worst_ulp(op, compute_on_device, 4093) <= bound


@pytest.mark.gpu
@pytest.mark.parametrize("op", FUNCTIONS, ids=lambda op: op.name)
def test_a_special_argument_gives_its_special_value_on_a_device(op):
    x, expected = specials_of(op)

    assert same_bits(compute_on_device(op, x), expected)


def test_every_bound_is_what_the_op_table_promises():
    assert set(ULP_BOUND) == set(EXPANSIONS)
    assert max(ULP_BOUND.values()) <= 2


@pytest.mark.parametrize("op", FUNCTIONS, ids=lambda op: op.name)
def test_a_graph_holds_no_function_but_the_approximations(op):
    nodes = walk((expansion(op, lanes=2),))

    inexact = {node.op for node in nodes if node.op.mark is Op.EXP.mark}
    assert all(is_pure(node) for node in nodes)
    assert inexact and inexact <= set(APPROXIMATE)


@pytest.mark.parametrize("op", [Op.LOG, Op.SIN, Op.COS], ids=lambda op: op.name)
def test_other_functions_are_those_of_the_cpu(op):
    x = argument()
    node = UOp(op, x.dtype, (x,))

    assert expand(node) is test_functions.expand(node)


@pytest.mark.parametrize(("op", "most"), [(Op.EXP, 9), (Op.TANH, 16), (Op.ERF, 21)])
def test_a_function_stays_cheap(op, most):
    free = (Op.CONST, Op.PARAM, Op.BITCAST, Op.ABS)

    counted = [node for node in walk((expansion(op),)) if node.op not in free]

    assert len(counted) <= most


@pytest.mark.parametrize("op", FUNCTIONS, ids=lambda op: op.name)
def test_a_function_compiles_without_a_stack(op):
    assert frame_bytes(cubin_of(source_of(kernel_of(op, 64), SM90A), SM90A.name)) == 0
