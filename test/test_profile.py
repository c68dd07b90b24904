"""A profile: kernels and stages that ran, the table of them, and a trace file for other tools."""

import itertools
import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest

from tinytensor import Tensor, config, jit, profile, timing
from tinytensor.captures import LAUNCHES
from tinytensor.profile import KernelTime, Profile
from tinytensor.timing import Stage

# What "Trace Event Format" asks of each kind of event used here, beside pid, tid and name.
FIELDS = {
    "X": {"cat": str, "ts": float, "dur": float, "args": dict},
    "M": {"args": dict},
    "s": {"cat": str, "ts": float, "id": int},
    "f": {"cat": str, "ts": float, "id": int, "bp": str},
}
NUMBERS = itertools.count(1000)  # a program with a number of its own was never compiled before
METADATA = {"process_name", "thread_name"}


def square(n, device="CPU"):
    return Tensor(np.full((n, n), 0.5, np.float32), device=device).realize()


@pytest.fixture
def profiled(tmp_path):
    """A program that is run three times; its kernels are compiled inside."""
    x, unseen = square(23), float(next(NUMBERS))
    with config(cache_dir=str(tmp_path)), profile() as found:
        for _ in range(3):
            (x @ x + unseen).numpy()
    return found


def test_every_launch_has_its_kernel_and_lies_inside_the_block(profiled):
    assert [each.kernel.name for each in profiled.kernels] == ["contract_f32_23x23x23"] * 3
    assert {each.device for each in profiled.kernels} == {"CPU"}
    ends = [profiled.begin + profiled.seconds, *[each.begin for each in profiled.kernels[:0:-1]]]
    for each, end in zip(reversed(profiled.kernels), ends, strict=True):
        assert each.time_us > 0
        assert profiled.begin < each.begin <= end - each.time_us * 1e-6 + 1e-6


def test_the_host_goes_through_every_stage(profiled):
    counts = {each.name: each.count for each in profiled.by_stage()}

    passes = ("contractions", "materialize", "spare", "rows", "kernels", "order", "memory")
    once = {"schedule", "compile", *[f"schedule: {each}" for each in passes]}
    once |= {f"lower: {each}" for each in ("record", "import", "plan", "legalize", "emit")}
    often = {"realize", "allocate", "launch", "kernels on the host"}
    counted = dict.fromkeys(once, 1) | dict.fromkeys(often, 3)
    assert counts == counted | {"the program itself": 1, "wait": 4}  # the last one at the end


def test_the_times_of_the_stages_add_up_to_the_whole(profiled):
    total_us = sum(each.time_us for each in profiled.by_stage())

    assert total_us == pytest.approx(profiled.seconds * 1e6)
    assert min(each.time_us for each in profiled.by_stage()) >= 0


def test_compilations_and_found_plans_are_told(profiled):
    assert [each.detail for each in profiled.compiled] == ["contract_f32_23x23x23"]
    assert profiled.hit_rate("plans") == 2 / 3
    assert profiled.hit_rate("guards") is None


def test_kernels_of_a_plan_that_was_read_from_the_disk_are_timed_by_their_names(tmp_path):
    program = """
import numpy as np
from tinytensor import Tensor, profile
x = Tensor(np.ones((5, 5), np.float32))
with profile() as found:
    (x + 1.5).numpy()
print([(each.name, each.kernel is None, each.work) for each in found.kernels])
print(found.hit_rate("plans"), "GFLOP/s" in str(found))
found.save("trace.json")
"""
    environment = {**os.environ, "TT_CACHE_DIR": str(tmp_path / "cache"), "TT_VERIFY": "0"}
    command = [sys.executable, "-c", program]
    first, second = [
        subprocess.run(
            command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True
        ).stdout.splitlines()
        for _ in range(2)
    ]

    work = {"flops": 25, "bytes_moved": 200}
    assert first == [str([("pointwise_f32_5x5", False, work)]), "0.0 True"]
    assert second == [str([("pointwise_f32_5x5", True, {})]), "1.0 True"]


def test_an_error_leaves_a_profile_of_what_ran_before():
    x = square(5)
    with pytest.raises(ZeroDivisionError), profile() as found:
        (x + 1.0).realize()
        1 / 0  # noqa: B018 - the user's own mistake

    assert [each.kernel.name for each in found.kernels] == ["pointwise_f32_5x5"]


def test_nothing_is_watched_outside_of_a_profile():
    with profile():
        assert (len(timing.WATCHES), len(LAUNCHES)) == (1, 1)

    assert (timing.WATCHES, LAUNCHES) == ([], [])


def test_a_device_that_runs_kernels_itself_is_profiled():
    x = square(5, "PYTHON")
    with profile() as found:
        (x + 1.0).numpy()

    assert [each.device for each in found.kernels] == ["PYTHON"]
    assert "kernels on the host" in [each.name for each in found.by_stage()]


def test_a_jitted_function_tells_of_its_launches_while_it_is_profiled_and_only_then():
    @jit
    def double(x):
        return x * 2.0

    x = square(3)
    for _ in range(3):
        double(x)
    with profile() as found:
        for _ in range(3):
            double(x)

    assert [each.kernel.name for each in found.kernels] == ["pointwise_f32_3x3"] * 3
    assert found.hit_rate("guards") == 1
    assert double(x).tolist() == [[1.0] * 3] * 3


def test_a_guard_that_does_not_hold_is_counted():
    @jit
    def double(x):
        return x * 2.0

    with profile() as found:
        for size in (3, 4, 4, 4):
            double(square(size))

    assert found.hit_rate("guards") == 0.5


@pytest.fixture
def made(profiled):
    """A profile with times that are round numbers."""
    kernel = profiled.kernels[0].kernel
    runs = [
        KernelTime(kernel.name, kernel, "CPU", 10.0002, 100.0),
        KernelTime(kernel.name, kernel, "CPU", 10.0006, 300.0),
    ]
    launches = [Stage("launch", 10.0001, 0.00021, 7, kernel.name)]
    launches.append(Stage("launch", 10.0005, 0.00041, 7, kernel.name))
    stages = [*launches, Stage("realize", 10.0, 0.0015, 7), Stage("compile: build", 10.0, 0.05, 8)]
    return Profile(10.0, 0.002, runs, stages, {"guards hold": 3, "guards miss": 1})


def test_the_table_says_where_the_time_went(made):
    # The product has 2 * 23**3 operations, the sum 23**2; two squares of floats are moved: 24863
    # operations in a mean of 200 us, and 4 * 2 * 529 bytes.
    lines = str(made).splitlines()

    assert [re.sub(" +", " ", each) for each in lines] == [
        "2.000 ms; 2 launches, 0.400 ms on their devices",
        "kernel count us share GFLOP/s GB/s",
        "contract_f32_23x23x23 2 400.0 100.0 % 0.12 0.02",
        "host stage count us share",
        "realize 1 880.0 44.0 %",
        "the program itself 1 500.0 25.0 %",
        "kernels on the host 2 400.0 20.0 %",
        "launch 2 220.0 11.0 %",
        "compiled 50.0 ms",
        "guards: 3 of 4 found",
    ]


def test_an_empty_profile_has_a_table():
    with profile() as found:
        pass

    assert found.kernels == []
    assert "0 launches, 0.000 ms on their devices" in str(found)


def test_a_trace_file_has_the_documented_fields(profiled, tmp_path):
    path = tmp_path / "trace.json"

    profiled.save(path)

    written = json.loads(path.read_text("utf-8"))
    assert set(written) == {"traceEvents", "displayTimeUnit", "otherData"}
    assert written["displayTimeUnit"] in {"ms", "ns"}
    for event in written["traceEvents"]:
        fields = FIELDS[event["ph"]]
        assert set(event) == {"ph", "name", "pid", "tid", *fields}
        assert all(isinstance(event[key], kind) for key, kind in fields.items()), event
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        assert all(event.get(key, 0) >= 0 for key in ("ts", "dur"))
        assert event["ph"] != "M" or event["name"] in METADATA
        assert event.get("bp", "e") == "e"


def test_a_trace_file_names_each_thread_and_leads_from_launch_to_kernel(made, tmp_path):
    path = tmp_path / "trace.json"

    made.save(path)

    events = json.loads(path.read_text("utf-8"))["traceEvents"]
    named = [
        (each["pid"], each["tid"], each["args"]["name"]) for each in events if each["ph"] == "M"
    ]
    assert named == [
        *((1, 0, "host"), (2, 0, "devices")),
        *((1, 0, "7"), (1, 1, "8"), (2, 0, "CPU")),
    ]
    ran = [each for each in events if each["ph"] == "X" and each["pid"] == 2]
    assert [(each["ts"], each["dur"]) for each in ran] == [
        (pytest.approx(200.0), 100.0),
        (pytest.approx(600.0), 300.0),
    ]
    starts = {each["id"]: each for each in events if each["ph"] == "s"}
    ends = {each["id"]: each for each in events if each["ph"] == "f"}
    assert starts.keys() == ends.keys() == {1, 2}
    assert all(starts[each]["ts"] <= ends[each]["ts"] for each in starts)
    assert [each["ts"] for each in ends.values()] == [each["ts"] for each in ran]
