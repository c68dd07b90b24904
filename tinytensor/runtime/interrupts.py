"""Lets what must be finished finish before Ctrl-C is heard."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import FrameType

NOTHING_HELD = nullcontext()


def uninterrupted(is_needed: bool) -> AbstractContextManager[None]:
    """Hold back Ctrl-C inside a block if it is needed; it is heard at the end of the block."""
    if not is_needed or threading.current_thread() is not threading.main_thread():
        return NOTHING_HELD
    return _held_back()


@contextmanager
def _held_back() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    caught: list[tuple[int, FrameType | None]] = []
    signal.signal(signal.SIGINT, lambda number, frame: caught.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if caught and callable(before):
        before(*caught[0])
