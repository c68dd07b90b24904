"""The command that explains a step of training, on a smaller one."""

import pytest

from extra import explain
from extra.examples.gpt2 import Shape
from tinytensor import config

PAGE = "Before.\n\n<!-- explain -->\n```\nold\n```\n\n```\nkept\n```\n"


def test_a_table_goes_into_the_block_below_its_marker_alone():
    filled = explain.fill_in(PAGE, r"a \1 b")

    assert filled == "Before.\n\n<!-- explain -->\n```\na \\1 b\n```\n\n```\nkept\n```\n"


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
    assert table.rstrip("\n") in document.read_text("utf-8")
    assert "<h1>training_step on PYTHON</h1>" in page.read_text("utf-8")
