"""Builds small kernels by hand and runs them through each plan that takes them."""

import numpy as np

from tinytensor.codegen.plan import PLANS
from tinytensor.dtype import dtypes, float8_bits
from tinytensor.ops.attrs import Combine, ContractAttrs, ParamAttrs, ReduceAttrs
from tinytensor.ops.interpret_indexed import run_kernel
from tinytensor.ops.interpret_linear import run_linear
from tinytensor.ops.kernel import Contraction, Kernel, Param
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp, walk
from tinytensor.ops.verify import verify_indexed, verify_linear
from tinytensor.target import CPU_AVX512, CPU_SSE

TARGETS = (CPU_AVX512, CPU_SSE)


class KernelBuilder:
    """Collects params and stores; params are numbered as they are made."""

    def __init__(self, *ranges, index_dtype=dtypes.int32):
        self.ranges = ranges
        self.index_dtype = index_dtype
        self.params = []
        self.stores = []

    def param(self, dtype, elements, written=False):
        self.params.append(Param(dtype, elements, written))
        attrs = ParamAttrs(len(self.params) - 1, elements)
        return UOp(Op.PARAM, dtype, (), attrs)

    def store(self, index, value, elements, guard=None):
        target = self.param(value.dtype, elements, written=True)
        operands = (target, index, value) if guard is None else (target, index, value, guard)
        self.stores.append(UOp(Op.STORE, dtypes.void, operands))

    def kernel(self):
        sink = UOp(Op.SINK, dtypes.void, tuple(self.stores))
        facts = contraction_facts(sink)
        return Kernel("k", sink, self.ranges, tuple(self.params), facts, self.index_dtype)


def contraction_facts(sink):
    """The facts of a sink's CONTRACT, if it has one."""
    nodes = walk((sink,))
    for node in nodes:
        if node.op is Op.CONTRACT:
            numbered = {each.attrs.number: each for each in nodes if each.op is Op.RANGE}
            attrs = node.attrs
            classes = [
                tuple([numbered[number] for number in numbers])
                for numbers in (attrs.batch, attrs.m, attrs.n, attrs.k)
            ]
            return Contraction(node, *classes)
    return None


def load(param, index, guard=None):
    operands = (param, index) if guard is None else (param, index, guard)
    return UOp(Op.LOAD, param.dtype, operands)


def fold(combine, x, *ranges):
    dtype = dtypes.int64 if combine in (Combine.ARGMAX, Combine.ARGMIN) else x.dtype
    return UOp(Op.REDUCE, dtype, (x, *ranges), ReduceAttrs(combine))


def contract(a, b, accumulate, m=(), n=(), k=()):
    numbers = [tuple([each.attrs.number for each in ranges]) for ranges in (m, n, k)]
    attrs = ContractAttrs((), *numbers, accumulate)
    return UOp(Op.CONTRACT, accumulate, (a, b, *k), attrs)


def small_integers(param, rng):
    """Values whose sums are exact in any order, in the storage dtype."""
    if param.written:
        return np.zeros(param.elements, param.dtype.storage_numpy)
    values = rng.integers(-3, 4, param.elements)
    if param.dtype.is_float and param.dtype.bits == 8:
        return float8_bits(values, param.dtype)
    if param.dtype is dtypes.bfloat16:
        return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    if param.dtype.kind in ("bool", "uint"):
        values = np.abs(values)
    return values.astype(param.dtype.storage_numpy)


def arrays_for(kernel, seed=0):
    rng = np.random.default_rng(seed)
    return [small_integers(param, rng) for param in kernel.params]


def expected(kernel, arrays):
    """What the INDEXED interpreter makes of the arrays."""
    results = [each.copy() for each in arrays]
    run_kernel(kernel, results)
    return results


def lowered(kernel, target):
    """(plan, its LINEAR form) for each plan that takes the kernel."""
    for plan in PLANS:
        facts = plan.module.facts(kernel, target)
        if facts is not None and not isinstance(facts, str):
            yield plan.name, plan.module.lower(facts, target)


def assert_plans_agree(kernel, arrays=None, targets=TARGETS):
    """Every plan that takes the kernel gives the INDEXED interpreter's bits, on every target."""
    arrays = arrays_for(kernel) if arrays is None else arrays
    verify_indexed(kernel)
    wanted = expected(kernel, arrays)
    for target in targets:
        for name, linear in lowered(kernel, target):
            verify_linear(linear)
            results = [each.copy() for each in arrays]
            run_linear(linear, results)
            for number, (result, want) in enumerate(zip(results, wanted, strict=True)):
                message = f"{name} at {target.vector_bytes} bytes, buffer {number}"
                np.testing.assert_array_equal(result, want, message, strict=True)
