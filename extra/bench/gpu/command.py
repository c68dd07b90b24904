"""Runs the GPU's part of the benchmark: options, the table as it grows, the lines of JSON."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from extra.bench.gpu.engines import GPU_ENGINES
from extra.bench.gpu.supervise import Asked, Record, supervise
from extra.bench.gpu.table import head_lines, problem_lines, table_line
from extra.bench.gpu.works import find_works
from extra.bench.table import place

SECONDS_PER_ROW = 20.0


def add_gpu_options(parser: argparse.ArgumentParser) -> None:
    """Describe the options."""
    names = ",".join(engine.name for engine in GPU_ENGINES)
    parser.add_argument("--engines", type=listed, default=listed(names), help=names)
    parser.add_argument("--rows", type=listed, default=[], metavar="W1,W2,...")
    parser.add_argument("--seconds-per-row", type=float, default=SECONDS_PER_ROW)
    parser.add_argument("--json", type=Path, metavar="FILE", help="append one line per outcome")
    parser.add_argument("--commit", help="where git cannot tell it")


def listed(text: str) -> list[str]:
    """Split names at commas."""
    return [name for name in text.split(",") if name]


def run_on_gpu(options: argparse.Namespace) -> int:
    """Run the rows asked for; give 1 when an engine was wrong or failed.

    Raises: ValueError for a row or an engine that there is none of.
    """
    works = find_works(options.rows)
    check_engines(options.engines)
    where = place() if options.commit is None else place() | {"commit": options.commit}
    where = {name: where[name] for name in ("commit", "date", "python")}
    rows = {work.name: work.row for work in works}
    asked = Asked(tuple(rows), tuple(options.engines), options.seconds_per_row)
    problems: list[str] = []
    found: list[Record] = []
    begin = time.monotonic()
    for record in supervise(asked):
        if "place" in record:
            where |= record["place"]
            print("\n".join(head_lines(where, options.engines)), flush=True)
        elif "missing" in record:
            print(f"not installed, left out: {record['missing']}", flush=True)
        elif "work" in record:
            found.append({"row": rows[record["work"]]} | record)
            keep(options.json, found[-1] | where)
        ended = record.get("end") or (record.get("work") if "engine" not in record else None)
        if ended:
            outcomes = [each for each in found if each["work"] == ended]
            print(table_line(outcomes, options.engines), flush=True)
            problems += problem_lines(outcomes)
    print(f"{time.monotonic() - begin:.0f} s in all")
    print("\n".join(problems), end="\n" if problems else "")
    return 1 if problems else 0


def check_engines(names: list[str]) -> None:
    """Refuse a name that is no engine.

    Raises: ValueError naming it.
    """
    known = [engine.name for engine in GPU_ENGINES]
    for name in names:
        if name not in known:
            raise ValueError(f"bench: no such engine: {name!r}; must be one of {', '.join(known)}.")


def keep(path: Path | None, record: Record) -> None:
    """Append a record to a file at once: what follows may fail."""
    if path is not None:
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
