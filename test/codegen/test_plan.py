"""Which plan runs a kernel, and what the others say."""

from codegen.plans.plan_kernels import KernelBuilder, fold, load

from tinytensor.codegen.plan import PLANS, choose
from tinytensor.dtype import dtypes
from tinytensor.ops.attrs import Combine
from tinytensor.ops.uop import index_const, make_range
from tinytensor.target import CPU_AVX512

R, K = make_range(0, 6), make_range(1, 40)


def kernel_of(*ranges, index, elements, value):
    builder = KernelBuilder(*ranges)
    builder.store(index, value(builder.param(dtypes.float32, 240)), elements)
    return builder.kernel()


def test_an_elementwise_kernel_runs_pointwise():
    kernel = kernel_of(R, index=R, elements=6, value=lambda source: load(source, R) + 1)

    choice = choose(kernel, CPU_AVX512)

    assert choice.plan == "pointwise"
    assert [each.kind for each in choice.decisions] == ["plan"]
    assert choice.decisions[0].reason == "8 lanes along 6 elements."


def test_a_fold_runs_as_a_reduction():
    kernel = kernel_of(
        R, index=R, elements=6, value=lambda x: fold(Combine.ADD, load(x, R * 40 + K), K)
    )

    assert choose(kernel, CPU_AVX512).plan == "reduction"


def test_a_single_element_runs_in_loops():
    zero = index_const(0)
    kernel = kernel_of(index=zero, elements=1, value=lambda source: load(source, zero) + 1)

    choice = choose(kernel, CPU_AVX512)

    assert choice.plan == "loops"
    assert choice.decisions[-1].reason == "it has at most one element; vectors need several."


def test_the_last_plan_takes_every_kernel():
    kernel = kernel_of(R, index=R, elements=6, value=lambda source: load(source, R) + 1)

    assert PLANS[-1].name == "loops"
    assert PLANS[-1].module.facts(kernel, CPU_AVX512) is kernel
