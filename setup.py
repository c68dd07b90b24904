"""Describes the package for pip: what it is called, what it needs, what its extras add."""

import re
from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).parent


def read_version() -> str:
    """Read the version from the package's text, so that nothing is imported to install it."""
    text = (ROOT / "tinytensor" / "__init__.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "([^"]+)"$', text, re.MULTILINE)
    if found is None:
        raise ValueError('setup.py: tinytensor/__init__.py has no line __version__ = "...".')
    return found.group(1)


# The NVRTC wheel and cuda-python must be of one CUDA major version.
NVRTC = "nvidia-cuda-nvrtc>=13,<14"
SAFETENSORS = ["safetensors>=0.8"]
TEST = ["pytest>=8", "pytest-xdist", "hypothesis", "ruff", "mypy", NVRTC, *SAFETENSORS]

setup(
    name="tinytensor",
    version=read_version(),
    description="A tiny lazy tensor framework with its own compiler, for the CPU and for CUDA",
    author="the tinytensor authors",
    license="MIT",
    python_requires=">=3.11",
    packages=find_packages(include=["tinytensor*"]),
    package_data={
        "tinytensor.explain": ["page.css"],
        "tinytensor.runtime": ["steps.c"],
        "tinytensor.runtime.cuda": ["graph.c"],
    },
    install_requires=["numpy", "cuda-python>=13,<14"],
    extras_require={
        "cuda": [NVRTC],
        "examples": ["scikit-learn"],
        "safetensors": SAFETENSORS,
        "test": TEST,
        "test-torch": [*TEST, "torch==2.13.0"],
    },
)
