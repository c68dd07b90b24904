"""Shows how far a long compilation is: one line on a terminal, erased at its end."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import TypeVar

PATIENCE_SECONDS = 1.0
ERASE = "\r\x1b[K"

Kernel = TypeVar("Kernel")


class Progress:
    """Counts the kernels that were begun and those that are done, from any thread.

    Nothing is shown where stderr is no terminal, nor before a second has passed.
    """

    def __init__(self, done: str = "compiled") -> None:
        self._word = done
        self._begun = 0
        self._done = 0
        self._lock = threading.Lock()
        self._start = time.perf_counter()
        self._is_shown = False

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._is_shown:
            _write(ERASE)

    def count(self, kernels: Iterable[Kernel]) -> Iterator[Kernel]:
        """Give kernels one by one, and count each as begun."""
        for each in kernels:
            self._begun += 1
            yield each

    def step(self) -> None:
        """Count one more kernel as done, and show the line."""
        with self._lock:
            self._done += 1
            if time.perf_counter() - self._start >= PATIENCE_SECONDS and _is_terminal():
                self._is_shown = True
                shown = f"{self._done} of {self._begun} kernels are {self._word}"
                _write(f"{ERASE}tinytensor: {shown}")


def _is_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()


def _write(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()
