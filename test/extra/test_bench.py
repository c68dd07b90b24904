"""The benchmark checks what it times, and says where and how."""

import json
import os
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
from meta.tree import ROOT

from extra.bench.engines import NumPy
from extra.bench.measure import Outcome, measure
from extra.bench.table import json_line, problem_lines, table_line
from extra.bench.works import WORKS, find_works

OVERHEAD = find_works(["overhead"])[0]


def bench(*arguments):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OPENBLAS_CORETYPE": "Prescott"}
    command = [sys.executable, "-m", "extra.bench", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT)


def small(work):
    """A work's formula and reference on little operands."""
    rows = 8 if len(work.shapes[0]) > 1 else 64
    shapes = [(rows, *[12] * (len(shape) - 1)) for shape in work.shapes]
    square = work.name.startswith(("gram", "matmul", "overhead"))
    return [(12, 12) for _ in shapes] if square else shapes


class Named(NumPy):
    """NumPy under another name."""

    def __init__(self, name):
        super().__init__()
        self.name = name


class Wrong(Named):
    def relu(self, x):
        return np.abs(x)


class Broken(Named):
    def relu(self, x):
        raise NotImplementedError("no relu")


def timed(name, median_us):
    return Outcome(OVERHEAD, Named(name), median_us, 5, 0.25)


def test_the_command_prints_a_table_and_writes_json(tmp_path):
    path = tmp_path / "bench.jsonl"
    chosen = ["--engines", "numpy,tinytensor", "--work", "overhead", "--rounds", "3"]

    done = bench("cpu", *chosen, "--json", str(path))

    assert done.returncode == 0, done.stdout + done.stderr
    assert "one thread; median process CPU time of up to 3 interleaved rounds" in done.stdout
    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert [each["engine"] for each in records] == ["numpy", "tinytensor"]
    for record in records:
        assert record["work"] == "overhead"
        assert record["median_us"] > 0
        assert record["rounds"] == 3
        assert record["error_of_bound"] <= 1
        flops = record["gflops"] * record["median_us"] * 1e3
        assert flops == pytest.approx(2 * 4**3 + 2 * 4**2, abs=0.0006 * record["median_us"] * 1e3)
        assert {"commit", "date", "machine", "version", "clock"} <= record.keys()


def test_an_unknown_work_or_engine_is_refused():
    work = bench("cpu", "--work", "knitting")
    engine = bench("cpu", "--engines", "abacus")

    assert (work.returncode, engine.returncode) == (2, 2)
    assert work.stderr.startswith("bench: no such work: 'knitting'; must be one of overhead, ")
    assert engine.stderr.startswith("bench: no such engine: 'abacus'; must be one of tinytensor, ")


def test_threads_are_limited_before_any_library_is_imported():
    program = (
        "import sys, os, extra.bench.one_thread\n"
        "print('numpy' in sys.modules, os.environ['OMP_NUM_THREADS'],"
        " 'OPENBLAS_CORETYPE' in os.environ)"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OPENBLAS_CORETYPE": "Prescott"}

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment, cwd=ROOT
    )

    assert done.stdout == "False 1 False\n", done.stderr


def test_a_wrong_engine_is_reported_and_not_timed():
    engines = [Named("right"), Wrong("wrong"), Broken("broken")]

    right, wrong, broken = measure(OVERHEAD, engines, rounds=2)

    assert (right.rounds, right.problem) == (2, "")
    assert wrong.rounds == 0 and wrong.error > 1
    assert wrong.problem.startswith("wrong: ")
    assert broken.problem == "NotImplementedError: no relu"
    assert problem_lines([right, wrong, broken])[1] == (
        "overhead: broken: NotImplementedError: no relu"
    )


def test_a_table_line_gives_ratios_to_ours_and_the_best_peer():
    outcomes = [timed("tinytensor", 2.0), timed("slow", 8.0), timed("fast", 3.0)]

    line = table_line(outcomes)

    assert line.split() == ["overhead", "2.0", "8.0", "(4.00)", "3.0", "(1.50)", "1.50", "fast"]


def test_a_problem_is_written_as_such():
    outcome = Outcome(OVERHEAD, Named("broken"), problem="OSError: gone")

    assert table_line([timed("tinytensor", 2.0), outcome]).split() == ["overhead", "2.0", "failed"]
    record = json.loads(json_line(outcome, {"commit": "c"}))
    assert (record["problem"], record["commit"]) == ("OSError: gone", "c")
    assert "median_us" not in record


@pytest.mark.parametrize("work", WORKS, ids=lambda work: work.name)
def test_a_bound_is_met_by_numpy_and_not_by_a_small_mistake(work, seed):
    random = np.random.default_rng(seed)
    inputs = [random.standard_normal(shape).astype(work.dtype) for shape in small(work)]
    if work.name.startswith("linear"):
        inputs[2] = random.standard_normal(8).astype(work.dtype)
    reference = work.reference(inputs)
    call = partial(work.formula, NumPy(), *inputs)

    error = reference.largest_error(np.asarray(call()))
    mistaken = reference.largest_error(np.asarray(call()) * np.float32(1.01))

    assert error <= 1
    assert mistaken > 1


def test_a_kind_means_all_its_works():
    names = [work.name for work in find_works(["gram", "overhead"])]

    assert names == ["overhead", "gram-64", "gram-512", "gram-1024"]
