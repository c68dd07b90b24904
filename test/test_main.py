"""`python -m tinytensor` tells what works, and fails when something does not."""

import dataclasses
import os
import subprocess
import sys

import numpy as np
import pytest
from meta.tree import ROOT

from tinytensor import Tensor, selfcheck
from tinytensor.__main__ import main
from tinytensor.errors import CompileError
from tinytensor.report import capture

QUICK = ["--quick", "--device", "PYTHON"]


def replaced_lines(**changes):
    """The lines of a quick run, with parts of the first one replaced."""
    first, *others = selfcheck.lines(quick=True)
    return lambda quick: [dataclasses.replace(first, **changes), *others]


def test_the_command_reports_devices_lines_and_reasons():
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tinytensor", *QUICK]

    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "PYTHON  y = x.matmul(weight.T) + b   float16 (64, 96), (80, 96), (80,)" in done.stdout
    assert "roundings as written yes: 0 of 5120 elements differ" in done.stdout
    assert "sum of products: batch=1 m=64 n=80 k=96" in done.stdout
    assert done.stdout.endswith("All is right.\n")


def test_a_broken_rounding_fails(monkeypatch, capsys):
    def one_off(*operands):
        wanted = selfcheck.linear_contract(*operands)
        wanted[3, 5] = np.nextafter(wanted[3, 5], np.float16(np.inf))
        return wanted

    monkeypatch.setattr(selfcheck, "lines", replaced_lines(contract=one_off))

    assert main(QUICK) == 1
    assert "roundings as written NO: 1 of 5120 elements differ" in capsys.readouterr().out


def test_a_value_out_of_bounds_fails(monkeypatch, capsys):
    def moved(*operands):
        found = selfcheck.linear_reference(*operands)
        return selfcheck.Reference(found.values + 2.5 * found.bounds, found.bounds)

    monkeypatch.setattr(selfcheck, "lines", replaced_lines(reference=moved))

    assert main(QUICK) == 1
    assert "as float64           NO: largest error" in capsys.readouterr().out


def test_a_line_that_raises_fails_and_the_others_run(monkeypatch, capsys):
    def refuse(*operands):
        raise CompileError("compiler: refused: f; must be C.")

    monkeypatch.setattr(selfcheck, "lines", replaced_lines(run=refuse))

    assert main(QUICK) == 1
    printed = capsys.readouterr().out
    assert "failed: compiler: refused: f; must be C." in printed
    assert "1 of 3 are wrong." in printed


def test_a_missing_device_fails_with_its_name(capsys):
    assert main(["--quick", "--device", "abacus"]) == 1
    assert "\ndevice: no such device: 'abacus'; must be one of " in capsys.readouterr().out


@pytest.mark.parametrize("quick", [True, False])
def test_the_integers_tell_two_roundings_from_one(quick):
    line = selfcheck.lines(quick)[0]
    x, weight, b = selfcheck.integer_inputs(line)
    sums = x.astype(np.int64) @ weight.T.astype(np.int64)
    once = (sums + b.astype(np.int64)).astype(np.float16)

    twice = selfcheck.linear_contract(x, weight, b)

    assert sums.max() < np.finfo(np.float16).max
    assert np.mean(once != twice) > 0.1


def test_the_bound_of_a_sum_holds_and_is_not_vacuous(seed):
    random = np.random.default_rng(seed)
    a, b = (random.standard_normal((96, 96)) for _ in range(2))
    reference = selfcheck.product_reference(a, b)
    serial = np.zeros((96, 96), np.float32)
    for k in range(96):
        serial += np.outer(a[:, k].astype(np.float32), b[k].astype(np.float32))
    inputs_rounded = 2 * selfcheck.HALF_ULP * (np.abs(a) @ np.abs(b))

    error = np.abs(serial - reference.values)

    assert np.all(error <= reference.bounds + inputs_rounded)
    assert reference.largest_error(serial) > 1e-3


def test_a_wrong_shape_or_nan_is_infinitely_wrong():
    reference = selfcheck.Reference(np.zeros((2, 2)), np.ones((2, 2)))

    assert reference.largest_error(np.zeros(4)) == np.inf
    assert reference.largest_error(np.array([[0, 0], [0, np.nan]])) == np.inf
    assert reference.largest_error(np.full((2, 2), 0.5)) == 0.5


def test_a_capture_holds_the_kernels_scheduled_inside_it():
    x = Tensor(np.arange(6.0, dtype=np.float32), device="PYTHON").realize()
    with capture() as kernels:
        (x + 1).realize()
    (x + 2).realize()

    assert len(kernels) == 1
    assert isinstance(kernels[0].kernel.decisions, tuple)


def test_the_time_is_that_of_the_warm_runs(monkeypatch):
    times = iter([100.0, *range(1, selfcheck.WARM_RUNS + 1)])
    monkeypatch.setattr(selfcheck, "_time_us", lambda *_: next(times))

    verdict = selfcheck.check(selfcheck.lines(quick=True)[1], "PYTHON")

    assert verdict.cold_us == 100.0
    assert verdict.warm_us == (selfcheck.WARM_RUNS + 1) / 2
