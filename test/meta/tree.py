"""Gives the meta tests the files they judge: each one's text, syntax tree and code lines."""

import ast
import io
import token
import tokenize
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = "tinytensor"
WRITTEN = ("tinytensor", "test", "extra", "docs", ".ci")
TEXT_SUFFIXES = {".py", ".md", ".toml", ".txt", ".c", ".cu", ""}
LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
# From Python 3.12 on an f-string is many tokens; they count as one, as they did before.
FSTRING_START = getattr(token, "FSTRING_START", -1)
FSTRING_END = getattr(token, "FSTRING_END", -1)


@dataclass(frozen=True)
class Source:
    """A Python file: its path from the root of the repository, and its text."""

    path: str
    text: str

    @cached_property
    def tree(self):
        return ast.parse(self.text, self.path)

    @cached_property
    def docstring_lines(self):
        """The lines that belong to docstrings."""
        spans = (docstring_span(node) for node in ast.walk(self.tree))
        return {line for span in spans for line in span}

    @cached_property
    def code_tokens(self):
        """The tokens that say something to Python: no comments, no layout, no docstrings."""
        return [found for found in self.tokens if found.start[0] not in self.docstring_lines]

    @cached_property
    def code_lines(self):
        """The numbers of the lines that hold code; blank, comment and docstring lines do not."""
        return {line for t in self.code_tokens for line in range(t.start[0], t.end[0] + 1)}

    @cached_property
    def tokens(self):
        depth, kept = 0, []
        for found in tokenize.generate_tokens(io.StringIO(self.text).readline):
            if found.type in LAYOUT:
                continue
            depth -= found.type == FSTRING_END
            if depth == 0 and found.type != FSTRING_END:
                kept.append(found)
            depth += found.type == FSTRING_START
        return kept


def docstring_span(node):
    """The line numbers of the node's own docstring; empty if it has none."""
    owners = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    if not isinstance(node, owners) or ast.get_docstring(node, clean=False) is None:
        return range(0)
    return range(node.body[0].lineno, node.body[0].end_lineno + 1)


def python_sources(*folders):
    """Every Python file under the given folders of the repository, in order of path."""
    paths = sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    return [Source(path.relative_to(ROOT).as_posix(), path.read_text("utf-8")) for path in paths]


def written_texts():
    """(path, text) of everything that people wrote in this repository."""
    inner = (path for folder in WRITTEN for path in (ROOT / folder).rglob("*"))
    paths = sorted(path for path in (*ROOT.glob("*"), *inner) if path.is_file())
    return [
        (path.relative_to(ROOT).as_posix(), path.read_text("utf-8"))
        for path in paths
        if path.suffix in TEXT_SUFFIXES and "__pycache__" not in path.parts
    ]
