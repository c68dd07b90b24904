"""The pages show what the compiler does now, stage by stage."""

import pytest
from meta.tree import ROOT

from extra.tour import STAGES, fill_in, listings

PAGES = ("README.md", "docs/architecture.md", "docs/reading-debug.md")


@pytest.mark.parametrize("page", PAGES)
def test_every_listing_is_what_the_tour_prints(page):
    text = (ROOT / page).read_text()

    assert fill_in(text, listings()) == text, "run: python -m extra.tour --write " + page


def test_every_stage_is_shown_somewhere():
    pages = "".join((ROOT / page).read_text() for page in PAGES)

    assert [name for name in STAGES if f"<!-- tour: {name} -->" not in pages] == []


def test_a_stale_listing_is_found():
    page = "<!-- tour: tensor -->\n```\nold\n```\n"

    assert fill_in(page, {"tensor": "fresh"}) == "<!-- tour: tensor -->\n```\nfresh\n```\n"
