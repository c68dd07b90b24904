"""Random programs, jitted and called again with other values, aliases, layouts and sizes."""

import re

import numpy as np
import pytest
from fuzz.alias_programs import PRELUDE, REFUSALS, Grower, Run

import tinytensor
from tinytensor import config, jit
from tinytensor.errors import TraceError

IN_THE_SUITE = 100
ALL = 5000
CALLS = 6


def look(x):
    """What a tensor shows: its type and layout, and its values."""
    return (x.shape, x.dtype.name, x.stride(), x.storage_offset()), x.detach().numpy()


def same(ours, theirs):
    return ours[0] == theirs[0] and np.array_equal(ours[1], theirs[1])


class Case:
    """A function over leaves, and ways to call it."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        steps = Grower(seed).steps
        self.leaves = [each for each in steps if each.kind == "leaf"]
        first = Run(tinytensor, lambda x, how: look(x))
        self.steps = [each for each in steps if each.kind != "read" and first.take(each)]
        self.steps = [each for each in self.steps if each.kind != "leaf"]
        self.names = [each.made for each in self.leaves]

    def body(self, *leaves):
        """Run the steps; return all tensors that they made, by name."""
        space = {"t": tinytensor, "apart": lambda x: x}
        space |= dict(zip(self.names, leaves, strict=True))
        for step in self.steps:
            exec(step.line, space)
        made = [each.made for each in self.steps if each.made]
        return {name: space[name] for name in [*dict.fromkeys(made), *self.names]}

    def call_text(self):
        """Statements that make the leaves of one call, as text, so that they can be made twice."""
        lines = []
        for number, leaf in enumerate(self.leaves):
            text = re.sub(r"\d+\)$", f"{self.rng.integers(9)})", leaf.text)
            way = self.rng.random()
            earlier = [each for each in self.leaves[:number] if each.text == leaf.text]
            if way < 0.15 and earlier:
                text = earlier[0].made
            elif way < 0.3:
                text = f"t.stack([{text}, {text}])[1]"
            elif way < 0.4:
                text = f"{text}.flip(0).clone()" if "((), " not in text else text
            elif way < 0.5:
                text = text.replace("(2, ", "(3, ")
            lines.append(f"{leaf.made} = {text}")
            if self.rng.random() < 0.3:
                lines.append(f"{leaf.made}.realize()")
            if self.rng.random() < 0.15:
                lines.append(f"kept_{leaf.made} = {leaf.made}.clone()")
        return "\n".join(lines)

    def make_leaves(self, text):
        space = {"t": tinytensor}
        exec(PRELUDE + text, space)
        kept = [value for name, value in space.items() if name.startswith("kept_")]
        return [space[name] for name in self.names], kept


def attempt(function, leaves):
    try:
        return function(*leaves), ""
    except TraceError:
        raise
    except REFUSALS as error:
        return {}, type(error).__name__


def fault_of(seed):
    """Compare each call with the plain function's; say where they differ."""
    case = Case(seed)
    jitted = jit(case.body)
    earlier = []
    for _ in range(CALLS):
        text = case.call_text()
        mine, my_kept = case.make_leaves(text)
        its, its_kept = case.make_leaves(text)
        expected, refusal = attempt(case.body, mine)
        found, other = attempt(jitted, its)
        if refusal != other:
            return f"{text}\nonly one refuses: {refusal or other}"
        wanted = {name: look(each) for name, each in expected.items()}
        for name, seen in wanted.items():
            if not same(look(found[name]), seen):
                return f"{text}\n{name} is {look(found[name])}, not {seen}"
        pairs = zip([*its, *its_kept], [*mine, *my_kept], strict=True)
        if not all(same(look(a), look(b)) for a, b in pairs):
            return f"{text}\na leaf differs afterwards"
        earlier += [(found[name], seen) for name, seen in wanted.items() if name not in case.names]
    for tensor, seen in earlier:
        if not same(look(tensor), seen):
            return "a later call has overwritten a result"
    return ""


def check(seed, device):
    with config(device=device):
        try:
            fault = fault_of(seed)
        except TraceError:
            return  # it reads values to choose a shape
        steps = "\n".join(each.line for each in Case(seed).steps)
    assert not fault, f"seed {seed}\n{steps}\n\n{fault}"


@pytest.mark.parametrize("first", range(0, IN_THE_SUITE, 10))
def test_a_jitted_program_is_the_program(first, default_device):
    for seed in range(first, first + 10):
        check(seed, default_device)


@pytest.mark.fuzz
@pytest.mark.parametrize("first", range(IN_THE_SUITE, ALL, 50))
def test_many_jitted_programs_are_the_programs(first, default_device):
    for seed in range(first, first + 50):
        check(seed, default_device)
