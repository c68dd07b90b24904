"""Turns records of the GPU benchmark into lines for people: times, and ratios to ours."""

from __future__ import annotations

from collections.abc import Sequence

from extra.bench.gpu.supervise import Record
from extra.bench.table import OURS

WORK_WIDTH = 30
CELL_WIDTH = 18


def head_lines(where: dict[str, str], engines: Sequence[str]) -> list[str]:
    """Say where this runs, and name the columns."""
    packages = ", ".join(f"{name} {text}" for name, text in where.items() if name != "device")
    columns = "".join(f"{name:>{CELL_WIDTH}}" for name in engines)
    return [
        f"{where['device']}: {packages}",
        "device µs (ratio to ours), median of interleaved rounds; jax by the wall",
        f"{'':{WORK_WIDTH}}{columns}     best peer / ours   ours / floor   ours on the wall",
    ]


def table_line(outcomes: Sequence[Record], engines: Sequence[str]) -> str:
    """Write one work's times, each with its ratio to ours: above 1 ours is faster."""
    by_engine = {each.get("engine", ""): each for each in outcomes}
    ours = by_engine.get(OURS, {}).get("device_us")
    cells = "".join(f"{_cell(by_engine.get(name), ours):>{CELL_WIDTH}}" for name in engines)
    label = f"{outcomes[0]['row']} {outcomes[0]['work']}"
    line = f"{label:{WORK_WIDTH}}{cells}"
    if ours is None:
        return line
    peer = best_peer(outcomes)
    against = f"{peer['device_us'] / ours:.2f} {peer['engine']}" if peer else ""
    mine = by_engine[OURS]
    return f"{line}{against:>21}{ours / mine['floor_us']:>15.2f}{mine['wall_us']:>17.1f}"


def best_peer(outcomes: Sequence[Record]) -> Record | None:
    """Find the fastest right result that is not ours."""
    peers = [each for each in outcomes if each.get("engine") != OURS and "device_us" in each]
    return min(peers, key=lambda each: each["device_us"], default=None)


def _cell(outcome: Record | None, ours: float | None) -> str:
    if outcome is None:
        return "-"
    if "problem" in outcome:
        return "wrong" if outcome["problem"].startswith("wrong") else "failed"
    time = f"{outcome['device_us']:.2f}"
    if ours is None or outcome["engine"] == OURS:
        return time
    return f"{time} ({outcome['device_us'] / ours:.2f})"


def problem_lines(outcomes: Sequence[Record]) -> list[str]:
    """Say what kept engines, or whole works, from being timed."""
    return [
        f"{each['work']}: {each.get('engine', 'all')}: {each['problem'].splitlines()[0][:300]}"
        for each in outcomes
        if "problem" in each
    ]
