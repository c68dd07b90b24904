"""Turns outcomes into a table for people and JSON lines for programs."""

from __future__ import annotations

import datetime
import json
import platform
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from extra.bench.engines import Engine
from extra.bench.measure import CLOCK, Outcome

OURS = "tinytensor"
WORK_WIDTH = 22
CELL_WIDTH = 19
ROOT = Path(__file__).parents[2]


def head_line(engines: Sequence[Engine]) -> str:
    """Name the columns."""
    names = "".join(f"{engine.name:>{CELL_WIDTH}}" for engine in engines)
    return f"{'µs (time / ours)':{WORK_WIDTH}}{names}   best peer / ours"


def table_line(outcomes: Sequence[Outcome]) -> str:
    """Write one work's times, each with its ratio to ours: above 1 ours is faster."""
    ours = next((each.median_us for each in outcomes if _is_ours(each) and not each.problem), None)
    cells = "".join(f"{_cell(each, ours):>{CELL_WIDTH}}" for each in outcomes)
    peers = [each for each in outcomes if not _is_ours(each) and not each.problem]
    line = f"{outcomes[0].work.name:{WORK_WIDTH}}{cells}"
    if ours is None or not peers:
        return line
    best = min(peers, key=lambda each: each.median_us)
    return f"{line}   {best.median_us / ours:.2f} {best.engine.name}"


def _is_ours(outcome: Outcome) -> bool:
    return outcome.engine.name == OURS


def _cell(outcome: Outcome, ours: float | None) -> str:
    if outcome.problem:
        return "wrong" if outcome.problem.startswith("wrong") else "failed"
    time = f"{outcome.median_us:.1f}"
    if ours is None or _is_ours(outcome):
        return time
    return f"{time} ({outcome.median_us / ours:.2f})"


def problem_lines(outcomes: Sequence[Outcome]) -> list[str]:
    """Say what kept engines from being timed."""
    return [
        f"{each.work.name}: {each.engine.name}: {each.problem.splitlines()[0]}"
        for each in outcomes
        if each.problem
    ]


def json_line(outcome: Outcome, where: dict[str, str]) -> str:
    """Write one outcome, and where it was measured, as a line of JSON."""
    work, seconds = outcome.work, outcome.median_us / 1e6
    record: dict[str, str | int | float] = {
        "work": work.name,
        "engine": outcome.engine.name,
        "version": outcome.engine.version,
    }
    if outcome.problem:
        record["problem"] = outcome.problem
    else:
        record["median_us"] = round(outcome.median_us, 3)
        record["rounds"] = outcome.rounds
        record["gflops"] = round(work.flops / seconds / 1e9, 3)
        record["gbytes"] = round(work.bytes_moved / seconds / 1e9, 3)
        record["error_of_bound"] = float(f"{outcome.error:.3g}")
    return json.dumps(record | where)


def place() -> dict[str, str]:
    """Say where and when this runs: commit, date, machine, clock, Python."""
    return {
        "commit": _commit(),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": _processor(),
        "clock": CLOCK,
        "threads": "1",
        "python": platform.python_version(),
    }


def _commit() -> str:
    """Give the commit, with a + where files differ from it."""
    command = ("git", "-C", str(ROOT), "describe", "--always", "--abbrev=12", "--dirty=+")
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return found.stdout.strip()


def _processor() -> str:
    facts = Path("/proc/cpuinfo")
    text = facts.read_text() if facts.exists() else ""
    named = re.search(r"^model name\s*: (.*)$", text, re.MULTILINE)
    return named[1] if named else platform.processor() or platform.machine()
