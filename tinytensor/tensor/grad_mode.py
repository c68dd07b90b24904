"""Says, for each thread and task, whether results keep what their gradients need."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from functools import wraps
from typing import ParamSpec, TypeVar, overload

P = ParamSpec("P")
R = TypeVar("R")


MODE = ContextVar("gradients", default=True)


class GradMode:
    """Switches gradients on or off: inside a `with` block, or during each call of a function."""

    def __init__(self, mode: bool) -> None:
        self.mode = mode
        self._before: list[bool] = []

    def __enter__(self) -> None:
        self._before.append(MODE.get())
        MODE.set(self.mode)

    def __exit__(self, *error: object) -> None:
        MODE.set(self._before.pop())

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Return the function, in this mode whenever it is called."""

        @wraps(function)
        def switched(*args: P.args, **kwargs: P.kwargs) -> R:
            with GradMode(self.mode):
                return function(*args, **kwargs)

        return switched


class SwitchedNow(GradMode):
    """A mode that holds from now on, and until the end of the block if used in a `with`."""

    def __init__(self, mode: bool) -> None:
        super().__init__(mode)
        self._at_first = MODE.get()
        MODE.set(mode)

    def __enter__(self) -> None:
        self._before.append(self._at_first)
        MODE.set(self.mode)

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Return the function, in this mode whenever it is called; now all is as before."""
        MODE.set(self._at_first)
        return super().__call__(function)


@overload
def no_grad(function: None = None) -> GradMode: ...
@overload
def no_grad(function: Callable[P, R]) -> Callable[P, R]: ...
def no_grad(function: Callable[P, R] | None = None) -> GradMode | Callable[P, R]:
    """Switch gradients off in a `with` block, or in a decorated function.

    >>> from tinytensor import Tensor, no_grad
    >>> x = Tensor([1.0], requires_grad=True)
    >>> with no_grad():
    ...     y = x * 2
    >>> y.requires_grad
    False
    """
    mode = GradMode(False)
    return mode if function is None else mode(function)


@overload
def enable_grad(function: None = None) -> GradMode: ...
@overload
def enable_grad(function: Callable[P, R]) -> Callable[P, R]: ...
def enable_grad(function: Callable[P, R] | None = None) -> GradMode | Callable[P, R]:
    """Switch gradients on in a `with` block, or in a decorated function."""
    mode = GradMode(True)
    return mode if function is None else mode(function)


def inference_mode(mode: bool = True) -> GradMode:
    """Switch gradients off as no_grad does; with False change nothing."""
    return GradMode(False if mode else MODE.get())


def set_grad_enabled(mode: bool) -> SwitchedNow:
    """Switch gradients on or off, from now on or in a `with` block."""
    return SwitchedNow(mode)


def is_grad_enabled() -> bool:
    """Tell whether results keep what their gradients need."""
    return MODE.get()
