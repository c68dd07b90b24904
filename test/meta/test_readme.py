"""The documents are true: their Python runs, and their commands exist.

A block after the line `<!-- not run -->` is left alone.
"""

import re
from dataclasses import dataclass

import pytest
from meta.tree import ROOT

BLOCK = re.compile(r"^(<!-- not run -->\n\n?)?```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block of a document: its language, its text and the line where the text begins."""

    language: str
    text: str
    line: int


def blocks_of(text):
    return [
        Block(found[2], found[3], text.count("\n", 0, found.start(3)) + 1)
        for found in BLOCK.finditer(text)
        if not found[1]
    ]


def run_python(text, path):
    """Run a document's Python blocks one after another in one namespace, and give it."""
    names = {"__name__": "__document__"}
    for block in blocks_of(text):
        if block.language == "python":
            # Blank lines before the block make a traceback name the document's own lines.
            program = "\n" * (block.line - 1) + block.text
            exec(compile(program, path, "exec"), names)
    return names


def missing_targets(text, makefile):
    """The `make` targets that a document's shell blocks use and the Makefile does not have."""
    targets = set(re.findall(r"^([\w-]+):", makefile, re.MULTILINE))
    shell = [block.text for block in blocks_of(text) if block.language in {"sh", "bash"}]
    used = {name for text in shell for name in re.findall(r"^make ([\w-]+)", text, re.MULTILINE)}
    return used - targets


def documents():
    paths = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [path for path in paths if path.exists()]


def with_blocks(*languages):
    return [
        p for p in documents() if any(b.language in languages for b in blocks_of(p.read_text()))
    ]


@pytest.mark.parametrize("path", with_blocks("python"), ids=lambda path: path.name)
def test_the_python_of_a_document_runs(path):
    run_python(path.read_text("utf-8"), str(path))


@pytest.mark.parametrize("path", with_blocks("sh", "bash"), ids=lambda path: path.name)
def test_the_commands_of_a_document_exist(path):
    makefile = (ROOT / "Makefile").read_text("utf-8")

    assert missing_targets(path.read_text("utf-8"), makefile) == set()


def test_blocks_share_their_names_and_marked_ones_do_not_run():
    text = (
        "```python\na = 1\n```\n"
        "<!-- not run -->\n```python\na = 9\n```\n"
        "```python\nb = a + 1\n```\n"
    )

    names = run_python(text, "sample.md")

    assert (names["a"], names["b"]) == (1, 2)


def test_a_failing_block_names_its_line():
    with pytest.raises(AssertionError) as caught:
        run_python("One\n\n```python\nassert 1 == 2\n```\n", "sample.md")

    last = caught.traceback[-1]
    assert (str(last.path), last.lineno + 1) == ("sample.md", 4)


def test_a_missing_target_is_found():
    text = "```sh\nmake demo\nmake tea\n```\n"

    assert missing_targets(text, "demo: x\n\techo\n") == {"tea"}
