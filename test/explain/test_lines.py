"""Where a kernel comes from: the line as its user wrote it, the module, and which way."""

import numpy as np
import pytest
from explain.model import Network

from tinytensor import Tensor, explain, manual_seed, nn, no_grad, optim
from tinytensor.errors import Site, caller_site
from tinytensor.explain.lines import (
    common_words,
    expression_at,
    module_words,
    provenance_words,
    shortened,
)
from tinytensor.explain.table import cells_of, facts_of, groups_of, reasons_of
from tinytensor.provenance import COLLECTING, Provenance, collect_provenance

THERE = "test_lines.py"


def words_of(found):
    """The first provenance of each kernel, in words."""
    return [provenance_words(each.provenance[0]) for each in found.kernels]


@pytest.fixture(scope="module")
def found():
    """A step of training."""
    manual_seed(3)
    network = Network()
    optimizer = optim.SGD(network.parameters(), lr=0.1)
    x = Tensor(np.linspace(-1, 1, 24, dtype=np.float32).reshape(4, 6)).realize()

    def step():
        loss = network(x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return explain(step, repeats=1)


def test_kernels_of_the_forward_name_their_module_and_line(found):
    words = words_of(found)

    for number in (0, 1):
        assert f"blocks.{number}.up: self.up(..), model.py:15" in words
        assert f"blocks.{number}.down: self.down(..), model.py:16" in words
    assert "Network: x.mean(), model.py:29" in words


def test_kernels_of_the_backward_are_gradients_of_lines_of_the_forward(found):
    words = words_of(found)

    for number in (0, 1):
        assert f"gradient of blocks.{number}.up: self.up(..), model.py:15" in words
        assert f"gradient of blocks.{number}.down: self.down(..), model.py:16" in words


def test_what_is_fused_into_a_kernel_is_named_beside_its_fold(found):
    (up,) = [
        each for each in found.kernels if words_of(found)[each.number - 1].startswith("blocks.0.up")
    ]

    assert facts_of(up)["from"] == "blocks.0.up: self.up(..), model.py:15"
    assert facts_of(up)["and from"] == "blocks.0: gelu(..), model.py:15"


def test_a_step_of_an_optimizer_is_the_line_that_takes_it(found):
    told = {
        line for each in found.kernels for line in facts_of(each).get("and from", "").split("; ")
    }

    line = step_line("optimizer.step()")
    assert f"optimizer.step(), {THERE}:{line}" in told


def step_line(text):
    """The line of this file that is only `text`."""
    with open(__file__, encoding="utf-8") as file:
        return 1 + [each.strip() for each in file].index(text)


def test_every_kernel_comes_from_somewhere(found):
    assert all(each.provenance for each in found.kernels)


def test_launches_of_one_kernel_are_told_with_stars_where_they_differ(found):
    words = [cells_of(group)[-1] for group in groups_of(found)]

    assert "blocks.*.down: self.down(..), model.py:16" in words


def test_reasons_name_the_modules_of_the_kernels_that_they_are_about(found):
    modules = {each.modules for each in reasons_of(found)}

    assert "blocks.0.up" in modules
    assert any(each.startswith("gradient of blocks.") for each in modules)
    line = next(each for each in str(found).splitlines() if each.endswith(": blocks.0.up)"))
    assert line.startswith("  store ")


def test_where_no_module_ran_the_line_stands_for_it():
    site = caller_site()

    assert module_words(Provenance(site)) == f"{THERE}:{site.line_number()}"
    assert module_words(Provenance(site, "a.0", is_gradient=True)) == "gradient of a.0"


def test_a_write_in_place_is_a_line_of_its_own():
    x = Tensor(np.ones(5, np.float32)).realize()

    def add():
        with no_grad():
            x.add_(2.0)
        return x

    (kernel,) = explain(add, repeats=1).kernels

    (found,) = kernel.provenance
    assert provenance_words(found) == f"x.add_(..), {THERE}:{step_line('x.add_(2.0)')}"


def test_texts_that_differ_in_more_than_numbers_stand_side_by_side():
    site = caller_site()
    several = [Provenance(site, module) for module in ("a.1", "a.2", "a.1", "b")]

    words = common_words(several)

    place = f"caller_site(), {THERE}:{site.line_number()}"
    assert words == f"a.*: {place}; b: {place}"


def test_numbers_that_do_not_differ_stay():
    site = caller_site()

    words = common_words([Provenance(site, "a.7.x.1"), Provenance(site, "a.7.x.2")])

    assert words.startswith("a.7.x.*: ")


@pytest.mark.parametrize(
    ("text", "short"),
    [
        ("f(x)", "f(..)"),
        ("f()", "f()"),
        ("x + f(x, y=2)", "x + f(..)"),
        ("a.b(c)[0].d(e(1))", "a.b(..)[0].d(..)"),
        ("x += f(x)", "x += f(x)"),
        ("a(1) +\n    b", "a(..) + b"),
        ("a" * 60, "a" * 46 + ".."),
    ],
)
def test_arguments_of_calls_are_left_out(text, short):
    assert shortened(text) == short


def test_code_without_a_source_is_told_by_its_name():
    space = {"caller_site": caller_site}
    exec("def lost():\n    return caller_site()", space)  # its text is in no file

    assert expression_at(space["lost"]()) == "lost"


def test_a_line_that_is_not_the_users_is_told_so():
    assert provenance_words(Provenance(None)) == "no line of the user's"
    assert isinstance(caller_site(), Site)


def test_the_path_of_a_module_ends_when_it_returns_or_fails():
    class Broken(nn.Module):
        def forward(self):
            raise KeyError("here")

    with collect_provenance() as collector:
        with pytest.raises(KeyError):
            Broken()()
        x = Tensor([1.0]) + 1.0
        collector.keep_scheduled({})

    assert collector.scheduled[x.uop].module == ""
    assert COLLECTING.collector is None
