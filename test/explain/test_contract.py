"""A kernel's numerical contract: its class, accumulators, roundings, functions and licences."""

import numpy as np
import pytest
from schedule.reading import kernels_of

from tinytensor import Tensor, dtypes
from tinytensor.codegen.lower import lower
from tinytensor.explain.contract import contract_of
from tinytensor.target import CPU_AVX512, SM90A


def tensor(*shape, dtype=np.float32):
    return Tensor(np.ones(shape, dtype))


def half(*shape):
    return Tensor(np.ones(shape, np.float16))


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (lambda: tensor(3) + 1.0, "exact"),
        (lambda: tensor(3, 4, dtype=np.int32).sum(1), "exact"),
        (lambda: tensor(3, 4).amax(1), "exact"),
        (lambda: tensor(3).exp() + 1.0, "transcendental; within 2 ulp: exp"),
        (lambda: tensor(3, 4).sum(1), "reassociated; summed in f32"),
        (lambda: tensor(3, 4).prod(1), "reassociated; summed in f32"),
        (lambda: half(3) * 2.0 + 1.0, "exact; rounded: mul in f16, add in f16"),
        (lambda: half(3) + 1.0 + 2.0, "exact; rounded: add in f16 x2"),
        (lambda: -half(3), "exact"),
        (lambda: tensor(3).to(dtypes.bfloat16), "exact; rounded: f32 to bf16"),
        (lambda: half(3).to(dtypes.float32), "exact"),
        (lambda: half(3, 4).sum(1), "reassociated; summed in f32; rounded: f32 to f16"),
    ],
)
def test_a_contract_is_read_off_the_kernel(program, words):
    (kernel,) = kernels_of(program())

    assert str(contract_of(kernel, ())) == words


def test_the_licences_of_a_product_are_those_its_plan_uses():
    (kernel,) = kernels_of(half(256, 256) @ half(256, 256))

    on_cpu = contract_of(kernel, lower(kernel, CPU_AVX512).legal)
    on_gpu = contract_of(kernel, lower(kernel, SM90A).legal)

    assert on_cpu.licences == ("multiply-adds of the sum are rounded once",)
    assert "matrix instructions may truncate inside the sum" in on_gpu.licences
    assert on_cpu.accumulators == on_gpu.accumulators == ("f32",)
    assert on_cpu.roundings == on_gpu.roundings == ("f32 to f16",)


def test_a_sum_of_functions_has_no_licence_of_products():
    (kernel,) = kernels_of(tensor(64, 64).exp().sum(1))

    assert contract_of(kernel, lower(kernel, CPU_AVX512).legal).licences == ()


def test_matrix_instructions_on_doubles_truncate_nothing():
    x = tensor(64, 64, dtype=np.float64)
    (kernel,) = kernels_of(x @ x)

    found = contract_of(kernel, lower(kernel, SM90A).legal)

    assert found.licences == ("multiply-adds of the sum are rounded once",)
