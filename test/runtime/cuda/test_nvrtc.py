"""Claims about NVRTC, which needs no GPU: what it makes, and what it says about mistakes."""

import ctypes
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from meta.tree import ROOT
from runtime.cuda.programs import add_program, needs_nvrtc

from tinytensor.errors import CompileError
from tinytensor.runtime.cuda.nvrtc import compile_cubin, find_library, identity

pytestmark = needs_nvrtc

ELF = b"\x7fELF"
BAD = 'extern "C" __global__ void bad(float *out) {\n  out[0] = missing;\n}\n'


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90a"])
def test_a_kernel_becomes_a_binary_of_one_architecture(architecture):
    cubin = compile_cubin(add_program(1).source, architecture)

    assert cubin.startswith(ELF)
    assert b".text.add" in cubin
    assert architecture.encode() in cubin


def test_the_same_source_becomes_the_same_binary():
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: compile_cubin(add_program(1).source, "sm_80"), range(2))

    assert first == second


def test_a_product_and_a_sum_stay_two_roundings():
    source = 'extern "C" __global__ void f(float *x) { x[0] = x[1] * x[2] + x[3]; }'
    fused = 'extern "C" __global__ void f(float *x) { x[0] = __fmaf_rn(x[1], x[2], x[3]); }'

    assert compile_cubin(source, "sm_80") != compile_cubin(fused, "sm_80")


def test_a_mistake_is_shown_beside_its_line():
    with pytest.raises(CompileError) as caught:
        compile_cubin(BAD, "sm_90a", "bad")

    assert str(caught.value) == (
        "cuda: kernel 'bad' does not compile for sm_90a: NVRTC complains as below; "
        "the emitted source must be valid.\n"
        'line 2: identifier "missing" is undefined\n'
        '     1 | extern "C" __global__ void bad(float *out) {\n'
        ">    2 |   out[0] = missing;\n"
        "     3 | }"
    )


def test_an_unknown_architecture_is_named():
    with pytest.raises(CompileError) as caught:
        compile_cubin(add_program(1).source, "sm_1", "add")

    assert str(caught.value) == (
        "cuda: kernel 'add' does not compile for sm_1: NVRTC complains as below; "
        "the emitted source must be valid.\n"
        "nvrtc: error: invalid value for --gpu-architecture (-arch)"
    )


def test_finding_it_loads_nothing():
    script = (
        "import sys\n"
        "from tinytensor.runtime.cuda.nvrtc import identity\n"
        "identity()\n"
        "mapped = open('/proc/self/maps').read()\n"
        "print([name for name in sys.modules if name.split('.')[0] == 'cuda'])\n"
        "print('libnvrtc' in mapped)\n"
    )

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT)

    assert (done.stdout, done.stderr) == ("[]\nFalse\n", "")


def test_the_found_library_is_the_one_that_compiles():
    compile_cubin(add_program(1).source, "sm_80")

    with open("/proc/self/maps") as file:
        mapped = {line.split()[-1] for line in file if "libnvrtc.so" in line}
    assert ctypes.CDLL(find_library())._name in mapped
    assert identity().startswith(mapped.pop())
