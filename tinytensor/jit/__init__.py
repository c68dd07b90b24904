"""Turns functions on Tensors into programs that are called again without running the function."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, ParamSpec, TypeVar, overload

from tinytensor.lazy import lazy_import

if TYPE_CHECKING:
    from tinytensor.jit.function import Jitted

P = ParamSpec("P")
R = TypeVar("R")


@overload
def jit(function: Callable[P, R], *, dynamic: bool | None = None) -> Jitted[P, R]: ...
@overload
def jit(
    function: None = None, *, dynamic: bool | None = None
) -> Callable[[Callable[P, R]], Jitted[P, R]]: ...
def jit(
    function: Callable[P, R] | None = None, *, dynamic: bool | None = None
) -> Jitted[P, R] | Callable[[Callable[P, R]], Jitted[P, R]]:
    """Return a function that runs once for each kind of call, and is a program from then on.

    Calls are of one kind when shapes, dtypes, devices, views and aliases of all tensors and all
    other arguments are equal, in equal settings. What the function reads and writes outside, it
    reads and writes at each call.

    Ints among the arguments, and extents of tensors, may become variables: with `dynamic` None
    those that differ between two calls of otherwise one kind, with True all above 1, with False
    none. Then one program serves all of their values for which the function would do the same.

    >>> from tinytensor import Tensor, jit
    >>> @jit
    ... def double(x):
    ...     return x * 2
    >>> [double(Tensor([value])).item() for value in (1.0, 2.0)]
    [2.0, 4.0]
    >>> len(double.programs())
    1
    """
    kind: type[Jitted[P, R]] = lazy_import("tinytensor.jit.function", None, "jit").Jitted
    return partial(kind, dynamic=dynamic) if function is None else kind(function, dynamic)
