"""Every setting is a row, and the README shows the rows as they are."""

import re

import pytest
from meta.tree import ROOT, python_sources

from extra.settings import debug_table, settings_table
from tinytensor.config import SETTINGS

README = ROOT / "README.md"
NAMES = {setting.name for setting in SETTINGS}


def undocumented(text):
    """Names in a text that look like a setting and are no row."""
    return set(re.findall(r"\bTT_[A-Z_]*[A-Z]\b", text)) - NAMES


def documents():
    return [path for path in (README, ROOT / "CONTRIBUTING.md") if path.exists()]


def test_every_setting_that_the_package_names_is_a_row():
    found = {source.path: undocumented(source.text) for source in python_sources("tinytensor")}

    assert {path: names for path, names in found.items() if names} == {}


@pytest.mark.parametrize("path", documents(), ids=lambda path: path.name)
def test_every_setting_that_a_document_names_is_a_row(path):
    assert undocumented(path.read_text("utf-8")) == set()


@pytest.mark.skipif(not README.exists(), reason="there is no README yet")
@pytest.mark.parametrize("table", [settings_table, debug_table])
def test_the_readme_shows_the_table(table):
    assert table() in README.read_text("utf-8")


def test_a_name_that_is_no_row_is_found():
    assert undocumented("TT_FUSE=1 TT_FUSES=2 `TT_SPEED`") == {"TT_FUSES", "TT_SPEED"}
