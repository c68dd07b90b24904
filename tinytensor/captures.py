"""Knows whether somebody wants to see schedules, for those who keep plans."""

from __future__ import annotations

from typing import Any

from tinytensor.config import config

# Lists that collect the kernels of every schedule, each while its `report.capture` is open.
CAPTURES: list[list[Any]] = []  # Any: report.Planned, which is not loaded for this


def wants_schedule() -> bool:
    """Tell whether somebody wants to see schedules: DEBUG=2 or a capture."""
    return config.debug >= 2 or bool(CAPTURES)
