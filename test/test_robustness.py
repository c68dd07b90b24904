"""Processes, threads, signals, full disks: right values or a clear error, and nothing broken."""

import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

from tinytensor import Tensor, config, jit, nn, optim
from tinytensor.errors import CompileError
from tinytensor.replay import Replay
from tinytensor.runtime.c_compiler import CCompiler

LINE = """
from tinytensor import Tensor, jit
x = Tensor([[1.0, -2.0], [3.0, 4.0]])
f = jit(lambda x: (x @ x.T + 1).relu())
print([f(x).tolist() for _ in range(3)][-1], x.softmax(1).sum().item())
"""
GIVEN = "[[6.0, 0.0], [0.0, 26.0]] 2.0\n"
FULL = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))\n"
FORK = """
import os
{line}
child = os.fork()
if child == 0:
    print(f(x * 1).tolist(), (x + 1).sum().item(), flush=True)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""


@pytest.fixture(autouse=True)
def on_the_cpu():
    with config(device="CPU"):
        yield


def start(directory, text):
    environment = {key: value for key, value in os.environ.items() if key != "TT_VERIFY"}
    environment |= {"TT_CACHE_DIR": str(directory), "TT_DEVICE": "CPU"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([sys.executable, "-c", text], text=True, env=environment, **pipes)


def test_eight_processes_may_fill_one_cache(tmp_path):
    started = [start(tmp_path, LINE) for _ in range(8)]

    outputs = [each.communicate() for each in started]

    assert outputs == [(GIVEN, "")] * 8


def test_a_full_disk_breaks_nothing(tmp_path):
    told, error = start(tmp_path, FULL + LINE).communicate()
    after = start(tmp_path, LINE).communicate()

    assert told == ""
    assert "tinytensor.errors.CompileError: cpu: kernel" in error
    assert after == (GIVEN, "")


def test_a_forked_child_computes(tmp_path):
    told, error = start(tmp_path, FORK.format(line=LINE)).communicate()

    assert error == ""
    assert told == GIVEN + "[[6.0, 0.0], [0.0, 26.0]] 10.0\n"


def test_threads_jit_and_realize_different_graphs():
    found = {}

    def work(number):
        jitted = jit(lambda x: x * number + 1)
        x = Tensor(np.full(number + 1, 2.0, np.float32))
        values = [(jitted(x) + 1).sum().item() for _ in range(5)]
        found[number] = (values, (x - number).tolist())

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()

    expected = {n: ([float((2 * n + 2) * (n + 1))] * 5, [2.0 - n] * (n + 1)) for n in range(6)}
    assert found == expected


def test_an_interrupted_compilation_is_made_again(monkeypatch, tmp_path):
    inner, calls = CCompiler.build, []

    def build(self, program):
        calls.append(program)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return inner(self, program)

    monkeypatch.setattr(CCompiler, "build", build)
    jitted = jit(lambda x: x * 3 - 7.125)
    x = Tensor([1.0])
    with config(cache_dir=str(tmp_path)):
        with pytest.raises(KeyboardInterrupt):
            jitted(x)

        assert jitted(x).item() == -4.125
        assert jitted(x).item() == -4.125


def test_a_compiler_that_fails_once_leaves_tensors_as_they_were(monkeypatch, tmp_path):
    def build(self, program):
        raise CompileError("cpu: no compiler today.")

    x = Tensor([1.0]).realize()
    with config(cache_dir=str(tmp_path)):
        with monkeypatch.context() as broken:
            broken.setattr(CCompiler, "build", build)
            jitted = jit(lambda x: x.mul_(5).sub_(2.0625))
            with pytest.raises(CompileError, match="no compiler today"):
                jitted(x)

        assert x.item() == 1.0
        jitted(x)
        assert x.item() == 2.9375


@pytest.mark.parametrize("is_jitted", [False, True])
def test_ctrl_c_after_kernels_that_write_over_values_loses_nothing(monkeypatch, is_jitted):
    weight = nn.Parameter(Tensor([1.0, 2.0]))
    optimizer = optim.SGD([weight], lr=0.5)

    def plain():
        optimizer.zero_grad()
        (weight * Tensor([1.0, 3.0])).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    step = jit(plain) if is_jitted else plain
    step()
    step()
    inner = Replay.run
    # A shell lets its background jobs ignore it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    def interrupted(self, leaves):
        results = inner(self, leaves)
        signal.raise_signal(signal.SIGINT)
        return results

    with monkeypatch.context() as patched:
        patched.setattr(Replay, "run", interrupted)
        with pytest.raises(KeyboardInterrupt):
            step()
    signal.signal(signal.SIGINT, before)

    assert weight.tolist() == [-0.5, -2.5]
    step()
    assert weight.tolist() == [-1.0, -4.0]
