"""Prepares a run of the suite: verifier on, a private cache, seeds, gpu tests only with a GPU."""

import contextlib
import ctypes
import functools
import os
import re
import shutil
import tempfile
import zlib

import pytest

WORKER = os.environ.get("PYTEST_XDIST_WORKER", "main")
CACHE_DIR = tempfile.mkdtemp(prefix=f"tinytensor-{WORKER}-")

# Set before the package is imported, because it reads its settings once.
os.environ["TT_VERIFY"] = "1"
os.environ["TT_CACHE_DIR"] = CACHE_DIR

from tinytensor.config import config as settings  # noqa: E402 - after the settings above
from tinytensor.lazy import lazy_import  # noqa: E402 - after the settings above

with contextlib.suppress(ImportError):  # a machine that only runs gpu tests may lack hypothesis
    import hypothesis

    hypothesis.settings.register_profile("suite", derandomize=True, deadline=None)
    hypothesis.settings.load_profile("suite")

# The tests of these folders say nothing of a device: each runs on the CPU and on a GPU, but for the
# thousands of random programs, which run on the default device alone.
ON_EVERY_DEVICE = {"tensor", "end_to_end", "fuzz", "schedule", "jit"}


def pytest_addoption(parser):
    parser.addoption("--seed", type=int, help="replaces the seed that each test gets from its name")


def pytest_report_header(config):
    seed = config.getoption("seed")
    return f"seeds: {'from the names of the tests' if seed is None else seed}"


def pytest_generate_tests(metafunc):
    is_fuzz = metafunc.definition.get_closest_marker("fuzz") is not None
    if metafunc.definition.path.parent.name in ON_EVERY_DEVICE and not is_fuzz:
        devices = ["CPU", pytest.param("CUDA", marks=pytest.mark.gpu)]
        metafunc.parametrize("default_device", devices, indirect=True)


def pytest_collection_modifyitems(items):
    gpu_items = [item for item in items if item.get_closest_marker("gpu")]
    reason = missing_gpu() if gpu_items else ""
    if reason:
        for item in gpu_items:
            item.add_marker(pytest.mark.skip(reason=reason))


def pytest_unconfigure():
    shutil.rmtree(CACHE_DIR, ignore_errors=True)


@pytest.fixture(autouse=True)
def default_device(request):
    """The device that tensors live on unless a test says otherwise; TT_DEVICE replaces the CPU."""
    asked = getattr(request, "param", "")
    name = asked if asked == "CUDA" else settings.device or asked
    with settings(device=name):
        yield name


@pytest.fixture
def seed(request):
    """A fixed number of this test's own, on any device; pytest shows it when the test fails."""
    chosen = request.config.getoption("seed")
    name = re.sub(r"-?\b(CPU|CUDA)\]$", "]", request.node.nodeid)
    value = zlib.crc32(name.encode()) if chosen is None else chosen
    print(f"seed: {value}")
    return value


@functools.cache
def missing_gpu():
    """Say why no CUDA device is usable; empty if one is."""
    try:
        ctypes.CDLL("libcuda.so.1")  # at once, where importing the bindings takes 0.1 s
        driver = lazy_import("cuda.bindings.driver", None, "gpu tests")
        (status,) = driver.cuInit(0)
        count = driver.cuDeviceGetCount()[1] if status == 0 else 0
    except (OSError, ImportError, RuntimeError) as error:
        return f"no CUDA driver: {error}"
    return "" if count else f"no CUDA device: cuInit gave {status}"
