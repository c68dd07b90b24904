"""Explains a step of training of a small transformer: `python -m extra.explain`.

`--html PATH` writes the page as well; `--write docs/explain.md` fills the blocks of that document:
below the line `<!-- explain -->` the table, below `<!-- explain: kernel MODULE -->` all of the
first kernel that comes from a module, and below `<!-- explain: apart MODULE MODULE -->` why two of
these are not one.
"""

from __future__ import annotations

import argparse
import functools
import pathlib
import re
from collections.abc import Callable

from extra.examples.gpt2 import Network, Shape, draw_words
from tinytensor import Tensor, explain, manual_seed, optim
from tinytensor.explain.record import ExplainedKernel, Explanation
from tinytensor.nn.functional import cross_entropy

SHAPE = Shape(layers=4, heads=4, width=256, vocabulary=1024, longest=128)
BATCH, LENGTH = 4, 128
BLOCK = re.compile(r"(<!-- explain(?:: ([^>]*))? -->\n+```\n).*?(```\n)", re.DOTALL)


def main() -> None:
    """Explain the step, print the table, and write what was asked for."""
    parser = argparse.ArgumentParser("python -m extra.explain", description=__doc__)
    parser.add_argument("--html", type=pathlib.Path, help="where to write the page")
    parser.add_argument("--write", type=pathlib.Path, help="a document to put the table into")
    options = parser.parse_args()
    found = explain_step()
    print(found)
    if options.html:
        options.html.write_text(found.to_html(), "utf-8")
    if options.write:
        page = options.write.read_text("utf-8")
        options.write.write_text(fill_in(page, functools.partial(told, found)), "utf-8")


def explain_step() -> Explanation:
    """Explain a step of AdamW on words drawn at random."""
    manual_seed(0)
    network = Network(SHAPE)
    optimizer = optim.AdamW(network.parameters(), lr=1e-3)
    words, following = draw_words(SHAPE, BATCH, LENGTH, step=0)

    def training_step() -> Tensor:
        scores = network(words).flatten(0, 1)
        loss = cross_entropy(scores, following.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return explain(training_step, repeats=9)


def told(found: Explanation, what: str) -> str:
    """Return what a marker asks for."""
    kind, *modules = what.split() or ["table"]
    kernels = [kernel_from(found, each) for each in modules]
    if kind == "apart":
        return found.why_apart(*[each.number for each in kernels])
    return str(kernels[0] if kind == "kernel" else found)


def kernel_from(found: Explanation, module: str) -> ExplainedKernel:
    """Return the first kernel of the forward whose fold comes from a module."""
    return next(
        each
        for each in found.kernels
        for first in each.provenance[:1]
        if first.module == module and not first.is_gradient
    )


def fill_in(page: str, tell: Callable[[str], str]) -> str:
    """Put what markers ask for into the blocks below them."""
    return BLOCK.sub(lambda block: f"{block[1]}{tell(block[2] or '')}\n{block[3]}", page)


if __name__ == "__main__":
    main()
