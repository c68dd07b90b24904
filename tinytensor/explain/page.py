"""Turns an explanation into one HTML file that needs nothing else: no network and no script.

It is well-formed XML as well, so that whatever reads XML can take it apart.
A kernel's part of the page is shown when its box or a link to it is chosen, by CSS alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

from tinytensor.explain.picture import picture_of
from tinytensor.explain.table import (
    COLUMNS,
    Group,
    Reason,
    cells_of,
    details_of,
    facts_of,
    groups_of,
    reasons_of,
    summary_of,
)
from tinytensor.ops.kernel import Decision
from tinytensor.ops.uop import UOp

if TYPE_CHECKING:
    from tinytensor.explain.record import ExplainedKernel, Explanation

STYLE = os.path.join(os.path.dirname(__file__), "page.css")
SHOWN = 12  # rows of a list that are seen at once
SEEN = COLUMNS[:-1]  # the last one stands below the kernel's name
OPTIONAL = COLUMNS[COLUMNS.index("roof") : -1]  # what a narrow window leaves out


def page_of(found: Explanation) -> str:
    """Return the page; its texts are escaped, whatever the function is called."""
    title = escape(f"{found.name} on {found.device}")
    return "\n".join(
        [
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8"/>',
            '<meta name="viewport" content="width=device-width, initial-scale=1"/>',
            f"<title>{title}</title>\n<style>{_style(found.kernels)}</style>\n</head>\n<body>",
            f"<header><h1>{title}</h1>{_cards(summary_of(found))}</header>\n<main>",
            *_times(groups_of(found)),
            *_schedule(found),
            *_reasons(found),
            f"<section><h2>Memory, host and compilation</h2>{_facts(details_of(found))}</section>",
            "</main>\n</body>\n</html>\n",
        ]
    )


def _style(kernels: Sequence[ExplainedKernel]) -> str:
    """Return the style sheet, with rules that mark the chosen kernel's box and its arrows."""
    with open(STYLE, encoding="utf-8") as file:
        text = file.read()
    boxes, arrows = [], []
    for number in [each.number for each in kernels]:
        chosen = f":root:has(#k{number}:target,.b{number}:hover,.b{number}:focus-visible)"
        boxes.append(f"{chosen} .b{number} rect")
        arrows.append(f"{chosen} :is(.f{number},.t{number})")
    marks = {",\n".join(boxes): "stroke-width:2.5", ",\n".join(arrows): "opacity:1;stroke-width:2"}
    rules = [f"{which}{{stroke:var(--accent);{how}}}" for which, how in marks.items() if which]
    return "\n".join([text, *rules])


def _cards(summary: Mapping[str, str]) -> str:
    cards = [
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>"
        for name, value in summary.items()
    ]
    return f'<dl class="cards">{"".join(cards)}</dl>'


def _facts(facts: Mapping[str, str]) -> str:
    rows = [
        f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts.items() if value
    ]
    return f'<dl class="facts">{"".join(rows)}</dl>'


def _times(groups: Sequence[Group]) -> Iterator[str]:
    rest = groups[SHOWN:]
    yield f"<section><h2>Where the time goes</h2>{_time_table(groups[:SHOWN], groups)}"
    if rest:
        share = sum(each.share for each in rest)
        yield f"<details><summary>{len(rest)} more kernels, {share:.1%} of the time</summary>"
        yield f"{_time_table(rest, groups)}</details>"
    yield "</section>"


def _time_table(shown: Sequence[Group], groups: Sequence[Group]) -> str:
    heads = [f"<th class='{_class(name)}' scope='col'>{name}</th>" for name in SEEN]
    rows = [_row(each, each.share / (groups[0].share or 1.0)) for each in shown]
    return f"<table><thead><tr>{''.join(heads)}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _row(group: Group, part: float) -> str:
    """Return a row; `part` is its time as a part of the longest one's."""
    cells = {name: escape(cell) for name, cell in zip(COLUMNS, cells_of(group), strict=True)}
    bar = f'<span class="bar" style="--part:{part:.1%}"></span>'
    name = _link(group.launches[0].number, cells["kernel"])
    cells["kernel"] = f"{bar}{name}<small>{cells['from']}</small>"
    cells["number"] = _links([each.number for each in group.launches])
    told = [f"<td class='{_class(name)}'>{cells[name]}</td>" for name in SEEN]
    return f"<tr>{''.join(told)}</tr>"


def _class(column: str) -> str:
    kind = column.partition("/")[0]
    return f"{kind} optional" if column in OPTIONAL else kind


def _link(number: int, text: str) -> str:
    return f'<a href="#k{number}">{text}</a>'


def _links(numbers: Sequence[int]) -> str:
    return ", ".join([_link(each, str(each)) for each in numbers])


def _schedule(found: Explanation) -> Iterator[str]:
    yield '<section id="schedule"><h2>The schedule</h2>'
    yield (
        "<p>Each box is a kernel, the warmer its color, the longer it takes. Its last line names"
        " the module, or the line, that it comes from; \u2202 says that it gives a gradient. Choose"
        " one to see what it computes, why so, and its forms.</p>"
    )
    yield '<div class="split"><div class="picture" tabindex="0" role="region" aria-label="picture">'
    yield f'{picture_of(found.kernels)}</div><div class="chosen">'
    first: dict[UOp, int] = {}
    for each in found.kernels:
        same = first.setdefault(each.kernel.sink, each.number)
        yield from _kernel(each, same)
    yield "</div></div></section>"


def _kernel(each: ExplainedKernel, same: int) -> Iterator[str]:
    """Give a kernel's part; its forms are those of the first launch of the same kernel."""
    name = escape(each.kernel.name)
    yield f'<article id="k{each.number}"><h3>{each.number} {name}</h3>'
    yield '<p class="back"><a href="#schedule">back to the picture</a></p>'
    yield _facts(facts_of(each))
    if each.readers:
        yield f"<p>read by kernels {_links(each.readers)}</p>"
    for maker in each.reads:
        yield _neighbor(maker, each)
    yield "<h4>Decisions</h4>"
    yield f"<ul class='decisions'>{''.join(map(_decision, each.decisions))}</ul>"
    if same == each.number:
        yield from _forms(each)
    else:
        yield f"<p>It runs the code of kernel {_link(same, str(same))}, on other buffers.</p>"
    yield "</article>"


def _neighbor(maker: int, reader: ExplainedKernel) -> str:
    """Say why a kernel is not one with another that it reads."""
    link, why = _link(maker, f"kernel {maker}"), escape(reader.why_apart_from(maker))
    return f"<details><summary>reads {link}; why they are two</summary><p>{why}</p></details>"


def _forms(each: ExplainedKernel) -> Iterator[str]:
    sources = each.sources
    forms = {"TENSOR": sources.tensor, "INDEXED": sources.indexed}
    forms |= {"LINEAR": sources.linear, "source": sources.source}
    for name, text in forms.items():
        if text:
            body = f'<pre tabindex="0">{escape(text)}</pre>'
            yield f"<details><summary>{name}</summary>{body}</details>"


def _reasons(found: Explanation) -> Iterator[str]:
    reasons = reasons_of(found)
    rest = reasons[SHOWN:]
    yield f"<section><h2>Not fused, and why</h2>{_reason_list(reasons[:SHOWN])}"
    if rest:
        yield f"<details><summary>{len(rest)} more reasons</summary>{_reason_list(rest)}</details>"
    yield "</section>"


def _reason_list(reasons: Sequence[Reason]) -> str:
    items = [
        _decision(each.decision, f" <span>{escape(each.modules)}, {_links(each.kernels)}</span>")
        for each in reasons
    ]
    return f"<ul class='decisions'>{''.join(items)}</ul>"


def _decision(decision: Decision, after: str = "") -> str:
    told = escape(f"{decision.subject}: {decision.reason}")
    return f"<li><b class='{decision.kind}'>{decision.kind}</b><span>{told}{after}</span></li>"
