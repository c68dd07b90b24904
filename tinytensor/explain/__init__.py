"""Explains what a function computes, in which kernels, for what reasons, and what that takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tinytensor.lazy import lazy_import

if TYPE_CHECKING:
    from tinytensor.explain.record import Explanation


Argument = Any  # whatever the function takes


def explain(
    function: Callable[..., Any], *args: Argument, repeats: int = 5, **kwargs: Argument
) -> Explanation:
    """Run a function, and again to measure it; return what its tensors take, and why.

    Every tensor that it returns is computed. It runs 2 * `repeats` + 2 times, every other time
    watched, or once more where its first call makes what later ones use, such as an optimizer's
    state. The peak of each device's memory starts anew.

    >>> from tinytensor import Tensor, explain
    >>> x = Tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> found = explain(lambda: (x @ x.T + 1.0).relu())
    >>> [(each.kernel.name, each.contract.kind) for each in found.kernels]
    [('contract_f32_2x2x2', 'reassociated')]

    Raises: ValueError when `repeats` is below 1.
    """
    if repeats < 1:
        raise ValueError(f"explain: too few runs to measure: repeats={repeats}; must be 1 or more.")
    measure = lazy_import("tinytensor.explain.measure", None, "explain")
    found: Explanation = measure.explain_call(function, args, kwargs, repeats)
    return found
