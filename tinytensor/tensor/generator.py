"""Turns a seed into a sequence of draws, each of which makes one tensor of random numbers."""

from __future__ import annotations

import itertools
import os
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field
from typing import Self

from tinytensor.errors import ValueOutOfRange
from tinytensor.records import dataclass
from tinytensor.tracing import ACTIVE, repeat

DEFAULT_SEED = 67280421310721  # PyTorch's
WORDS = 2**64


@dataclass(frozen=True, slots=True, eq=False)
class Draw:
    """What one tensor's random bits depend on, besides the place of each element.

    A draw is equal to itself alone: generators may make others with its numbers.
    """

    number: int
    seed: int


@dataclass(frozen=True, slots=True)
class _Sequence:
    seed: int
    numbers: Iterator[int] = field(default_factory=itertools.count)


class Generator:
    """A seed and the number of draws made with it; the same for every device.

    Threads may share one: each draw gets a number of its own.
    """

    def __init__(self, device: str | None = None) -> None:
        self.device = device
        self._sequence = _Sequence(DEFAULT_SEED)

    def manual_seed(self, seed: int) -> Self:
        """Begin the sequence that belongs to a seed; a negative one counts from 2 ** 64 down."""
        least, end = -(WORDS // 2), WORDS
        if not least <= seed < end:
            sentence = f"manual_seed: the seed is too large: {seed}"
            raise ValueOutOfRange(f"{sentence}; it must be in {least} .. {end - 1}.")

        def begin() -> None:
            self._sequence = _Sequence(seed % WORDS)

        repeat(begin)
        return self

    def seed(self) -> int:
        """Begin a sequence that nobody can foresee, and return its seed."""
        if ACTIVE.trace is not None:
            ACTIVE.trace.refuse("a seed is taken that nobody can foresee")
        self.manual_seed(int.from_bytes(os.urandom(8), "little"))
        return self._sequence.seed

    def initial_seed(self) -> int:
        """Return the seed of this sequence."""
        return self._sequence.seed

    def draw(self) -> Draw:
        """Take the next draw of the sequence."""
        drawn = next(_TAPE.replayed, None)
        if drawn is None:
            sequence = self._sequence
            drawn = Draw(next(sequence.numbers), sequence.seed)
        _TAPE.recorded.append(drawn)
        return drawn


class _Tape(threading.local):
    """The draws that this thread is taking note of, and those that come instead of fresh ones."""

    def __init__(self) -> None:
        self.recorded: deque[Draw] | list[Draw] = deque(maxlen=0)
        self.replayed: Iterator[Draw] = iter(())


_TAPE = _Tape()


@contextmanager
def record_draws() -> Iterator[list[Draw]]:
    """Take note of the draws that this thread makes inside the block."""
    found: list[Draw] = []
    before, _TAPE.recorded = _TAPE.recorded, found
    try:
        yield found
    finally:
        before.extend(found)
        _TAPE.recorded = before


@contextmanager
def replay_draws(draws: Sequence[Draw]) -> Iterator[None]:
    """Make these draws again inside the block, whatever generators are asked."""
    before, _TAPE.replayed = _TAPE.replayed, iter(draws)
    try:
        yield
    finally:
        _TAPE.replayed = before


default_generator = Generator()


def manual_seed(seed: int) -> Generator:
    """Begin the sequence that belongs to a seed, for all tensors drawn without a generator.

    >>> from tinytensor import Tensor
    >>> _ = manual_seed(7)
    >>> first = Tensor.rand(3).tolist()
    >>> _ = manual_seed(7)
    >>> Tensor.rand(3).tolist() == first
    True
    """
    return default_generator.manual_seed(seed)


def initial_seed() -> int:
    """Return the seed of the numbers that are drawn without a generator."""
    return default_generator.initial_seed()
