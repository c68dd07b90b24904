"""Runs emitted CUDA on the host: a C++ compiler builds it, and a loop runs thread after thread."""

import ctypes
import shutil
import subprocess

import numpy as np
import pytest
from codegen.gpu_machine import program_of

needs_cpp = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ is found")

HEAD = """
#define __global__
#define __device__
#define __forceinline__ inline
#define __align__(nbytes) __attribute__((aligned(nbytes)))
#define __launch_bounds__(...)
static struct { unsigned x, y, z; } threadIdx, blockIdx;
"""


def run_on_host(linear, arrays, directory):
    """Run a form of one launch, whose threads know nothing of each other, on copies of arrays."""
    program = program_of(linear)
    (launch,) = program.launches
    library = directory / "kernel.so"
    command = ["g++", "-x", "c++", "-std=c++17", "-O1", "-shared", "-fPIC", "-o", library, "-"]
    source = HEAD + program.source + _loop(launch, len(arrays))
    subprocess.run(command, input=source, text=True, check=True)
    results = [np.array(each) for each in arrays]
    ctypes.CDLL(library).run(*[ctypes.c_void_p(each.ctypes.data) for each in results])
    return results


def _loop(launch, count):
    """C++ that runs the blocks of a grid along x."""
    params = ", ".join(f"void *p{number}" for number in range(count))
    arguments = ", ".join(f"p{number}" for number in range(count))
    return f"""
extern "C" void run({params})
{{
    for (blockIdx.x = 0; blockIdx.x < {launch.grid[0]}; blockIdx.x++)
        for (threadIdx.x = 0; threadIdx.x < {launch.threads}; threadIdx.x++)
            ((void (*)({params})){launch.entry})({arguments});
}}
"""
