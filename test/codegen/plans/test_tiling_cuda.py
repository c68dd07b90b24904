"""The tiling chosen for a contraction on a GPU is the fastest measured one, or close to it."""

import pytest

from tinytensor.codegen.plans.tiling_cuda import Work, rank_fma_tilings, rank_mma_tilings
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
FLOATS = {
    (4096, 4096, 4096): {"large": 2822.8, "square": 2932.3},
    (2048, 2048, 2048): {"large": 351.8, "square": 384.2, "compact": 413.3, "medium": 511.7},
    (1024, 1024, 1024): {
        **{"oblong": 50.65, "compact": 53.25, "medium": 59.46, "square": 92.39, "small": 128.97}
    },
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
    *[(rank_fma_tilings, extents, 4, times) for extents, times in FLOATS.items()],
    *[(rank_mma_tilings, extents, 8, times) for extents, times in DOUBLES.items()],
]


@pytest.mark.parametrize(("rank", "extents", "itemsize", "times_us"), CASES)
def test_the_fastest_measured_tiling_is_chosen(rank, extents, itemsize, times_us):
    m, n, _ = extents

    chosen = rank(Work(1, m, n, itemsize), False, SM90A)[0]

    assert times_us[chosen.name] <= CLOSE * min(times_us.values())
