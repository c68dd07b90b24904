"""Turns the kept lines of the benchmark into a page: `python -m extra.measurements`.

It prints docs/measurements.md: the last run of the GPU tests that passed, then a section for each
file of docs/measurements, a table of works and engines in the order of its lines.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "docs" / "measurements"
GPU_RUN = KEPT / "gpu-run.json"
OURS = "tinytensor"
NO_RUN = "No run of the GPU tests is recorded."
HEAD = """# Measurements

{run}

Every number below is printed by `python -m extra.measurements` from the lines of JSON beside this
page. Times are medians of rounds in which the engines take turns in one process; ratios above 1
mean that tinytensor is faster. A GPU's time is that on the device, without launching, but for jax,
whose time is that on the wall; the floor is a plain copy of as many bytes, or the products at the
machine's peak.
"""

Record = dict[str, Any]


def main() -> int:
    """Print the page."""
    print(page(KEPT), end="")
    return 0


def page(kept: Path) -> str:
    """Write the page of a directory of lines."""
    run_file = kept / GPU_RUN.name
    run = run_line(json.loads(run_file.read_text("utf-8"))) if run_file.exists() else NO_RUN
    sections = [section(path.stem, read(path)) for path in sorted(kept.glob("*.jsonl"))]
    return "\n".join([HEAD.format(run=run), *sections])


def run_line(run: Record) -> str:
    """Say when and where the GPU tests passed."""
    where = f"commit `{run['commit']}`, {run['date']}, {run['device']}"
    return f"Last green run of the GPU tests: {where}, {run['passed']} passed:\n`{run['command']}`."


def read(path: Path) -> list[Record]:
    """Read the records of a file."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines() if line]


def section(title: str, records: Sequence[Record]) -> str:
    """Write a file's records as a heading, where they were measured, and a table."""
    engines = [*dict.fromkeys(each["engine"] for each in records if "engine" in each)]
    works = [*dict.fromkeys(each["work"] for each in records)]
    columns = ["work", *[f"{name}, µs" for name in engines], "best peer / ours", "ours / floor"]
    rows = [row([each for each in records if each["work"] == work], engines) for work in works]
    lines = [cells(columns), cells(["---"] * len(columns)), *map(cells, rows)]
    return "\n".join([f"## {title}", "", place_line(records), "", *lines, ""])


def place_line(records: Sequence[Record]) -> str:
    """Say where and at which commits records were measured, and when the first one was."""
    record = records[0]
    commits = ", ".join(dict.fromkeys([f"`{each['commit']}`" for each in records]))
    machine = record.get("device") or record.get("machine")
    packages = ("driver", "torch", "jax", "nvidia-cuda-nvrtc", "numpy")
    versions = [f"{name} {record[name]}" for name in packages if name in record]
    return ", ".join([f"{machine}", f"commit {commits}", record["date"], *versions]) + "."


def row(records: Sequence[Record], engines: Sequence[str]) -> list[str]:
    """Write a work's cells."""
    found = {each["engine"]: each for each in records if "engine" in each}
    ours = time_of(found.get(OURS))
    peers = [(time_of(each), name) for name, each in found.items() if name != OURS]
    right = [(time, name) for time, name in peers if time is not None]
    against = floor = ""
    if ours is not None and right:
        time, name = min(right)
        against = f"{time / ours:.2f} {name}"
    if ours is not None and "floor_us" in found[OURS]:
        floor = f"{ours / found[OURS]['floor_us']:.2f}"
    label = f"{records[0].get('row', '')} {records[0]['work']}".strip()
    return [label, *[cell(found.get(name)) for name in engines], against, floor]


def time_of(record: Record | None) -> float | None:
    """Return a record's time; None if it has none. Units: µs."""
    if record is None or "problem" in record:
        return None
    return float(record.get("device_us", record.get("median_us")))


def cell(record: Record | None) -> str:
    """Write a time, or why there is none."""
    if record is None:
        return ""
    if "problem" in record:
        return "wrong" if record["problem"].startswith("wrong") else "failed"
    return f"{time_of(record):.1f}"


def cells(texts: Sequence[str]) -> str:
    """Write a line of a Markdown table."""
    return f"| {' | '.join(texts)} |"


if __name__ == "__main__":
    sys.exit(main())
