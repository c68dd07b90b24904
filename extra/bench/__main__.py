"""Compares the speed of tinytensor and its peers: `python -m extra.bench cpu`, or `gpu`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import extra.bench.one_thread  # noqa: F401 - before anything that imports NumPy
from extra.bench.engines import ENGINES, Engine
from extra.bench.gpu.command import add_gpu_options, run_on_gpu
from extra.bench.measure import CLOCK, measure
from extra.bench.table import head_line, json_line, place, problem_lines, table_line
from extra.bench.works import find_works

ROUNDS = 20


def main() -> int:
    """Compare on the device asked for."""
    options = parse()
    try:
        run = run_on_gpu if options.device == "gpu" else run_on_cpu
        return run(options)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2


def run_on_cpu(options: argparse.Namespace) -> int:
    """Run the works asked for; give 1 when an engine was wrong or failed."""
    works = find_works(options.work)
    engines = open_engines(options.engines)
    where = place()
    print(f"{where['machine']}, {where['commit']}, {where['date']}")
    print(f"one thread; median {CLOCK} of up to {options.rounds} interleaved rounds")
    print(head_line(engines), flush=True)
    problems: list[str] = []
    lines: list[str] = []
    for work in works:
        outcomes = measure(work, engines, options.rounds)
        print(table_line(outcomes), flush=True)
        problems += problem_lines(outcomes)
        lines += [json_line(each, where) for each in outcomes]
    if options.json:
        options.json.write_text("".join(line + "\n" for line in lines), "utf-8")
    print("\n".join(problems), end="\n" if problems else "")
    return 1 if problems else 0


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser("python -m extra.bench", description=__doc__)
    devices = parser.add_subparsers(dest="device", required=True)
    names = ",".join(engine.name for engine in ENGINES)
    cpu = devices.add_parser("cpu")
    cpu.add_argument("--engines", type=listed, default=listed(names), help=names)
    cpu.add_argument("--work", type=listed, default=[], metavar="NAME,...")
    cpu.add_argument("--rounds", type=int, default=ROUNDS)
    cpu.add_argument("--json", type=Path, metavar="FILE", help="write one line per outcome")
    add_gpu_options(devices.add_parser("gpu"))
    return parser.parse_args()


def listed(text: str) -> list[str]:
    """Split names at commas."""
    return [name for name in text.split(",") if name]


def open_engines(names: list[str]) -> list[Engine]:
    """Open engines by name; those not installed are left out, and named in one line.

    Raises: ValueError for a name that is no engine.
    """
    kinds = {kind.name: kind for kind in ENGINES}
    for name in names:
        if name not in kinds:
            raise ValueError(f"bench: no such engine: {name!r}; must be one of {', '.join(kinds)}.")
    opened: list[Engine] = []
    missing: list[str] = []
    for name in names:
        try:
            opened.append(kinds[name]())
        except ImportError:
            missing.append(name)
    if missing:
        print(f"not installed, left out: {', '.join(missing)}")
    return opened


if __name__ == "__main__":
    sys.exit(main())
