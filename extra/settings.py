"""Writes the settings and the levels of DEBUG as the README's tables."""

from tinytensor.config import SETTINGS

DEBUG_LEVELS = (
    "one line per launch",
    "the schedule: rates, kernels, what limits each, why no two are one, what would change that",
    "UOps in each form",
    "generated source",
    "every pass, before and after",
    "machine code",
)


def settings_table() -> str:
    """Write the settings as a Markdown table, as the README shows it."""
    rows = [
        "| setting | attribute of `config` | default | allowed | meaning |",
        "|---|---|---|---|---|",
    ]
    for setting in SETTINGS:
        is_number = isinstance(setting.allowed, range)
        default = str(int(setting.default) if is_number else setting.default or "empty")
        cells = (f"`{setting.name}`", f"`{setting.attribute}`", default, setting.describe())
        rows.append(f"| {' | '.join(cells)} | {setting.meaning} |")
    return "\n".join(rows)


def debug_table() -> str:
    """Write the levels of DEBUG as a Markdown table."""
    rows = [f"| {level} | {meaning} |" for level, meaning in enumerate(DEBUG_LEVELS, start=1)]
    return "\n".join(["| `DEBUG` | prints |", "|---|---|", *rows])
