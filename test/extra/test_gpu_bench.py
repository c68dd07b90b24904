"""The GPU benchmark's references hold, its table tells ratios, and a lost worker is replaced."""

import json
import sys
import time
from dataclasses import replace

import numpy as np
import pytest

from extra.bench.gpu import measure as measuring
from extra.bench.gpu import supervise as supervision
from extra.bench.gpu.command import check_engines, keep
from extra.bench.gpu.engines import TinyTensor, Torch
from extra.bench.gpu.launches import recorded
from extra.bench.gpu.measure import calls_of
from extra.bench.gpu.supervise import Asked, supervise
from extra.bench.gpu.table import problem_lines, table_line
from extra.bench.gpu.worker import record_of
from extra.bench.gpu.works import WORKS, find_works, position
from tinytensor import Tensor, dtypes
from tinytensor.realize import storage_of
from tinytensor.runtime.device import Device

ENGINES = ("tinytensor", "torch", "jax")


# Works.
def small(work):
    """The shapes of a work with every extent cut to 40, and to 24 the inner one of a product."""
    shrunk = {extent: 40 for shape in work.shapes for extent in shape}
    if work.row == "W7":  # windows stay; two inputs differ in size where a weight is one of them
        shrunk = {extent: min(extent, 12) for shape in work.shapes for extent in shape}
    if work.row == "W1":
        shrunk[work.shapes[0][1]] = 24
    return [tuple(shrunk[extent] for extent in shape) for shape in work.shapes]


@pytest.mark.parametrize("work", WORKS, ids=lambda work: work.name)
def test_a_bound_is_met_by_torch_and_not_by_a_small_mistake(work):
    torch = pytest.importorskip("torch")
    # Torch's gradients of convolutions of halves round partial sums on a CPU.
    dtype = "float32" if work.row == "W7" else work.dtype
    work = replace(work, shapes=tuple(small(work)), dtype=dtype)
    (inputs,) = work.inputs(torch, "cpu", 1)
    result = work.formula(Torch(), *inputs)
    mistaken = 1 - result if work.formula is position else result * 1.05

    assert work.largest_error(torch, inputs, result) <= 1
    assert work.largest_error(torch, inputs, mistaken.to(result.dtype)) > 1


@pytest.mark.parametrize("work", WORKS, ids=lambda work: work.name)
def test_a_bound_is_met_by_tinytensor(work):
    torch = pytest.importorskip("torch")
    work = replace(work, shapes=tuple(small(work)))
    (inputs,) = work.inputs(torch, "cpu", 1)
    dtype = getattr(dtypes, work.dtype)
    tensors = [Tensor(each.float().numpy(), dtype=dtype, device="CPU") for each in inputs]

    result = work.formula(object.__new__(TinyTensor), *tensors).numpy()

    assert work.largest_error(torch, inputs, torch.from_numpy(np.asarray(result))) <= 1


def test_a_nan_outside_the_sample_is_found():
    torch = pytest.importorskip("torch")
    work = find_works(["W2c"])[0]
    x = torch.ones(5000, 3)
    result = x + 1
    result[1234, 2] = float("nan")

    assert work.largest_error(torch, [x], result) == float("inf")


def test_rows_are_found_by_their_beginnings():
    assert [work.row for work in find_works(["W2", "W4"])] == [*["W2a"] * 3, "W2b", "W2c", "W4"]
    assert [work.name for work in find_works(["W2b"])] == ["gram-float16-4096"]


def test_an_unknown_row_or_engine_is_refused():
    with pytest.raises(ValueError, match=r"^bench: no such row: 'W99'; must be one of W1, W2a, "):
        find_works(["W99"])
    with pytest.raises(ValueError, match=r"^bench: no such engine: 'abacus'; must be one of tiny"):
        check_engines(["abacus"])


@pytest.mark.parametrize("work", WORKS, ids=lambda work: work.name)
def test_the_sets_of_a_work_are_more_than_l2_holds(work):
    assert work.sets * work.bytes_moved >= 5 * 50e6 or work.sets == 128


@pytest.mark.parametrize(
    ("sets", "call_us", "calls"), [(1, 3000, 1), (1, 100, 20), (48, 5, 432), (128, 15, 256)]
)
def test_a_batch_turns_through_its_sets(sets, call_us, calls):
    assert calls_of(sets, call_us, 2000) == calls


# Launches.
def test_what_a_realization_launches_can_be_run_again():
    device = Device["CPU"]
    x = Tensor([1.0, 2.0], device="CPU").realize()

    with recorded(device) as launches:
        y = (x + 1.0).realize()
    device.copy_in(storage_of(x.uop), b"\0" * 8)
    for each in launches:
        device.run(each.work, each.buffers)

    assert y.tolist() == [1.0, 1.0]
    assert "run" not in vars(device)


# Measuring, with engines whose time is known.
class Metronome:
    """A formula of torch on the CPU that claims to take a fixed time."""

    name, version, device_clock, kernels = "metronome", "1", "events", 2

    def __init__(self, time_us, mistake=0.0):
        self.time_us = time_us
        self.mistake = mistake

    def prepare(self, formula, sets):
        self.made = formula(Torch(), *sets[0]) + self.mistake
        return self

    def result(self):
        return self.made

    def clocked(self, calls):
        return self

    def device_us(self):
        return self.time_us

    def wall_us(self, calls):
        return 2 * self.time_us


class Silent(Metronome):
    def prepare(self, formula, sets):
        raise RuntimeError("no kernel")


def measured(monkeypatch, engines, deadline):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(measuring, "Device", {"CUDA": None})
    monkeypatch.setattr(measuring, "copy_clock", lambda device, work: Metronome(3.0))
    monkeypatch.setattr(measuring, "product_us", lambda device, work: 1.5)
    work = replace(find_works(["W1"])[0], shapes=((40, 24), (40, 24), (40,)), bytes_moved=10**9)
    return measuring.measure(work, engines, torch, deadline, place="cpu")


def test_right_engines_are_timed_and_others_say_what_is_wrong(monkeypatch):
    engines = [Metronome(4.0), Metronome(1.0, mistake=1.0), Silent(1.0)]

    (right, wrong, silent), floor = measured(monkeypatch, engines, time.monotonic() + 60)

    assert (right.device_us, right.wall_us, right.rounds, right.problem) == (4.0, 8.0, 15, "")
    assert wrong.problem.startswith("wrong: ")
    assert silent.problem == "RuntimeError: no kernel"
    assert (floor.least_us, floor.copy_us) == (3.0, 3.0)
    record = record_of(right, floor)
    assert record["tflops"] == pytest.approx(2 * 1024 * 1024 * 768 / 4e-6 / 1e12, abs=1e-3)
    assert (record["row"], record["kernels"], "problem" in record) == ("W1", 2, False)
    assert "device_us" not in record_of(silent, floor)


def test_after_its_deadline_no_engine_is_begun(monkeypatch):
    (late,), _ = measured(monkeypatch, [Metronome(4.0)], time.monotonic() - 1)

    assert late.problem == "the row's time was up before it began"


# The table.
def outcome(engine, device_us):
    times = {"device_us": device_us, "wall_us": 9.0, "floor_us": 2.0}
    return {"row": "W1", "work": "linear", "engine": engine} | times


def test_a_line_gives_ratios_to_ours_the_best_peer_and_the_floor():
    failed = {"row": "W1", "work": "linear", "engine": "jax", "problem": "OSError: gone"}

    line = table_line([outcome("tinytensor", 4.0), outcome("torch", 6.0), failed], ENGINES)

    assert line.split() == [
        *["W1", "linear", "4.00", "6.00", "(1.50)", "failed"],
        *["1.50", "torch", "2.00", "9.0"],
    ]
    assert problem_lines([failed]) == ["linear: jax: OSError: gone"]


# The worker.
FAKE = """
import json, sys, time
asked = json.loads(sys.argv[1])
print("a library's own words")
for work in asked["works"]:
    print(json.dumps({"begin": work}), flush=True)
    if work == "hangs":
        time.sleep(600)
    if work == "breaks":
        sys.exit(3)
    print(json.dumps({"work": work, "engine": "tinytensor"}))
    print(json.dumps({"end": work}), flush=True)
"""


def records_of(works, program=FAKE):
    asked = Asked(works, ("tinytensor",), seconds=0.2)
    return list(supervise(asked, (sys.executable, "-c", program)))


def test_a_work_that_hangs_or_breaks_its_worker_costs_only_itself(monkeypatch):
    monkeypatch.setattr(supervision, "START_SECONDS", 1.0)

    records = records_of(("first", "hangs", "second", "breaks", "third"))

    found = [each for each in records if "work" in each]
    assert found == [
        {"work": "first", "engine": "tinytensor"},
        {"work": "hangs", "problem": "no end within the work's time"},
        {"work": "second", "engine": "tinytensor"},
        {"work": "breaks", "problem": "the worker ended with status 3"},
        {"work": "third", "engine": "tinytensor"},
    ]


def test_a_worker_that_cannot_start_fails_every_work_at_once():
    records = records_of(("first", "second"), "raise SystemExit(5)")

    assert records == [
        {"work": name, "problem": "the worker ended with status 5"} for name in ("first", "second")
    ]


def test_records_are_lines_of_json(tmp_path):
    path = tmp_path / "bench.jsonl"

    for record in (outcome("torch", 1.0), outcome("jax", 2.0)):
        keep(path, record)

    assert [json.loads(line)["engine"] for line in path.read_text().splitlines()] == [
        "torch",
        "jax",
    ]
