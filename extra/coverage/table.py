"""Turns verdicts into the page docs/coverage.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from extra.coverage.record import DTYPES
from extra.coverage.run import ASPECTS, Verdict

HEAD = """# Operators, compared with PyTorch

{counting} of {count} operators count{missing}: every aspect below was run and agrees with PyTorch
{version} (CPU build). Written by

```sh
python -m extra.coverage --write docs/coverage.md
```

on the device {device} at commit `{commit}`, {date}, where PyTorch is installed
(`make test-torch`). `extra/coverage` describes each operator by a few example calls that both
libraries run.

- **dtypes**: those that PyTorch takes, each with the same values, shapes and result dtypes. What
  PyTorch refuses is refused with an error of the same class. *all* are {every}.
- **gradient**: by each float operand in each float dtype, from PyTorch's float64; in float64 the
  second derivative too, where PyTorch has one. In the aspects further right also in float64.
- **non-contiguous**: operands that are transposed, every other element of a row, and expanded.
- A cell that says neither *yes* nor *fails* says why the aspect does not apply; *refused* are calls
  that both libraries refuse.

Exact operators agree to the bit. The others are compared with PyTorch's result in float64, within
half an epsilon for each rounding between operands and result; halves compute in float32 and round
once more. `rand` and its kin are not PyTorch's numbers: their shape, dtype, range, mean and
deviation are checked. [Numbers](numerics.md) lists what differs on purpose.
"""
FLOATING = DTYPES[-4:]
WHOLE = DTYPES[1:6]


def page_of(
    verdicts: Sequence[Verdict], device: str, version: str, where: Mapping[str, str]
) -> str:
    """Return the page: how many operators count, how that was found out and where, the table."""
    missing = [each.name for each in verdicts if each.is_missing]
    listed = f" ({len(missing)} are missing: {', '.join(missing)})" if missing else ""
    head = HEAD.format(
        counting=sum(each.counts for each in verdicts),
        count=len(verdicts),
        missing=listed,
        version=version.split("+")[0],
        device=device,
        commit=where["commit"],
        date=where["date"],
        every=", ".join(DTYPES),
    )
    columns = ("op", "dtypes", *ASPECTS, "notes")
    rule = "|".join("---" for _ in columns)
    lines = [f"| {' | '.join(columns)} |", f"|{rule}|", *map(line_of, verdicts)]
    return head + "\n" + "\n".join(lines) + "\n"


def line_of(verdict: Verdict) -> str:
    """Return an operator's line of the table."""
    if verdict.is_missing:
        cells = ["", *["missing"] * len(ASPECTS), ""]
    else:
        cells = [dtypes_text(verdict.dtypes), *[verdict.cells[each] for each in ASPECTS]]
        cells.append(verdict.note)
    return f"| `{verdict.name}` | {' | '.join(cells)} |".replace("  ", " ")


def dtypes_text(names: Sequence[str]) -> str:
    """Name dtypes by their groups."""
    if tuple(names) == DTYPES:
        return "all"
    left = list(names)
    found = []
    for group, text in ((WHOLE, "integers"), (FLOATING, "floats")):
        if set(group) <= set(left):
            found.append(text)
            left = [name for name in left if name not in group]
    return ", ".join(
        [
            *(each for each in left if each == "bool"),
            *found,
            *(each for each in left if each != "bool"),
        ]
    )
