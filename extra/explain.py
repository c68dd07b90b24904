"""Explains a step of training of a small transformer: `python -m extra.explain`.

`--html PATH` writes the page as well; `--write docs/explain.md` puts the table into the block below
the line `<!-- explain -->` of that document.
"""

from __future__ import annotations

import argparse
import pathlib
import re

from extra.examples.gpt2 import Network, Shape, draw_words
from tinytensor import Tensor, explain, manual_seed, optim
from tinytensor.explain.record import Explanation
from tinytensor.nn.functional import cross_entropy

SHAPE = Shape(layers=4, heads=4, width=256, vocabulary=1024, longest=128)
BATCH, LENGTH = 4, 128
BLOCK = re.compile(r"(<!-- explain -->\n+```\n).*?(```\n)", re.DOTALL)


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
        options.write.write_text(fill_in(page, str(found)), "utf-8")


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


def fill_in(page: str, table: str) -> str:
    """Put a table into the block below the marker of a page."""
    return BLOCK.sub(lambda found: f"{found[1]}{table}\n{found[2]}", page)


if __name__ == "__main__":
    main()
