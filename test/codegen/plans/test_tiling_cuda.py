"""The tiling chosen for a contraction on a GPU is the fastest measured one, or close to it."""

import pytest

from tinytensor.codegen.plans.tiling_cuda import (
    FMA_TILINGS,
    RESERVED_BYTES,
    Work,
    rank_fma_tilings,
    rank_mma_tilings,
    shared_for_a_share,
    takes_too_many,
)
from tinytensor.target import SM90A

CLOSE = 1.03  # the clock of the machine moves as much from run to run

# us a launch on H200, driver 580, NVRTC 13.0, inputs not in L2: (m, n, k) -> tiling -> time.
HALVES = {
    (4096, 4096, 4096): {"wide": 385.81, "square": 476.83},
    (2048, 2048, 2048): {
        **{"wide": 51.86, "square": 62.04, "tall": 57.93, "small": 71.74, "flat": 101.91}
    },
    (1024, 1024, 768): {"square": 15.68, "tall": 8.71, "small": 9.42, "flat": 13.31},
    (512, 4096, 4096): {"tall": 57.58, "small": 72.52, "flat": 105.78},
    (128, 4096, 4096): {"tall": 29.81, "small": 26.21, "flat": 30.84},
    (16, 4096, 4096): {"tall": 25.99, "small": 20.54, "flat": 17.72},
    (512, 512, 512): {"tall": 5.90, "small": 5.17, "flat": 4.72},
}
NN, NT = (True, False), (True, True)  # which factors' rows lie along k
FLOATS = {
    (4096, 4096, NT): {"large": 2822.8},
    (2048, 2048, NT): {"large": 351.8},
    (1536, 1536, NT): {"compact": 203.3, "flat": 220.2, "broad": 266.2, "slim": 305.0},
    (1280, 1280, NN): {"broad": 107.6, "flat": 113.0, "compact": 123.1, "slim": 149.8},
    (1024, 1024, NN): {"broad": 49.9, "compact": 50.6, "flat": 52.9, "slim": 75.0, "tiny": 95.9},
    (1024, 1024, NT): {"broad": 51.8, "compact": 57.8, "flat": 68.2, "slim": 92.2},
    (768, 768, NN): {"flat in 3 stages": 31.1, "slim": 37.1},
    (512, 512, NN): {"flat": 9.1, "flat in 3 stages": 9.6, "slim": 11.2, "compact": 14.1},
    (256, 256, NT): {"tiny": 3.7, "slim": 4.8, "flat": 6.0, "compact": 7.7},
    (128, 4096, NT): {"compact": 31.2, "flat": 34.9, "slim": 45.3, "broad": 48.3, "tiny": 70.5},
    (64, 1024, NT): {"tiny": 11.1, "slim": 15.3, "flat": 18.0},
}
GRAMS = {
    (1024, 1024, NT): {"slim": 48.4, "broad": 54.2, "compact": 58.7, "flat": 68.6},
    (512, 512, NT): {"flat": 10.9, "flat in 3 stages": 11.1, "slim": 13.8, "compact": 16.6},
}
DOUBLES = {
    (4096, 4096, 4096): {"tall": 2756.7, "small": 2846.0, "deep": 2956.0},
    (2048, 2048, 2048): {"tall": 338.3, "small": 346.8, "deep": 359.3},
    (1024, 1024, 1024): {"tall": 66.9, "deep": 43.4, "small": 74.8, "flat": 52.0},
    (512, 512, 512): {"deep": 15.8, "flat": 9.9, "least": 9.0},
    (515, 387, 259): {"small": 11.2, "least": 7.1},
}
CASES = [
    *[(rank_mma_tilings, extents, 2, times) for extents, times in HALVES.items()],
    *[(rank_mma_tilings, extents, 8, times) for extents, times in DOUBLES.items()],
]


@pytest.mark.parametrize(("rank", "extents", "itemsize", "times_us"), CASES)
def test_the_fastest_measured_tiling_is_chosen(rank, extents, itemsize, times_us):
    m, n, _ = extents

    chosen = rank(Work(1, m, n, itemsize), False, SM90A)[0]

    assert times_us[chosen.name] <= CLOSE * min(times_us.values())


SUMMED_BY_THREADS = [
    *[(False, *each) for each in FLOATS.items()],
    *[(True, *each) for each in GRAMS.items()],
]


@pytest.mark.parametrize(("is_symmetric", "product", "times_us"), SUMMED_BY_THREADS)
def test_the_fastest_measured_tiling_of_multiply_adds_is_chosen(is_symmetric, product, times_us):
    m, n, turned = product

    chosen = rank_fma_tilings(Work(1, m, n, 4, is_symmetric, turned), False, SM90A)[0]

    assert times_us[chosen.name] <= CLOSE * min(times_us.values())


@pytest.mark.parametrize(("blocks", "most"), [(1, 1), (132, 1), (133, 2), (264, 2), (265, 3)])
def test_no_multiprocessor_takes_more_than_its_share(blocks, most):
    taken = shared_for_a_share(blocks, SM90A) + RESERVED_BYTES
    held = SM90A.shared_bytes + RESERVED_BYTES

    assert held // taken == most


@pytest.mark.parametrize(("n", "expected"), [(2048, False), (1024, True)])
def test_registers_may_hold_no_more_than_the_share_as_it_is(n, expected):
    """Two blocks of 128 x 128 fill the registers: of 256 blocks two are the share, of 64 one."""
    (large,) = [each for each in FMA_TILINGS if each.name == "large"]

    assert takes_too_many(large, Work(1, n, n, 4), SM90A) is expected


def test_many_blocks_go_where_there_is_room():
    assert shared_for_a_share(1 << 20, SM90A) == 0
