"""Provokes a miss of each kind of guard of a jitted function: `python -m extra.misses`.

It prints what each kind tells, as a table; `--write docs/decisions/jit.md` puts the table below the
line `<!-- misses -->` of that page. A test compares, so the page cannot go stale.
"""

from __future__ import annotations

import argparse
import pathlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tinytensor import Tensor, config, dtypes, jit, nn, no_grad, optim
from tinytensor.jit.function import Jitted

BLOCK = re.compile(r"(<!-- misses -->\n\n).*?(?=\n\n|\Z)", re.DOTALL)

Function = Jitted[..., Any]  # Any: what the examples return is not looked at
SCALE = 2.0


class Options:
    """An object of the user's, known by identity."""


@dataclass(frozen=True)
class Case:
    """A kind of guard, two calls between which it does not hold, and what makes them."""

    kind: str
    calls: str
    provoke: Callable[[], Function]

    @property
    def sentence(self) -> str:
        """What the function remarks."""
        return self.provoke().remarks[-1]


CASES: dict[str, Case] = {}


def case(kind: str, calls: str) -> Callable[[Callable[[], Function]], Callable[[], Function]]:
    """Make a function a case, by its name."""

    def register(provoke: Callable[[], Function]) -> Callable[[], Function]:
        CASES[provoke.__name__.strip("_")] = Case(kind, calls, provoke)
        return provoke

    return register


def scaled(x: Tensor, by: Any = 1.0) -> Tensor:  # noqa: ANN401 - numbers, flags, names
    """Compute with an argument of any kind."""
    return x * (by if isinstance(by, (int, float)) else 1.0)


def summed(xs: Any) -> Tensor:  # noqa: ANN401 - a nest of tensors
    """Add the tensors of a list, a tuple or a dict."""
    total, *others = xs.values() if isinstance(xs, dict) else xs
    for each in others:
        total = total + each
    return total * 1.0


def added(x: Tensor, y: Tensor) -> Tensor:
    """Add two tensors."""
    return x + y


def zeros(*shape: int, **options: Any) -> Tensor:  # noqa: ANN401 - a dtype, a device
    """Return a tensor whose memory is there."""
    return Tensor.zeros(*shape, **{"device": "CPU", **options}).realize()


def two_calls(
    function: Callable[..., Any], *calls: tuple[Any, ...], dynamic: bool | None = False
) -> Function:
    """Jit a function and call it with some arguments, and then with others."""
    jitted = jit(function, dynamic=dynamic)
    for each in calls:
        jitted(*each)
    return jitted


# The arguments.
@case("structure", "scaled(x); scaled(x, 1.0)")
def _number_of_arguments() -> Function:
    return two_calls(scaled, (zeros(2),), (zeros(2), 1.0))


@case("structure", "summed([x, y]); summed([x, y, z])")
def _length_of_a_list() -> Function:
    return two_calls(summed, ([zeros(2)] * 2,), ([zeros(2)] * 3,))


@case("structure", "summed([x, y]); summed((x, y))")
def _kind_of_a_nest() -> Function:
    return two_calls(summed, ([zeros(2), zeros(2)],), ((zeros(2), zeros(2)),))


@case("structure", 'summed({"a": x}); summed({"b": x})')
def _keys_of_a_dict() -> Function:
    return two_calls(summed, ({"a": zeros(2)},), ({"b": zeros(2)},))


@case("structure", "scaled(x, 1.0); scaled(x, by=1.0)")
def _named_argument() -> Function:
    jitted = two_calls(scaled, (zeros(2), 1.0))
    jitted(zeros(2), by=1.0)
    return jitted


@case("Python values", "scaled(x, 2.0); scaled(x, 3.0)")
def _a_float() -> Function:
    return two_calls(scaled, (zeros(2), 2.0), (zeros(2), 3.0))


@case("Python values", "scaled(x, 2); scaled(x, 3), with dynamic=False")
def _an_int() -> Function:
    return two_calls(scaled, (zeros(2), 2), (zeros(2), 3))


@case("Python values", "scaled(x, True); scaled(x, False)")
def _a_flag() -> Function:
    return two_calls(scaled, (zeros(2), True), (zeros(2), False))


@case("Python values", 'scaled(x, "mean"); scaled(x, None)')
def _a_name() -> Function:
    return two_calls(scaled, (zeros(2), "mean"), (zeros(2), None))


@case("Python values", "scaled(x, Options()); scaled(x, Options())")
def _an_object() -> Function:
    options = Options(), Options()
    return two_calls(scaled, *[(zeros(2), each) for each in options])


# Tensors among them.
@case("shape", "x of shape (2,); of shape (3,), with dynamic=False")
def _shape() -> Function:
    return two_calls(scaled, (zeros(2),), (zeros(3),))


@case("shape", "x of shape (2,); of shape (3,)")
def _shape_that_varies() -> Function:
    return two_calls(scaled, (zeros(2),), (zeros(3),), dynamic=None)


@case("shape", "x of shape (2,) and (3,); of shape (8,), where the function tests x.shape[0] > 4")
def _shape_that_is_tested() -> Function:
    def tested(x: Tensor) -> Tensor:
        return x * 2.0 if x.shape[0] > 4 else x + 1.0

    return two_calls(tested, (zeros(2),), (zeros(3),), (zeros(8),), dynamic=None)


@case("shape", "x of shape (2,) and (3,); of shape (100000,)")
def _shape_beyond_its_bounds() -> Function:
    return two_calls(scaled, (zeros(2),), (zeros(3),), (zeros(100000),), dynamic=None)


@case("shape", "x and y of shape (2,) and (3,); of shapes (4,) and (5,)")
def _shapes_that_were_equal() -> Function:
    several = [(zeros(m), zeros(n)) for m, n in ((2, 2), (3, 3), (4, 5))]
    return two_calls(lambda x, y: x.sum() + y.sum(), *several, dynamic=None)


@case("shape", "x of shape (2,); of shape (2, 1)")
def _number_of_axes() -> Function:
    return two_calls(scaled, (zeros(2),), (zeros(2, 1),))


@case("stride and offset", "x.T of shape (3, 3); x of shape (3, 3)")
def _stride() -> Function:
    x = zeros(3, 3)
    return two_calls(scaled, (x.T,), (x,))


@case("stride and offset", "x[0] of shape (3, 3); x[1]")
def _offset() -> Function:
    x = zeros(3, 3)
    return two_calls(scaled, (x[0],), (x[1],))


@case("dtype", "float32; float16")
def _dtype() -> Function:
    return two_calls(scaled, (zeros(2),), (zeros(2, dtype=dtypes.float16),))


@case("device", "CPU; PYTHON")
def _device() -> Function:
    return two_calls(scaled, (zeros(2, device="CPU"),), (zeros(2, device="PYTHON"),))


@case("aliasing", "added(x, y); added(x, x)")
def _aliasing() -> Function:
    x = zeros(2)
    return two_calls(added, (x, zeros(2)), (x, x))


@case("aliasing", "added(x, y); added(x, x.view(2))")
def _shared_memory() -> Function:
    x = zeros(2)
    return two_calls(added, (x, zeros(2)), (x, x.view(2)))


@case("gradients", "x; a leaf that requires a gradient, both under no_grad()")
def _requires_a_gradient() -> Function:
    with no_grad():
        return two_calls(scaled, (zeros(2),), (zeros(2).requires_grad_(),))


@case("gradients", "a leaf without .grad; with one, both under no_grad()")
def _has_a_gradient() -> Function:
    leaf = zeros(2).requires_grad_()
    with no_grad():
        jitted = two_calls(scaled, (leaf,))
        leaf.grad = zeros(2)
        jitted(leaf)
    return jitted


# The settings.
@case("gradients", "as ever; under no_grad()")
def _gradient_mode() -> Function:
    jitted = two_calls(scaled, (zeros(2),))
    with no_grad():
        jitted(zeros(2))
    return jitted


@case("settings", "TT_FUSE=3; TT_FUSE=0")
def _a_setting() -> Function:
    jitted = two_calls(scaled, (zeros(2),))
    with config(fuse=0):
        jitted(zeros(2))
    return jitted


# What is read outside of the arguments.
@case("captured state", "a variable of an outer function is 2.0; 3.0")
def _outer_variable() -> Function:
    factor = 2.0
    jitted = two_calls(lambda x: x * factor, (zeros(2),))
    factor = 3.0
    jitted(zeros(2))
    return jitted


@case("captured state", "a global is 2.0; 3.0")
def _global_variable() -> Function:
    global SCALE
    before = SCALE
    jitted = two_calls(lambda x: x * SCALE, (zeros(2),))
    SCALE = before + 1.0
    jitted(zeros(2))
    SCALE = before
    return jitted


@case("captured state", "a list outside holds 2.0; 3.0")
def _a_container() -> Function:
    factors = [2.0]
    jitted = two_calls(lambda x: x * factors[0], (zeros(2),))
    factors[0] = 3.0
    jitted(zeros(2))
    return jitted


@case("captured state", 'an argument\'s attribute is "mean"; "sum"')
def _an_attribute() -> Function:
    options = Options()
    options.kind = "mean"
    jitted = two_calls(scaled, (zeros(2), options))
    options.kind = "sum"
    jitted(zeros(2), options)
    return jitted


@case("captured state", "a module trains; it does not")
def _a_module() -> Function:
    layer = nn.Linear(2, 2, device="CPU")
    with no_grad():
        jitted = two_calls(lambda x: layer(x), (zeros(1, 2),))
        layer.eval()
        jitted(zeros(1, 2))
    return jitted


@case("captured state", "weight_decay is 0; 0.1")
def _an_optimizer() -> Function:
    weight = zeros(2).requires_grad_()
    optimizer = optim.SGD([weight], lr=0.1)

    def step() -> None:
        optimizer.zero_grad()
        (weight * weight).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    jitted = two_calls(step, ())
    optimizer.param_groups[0]["weight_decay"] = 0.1
    jitted()
    return jitted


@case("captured state", "a tensor outside is float32; float16")
def _kind_of_a_tensor_outside() -> Function:
    weight = zeros(2)
    jitted = two_calls(lambda x: x * weight, (zeros(2),))
    weight.data = zeros(2, dtype=dtypes.float16)
    jitted(zeros(2))
    return jitted


@case("captured state", "a tensor outside sees x; x.T")
def _view_of_a_tensor_outside() -> Function:
    weight, x = zeros(2, 2), zeros(2, 2)
    jitted = two_calls(lambda x: x * weight, (zeros(2, 2),))
    weight.data = x.T
    jitted(zeros(2, 2))
    return jitted


@case("captured state", "a tensor outside sees y; y.T; while x is of shape (2, 2), (3, 2), (4, 2)")
def _view_of_a_tensor_outside_for_all_sizes() -> Function:
    weight, y = zeros(2, 2), zeros(2, 2)
    jitted = two_calls(lambda x: x @ weight, (zeros(2, 2),), (zeros(3, 2),), dynamic=None)
    weight.data = y.T
    jitted(zeros(4, 2))
    return jitted


@case("captured state", "two tensors outside have memory of their own; share it")
def _memory_of_tensors_outside() -> Function:
    first, second = zeros(2), zeros(2)
    jitted = two_calls(lambda x: x * first + second, (zeros(2),))
    second.data = first
    jitted(zeros(2))
    return jitted


@case("captured state", "two tensors outside share memory; do not")
def _memory_that_was_shared() -> Function:
    first = zeros(2)
    second = first.view(2)
    jitted = two_calls(lambda x: x * first + second, (zeros(2),))
    second.data = zeros(2)
    jitted(zeros(2))
    return jitted


@case("captured state", "a leaf outside has no .grad; has one, both under no_grad()")
def _gradient_of_a_tensor_outside() -> Function:
    weight = zeros(2).requires_grad_()
    with no_grad():
        jitted = two_calls(lambda x: x * weight, (zeros(2),))
        weight.grad = zeros(2)
        jitted(zeros(2))
    return jitted


@case("captured state", "an argument is another tensor than the one outside; the same")
def _argument_that_is_read_outside() -> Function:
    weight = zeros(2)
    return two_calls(lambda x: x * weight, (zeros(2),), (weight,))


def table() -> str:
    """Return all cases as a Markdown table."""
    rows = ["| guard | the first call; the second | what the second one remarks |", "|---|---|---|"]
    rows += [f"| {each.kind} | {each.calls} | `{each.sentence}` |" for each in CASES.values()]
    return "\n".join(rows)


def fill_in(page: str, rows: str) -> str:
    """Put the table below the marker of a page."""
    return BLOCK.sub(lambda found: f"{found[1]}{rows}", page)


def main() -> None:
    """Print the table; put it into a page if that was asked for."""
    parser = argparse.ArgumentParser("python -m extra.misses", description=__doc__)
    parser.add_argument("--write", type=pathlib.Path, help="a page to put the table into")
    page = parser.parse_args().write
    rows = table()
    print(rows)
    if page:
        page.write_text(fill_in(page.read_text("utf-8"), rows), "utf-8")


if __name__ == "__main__":
    main()
