"""Claims about the CPU device: what it compiles, what it loads from the cache, how it runs."""

import os
import subprocess
import sys
import threading

import numpy as np
import pytest
from runtime.c_programs import ELEMENTS, add_program, make_program, run_add

from tinytensor.config import config
from tinytensor.errors import CompileError, DeviceError
from tinytensor.runtime import cpu, probe
from tinytensor.runtime.c_compiler import CCompiler, find_compiler
from tinytensor.target import DEFAULT_L2_BYTES, VECTOR_RATES, ZEN4


@pytest.fixture(autouse=True)
def empty_cache(tmp_path):
    with config(cache_dir=str(tmp_path / "cache")):
        yield tmp_path / "cache"


@pytest.fixture
def device():
    return cpu.open_device()


def expected_add(number):
    return np.arange(ELEMENTS) + number


def test_a_program_runs_on_buffers(device):
    executables = device.compile([add_program(3)])

    assert (run_add(device, executables[0]) == expected_add(3)).all()


def test_several_programs_come_back_in_order(device):
    numbers = [5, 2, 9, 2, 7]

    executables = device.compile([add_program(number) for number in numbers])

    for number, executable in zip(numbers, executables, strict=True):
        assert (run_add(device, executable) == expected_add(number)).all()
    assert executables[1] is executables[3]


def test_no_program_is_no_executable(device):
    assert device.compile([]) == []


def test_a_second_process_loads_what_the_first_compiled(device):
    first = device.compile([add_program(1)])[0]
    another = cpu.open_device()

    second = another.compile([add_program(1)])[0]

    assert not first.was_cached
    assert second.was_cached
    assert (run_add(another, second) == expected_add(1)).all()


@pytest.mark.parametrize(
    "changed",
    [
        add_program(2),
        make_program("", name="other"),
        make_program("", libraries=("-lm",)),
    ],
)
def test_another_program_is_another_file(device, empty_cache, changed):
    device.compile([make_program(""), changed])

    assert len(list(empty_cache.iterdir())) == 2


def test_another_compiler_is_another_file(device, empty_cache):
    device.compile([add_program(1)])
    upgraded = CCompiler(device.compiler.command, device.compiler.identity + " and later")

    executable = cpu.CpuDevice(upgraded).compile([add_program(1)])[0]

    assert not executable.was_cached
    assert len(list(empty_cache.iterdir())) == 2


def test_a_library_is_linked(device):
    body = """
      extern double cbrt(double);
      *(double *)address[0] = cbrt(*(double *)address[1]);
    """
    out, x = device.allocate(8), device.allocate(8)
    device.copy_in(x, np.array([27.0]))
    result = np.zeros(1)

    device.run(device.compile([make_program(body, libraries=("-lm",))])[0], [out, x])
    device.copy_out(out, result)

    assert abs(result[0] - 3) <= 2 * np.spacing(3.0)


def test_a_program_without_implicit_multiply_add_rounds_twice(device):
    body = """
      float *out = address[0], *x = address[1];
      out[0] = x[0] * x[1] + x[2];
    """
    above = 1 + 2.0**-12  # its square, 1 + 2**-11 + 2**-24, rounds to 1 + 2**-11
    x = np.array([above, above, -(1 + 2.0**-11)], np.float32)
    out, operands = device.allocate(4), device.allocate(12)
    device.copy_in(operands, x)
    result = np.ones(1, np.float32)

    device.run(device.compile([make_program(body)])[0], [out, operands])
    device.copy_out(out, result)

    assert result[0] == 0


def test_loading_a_kernel_keeps_denormals(device):
    device.compile([add_program(1)])

    halved = np.array([np.finfo(np.float32).tiny]) / 2

    assert halved[0] > 0


def test_the_scratch_memory_comes_last(device):
    body = """
      long *scratch = address[1];
      scratch[127] = 5;
      *(long *)address[0] = scratch[127] + ((long)scratch & 63);
    """
    program = make_program(body, params=1, workspace_bytes=1024)
    out = device.allocate(8)
    result = np.zeros(1, np.int64)

    device.run(device.compile([program])[0], [out])
    device.copy_out(out, result)

    assert result[0] == 5


def test_the_workspace_is_kept_until_it_must_grow(device):
    first = device.workspace(1000)

    smaller = device.workspace(10)
    allocated = device.memory().allocated
    device.workspace(5000)

    assert smaller == first
    assert allocated == 1024
    assert device.memory().allocated == 5120


def test_each_thread_has_a_workspace_of_its_own(device):
    addresses = [device.workspace(64)]
    thread = threading.Thread(target=lambda: addresses.append(device.workspace(64)))

    thread.start()
    thread.join()

    assert addresses[0] != addresses[1]


def test_a_broken_program_does_not_lose_the_others(device):
    programs = [add_program(1), make_program("no C at all"), add_program(2)]

    with pytest.raises(CompileError):
        device.compile(programs)

    assert [each.was_cached for each in cpu.open_device().compile([programs[0], programs[2]])] == [
        True,
        True,
    ]


@pytest.mark.parametrize("threads", [8])
def test_threads_compile_one_program_once(device, threads):
    found = []
    workers = [
        threading.Thread(target=lambda: found.extend(device.compile([add_program(4)])))
        for _ in range(threads)
    ]

    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()

    assert len(found) == threads
    assert len(set(map(id, found))) == 1


SCRIPT = """
import sys
import numpy as np
from runtime.c_programs import add_program, run_add
from tinytensor.runtime.device import Device
device = Device["CPU"]
executables = device.compile([add_program(number) for number in range(3)])
sums = [int(run_add(device, each).sum()) for each in executables]
print(sums, [each.was_cached for each in executables], "subprocess" in sys.modules)
"""


def start_process(directory):
    path = os.pathsep.join(["test", ".", os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "TT_CACHE_DIR": str(directory), "PYTHONPATH": path}
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


def test_eight_processes_share_an_empty_cache(tmp_path):
    directory = tmp_path / "shared"

    processes = [start_process(directory) for _ in range(8)]
    results = [process.communicate() for process in processes]

    for stdout, stderr in results:
        assert stderr == ""
        assert stdout.startswith("[2016, 2080, 2144] ")
    assert len(list(directory.iterdir())) == 4  # one is what runs the others


def test_a_second_process_loads_all_and_starts_no_compiler(tmp_path):
    start_process(tmp_path / "shared").communicate()

    stdout, _ = start_process(tmp_path / "shared").communicate()

    assert stdout == "[2016, 2080, 2144] [True, True, True] False\n"


def test_a_damaged_binary_is_compiled_again(tmp_path):
    start_process(tmp_path / "shared").communicate()
    binaries = (tmp_path / "shared").iterdir()
    damaged = min(each for each in binaries if b"runner_step" not in each.read_bytes())
    content = damaged.read_bytes()
    damaged.write_bytes(content[:5000])

    stdout, stderr = start_process(tmp_path / "shared").communicate()

    assert stdout.startswith("[2016, 2080, 2144] ")
    assert stdout.count("True") == 3  # two were whole, and a compiler was started
    assert stderr == ""
    assert damaged.read_bytes()[:5000] == content[:5000]


LIGHT_SCRIPT = """
import sys
import numpy
import tinytensor.runtime.cpu
from tinytensor.runtime.device import Device
Device["CPU"]
print({"subprocess", "tempfile", "shutil", "concurrent.futures"} & sys.modules.keys())
"""


def test_nothing_that_only_compiling_needs_is_imported_before():
    done = subprocess.run([sys.executable, "-c", LIGHT_SCRIPT], capture_output=True, text=True)

    assert done.stdout == "set()\n"


def in_child(action):
    """Run an action in a forked child within 60 s and return whether it gave true."""
    child = os.fork()
    if child == 0:
        verdict = []
        thread = threading.Thread(target=lambda: verdict.append(action()), daemon=True)
        thread.start()
        thread.join(timeout=60)
        os._exit(0 if verdict == [True] else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_child_goes_on_with_what_the_parent_compiled(device):
    executable = device.compile([add_program(6)])[0]

    assert in_child(lambda: bool((run_add(device, executable) == expected_add(6)).all()))


def test_a_child_compiles_while_a_thread_of_the_parent_does(device):
    def compile_and_run():
        executable = device.compile([add_program(8)])[0]
        return bool((run_add(device, executable) == expected_add(8)).all())

    with device._lock:
        went_well = in_child(compile_and_run)

    assert went_well


def test_the_environment_chooses_the_compiler(tmp_path, monkeypatch):
    wrapper = tmp_path / "my-cc"
    wrapper.write_text('#!/bin/sh\nexec cc "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv("CC", f"{wrapper} -DNUMBER=41")
    body = "*(int *)address[0] = NUMBER + 1;"
    device = cpu.open_device()
    out = device.allocate(4)
    result = np.zeros(1, np.int32)

    device.run(device.compile([make_program(body, params=1)])[0], [out])
    device.copy_out(out, result)

    assert device.compiler.command == (str(wrapper), "-DNUMBER=41")
    assert result[0] == 42


def test_the_identity_follows_the_compilers_file(tmp_path, monkeypatch):
    wrapper = tmp_path / "my-cc"
    wrapper.write_text("#!/bin/sh\n")
    wrapper.chmod(0o755)
    monkeypatch.setenv("CC", str(wrapper))
    before = find_compiler().identity

    wrapper.write_text("#!/bin/sh\n# upgraded\n")

    assert find_compiler().identity != before


def test_a_missing_compiler_is_not_replaced_by_another(monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler")

    with pytest.raises(DeviceError):
        cpu.open_device()


X86_CPUINFO = """processor\t: 0
vendor_id\t: AuthenticAMD
cpu family\t: 25
model name\t: Some CPU
flags\t\t: fpu sse4_1 {flags}

processor\t: 1
model name\t: Another
flags\t\t: none
"""


@pytest.fixture
def describe(tmp_path, monkeypatch):
    """Probe a machine with the given /proc/cpuinfo and no cache directory."""

    def probe_with(cpuinfo):
        path = tmp_path / "cpuinfo"
        path.write_text(cpuinfo)
        monkeypatch.setattr(probe, "CPUINFO", str(path))
        monkeypatch.setattr(probe, "CACHES", str(tmp_path / "absent"))
        probe.read_processor.cache_clear()
        probe.probe_target.cache_clear()
        return probe.probe_target()

    yield probe_with
    probe.read_processor.cache_clear()
    probe.probe_target.cache_clear()


AVX512 = "avx512f avx512bw avx512vl avx512dq"


@pytest.mark.parametrize(
    ("flags", "vector_bytes", "features"),
    [
        (f"avx2 fma f16c {AVX512} avx512_bf16", 64, "sse4_1 avx2 fma f16c avx512 avx512_bf16"),
        ("avx2 fma f16c avx512f", 32, "sse4_1 avx2 fma f16c"),
        ("avx2 f16c", 16, "sse4_1 avx2 f16c"),
        ("", 16, "sse4_1"),
    ],
)
def test_the_widest_whole_vector_unit_counts(describe, flags, vector_bytes, features):
    target = describe(X86_CPUINFO.format(flags=flags))

    assert target.vector_bytes == vector_bytes
    assert target.features == frozenset(features.split())
    assert target.lanes(4) == vector_bytes // 4


@pytest.mark.parametrize(
    ("flags", "rates"), [(f"avx2 fma {AVX512}", ZEN4), ("avx2 fma", VECTOR_RATES[32])]
)
def test_rates_go_by_family_and_vectors(describe, flags, rates):
    assert describe(X86_CPUINFO.format(flags=flags)).rates == rates


def test_an_unknown_processor_is_the_least_one(describe):
    target = describe("")

    assert target.vector_bytes == 16
    assert target.features == frozenset()
    assert target.l2_bytes == DEFAULT_L2_BYTES


def test_the_model_is_the_first_processors(describe):
    describe(X86_CPUINFO.format(flags="avx2"))

    assert probe.read_processor().model.endswith(" Some CPU")
    assert probe.read_processor().flags == "fpu sse4_1 avx2"


def test_cache_sizes_skip_the_instructions(tmp_path):
    rows = [("1", "Instruction", "64K"), ("1", "Data", "48K"), ("3", "Unified", "32M")]
    for number, row in enumerate(rows):
        index = tmp_path / f"index{number}"
        index.mkdir()
        for name, text in zip(("level", "type", "size"), row, strict=True):
            (index / name).write_text(f"{text}\n")

    sizes = [probe.read_cache_bytes(str(tmp_path), level) for level in (1, 2, 3)]

    assert sizes == [48 << 10, 0, 32 << 20]
