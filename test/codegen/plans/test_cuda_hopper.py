"""Hopper's plan of contractions: its pipeline gives the INDEXED interpreter's sums."""

import numpy as np
import pytest
from codegen.plans.plan_kernels import arrays_for, expected
from codegen.plans.test_cuda_contraction import biased, half, two_stores

from tinytensor.codegen.plans import cuda_hopper
from tinytensor.codegen.plans.cuda_hopper_tiling import Candidate, HopperTiling
from tinytensor.dtype import dtypes
from tinytensor.ops.interpret_blocks import run_launches
from tinytensor.ops.verify import verify_linear
from tinytensor.target import SM90A
from dataclasses import replace

ONE = HopperTiling("one", 64, 64, 2, 1)
TURNS = HopperTiling("turns", 64, 64, 3, 2, takes_turns=True)
TOGETHER = HopperTiling("together", 128, 64, 2, 2)
FEW = HopperTiling("few", 64, 8, 3, 1, swaps=True)
FORMS = (ONE, TURNS, TOGETHER, FEW)
SMALL = replace(SM90A, multiprocessors=2)


def lowered(kernel, tiling=ONE, target=SMALL):
    facts = cuda_hopper.facts(kernel, target)
    assert not isinstance(facts, str), facts
    return cuda_hopper.lower(facts, target, Candidate(tiling, tiling.stages, 0, 0.0))


def assert_exact(kernel, tiling=ONE, seed=0):
    linears = lowered(kernel, tiling)
    for each in linears:
        verify_linear(each)
    arrays = arrays_for(kernel)
    results = [each.copy() for each in arrays]

    run_launches(linears, results, seed)

    for result, want in zip(results, expected(kernel, arrays), strict=True):
        np.testing.assert_array_equal(result, want, strict=True)


@pytest.mark.parametrize("transposed_b", [False, True])
@pytest.mark.parametrize("transposed_a", [False, True])
@pytest.mark.parametrize("tiling", FORMS, ids=lambda each: each.name)
def test_every_layout(tiling, transposed_a, transposed_b):
    assert_exact(half(136, 72, 200, transposed_a, transposed_b), tiling)
