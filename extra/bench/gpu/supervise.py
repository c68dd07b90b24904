"""Runs works in a worker process, ends it when one hangs, and goes on with the others."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

WORKER = (sys.executable, "-m", "extra.bench.gpu.worker")
START_SECONDS = 90.0  # a worker's imports, and the first kernel it compiles
GRACE = 1.5  # of a work's time: its deadline is kept between steps only
SETTINGS = {
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    "PYTHONUNBUFFERED": "1",
}
UNWANTED = ("XLA_FLAGS",)  # what was set for the comparison on the CPU

Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Asked:
    """What to run. Units: seconds for one work."""

    works: tuple[str, ...]
    engines: tuple[str, ...]
    seconds: float


@dataclass(slots=True)
class Watched:
    """A worker process, the lines it has written, and the work it is at."""

    process: subprocess.Popen[str]
    lines: queue.Queue[str | None] = field(default_factory=queue.Queue)
    current: str = ""
    done: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None, "the worker was started with a pipe"
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def next_line(self, seconds: float) -> str | None:
        """Wait for a line; None at the end.

        Raises: TimeoutError when none comes in time.
        """
        try:
            return self.lines.get(timeout=max(seconds, 0))
        except queue.Empty:
            raise TimeoutError from None


def supervise(asked: Asked, command: Sequence[str] = WORKER) -> Iterator[Record]:
    """Yield the worker's records; a work that hangs or ends its worker becomes one of them."""
    left = list(asked.works)
    while left:
        watched = Watched(start(command, asked, left))
        try:
            yield from follow(watched, asked.seconds)
            reason = f"the worker ended with status {watched.process.wait()}"
        except TimeoutError:
            reason = "no end within the work's time"
        finally:
            watched.process.kill()
            watched.process.wait()
        left = [name for name in left if name not in watched.done]
        failed = left if not watched.current else [name for name in left if name == watched.current]
        yield from [{"work": name, "problem": reason} for name in failed]
        left = [name for name in left if name not in failed]


def start(command: Sequence[str], asked: Asked, works: Sequence[str]) -> subprocess.Popen[str]:
    """Start a worker for the works that are left."""
    request = {"works": works, "engines": asked.engines, "seconds": asked.seconds}
    environment = {name: text for name, text in os.environ.items() if name not in UNWANTED}
    return subprocess.Popen(
        [*command, json.dumps(request)],
        stdout=subprocess.PIPE,
        text=True,
        env=environment | SETTINGS,
    )


def follow(watched: Watched, seconds: float) -> Iterator[Record]:
    """Yield the records of a worker until it ends.

    Raises: TimeoutError when a work takes too long.
    """
    limit = time.monotonic() + START_SECONDS
    while True:
        line = watched.next_line(limit - time.monotonic())
        if line is None:
            return
        if not line.startswith("{"):
            continue  # a library's own words
        record = json.loads(line)
        if "begin" in record:
            watched.current = record["begin"]
            first = START_SECONDS if not watched.done else 0.0
            limit = time.monotonic() + GRACE * seconds + first
        elif "end" in record:
            watched.done.append(record["end"])
            limit = time.monotonic() + START_SECONDS
        yield record
