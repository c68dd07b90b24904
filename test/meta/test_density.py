"""How much a line of code asks of its reader, in tokens."""

from collections import Counter

import pytest
from meta.tree import PACKAGE, Source, python_sources

MEAN_TOKENS = 12
LINE_TOKENS = 40


def density_violations(source):
    """Files that are dense on average, lines that are too dense, and semicolons, as sentences."""
    by_line = Counter(found.start[0] for found in source.code_tokens)
    found = [
        f"{source.path}:{line}: {count} tokens, over {LINE_TOKENS}"
        for line, count in by_line.items()
        if count > LINE_TOKENS
    ]
    lines = len(source.code_lines)
    if by_line.total() > MEAN_TOKENS * lines:
        mean = by_line.total() / lines
        found.append(f"{source.path}: {mean:.1f} tokens a line, over {MEAN_TOKENS}")
    semicolons = (t for t in source.code_tokens if t.string == ";")
    return found + [f"{source.path}:{t.start[0]}: a semicolon" for t in semicolons]


@pytest.mark.parametrize("source", python_sources(PACKAGE), ids=lambda source: source.path)
def test_lines_are_easy_to_read(source):
    found = density_violations(source)

    assert not found, "\n".join(found)


def test_a_dense_line_is_found():
    text = "x = [" + "1, " * 20 + "]\n" + "x\n" * 10

    assert density_violations(Source("a.py", text)) == ["a.py:1: 44 tokens, over 40"]


def test_a_dense_file_is_found():
    text = "x = a + b + c + d + e + f\n" * 3

    assert density_violations(Source("a.py", text)) == ["a.py: 13.0 tokens a line, over 12"]


def test_a_semicolon_is_found():
    assert density_violations(Source("a.py", "x = 1; y = ';'\n")) == ["a.py:1: a semicolon"]


def test_docstrings_and_comments_are_free():
    text = '"""One; two."""\nx = 1  # three; four\n'

    assert density_violations(Source("a.py", text)) == []
