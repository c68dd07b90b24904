"""Profiles and explanations of what runs on a GPU: times by its clock, licences of its plans."""

import time

import numpy as np
import pytest

from tinytensor import Device, Tensor, explain, profile

pytestmark = pytest.mark.gpu


def half(*shape):
    return Tensor(np.ones(shape, np.float16), device="CUDA").realize()


def test_launches_are_timed_by_the_device_and_lie_inside_the_block():
    x = half(2048, 2048)
    (x @ x).realize()
    Device["CUDA"].synchronize()
    begin = time.perf_counter()
    with profile() as found:
        for _ in range(5):
            (x @ x).realize()
    end = time.perf_counter()

    assert len(found.kernels) == 5
    assert {each.device for each in found.kernels} == {"CUDA"}
    slack = 1e-3  # the two clocks are compared at one moment
    for each in found.kernels:
        assert each.time_us > 0
        assert begin - slack < each.begin < end - each.time_us * 1e-6 + slack
    begins = [each.begin for each in found.kernels]
    assert begins == sorted(begins)
    # What the host waits for at the end of the block is no launch.
    assert {"launch", "realize", "wait"} <= {each.name for each in found.by_stage()}


def test_a_product_of_halves_tells_of_its_matrix_instructions():
    x = half(512, 512)

    found = explain(lambda: x @ x + 1.0, repeats=3)

    (kernel,) = found.kernels
    assert found.device == "CUDA"
    assert "matrix instructions may truncate inside the sum" in kernel.contract.licences
    assert kernel.contract.accumulators == ("f32",)
    assert kernel.time_us > 0
    assert "__global__" in kernel.sources.source
    assert "<svg" in found.to_html()
