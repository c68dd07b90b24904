"""Every kernel of the corpus compiles for both architectures, without spills, and is right."""

import re
from dataclasses import dataclass

import numpy as np
import pytest
from codegen.cuda_corpus import CASES, FAMILIES
from codegen.plans.plan_kernels import small_integers
from runtime.cuda.programs import STACK_INTS, needs_nvrtc, stack_program
from tolerance import assert_close

from tinytensor.codegen.lower import lower
from tinytensor.ops.interpret import from_storage
from tinytensor.ops.interpret_blocks import run_launches
from tinytensor.ops.kernel import Param
from tinytensor.ops.op import Op
from tinytensor.ops.uop import walk
from tinytensor.runtime.cuda import nvrtc
from tinytensor.schedule.schedule import Options, schedule
from tinytensor.target import SM80, SM90A

TARGETS = (SM80, SM90A)
MOST_KERNELS = 200
NOTHING_SPILLED = {("0", "0", "0")}
# The library's slow path for large angles in float64 holds a table in memory; the slow path of 1/x
# for denormals, called where eight functions are in registers, keeps one of them on the stack.
WITH_A_STACK_FRAME = {"circular-float64-5000", "functions-bfloat16-5000"}
INTERPRETED = [case for case in CASES if case.small is not None]


def lowered(outputs, target):
    """The kernels that compute some tensors, each with its program."""
    calls = schedule([each.uop for each in outputs], target, Options(3, True, False))
    return [(call, lower(call.kernel, target)) for call in calls]


@dataclass(frozen=True)
class Compiled:
    """What the assembler says of registers, stack and spills, and the PTX it was given."""

    log: str
    ptx: str


def compiled(source, target):
    """Compile a source for a target."""
    bindings = nvrtc._load()
    program = nvrtc._call(bindings, "nvrtcCreateProgram", source.encode(), b"k.cu", 0, [], [])
    flags = [f"--gpu-architecture={target.name}", *nvrtc.FLAGS, "--ptxas-options=-v"]
    options = [flag.encode() for flag in flags]
    status = bindings.nvrtcCompileProgram(program, len(options), options)[0]
    log = nvrtc._read(bindings, "ProgramLog", program).rstrip(b"\0").decode()
    ptx = nvrtc._read(bindings, "PTX", program).rstrip(b"\0").decode() if not status else ""
    assert not status, f"{target.name}: {log}\n{source}"
    bindings.nvrtcDestroyProgram(program)
    return Compiled(log, ptx)


def touches_memory_early(ptx):
    """Whether some entry reads or writes global memory before it waits for the launch before it."""
    entries = ptx.split(".visible .entry")[1:]
    ahead = [entry[: entry.find("griddepcontrol.wait")] for entry in entries]
    return any(re.search(r"\b(ld|st|red|atom)\.global|cp\.async", part) for part in ahead)


def memory_of_threads(log):
    """The bytes of stack frame, spill stores and spill loads of each function, as text."""
    pattern = r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads"
    return set(re.findall(pattern, log))


@needs_nvrtc
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_compiles_and_keeps_all_in_registers(family, target):
    done = set()
    for case in [each for each in CASES if each.family == family]:
        for _, kernel in lowered(case.outputs(case.sizes), target):
            source = kernel.program.source
            if source in done:
                continue
            done.add(source)
            made = compiled(source, target)
            found = memory_of_threads(made.log)
            if "grid_dependency" in target.features:
                assert not touches_memory_early(made.ptx), case.name
            if case.name not in WITH_A_STACK_FRAME:
                assert found == NOTHING_SPILLED, f"{case.name} on {target.name}: {found}"


@needs_nvrtc
def test_a_stack_frame_is_found():
    found = memory_of_threads(compiled(stack_program().source, SM90A).log)

    assert {each[0] for each in found} == {str(4 * STACK_INTS)}


@pytest.mark.parametrize("wait", ["", "griddepcontrol.wait;"])
def test_an_access_before_the_wait_is_found(wait):
    ptx = f".visible .entry k() {{ {wait} ld.global.f32 %f1, [%rd1]; griddepcontrol.wait; }}"

    assert touches_memory_early(ptx) == (wait == "")


def test_each_case_has_a_name_of_its_own():
    names = [(case.family, case.name) for case in CASES]

    assert len(set(names)) == len(names)


def test_the_corpus_is_small():
    programs = [[each.uop for each in case.outputs(case.sizes)] for case in CASES]
    calls = [
        call for roots in programs for call in schedule(roots, SM90A, Options(3, False, False))
    ]

    distinct = {call.kernel.sink for call in calls}

    assert 100 < len(distinct) <= MOST_KERNELS


def leaf_arrays(outputs, rng):
    """Small integers for each leaf, as memory holds them."""
    nodes = walk([each.uop for each in outputs])
    leaves = [node for node in nodes if node.op is Op.BUFFER]
    sizes = {node: int(np.prod(node.shape)) for node in leaves}
    return {node: small_integers(Param(node.dtype, n, False), rng) for node, n in sizes.items()}


def unwritten(param):
    """Memory of which no byte is what a kernel would write."""
    filled = np.full(param.elements * param.dtype.itemsize, 0xFF, np.uint8)
    return filled.view(param.dtype.storage_numpy)


def interpret_on(target, outputs, arrays):
    """Run the kernels' last forms as grids of threads; return each output's values."""
    memory = dict(arrays)
    for call, made in lowered(outputs, target):
        for node, param in zip(call.nodes, call.kernel.params, strict=True):
            if node not in memory:
                memory[node] = unwritten(param)
        run_launches(made.legal, [memory[node] for node in call.nodes])
    return [from_storage(memory[each.uop], each.dtype).reshape(each.shape) for each in outputs]


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
@pytest.mark.parametrize("case", INTERPRETED, ids=lambda case: f"{case.family}-{case.name}")
def test_a_small_case_computes_right(case, target, seed):
    outputs = case.outputs(case.small)
    arrays = leaf_arrays(outputs, np.random.default_rng(seed))

    results = interpret_on(target, outputs, arrays)

    values = {
        node: from_storage(array, node.dtype).reshape(node.shape) for node, array in arrays.items()
    }
    for result, output in zip(results, outputs, strict=True):
        assert_close(result, output.uop, values)
