"""The project's two lines on a GPU: one kernel each, matrix instructions, every rounding kept.

Fresh memory is full of NaN here, so that an element which no thread writes is found.
"""

import re

import numpy as np
import pytest
from fuzz.test_fuse_levels import check_with_python, results
from schedule.reading import interpreted
from schedule.test_contraction_variants import outputs_of, variants

from tinytensor import Tensor, config, selfcheck
from tinytensor.codegen.lower import lower
from tinytensor.report import capture
from tinytensor.runtime.device import Device

pytestmark = pytest.mark.gpu

GRAPHS = 500
GRAPHS_A_TEST = 20
FIRST_SEED = 100_000  # none that the suite runs on every device
NO_TOOL = "nvdisasm is not found"


@pytest.fixture(autouse=True)
def poisoned_gpu():
    with config(device="CUDA", stress=1):
        yield


def linear():
    shapes = ((1024, 768), (1024, 768), (1024,))
    x, weight, b = (Tensor(np.ones(shape, np.float16)) for shape in shapes)
    return x.matmul(weight.T) + b


def gram(n):
    x = Tensor(np.ones((n, n), np.float32))
    return (x @ x.T + 1.0).relu()


def kernels_of(tensor):
    """The kernels that ran to compute a tensor."""
    with capture() as planned:
        tensor.realize()
    return [each.kernel for each in planned]


@pytest.mark.parametrize(
    "line", [linear, lambda: gram(64), lambda: gram(1024)], ids=["linear", "gram-64", "gram-1024"]
)
def test_a_line_is_one_kernel_and_one_launch(line):
    kernels = kernels_of(line())

    assert len(kernels) == 1
    assert len(lower(kernels[0], Device["CUDA"].target).program.launches) == 1


def test_the_first_line_multiplies_by_matrix_instructions():
    (kernel,) = kernels_of(linear())
    device = Device["CUDA"]
    program = lower(kernel, device.target).program

    code = device.disassemble(device.compile([program])[0])

    if code.startswith(NO_TOOL):
        assert re.search(r"\bw?g?mma[.\w]*sync", program.source)
    else:
        assert re.search(r"\bHG?MMA\b", code)


@pytest.mark.parametrize("line", selfcheck.lines(quick=False), ids=lambda line: str(line.shapes[0]))
def test_a_line_keeps_its_contract_in_every_element(line):
    verdict = selfcheck.check(line, "CUDA")

    assert (verdict.broken, verdict.error <= 1) == (0, True)


@pytest.mark.parametrize("variant", variants(), ids=str)
def test_a_variant_is_one_kernel_and_right(variant):
    outputs = outputs_of(variant)

    with capture() as kernels:
        outputs[0].realize(*outputs[1:])

    assert len(kernels) == 1
    for output, values in zip(outputs, interpreted(*outputs_of(variant)), strict=True):
        np.testing.assert_array_equal(output.numpy(), values)


@pytest.mark.parametrize(
    "first", range(FIRST_SEED, FIRST_SEED + GRAPHS, GRAPHS_A_TEST), ids=lambda seed: str(seed)
)
def test_random_graphs_agree(first):
    for seed in range(first, first + GRAPHS_A_TEST):
        check_with_python(seed, results(seed, 3))


@pytest.mark.parametrize("fuse", [0, 1, 2])
def test_less_fusion_gives_the_same_bits(fuse):
    for seed in range(FIRST_SEED, FIRST_SEED + GRAPHS_A_TEST):
        for fused, apart in zip(results(seed, 3), results(seed, fuse), strict=True):
            np.testing.assert_array_equal(fused, apart, err_msg=f"seed {seed}")
