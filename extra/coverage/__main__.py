"""Compares every operator with PyTorch: `python -m extra.coverage --write docs/coverage.md`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Iterator
from pathlib import Path

from extra.bench.table import place
from extra.coverage.draws import DRAWS, run_draw
from extra.coverage.record import Library
from extra.coverage.records import RECORDS, names_without_record
from extra.coverage.run import Verdict, run_record
from extra.coverage.table import page_of
from tinytensor.config import config
from tinytensor.lazy import lazy_import


def main() -> int:
    """Run the records asked for; give 1 when one differs from PyTorch."""
    options, where = parse(), place()
    library = lazy_import("torch", "test-torch", "extra.coverage")
    with config(device=options.device):
        verdicts = []
        for verdict in run_all(options.names, library):
            verdicts.append(verdict)
            print("\n".join(verdict.problems), end="\n" if verdict.problems else "", flush=True)
    page = page_of(verdicts, options.device, library.__version__, where)
    if options.write:
        options.write.write_text(page, "utf-8")
    print(f"without a record: {', '.join(names_without_record()) or 'none'}")
    counting = sum(each.counts for each in verdicts)
    print(f"{counting} of {len(verdicts)} operators count")
    return 0 if counting == len(verdicts) else 1


def run_all(names: Collection[str], library: Library) -> Iterator[Verdict]:
    """Return the verdict on each operator of some names, or on all."""
    yield from (run_record(each, library) for each in RECORDS if not names or each.name in names)
    yield from (run_draw(each, library) for each in DRAWS if not names or each.name in names)


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser("python -m extra.coverage", description=__doc__)
    parser.add_argument("names", nargs="*", help="operators; all unless given")
    parser.add_argument("--device", default="CPU")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the page")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
