"""Random graphs give the same bits at every level of TT_FUSE, on CPU and on PYTHON."""

import numpy as np
import pytest
from fuzz.random_graphs import Program

from tinytensor.config import config

IN_THE_SUITE = 300
ALL = 2000
FUNCTION_ULP = 4  # 2 ulp on each device


def results(seed, fuse, device):
    with config(fuse=fuse):
        program = Program(seed, device)
        first, *rest = program.outputs
        first.realize(*rest)
        return program.approximate, [output.numpy() for output in program.outputs]


def check(seed):
    approximate, fused = results(seed, 3, "CPU")
    for fuse in (0, 1, 2):
        _, other = results(seed, fuse, "CPU")
        for a, b in zip(fused, other, strict=True):
            np.testing.assert_array_equal(a, b, err_msg=f"seed {seed}, TT_FUSE={fuse}")
    _, interpreted = results(seed, 3, "PYTHON")
    for a, b in zip(fused, interpreted, strict=True):
        assert a.dtype == b.dtype
        if not approximate:
            np.testing.assert_array_equal(a, b, err_msg=f"seed {seed}, PYTHON")


@pytest.mark.parametrize("first", range(0, IN_THE_SUITE, 10))
def test_random_graphs_agree(first):
    for seed in range(first, first + 10):
        check(seed)


@pytest.mark.fuzz
@pytest.mark.parametrize("first", range(IN_THE_SUITE, ALL, 50))
def test_many_random_graphs_agree(first):
    for seed in range(first, first + 50):
        check(seed)
