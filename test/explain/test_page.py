"""The page of an explanation: one file, whole, in which every link leads somewhere."""

import json
import re
import shutil
import subprocess
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest

from tinytensor import Tensor, explain
from tinytensor.errors import caller_site
from tinytensor.explain.page import STYLE
from tinytensor.explain.picture import BOX_HEIGHT, BOX_WIDTH, levels_of
from tinytensor.provenance import Provenance

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
BROWSER = next((found for each in BROWSERS if (found := shutil.which(each))), None)
needs_browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium here")


class Page:
    """A page taken apart, which fails where it is not well-formed."""

    def __init__(self, text):
        self.root = ElementTree.fromstring(text)
        self.tags = {each.tag for each in self.root.iter()}
        self.text = "".join(self.root.itertext())

    def all(self, tag):
        return [each.attrib for each in self.root.iter(tag)]


def ones(*shape):
    return Tensor(np.ones(shape, np.float32)).realize()


def diamond(x, y):
    """Two products that a third one reads, and a kernel of its own."""
    left, right = x @ y, x @ y.T
    return left @ right, (x * 2.0).sum()


@pytest.fixture(scope="module")
def found():
    return explain(diamond, ones(24, 24), ones(24, 24), repeats=1)


@pytest.fixture(scope="module")
def page(found):
    return Page(found.to_html())


def test_the_page_tells_a_browser_what_it_is(found, page):
    assert found.to_html().startswith('<!DOCTYPE html>\n<html lang="en">\n')
    assert {"charset": "utf-8"} in page.all("meta")
    assert {"name": "viewport", "content": "width=device-width, initial-scale=1"} in page.all(
        "meta"
    )
    assert page.root.find("head/title").text == "diamond on CPU"


def test_the_page_needs_nothing_else(found, page):
    assert not page.tags & {"script", "link", "img", "iframe", "object", "base"}
    assert re.findall(r"url\(|@import|\bsrc=|https?:", found.to_html()) == []


def test_every_link_leads_to_an_element_and_every_kernel_has_one(found, page):
    names = [each.attrib["id"] for each in page.root.iter() if "id" in each.attrib]
    targets = {each["href"] for each in page.all("a")}

    assert len(names) == len(set(names))
    assert targets <= {f"#{name}" for name in names}
    assert {f"#k{each.number}" for each in found.kernels} <= targets


def test_kernels_are_shown_with_reasons_and_forms(found, page):
    for each in found.kernels:
        assert each.kernel.name in page.text
        assert all(decision.reason in page.text for decision in each.decisions)
    first, last = found.kernels[0].sources, found.kernels[-1].sources
    forms = (first.tensor, first.indexed, first.linear, last.source)
    assert all(form in page.text for form in forms)


def test_launches_of_one_kernel_show_its_code_once():
    a, b = ones(11, 11), ones(11, 11)
    found = explain(lambda: (a @ a, b @ b), repeats=1)

    text = Page(found.to_html()).text

    assert [each.kernel.name for each in found.kernels] == ["contract_f32_11x11x11"] * 2
    assert text.count(found.kernels[0].sources.source) == 1
    assert "It runs the code of kernel 1, on other buffers." in text


def test_texts_are_escaped(found):
    page = Page(replace(found, name="<script>alert(1)</script> & more").to_html())

    assert page.all("script") == []
    assert page.root.find("body/header/h1").text == "<script>alert(1)</script> & more on CPU"


def test_levels_put_a_kernel_below_what_it_reads(found):
    levels = levels_of(found.kernels)

    row = {each.number: n for n, level in enumerate(levels) for each in level}
    assert sorted(row) == [each.number for each in found.kernels]
    assert all(row[maker] < row[each.number] for each in found.kernels for maker in each.reads)
    assert [len(level) for level in levels] == [3, 1]


def test_boxes_lie_apart_and_inside_the_picture(found, page):
    (svg,) = page.all("svg")
    boxes = [(float(each["x"]), float(each["y"])) for each in page.all("rect")]

    assert len(boxes) == len(found.kernels)
    for x, y in boxes:
        assert 0 <= x <= float(svg["width"]) - BOX_WIDTH
        assert 0 <= y <= float(svg["height"]) - BOX_HEIGHT
    apart = [
        abs(x - u) >= BOX_WIDTH or abs(y - v) >= BOX_HEIGHT for x, y in boxes for u, v in boxes
    ]
    assert apart.count(False) == len(boxes)  # each with itself


def test_an_arrow_leads_from_each_kernel_to_its_readers(found, page):
    arrows = {each["class"] for each in page.all("path")}

    wanted = {f"f{maker} t{each.number}" for each in found.kernels for maker in each.reads}
    assert len(wanted) == 2
    assert arrows == wanted


def colors():
    """Each color of the style sheet, in the light and in the dark."""
    with open(STYLE, encoding="utf-8") as file:
        pairs = re.findall(r"--(\w+): light-dark\(#(\w{6}), #(\w{6})\)", file.read())
    return {name: both for name, *both in pairs}


def luminance(color):
    """Relative luminance, as in WCAG 2.2."""
    parts = [int(color[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    linear = [
        each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in parts
    ]
    return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))


@pytest.mark.parametrize("mode", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("name", ["text", "muted", "accent"])
@pytest.mark.parametrize("behind", ["back", "card"])
def test_text_stands_out_from_what_is_behind_it(name, behind, mode):
    lighter, darker = sorted([luminance(colors()[each][mode]) for each in (name, behind)])[::-1]

    assert (lighter + 0.05) / (darker + 0.05) >= 4.5  # WCAG 2.2, 1.4.3


MEASURE = """
<script>
addEventListener("load", () => {
  const all = selector => [...document.querySelectorAll(selector)];
  const boxes = all("svg a");
  const focused = boxes.filter(each => { each.focus(); return document.activeElement === each; });
  parent.postMessage({
    window: innerWidth,
    page: document.documentElement.scrollWidth,
    shown: all("article").filter(each => each.offsetParent !== null).map(each => each.id),
    focused: focused.length,
    back: getComputedStyle(document.body).backgroundColor,
  }, "*");
});
</script>
"""
# A window cannot be as narrow as a telephone, but a frame can.
AROUND = """<!doctype html><pre id="measured"></pre><script>
addEventListener("message", event => {
  document.getElementById("measured").textContent = JSON.stringify(event.data);
});
</script><iframe src="page.html%s" width="%d" height="700" style="border: 0"></iframe>
"""


def measure(found, directory, width, fragment, *options):
    """Open the page from a file without a screen; return what a script finds there."""
    text = found.to_html().replace("</body>", MEASURE + "</body>")
    (directory / "page.html").write_text(text, "utf-8")
    (directory / "around.html").write_text(AROUND % (fragment, width), "utf-8")
    browser = f"--user-data-dir={directory / 'browser'}"
    quiet = ("--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=5000")
    command = [BROWSER, *quiet, browser, "--window-size=1400,800", "--dump-dom", *options]
    command.append(f"file://{directory / 'around.html'}")
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return json.loads(re.search(r'<pre id="measured">(\{.*?\})</pre>', done.stdout)[1])


@needs_browser
@pytest.mark.parametrize("width", [375, 1360])
def test_a_browser_shows_the_chosen_kernel_and_the_page_fits(found, tmp_path, width):
    names = [replace(each.kernel, name=f"add_f32_{'512x' * 30}1") for each in found.kernels]
    pairs = zip(found.kernels, names, strict=True)
    deep = Provenance(caller_site(), ".".join(["encoder", *["layers", "0"] * 20]), True)
    long = {"outputs": ("f32[1]",) * 99, "provenance": (deep,)}
    longer = [replace(each, kernel=kernel, **long) for each, kernel in pairs]

    seen = measure(replace(found, kernels=tuple(longer)), tmp_path, width, "#k2")

    assert seen["window"] == width
    assert seen["page"] <= width
    assert seen["shown"] == ["k2"]
    assert seen["focused"] == len(found.kernels)


@needs_browser
@pytest.mark.parametrize(("scheme", "mode"), [(1, 0), (0, 1)], ids=["light", "dark"])
def test_a_browser_shows_the_first_kernel_in_the_colors_it_prefers(found, tmp_path, scheme, mode):
    option = f"--blink-settings=preferredColorScheme={scheme}"

    seen = measure(found, tmp_path, 800, "", option)

    back = colors()["back"][mode]
    wanted = [int(back[at : at + 2], 16) for at in (0, 2, 4)]
    assert [int(each) for each in re.findall(r"\d+", seen["back"])] == wanted
    assert seen["shown"] == ["k1"]
