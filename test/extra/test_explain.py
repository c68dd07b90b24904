"""The command that explains a step of training, on a smaller one."""

import re

import pytest

from extra import explain
from extra.examples.gpt2 import Shape
from tinytensor import config

PAGE = """Before.

<!-- explain -->
```
old
```

<!-- explain: kernel blocks.0.up -->
```
old
```

```
kept
```

<!-- explain: apart blocks.0.attention.out blocks.0.between -->
```
```
"""


def test_what_a_marker_asks_for_goes_into_the_block_below_it():
    filled = explain.fill_in(PAGE, lambda what: rf"\1 {what or 'table'}")

    told = [line for line in filled.splitlines() if not line.startswith(("<!--", "```"))]
    assert told == [
        *("Before.", "", r"\1 table", "", r"\1 kernel blocks.0.up", "", "kept", ""),
        r"\1 apart blocks.0.attention.out blocks.0.between",
    ]


@pytest.fixture
def small(monkeypatch):
    """Make the transformer one that is explained in seconds, without compiling."""
    monkeypatch.setattr(explain, "SHAPE", Shape(1, 2, 16, 32, 8))
    monkeypatch.setattr(explain, "BATCH", 2)
    monkeypatch.setattr(explain, "LENGTH", 8)
    with config(device="PYTHON"):
        yield


def test_the_command_writes_the_table_and_the_page(small, tmp_path, monkeypatch, capsys):
    document, page = tmp_path / "page.md", tmp_path / "step.html"
    document.write_text(PAGE, "utf-8")
    monkeypatch.setattr("sys.argv", ["explain", "--html", str(page), "--write", str(document)])

    explain.main()

    table = capsys.readouterr().out
    assert table.startswith("training_step on PYTHON: launches ")
    written = document.read_text("utf-8")
    assert table.rstrip("\n") in written
    assert re.search(
        r"up -->\n```\nkernel \d+  \w+\n  from        blocks.0.up: self.up\(..\), ", written
    )
    assert re.search(r"between -->\n```\nadd#3 f32\[2,8,16\]: ", written)
    assert "<h1>training_step on PYTHON</h1>" in page.read_text("utf-8")
