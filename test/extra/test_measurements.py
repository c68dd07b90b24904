"""The page of measurements is what its lines of JSON say."""

import json

import pytest

from extra.measurements import KEPT, NO_RUN, ROOT, page

PLACE = {"commit": "0123abcd", "date": "2026-11-29", "device": "NVIDIA H200", "torch": "2.11"}
GPU = [
    {"row": "W1", "work": "linear", "engine": "tinytensor", "device_us": 4.0, "floor_us": 2.0},
    {"row": "W1", "work": "linear", "engine": "torch", "device_us": 6.0, "floor_us": 2.0},
    {"row": "W1", "work": "linear", "engine": "jax", "device_us": 5.0, "floor_us": 2.0},
    {"row": "W4", "work": "chain", "engine": "tinytensor", "problem": "wrong: 3 times the bound"},
    {"row": "W4", "work": "chain", "engine": "torch", "device_us": 1130.0, "floor_us": 125.0},
    {"row": "W5", "work": "softmax", "problem": "no end within the work's time"},
]
CPU = [
    {"work": "gram-64", "engine": "tinytensor", "median_us": 3.0},
    {"work": "gram-64", "engine": "numpy", "median_us": 9.0},
]
RUN = {
    "commit": "4567cdef",
    "date": "2026-11-30",
    "device": "NVIDIA H200",
    "passed": 900,
    "command": "python -m pytest -m gpu",
}


def write(path, records):
    path.write_text("".join(json.dumps(each | PLACE) + "\n" for each in records))


def test_each_file_becomes_a_table(tmp_path):
    write(tmp_path / "h200.jsonl", GPU)
    write(tmp_path / "cpu.jsonl", CPU)

    text = page(tmp_path)

    first, second = text.split("## ")[1:]
    assert first.startswith("cpu\n\nNVIDIA H200, commit `0123abcd`, 2026-11-29, torch 2.11.\n")
    assert "| gram-64 | 3.0 | 9.0 | 3.00 numpy |  |" in first
    assert second.splitlines()[4:] == [
        "| work | tinytensor, µs | torch, µs | jax, µs | best peer / ours | ours / floor |",
        "| --- | --- | --- | --- | --- | --- |",
        "| W1 linear | 4.0 | 6.0 | 5.0 | 1.25 jax | 2.00 |",
        "| W4 chain | wrong | 1130.0 |  |  |  |",
        "| W5 softmax |  |  |  |  |  |",
    ]


def test_the_page_begins_with_the_last_green_run(tmp_path):
    (tmp_path / "gpu-run.json").write_text(json.dumps(RUN))

    lines = page(tmp_path).splitlines()

    assert lines[2] == (
        "Last green run of the GPU tests: commit `4567cdef`, 2026-11-30, NVIDIA H200, 900 passed:"
    )
    assert lines[3] == "`python -m pytest -m gpu`."


def test_without_a_run_the_page_says_so(tmp_path):
    assert page(tmp_path).splitlines()[2] == NO_RUN


@pytest.mark.skipif(not KEPT.exists(), reason="nothing is kept yet")
def test_the_kept_page_is_up_to_date():
    assert (ROOT / "docs" / "measurements.md").read_text("utf-8") == page(KEPT)
