"""Random graphs give the same bits at every level of TT_FUSE, on a device and on PYTHON."""

import numpy as np
import pytest
from fuzz.random_graphs import Program
from schedule.reading import leaf_values
from tolerance import assert_close

from tinytensor.config import config

IN_THE_SUITE = 300
ALL = 5000


def program_of(seed):
    program = Program(seed)
    return program, [(each.uop, leaf_values(each)) for each in program.outputs]


def results(seed, fuse, device=None, stress=0):
    with config(fuse=fuse, stress=stress):
        first, *rest = Program(seed, device).outputs
        first.realize(*rest)
        return [output.numpy() for output in (first, *rest)]


def check(seed):
    fused = results(seed, 3)
    for fuse in (0, 1, 2):
        for a, b in zip(fused, results(seed, fuse), strict=True):
            np.testing.assert_array_equal(a, b, err_msg=f"seed {seed}, TT_FUSE={fuse}")
    for a, b in zip(fused, results(seed, 3, stress=1), strict=True):
        np.testing.assert_array_equal(a, b, err_msg=f"seed {seed}, TT_STRESS=1")
    check_with_python(seed, fused)


def check_with_python(seed, fused):
    program, expressions = program_of(seed)
    interpreted = results(seed, 3, "PYTHON")
    for a, b, (root, arrays) in zip(fused, interpreted, expressions, strict=True):
        assert a.dtype == b.dtype
        if program.approximate:
            assert_close(a, root, arrays)
            assert_close(b, root, arrays)
        else:
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
